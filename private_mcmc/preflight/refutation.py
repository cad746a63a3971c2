"""Proofs that a posterior is not private: a pair of data sets and an event, or no posterior at all."""

from __future__ import annotations

import numpy as np

from private_mcmc.modeling import RowModel
from private_mcmc.preflight.lines import lines
from private_mcmc.preflight.patches import FoundOnPatch, patches, search_patch
from private_mcmc.preflight.quadrature import densities
from private_mcmc.preflight.records import Refutation
from private_mcmc.preflight.search import DataSet, Found, Line, data_set, search
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

    Data sets whose rows speak of one direction, or of two or three coordinates, reduce the posterior to
    few dimensions, where probabilities are integrals with an error estimate that counts against the
    refutation. Nothing here is sampled or private.
    """
    reduced = False
    for line in lines(row_model, clip, preconditioner):
        reduced = True
        missing = _no_posterior(row_model, line, n)
        if missing is not None:
            return missing
        found = search(line, n=n, temper=temper, target=target)
        if found is not None:
            return _on_line(found, temper)
    if reduced or clip is not None:
        return None
    for patch in patches(row_model):
        on_patch = search_patch(patch, n=n, temper=temper, target=target)
        if on_patch is not None:
            return _on_patch(on_patch)
    return None


def _on_line(found: Found, temper: float) -> Refutation:
    seen, line = found.violation, found.line
    event = _interval_words(line.coordinate, seen.intervals)
    first, second = (line.log_posterior(counts, temper) for counts in (found.first, found.second))
    return Refutation(
        kind="event",
        reason=_reason(event, seen.p, seen.q),
        first=data_set(line.rows, found.first),
        second=data_set(line.rows, found.second),
        event=event,
        coordinate=line.coordinate,
        intervals=seen.intervals,
        p=seen.p,
        q=seen.q,
        p_low=seen.p_low,
        q_high=seen.q_high,
        density=tuple(floats(values) for values in densities(first, second)),
    )


def _on_patch(found: FoundOnPatch) -> Refutation:
    seen, patch, shown = found.violation, found.patch, found.marginals
    event = f"({', '.join(patch.coordinates)}) in a union of {len(seen.boxes)} boxes"
    return Refutation(
        kind="event",
        reason=_reason(event, seen.p, seen.q),
        first=data_set(patch.rows, found.first),
        second=data_set(patch.rows, found.second),
        event=event,
        coordinate=patch.coordinates[shown.axis],
        coordinates=patch.coordinates,
        boxes=seen.boxes,
        p=seen.p,
        q=seen.q,
        p_low=seen.p_low,
        q_high=seen.q_high,
        density=(floats(shown.x), floats(shown.p), floats(shown.q)),
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
