"""The likelihood of a parameter, given everything that was released.

Block ``b`` of a path says ``y_b = G_b + noise``. With ``P`` the curvature of synthetic people, ``S_b``
that of the block's gradients,

``G_b = μ_b(θ*) + s_b + m_b + E P^{-1} μ_b(θ*) + F_b S_b^{-1} μ_b(θ*)``:

- ``μ_b`` is the mean over synthetic people with outcomes drawn at ``θ*``, of the very gradients that the
  kernel clips;
- ``s_b`` is how far this sample's score is from its mean: Normal, of the model's covariance;
- ``m_b`` is what the model gets wrong: given covariates the outcome's mean is off by ``δ_1`` of its sds, its
  spread by ``δ_2``, as Normal combinations of functions of the covariates. What moves the full score is left
  out: that is the parameter. Blocks whose weights differ tell of it, and its price is in the width;
- ``E`` is what synthetic people do not know of the curvature: a symmetric Normal matrix around what the
  released curvature says, as uncertain as its noise; ``F_b`` what a block's own weights change, of relative
  size ``τ``.

``s``, ``m``, ``E`` and ``F`` are integrated out: ``y`` is Normal given ``θ*``, ``δ`` and ``τ``.
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
from scipy.linalg import block_diag

from private_mcmc.inference.posterior.covariates import Fitted, Released
from private_mcmc.inference.posterior.observations import Block
from private_mcmc.inference.posterior.outcomes import Columns, log_shares
from private_mcmc.inference.posterior.people import People
from private_mcmc.model import RowModel

Array: TypeAlias = npt.NDArray[np.float64]

# How far curvature is, relatively, from that of synthetic people: fitted ones, others, without releases.
_SHAPE, _UNFITTED, _UNSEEN = 0.06, 1.0, 0.5
# The least share of a released matrix's noise that is left in it.
_LEAST_NOISE = 0.2
# Log-Normal priors: how far, in sds of the outcome, its mean is from the model's given the covariates, and
# how far its spread; how uneven curvature is.
_HYPERPRIOR = np.array([[math.log(0.05), 1.0], [math.log(0.2), 1.5], [math.log(0.1), 0.5]])
# The least curvature of a block, over its largest.
_FLATTEST = 1e-3
# Within about so many standard deviations, squared and for each parameter, a score is linear.
_NEAR = 10.0


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
    predicted = last.predicted(rows.rows, rows.weights) if fitted.predicted is None else fitted.predicted
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


HYPERPARAMETERS = _HYPERPRIOR[:, 0]


class Terms(NamedTuple):
    """The arrays of the log density. Scores are in the coordinates ``Aᵀg``, states in ``A^{-1}θ``.

    Attributes:
        columns: of synthetic people with outcomes, ``(rows·outcomes, …)``.
        log_base: ``(rows, outcomes)``.
        tensor: gradients times the number of people, ``(rows·outcomes, blocks·p)``.
        score: what was observed, ``(blocks, p)``.
        fixed: covariance of the noise and of the sample's score, ``(blocks·p, blocks·p)``.
        misfits: covariances of what a wrong mean and a wrong spread add, ``(2, blocks·p, blocks·p)``.
        slopes: ``(blocks, p, p)``.
        flat: their inverses.
        predicted: diagonal of the curvature of synthetic people, ``(p,)``.
        reweighted: how unlike the full curvature the blocks' is, between 0 and 1, ``(blocks,)``.
        missing: mean of ``E``.
        variance: of ``E``.
    """

    columns: Columns
    log_base: jax.Array
    tensor: jax.Array
    score: jax.Array
    fixed: jax.Array
    misfits: jax.Array
    slopes: jax.Array
    flat: jax.Array
    predicted: jax.Array
    reweighted: jax.Array
    missing: jax.Array
    variance: jax.Array


def log_density(reading: RowModel, terms: Terms, parameters: jax.Array) -> jax.Array:
    """``log p(releases, θ*, log δ, log τ)`` up to a constant; ``parameters`` are ``(θ*, log δ, log τ)``."""
    count, dim = terms.score.shape
    theta, hyper = parameters[:dim], parameters[dim:]
    shares = jnp.exp(log_shares(reading, terms.columns, terms.log_base, theta)).ravel()
    mean = (shares @ terms.tensor).reshape(count, dim)
    # In displacements that would move a linear score as far: scores level off where outcomes are certain.
    moved = mean / terms.predicted
    off = terms.score - mean - moved @ terms.missing
    unknown = jnp.einsum("ij,bj,cj->bci", terms.variance, moved, moved)[..., None] * jnp.eye(dim)
    blocks = (unknown + jnp.einsum("ij,ci,bj->bcij", terms.variance, moved, moved)) / 2
    square = jnp.einsum("bi,bij,bj->b", mean, terms.flat, mean)
    uneven = square[:, None, None] * terms.slopes + jnp.einsum("bi,bj->bij", mean, mean)
    uneven = uneven * (terms.reweighted + square / (square + _NEAR * dim))[:, None, None]
    own = jnp.arange(count)
    blocks = blocks.at[own, own].add(jnp.exp(2 * hyper[2]) / 2 * uneven)
    covariance = terms.fixed + jnp.tensordot(jnp.exp(2 * hyper[:2]), terms.misfits, 1)
    covariance = covariance + jnp.swapaxes(blocks, 1, 2).reshape(covariance.shape)
    value = _log_normal(off.ravel(), covariance)
    value = value - jnp.sum(((hyper - _HYPERPRIOR[:, 0]) / _HYPERPRIOR[:, 1]) ** 2) / 2
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
    """

    reading: RowModel
    rows: People
    blocks: tuple[Block, ...]
    gradients: Array
    known: Curvature

    def at(self, theta: Array) -> Terms:
        """The terms, with the covariances of scores taken at ``θ* = theta``."""
        root, dim, count = self.known.root, self.reading.dim, len(self.blocks)
        tensor = (self.gradients @ root).reshape(len(self.gradients), count * dim)
        weights = np.repeat(self.rows.weights, len(tensor) // len(self.rows.weights))[:, None]
        noise = block_diag(*(root.T @ block.noise @ root for block in self.blocks))
        shares = np.exp(np.asarray(self.rows.log_shares(self.reading, jnp.asarray(theta))))
        full = np.asarray(_full_scores(self.reading, jnp.asarray(theta), self.rows.columns)) @ root
        scores, whole = self._conditional(tensor, shares), self._conditional(full, shares)
        slopes = self._slopes(scores, whole, count)
        kappa = np.trace(slopes, axis1=1, axis2=2) / max(np.square(whole).sum(), 1e-300)
        return Terms(
            columns=self.rows.columns,
            log_base=jnp.asarray(self.rows.log_base),
            tensor=jnp.asarray(tensor * weights),
            score=jnp.asarray(np.stack([block.score @ root for block in self.blocks])),
            fixed=jnp.asarray(noise + self._deviations(scores)),
            misfits=jnp.asarray(self._misfits(shares, full)),
            slopes=jnp.asarray(slopes if np.any(self.known.variance) else np.zeros_like(slopes)),
            flat=jnp.asarray(np.linalg.inv(slopes)),
            predicted=jnp.asarray(self.known.predicted),
            reweighted=jnp.asarray(np.minimum(1.0, np.square(1.0 - kappa))),
            missing=jnp.asarray(self.known.missing),
            variance=jnp.asarray(self.known.variance),
        )

    def _conditional(self, values: Array, shares: Array) -> Array:
        """Values less their mean over a row's outcomes, times the root of the people that have each."""
        apart = values.reshape(*shares.shape, -1)
        centred = apart - np.einsum("rq,rqi->ri", shares, apart)[:, None, :]
        people = shares * self.rows.weights[:, None]
        return np.asarray((centred * np.sqrt(people)[..., None]).reshape(len(values), -1))

    def _deviations(self, scores: Array) -> Array:
        """Covariance of the blocks' scores over samples of people."""
        corrected = scores.reshape(len(scores), len(self.blocks), -1) @ self.known.correction.T
        corrected = corrected.reshape(len(scores), -1)
        return np.asarray(corrected.T @ corrected)

    def _misfits(self, shares: Array, full: Array) -> Array:
        """Covariances over functions of covariates that shift an outcome's mean, or its spread, by one sd.

        Shifts that move the full score belong to the parameter, whose meaning is where that score vanishes.
        """
        weights, functions = self.rows.weights, self.rows.functions
        centred = functions - weights @ functions / weights.sum()
        scale = math.sqrt(max(float((weights @ centred**2).sum() / weights.sum()), 1e-300))
        # The constant too: all outcomes may vary more than the model says.
        kept = np.concatenate([np.ones((len(functions), 1)), centred / scale], axis=1)
        root = self.known.root
        made = []
        for residual in self.rows.residuals(shares):
            moved = (shares * residual * weights[:, None]).ravel()

            def shifts(values: Array, moved: Array = moved) -> Array:
                apart = (values * moved[:, None]).reshape(*shares.shape, -1).sum(axis=1)
                return np.asarray(apart.T @ kept)

            of_blocks, of_all = shifts((self.gradients @ root).reshape(len(full), -1)), shifts(full)
            of_blocks = of_blocks - of_blocks @ np.linalg.pinv(of_all, rcond=1e-8) @ of_all
            made.append(of_blocks @ of_blocks.T)
        return np.stack(made)

    def _slopes(self, scores: Array, whole: Array, count: int) -> Array:
        """``−∂μ_b/∂θ*``, the covariance of gradients with outcomes' scores, made symmetric and positive."""
        made = np.einsum("nbi,nj->bij", scores.reshape(len(scores), count, -1), whole)
        values, vectors = np.linalg.eigh((made + np.swapaxes(made, 1, 2)) / 2)
        values = np.maximum(values, _FLATTEST * values[:, -1:] + 1e-12)
        return np.asarray((vectors * values[:, None, :]) @ np.swapaxes(vectors, 1, 2))


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
