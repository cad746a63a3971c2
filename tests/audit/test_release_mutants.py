"""Releases broken in their source are caught: by the audit, or before it by OpenDP's own privacy map."""

import numpy as np
import pytest

from private_mcmc.audit import noised
from private_mcmc.audit.auditing import audit_at
from private_mcmc.errors import ReleaseError
from private_mcmc.release import ledger_filter, moments, noise, propose_test_release
from tests.audit.mutants import Change, changed_module


def audited(mechanism, num_runs=2_000):
    points = ((0.3, 0.1), (1.5, 1e-3))
    return audit_at(
        mechanism,
        mechanism.pairs()[0],
        points,
        num_runs=num_runs,
        failure=1e-6,
        seed=np.random.SeedSequence(0),
    )


def refuted(mechanism, num_runs=2_000):
    return any(not found.sound for found in audited(mechanism, num_runs))


def test_a_test_on_the_count_itself_is_caught(monkeypatch):
    change = Change(propose_test_release, "self.test.release(count) >= self.threshold", "count > 2.5")
    broken = changed_module(propose_test_release, change)
    monkeypatch.setattr(noised, "ProposeTestRelease", broken.ProposeTestRelease)
    assert refuted(noised.propose_test_release("replace_one"), 400)


def test_second_moments_of_rows_beyond_the_radius_are_caught(monkeypatch):
    change = Change(moments, "norms > radius, radius / norms, 1.0", "norms > radius, 1.0, 1.0")
    broken = changed_module(moments, change)
    monkeypatch.setattr(noised, "plan_second_moments", broken.plan_second_moments)
    far = {"X": np.array([2.0, 0.0])}, {"X": np.array([0.0, 2.0])}
    monkeypatch.setattr(noised, "_AXES", far)
    assert refuted(noised.second_moments("replace_one"), 400)


def test_a_filter_that_adds_up_an_eighth_of_each_cost_is_caught(monkeypatch):
    change = Change(ledger_filter, "return level**2", "return level**2 / 8")
    broken = changed_module(ledger_filter, change)
    monkeypatch.setattr(noised, "filter_for", broken.filter_for)
    assert refuted(noised.filtered("gdp")("replace_one"), 4_000)


@pytest.mark.parametrize("build", ["laplace_noise", "gaussian_noise"])
def test_noise_drawn_too_small_is_refused_by_its_own_privacy_map(build):
    text = (
        "make_laplace(*space, scale=self.scale"
        if build == "laplace_noise"
        else "make_gaussian(*space, scale=self.scale"
    )
    broken = changed_module(noise, Change(noise, text, text + " * 0.9"))
    with pytest.raises(ReleaseError, match="more than the promised"):
        getattr(broken, build)(1.0, 1.0)


def test_the_same_releases_unbroken_are_not_refuted():
    assert not refuted(noised.propose_test_release("replace_one"), 400)
    assert not refuted(noised.second_moments("replace_one"), 400)
    assert not refuted(noised.filtered("gdp")("replace_one"), 4_000)
