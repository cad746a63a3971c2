"""Proofs that a posterior is not private: two data sets and an event, or a data set without a posterior.

When every row's design is a multiple of one vector ``u`` (or zero), the rows see only ``t = u·θ``. The
posterior of ``t`` is then the prior's marginal of ``t`` times the rows' likelihoods, exactly, whatever the
other directions do. The marginal is known in closed form for Gaussian priors, and along a coordinate that
the prior treats as independent of the others. Data sets are made of rows at the extremes of the domain;
nothing here is sampled or private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.model.synthetic import PublicRow, extreme_rows, stacked
from private_mcmc.preflight.events import Array, Axis, Curve, Violation, log_laws, mass_at, violation
from private_mcmc.report import number
from private_mcmc.system import RUN_ONCE
from private_mcmc.target import Target

# How often each row occurs in a data set.
Counts = tuple[int, ...]

_CHUNK = 1024
_MOST_ROWS, _MOST_LINES, _MOST_TRIED = 7, 2, 3
# Numbers that a row's term computes.
_MOST_WORK = 2**12

# Distributions of single numbers: the elements of a vector site of theirs are independent.
_ELEMENTWISE = frozenset(
    [
        *("Normal", "Laplace", "StudentT", "Cauchy", "Logistic", "Gumbel", "SoftLaplace"),
        *("HalfNormal", "HalfCauchy", "Gamma", "InverseGamma", "Exponential", "LogNormal", "Weibull"),
        *("Pareto", "Chi2", "Beta", "Uniform", "Kumaraswamy"),
    ]
)


# A public, synthetic data set: rows and how often each occurs.
DataSet: TypeAlias = tuple[tuple[PublicRow, int], ...]


@dataclass(frozen=True)
class Refutation:
    """A pair of adjacent, synthetic data sets of the domain, and an event that tells their posteriors apart.

    ``P[A|first] ≥ p_low > e^ε q_high + δ ≥ e^ε P[A|second] + δ``. Without a second one and an event, the
    posterior of ``first`` does not integrate, so there is nothing that could be private.

    Attributes:
        coordinate: the quantity that the event is of.
    """

    reason: str
    first: DataSet
    coordinate: str
    second: DataSet = ()
    violation: Violation | None = None

    @property
    def event(self) -> str:
        """The event in words: ``w[0] < −3``."""
        parts, intervals = [], () if self.violation is None else self.violation.intervals
        for low, high in intervals[:3]:
            first = "" if low == -math.inf else f"{number(low)} < "
            last = "" if high == math.inf else f" < {number(high)}"
            inside = f"{first}{self.coordinate}{last}"
            parts.append(inside if last or not first else f"{self.coordinate} > {number(low)}")
        return " or ".join(parts) + (" or …" if len(intervals) > 3 else "")


@dataclass(frozen=True, eq=False)
class Line:
    """A coordinate ``direction·θ`` whose posterior is known up to a constant for data sets of ``rows``.

    Attributes:
        coordinate: what the number is, in the model's words.
        direction: shape ``(p,)``.
        rows: the rows the data sets are made of, all in the domain.
        terms: the prior's potential and the rows' losses, ``(k,) -> (1 + rows, k)``.
    """

    coordinate: str
    direction: Array
    rows: tuple[PublicRow, ...]
    terms: Curve

    def log_densities(self, weights: Array, term: np.ufunc = np.negative) -> Curve:
        """Log densities of laws with these weights ``(laws, 1 + rows)`` of the terms, up to constants.

        With ``np.abs`` for ``term`` the sums of their sizes, on which their rounding depends.
        """
        used = np.flatnonzero(weights.any(axis=0))

        def at(t: Array) -> Array:
            with np.errstate(invalid="ignore", over="ignore"):
                return np.asarray(weights[:, used] @ term(self.terms(t)[used]))

        return at

    def data_set(self, counts: Counts) -> DataSet:
        """The data set with these counts of the rows."""
        return tuple((row, count) for row, count in zip(self.rows, counts, strict=True) if count)


def refute(row_model: RowModel, *, n: int, temper: float, target: Target) -> Refutation | None:
    """A refutation of the target for the posterior, if one is found on a line.

    Probabilities are integrals with an error estimate that counts against the refutation.
    """
    if (row_model.predictor is None and row_model.dim > 1) or row_model.work > _MOST_WORK:
        return None
    for line in lines(row_model):
        found = _no_posterior(row_model, line, n) or _search(line, n, temper, target)
        if found is not None:
            return found
    return None


def _search(line: Line, n: int, temper: float, target: Target) -> Refutation | None:
    """A violating pair around the first group of equal other rows that has one.

    All pairs of a group are compared roughly first, on a grid that follows the mass, which proves nothing:
    the worst are then integrated with an error bound, or dropped.
    """

    def weights(*data_sets: Counts) -> Array:
        return np.array([[1.0, *(temper * count for count in counts)] for counts in data_sets])

    for others in _others(len(line.rows), n, target.adjacency):
        with_one = [_plus(others, index) for index in range(len(line.rows))]
        if target.adjacency == "replace_one":
            sets, pairs = with_one, list(permutations(with_one, 2))
        else:
            sets = [*with_one, others]
            pairs = [pair for one in with_one for pair in ((one, others), (others, one))]
        laws = line.log_densities(weights(*sets))
        place = mass_at(laws)
        if place is None:
            continue
        logs = dict(zip(sets, log_laws(laws, Axis(*place)), strict=True))
        rough = {pair: _divergence(logs[pair[0]], logs[pair[1]], target.epsilon) for pair in pairs}
        # What the grid does not tell apart is equal: the order of the pairs then decides.
        worst = sorted(pairs, key=lambda pair: -float(f"{rough[pair]:.2g}"))[:_MOST_TRIED]
        for pair in worst:
            if rough[pair] > target.delta:
                law = weights(*pair)
                sizes = line.log_densities(law, np.abs)
                found = violation(line.log_densities(law), target.epsilon, target.delta, sizes=sizes)
                if found is not None:
                    return _refutation(line, pair, found)
    return None


def _others(rows: int, n: int, adjacency: str) -> list[Counts]:
    """The rows that two adjacent data sets share: alike, or of two kinds; row 0, nearest inert, first.

    ``replace_one``: exactly ``n − 1``. ``zero_out``: any may be absent. ``add_remove``: at least one.
    """

    def alike(count: int) -> list[Counts]:
        return [tuple(count * (index == place) for index in range(rows)) for place in range(rows)]

    if n == 1:
        return alike(0)[:1] if adjacency != "add_remove" else []
    half = (n - 1) // 2
    mixed = [
        tuple((n - 1 - half) * (index == one) + half * (index == two) for index in range(rows))
        for one, two in combinations(range(min(rows, 4)), 2)
        if half
    ]
    fewest = {"replace_one": [], "zero_out": alike(0)[:1], "add_remove": alike(1)}[adjacency]
    return list(dict.fromkeys([*fewest, *alike(n - 1), *mixed]))


def _plus(counts: Counts, index: int) -> Counts:
    return tuple(count + (place == index) for place, count in enumerate(counts))


def _divergence(log_p: Array, log_q: Array, epsilon: float) -> float:
    """``Σ max(0, p − e^ε q)`` of two laws on one grid."""
    with np.errstate(invalid="ignore", over="ignore"):
        share = -np.expm1(np.minimum(epsilon + log_q - log_p, 0.0))
    return float(np.sum(np.exp(log_p) * np.where(np.isfinite(log_p), share, 0.0)))


def _refutation(line: Line, pair: tuple[Counts, Counts], event: Violation) -> Refutation:
    found = Refutation("", line.data_set(pair[0]), line.coordinate, line.data_set(pair[1]), event)
    reason = f"on two adjacent data sets the event {found.event} has probability "
    return replace(found, reason=f"{reason}{number(event.p)} and {number(event.q)}")


def _no_posterior(row_model: RowModel, line: Line, n: int) -> Refutation | None:
    """A data set whose posterior does not integrate: an improper prior and a likelihood flat far out."""
    read = np.flatnonzero(line.direction)
    improper = [
        site.name
        for site in row_model.sites
        if site.improper and np.all((site.slice.start <= read) & (read < site.slice.stop))
    ]
    if not improper:
        return None
    far, weights = np.array([1e4, 1e6, 1e8, 1e10]), np.eye(len(line.rows), len(line.rows) + 1, 1) * n
    weights[:, 0] = 1.0
    for sign, end in ((1.0, "∞"), (-1.0, "−∞")):
        for row, tail in zip(line.rows, line.log_densities(weights)(sign * far), strict=True):
            if np.all(np.isfinite(tail)) and np.ptp(tail) <= 1e-9 * (1 + abs(tail[0])):
                reason = (
                    f"the prior of {improper[0]!r} is improper and on a data set of the domain the "
                    f"likelihood does not vanish as {line.coordinate} → {end}: there is no posterior"
                )
                return Refutation(reason, ((row, n),), line.coordinate)
    return None


def lines(row_model: RowModel) -> Iterator[Line]:
    """The most promising lines first, at most a few."""
    rows, predictor = extreme_rows(row_model.rows), row_model.predictor
    columns = stacked(rows)
    if predictor is None:
        if row_model.dim == 1:
            yield _line(row_model, np.ones(1), rows, _along(row_model, 0))
        return
    with jax.enable_x64(True):
        both = jax.jit(
            jax.vmap(lambda row: (predictor.designs(row)[0], predictor.offsets(row)[0])),
            compiler_options=RUN_ONCE,
        )
        designs, offsets = map(np.asarray, both(columns))
    ranked: list[tuple[tuple[float, int], Array, np.ndarray, Curve]] = []
    for direction in _directions(designs):
        marginal = _marginal(row_model, direction)
        if marginal is None:
            continue
        potential, spread = marginal
        scale = designs[:, np.flatnonzero(direction)[0]]
        parallel = np.all(np.abs(designs - np.outer(scale, direction)) <= 1e-15 * np.abs(designs), axis=1)
        at = np.flatnonzero(parallel & np.isfinite(scale * offsets))
        # How far apart rows may push along a direction, in units of the prior there; of equals, the one with
        # most rows: one row alone tells nothing.
        push = float(f"{spread * np.abs(designs[:, np.flatnonzero(direction)[0]]).max():.6g}")
        ranked.append(((-push, -len(at)), direction, at, potential))
    for _, direction, at, potential in sorted(ranked, key=lambda entry: entry[0])[:_MOST_LINES]:
        yield _line(row_model, direction, [rows[index] for index in at], potential)


def _directions(designs: Array) -> list[Array]:
    """The different directions of the designs, scaled so that the first nonzero entry is 1."""
    found: dict[bytes, Array] = {}
    for design in designs:
        used = np.flatnonzero(design)
        if len(used) and np.all(np.isfinite(design)):
            direction = design / design[used[0]] + 0.0
            found.setdefault(direction.tobytes(), direction)
    return list(found.values())


def _line(row_model: RowModel, direction: Array, rows: Sequence[PublicRow], potential: Curve) -> Line:
    """The line with few of the rows, each kind of loss once."""
    losses = _losses(row_model, direction, rows)
    kept = distinct(losses(np.array([0.0, -3.0, -1.0, -0.2, -1e-3, 1e-3, 0.2, 1.0, 3.0])), _MOST_ROWS)
    chosen = [rows[index] for index in kept]
    losses = _losses(row_model, direction, chosen)

    def terms(t: Array) -> Array:
        return np.concatenate([potential(t)[None], losses(t)])

    return Line(_name(row_model, direction), direction, tuple(chosen), terms)


def _losses(row_model: RowModel, direction: Array, rows: Sequence[PublicRow]) -> Curve:
    """The rows' losses ``ℓ(t)`` where ``u·θ = t``: ``(k,) -> (rows, k)``."""
    unit = direction / (direction @ direction)
    with jax.enable_x64(True):
        columns = {name: jnp.asarray(column) for name, column in stacked(rows).items()}

    def each(t: jax.Array) -> jax.Array:
        return jax.vmap(lambda row: jax.vmap(lambda x: row_model.row_loss(x * unit, row))(t))(columns)

    return _in_chunks(each)


