"""The likelihood of a parameter, given everything that was released.

Block ``b`` of a path says ``y_b = G_b + noise``. With ``d_b = c_b − θ*``, ``c_b`` the mean state,

``G_b = μ_b(θ*) + s_b + κ_b E d_b + F_b d_b``:

- ``μ_b`` is the mean over synthetic people with outcomes drawn at ``θ*``, of the very gradients that the kernel clips;
- ``s_b`` is how far this sample's score is from its mean: Normal, of the model's covariance. Its regression on the full
  score at ``θ*`` is what an ordinary posterior knows of; the rest, the cost of bounding influence, is wider by a
  factor ``λ`` where the model is a little wrong;
- ``E`` is what synthetic people do not know of the curvature: a symmetric Normal matrix around what the
  released curvature says, as uncertain as its noise; ``F_b`` what a block's own weights change, of relative
  size ``τ``.

``s``, ``E`` and ``F`` are integrated out: ``y`` is Normal given ``θ*``, ``λ`` and ``τ``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.inference.posterior.observations import Block
from private_mcmc.inference.posterior.people import Fitted, People, Released
from private_mcmc.model import RowModel

Array: TypeAlias = npt.NDArray[np.float64]

# Curvature is within about this share of what fitted synthetic people say of it, and of others' if none are fitted.
_SHAPE, _UNFITTED, _UNSEEN = 0.06, 1.0, 0.5
# The least share of a released matrix's noise that is left in it.
_LEAST_NOISE = 0.2
# So many rows are taken to show of a slightly wrong model what their noise hides; and how sure that is.
_ROWS_THAT_SHOW_MISFIT, _MISFIT_SPREAD = 100_000, 0.5
_UNEVEN, _UNEVEN_SPREAD = 0.05, 0.5
HYPERPARAMETERS = 2


@dataclass(frozen=True, eq=False)
class Curvature:
    """What is known of the curvature in coordinates ``A^{-1}θ`` in which what synthetic people say is diagonal.

    Attributes:
        root: ``A``, ``(p, p)``.
        predicted: what synthetic people say, the diagonal, ``(p,)``.
        missing: the mean of ``E``, ``(p, p)``.
        variance: of its diagonal, and twice that of its other entries, which are independent; ``(p, p)``.
    """

    root: Array
    predicted: Array
    missing: Array
    variance: Array

    @property
    def correction(self) -> Array:
        """``C`` with ``C P Cᵀ = P + E``, floored at what is not known, for ``P`` what is predicted."""
        values, vectors = np.linalg.eigh(np.diag(self.predicted) + self.missing)
        least = math.sqrt(float(np.mean(np.diag(self.variance))))
        target = (vectors * np.sqrt(np.maximum(values, min(least, values[-1])))) @ vectors.T
        return np.asarray(target / np.sqrt(self.predicted))


def curvature(found: Sequence[Released], fitted: Fitted, rows: People, root: Array) -> Curvature:
    """From the last released matrix whose coordinates are known; else in ``root``, with a guess of its error."""
    known = [one for one in found if one.root is not None]
    if not known:
        one = np.ones(len(root))
        return Curvature(root, one, np.zeros_like(root), _UNSEEN**2 * np.outer(one, one))
    last = known[-1]
    noise = last.value.noise_sd
    predicted = np.asarray(last.predicted(rows.covariates, rows.each))
    values, vectors = np.linalg.eigh(predicted)
    values = np.maximum(values, 1e-3 * max(values[-1], 1e-300))
    root, relative = np.asarray(last.root) @ vectors, np.outer(values, values)
    if fitted.uncertainty is None:
        prior = _UNFITTED**2 * max(1.0, values.mean()) ** 2
        share = prior / (prior + noise**2)
        missing = share * (vectors.T @ last.value.matrix @ vectors - np.diag(values))
        return Curvature(root, values, missing, np.full(relative.shape, share * noise**2))
    upper = np.triu_indices(len(root))
    scale = np.where(upper[0] == upper[1], 1.0, math.sqrt(0.5))
    sides = np.zeros((fitted.uncertainty.shape[1], *relative.shape))
    sides[:, upper[0], upper[1]] = (fitted.uncertainty * scale[:, None]).T
    sides[:, upper[1], upper[0]] = sides[:, upper[0], upper[1]]
    turned = vectors.T @ sides @ vectors
    variance = np.square(turned).sum(axis=0) * (2.0 - np.eye(len(root)))
    variance = variance + (_LEAST_NOISE * noise) ** 2 + _SHAPE**2 * relative
    return Curvature(root, values, np.zeros_like(root), variance)


LogDensity: TypeAlias = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True, eq=False)
class Likelihood:
    """``log p(releases, θ*, log λ, log τ)`` up to a constant.

    Attributes:
        reading: the model.
        rows: synthetic people.
        blocks: of all paths.
        gradients: of every row and outcome in every block, ``(rows·outcomes, blocks, p)``.
        known: of the curvature.
        num_rows: ``n`` or its public bound.
    """

    reading: RowModel
    rows: People
    blocks: tuple[Block, ...]
    gradients: Array
    known: Curvature
    num_rows: int

    def at(self, theta: Array) -> LogDensity:
        """The log density, with the covariances of scores taken at ``θ* = theta``."""
        root, dim, count = self.known.root, self.reading.dim, len(self.blocks)
        size = count * dim
        # All scores in the coordinates of the curvature: Aᵀg, and A^{-1}θ.
        tensor = (self.gradients @ root).reshape(len(self.gradients), size) * self.rows.each
        score = np.stack([block.score @ root for block in self.blocks])
        back = np.linalg.inv(root)
        centre = np.stack([back @ block.centre for block in self.blocks])
        noise = _block_diagonal([root.T @ block.noise @ root for block in self.blocks])
        shares = np.exp(np.asarray(self.rows.log_shares(self.reading, jnp.asarray(theta))))
        full = self._full_scores(theta) @ root
        explained, rest = self._deviations(tensor, full, shares)
        slopes = self._slopes(tensor, full, shares, count)
        kappa = np.trace(slopes, axis1=1, axis2=2) / max(self.known.predicted.sum(), 1e-300)
        fixed = jnp.asarray(noise + explained)
        rest, tensor, missing = jnp.asarray(rest), jnp.asarray(tensor), jnp.asarray(self.known.missing)
        slopes, kappa, eye = jnp.asarray(slopes), jnp.asarray(kappa), jnp.eye(dim)
        misfit = math.log1p(self.num_rows / _ROWS_THAT_SHOW_MISFIT)
        variance, own = jnp.asarray(self.known.variance), jnp.arange(count)

        def log_density(parameters: jax.Array) -> jax.Array:
            theta, log_misfit, log_uneven = parameters[:dim], parameters[dim], parameters[dim + 1]
            shares = jnp.exp(self.rows.log_shares(self.reading, theta)).ravel()
            mean = (shares @ tensor).reshape(count, dim)
            gap = centre - jnp.asarray(back) @ theta
            off = score - mean - kappa[:, None] * (gap @ missing)
            scaled = kappa[:, None] * gap
            unknown = jnp.einsum("ij,bj,cj->bci", variance, scaled, scaled)[..., None] * eye
            unknown = unknown + jnp.einsum("ij,ci,bj->bcij", variance, scaled, scaled)
            turned = jnp.einsum("bij,bj->bi", slopes, gap)
            uneven = jnp.einsum("bi,bi->b", gap, turned)[:, None, None] * slopes
            uneven = uneven + jnp.einsum("bi,bj->bij", turned, turned)
            blocks = unknown / 2
            blocks = blocks.at[own, own].add(jnp.exp(2 * log_uneven) / 2 * uneven)
            covariance = fixed + jnp.exp(log_misfit) * rest
            covariance = covariance + jnp.swapaxes(blocks, 1, 2).reshape(size, size)
            value = _log_normal(off.ravel(), covariance)
            value = value - ((log_misfit - misfit) / _MISFIT_SPREAD) ** 2 / 2
            value = value - ((log_uneven - math.log(_UNEVEN)) / _UNEVEN_SPREAD) ** 2 / 2
            value = value - self.reading.neg_log_prior(theta)
            return jnp.where(jnp.isfinite(value), value, -jnp.inf)

        return log_density

    @property
    def hyperparameters(self) -> Array:
        """``log λ`` and ``log τ`` where their priors are centred."""
        return np.array([math.log1p(self.num_rows / _ROWS_THAT_SHOW_MISFIT), math.log(_UNEVEN)])

    def _full_scores(self, theta: Array) -> Array:
        """Gradients of all rows and outcomes at ``θ``, neither clipped nor weighted, ``(rows·outcomes, p)``."""
        each = jax.jit(jax.vmap(jax.grad(self.reading.row_loss), in_axes=(None, 0)))
        return np.nan_to_num(np.asarray(each(jnp.asarray(theta), self.rows.columns)))

    def _conditional(self, values: Array, shares: Array) -> Array:
        """Values less their mean over the outcomes of a row, times the root of the outcomes' probabilities."""
        apart = values.reshape(*shares.shape, -1)
        centred = apart - np.einsum("rq,rqi->ri", shares, apart)[:, None, :]
        return np.asarray((centred * np.sqrt(shares)[..., None]).reshape(len(values), -1))

    def _deviations(self, tensor: Array, full: Array, shares: Array) -> tuple[Array, Array]:
        """Covariance of the blocks' scores: what the full score explains of it, and the rest."""
        correction, count = self.known.correction, len(self.blocks)
        scale = math.sqrt(self.rows.each)
        scores = self._conditional(tensor / scale, shares).reshape(len(tensor), count, -1) @ correction.T
        scores = scores.reshape(len(tensor), -1)
        whole = self._conditional(full * scale, shares) @ correction.T
        both, own = scores.T @ whole, whole.T @ whole
        explained = both @ np.linalg.pinv(own, rcond=1e-10, hermitian=True) @ both.T
        rest = scores.T @ scores - explained
        values, vectors = np.linalg.eigh((rest + rest.T) / 2)
        return explained, (vectors * np.maximum(values, 0.0)) @ vectors.T

    def _slopes(self, tensor: Array, full: Array, shares: Array, count: int) -> Array:
        """``−∂μ_b/∂θ*``, made symmetric and positive: the covariance of gradients with the outcomes' scores."""
        scores = self._conditional(tensor, shares).reshape(len(tensor), count, -1)
        whole = self._conditional(full, shares)
        made = np.einsum("nbi,nj->bij", scores, whole)
        values, vectors = np.linalg.eigh((made + np.swapaxes(made, 1, 2)) / 2)
        return np.asarray((vectors * np.maximum(values, 1e-12)[:, None, :]) @ np.swapaxes(vectors, 1, 2))


