"""The likelihood of a parameter, given everything that was released.

Block ``b`` of a path says ``y_b = G_b + noise``. With ``w_r`` the people that synthetic row ``r`` stands for,
and ``g_rb`` the gradient that the kernel clips, in the mean over the block,

``G_b = Σ_r w_r f(φ_r·e) E[g_rb | θ*] + s_b + m_b``:

- the expectation is over the row's outcomes at ``θ*``;
- ``e`` is what is not known of the covariates' law once matrices were released: independent standard Normal,
  and ``f(z)`` is ``1 + z``, below 0 ``exp(z)``. People are never fewer than nobody: with ``1 + z`` alone some
  ``e`` makes rows say nothing, which explains any parameter, and far away there is much room for them;
- ``s_b`` is how far this sample's score is from its mean: Normal, of the model's covariance, times what
  released counts of slopes say of it;
- ``m_b`` is what the model gets wrong: given covariates the outcome's mean is off by ``δ_1`` of its sds, its
  spread by ``δ_2``, as Normal combinations of functions of the covariates. What moves the full score is left
  out: that is the parameter. Blocks whose weights differ tell of it, and its price is in the width.

``s`` and ``m`` are integrated out, ``y`` being Normal given ``θ*``, ``e`` and ``δ``; ``e`` is by Laplace's
method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag

from private_mcmc.inference.posterior.observations import Block
from private_mcmc.inference.posterior.outcomes import Listed, Tilt, shares
from private_mcmc.inference.posterior.people import People
from private_mcmc.model import RowModel

Array: TypeAlias = npt.NDArray[np.float64]

# Log-Normal priors: how far, in sds of the outcome, its mean is from the model's given the covariates, and
# how far its spread; and the size that each does not exceed by much, whatever the prior says of ``θ``.
_HYPERPRIOR = np.array([[math.log(0.05), 1.0], [math.log(0.2), 1.5]])
_LARGEST = np.array([0.2, 3.0])
# So many directions of ``e`` that matter most are kept; the others' are lost in the noise.
_DIRECTIONS = 48
# Towards the likeliest ``e``: three are within a tenth of the sum over it (a test).
_STEPS = 3
# Of a row's largest gradient: what is not kept of the others.
_ROUNDING = 1e-11


HYPERPARAMETERS = _HYPERPRIOR[:, 0]


class Terms(NamedTuple):
    """The arrays of the log density. Scores are in the coordinates ``Aᵀg``, states in ``A^{-1}θ``.

    Attributes:
        told: what probabilities of outcomes are computed from.
        slopes: gradients times the number of people, in coordinates of each row of their own, which are few
            where rows have few predictors: ``(rows, outcomes, blocks·k)``.
        directions: of those coordinates, ``(rows, k, p)``.
        score: what was observed, ``(blocks, p)``.
        fixed: covariance of the noise and of the sample's score, ``(blocks·p, blocks·p)``.
        misfits: covariances of what a wrong mean and a wrong spread add, ``(2, blocks·p, blocks·p)``.
        sides: ``φ``, in the directions that matter, ``(rows, directions)``.
    """

    told: Listed | Tilt
    slopes: jax.Array
    directions: jax.Array
    score: jax.Array
    fixed: jax.Array
    misfits: jax.Array
    sides: jax.Array


def log_density(reading: RowModel, terms: Terms, parameters: jax.Array) -> jax.Array:
    """``log p(releases, θ*, log δ)`` up to a constant; ``parameters`` are ``(θ*, log δ)``."""
    dim = terms.score.shape[1]
    theta, hyper = parameters[:dim], parameters[dim:]
    rows, known = _means(reading, terms, theta), _known(terms, hyper)
    value = _log_marginal(terms, rows, known)
    value = value - jnp.sum(((hyper - _HYPERPRIOR[:, 0]) / _HYPERPRIOR[:, 1]) ** 2) / 2
    value = value - jnp.sum((jnp.exp(hyper) / _LARGEST) ** 2) / 2 - reading.neg_log_prior(theta)
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


def _known(terms: Terms, hyper: jax.Array) -> jax.Array:
    """The covariance of what is observed, given the covariates' law."""
    return terms.fixed + jnp.tensordot(jnp.exp(2 * hyper), terms.misfits, 1)


