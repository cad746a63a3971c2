"""The posterior given what the stages of a plan released.

Near a path the rows' mean gradient is ``G(θ') = s·(H(θ' − θ) + z)``, with ``z ~ N(0, H)`` the sample's
deviation at the parameter ``θ``, and ``s`` the share of the curvature that bounding rows' influence leaves; a
path is a noisy mean of it. ``H`` is unknown: draws are those that the noise of a released matrix allows, or
that the path alone allows where none was bought. The posterior of ``θ`` is the mean of those given each
released draw: how near to the prior one has ``θ`` is no evidence of it, nor is what a short path prefers.
With such weights 8 % of sds were below 0.95 of the non-private ones at ε = 1, now 2.5 % (27 tables).
Of parameters that no row reads, as the sd of effects that are drawn with it, rows have no curvature: what
steps say along them is noise alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.scipy.special import logsumexp
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import NUTS
from scipy.optimize import brentq
from scipy.stats import chi2

from private_mcmc.errors import NotYetSupported
from private_mcmc.inference.expected_score import ExpectedScore, expected_score, jacobian, mixes_latents
from private_mcmc.model import RowModel
from private_mcmc.model.program import Output
from private_mcmc.planning import CompletedStage, Conclusion, History, PathStage
from private_mcmc.planning.estimates import (
    Flags,
    Steps,
    floored,
    in_blocks,
    metric_of,
    prior_curvature,
    prior_slopes,
    row_slopes,
    seen_alone,
)
from private_mcmc.planning.outcomes import likelihood_of
from private_mcmc.potential.rowwise import of_rows
from private_mcmc.system import ON_FEW_ROWS, blas_of_one_thread

Array: TypeAlias = npt.NDArray[np.float64]

# A prior whose coordinates are wider than this is not explored further.
_WIDEST = 1e3
_MOST_PARAMETERS = 60
_DEEPEST = 8
_BY_PATH = (
    "The budget bought no matrix of covariates: intervals allow for every curvature that the path allows, "
    "and are wider for it. A larger ε, narrower declared ranges or fewer columns would buy one."
)
_BY_A_ROW = (
    "One row at the ends of the declared ranges would move coefficients by more than an sd, and no release "
    "excludes that there is one: intervals are wider for it. Ranges that are narrower, if true, help."
)
# A chain whose R-hat with others is above this is stuck.
_APART = 1.5
# Draws so many sds from where a linear score has them are where it is known no more, if outcomes diverge so
# many times as much as it says: of a network 4 to 9 times, along the ridge of a scale and effects 0.3 times.
# Of so many draws, which are enough for a median.
_FAR, _UNLIKE, _COMPARED = 3.0, 2.0, 256
# A way that noise goes less likely than this is none of noise's: of paths that held it was 1e-3 and more, in
# 50 runs of mixtures, groups and processes, of 9 that missed by 3 to 20 sds 1e-6 and less.
_STRAYED = 1e-5
# Rows that fill the declared domain, how likely such a row is, the longest slope that has a square, and how
# near curvature is seen, in posterior sds. Two paths are apart where chance would have less than this.
_DECLARED, _THERE, _LARGEST, _NEAR, _SURELY = 512, 0.5, 1e100, 1e-3, 0.999


@dataclass(frozen=True)
class Chains:
    """How many chains, of how many steps each."""

    chains: int = 4
    warm_up: int = 500
    draws: int = 1000


class Astray(NotYetSupported):
    """The path is where releases do not tell of the parameter, however near its states are to each other."""


class GivenReleases(NamedTuple):
    """What releases say of the unconstrained parameter.

    Attributes:
        draws: ``(chains, draws, p)``.
        sds: those that the posterior without privacy has, as far as the releases tell, ``(p,)``.
        remarks: what intervals rest on, in words.
    """

    draws: Array
    sds: Array
    remarks: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """How far the mean is expected from that of the posterior without privacy, in the latter's sds.

        The parameter is as far from our mean as draws say; it is an sd without privacy from the other mean,
        whatever that is. The rest is between the means.
        """
        variances = self.draws.reshape(-1, len(self.sds)).var(axis=0)
        return float(np.sqrt(max(np.mean(variances / self.sds**2) - 1, 0.0)))


def posterior_of(
    reading: RowModel,
    history: History,
    conclusion: Conclusion,
    key: jax.Array | None = None,
    asked: Chains = Chains(),
) -> GivenReleases:
    """Draws of the unconstrained parameter given all that the stages of a plan released.

    A function of what was released and of public facts alone: post-processing, free.

    Args:
        reading: the model.
        history: what the stages released.
        conclusion: what the policy concludes of it.
        key: of the sampler; a public one if left out.
        asked: chains and their lengths.

    Raises:
        NotYetSupported: where releases have no likelihood that this knows.
        Astray: where the one that they have tells nothing.
    """
    key = jax.random.key(0) if key is None else key
    if reading.dim > _MOST_PARAMETERS:
        raise NotYetSupported(
            f"{reading.dim} parameters: the posterior given releases takes {_MOST_PARAMETERS}."
        )
    if reading.own is not None:
        raise NotYetSupported("persons with latents of their own have no likelihood of their releases yet.")
    with blas_of_one_thread(), jax.enable_x64(True):
        try:
            found = _given(reading, history, conclusion, key, asked)
        except NotYetSupported:
            raise
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            # What was released is kept whatever can be made of it; only released numbers are in the error.
            raise Astray(
                f"the likelihood of what was released has no usable maximum ({type(error).__name__})"
            ) from error
    if not (np.all(np.isfinite(found.draws)) and np.all(split_gelman_rubin(found.draws) < _APART)):
        raise Astray("chains of the posterior given the releases do not move.")
    return found


def _given(
    reading: RowModel, history: History, conclusion: Conclusion, key: jax.Array, asked: Chains
) -> GivenReleases:
    paths = [one for one in history if isinstance(one.stage, PathStage) and np.all(np.isfinite(one.states))]
    if not paths:
        raise NotYetSupported("no path was released that says anything of the parameter.")
    # Earlier ones clip and weight rows in other ways, and narrow intervals by less than that may move them.
    *earlier, path = paths
    steps, at = _steps(reading, path), path.states[len(path.states) // 2 :].mean(axis=0)
    read, released = in_rows(reading), conclusion.curvatures
    if released is None:
        curvatures, bias = steps.curvatures(read), 0.0
        shares = np.ones(len(curvatures))
    else:
        curvatures, bias = released, conclusion.prediction.bias
        shares = steps.shares(released.mean(axis=0))
        steps = steps.settled(np.mean(shares[:, None, None] * curvatures, axis=0))
    mixed = mixes_latents(reading)
    expected = expected_score(reading, steps.centre) if mixed else None
    cut = cut_of_a_row(reading, path.path, at, curvatures.mean(axis=0), read)
    if released is not None and expected is None and earlier and np.all(read) and np.any(cut):
        early = _steps(reading, earlier[-1])
        early = early.between(len(early.states) // 2, len(early.states))
        bias = math.hypot(bias, _between(early, steps, float(np.mean(shares)), curvatures))
    found, bends = likelihoods(steps, shares, bias, curvatures, read, cut), prior_curvature(reading, at)
    precision = floored(np.asarray(bends, dtype=np.float64), _WIDEST**-2)
    known = curvatures.mean(axis=0) * np.outer(read, read) + precision
    if mixed and earlier and released is not None and _strayed(earlier[-1], path, at, known):
        raise Astray("the path went far from where the one before it had led")
    slope = in_blocks(partial(prior_slopes, reading), at[None])[0]
    mean, root, evidence = _about(found, precision, at - np.linalg.solve(precision, slope))
    if released is not None:
        found = found._replace(log_sizes=jnp.asarray(evidence))
    keys = jax.random.split(key, asked.chains)
    made = np.asarray(_chains(reading, asked, found, expected, mean, root, keys))
    away = np.linalg.solve(root, (made.reshape(-1, len(mean)) - mean).T)
    far = float(np.median(np.mean(away**2, axis=0))) > _FAR**2
    # Of a path alone curvatures are so unlike each other that draws may be.
    if far and expected is not None and released is not None and _unlike(reading, expected, made, mean, root):
        raise Astray(
            "the posterior given the releases is far from the path, where they say nothing of the model."
        )
    exact = np.linalg.inv(curvatures * np.outer(read, read) + precision)
    sds = np.exp(np.log(np.diagonal(exact, axis1=1, axis2=2)).mean(axis=0) / 2)
    moved = np.trace(np.linalg.solve(curvatures.mean(axis=0)[np.ix_(read, read)], cut))
    remarks = (_BY_PATH,) * (released is None) + (_BY_A_ROW,) * bool(moved > len(cut))
    return GivenReleases(made, sds, remarks)


def _strayed(early: CompletedStage, path: CompletedStage, at: Array, information: Array) -> bool:
    """Whether a path went further from its start than the noise of the one that led there explains.

    The mean of half of time ``T`` at weight ``w`` is ``2/√(wT)`` posterior sds off. Where a component of a
    mixture takes another's place, a path leaves what was counted and centred for it.
    """
    schedule, way = early.path.schedule, at - path.path.start
    variance = 4 / (schedule.temper * schedule.total_time) + 1
    return bool(way @ information @ way > chi2.isf(_STRAYED, len(way)) * variance)


def _unlike(reading: RowModel, expected: ExpectedScore, made: Array, mean: Array, root: Array) -> bool:
    """Whether outcomes at draws are unlike those at the path, more than a score that is linear tells."""
    some = made.reshape(-1, len(mean))[:: max(made.size // (_COMPARED * len(mean)), 1)]
    found, information = (np.asarray(each) for each in _divergences(reading, expected, some))
    off = np.column_stack([root, mean - expected.at])
    return bool(np.median(found) > _UNLIKE * np.sum(off * (information @ off)))


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _divergences(reading: RowModel, expected: ExpectedScore, draws: Array) -> tuple[jax.Array, jax.Array]:
    """That of each draw, and Fisher's information where the score was expected."""
    one = partial(expected.divergence, reading)
    return jax.lax.map(one, jnp.asarray(draws)), jacobian(jax.grad(one), expected.at) / 2


