"""What tests of runs share."""

import pytest

import private_mcmc as pmc


@pytest.fixture
def books(tmp_path):
    """A ledger with a budget for people."""
    ledger = pmc.Ledger.create(tmp_path / "books.db")
    ledger.declare("people", pmc.Target(9.0, 1e-6))
    return ledger
