"""From what was released to draws of the posterior given it, and whether these explain the releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from numpyro.diagnostics import split_gelman_rubin
from scipy.linalg import block_diag
from scipy.stats import chi2

from private_mcmc.errors import NotYetSupported
from private_mcmc.inference.posterior import quadratic
from private_mcmc.inference.posterior.covariates import Released, fitted
from private_mcmc.inference.posterior.independent import places
from private_mcmc.inference.posterior.likelihood import (
    HYPERPARAMETERS,
    Likelihood,
    Terms,
    log_density,
    off_and_covariance,
)
from private_mcmc.inference.posterior.observations import Block, Path, blocks, gradients, used_paths
from private_mcmc.inference.posterior.outcomes import outcome_of
from private_mcmc.inference.posterior.people import (
    People,
    bounded_outcome,
    dispersion,
    likelihood_to_draw,
    with_drawn,
    with_outcomes,
)
from private_mcmc.inference.posterior.sample import Chains, LogDensity, draws, mode, whitened
from private_mcmc.inference.posterior.tables import covariates_of
from private_mcmc.model import RowModel
from private_mcmc.model.linear_algebra import calls_lapack
from private_mcmc.planning import Conclusion, History, MomentsStage
from private_mcmc.planning.estimates import spectral_norm
from private_mcmc.planning.stages import prior_curvature, prior_slopes
from private_mcmc.records import blas_of_one_thread
from private_mcmc.release import SecondMoments
from private_mcmc.report import number

Array: TypeAlias = npt.NDArray[np.float64]

# A prior whose coordinates are wider than this is not explored further.
_WIDEST = 1e3
_MOST_PARAMETERS = 60
_ROUNDS, _ROUNDS_OF_DRAWS = 2, 3
_MOST_SCALES = 6
# So many pairs of parameters, so many sds out, are ones that outcomes are summed for.
_DIRECTIONS, _REACH = 8, 2.0
# What summing over outcomes may move the answer by, in posterior sds.
_OFF_CENTRE = 0.2
_BY_PATH = (
    "The budget bought no matrix of covariates: intervals allow for every curvature that the path allows, "
    "and are wider for it. A larger ε, narrower declared ranges or fewer columns would buy one."
)
_OF_GROUPS = (
    "An sd of groups is estimated, of which a path alone tells too little: in simulations 90 % intervals of "
    "such runs held three of four parameters. State the sd, or have more rows or a larger ε."
)
# A chain that has been at fewer places than this is stuck, or where its R-hat with others is above this.
_PLACES, _APART = 10, 1.5
CHAINS = Chains()


class GivenReleases(NamedTuple):
    """What releases say of the unconstrained parameter.

    Attributes:
        draws: ``(chains, draws, p)``.
        sds: those that the posterior without privacy has, as far as the releases tell, ``(p,)``.
        dispersion: how many times as much people vary as the model says.
        remarks: what the fit does not explain of the releases, in words.
        told: the error of the draws' mean, where the policy's own estimate says it.
    """

    draws: Array
    sds: Array
    dispersion: float = 1.0
    remarks: tuple[str, ...] = ()
    told: float | None = None

    @property
    def error(self) -> float:
        """How far the mean is expected from that of the posterior without privacy, in the latter's sds.

        The parameter is as far from our mean as draws say; it is an sd without privacy from the other mean,
        whatever that is, or more where people vary more than the model says. The rest is between the means.
        """
        if self.told is not None:
            return self.told
        variances = self.draws.reshape(-1, len(self.sds)).var(axis=0)
        return float(np.sqrt(max(np.mean(variances / self.sds**2) - self.dispersion, 0.0)))


def posterior_given(
    reading: RowModel,
    histories: Sequence[History],
    n: int,
    key: jax.Array | None = None,
    asked: Chains = CHAINS,
) -> GivenReleases:
    """Draws of the unconstrained parameter given all releases.

    A function of what was released and of public facts alone: post-processing, free.

    Args:
        reading: the model.
        histories: the stages of runs on one data set, with what they released.
        n: the number of rows, or its public bound.
        key: of the sampler; a public one if left out.
        asked: chains and their lengths.

    Raises:
        NotYetSupported: for models whose releases this has no likelihood of.
    """
    if reading.dim > _MOST_PARAMETERS:
        raise NotYetSupported(
            f"{reading.dim} parameters: the posterior given releases takes {_MOST_PARAMETERS}."
        )
    with blas_of_one_thread(), jax.enable_x64(True):
        try:
            found = _draws(reading, histories, n, _public(key), asked)
        except NotYetSupported:
            raise
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            # What was released is kept whatever can be made of it; only released numbers are in the error.
            raise NotYetSupported(
                f"the likelihood of what was released has no usable maximum ({type(error).__name__})"
            ) from error
    if not np.all(np.isfinite(found.draws)):
        raise NotYetSupported("the likelihood of what was released has no usable maximum.")
    if not moving(found.draws):
        raise NotYetSupported("chains of the posterior given the releases do not move.")
    return found


def posterior_of(
    conclusion: Conclusion | None,
    reading: RowModel,
    histories: Sequence[History],
    n: int,
    key: jax.Array | None = None,
    asked: Chains = CHAINS,
) -> GivenReleases:
    """Draws around the mode that one run's mean score and curvatures imply, where its policy found one.

    That estimate rests on no law of the covariates. It is Normal, so that its draws are independent.
    Elsewhere, and of several runs, :func:`posterior_given`.
    """
    if conclusion is None or not conclusion.located:
        return posterior_given(reading, histories, n, key, asked)
    draws, random = conclusion.draws, np.random.default_rng(np.asarray(jax.random.key_data(_public(key))))
    covariance = np.atleast_2d(np.cov(draws.T))
    normal = random.standard_normal((asked.chains * asked.draws, reading.dim))
    found = draws.mean(axis=0) + (normal - normal.mean(axis=0)) @ np.linalg.cholesky(covariance).T
    error = conclusion.prediction.rms
    sds = np.sqrt(np.diag(covariance)) / math.hypot(1.0, error)
    return GivenReleases(found.reshape(asked.chains, asked.draws, -1), sds, told=error)


def _public(key: jax.Array | None) -> jax.Array:
    return jax.random.key(0) if key is None else key


def moving(draws: Array) -> bool:
    """Whether every chain, ``(chains, draws, p)``, has been at enough places, and at those of others."""
    return places(draws) >= _PLACES and bool(np.all(split_gelman_rubin(draws) < _APART))


def _draws(
    reading: RowModel, histories: Sequence[History], n: int, key: jax.Array, asked: Chains
) -> GivenReleases:
    done = [completed for history in histories for completed in history]
    released = [
        Released(one.stage, one.value)
        for one in done
        if isinstance(one.stage, MomentsStage) and isinstance(one.value, SecondMoments)
    ]
    walks = [path for history in histories for path in used_paths(history)]
    if not walks:
        raise NotYetSupported("no path was released that says anything of the parameter.")
    priors = [np.asarray(prior_slopes(reading, path.from_start[:-1])) for path in walks]
    made = [blocks(path, prior) for path, prior in zip(walks, priors, strict=True)]
    every = tuple(block for part in made for block in part)
    last = walks[-1]
    at = last.states[len(last.states) // 2 :].mean(axis=0)
    if not released and covariates_of(reading):
        return _by_path(reading, last, priors[-1], every, at, key, asked)
    root, likelihood_of_draws = last.root, likelihood_to_draw(reading)
    if likelihood_of_draws is None:
        bounded_outcome(reading)  # before minutes are spent on covariates
    if calls_lapack(reading):
        raise NotYetSupported(
            "the density of a row solves linear systems: programs of many such rows wait for themselves."
        )
    covariates = fitted(reading, released, n, at, last.stage.schedule.adjacency)
    prior_root = _prior_root(reading, at)
    density = _density(log_density, reading)
    # Normal draws, far out: what the law of outcomes has to be summed for.
    around = _REACH * np.random.default_rng(0).standard_normal((_DIRECTIONS, reading.dim + 2))
    around = np.concatenate([np.zeros_like(around[:1]), around, -around])
    scale = block_diag(root, np.eye(2))
    for _ in range(_ROUNDS if likelihood_of_draws is None else _ROUNDS_OF_DRAWS):
        if likelihood_of_draws is None:
            persons = with_outcomes(reading, covariates, at + around @ scale[: len(at)].T)
        else:
            persons = with_drawn(reading, likelihood_of_draws, covariates, at)
        tensor = [
            gradients(path, reading, persons.columns, part) for path, part in zip(walks, made, strict=True)
        ]
        scatter = dispersion(reading, histories, persons, at, n)
        likelihood = Likelihood(reading, persons, every, np.concatenate(tensor, axis=1), root, scatter)
        terms = likelihood.at(at)
        start = np.concatenate([at, HYPERPARAMETERS])
        near, wide = np.eye(len(start)) * 0.3, np.eye(len(start))
        near[: len(at), : len(at)] = root
        wide[: len(at), : len(at)] = prior_root
        best = mode(density, terms, start, near)
        at, scale = best[: reading.dim], whitened(density, terms, best, wide)
    if not persons.off_centre(reading, at) <= _OFF_CENTRE:
        raise NotYetSupported("the law of the outcome cannot be summed finely enough.")
    names = [one.stage.name for one in released]
    said = unexplained(reading, names, covariates.off, terms, best)
    alike = flat_directions(released[-1].value) if released else ()
    remarks = (*said, *alike, *beyond_range(reading, persons, at))
    scales = (*scales_of(reading), *range(reading.dim, len(best)))
    found = draws(density, terms, best, scale, key, asked, scales=scales)
    precision = np.linalg.inv(prior_root @ prior_root.T) + persons.information(reading, at)
    sds = np.sqrt(np.diag(np.linalg.inv(precision)))
    return GivenReleases(found[..., : reading.dim], sds, likelihood.dispersion, remarks)


def scales_of(reading: RowModel) -> tuple[int, ...]:
    """Coordinates of scalar sites that are not on the line, as the sd of a group's effects; none of many."""
    found = [
        site.slice.start
        for site in reading.sites
        if site.support != "real" and math.prod(site.unconstrained_shape) == 1
    ]
    return tuple(found) if len(found) <= _MOST_SCALES else ()


