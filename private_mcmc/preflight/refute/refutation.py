"""Proofs that a posterior is not private: a pair of data sets and an event, or no posterior at all."""

from __future__ import annotations

from typing import Any

import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.preflight.records import Refutation
from private_mcmc.preflight.refute.ascent import sharper
from private_mcmc.preflight.refute.pairs import DataSet, data_set
from private_mcmc.preflight.refute.quadrature_1d import densities
from private_mcmc.preflight.refute.reduce_1d import lines, on_line
from private_mcmc.preflight.refute.reduce_nd import (
    FoundOnPatch,
    Patch,
    certify_on_patch,
    on_patch,
    patches,
    search_patch,
)
from private_mcmc.preflight.refute.scan import Candidate, Found, Line, certify, search
from private_mcmc.report import floats, number
from private_mcmc.schedule import Matrix
from private_mcmc.target import Target

_MOST_STARTS = 3
# Share of δ from which gradient ascent is worth its time.
_PROMISING = 1e-3


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
    refutation. Rows at the extremes of the domain are tried first, then gradient ascent from the worst of
    them. Nothing here is sampled or private.
    """
    settings: dict[str, Any] = {"n": n, "temper": temper, "target": target}
    met: list[tuple[Line, list[Candidate]]] = []
    for line in lines(row_model, clip, preconditioner):
        missing = _no_posterior(row_model, line, n)
        if missing is not None:
            return missing
        found, candidates = search(line, **settings)
        if found is not None:
            return _on_line(found, temper)
        met.append((line, candidates))
    if clip is not None:
        return None
    for line, candidates in met[:1]:
        if not _is_promising(candidates, target):
            continue
        sharp = _sharper_on_line(row_model, line, candidates, temper, target)
        if sharp is not None:
            return _on_line(sharp, temper)
    if row_model.dim == 1:
        return None
    for patch in patches(row_model):
        there, candidates = search_patch(patch, **settings)
        there = there or _sharper_on_patch(row_model, patch, candidates, temper, target)
        if there is not None:
            return _on_patch(there)
    return None


def _is_promising(candidates: list[Candidate], target: Target) -> bool:
    return bool(candidates) and candidates[0].divergence > _PROMISING * target.delta


def _sharper_on_line(
    row_model: RowModel, line: Line, candidates: list[Candidate], temper: float, target: Target
) -> Found | None:
    """A violating pair of rows found by gradient ascent from the worst candidates."""
    embed = (line.direction / np.sum(line.direction**2))[None]
    starts = candidates[:_MOST_STARTS]
    moved = sharper(
        row_model, line.rows, starts, embed, temper=temper, epsilon=target.epsilon, along=row_model.dim > 1
    )
    for pair in moved:
        here = on_line(row_model, line, pair.rows) if pair.divergence > target.delta else None
        found = None if here is None else certify(here, [(pair.first, pair.second)], temper, target)
        if found is not None:
            return found
    return None


def _sharper_on_patch(
    row_model: RowModel, patch: Patch, candidates: list[Candidate], temper: float, target: Target
) -> FoundOnPatch | None:
    if row_model.dim != patch.dim or not _is_promising(candidates, target):
        return None
    embed, starts = np.eye(row_model.dim), candidates[:_MOST_STARTS]
    moved = sharper(row_model, patch.rows, starts, embed, temper=temper, epsilon=target.epsilon, along=False)
    for pair in moved:
        if not pair.divergence > target.delta:
            break
        here = on_patch(row_model, patch.indices, pair.rows)
        found = certify_on_patch(here, [(pair.first, pair.second)], temper, target)
        if found is not None:
            return found
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
    spoken = line.coordinate.removeprefix("unconstrained ").split("[")[0]
    improper = [name for name in row_model.prior.improper if spoken == name]
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
