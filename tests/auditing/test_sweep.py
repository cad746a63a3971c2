"""A small, deterministic part of the soundness sweep; `make audit` runs all of it."""

import pytest

from tests.soundness.sweep import kept
from tests.soundness.sweep import sweep as module
from tests.soundness.sweep.noised import NOISED
from tests.soundness.sweep.posteriors import MODELS
from tests.soundness.sweep.settings import AVERAGES, KERNELS, MECHANISMS, POINTS, settings
from tests.soundness.sweep.sweep import sweep

CHAINS = (
    "mean, full metric, path, zero_out",
    "logistic, poisson batches, steps, add_remove",
    "bent, projected, last, replace_one",
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
    found = sweep(part, num_runs=2_000)
    assert found.sound, found.refuted
    assert found.any_failure == pytest.approx(len(POINTS) * len(CHAINS) * 1e-6)
    assert sum(one.result.tightness > 0.3 for one in found.found) >= len(found.found) / 2


@pytest.mark.long
def test_no_claim_of_noise_filters_and_exact_posteriors_is_refuted():
    """Fails with probability 4e-5 if all claims hold."""
    part = [
        setting
        for setting in settings()
        if setting.adjacency == "replace_one"
        and (setting.release in set(NOISED) - {"second moments"} or setting.model in ("Normal mean", "coin"))
    ]
    found = sweep(part, num_runs=1_000)
    assert found.sound, found.refuted
    assert sum(one.result.tightness > 0.2 for one in found.found) > len(found.found) / 2


@pytest.mark.slow
def test_the_report_of_a_sweep_names_every_setting():
    part = [setting for setting in settings() if setting.name == "rows, no chain, Laplace sum, zero_out"]
    found = sweep(part, num_runs=400)
    text = found.report.to_html()
    assert part[0].name in text
    assert "sound" in text
    assert found.to_dict()["settings"] == len(POINTS)


@pytest.mark.long
def test_a_sweep_that_was_stopped_goes_on_and_asks_nothing_twice(tmp_path, monkeypatch):
    """Results of other code, or of other numbers, are not taken for its own."""
    part = [one for one in settings() if one.model == "coin"]
    told = []

    def goes_on(**numbers):
        told.clear()
        return sweep(part, kept=tmp_path, on_setting=lambda found, now: told.append(now), **numbers)

    def stopped(*job):
        if len(list(tmp_path.iterdir())) == len(part) - 1:
            raise KeyboardInterrupt
        return audited(*job)

    audited = module._audited
    with monkeypatch.context() as patched:
        patched.setattr(module, "_audited", stopped)
        with pytest.raises(KeyboardInterrupt):
            goes_on(num_runs=400)
    found = goes_on(num_runs=400)
    assert told == [False] * (len(part) - 1) + [True]
    assert found.to_dict() == sweep(part, num_runs=400).to_dict()
    goes_on(num_runs=401)
    assert all(told)
    monkeypatch.setattr(kept, "version", lambda name: "another")
    goes_on(num_runs=400)
    assert all(told)
