"""From what was released to draws of the posterior given it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import NUTS

from private_mcmc.errors import NotYetSupported
from private_mcmc.inference.posterior.expected_score import ExpectedScore, expected_score, mixes_latents
from private_mcmc.inference.posterior.linear import (
    Likelihoods,
    Said,
    Steps,
    in_rows,
    likelihoods,
    log_density,
)
from private_mcmc.model import RowModel
from private_mcmc.planning import CompletedStage, Conclusion, History, PathStage
from private_mcmc.planning.estimates import prior_curvature, prior_slopes, score_average, settled_average
from private_mcmc.records import ON_FEW_ROWS, blas_of_one_thread

Array: TypeAlias = npt.NDArray[np.float64]

# A prior whose coordinates are wider than this is not explored further.
_WIDEST = 1e3
_MOST_PARAMETERS = 60
_DEEPEST = 8
_BY_PATH = (
    "The budget bought no matrix of covariates: intervals allow for every curvature that the path allows, "
    "and are wider for it. A larger ε, narrower declared ranges or fewer columns would buy one."
)
# A chain whose R-hat with others is above this is stuck.
_APART = 1.5


@dataclass(frozen=True)
class Chains:
    """How many chains, of how many steps each."""

    chains: int = 4
    warm_up: int = 500
    draws: int = 1000


CHAINS = Chains()


class GivenReleases(NamedTuple):
    """What releases say of the unconstrained parameter.

    Attributes:
        draws: ``(chains, draws, p)``.
        sds: those that the posterior without privacy has, as far as the releases tell, ``(p,)``.
        remarks: what intervals rest on, in words.
        told: the error of the draws' mean, where the policy's own estimate says it.
    """

    draws: Array
    sds: Array
    remarks: tuple[str, ...] = ()
    told: float | None = None

    @property
    def error(self) -> float:
        """How far the mean is expected from that of the posterior without privacy, in the latter's sds.

        The parameter is as far from our mean as draws say; it is an sd without privacy from the other mean,
        whatever that is. The rest is between the means.
        """
        if self.told is not None:
            return self.told
        variances = self.draws.reshape(-1, len(self.sds)).var(axis=0)
        return float(np.sqrt(max(np.mean(variances / self.sds**2) - 1, 0.0)))


def posterior_of(
    reading: RowModel,
    runs: Sequence[tuple[History, Conclusion]],
    key: jax.Array | None = None,
    asked: Chains = CHAINS,
) -> GivenReleases:
    """Draws of the unconstrained parameter given all that runs on one data set released.

    A function of what was released and of public facts alone: post-processing, free. Of one run they are
    around the mode that its policy found, where it did: Normal and independent.

    Args:
        reading: the model.
        runs: what the stages of each released, and what its policy concludes.
        key: of the sampler; a public one if left out.
        asked: chains and their lengths.

    Raises:
        NotYetSupported: where releases have no likelihood that this knows.
    """
    key, conclusion = jax.random.key(0) if key is None else key, runs[0][1]
    if len(runs) == 1 and conclusion.located:
        return _around_mode(conclusion, key, asked)
    if reading.dim > _MOST_PARAMETERS:
        raise NotYetSupported(
            f"{reading.dim} parameters: the posterior given releases takes {_MOST_PARAMETERS}."
        )
    if reading.own is not None:
        raise NotYetSupported("persons with latents of their own have no likelihood of their releases yet.")
    with blas_of_one_thread(), jax.enable_x64(True):
        try:
            found = _given(reading, runs, key, asked)
        except NotYetSupported:
            raise
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            # What was released is kept whatever can be made of it; only released numbers are in the error.
            raise NotYetSupported(
                f"the likelihood of what was released has no usable maximum ({type(error).__name__})"
            ) from error
    if not (np.all(np.isfinite(found.draws)) and np.all(split_gelman_rubin(found.draws) < _APART)):
        raise NotYetSupported("chains of the posterior given the releases do not move.")
    return found


def _around_mode(conclusion: Conclusion, key: jax.Array, asked: Chains) -> GivenReleases:
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    covariance, mean = np.atleast_2d(np.cov(conclusion.draws.T)), conclusion.draws.mean(axis=0)
    normal = random.standard_normal((asked.chains * asked.draws, len(mean)))
    draws = mean + (normal - normal.mean(axis=0)) @ np.linalg.cholesky(covariance).T
    error = conclusion.prediction.rms
    sds = np.sqrt(np.diag(covariance)) / math.hypot(1.0, error)
    return GivenReleases(draws.reshape(asked.chains, asked.draws, -1), sds, told=error)


def _given(
    reading: RowModel, runs: Sequence[tuple[History, Conclusion]], key: jax.Array, asked: Chains
) -> GivenReleases:
    paths = [_last_path(history) for history, _ in runs]
    scores = [np.asarray(prior_slopes(reading, path.states)) for path in paths]
    steps = [Steps.of(path.path, path.states, prior[:-1]) for path, prior in zip(paths, scores, strict=True)]
    at = paths[-1].states[len(paths[-1].states) // 2 :].mean(axis=0)
    read, curvatures, said = in_rows(reading, at), runs[-1][1].curvatures, []
    remarks, weights = (_BY_PATH,) if curvatures is None else (), None
    if curvatures is None:
        curvatures = steps[-1].curvatures(read)
        for path, prior in zip(paths, scores, strict=True):
            average = score_average(path.states, path.path.schedule, 1.0, prior)
            said.append(Said(average, np.ones(len(curvatures)), 0.0))
    else:
        for path, prior, each, (_, told) in zip(paths, scores, steps, runs, strict=True):
            shares = each.shares(curvatures.mean(axis=0))
            met = shares[:, None, None] * curvatures
            weights = each.log_weights(met)
            average = settled_average(path.states, path.path.schedule, 1.0, prior, met.mean(axis=0))
            one = Said(average, shares, told.prediction.bias)
            said.append(one if told.lost is None else Said.whole(average, told.lost, len(shares)))
    given, prior_root = likelihoods(said, curvatures, read, weights), _prior_root(reading, at)
    precision = np.asarray(np.linalg.inv(prior_root @ prior_root.T), dtype=np.float64)
    expected = expected_score(reading, said[-1].average.centre) if mixes_latents(reading) else None
    slope = np.asarray(jax.grad(reading.neg_log_prior)(jnp.asarray(at)))
    mean, root = _about(given, precision, at - prior_root @ (prior_root.T @ slope))
    made = _chains(reading, asked, given, expected, mean, root, jax.random.split(key, asked.chains))
    exact = np.linalg.inv(curvatures * np.outer(read, read) + precision)
    sds = np.exp(np.log(np.diagonal(exact, axis1=1, axis2=2)).mean(axis=0) / 2)
    return GivenReleases(np.asarray(made), sds, remarks)


def _last_path(history: History) -> CompletedStage:
    """Earlier ones clip and weight rows in other ways, and narrow intervals by less than that may move them.

    Raises:
        NotYetSupported: where there is none, or it is not finite.
    """
    for one in reversed(history):
        if isinstance(one.stage, PathStage) and np.all(np.isfinite(one.states)):
            return one
    raise NotYetSupported("no path was released that says anything of the parameter.")


def _prior_root(reading: RowModel, at: Array) -> Array:
    """A root of about the prior's covariance, from its curvature."""
    hessian = np.asarray(prior_curvature(reading, at))
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    return np.asarray(vectors / np.sqrt(np.maximum(values, _WIDEST**-2)))