def cut_of_a_row(reading: RowModel, run: PathStage, at: Array, curvature: Array, read: Flags) -> Array:
    """``E rrᵀ`` of what the clip takes from the score ``r`` of one row of the declared domain, ``(k, k)``.

    No release tells whether there is such a row, which is what privacy is: it is there as likely as not.
    Unclipped it moves the mode by ``(H + [∇²v]₊)^{-1}r``, ``H`` being the ``curvature`` of all rows, as a
    score ``H(H + [∇²v]₊)^{-1}r`` without curvature does. Of weighted rows, which move no mode, it is 0.
    """
    known, rows = curvature[np.ix_(read, read)], reading.rows.synthetic(13, _DECLARED)
    if likelihood_of(reading, 1.0).few:
        return np.zeros_like(known)
    given = rows if run.derived is None else {**rows, **of_rows(run.derived, rows)}
    width = _NEAR / np.sqrt(np.diag(curvature).clip(_WIDEST**-2))
    places = np.vstack([at, at + np.diag(width)])
    slopes = np.asarray(row_slopes(run.reading or reading, places, given))
    slopes = np.where(np.all(np.abs(slopes) < _LARGEST, axis=(0, 2), keepdims=True), slopes, 0.0)
    bends = ((slopes[1:] - slopes[0]) / width[:, None, None])[read][..., read].swapaxes(0, 1)
    bends = floored((bends + bends.swapaxes(1, 2)) / 2, 0.0)
    lengths = np.sqrt(np.einsum("ki,ij,kj->k", slopes[0], metric_of(run.schedule), slopes[0]))
    taken = np.maximum(1 - (run.schedule.clip or math.inf) / np.maximum(lengths, 1e-300), 0.0)
    cut = (known @ np.linalg.solve(known + bends, taken[:, None, None] * slopes[0][:, read, None]))[..., 0]
    return np.asarray(_THERE * cut.T @ cut / len(cut))


