"""The likelihood of a parameter, given everything that was released.

Block ``b`` of a path says ``y_b = G_b + noise``. With ``d_b = c_b − θ*``, ``c_b`` the mean state,

``G_b = μ_b(θ*) + s_b + κ_b E d_b + F_b d_b``:

- ``μ_b`` is the mean over synthetic people with outcomes drawn at ``θ*``, of the very gradients that the
  kernel clips;
- ``s_b`` is how far this sample's score is from its mean: Normal, of the model's covariance. Its regression
  on the full score at ``θ*`` is what an ordinary posterior knows of; the rest, the cost of bounding rows'
  influence, is wider by a factor ``λ`` where the model is a little wrong;
- ``E`` is what synthetic people do not know of the curvature: a symmetric Normal matrix around what the
  released curvature says, as uncertain as its noise; ``F_b`` what a block's own weights change, of relative
  size ``τ``.

``s``, ``E`` and ``F`` are integrated out: ``y`` is Normal given ``θ*``, ``λ`` and ``τ``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.inference.posterior.observations import Block
from private_mcmc.inference.posterior.people import Columns, Fitted, People, Released, log_shares
from private_mcmc.model import RowModel

Array: TypeAlias = npt.NDArray[np.float64]

# How far curvature is, relatively, from that of synthetic people: fitted ones, others, without releases.
_SHAPE, _UNFITTED, _UNSEEN = 0.06, 1.0, 0.5
# The least share of a released matrix's noise that is left in it.
_LEAST_NOISE = 0.2
# So many rows are taken to show of a slightly wrong model what their noise hides; and how sure that is.
_ROWS_THAT_SHOW_MISFIT, _MISFIT_SPREAD = 100_000, 0.5
_UNEVEN, _UNEVEN_SPREAD = 0.1, 0.5
# Within about so many standard deviations, squared and for each parameter, a score is linear.
_NEAR = 10.0
HYPERPARAMETERS = 2


@dataclass(frozen=True, eq=False)
class Curvature:
    """What is known of the curvature in coordinates ``A^{-1}θ`` where that of synthetic people is diagonal.

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
    """From the last released matrix whose coordinates are known; else in ``root``, with a guessed error."""
    known = [one for one in found if one.root is not None]
    if not rows.covariates:
        # Rows are their outcomes: synthetic people are as good as real ones.
        return Curvature(root, np.ones(len(root)), np.zeros_like(root), np.zeros_like(root))
    if not known:
        one = np.ones(len(root))
        return Curvature(root, one, np.zeros_like(root), _UNSEEN**2 * np.outer(one, one))
    last = known[-1]
    noise = last.value.noise_sd
    predicted = np.asarray(last.predicted(rows.rows, rows.each))
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


class Terms(NamedTuple):
    """The arrays of the log density. Scores are in the coordinates ``Aᵀg``, states in ``A^{-1}θ``.

    Attributes:
        columns: of synthetic people with outcomes, ``(rows·outcomes, …)``.
        log_base: ``(rows, outcomes)``.
        back: ``A^{-1}``.
        tensor: gradients times the number of people, ``(rows·outcomes, blocks·p)``.
        score: what was observed, ``(blocks, p)``.
        centre: mean states, ``(blocks, p)``.
        fixed: covariance of the noise and of what the full score explains, ``(blocks·p, blocks·p)``.
        rest: covariance of the rest of the score, the same shape.
        slopes: ``(blocks, p, p)``.
        kappa: the blocks' curvature over the full one, ``(blocks,)``.
        reweighted: how unlike the full curvature the blocks' is, between 0 and 1, ``(blocks,)``.
        missing: mean of ``E``.
        variance: of ``E``.
        misfit: centre of the prior of ``log λ``.
    """

    columns: Columns
    log_base: jax.Array
    back: jax.Array
    tensor: jax.Array
    score: jax.Array
    centre: jax.Array
    fixed: jax.Array
    rest: jax.Array
    slopes: jax.Array
    kappa: jax.Array
    reweighted: jax.Array
    missing: jax.Array
    variance: jax.Array
    misfit: jax.Array


