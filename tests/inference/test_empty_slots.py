"""Where the adjacency hides how many slots are empty, as many people are assumed as were counted."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.planning import CompletedStage
from private_mcmc.planning.affine import affine_policy
from private_mcmc.planning.influence import CELLS
from private_mcmc.release import Sums


def mean_of_people(y=None):
    mu = numpyro.sample("mu", dist.Normal(0.5, 1.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 2.0), obs=y)


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
def test_counts_of_people_are_not_hidden_by_empty_slots(adjacency):
    """A third of the slots are full: noise hides nobody, and synthetic people in their place are as many."""
    slots, people = 6000, 2000
    reading = read(mean_of_people, pmc.Rows(y=pmc.Box(-12.0, 12.0)), n=slots)
    policy, cells = affine_policy(reading, slots, adjacency, 1.0), np.zeros(CELLS)
    cells[10:15] = people / 5

    def read_off(noise_sd):
        with jax.enable_x64(True):
            root = np.array([[2 / people**0.5]])
            stages = [policy._count(np.array([0.5]), root, bound) for bound in policy.influence.bounds]
            counts = Sums(np.asarray(cells)[None], noise_sd)
            return policy.influence_on(tuple(CompletedStage(stage, counts) for stage in stages), "clip")

    if adjacency == "replace_one":
        assert read_off(5.0).counts.noise_sd == 0
        return
    assert read_off(5.0).counts.noise_sd > 0
    # With so much noise it does, and then at most two of its sds more people are assumed than were counted.
    hides = read_off(200.0)
    assert hides.counts.noise_sd == 0
    assert hides.counts.values.sum() == pytest.approx(people + 2 * 200 * CELLS**0.5, rel=0.01)