def _marginal(row_model: RowModel, direction: Array) -> tuple[Curve, float] | None:
    """Potential of the prior's marginal of ``u·θ``, up to a constant, and its scale, where they are known."""
    hessian, used = row_model.prior.hessian, np.flatnonzero(direction)
    if hessian is not None:
        # Of independent coordinates those that are used, since others may be flat.
        of = used if hessian.ndim == 1 else np.arange(len(direction))
        full = np.diag(hessian[of]) if hessian.ndim == 1 else hessian
        if np.linalg.eigvalsh(full)[0] > 0:
            with jax.enable_x64(True):
                slope = np.asarray(jax.grad(row_model.neg_log_prior)(jnp.zeros(row_model.dim)))
            towards = np.linalg.solve(full, direction[of])
            variance, mean = float(towards @ direction[of]), -float(towards @ slope[of])
            return lambda t: (t - mean) ** 2 / (2 * variance), math.sqrt(variance)
    if len(used) == 1 and _is_independent(row_model, int(used[0])):
        return _along(row_model, int(used[0])), 1.0
    return None


def _is_independent(row_model: RowModel, index: int) -> bool:
    """Whether the prior is a product of a factor in this coordinate and one in all the others."""
    if not row_model.prior.factorised:
        return False
    site = next(site for site in row_model.sites if site.slice.start <= index < site.slice.stop)
    flat = site.family == "ImproperUniform" and site.support == "real"
    return site.slice.stop - site.slice.start == 1 or site.family in _ELEMENTWISE or flat