@jax.custom_vjp
def _log_normal(off: jax.Array, covariance: jax.Array) -> jax.Array:
    """``log N(off; 0, covariance)`` but for a constant; derivatives of factorisations are slow, so its own are given."""
    return _log_normal_forward(off, covariance)[0]


def _log_normal_forward(
    off: jax.Array, covariance: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    factor, inverse = _factored(covariance)
    white = inverse @ off
    value = -jnp.sum(white**2) / 2 - jnp.sum(jnp.log(jnp.diagonal(factor)))
    return value, (white @ inverse, inverse)


@jax.custom_batching.sequential_vmap
def _factored(covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The Cholesky factor and its inverse; one matrix after the other, which on CPUs is much faster than a batch."""
    factor = jnp.linalg.cholesky(covariance)
    return factor, jax.scipy.linalg.solve_triangular(factor, jnp.eye(len(covariance)), lower=True)


def _log_normal_backward(
    saved: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array]:
    solved, inverse = saved
    return -cotangent * solved, cotangent * (jnp.outer(solved, solved) - inverse.T @ inverse) / 2


_log_normal.defvjp(_log_normal_forward, _log_normal_backward)


def _block_diagonal(parts: list[Array]) -> Array:
    size = len(parts[0])
    whole = np.zeros((len(parts) * size, len(parts) * size))
    for index, part in enumerate(parts):
        own = slice(index * size, (index + 1) * size)
        whole[own, own] = part
    return whole
