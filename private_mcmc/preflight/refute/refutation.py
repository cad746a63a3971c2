"""Proofs that a posterior is not private: a pair of data sets and an event, or no posterior at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.interval import between
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.preflight.refute.pairs import DataSet, PublicRow, data_set, extreme_rows, stacked
from private_mcmc.preflight.refute.reduce_1d import chunked, coordinate_name, distinct, is_independent, lines
from private_mcmc.preflight.refute.search import Found, Reduction, Terms, law_weights, log_posterior, search
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
        intervals: the event on a line; empty where the event is a union of boxes.
        coordinates: the quantities that ``boxes`` are about.
        boxes: the event in two or three dimensions, ``(low, high)`` for each coordinate.
        density: the two posterior densities of the coordinate, ``(x, first, second)``, for a plot.
    """

    kind: Literal["event", "no posterior"]
    reason: str
    first: DataSet
    second: DataSet | None = None
    event: str = ""
    coordinate: str = ""
    intervals: tuple[tuple[float, float], ...] = ()
    coordinates: tuple[str, ...] = ()
    boxes: tuple[tuple[tuple[float, float], ...], ...] = ()
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


_FAR, _FAR_EXPONENT = 1e30, 300.0


def activity(row_model: RowModel) -> Callable[[PublicRow], frozenset[int]]:
    """Coordinates of ``θ`` on which the loss of a row may depend; on all others it does not.

    A loss of affine predictors depends on what their design at this row does not annul. Otherwise the
    gradient is bounded by interval arithmetic over all ``θ`` whose constrained values floats can hold.
    """
    predictors = row_model.predictors
    if predictors is not None:
        compiled = jax.jit(predictors.design)

        def from_design(row: PublicRow) -> frozenset[int]:
            with jax.enable_x64(True):
                design = np.asarray(compiled({name: np.asarray(value) for name, value in row.items()}))
            return frozenset(np.flatnonzero(np.any(design != 0, axis=0)).tolist())

        return from_design
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in row_model.rows.items}
    with jax.enable_x64(True):
        program = trace(
            lambda theta, **row: {"gradient": jax.grad(row_model.row_loss)(theta, row)},
            theta=abstract((row_model.dim,), np.float64),
            **shapes,
        )
    # Sites that are not real are exponentials of their coordinates, or logistic.
    largest = np.full(row_model.dim, _FAR)
    for site in row_model.sites:
        if site.support != "real":
            largest[site.slice] = _FAR_EXPONENT

    def from_gradient(row: PublicRow) -> frozenset[int]:
        given = {program.inputs["theta"]: between(-largest, largest)}
        for name, value in row.items():
            point = np.asarray(value, dtype=np.float64)
            given[program.inputs[name]] = between(point, point, whole=bool(np.all(point == np.round(point))))
        with jax.enable_x64(True):
            (gradient,) = bounds(program, given, [program.outputs["gradient"]])
        return frozenset(np.flatnonzero((gradient.lo != 0) | (gradient.hi != 0)).tolist())

    return from_gradient


_MOST_COORDINATES = 3
_MOST_ROWS = 6
_MOST_PATCHES = 2
_CHUNK = 4096
# Beta's density takes 1,000 operations, an integral over a grid of a latent 6,000 and more.
_MOST_OPERATIONS, _TRANSCENDENTAL = 3_000, 20


def _operations(row_model: RowModel) -> float:
    """Of one loss, as XLA counts them before it compiles; ``_TRANSCENDENTAL`` for such a function."""
    row = {name: abstract(domain.event_shape, domain.dtype) for name, domain in row_model.rows.items}
    with jax.enable_x64(True):
        lowered = jax.jit(row_model.row_loss).lower(abstract((row_model.dim,), np.float64), row)
        counted = lowered.cost_analysis() or {}
    return float(counted.get("flops", 0.0) + _TRANSCENDENTAL * counted.get("transcendentals", 0.0))


def patches(row_model: RowModel) -> Iterator[Reduction]:
    """Sets of at most three coordinates, a priori independent of the others, and the rows that stay there.

    None where a row's loss takes more than ``_MOST_OPERATIONS``, as integrals over a latent and wide networks
    do: the search would take minutes, and the "unknown" that is left refuses what a refutation would.
    """
    if _operations(row_model) > _MOST_OPERATIONS:
        return
    rows = extreme_rows(row_model.rows)
    if row_model.dim <= _MOST_COORDINATES:
        yield _patch(row_model, tuple(range(row_model.dim)), rows)
        return
    of_row = activity(row_model)
    active = [of_row(row) for row in rows[:120]]
    sets = dict.fromkeys(s for s in active if 1 <= len(s) <= _MOST_COORDINATES)
    chosen = (s for s in sorted(sets, key=len, reverse=True) if _is_separate(row_model, s))
    for coordinates in islice(chosen, _MOST_PATCHES):
        inside = [row for row, own in zip(rows, active, strict=False) if own <= coordinates]
        yield _patch(row_model, tuple(sorted(coordinates)), inside)