def _by_path(
    reading: RowModel,
    last: Path,
    prior_scores: Array,
    every: Sequence[Block],
    at: Array,
    key: jax.Array,
    asked: Chains,
) -> GivenReleases:
    """Where nothing tells of the covariates, whatever the model observes."""
    density = _density(quadratic.log_density, reading)
    read = quadratic.in_rows(reading, at)
    given = quadratic.likelihoods(last, prior_scores, every, read)
    prior_root, slope = _prior_root(reading, at), np.asarray(jax.grad(reading.neg_log_prior)(jnp.asarray(at)))
    likely = quadratic.proposal(given, prior_root, at - prior_root @ (prior_root.T @ slope))
    found = draws(density, given, at, last.root, key, asked, likely, scales_of(reading))
    sds = quadratic.sds(given, prior_root, read)
    of_groups = any(quadratic.scales_effects(reading, at, scale) for scale in scales_of(reading))
    return GivenReleases(found, sds, remarks=(_BY_PATH, _OF_GROUPS) if of_groups else (_BY_PATH,))


@lru_cache(maxsize=8)
def _density(of: Callable[[RowModel, Any, jax.Array], jax.Array], reading: RowModel) -> LogDensity:
    """One function for a reading, so that what is compiled for it is kept."""
    return partial(of, reading)


