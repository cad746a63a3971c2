"""Reductions to one dimension: data sets of parallel rows leave a posterior that is known on a line.

When every row's design is a multiple of one vector ``u`` (or zero), the rows see only ``t = u·θ``. The
posterior of ``t`` is then the prior's marginal of ``t`` times the rows' likelihoods, exactly, whatever the
other directions do. The marginal is known in closed form for Gaussian priors, and along a coordinate
that the prior treats as independent of the others. Losses are Huberised where clipping binds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.model import Predictor, RowModel
from private_mcmc.preflight.refute.pairs import PublicRow, extreme_rows, stacked
from private_mcmc.preflight.refute.quadrature_1d import Array
from private_mcmc.preflight.refute.search import Reduction
from private_mcmc.schedule import Matrix

_CHUNK = 1024
_FARTHEST = 1e8


def in_chunks(function: Callable[[Array], ArrayLike]) -> Callable[[Array], Array]:
    """``function``, which maps ``(k,)`` to ``(…, k)`` for one ``k``, for any number of points, in float64.

    A few recent answers are kept, because two densities are evaluated on the same grids.
    """

    @functools.lru_cache(maxsize=24)
    def at(key: bytes) -> Array:
        return chunked(function, np.frombuffer(key, dtype=np.float64), _CHUNK)

    return lambda points: at(np.ascontiguousarray(points, dtype=np.float64).tobytes())


def chunked(function: Callable[[Array], ArrayLike], points: Array, size: int) -> Array:
    """``function`` of points along the first axis, ``size`` of them at a time; its last axis is theirs."""
    count = -(-len(points) // size)
    padded = np.concatenate([points, np.repeat(points[-1:], count * size - len(points), axis=0)])
    with jax.enable_x64(True):
        parts = [np.asarray(function(part)) for part in np.split(padded, count)]
    return np.concatenate(parts, axis=-1)[..., : len(points)]


def line_losses(
    predictor: Predictor,
    rows: Mapping[str, np.ndarray],
    scale: np.ndarray,
    offset: np.ndarray,
    limit: np.ndarray,
) -> Callable[[Array], Array]:
    """``t ↦ h(scale·t + offset)`` for every row: ``(t,) -> (rows, t)``.

    ``h`` is the row's loss ``ψ`` where ``|ψ'| ≤ limit`` and goes on as a straight line beyond, which is
    what clipping the score at ``limit`` integrates to when ``ψ`` is convex. ``limit`` is infinite where
    clipping never binds.
    """
    columns = {name: jnp.asarray(column) for name, column in rows.items()}
    with jax.enable_x64(True):
        low, high = _knots(predictor, columns, limit)
        loss = jax.vmap(predictor.loss, in_axes=(0, {name: None for name in rows}))
    slope = np.where(np.isfinite(limit), limit, 0.0)
    numbers = np.stack([scale, offset, low, high, slope])

    @jax.jit
    def each(t: jax.Array, numbers: jax.Array, columns: dict[str, jax.Array]) -> jax.Array:
        def one(numbers: jax.Array, row: dict[str, jax.Array]) -> jax.Array:
            scale, offset, low, high, slope = numbers
            eta = scale * t + offset
            # Where nothing is clipped the knots are infinite and the slopes unused.
            below, above = jnp.minimum(eta - low, 0.0), jnp.maximum(eta - high, 0.0)
            tail = jnp.where(below < 0, -slope * below, 0.0) + jnp.where(above > 0, slope * above, 0.0)
            return loss(jnp.clip(eta, low, high), row) + tail

        return jax.vmap(one, in_axes=(1, 0))(numbers, columns)

    return in_chunks(lambda t: each(t, numbers, columns))


def _knots(
    predictor: Predictor, columns: Mapping[str, jax.Array], limit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the increasing score of each row reaches ``−limit`` and ``limit``; infinite where never."""
    count = len(limit)
    if not np.any(np.isfinite(limit)):
        return np.full(count, -np.inf), np.full(count, np.inf)
    score = jax.jit(jax.vmap(jax.grad(predictor.loss)))
    ends = []
    for sign in (-1.0, 1.0):
        inside, outside = np.full(count, -sign * _FARTHEST), np.full(count, sign * _FARTHEST)
        reached = sign * np.asarray(score(outside, columns)) > limit
        for _ in range(100):
            middle = 0.5 * (inside + outside)
            beyond = sign * np.asarray(score(middle, columns)) > limit
            inside, outside = np.where(beyond, inside, middle), np.where(beyond, middle, outside)
        ends.append(np.where(reached, inside, sign * np.inf))
    return ends[0], ends[1]


