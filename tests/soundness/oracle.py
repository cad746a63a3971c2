"""What NumPyro itself says of a model, and rows of its domains."""

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
from private_mcmc.model.program import trace
from private_mcmc.model.row_latents import RowLatent
from private_mcmc.potential.rowwise import abstract

Data = Mapping[str, Any]
Model = Callable[..., Any]

# Compiling is what a comparison costs; so little is computed that slow code is quicker.
_COMPILER = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
_EXACT = 1e-7
# Where NumPyro's own values differ by more than this between float32 and float64, it clamps or cancels.
_CLAMPED = 1e-2


def terms(model: Model, sites: Sequence[Site], data: Data, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
    """NumPyro's ``−log prior`` on the unconstrained space and ``−log likelihood``, at the flat latents."""
    free = {site.name: theta[site.slice].reshape(site.unconstrained_shape) for site in sites}
    given = handlers.substitute(model, substitute_fn=functools.partial(_unconstrain_reparam, free))
    densities, messages = compute_log_probs(given, (), dict(data), {})
    latent = {*free, *(f"_{name}_log_det" for name in free)}
    rest = [value for name, value in densities.items() if name not in latent]
    assert set(free) <= set(messages)
    return -sum(densities[name] for name in latent & set(densities)), -sum(rest)


# Points for a row's own real latent on the unconstrained line: far more than a reading has, and further out.
_LINE = np.linspace(-14.0, 14.0, 561)


def integrated_terms(
    model: Model, sites: Sequence[Site], latent: RowLatent, data: Data, theta: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """As ``terms``, where each row has one latent of its own: the log likelihoods are integrals over it."""
    free = {site.name: theta[site.slice].reshape(site.unconstrained_shape) for site in sites}
    at = functools.partial(_unconstrain_reparam, free)
    count = len(next(iter(data.values())))

    def joint(point: jax.Array) -> tuple[jax.Array, jax.Array]:
        value = latent.transform(point)
        step = 0.0 if latent.values else latent.transform.log_abs_det_jacobian(point, value)
        given = handlers.substitute(model, data={latent.site: jnp.broadcast_to(value, (count,))})
        densities, _ = compute_log_probs(
            handlers.substitute(given, substitute_fn=at), (), dict(data), {}, sum_log_prob=False
        )
        names = (name for site in sites for name in (site.name, f"_{site.name}_log_det"))
        prior = sum(jnp.sum(densities.pop(name, jnp.zeros(()))) for name in names)
        return prior, step + sum(jnp.broadcast_to(density, (count,)) for density in densities.values())

    priors, rows = jax.vmap(joint)(jnp.arange(latent.values) if latent.values else jnp.asarray(_LINE))
    return -priors[0], -jnp.sum(jax.nn.logsumexp(rows, axis=0))


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
        potential: by how much the difference of the potentials changes over ``θ``, for any of the data sets.
        summed: rows have latents of their own, over which the reading sums and NumPyro's is integrated.
    """

    potential: float
    summed: bool

    def agrees(self, *, single: bool) -> bool:
        """Up to rounding, and a sum to what it stands for."""
        return self.potential <= (1e-3 if self.summed else 2e-4 if single else _EXACT)


def compare(
    row_model: RowModel, whole: Model, data: Data, thetas: np.ndarray, *, compiled: bool
) -> Comparison:
    """Compare at the points ``thetas``, on the first half of the rows and with each of them replaced.

    In place of the i-th of ``n`` rows comes the ``n + i``-th: a row moves the potential by its own terms,
    wherever it stands and whatever the others are.
    """
    count = len(next(iter(data.values()))) // 2
    hidden = () if row_model.summed is None else row_model.summed.latents
    if hidden:
        # Near the mean of what is summed over.
        thetas = 0.3 * thetas
    which = np.tile(np.arange(count), (count + 1, 1))
    which[np.arange(1, count + 1), np.arange(count)] += count

    def ours(theta: jax.Array, columns: Data) -> tuple[jax.Array, jax.Array]:
        return row_model.row_loss(theta, columns), row_model.neg_log_prior(theta)

    # Checks of arguments cost a sixth of the time; reading, which comes first, has made them.
    @numpyro.validation_enabled(False)
    def theirs(theta: jax.Array, columns: Data) -> tuple[jax.Array, jax.Array]:
        if hidden:
            return integrated_terms(whole, row_model.sites, *hidden, columns, theta)
        return terms(whole, row_model.sites, columns, theta)

    def every(theta: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Each ``θ`` with each of so many indices."""
        return np.repeat(theta, count, axis=0), np.tile(np.arange(count), len(theta))

    def picked(columns: Data, at: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[at] for name, column in columns.items()}

    points, own = every(thetas, 2 * count)
    rows, read = _numbers(ours, points, picked(data, own), compiled=compiled)
    rows, read = rows.reshape(len(thetas), 2 * count)[:, which], read[:: 2 * count, None]
    points, sets = every(thetas, count + 1)
    chosen = picked(data, which[sets])
    found = _numbers(theirs, points, chosen, compiled=compiled)
    prior, likelihood = (each.reshape(len(thetas), count + 1) for each in found)
    with np.errstate(invalid="ignore"):
        gaps = prior + likelihood - read - rows.sum(axis=2)
        sizes = 1 + np.abs(rows).sum(axis=2) + np.abs(likelihood) + np.abs(read)
        found = np.isfinite(prior + likelihood)
        worst = _worst(gaps, sizes, found)
        if worst > _EXACT:
            with jax.enable_x64(False):
                rough = _numbers(theirs, points, chosen, compiled=False)
            for value, other in zip((prior, likelihood), rough, strict=True):
                found &= np.abs(other.reshape(value.shape) - value) <= _CLAMPED * (1 + np.abs(value))
            worst = _worst(gaps, sizes, found)
    return Comparison(worst, bool(hidden))


def _numbers(
    function: Callable[..., tuple[jax.Array, ...]], thetas: np.ndarray, columns: Data, *, compiled: bool
) -> list[np.ndarray]:
    """``function(θ, columns)`` at every point, compiled by XLA, or by NumPy, which needs no compiling."""
    if compiled:
        arguments = thetas, dict(columns)
        found = jax.jit(jax.vmap(function)).lower(*arguments).compile(_COMPILER)(*arguments)
    else:
        given = {"theta": thetas, **columns}
        shapes = {name: abstract(np.shape(value)[1:], value.dtype) for name, value in given.items()}
        program = trace(lambda theta, **row: dict(enumerate(function(theta, row))), **shapes)
        found = program.evaluate([*program.outputs], True, **given)
    return [np.asarray(value, np.float64) for value in found]


def _worst(gaps: np.ndarray, sizes: np.ndarray, found: np.ndarray) -> float:
    """The largest change over ``θ`` on any data set; infinite where no two points can be compared."""
    if np.max(found.sum(axis=0)) < 2 and np.any(found):
        return math.inf
    return max(_change(gaps[:, k], sizes[:, k], found[:, k]) for k in range(found.shape[1]))


def _change(gaps: np.ndarray, sizes: np.ndarray, at: np.ndarray) -> float:
    """The largest change over these points, relative to the size of the terms; NaN is infinitely large."""
    gaps, sizes = gaps[at], sizes[at]
    if not gaps.size:
        return 0.0
    base = int(np.argmin(np.where(np.isnan(sizes), np.inf, sizes)))
    changes = np.abs(gaps - gaps[base]) / np.maximum(sizes, sizes[base])
    return float(np.max(np.where(np.isnan(changes), np.inf, changes)))
