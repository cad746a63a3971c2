"""Proofs that a posterior is not private: a pair of data sets and an event, or no posterior at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.preflight.refute.pairs import DataSet, data_set
from private_mcmc.preflight.refute.reduce_1d import lines
from private_mcmc.preflight.refute.search import Found, Reduction, law_weights, log_posterior, search
from private_mcmc.records import Record
from private_mcmc.report import floats, json_types, number
from private_mcmc.schedule import Matrix
from private_mcmc.target import Target


@dataclass(frozen=True)
class Refutation:
    """A pair of adjacent, synthetic data sets of the domain, and an event that tells their posteriors apart.

    ``kind="event"``: ``P[A|first] ≥ p_low > e^ε q_high + δ ≥ e^ε P[A|second] + δ``. ``kind="no posterior"``:
    the posterior of ``first`` does not integrate, so there is nothing that could be private.

    Attributes:
        event: the event in words.
        coordinate: the quantity that ``intervals`` and ``density`` are about.
        intervals: the event, a union of intervals.
        density: the two posterior densities of the coordinate, ``(x, first, second)``, for a plot.
    """

    kind: Literal["event", "no posterior"]
    reason: str
    first: DataSet
    second: DataSet | None = None
    event: str = ""
    coordinate: str = ""
    intervals: tuple[tuple[float, float], ...] = ()
    p: float = 0.0
    q: float = 0.0
    p_low: float = 0.0
    q_high: float = 0.0
    density: tuple[tuple[float, ...], ...] = field(default=(), repr=False)

    def to_dict(self) -> Record:
        """Plain data; infinite ends of intervals as ``None``."""
        kept = {name: value for name, value in vars(self).items() if name != "density"}
        ends = [[None if abs(end) == float("inf") else end for end in pair] for pair in self.intervals]
        second = None if self.second is None else self.second.to_dict()
        sets = {"first": self.first.to_dict(), "second": second, "intervals": ends}
        result: Record = json_types(kept | sets)
        return result


class Search(NamedTuple):
    """What came of a search: a refutation, or in words where it was looked for."""

    refutation: Refutation | None
    words: str = ""


def refute(
    row_model: RowModel,
    *,
    n: int,
    temper: float,
    target: Target,
    clip: float | None = None,
    preconditioner: Matrix | None = None,
) -> Search:
    """A refutation of the target for the (Huberised) posterior, if one is found.

    Data sets whose rows depend on one direction reduce the posterior to a line, where probabilities are
    integrals with an error estimate that counts against the refutation. Rows are those at the extremes of the
    domain. Nothing here is sampled or private.
    """
    looked: list[tuple[str, bool]] = []
    for line in lines(row_model, clip, preconditioner):
        missing = _no_posterior(row_model, line, n)
        if missing is not None:
            return Search(missing)
        found, compared = search(line, n=n, temper=temper, target=target)
        if found is not None:
            return Search(_refutation(found))
        looked.append((line.coordinate, compared))
    return Search(None, _looked_for(looked))


def _looked_for(looked: list[tuple[str, bool]]) -> str:
    """Where no pair was found, or why none was looked for: what is not found may still be there."""
    places = dict.fromkeys(place for place, compared in looked if compared)
    if places:
        words = (
            "no pair of data sets was found that violates the target, among some of extreme rows that tell"
        )
        return f"{words} of {' and '.join(places)} alone"
    why = "its posterior is not known on a line, whatever the rows are"
    if looked:
        why = "no grid holds the mass of the posteriors on which it was begun"
    return f"no refutation was tried: {why}"


def _refutation(found: Found) -> Refutation:
    event, reduction, shown = found.violation, found.reduction, found.density
    words = _interval_words(reduction.coordinate, event.intervals)
    return Refutation(
        kind="event",
        reason=f"on two adjacent data sets the event {words} has probability {number(event.p)} and "
        f"{number(event.q)}",
        first=data_set(reduction.rows, found.first),
        second=data_set(reduction.rows, found.second),
        event=words,
        coordinate=reduction.coordinate,
        intervals=event.intervals,
        p=event.p,
        q=event.q,
        p_low=event.p_low,
        q_high=event.q_high,
        density=(floats(shown.x), floats(shown.p), floats(shown.q)) if len(shown.x) else (),
    )


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
    read = np.flatnonzero(line.direction)
    improper = [
        site.name
        for site in row_model.sites
        if site.improper and np.all((site.slice.start <= read) & (read < site.slice.stop))
    ]
    if not improper:
        return None
    far, coordinate = np.array([1e4, 1e6, 1e8, 1e10]), line.coordinate
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