_MOST_ROWS = 7
_MOST_LINES = 2

# Distributions of single numbers: the elements of a vector site of theirs are independent.
_ELEMENTWISE = frozenset(
    [
        *("Normal", "Laplace", "StudentT", "Cauchy", "Logistic", "Gumbel", "SoftLaplace"),
        *("HalfNormal", "HalfCauchy", "Gamma", "InverseGamma", "Exponential", "LogNormal", "Weibull"),
        *("Pareto", "Chi2", "Beta", "Uniform", "Kumaraswamy"),
    ]
)


# Values at points of a line: ``(k,) -> (…, k)``.
Curve = Callable[[Array], Array]


@dataclass(frozen=True)
class Marginal:
    """Potential of the prior's marginal of ``u·θ``, up to a constant, and its scale."""

    potential: Curve
    spread: float


def lines(row_model: RowModel, clip: float | None, preconditioner: Matrix | None) -> Iterator[Reduction]:
    """The most promising lines first, at most a few, of a model whose rows are clipped at ``clip``.

    Where clipping binds, the losses are Huberised; without convexity there is then no line.
    """
    rows = extreme_rows(row_model.rows)
    predictor, columns = row_model.predictor, stacked(rows)
    if predictor is None:
        if row_model.dim == 1 and clip is None:

            def each(t: jax.Array) -> jax.Array:
                return jax.vmap(lambda row: jax.vmap(lambda x: row_model.row_loss(x[None], row))(t))(columns)

            losses = in_chunks(jax.jit(each))
            yield _thinned(coordinate_name(row_model, 0), np.ones(1), _along(row_model, 0), rows, losses)
        return
    with jax.enable_x64(True):
        both = jax.jit(jax.vmap(lambda row: (predictor.design(row), predictor.offset(row))))(columns)
    designs, offsets = map(np.asarray, both)
    limit = _limits(designs, clip, preconditioner)
    if not predictor.family.convex and np.any(limit < predictor.family.score_bound):
        return
    known = [(u, _marginal(row_model, u)) for u in _directions(designs)]
    ranked = [(u, marginal) for u, marginal in known if marginal]
    # How far apart rows may push along a direction, in units of the prior there.
    ranked.sort(key=lambda entry: -entry[1].spread * float(np.abs(_multiples(designs, entry[0])[0]).max()))
    for direction, marginal in ranked[:_MOST_LINES]:
        scale, parallel = _multiples(designs, direction)
        at = np.flatnonzero(parallel & np.isfinite(scale * offsets))
        chosen = {name: column[at] for name, column in columns.items()}
        losses = line_losses(predictor, chosen, scale[at], offsets[at], limit[at])
        name, parallel_rows = _name(row_model, direction), [rows[index] for index in at]
        yield _thinned(name, direction, marginal.potential, parallel_rows, losses)