def _log_marginal(terms: Terms, rows: jax.Array, known: jax.Array) -> jax.Array:
    """``log p(y | θ*, δ)`` but for a constant, over ``e``; ``rows`` are what people add to the mean."""
    # There the integrand has no slope in ``e``.
    at = _likeliest(terms, *jax.lax.stop_gradient((rows, known)))
    off, sides = _given_sides(terms, rows, at)
    nothing = jnp.zeros_like(off)
    sizes = _log_normal(nothing, known + sides.T @ sides) - _log_normal(nothing, known)
    return _log_normal(off, known) + sizes - jnp.sum(at**2) / 2


def _likeliest(terms: Terms, rows: jax.Array, known: jax.Array) -> jax.Array:
    """About the likeliest ``e``, by Gauss's and Newton's method."""
    at = jnp.zeros(terms.sides.shape[1])
    for _ in range(_STEPS):
        off, sides = _given_sides(terms, rows, at)
        inverse = _factored(known + sides.T @ sides)[1]
        at = sides @ (inverse.T @ (inverse @ (off + at @ sides)))
    return at


def _given_sides(terms: Terms, rows: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What was observed less its mean given ``e``, ``(blocks·p,)``, and that mean's slope in ``e``."""
    moved = terms.sides @ at
    less = jnp.exp(jnp.minimum(moved, 0.0))
    off = terms.score.ravel() - (jnp.maximum(moved, 0.0) + less) @ rows
    return off, (terms.sides * less[:, None]).T @ rows


def off_and_covariance(reading: RowModel, terms: Terms, parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What was observed less its mean, ``(blocks·p,)``, and its covariance, for small ``e``."""
    dim = terms.score.shape[1]
    rows = _means(reading, terms, parameters[:dim])
    off, sides = _given_sides(terms, rows, jnp.zeros(terms.sides.shape[1]))
    return off, _known(terms, parameters[dim:]) + sides.T @ sides


@partial(jax.jit, static_argnums=0)
def _means(reading: RowModel, terms: Terms, theta: jax.Array) -> jax.Array:
    """Expected gradients at ``θ*`` of the people of every row, ``(rows, blocks·p)``."""
    slopes = jnp.einsum("rq,rqi->ri", shares(reading, terms.told, theta), terms.slopes)
    count, k, _ = terms.directions.shape
    return jnp.einsum("rbk,rkp->rbp", slopes.reshape(count, -1, k), terms.directions).reshape(count, -1)


def _in_few(tensor: Array) -> tuple[Array, Array]:
    """``S`` and ``V`` with ``tensor[r, q, b] = S[r, q, b] V[r]``, of shapes ``(r, q, b, k)``, ``(r, k, p)``.

    ``k`` is the smallest that leaves out less than rounding does: one where a row's gradients are multiples
    of one vector.
    """
    rows, dim = len(tensor), tensor.shape[-1]
    flat = tensor.reshape(rows, -1, dim)
    basis = np.linalg.eigh(flat.transpose(0, 2, 1) @ flat)[1][:, :, ::-1]
    turned = flat @ basis
    sizes = np.linalg.norm(turned, axis=1)
    kept = max(int((sizes > _ROUNDING * sizes.max(axis=1, keepdims=True)).sum(axis=1).max()), 1)
    return turned[:, :, :kept].reshape(*tensor.shape[:-1], kept), basis[:, :, :kept].transpose(0, 2, 1)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """What the log density is made of.

    Attributes:
        reading: the model.
        rows: synthetic people.
        blocks: of all paths.
        gradients: of every row and outcome in every block, ``(rows·outcomes, blocks, p)``.
        root: ``A``.
        dispersion: how many times as much samples vary as the model says.
    """

    reading: RowModel
    rows: People
    blocks: tuple[Block, ...]
    gradients: Array
    root: Array
    dispersion: float = 1.0

    def at(self, theta: Array) -> Terms:
        """The terms, with the covariances of scores taken at ``θ* = theta``."""
        root, dim, count = self.root, self.reading.dim, len(self.blocks)
        tensor = (self.gradients @ root).reshape(len(self.gradients), count * dim)
        noise = block_diag(*(root.T @ block.noise @ root for block in self.blocks))
        likely = self.rows.shares(self.reading, theta)
        # Neither clipped nor weighted.
        full = np.nan_to_num(self.rows.scores(self.reading, theta)) @ root
        scores = self._conditional(tensor, likely)
        slopes, directions = _in_few(tensor.reshape(*likely.shape, count, dim))
        slopes = slopes * self.rows.weights[:, None, None, None]
        terms = Terms(
            told=self.rows.told,
            slopes=jnp.asarray(slopes.reshape(*likely.shape, -1)),
            directions=jnp.asarray(directions),
            score=jnp.asarray(np.stack([block.score @ root for block in self.blocks])),
            fixed=jnp.asarray(noise + self.dispersion * scores.T @ scores),
            misfits=jnp.asarray(self._misfits(likely, full)),
            sides=jnp.asarray(self.rows.deviations),
        )
        return terms._replace(sides=jnp.asarray(self._sides(terms, theta)))

    def _sides(self, terms: Terms, theta: Array) -> Array:
        """The directions of ``e`` that move blocks most, over their noise, at plausible parameters."""
        deviations, scale = np.asarray(terms.sides), np.sqrt(np.diag(np.asarray(terms.fixed)))
        places = [theta, *(block.centre for block in self.blocks)]
        moved = [np.asarray(_means(self.reading, terms, jnp.asarray(at))) / scale for at in places]
        turned = np.linalg.svd(deviations.T @ np.concatenate(moved, axis=1), full_matrices=False)[0]
        made = deviations @ turned[:, :_DIRECTIONS]
        return np.pad(made, ((0, 0), (0, _DIRECTIONS - made.shape[1])))

    def _conditional(self, values: Array, likely: Array) -> Array:
        """Values less their mean over a row's outcomes, times the root of the people that have each."""
        apart = values.reshape(*likely.shape, -1)
        centred = apart - np.einsum("rq,rqi->ri", likely, apart)[:, None, :]
        people = likely * self.rows.weights[:, None]
        return np.asarray((centred * np.sqrt(people)[..., None]).reshape(len(values), -1))

    def _misfits(self, likely: Array, full: Array) -> Array:
        """Covariances over functions of covariates that shift an outcome's mean, or its spread, by one sd.

        Shifts that move the full score belong to the parameter, whose meaning is where that score vanishes.
        """
        weights, functions = self.rows.weights, self.rows.functions
        centred = functions - weights @ functions / weights.sum()
        scale = math.sqrt(max(float((weights @ centred**2).sum() / weights.sum()), 1e-300))
        # The constant too: all outcomes may vary more than the model says.
        kept = np.concatenate([np.ones((len(functions), 1)), centred / scale], axis=1)
        root, made = self.root, []
        for residual in self.rows.residuals(likely):
            moved = (likely * residual * weights[:, None]).ravel()

            def shifts(values: Array, moved: Array = moved) -> Array:
                apart = (values * moved[:, None]).reshape(*likely.shape, -1).sum(axis=1)
                return np.asarray(apart.T @ kept)

            of_blocks, of_all = shifts((self.gradients @ root).reshape(len(full), -1)), shifts(full)
            of_blocks = of_blocks - of_blocks @ np.linalg.pinv(of_all, rcond=1e-8) @ of_all
            made.append(of_blocks @ of_blocks.T)
        return np.stack(made)


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
