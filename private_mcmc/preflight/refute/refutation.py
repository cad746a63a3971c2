"""Proofs that a posterior is not private: a pair of data sets and an event, or no posterior at all."""

from __future__ import annotations

import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.preflight.records import Refutation
from private_mcmc.preflight.refute.pairs import DataSet, data_set
from private_mcmc.preflight.refute.reduce_1d import lines
from private_mcmc.preflight.refute.reduce_nd import patches
from private_mcmc.preflight.refute.search import Found, Reduction, law_weights, log_posterior, search
from private_mcmc.records import Record
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

    Data sets whose rows depend on one direction, or on two or three coordinates, reduce the posterior to
    few dimensions, where probabilities are integrals with an error estimate that counts against the
    refutation. Rows are those at the extremes of the domain. Nothing here is sampled or private.
    """
    settings: Record = {"n": n, "temper": temper, "target": target}
    for line in lines(row_model, clip, preconditioner):
        missing = _no_posterior(row_model, line, n)
        if missing is not None:
            return missing
        found = search(line, **settings)
        if found is not None:
            return _refutation(found)
    if clip is not None or row_model.dim == 1:
        return None
    for patch in patches(row_model):
        found = search(patch, **settings)
        if found is not None:
            return _refutation(found)
    return None


def _refutation(found: Found) -> Refutation:
    event, reduction, shown = found.violation, found.reduction, found.density
    line = reduction.dim == 1
    if line:
        words = _interval_words(reduction.coordinates[0], event.intervals)
    else:
        words = f"({', '.join(reduction.coordinates)}) in a union of {len(event.boxes)} boxes"
    return Refutation(
        kind="event",
        reason=_reason(words, event.p, event.q),
        first=data_set(reduction.rows, found.first),
        second=data_set(reduction.rows, found.second),
        event=words,
        coordinate=reduction.coordinates[shown.coordinate],
        intervals=event.intervals if line else (),
        coordinates=() if line else reduction.coordinates,
        boxes=() if line else event.boxes,
        p=event.p,
        q=event.q,
        p_low=event.p_low,
        q_high=event.q_high,
        density=(floats(shown.x), floats(shown.p), floats(shown.q)) if len(shown.x) else (),
    )


def _reason(event: str, p: float, q: float) -> str:
    return f"on two adjacent data sets the event {event} has probability {number(p)} and {number(q)}"


def _interval_words(coordinate: str, intervals: tuple[tuple[float, float], ...]) -> str:
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


def _no_posterior(row_model: RowModel, line: Reduction, n: int) -> Refutation | None:
    """A data set whose posterior does not integrate: an improper prior and a likelihood flat far out."""
    read = np.flatnonzero(line.directions[0])
    improper = [
        site.name
        for site in row_model.sites
        if site.improper and np.all((site.slice.start <= read) & (read < site.slice.stop))
    ]
    if not improper:
        return None
    far, (coordinate,) = np.array([1e4, 1e6, 1e8, 1e10]), line.coordinates
    for index, row in enumerate(line.rows):
        counts = tuple(n * (place == index) for place in range(len(line.rows)))
        for sign in (1.0, -1.0):
            tail = log_posterior(line, law_weights(counts, 1.0))(sign * far)
            if np.all(np.isfinite(tail)) and np.ptp(tail) <= 1e-9 * (1 + abs(tail[0])):
                end = "∞" if sign > 0 else "−∞"
                reason = (
                    f"the prior of {improper[0]!r} is improper and on a data set of the domain the "
                    f"likelihood does not vanish as {coordinate} → {end}: there is no posterior"
                )
                return Refutation("no posterior", reason, DataSet(((row, n),)), coordinate=coordinate)
    return None