def _multiples(designs: np.ndarray, direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factor of the direction in each design, and whether that is all of it."""
    scale = designs[:, np.flatnonzero(direction)[0]]
    near = np.abs(designs - np.outer(scale, direction)) <= 1e-15 * np.abs(designs)
    return scale, np.all(near, axis=1)


def _limits(designs: np.ndarray, clip: float | None, preconditioner: Matrix | None) -> np.ndarray:
    """Bound that clipping sets on ``|ψ'|`` of each row: ``C/‖M^{1/2}x‖``."""
    if clip is None:
        return np.full(len(designs), math.inf)
    metric = np.ones(designs.shape[1]) if preconditioner is None else np.asarray(preconditioner, np.float64)
    image = designs * metric if metric.ndim == 1 else designs @ metric
    norms = np.sqrt(np.maximum(np.sum(designs * image, axis=1), 0.0))
    limits: np.ndarray = np.divide(clip, norms, out=np.full(len(norms), math.inf), where=norms > 0)
    return limits


def _directions(designs: np.ndarray) -> list[np.ndarray]:
    """The different directions of the designs, scaled so that the first nonzero entry is 1."""
    found: list[np.ndarray] = []
    for design in designs:
        used = np.flatnonzero(design)
        if len(used) and np.all(np.isfinite(design)):
            direction = design / design[used[0]]
            if not any(np.array_equal(direction, other) for other in found):
                found.append(direction)
    return found


def coordinate_name(row_model: RowModel, index: int) -> str:
    """The name of a coordinate of ``θ``; where its site is not real, of the site's unconstrained value."""
    site = next(site for site in row_model.sites if site.slice.start <= index < site.slice.stop)
    name = row_model.names[index]
    return name if site.support == "real" else f"unconstrained {name}"


def _name(row_model: RowModel, direction: np.ndarray) -> str:
    parts = []
    for index in np.flatnonzero(direction).tolist():
        name, factor = coordinate_name(row_model, index), direction[index]
        sign, size = "−" if factor < 0 else "+", abs(factor)
        parts.append((sign, name if size == 1 else f"{size:.4g}·{name}"))
    shown = parts if len(parts) <= 4 else [*parts[:3], ("+", f"… ({len(parts)} terms)")]
    return " ".join(f"{sign} {part}" for sign, part in shown).removeprefix("+ ")


def _marginal(row_model: RowModel, direction: np.ndarray) -> Marginal | None:
    """The prior's marginal of ``u·θ``, where it is known."""
    gaussian = _gaussian(row_model, direction)
    if gaussian is not None:
        mean, sd = gaussian
        return Marginal(lambda t: (t - mean) ** 2 / (2 * sd**2), sd)
    used = np.flatnonzero(direction)
    if len(used) == 1 and is_independent(row_model, int(used[0])):
        return Marginal(_along(row_model, int(used[0])), 1.0)
    return None


def _gaussian(row_model: RowModel, direction: np.ndarray) -> tuple[float, float] | None:
    """Mean and sd of ``u·θ`` under a prior with a constant, positive Hessian."""
    hessian = row_model.prior.hessian
    if hessian is None:
        return None
    with jax.enable_x64(True):
        slope = np.asarray(jax.grad(row_model.neg_log_prior)(jnp.zeros(row_model.dim)))
    used = np.flatnonzero(direction)
    if hessian.ndim == 1:
        if not np.all(hessian[used] > 0):
            return None
        mean = -slope[used] / hessian[used]
        return float(direction[used] @ mean), math.sqrt(float(np.sum(direction[used] ** 2 / hessian[used])))
    if not np.linalg.eigvalsh(hessian)[0] > 0:
        return None
    covariance = np.linalg.inv(hessian)
    return float(-direction @ covariance @ slope), math.sqrt(float(direction @ covariance @ direction))


def is_independent(row_model: RowModel, index: int) -> bool:
    """Whether the prior is a product of a factor in this coordinate and one in all the others."""
    if not row_model.prior.factorised:
        return False
    site = next(site for site in row_model.sites if site.slice.start <= index < site.slice.stop)
    flat = site.family == "ImproperUniform" and site.support == "real"
    return site.slice.stop - site.slice.start == 1 or site.family in _ELEMENTWISE or flat


def _along(row_model: RowModel, index: int) -> Curve:
    """``K`` along a coordinate, the others at zero; a constant less than the marginal's potential."""

    @jax.jit
    def potential(t: jax.Array) -> jax.Array:
        thetas = jnp.zeros((t.shape[0], row_model.dim)).at[:, index].set(t)
        return jax.vmap(row_model.neg_log_prior)(thetas)

    return in_chunks(potential)


def _thinned(
    name: str, direction: Array, potential: Curve, rows: Sequence[PublicRow], losses: Curve
) -> Reduction:
    """The reduction with few rows: each kind of loss once."""
    probe = np.array([0.0, -3.0, -1.0, -0.2, -1e-3, 1e-3, 0.2, 1.0, 3.0])
    kept = distinct(losses(probe), _MOST_ROWS)

    def terms(points: Array) -> Array:
        return np.concatenate([potential(points)[None], losses(points)[kept]])

    return Reduction(name, direction, tuple(rows[index] for index in kept), terms)


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
