"""Releases and prices broken in their source are caught by the audit, by name; unbroken they are not."""

import pytest

from private_mcmc.accounting import conjugate
from private_mcmc.auditing import audit
from private_mcmc.errors import ReleaseError
from private_mcmc.release import noise
from tests.auditing.mutants import Change, changed_module
from tests.auditing.release_mutants import SCENARIOS, Scenario
from tests.soundness.attacks import deltas


def refuted(scenario: Scenario) -> bool:
    """Wrongly so with probability at most 1e-6."""
    mechanism = scenario.mechanism()
    where = deltas(mechanism, scenario.points)
    return not audit(mechanism, mechanism.pairs()[0], delta=where, num_runs=scenario.num_runs).sound


LONG = {
    # A thousand runs of the driver; for every day there are the coupled chains of
    # test_coupled_chains_on_adjacent_data_stay_within_the_charge.
    "sensitivity of an average halved"
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else pytest.mark.slow) for name in SCENARIOS],
)
def test_the_mutant_is_caught(name, monkeypatch):
    for swap in SCENARIOS[name].swaps:
        monkeypatch.setattr(swap.owner, swap.attribute, swap.mutant)
        if swap.owner is conjugate:
            known, _ = conjugate.FAMILIES[swap.attribute]
            monkeypatch.setitem(conjugate.FAMILIES, swap.attribute, (known, swap.mutant))
    assert refuted(SCENARIOS[name])


@pytest.mark.some(1)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_source_without_the_change_is_not_refuted(name):
    assert not refuted(SCENARIOS[name])


@pytest.mark.parametrize("build", ["laplace_noise", "gaussian_noise"])
def test_noise_drawn_too_small_is_refused_by_its_own_privacy_map(build):
    text = f"make_{build.removesuffix('_noise')}(*space, scale=self.scale"
    broken = changed_module(noise, Change(noise, text, text + " * 0.9"))
    with pytest.raises(ReleaseError, match="more than the promised"):
        getattr(broken, build)(1.0, 1.0).release([0.0])
