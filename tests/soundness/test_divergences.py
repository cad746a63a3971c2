"""No certificate of a small model is contradicted by two of its posteriors on a grid."""

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from tests.soundness.certified import judge, small
from tests.soundness.divergence import grid, hockey_stick

FEW, SEEDS = 4, 24


def test_the_grid_gives_the_known_divergence_of_two_normals():
    """``N(0, 1)`` and ``N(m, 1)``: ``Φ(m/2 − ε/m) − e^ε Φ(−m/2 − ε/m)``; in the plane the same."""
    for dim in (1, 2):
        cells = grid(dim)
        for shift, epsilon in ((0.5, 0.0), (1.5, 1.0)):
            logs = [
                cells.log_volume - 0.5 * (np.square(cells.points[:, 0] - centre) + rest)
                for centre in (0.0, shift)
                for rest in [np.square(cells.points[:, 1:]).sum(axis=1)]
            ]
            one, other = (np.exp(log - np.logaddexp.reduce(log)) for log in logs)
            exact = ndtr(shift / 2 - epsilon / shift) - np.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift)
            assert hockey_stick(one, other, epsilon) == pytest.approx(exact, rel=3e-3 if dim == 1 else 3e-2)


@pytest.mark.some(1)
@pytest.mark.parametrize("seeds", [range(FEW), range(FEW, SEEDS)], ids=["few", "more"])
def test_no_pair_of_data_sets_contradicts_a_certificate(seeds):
    assert check(seeds, every=4) >= 2


@pytest.mark.long
@pytest.mark.parametrize("start", range(SEEDS, 424, 20))
def test_no_pair_of_data_sets_contradicts_one_of_many_certificates(start):
    check(range(start, start + 20), every=3)
    jax.clear_caches()


def check(seeds: range, *, every: int) -> int:
    """How many models were certified; rows are moved by gradient ascent in every so many of them."""
    certified = 0
    for seed in seeds:
        verdict = judge(small(seed), ascend=certified % every == 0)
        if verdict is not None:
            assert not verdict.false, "\n\n".join(verdict.false)
            certified += verdict.certified
    return certified