def _between(early: Steps, run: Steps, share: float, curvatures: Array) -> float:
    """How far the modes of two paths, whose clips differ, are apart beyond noise, in posterior sds.

    Their scores differ by ``e`` with noise ``N``, that of the curvature between them included; ``τ`` has
    ``eᵀ(N + τ²H)^{-1}e = k`` (Paule, Mandel 1982), and is 0 where noise alone explains ``e``.
    """
    curvature, way = curvatures.mean(axis=0), curvatures @ (early.centre - run.centre)
    kept = float(np.mean(early.shares(curvature)))
    off = early.score / kept - run.score / share - way.mean(axis=0)
    noise = np.linalg.inv(early.precision) / kept**2 + np.linalg.inv(run.precision) / share**2
    whitening = np.linalg.inv(np.linalg.cholesky(noise + np.cov(way, rowvar=False)))
    sizes, axes = np.linalg.eigh(whitening @ curvature @ whitening.T)
    squares = np.square(axes.T @ whitening @ off)

    def excess(variance: float) -> float:
        return float(np.sum(squares / (1 + variance * np.maximum(sizes, 0.0)))) - len(off)

    surely = squares.sum() > chi2.ppf(_SURELY, len(off)) and excess(_WIDEST**2) < 0
    return math.sqrt(brentq(excess, 0.0, _WIDEST**2)) if surely else 0.0


def _steps(reading: RowModel, path: CompletedStage) -> Steps:
    prior = in_blocks(partial(prior_slopes, reading), path.states)
    return Steps.of(path.path.schedule, path.states, prior)


