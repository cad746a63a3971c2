"""Mechanisms without a chain, for the soundness sweep: noise, compositions of it, filters.

Each works on a few rows in a unit domain; the row in which two data sets differ sits at its ends.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from private_mcmc import accounting
from private_mcmc.accounting import Statement, gdp
from private_mcmc.auditing.mechanism import DataSet, FloatArray, Pair
from private_mcmc.model.synthetic import PublicRow
from private_mcmc.release import (
    Contribution,
    Family,
    GaussianNoise,
    LaplaceNoise,
    gaussian_noise,
    laplace_noise,
    plan_second_moments,
    plan_sums,
)
from private_mcmc.release.ledger_state import Filter
from private_mcmc.target import Adjacency, Target
from tests.soundness.attacks import PairedMechanism, pair_of_rows

ROWS = 3
_EPSILON, _GDP = 1.2, 1.5

# Outputs of independent runs on one data set, shape (runs, d).
Runs = Callable[[DataSet, int], FloatArray]
Ends = tuple[PublicRow, PublicRow]

NUMBERS: Ends = {"y": np.asarray(1.0)}, {"y": np.asarray(-1.0)}
_AXES: Ends = {"X": np.array([1.0, 0.0])}, {"X": np.array([0.0, 1.0])}
_ZERO: PublicRow = {"y": np.asarray(0.0)}
_CORNERS: Ends = {"y": np.ones(3)}, {"y": -np.ones(3)}


def of_rows(
    name: str, statement: Statement, runs: Runs, ends: Ends, others: PublicRow, count: int = ROWS - 1
) -> PairedMechanism:
    """A mechanism that draws its own randomness, which no seed repeats."""
    pair = edge_pair(ends, others, count, statement.adjacency)
    return PairedMechanism(
        name, statement, lambda data, number, seed: runs(data, number), pairs=lambda: (pair,)
    )


def edge_pair(ends: Ends, others: PublicRow, count: int, adjacency: Adjacency) -> Pair:
    """``count`` rows ``others``, then one end of the domain against the other, or against no row."""
    first, second = ends
    return pair_of_rows(others, count, first, second if adjacency == "replace_one" else None)


def noised(noise: LaplaceNoise | GaussianNoise, values: npt.ArrayLike) -> FloatArray:
    """``noise`` on every row of ``values``, shape ``(runs, d)``, in one call.

    Every coordinate has its own draw of one scale on one grid, so a longer vector is as good as many calls.
    """
    rows = np.asarray(values, dtype=np.float64)
    return replace(noise.confirmed(), size=rows.size).drawn(rows.ravel()).reshape(rows.shape)


def one_by_one(once: Callable[[DataSet], npt.ArrayLike]) -> Runs:
    """Runs of a mechanism that is asked for one output at a time."""
    return lambda data, number: np.stack(
        [np.ravel(np.asarray(once(data), dtype=np.float64)) for _ in range(number)]
    )


def second_moments(adjacency: Adjacency) -> PairedMechanism:
    """Second moments of rows in the unit disc; orthogonal rows move them most."""
    plan = plan_second_moments(_GDP, radius=1.0, dim=2, num_rows=ROWS, adjacency=adjacency)

    def once(data: DataSet) -> npt.ArrayLike:
        return plan.noised(plan.sums(data["X"]))[np.triu_indices(2)]

    return of_rows("second moments", plan.statement, one_by_one(once), _AXES, {"X": np.zeros(2)})


def sums_in_cells(adjacency: Adjacency) -> PairedMechanism:
    """Counts, sums and squares in the cells of signs; rows of both signs move them most."""
    plan = plan_sums(_GDP, (Family("signs", 2, 2), Family("all", 1, 1)), num_rows=ROWS, adjacency=adjacency)

    def runs(data: DataSet, number: int) -> FloatArray:
        y = data["y"]
        parts = (Contribution((y > 0).astype(int), y), Contribution(np.zeros(len(y), int), y))
        return noised(plan.noise, np.tile(plan.sums(parts, np.ones(len(y), bool)), (number, 1)))

    return of_rows("sums in cells", plan.statement, runs, NUMBERS, _ZERO)


def composed_pair(adjacency: Adjacency) -> PairedMechanism:
    """A Laplace and a Gaussian release of the same rows, both fixed in advance."""
    laplace, gaussian = laplace_noise(0.7, change(adjacency)), gaussian_noise(1.0, change(adjacency))
    total = accounting.compose(
        _statement(laplace, adjacency).of("first"), _statement(gaussian, adjacency).of("second")
    )

    def runs(data: DataSet, number: int) -> FloatArray:
        values = np.full((number, 1), data["y"].sum())
        return np.concatenate([noised(laplace, values), noised(gaussian, values)], axis=1)

    return of_rows("composed pair", total, runs, NUMBERS, _ZERO)


def filtered(adjacency: Adjacency) -> PairedMechanism:
    """Releases under a ledger's filter: each is chosen from the last output, until none fits any more."""
    budget = Filter.of(Target(2.0, 1e-2, adjacency))
    # Seen before the first run: what is chosen from, and what each choice costs.
    offered = [gaussian_noise(level, change(adjacency)) for level in (0.4, 0.6)]
    costs = [budget.cost(_statement(noise, adjacency)) for noise in offered]
    most = int(budget.limit / min(costs)) + 1
    # Whether one more of either is within the limit after so many of both, in exact fractions.
    fits = np.array(
        [
            [[i * costs[0] + j * costs[1] + cost <= budget.limit for cost in costs] for j in range(most + 1)]
            for i in range(most + 1)
        ]
    )
    claimed = accounting.adaptive(gdp.budget(2.0, 1e-2), adjacency, ())

    def runs(data: DataSet, number: int) -> FloatArray:
        done, choice = np.zeros((2, number), dtype=int), np.zeros(number, dtype=int)
        outputs = np.zeros((number, 2))
        for _ in range(most):
            allowed = fits[done[0], done[1], choice]
            for index, noise in enumerate(offered):
                now = np.flatnonzero(allowed & (choice == index))
                if now.size == 0:
                    continue
                seen = noised(noise, np.full((now.size, 1), data["y"].sum()))[:, 0]
                # The best summary of what was seen; how much was seen is an output as well.
                outputs[now] += np.stack([seen, np.ones(now.size)], axis=1) / noise.sd**2
                done[index, now] += 1
                choice[now] = seen > 0
        return outputs

    return of_rows("releases under a filter", claimed, runs, NUMBERS, _ZERO)


