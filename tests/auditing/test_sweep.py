"""A small, deterministic part of the soundness sweep; `make audit` runs all of it."""

import pytest

from tests.soundness.attacks import tightness
from tests.soundness.sweep import __main__ as command
from tests.soundness.sweep.noised import NOISED
from tests.soundness.sweep.posteriors import MODELS
from tests.soundness.sweep.settings import AVERAGES, KERNELS, MECHANISMS, POINTS, settings
from tests.soundness.sweep.sweep import sweep

CHAINS = (
    "mean, full metric, path, zero_out",
    "logistic, poisson batches, steps, add_remove",
    "bent, decreasing steps, last, replace_one",
    "loud mean, plain, bounded expectations, replace_one",
)


def test_the_sweep_covers_what_the_library_offers():
    every = list(settings())
    assert len(every) * len(POINTS) >= 300
    assert len({setting.name for setting in every}) == len(every)
    found = {
        field: {getattr(one, field) for one in every} for field in ("kernel", "release", "adjacency", "model")
    }
    assert found["kernel"] >= set(KERNELS)
    assert found["release"] >= {"last", "path", "steps", "posterior", *MECHANISMS, *AVERAGES}
    assert found["adjacency"] == {"replace_one", "add_remove", "zero_out"}
    assert found["model"] >= set(MODELS)


@pytest.mark.long
def test_no_claim_of_a_few_chains_is_refuted():
    """Fails with probability 8e-6 if all claims hold."""
    part = [setting for setting in settings() if setting.name in CHAINS]
    assert len(part) == len(CHAINS)
    found = [one for _, one in sweep(part, num_runs=2_000)]
    assert all(one.sound for one in found), found
    assert sum(tightness(one) > 0.3 for one in found) >= len(found) / 2


@pytest.mark.long
def test_no_claim_of_noise_filters_and_exact_posteriors_is_refuted():
    """Fails with probability 4e-5 if all claims hold."""
    part = [
        setting
        for setting in settings()
        if setting.adjacency == "replace_one"
        and (setting.release in set(NOISED) - {"second moments"} or setting.model in ("Normal mean", "coin"))
    ]
    found = [one for _, one in sweep(part, num_runs=1_000)]
    assert all(one.sound for one in found), found
    assert sum(tightness(one) > 0.2 for one in found) > len(found) / 2


@pytest.mark.slow
@pytest.mark.parametrize("claimed", [1.0, 0.5])
def test_the_command_tells_of_every_setting_and_of_claims_that_are_refuted(monkeypatch, capsys, claimed):
    (one,) = (setting for setting in settings() if setting.name == "rows, no chain, Gaussian sum, zero_out")
    monkeypatch.setattr(command, "settings", lambda: [one])
    monkeypatch.setattr("private_mcmc.accounting.Statement.gdp", claimed * 1.5)
    monkeypatch.setattr("sys.argv", ["sweep", "--workers", "1"])
    assert command.main() == (claimed < 1)
    said = capsys.readouterr().out
    assert one.name in said and ("REFUTED" in said) == (claimed < 1)