def _prior_root(reading: RowModel, at: Array) -> Array:
    """A root of about the prior's covariance, from its curvature."""
    hessian = np.asarray(prior_curvature(reading, at))
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    return np.asarray(vectors / np.sqrt(np.maximum(values, _WIDEST**-2)))


# A fit that is right is said to explain too little in so many runs at most.
_ERROR_RATE = 1e-3
# So many outcomes beyond their declared range, by the fit, are worth a word.
_BEYOND = 0.01
# With fewer columns collinear ones are seen in spite of noise.
_FEWEST_COLUMNS = 8


def unexplained(
    reading: RowModel, names: Sequence[str], matrices: Sequence[Array], terms: Terms, at: Array
) -> tuple[str, ...]:
    """A sentence where a release is further from its fitted mean than noise and sampling allow.

    The squares of all entries, in their sds, are about χ² where the fit is right, or smaller, since it
    follows its releases: beyond the quantile of ``1e-3`` over their number is one fit in 1,000 at most.

    Args:
        names: of the stages that released matrices.
        matrices: less their fitted means, in sds of noise and of sampling, ``(entries,)`` each.
        terms: of the paths' likelihood.
        at: the parameter and the two numbers of the misfit.
    """
    off, covariance = (np.asarray(each) for each in off_and_covariance(reading, terms, jnp.asarray(at)))
    offs = [
        *zip(names, matrices, strict=True),
        ("paths", np.linalg.solve(np.linalg.cholesky(covariance), off)),
    ]
    worst: dict[str, float] = {}
    for name, found in offs:
        if chi2.sf(float(found @ found), len(found)) < _ERROR_RATE / len(offs):
            worst[name] = max(worst.get(name, 0.0), float(np.abs(found).max()))
    if not worst:
        return ()
    parts = ", ".join(f"{name} (off by up to {number(size, 2)} sds)" for name, size in worst.items())
    return (
        f"The fitted model does not explain all of its releases: {parts}. Chance alone does that in one "
        "run of 1,000. Outcomes vary otherwise than the model says, or columns are distributed otherwise "
        "than those of the synthetic people that intervals are computed on: intervals may be too narrow.",
    )


def flat_directions(released: SecondMoments) -> tuple[str, ...]:
    """A sentence where noise hides whether there are directions that rows tell next to nothing of.

    In its own metric a matrix is about a multiple of ``I``. Noise as large as that may hide an empty
    direction.
    """
    level = float(np.trace(released.matrix)) / len(released.matrix)
    if (
        len(released.matrix) < _FEWEST_COLUMNS
        or spectral_norm(released.noise_sd, len(released.matrix)) < level
    ):
        return ()
    return (
        "Noise hides whether some columns nearly determine others, as a total does its parts. Intervals "
        "assume that they do not, and may be several times too narrow where they do. A larger ε or fewer "
        "columns would tell.",
    )


def beyond_range(reading: RowModel, people: People, theta: Array) -> tuple[str, ...]:
    """A sentence where the fitted law has many outcomes beyond their declared range, which cuts them."""
    outcome = outcome_of(reading)
    if outcome is None or people.outcomes.shape[1] < 2 or reading.unit is not None:
        return ()
    outside = (people.outcomes < outcome.low) | (people.outcomes > outcome.high)
    shares = (people.shares(reading, theta) * outside).sum(axis=1)
    share = float(people.weights @ shares) / float(people.weights.sum())
    if not share > _BEYOND:
        return ()
    return (
        f"By the fitted model {number(100 * share, 2)} % of all outcomes lie beyond their declared range. "
        "Where people did, they counted as the nearest bound, which pulls effects towards zero: declare a "
        "wider range. Where nobody can, the model is wrong there.",
    )