def _about(given: Likelihoods, precision: Array, prior_mean: Array) -> tuple[Array, Array, Array]:
    """Mean, and a root of the covariance, were the prior Normal; of a middling draw of the curvature.

    With them for each draw the logarithm of its evidence times the root's determinant, up to a constant.
    """
    said, hessian, whitening = (np.asarray(each) for each in given[:3])
    seen = whitening @ hessian
    covariances = np.linalg.inv(precision + np.swapaxes(seen, 1, 2) @ seen)
    off = np.einsum("kij,kj->ki", whitening, said + hessian @ prior_mean)
    means = prior_mean - np.einsum("kij,klj,kl->ki", covariances, seen, off)
    moved, sizes = means - prior_mean, np.linalg.slogdet(covariances)[1]
    left = np.sum((off + np.einsum("kij,kj->ki", seen, moved)) ** 2, axis=1)
    evidence = (sizes - left - np.einsum("ki,ij,kj->k", moved, precision, moved)) / 2
    middle = np.argsort(sizes)[len(means) // 2]
    return means[middle], np.linalg.cholesky(covariances[middle]), evidence


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ON_FEW_ROWS)
def _chains(
    reading: RowModel,
    asked: Chains,
    given: Likelihoods,
    expected: ExpectedScore | None,
    at: jax.Array,
    root: jax.Array,
    keys: jax.Array,
) -> jax.Array:
    """States of NUTS after its warm-up, ``(chains, draws, p)``, in the coordinates ``at + root z``."""

    def potential(z: jax.Array) -> jax.Array:
        return -log_density(reading, given, expected, at + root @ z)

    kernel = NUTS(potential_fn=potential, dense_mass=True, max_tree_depth=_DEEPEST, target_accept_prob=0.9)

    def chain(key: jax.Array) -> jax.Array:
        first, second = jax.random.split(key)
        state = kernel.init(second, asked.warm_up, jax.random.normal(first, at.shape), (), {})

        def step(state: Any, _: None) -> tuple[Any, jax.Array]:
            state = kernel.sample(state, (), {})
            return state, at + root @ state.z

        return jax.lax.scan(step, state, None, length=asked.warm_up + asked.draws)[1][asked.warm_up :]

    return jnp.asarray(jax.lax.map(chain, keys))


class Likelihoods(NamedTuple):
    """For every draw of ``H`` the law ``N(−Hθ, (1 + b²)H + N)`` of what a run says of the parameter.

    Attributes:
        said: ``y/s − Hθ_b`` of its mean score ``y`` around ``θ_b``, of ``k`` parameters: ``(draws, k)``.
        hessian: the rows of ``H`` that are read, ``(draws, k, p)``.
        whitening: the inverse of a root of the covariance, ``(draws, k, k)``.
        log_sizes: the logarithm of the root's determinant, or of the draw's evidence, ``(draws,)``.
    """

    said: jax.Array
    hessian: jax.Array
    whitening: jax.Array
    log_sizes: jax.Array


def log_density(
    reading: RowModel, given: Likelihoods, expected: ExpectedScore | None, theta: jax.Array
) -> jax.Array:
    """``log p(releases, θ)`` up to a constant."""
    off = given.said + given.hessian @ (theta if expected is None else expected.linear(reading, theta))
    white = jnp.einsum("kij,kj->ki", given.whitening, off)
    value = logsumexp(-jnp.sum(white**2, axis=1) / 2 - given.log_sizes) - reading.neg_log_prior(theta)
    return jnp.where(jnp.isfinite(value), value, -jnp.inf)


def likelihoods(
    run: Steps, shares: Array, bias: float, curvatures: Array, read: Flags, cut: Array | float = 0.0
) -> Likelihoods:
    """The likelihood of ``θ`` given the run's mean score.

    ``shares`` and ``curvatures`` are draws of ``s``, ``(draws,)``, and of ``H``, ``(draws, p, p)``; ``bias``
    is ``b``, the clip's error in posterior sds, and ``cut`` what more it may have taken, ``(k, k)``.
    """
    hessian = curvatures[:, read]
    seen = seen_alone(run.score, run.precision, read) / shares[:, None]
    noise = (np.linalg.inv(run.precision[np.ix_(read, read)]) + cut) / shares[:, None, None] ** 2
    factor = np.linalg.cholesky((1 + bias**2) * hessian[:, :, read] + noise)
    sizes = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
    parts = seen - hessian @ run.centre, hessian, np.linalg.inv(factor), sizes
    return Likelihoods(*(jnp.asarray(part) for part in parts))


def in_rows(reading: RowModel) -> Flags:
    """Which parameters rows read, ``(p,)``: all of a site that a row's loss is made of."""
    program, read = reading.program, np.zeros(reading.dim, dtype=bool)
    used = program.uses([program.outputs["loss"]])
    for site in reading.sites:
        read[site.slice] = program.outputs[Output("value", site.name)] in used
    return read
