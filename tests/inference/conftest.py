"""What tests of runs share."""

import pytest

import private_mcmc as pmc


@pytest.fixture
def books(tmp_path):
    """A ledger with a budget for people."""
    ledger = pmc.Ledger.create(tmp_path / "books.db")
    ledger.declare("people", pmc.Target(9.0, 1e-6))
    return ledger


@pytest.fixture
def draws_of_the_path(monkeypatch):
    """No posterior is drawn, which takes most of the time of a fit."""

    def refused(*_):
        raise pmc.NotYetSupported("only what the path says, which is quicker")

    monkeypatch.setattr("private_mcmc.inference.last_run.posterior_of", refused)