def log_density(reading: RowModel, terms: Terms, parameters: jax.Array) -> jax.Array:
    """``log p(releases, θ*, log λ, log τ)`` up to a constant; ``parameters`` are ``(θ*, log λ, log τ)``."""
    count, dim = terms.score.shape
    theta, log_misfit, log_uneven = parameters[:dim], parameters[dim], parameters[dim + 1]
    shares = jnp.exp(log_shares(reading, terms.columns, terms.log_base, theta)).ravel()
    mean = (shares @ terms.tensor).reshape(count, dim)
    gap = terms.centre - terms.back @ theta
    scaled = terms.kappa[:, None] * gap
    off = terms.score - mean - scaled @ terms.missing
    unknown = jnp.einsum("ij,bj,cj->bci", terms.variance, scaled, scaled)[..., None] * jnp.eye(dim)
    blocks = (unknown + jnp.einsum("ij,ci,bj->bcij", terms.variance, scaled, scaled)) / 2
    turned = jnp.einsum("bij,bj->bi", terms.slopes, gap)
    square = jnp.einsum("bi,bi->b", gap, turned)
    uneven = square[:, None, None] * terms.slopes + jnp.einsum("bi,bj->bij", turned, turned)
    uneven = uneven * (terms.reweighted + square / (square + _NEAR * dim))[:, None, None]
    own = jnp.arange(count)
    blocks = blocks.at[own, own].add(jnp.exp(2 * log_uneven) / 2 * uneven)
    covariance = terms.fixed + jnp.exp(log_misfit) * terms.rest
    covariance = covariance + jnp.swapaxes(blocks, 1, 2).reshape(covariance.shape)
    value = _log_normal(off.ravel(), covariance)
    value = value - ((log_misfit - terms.misfit) / _MISFIT_SPREAD) ** 2 / 2
    value = value - ((log_uneven - math.log(_UNEVEN)) / _UNEVEN_SPREAD) ** 2 / 2
    value = value - reading.neg_log_prior(theta)
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """What the log density is made of.

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

    def at(self, theta: Array) -> Terms:
        """The terms, with the covariances of scores taken at ``θ* = theta``."""
        root, dim, count = self.known.root, self.reading.dim, len(self.blocks)
        tensor = (self.gradients @ root).reshape(len(self.gradients), count * dim) * self.rows.each
        back = np.linalg.inv(root)
        noise = _block_diagonal([root.T @ block.noise @ root for block in self.blocks])
        shares = np.exp(np.asarray(self.rows.log_shares(self.reading, jnp.asarray(theta))))
        full = np.asarray(_full_scores(self.reading, jnp.asarray(theta), self.rows.columns)) @ root
        explained, rest = self._deviations(tensor, full, shares)
        slopes = self._slopes(tensor, full, shares, count)
        whole = self._conditional(full, shares)
        kappa = np.trace(slopes, axis1=1, axis2=2) / max(self.rows.each * np.square(whole).sum(), 1e-300)
        return Terms(
            columns=self.rows.columns,
            log_base=jnp.asarray(self.rows.log_base),
            back=jnp.asarray(back),
            tensor=jnp.asarray(tensor),
            score=jnp.asarray(np.stack([block.score @ root for block in self.blocks])),
            centre=jnp.asarray(np.stack([back @ block.centre for block in self.blocks])),
            fixed=jnp.asarray(noise + explained),
            rest=jnp.asarray(rest),
            slopes=jnp.asarray(slopes if np.any(self.known.variance) else np.zeros_like(slopes)),
            kappa=jnp.asarray(kappa),
            reweighted=jnp.asarray(np.minimum(1.0, np.square(1.0 - kappa))),
            missing=jnp.asarray(self.known.missing),
            variance=jnp.asarray(self.known.variance),
            misfit=jnp.asarray(self.hyperparameters[0]),
        )

    @property
    def hyperparameters(self) -> Array:
        """``log λ`` and ``log τ`` where their priors are centred."""
        return np.array([math.log1p(self.num_rows / _ROWS_THAT_SHOW_MISFIT), math.log(_UNEVEN)])

    def _conditional(self, values: Array, shares: Array) -> Array:
        """Values less their mean over a row's outcomes, times the root of the outcomes' probabilities."""
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
        """``−∂μ_b/∂θ*``, the covariance of gradients with outcomes' scores, made symmetric and positive."""
        scores = self._conditional(tensor, shares).reshape(len(tensor), count, -1)
        whole = self._conditional(full, shares)
        made = np.einsum("nbi,nj->bij", scores, whole)
        values, vectors = np.linalg.eigh((made + np.swapaxes(made, 1, 2)) / 2)
        return np.asarray((vectors * np.maximum(values, 1e-12)[:, None, :]) @ np.swapaxes(vectors, 1, 2))


@partial(jax.jit, static_argnums=0)
def _full_scores(reading: RowModel, theta: jax.Array, rows: Columns) -> jax.Array:
    """Gradients of all rows and outcomes at ``θ``, neither clipped nor weighted, ``(rows·outcomes, p)``."""
    return jnp.nan_to_num(jax.vmap(jax.grad(reading.row_loss), in_axes=(None, 0))(theta, rows))


@jax.custom_vjp
def _log_normal(off: jax.Array, covariance: jax.Array) -> jax.Array:
    """``log N(off; 0, covariance)`` but for a constant, with its own derivative: factors' ones are slow."""
    return _log_normal_forward(off, covariance)[0]


def _log_normal_forward(
    off: jax.Array, covariance: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    factor, inverse = _factored(covariance)
    white = inverse @ off
    value = -jnp.sum(white**2) / 2 - jnp.sum(jnp.log(jnp.diagonal(factor)))
    return value, (white @ inverse, inverse)


@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def _factored(covariance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The Cholesky factor and its inverse, one matrix after the other: on CPUs batches are much slower."""
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