def _about(given: Likelihoods, precision: Array, prior_mean: Array) -> tuple[Array, Array]:
    """Mean, and a root of the covariance, were the prior Normal; of a middling draw of the curvature."""
    said, hessian, whitening = (np.asarray(each) for each in given[:3])
    seen = whitening @ hessian
    covariances = np.linalg.inv(precision + np.swapaxes(seen, 1, 2) @ seen)
    off = np.einsum("kij,kj->ki", whitening, said + hessian @ prior_mean)
    means = prior_mean - np.einsum("kij,klj,kl->ki", covariances, seen, off)
    middle = np.argsort(np.linalg.slogdet(covariances)[1])[len(means) // 2]
    return means[middle], np.linalg.cholesky(covariances[middle])


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
        value = -log_density(reading, given, expected, at + root @ z)
        return jnp.where(jnp.isfinite(value), value, jnp.inf)

    kernel = NUTS(potential_fn=potential, dense_mass=True, max_tree_depth=_DEEPEST, target_accept_prob=0.9)

    def chain(key: jax.Array) -> jax.Array:
        first, second = jax.random.split(key)
        state = kernel.init(second, asked.warm_up, jax.random.normal(first, at.shape), (), {})

        def step(state: Any, _: None) -> tuple[Any, jax.Array]:
            state = kernel.sample(state, (), {})
            return state, at + root @ state.z

        return jax.lax.scan(step, state, None, length=asked.warm_up + asked.draws)[1][asked.warm_up :]

    return jnp.asarray(jax.lax.map(chain, keys))
