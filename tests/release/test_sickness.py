"""Chains that are sick are found from what was released, said, and lend no number that makes no sense."""

import numpy as np

import private_mcmc as pmc
from private_mcmc.release.released import ReleasedStates, overshot, sickness


def walk(rho, draws=600, chains=1, dim=3, seed=0):
    """An autoregression of unit noise, ``(chains, draws, dim)``."""
    rng = np.random.default_rng(seed)
    states = np.zeros((chains, draws, dim))
    for k in range(1, draws):
        states[:, k] = rho * states[:, k - 1] + rng.normal(size=(chains, dim))
    return states


def test_steps_that_overshoot_and_chains_that_disagree_are_found_and_healthy_ones_are_not():
    """Lag-1 autocorrelation −0.96 was released with r̂ 1.00 and n_eff −938, a censored Weibull with r̂ 2.9."""
    assert overshot(walk(-0.96)).all() and "overshoot" in sickness({"w": walk(-0.96)})
    for rho in (0.0, 0.5, -0.3):
        assert not overshot(walk(rho)).any()
        assert sickness({"w": walk(rho, draws=4000)}) == ""
    apart = walk(0.1, chains=2) + np.array([0.0, 5.0])[:, None, None]
    assert "r̂" in sickness({"w": apart})
    assert sickness({"w": np.zeros((1, 5, 2))}) == ""


def test_the_summary_of_a_sick_chain_says_so_first_and_prints_no_effective_size(capsys):
    statement = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=2.0)
    for rho, sick in ((-0.96, True), (0.2, False)):
        states, steps = {"w": walk(rho, draws=3000)}, tuple(range(1, 3001))
        ReleasedStates(states, steps, 0, statement, {}, 2.0**-40).print_summary()
        out = capsys.readouterr().out
        assert out.startswith("The chain is sick") == sick and ("n_eff" in out) != sick
