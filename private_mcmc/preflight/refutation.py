"""Proofs that a posterior is not private: a pair of data sets and an event, or no posterior at all."""

from __future__ import annotations

import numpy as np

from private_mcmc.modeling import RowModel
from private_mcmc.preflight.lines import lines
from private_mcmc.preflight.quadrature import densities
from private_mcmc.preflight.records import Refutation
from private_mcmc.preflight.search import DataSet, Found, Line, search
from private_mcmc.report import floats, number
from private_mcmc.schedule import Matrix
from private_mcmc.target import Target


def refute(
    row_model: RowModel,
    *,
    n: int,
    temper: float,
    target: Target,
    clip: float | None = None,
    preconditioner: Matrix | None = None,
) -> Refutation | None:
    """A refutation of the target for the (Huberised) posterior, or ``None`` if none is found.

    Data sets of parallel rows reduce the posterior to one dimension, where probabilities are integrals
    with an error estimate that counts against the refutation. Nothing here is sampled or private.
    """
    for line in lines(row_model, clip, preconditioner):
        missing = _no_posterior(row_model, line, n)
        if missing is not None:
            return missing
        found = search(line, n=n, temper=temper, target=target)
        if found is not None:
            return _described(found, temper)
    return None


def _described(found: Found, temper: float) -> Refutation:
    seen, line = found.violation, found.line
    first, second = (line.log_posterior(counts, temper) for counts in (found.first, found.second))
    return Refutation(
        kind="event",
        reason=(
            f"on two adjacent data sets the event {event_words(line.coordinate, seen.intervals)} has "
            f"probability {number(seen.p)} and {number(seen.q)}"
        ),
        first=found.data_set(found.first),
        second=found.data_set(found.second),
        coordinate=line.coordinate,
        intervals=seen.intervals,
        p=seen.p,
        q=seen.q,
        p_low=seen.p_low,
        q_high=seen.q_high,
        density=tuple(floats(values) for values in densities(first, second)),
    )


def event_words(coordinate: str, intervals: tuple[tuple[float, float], ...]) -> str:
    """The event in words: ``w[0] > 3.006``."""
    parts = []
    for low, high in intervals[:3]:
        if low == -np.inf:
            parts.append(f"{coordinate} < {number(high)}")
        elif high == np.inf:
            parts.append(f"{coordinate} > {number(low)}")
        else:
            parts.append(f"{number(low)} < {coordinate} < {number(high)}")
    return " or ".join(parts) + (" or …" if len(intervals) > 3 else "")


def _no_posterior(row_model: RowModel, line: Line, n: int) -> Refutation | None:
    """A data set whose posterior does not integrate: an improper prior and rows that say nothing far out."""
    improper = [name for name in row_model.prior.improper if line.coordinate.split("[")[0] == name]
    if not improper:
        return None
    far = np.array([1e4, 1e6, 1e8, 1e10])
    for index in range(len(line.rows)):
        counts = tuple(n * (place == index) for place in range(len(line.rows)))
        for sign in (1.0, -1.0):
            tail = line.log_posterior(counts, 1.0)(sign * far)
            if np.all(np.isfinite(tail)) and np.ptp(tail) <= 1e-9 * (1 + abs(tail[0])):
                end = "∞" if sign > 0 else "−∞"
                reason = (
                    f"the prior of {improper[0]!r} is improper and on a data set of the domain the "
                    f"likelihood does not vanish as {line.coordinate} → {end}: there is no posterior"
                )
                found = DataSet(((line.rows[index], n),))
                return Refutation("no posterior", reason, found, coordinate=line.coordinate)
    return None