def _along(row_model: RowModel, index: int) -> Curve:
    """``K`` along a coordinate, the others at zero; a constant less than the marginal's potential."""

    def potential(t: jax.Array) -> jax.Array:
        thetas = jnp.zeros((t.shape[0], row_model.dim)).at[:, index].set(t)
        return jax.vmap(row_model.neg_log_prior)(thetas)

    return _in_chunks(potential)


def _in_chunks(function: Callable[[jax.Array], jax.Array]) -> Curve:
    """``function``, which maps ``(k,)`` to ``(…, k)``, for any number of points, in float64."""
    compiled = jax.jit(function, compiler_options=RUN_ONCE)

    def at(points: Array) -> Array:
        count = -(-len(points) // _CHUNK)
        padded = np.concatenate([points, np.repeat(points[-1:], count * _CHUNK - len(points))])
        with jax.enable_x64(True):
            parts = [np.asarray(compiled(part)) for part in np.split(padded, count)]
        return np.concatenate(parts, axis=-1)[..., : len(points)]

    return at


def distinct(losses: Array, most: int) -> list[int]:
    """Few rows of ``losses``, one for each shape: a flat one first, then those that vary most.

    ``losses`` holds a row's loss at the origin and at other points.
    """
    with np.errstate(invalid="ignore"):
        shape = losses[:, 1:] - losses[:, :1]
    shape = np.where(np.isfinite(shape), shape, 1e300)
    size = np.max(np.abs(shape), axis=1)
    flattest = int(np.argmin(size))
    kept: list[int] = []
    for index in [*([flattest] if size[flattest] == 0 else []), *np.argsort(-size, kind="stable")]:
        fresh = all(not np.allclose(shape[index], shape[other], rtol=1e-9, atol=0.0) for other in kept)
        if fresh and len(kept) < most:
            kept.append(int(index))
    return kept


def _name(row_model: RowModel, direction: Array) -> str:
    """``u·θ`` in the names of coordinates; where a site is not real, of its unconstrained value."""
    kinds = [
        site.support == "real" for site in row_model.sites for _ in range(site.slice.start, site.slice.stop)
    ]
    parts = []
    for index in np.flatnonzero(direction)[:4].tolist():
        name = row_model.names[index] if kinds[index] else f"unconstrained {row_model.names[index]}"
        size = abs(direction[index])
        parts.append(("− " if direction[index] < 0 else "+ ") + (name if size == 1 else f"{size:.4g}·{name}"))
    more = np.count_nonzero(direction) - len(parts)
    return " ".join([*parts, *([f"+ … ({more} terms more)"] if more else [])]).removeprefix("+ ")