def _is_separate(row_model: RowModel, coordinates: frozenset[int]) -> bool:
    """The prior is a product of a factor in these coordinates and one in all the others."""
    if not row_model.prior.factorised:
        return False
    for site in row_model.sites:
        own = set(range(site.slice.start, site.slice.stop))
        split = bool(own & coordinates) and not own <= coordinates
        if split and not all(is_independent(row_model, index) for index in own & coordinates):
            return False
    return True


def _patch(row_model: RowModel, coordinates: tuple[int, ...], rows: list[PublicRow]) -> Reduction:
    """The reduction to these coordinates with few rows: each kind of loss once."""
    probe = np.random.default_rng(0).normal(size=(16, len(coordinates))) * np.geomspace(0.05, 2, 16)[:, None]
    points = np.concatenate([np.zeros((1, len(coordinates))), probe])
    kept = distinct(_terms(row_model, coordinates, rows)(points)[1:], len(coordinates), _MOST_ROWS)
    rows = [rows[place] for place in kept]
    names = tuple(coordinate_name(row_model, index) for index in coordinates)
    terms = _terms(row_model, coordinates, rows)
    return Reduction(names, np.eye(row_model.dim)[list(coordinates)], tuple(rows), terms)


def _terms(row_model: RowModel, coordinates: tuple[int, ...], rows: list[PublicRow]) -> Terms:
    columns = stacked(rows)
    index = np.asarray(coordinates)

    @jax.jit
    def chunk(points: jax.Array) -> jax.Array:
        thetas = jnp.zeros((points.shape[0], row_model.dim)).at[:, index].set(points)
        prior = jax.vmap(row_model.neg_log_prior)(thetas)
        losses = jax.vmap(lambda row: jax.vmap(lambda theta: row_model.row_loss(theta, row))(thetas))(columns)
        return jnp.concatenate([prior[None], losses])

    return lambda points: chunked(chunk, points, _CHUNK)


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

    Data sets whose rows depend on one direction, or on two or three coordinates, reduce the posterior to
    few dimensions, where probabilities are integrals with an error estimate that counts against the
    refutation. Rows are those at the extremes of the domain. Nothing here is sampled or private.
    """
    settings: Record = {"n": n, "temper": temper, "target": target}
    looked: list[tuple[str, bool]] = []
    for line in lines(row_model, clip, preconditioner):
        missing = _no_posterior(row_model, line, n)
        if missing is not None:
            return Search(missing)
        found, compared = search(line, **settings)
        if found is not None:
            return Search(_refutation(found))
        looked.append((line.coordinates[0], compared))
    planes = clip is None and row_model.dim > 1
    for patch in patches(row_model) if planes else ():
        found, compared = search(patch, **settings)
        if found is not None:
            return Search(_refutation(found))
        looked.append((f"({', '.join(patch.coordinates)})", compared))
    return Search(None, _looked_for(row_model, looked, planes))


def _looked_for(row_model: RowModel, looked: list[tuple[str, bool]], planes: bool) -> str:
    """Where no pair was found, or why none was looked for: what is not found may still be there."""
    places = dict.fromkeys(place for place, compared in looked if compared)
    if places:
        words = (
            "no pair of data sets was found that violates the target, among some of extreme rows that tell"
        )
        return f"{words} of {' and '.join(places)} alone"
    if looked:
        why = "no grid holds the mass of the posteriors on which it was begun"
    elif planes and _operations(row_model) > _MOST_OPERATIONS:
        why = "a row's loss takes too long to compute (an integral over a latent, a wide network)"
    else:
        why = "its parameters do not fall into blocks of one to three that could be integrated on a grid"
    return f"no refutation was tried: {why}"


def _refutation(found: Found) -> Refutation:
    event, reduction, shown = found.violation, found.reduction, found.density
    line = reduction.dim == 1
    if line:
        words = _interval_words(reduction.coordinates[0], event.intervals)
    else:
        words = f"({', '.join(reduction.coordinates)}) in a union of {len(event.boxes)} boxes"
    return Refutation(
        kind="event",
        reason=f"on two adjacent data sets the event {words} has probability {number(event.p)} and "
        f"{number(event.q)}",
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
