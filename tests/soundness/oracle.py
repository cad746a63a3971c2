"""What NumPyro itself says of a model, and rows of its domains."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.infer.util import _unconstrain_reparam, compute_log_probs

from private_mcmc.domains import Ball, Binary, Box, Categories, Counts, Domain, Rows
from private_mcmc.model import RowModel, Site
from private_mcmc.model.ir.evaluate import evaluate
from private_mcmc.model.ir.program import abstract, trace

Data = Mapping[str, Any]
Model = Callable[..., Any]

# Compiling is what a comparison costs; so little is computed that slow code is quicker.
_COMPILER = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
# A density that integrates falls faster than 1/t along almost every line.
_NEAR, _FAR = 20.0, 60.0


def terms(model: Model, sites: Sequence[Site], data: Data, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """NumPyro's ``−log prior`` on the unconstrained space and ``−log likelihood``, at the flat latents."""
    free = {site.name: theta[site.slice].reshape(site.unconstrained_shape) for site in sites}
    given = handlers.substitute(model, substitute_fn=functools.partial(_unconstrain_reparam, free))
    densities, messages = compute_log_probs(given, (), dict(data), {})
    latent = {*free, *(f"_{name}_log_det" for name in free)}
    rest = [value for name, value in densities.items() if name not in latent]
    assert set(free) <= set(messages)
    return -sum(densities[name] for name in latent & set(densities)), -sum(rest)


def draw_rows(rows: Rows, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rows of the domains, every other value at an extreme; whole numbers reach both of theirs."""
    return {name: _column(domain, count, rng) for name, domain in rows.items}


def _column(domain: Domain, count: int, rng: np.random.Generator) -> np.ndarray:
    if isinstance(domain, Ball | Box):
        return np.stack([_value(domain, rng) for _ in range(count)])
    top = largest(domain)
    ends = top * ((np.arange(count) + rng.integers(2)) % 2)
    inner = rng.integers(0, top + 1, count)
    return np.where(np.arange(count) % 4 < 2, ends, inner).astype(np.int64)


def _value(domain: Ball | Box, rng: np.random.Generator) -> np.ndarray:
    extreme = bool(rng.random() < 0.5)
    if isinstance(domain, Box):
        low, high = np.asarray(domain.lo), np.asarray(domain.hi)
        share = rng.integers(0, 2, low.shape) if extreme else rng.random(low.shape)
        return np.asarray(low + (high - low) * share, np.float64)
    direction = rng.normal(size=domain.dim)
    if extreme and rng.random() < 0.5:
        direction = np.eye(domain.dim)[rng.integers(domain.dim)] * rng.choice([-1, 1])
    length = domain.radius * (1 if extreme else rng.random())
    return np.asarray(direction / np.linalg.norm(direction) * length)


def largest(domain: Domain) -> int:
    """The largest number of a domain of whole numbers."""
    if isinstance(domain, Binary):
        return 1
    if isinstance(domain, Categories):
        return domain.k - 1
    if isinstance(domain, Counts):
        return domain.max
    raise TypeError(f"{type(domain).__name__} is not a domain of the grammar")


@dataclass(frozen=True)
class Comparison:
    """How far what was read is from NumPyro's model, relative to the size of its terms.

    Attributes:
        potential: by how much the difference of the potentials changes over ``θ``.
        row: by how much that of one row's term, and what NumPyro's likelihood loses with it, changes.
        integrates: NumPyro's prior falls as a density must along every axis.
        points: at how many ``θ`` NumPyro's density is a positive number.
    """

    potential: float
    row: float
    integrates: bool
    points: int

    def agrees(self, *, single: bool) -> bool:
        """Up to rounding."""
        allowed = 2e-4 if single else 1e-7
        return self.potential <= allowed and self.row <= allowed


def compare(
    row_model: RowModel, whole: Model, data: Data, thetas: np.ndarray, leave: int, *, compiled: bool
) -> Comparison:
    """Compare at the points ``thetas``; ``leave`` is the row that is left out."""
    dim = row_model.dim
    lines = np.concatenate([sign * reach * np.eye(dim) for reach in (_NEAR, _FAR) for sign in (1, -1)])

    def ours(theta: jax.Array, columns: Data) -> tuple[jax.Array, jax.Array]:
        rows = jax.vmap(lambda one: row_model.row_loss(theta, one))(dict(columns))
        return row_model.neg_log_prior(theta), rows

    def theirs(theta: jax.Array, columns: Data) -> tuple[jax.Array, jax.Array]:
        return terms(whole, row_model.sites, columns, theta)

    # Checks of arguments cost a sixth of the time; reading, which comes first, has made them.
    @numpyro.validation_enabled(False)
    def everything(near: jax.Array, far: jax.Array, columns: Data) -> dict[str, jax.Array]:
        rest = {name: jnp.delete(column, leave, axis=0) for name, column in columns.items()}
        read, rows = jax.vmap(ours, (0, None))(near, columns)
        prior, likelihood = jax.vmap(theirs, (0, None))(jnp.concatenate([near, far]), columns)
        less = jax.vmap(theirs, (0, None))(near, rest)[1]
        return {"read": read, "rows": rows, "prior": prior, "likelihood": likelihood, "less": less}

    at = _numbers(everything, thetas, lines + thetas[0], data, compiled=compiled)
    read, rows, prior, less = at["read"], at["rows"], at["prior"][: len(thetas)], at["less"]
    likelihood, far = at["likelihood"][: len(thetas)], at["prior"][len(thetas) :]
    theirs_ = prior + likelihood
    found, known = np.isfinite(theirs_), np.isfinite(likelihood) & np.isfinite(less)
    with np.errstate(invalid="ignore"):
        size = 1 + np.abs(rows).sum(axis=1) + np.abs(likelihood)
        whole_gap = _change(read + rows.sum(axis=1) - theirs_, size + np.abs(read), found)
        row_gap = _change(rows[:, leave] - (likelihood - less), size, known)
        near, away = np.split(far, 2)
        integrates = not bool(np.any(away - near <= math.log(_FAR / _NEAR)))
    return Comparison(whole_gap, row_gap, integrates, int(found.sum()))


def _numbers(
    function: Callable[..., dict[str, jax.Array]],
    near: np.ndarray,
    far: np.ndarray,
    data: Data,
    *,
    compiled: bool,
) -> dict[str, np.ndarray]:
    """What ``function`` returns, compiled by XLA, or by NumPy, which needs no compiling."""
    if compiled:
        arguments = near, far, dict(data)
        found = jax.jit(function).lower(*arguments).compile(_COMPILER)(*arguments)
    else:
        given = {"near": near, "far": far, **data}
        shapes = {name: abstract(np.shape(value), value.dtype) for name, value in given.items()}
        program = trace(lambda near, far, **columns: function(near, far, columns), **shapes)
        found = dict(zip(program.outputs, evaluate(program, [*program.outputs], **given), strict=True))
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def _change(gaps: np.ndarray, sizes: np.ndarray, at: np.ndarray) -> float:
    """The largest change over these points, relative to the size of the terms; NaN is infinitely large."""
    gaps, sizes = gaps[at], sizes[at]
    if not gaps.size:
        return 0.0
    base = int(np.argmin(np.where(np.isnan(sizes), np.inf, sizes)))
    changes = np.abs(gaps - gaps[base]) / np.maximum(sizes, sizes[base])
    return float(np.max(np.where(np.isnan(changes), np.inf, changes)))
