"""What is claimed of a model, tried on the functions that run, as XLA compiles them: a defence in depth.

No proof rests on it. Claims are proved of a program by rules for its operations and by tables; a mistake in a
rule, or in what this package takes for NumPyro's, would go unseen. At a few synthetic rows of the declared
domain, ends included, and at parameters on a line for each of them, slopes are within their bounds, and
differences of slopes within those of second derivatives, or the model is refused; and a row's loss is
NumPyro's own log density, up to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.rows import Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model.families import UNKNOWN
from private_mcmc.model.predictor import Row
from private_mcmc.model.refusals import synthetic_rows
from private_mcmc.model.row_model import RowModel
from private_mcmc.records import RUN_ONCE

_ROWS, _CLIP = 6, 1.0
_STEPS = np.array([-30.0, -8.0, -3.0, -1.0, -0.1, 0.1, 1.0, 3.0, 8.0, 30.0])
# Within these NumPyro's densities of what the tables know do not clamp.
_NEAR = slice(2, 8)
_NOISE, _TOLERANCE = 1e-8, 1e-6
Loss: TypeAlias = Callable[[jax.Array, Row], jax.Array]


def refuse_broken_claims(found: RowModel, own: Loss | None) -> None:
    """Refuse a model of which something is claimed that does not hold, or that is not NumPyro's ``own``.

    ``own`` is NumPyro's loss of a row, where a table's runs in its place. ``NotYetSupported``, by name.
    """
    prior, several = found.prior, found.predictors
    of_rows = several is not None and several.family.name != UNKNOWN.name
    of_prior = prior.convex or prior.smoothness < math.inf
    known = _known(_mark(found))
    if known["holds"] or not (of_rows or of_prior):
        return
    _try(found, own, of_rows, of_prior)
    known["holds"] = True


@lru_cache(maxsize=256)
def _known(mark: str) -> dict[str, bool]:
    """What is remembered of a model, its rows and all that is claimed of them."""
    return {"holds": False}


def _mark(found: RowModel) -> str:
    claims = (found.constants, found.predictors and found.predictors.family, *found.prior.sites, found.rows)
    return repr(claims) + found.program.text([*found.program.outputs.values()])


def _try(found: RowModel, own: Loss | None, of_rows: bool, of_prior: bool) -> None:
    prior, several = found.prior, found.predictors
    data = synthetic_rows(found.rows, _ROWS)
    turns = np.cos(np.outer(0.7 + 0.37 * np.arange(_ROWS), np.arange(1.0, found.dim + 1)))
    reach = several.radius if several is not None and several.radius < math.inf else 1.0
    lines = turns / (np.linalg.norm(turns, axis=1, keepdims=True) * max(reach, 1.0))

    def at(theta: jax.Array, row: Row) -> dict[str, jax.Array]:
        out = {}
        if of_rows:
            out["v"], out["row"] = jax.value_and_grad(found.row_loss)(theta, row)
            out["own"] = out["v"] if own is None else own(theta, row)
        if of_prior:
            out["prior"] = jax.grad(found.neg_log_prior)(theta)
        return out

    with jax.enable_x64(True):
        every = jax.jit(jax.vmap(jax.vmap(at, (0, None))), compiler_options=RUN_ONCE)
        values = every(jnp.asarray(_STEPS[:, None] * lines[:, None]), jax.tree.map(jnp.asarray, data))
    known = {name: np.asarray(value, np.float64) for name, value in values.items()}
    observed = ", ".join(f"{site.name!r} ({site.family})" for site in found.observations)
    latents = ", ".join(f"{site.name!r} ({site.family})" for site in found.sites)
    if of_prior:
        ends = (prior.lower, prior.upper)
        if prior.hessian is not None and prior.hessian.ndim == 2:
            ends = (prior.hessian, prior.hessian)
        _check(f"the prior of {latents}", known["prior"], lines, *ends)
    if several is None or not of_rows:
        return
    claims, what = found.constants, f"the likelihood of {observed}"
    bend = np.full(found.dim, claims.curvature_bound)
    _check(what, known["row"], lines, 0 * lines[0] if claims.convex else -bend, bend, claims.gradient_bound)
    if found.predictor is not None:
        norms = np.linalg.norm(known["row"], axis=-1, keepdims=True)
        clipped = known["row"] * np.minimum(1.0, _CLIP / np.maximum(norms, 1e-300))
        bend = np.full(found.dim, found.predictor.family.clipped_curvature(several.radius, _CLIP))
        _check(f"{what}, clipped,", clipped, lines, -bend, bend)
    with np.errstate(invalid="ignore"):
        gaps = (known["v"] - known["own"])[:, _NEAR]
        sizes = _TOLERANCE * (1 + np.abs(known["v"]) + np.abs(known["own"]))[:, _NEAR]
        same = (
            np.abs(gaps - np.nanmedian(np.where(np.isfinite(gaps), gaps, np.nan), axis=1)[:, None]) <= sizes
        )
    if not np.all(same | ~np.isfinite(known["own"][:, _NEAR])):
        raise NotYetSupported(
            f"{what}: NumPyro's own log density is not that of the family with the parameters that it holds "
            "(an attribute or a method was changed): make the distribution anew, with those that you mean."
        )


def _check(
    what: str,
    slopes: np.ndarray,
    lines: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    steepest: float = math.inf,
) -> None:
    """Slopes ``(rows, steps, p)`` along ``lines``, against bounds of them and of second derivatives.

    The bounds of second derivatives are diagonals, or are both the constant matrix of them.
    """
    speed, widths = np.linalg.norm(lines, axis=1)[:, None], np.diff(_STEPS)
    with np.errstate(invalid="ignore", over="ignore"):
        sizes = np.linalg.norm(slopes, axis=-1)
        noise = _NOISE * (sizes[:, 1:] + sizes[:, :-1]) / widths
        bends = np.diff(slopes, axis=1) / widths[:, None]
        turned = np.einsum("rsp,rp->rs", bends, lines)
        low, high = (_along(lines, end)[:, None] for end in (lower, upper))
        slack = _NOISE * np.where(np.isfinite(low + high), np.abs(low) + np.abs(high), 0.0) + noise * speed
        inside = (turned >= low - slack) & (turned <= high + slack)
        if lower.ndim == 1:
            most = np.max(np.maximum(np.abs(lower), np.abs(upper)))
            inside &= np.linalg.norm(bends, axis=-1) <= most * speed * (1 + _NOISE) + noise
    if not np.all(inside | ~np.isfinite(turned)) or (
        steepest < math.inf and not np.all(sizes <= steepest * (1 + _NOISE))
    ):
        raise NotYetSupported(
            f"{what} breaks, at synthetic rows and parameters, what is proved of its derivatives: nothing is "
            "stated of it. Write the distribution in its plain form, and please report this model."
        )


def _along(lines: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """``dᵀ H d`` of every line."""
    if bounds.ndim == 1:
        return np.asarray(np.square(lines) @ bounds)
    return np.asarray(np.einsum("rp,pq,rq->r", lines, bounds, lines))


# Of a row's, or a person's, log likelihood.
_ACCURATE, _SIZES = 1e-3, np.array([0.0, 0.5, -0.7, 1.0])


def sum_error(rows: Rows, dim: int, loss: Loss, finer: Loss) -> float:
    """How far sums over points are from those over many more, at synthetic rows and moderate parameters."""

    def gap(theta: jax.Array, row: Row) -> jax.Array:
        return finer(theta, row) - loss(theta, row)

    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, synthetic_rows(rows, _ROWS))
        thetas = jnp.asarray(_SIZES[:, None] * np.cos(np.arange(dim)))
        every = jax.jit(jax.vmap(jax.vmap(gap, (None, 0)), (0, None)), compiler_options=RUN_ONCE)
        gaps = np.asarray(every(thetas, data))
    return float(np.max(np.abs(gaps), initial=0.0, where=np.isfinite(gaps)))


def is_accurate(error: float) -> bool:
    """Whether a sum over what latents may be is taken for the integral."""
    return error <= _ACCURATE


def refuse_coarse_sums(sites: Sequence[str], whose: str, worst: float) -> None:
    """``NotYetSupported``, by name, where sums over what latents may be are too far off."""
    if not is_accurate(worst):
        raise NotYetSupported(
            f"latents {list(sites)} of each {whose}: the sum over their values is off by {worst:.2g} of a "
            f"log likelihood at ends of the declared domain (at most {_ACCURATE} is taken): it is too narrow "
            "there, or has several peaks. Narrow the domain (of a standard error, of numbers of trials), or "
            "integrate them out by hand, as a numpyro.factor in the plate of the rows."
        )