def _sums(
    make: Callable[..., LaplaceNoise | GaussianNoise],
    level: float,
    moved: float = 1.0,
    ends: Ends = NUMBERS,
    scale: float = 1.0,
) -> Callable[[Adjacency], PairedMechanism]:
    """Sums of numbers in ``[−1, 1]`` times ``scale``, with noise fit for ``moved`` times what one changes."""

    def mechanism(adjacency: Adjacency) -> PairedMechanism:
        noise = make(level, moved * change(adjacency), size=ends[0]["y"].size)

        def runs(data: DataSet, number: int) -> FloatArray:
            return noised(noise, np.tile(data["y"].sum(axis=0) * scale, (number, 1)))

        silent = {"y": np.zeros_like(ends[0]["y"])}
        return of_rows(f"{make.__name__} on sums", _statement(noise, adjacency), runs, ends, silent)

    return mechanism


def change(adjacency: Adjacency) -> float:
    """What one number in ``[−1, 1]`` changes of a sum."""
    return 2.0 if adjacency == "replace_one" else 1.0


def _statement(noise: LaplaceNoise | GaussianNoise, adjacency: Adjacency) -> Statement:
    if isinstance(noise, GaussianNoise):
        return accounting.gaussian(
            adjacency=adjacency,
            sensitivity=noise.charged_sensitivity,
            scale=noise.gaussian_scale,
            dim=noise.size,
            num_rows=3,
        )
    return accounting.laplace(
        noise.level,
        adjacency=adjacency,
        sensitivity=noise.sensitivity,
        scale=noise.scale,
        grid=noise.grid,
        dim=noise.size,
        num_rows=3,
    )


NOISED: dict[str, Callable[[Adjacency], PairedMechanism]] = {
    "Laplace sum": _sums(laplace_noise, _EPSILON),
    "Laplace vector": _sums(laplace_noise, _EPSILON, 3, _CORNERS),
    "Gaussian sum": _sums(gaussian_noise, _GDP),
    "Gaussian vector": _sums(gaussian_noise, _GDP, 3**0.5, _CORNERS),
    # Over the public number of rows, or their public bound.
    "noisy mean": _sums(gaussian_noise, _GDP, 1 / ROWS, scale=1 / ROWS),
    "second moments": second_moments,
    "sums in cells": sums_in_cells,
    "composed pair": composed_pair,
    "ledger": filtered,
}
