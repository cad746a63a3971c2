"""Mechanisms that run only behind a private test of the data, for the soundness sweep.

A test fails in two ways: it may let through what is not private, and its own output may tell too much. Pairs
of both kinds are attacked: one on which the test decides, one on which only the test protects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks.papers.propose_test_release import LowerBound, ProposeTestRelease
from benchmarks.papers.propose_test_sample import ProposeTestSample
from private_mcmc.auditing.chains import chain_mechanism
from private_mcmc.auditing.mechanism import DataSet, Mechanism
from private_mcmc.domains import Ball, Box, Rows
from private_mcmc.kernels import PrivateULA
from private_mcmc.preflight.refute.pairs import PublicRow
from private_mcmc.release import ProposedCurvature, laplace_noise
from private_mcmc.target import Adjacency, Target
from tests.soundness.sweep.noised import NUMBERS, ROWS, Ends, change, edge_pair, of_rows, one_by_one
from tests.soundness.sweep.zoo import line

# A mechanism that is as good as constant where its test should let it through.
_NEGLIGIBLE = 1e-9
# Probability that a test of curvature errs.
_RARELY = 1e-4
# Rows of a line whose clip is 2 where |w| ≤ 3/2: unclipped, without a word, and clipped in both directions.
_STEEP: PublicRow = {"X": np.array([1.0]), "y": np.asarray(0.0)}
_SILENT: PublicRow = {"X": np.array([0.0]), "y": np.asarray(0.0)}
_PUSHING: Ends = {"X": np.array([1.0]), "y": np.asarray(50.0)}, {"X": np.array([1.0]), "y": np.asarray(-50.0)}


def propose_test_release(adjacency: Adjacency) -> Mechanism:
    """A Laplace sum behind a noised count of positive rows; a refusal is an output as well."""
    noise, test = laplace_noise(0.7, change(adjacency)), LowerBound(0.8, 1e-3)
    guard = ProposeTestRelease(ROWS - test.margin, test, 0.7, 0.0, adjacency, "the number of positive rows")

    def once(data: DataSet) -> npt.ArrayLike:
        y = data["y"]
        return _or_refusal(guard.run(float((y > 0).sum()), lambda: float(noise.release(y.sum())[0])))

    positive = {"y": np.asarray(1.0)}
    return of_rows("propose-test-release", guard.statement, one_by_one(once), NUMBERS, positive)


def stable_majority(adjacency: Adjacency) -> Mechanism:
    """Whether most rows are positive, without noise, unless one row may decide it.

    In the pair that is attacked one row decides, so that only the test protects it.
    """
    test = LowerBound(0.8, 1e-3)
    what = "the number of rows that may be replaced before the majority changes"
    guard = ProposeTestRelease(1.0, test, _NEGLIGIBLE, 0.0, adjacency, what)

    def once(data: DataSet) -> npt.ArrayLike:
        total = int(np.sign(data["y"]).sum())
        # A replaced row moves the total by at most two; a majority is positive from a total of one on.
        lead = (total - 1) // 2 if total > 0 else -total // 2
        return _or_refusal(guard.run(lead, lambda: float(total > 0)))

    return of_rows("stable majority", guard.statement, one_by_one(once), NUMBERS, {"y": np.asarray(0.0)})


def propose_test_sample(adjacency: Adjacency) -> Mechanism:
    """Heller and Fetaya's Algorithm 1, with about as many rows on a line as its test asks for."""
    guard = ProposeTestSample(3.0, 0.02, 0.95, 1.0, 1.0, 3.0, adjacency=adjacency)
    far = {"x": np.asarray(0.95), "y": np.asarray(3.0)}
    near = {"x": np.asarray(1.0), "y": np.asarray(1.0)}

    def once(data: DataSet) -> npt.ArrayLike:
        return _or_refusal(guard.release(data["x"], data["y"]))

    return of_rows("propose-test-sample", guard.statement, one_by_one(once), (near, far), near, 130)


def curvature_found(adjacency: Adjacency) -> Mechanism:
    """A chain that relies on curvature which the equal rows have; the differing row pushes its hardest."""
    return _tested_chain(adjacency, ProposedCurvature(5.0, 0.5, _RARELY), _STEEP, _PUSHING)


def curvature_moved(adjacency: Adjacency) -> Mechanism:
    """The same where the differing row has as much curvature as a row may have, or none."""
    return _tested_chain(adjacency, ProposedCurvature(5.0, 1.0, _RARELY), _STEEP, (_STEEP, _SILENT))


def curvature_missing(adjacency: Adjacency) -> Mechanism:
    """The same where no row has any, so that only a test that errs lets the chain run."""
    return _tested_chain(adjacency, ProposedCurvature(3.0, 0.05, _RARELY), _SILENT, _PUSHING)


def _tested_chain(
    adjacency: Adjacency, proposed: ProposedCurvature, common_rows: PublicRow, ends: Ends
) -> Mechanism:
    n = 16
    found = chain_mechanism(
        PrivateULA(line, step_size=0.03, clip=2.0, radius=1.5),
        rows=Rows(X=Ball(1.0, dim=1), y=Box(-50.0, 50.0)),
        target=Target(2.0, 1e-3, adjacency),
        release="last",
        num_steps=60,
        n=n,
        curvature=proposed,
    )
    pair = edge_pair(ends, common_rows, n - 1, adjacency)
    return replace(found, pairs=lambda: (pair,))


def _or_refusal(found: float | None) -> tuple[float, float]:
    return (0.0, 0.0) if found is None else (1.0, found)


GUARDED: dict[str, Callable[[Adjacency], Mechanism]] = {
    "propose-test-release": propose_test_release,
    "stable majority": stable_majority,
    "propose-test-sample": propose_test_sample,
    "curvature found by a test": curvature_found,
    "curvature missing": curvature_missing,
    "curvature moved by a row": curvature_moved,
}
