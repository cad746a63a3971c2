"""The error that releases tell to expect of a plan that is not yet carried out to its end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from private_mcmc.planning.affine import AffinePolicy
from private_mcmc.planning.affine_releases import CURVATURE, MOMENTS, RUN, WARM_UP
from private_mcmc.planning.coefficients import Coefficients
from private_mcmc.planning.conclusion import OF_PARAMETERS, Expected, Prediction
from private_mcmc.planning.estimates import inverse_of, metric_of
from private_mcmc.planning.general import SECOND, GeneralPolicy
from private_mcmc.planning.stages import Array, History, PathStage, named

if TYPE_CHECKING:
    from private_mcmc.planning.policy import Plan

_DRAWS = 400
# A prediction that no release has shaped is a guess, and so is its range.
_GUESS = (0.4, 4.0)
# The middle nine in ten of 28 hard tables at ε = 1 were within these factors of one from releases; at ε = 10
# errors up to 8 times as large were seen.
_KNOWN = (0.4, 2.5)


def predict_after(plan: Plan, releases: History) -> Prediction:
    """The error to expect of ``plan``, were the stages that are still to be bought carried out.

    A function of releases and public facts alone: post-processing, free. With no releases, or too few to
    tell, it is the plan's own prediction, which is a guess. Once the next stage is the run, it is computed
    from the curvature that was released, its noise, and what the rest of the budget buys of a path.

    Args:
        plan: what was planned.
        releases: the stages that were carried out, with what they released, in their order.

    Returns:
        ``rms``: root mean square over coefficients of the expected distance between the private and the
        exact posterior mean, in sds of the exact posterior. ``low``, ``high``: nine in ten errors of tables
        that it was measured on at ε = 1 are between them. ``coefficients``: of each its expected error and
        its sd without privacy, in its own units; their ratio is the error in sds. ``bias`` and
        ``monte_carlo``: the parts of ``rms`` that bounding rows' influence and privacy's noise have.
    """
    policy, run = plan.policy, named(releases, RUN)
    if not named(releases, CURVATURE) and not named(releases, SECOND):
        return _guessed(plan.prediction)
    stage = run[0].stage if run else policy.next(releases)
    if not isinstance(stage, PathStage) or stage.name != RUN:
        return _guessed(plan.prediction)
    before = releases[: releases.index(run[0])] if run else releases
    if isinstance(policy, AffinePolicy):
        return _of_run(plan, stage, _of_affine(policy, before, stage))
    if isinstance(policy, GeneralPolicy) and plan.prediction.unit == OF_PARAMETERS:
        with jax.enable_x64(True):
            return _of_run(plan, stage, _of_general(policy, before, stage))
    return _guessed(plan.prediction)


def _guessed(prediction: Prediction) -> Prediction:
    low, high = _GUESS
    return prediction._replace(low=low * prediction.rms, high=high * prediction.rms)


class _Known(NamedTuple):
    """What releases say before the run.

    Attributes:
        centre: about the mode, ``(p,)``.
        precision: the prior's, ``(p, p)``.
        curvatures: of rows' losses that releases allow, ``(draws, p, p)``.
        share: of the curvature that the bound on influence leaves.
        bias: error of the bound, in posterior sds.
        noise: covariance of the score's mean: of privacy's noise, and of what the clip takes, ``(p, p)``.
    """

    centre: Array
    precision: Array
    curvatures: Array
    share: float
    bias: float
    noise: Array


def _of_affine(policy: AffinePolicy, releases: History, run: PathStage) -> _Known:
    estimate, _ = policy.moments(named(releases, MOMENTS))
    rounds, clip = named(releases, CURVATURE), policy.clip_of(run.schedule)
    centre = policy.centre(estimate, named(releases, WARM_UP), rounds)
    counts = policy.influence_on(releases, "clip" if run.reading is None else "weights")
    curvatures = np.stack(policy.curvatures(estimate, rounds))
    share, noise = counts.curvature_share(clip), _noise(run, policy.temper)
    return _Known(centre, policy.precision, curvatures, share, counts.bias(clip), noise)


def _of_general(policy: GeneralPolicy, releases: History, run: PathStage) -> _Known:
    lost, curvatures = policy.lost(releases, run), policy.curvatures(releases)
    if curvatures is None:
        raise TypeError("the second query of information was bought")
    noise = _noise(run, policy.facts.temper) + (0.0 if lost is None else lost.covariance)
    bias = policy.prediction.bias if lost is None else 0.0
    precision = np.diag(policy.facts.prior.precision)
    return _Known(run.start, precision, policy.facts.temper * curvatures, 1.0, bias, noise)


def _noise(run: PathStage, temper: float) -> Array:
    """``2M^{-1}/(Tw²)``: of the mean score over a path of time ``T`` at weight ``w`` in the metric ``M``."""
    weight = run.schedule.temper / temper
    return inverse_of(metric_of(run.schedule)) * (2 / (run.schedule.total_time * weight**2))


def _of_run(plan: Plan, run: PathStage, known: _Known) -> Prediction:
    """From the covariance that draws will have beyond the exact posterior's, for each curvature allowed.

    With a curvature ``H`` of which the bound leaves the share ``s`` and a mean score of covariance ``N`` the
    mode is known up to ``(sH)^{-1}N(sH)^{-1}``.
    """
    centre, precision, bias = known.centre, known.precision, known.bias
    information = np.linalg.inv(known.noise)
    read, errors, sds = plan.planner.read, [], []
    for one in known.curvatures:
        exact = inverse_of(one + precision)
        told = known.share**2 * one @ information @ one
        both = inverse_of(inverse_of(told) + inverse_of(one))
        excess = inverse_of(precision + both) - exact + bias**2 * exact
        sds.append(_sds(read, centre, exact))
        errors.append(_sds(read, centre, excess))
    sd = np.exp(np.mean(np.log(np.maximum(sds, 1e-300)), axis=0))
    error = np.sqrt(np.mean(np.square(np.array(errors) / np.array(sds)), axis=0))
    rms = math.sqrt(float(np.mean(error**2)))
    low, high = _KNOWN
    coefficients = tuple(
        Expected(name, float(off * width), float(width))
        for name, off, width in zip(read.names, error, sd, strict=True)
    )
    noise = math.sqrt(max(rms**2 - bias**2, 0.0))
    step = max(run.schedule.step_sizes) / 4
    return Prediction(rms, bias, noise, step, low=low * rms, high=high * rms, coefficients=coefficients)


def _sds(read: Coefficients, centre: Array, covariance: Array) -> Array:
    """Of what is read of Normal draws with a public key, ``(coefficients,)``."""
    normal = np.random.default_rng(0).standard_normal((_DRAWS, len(centre)))
    normal = (normal - normal.mean(axis=0)) / normal.std(axis=0)
    draws = centre + normal @ _positive_root(covariance).T
    return np.stack([each.std(axis=0) for each in read.of(draws).values()])


def _positive_root(covariance: Array) -> Array:
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
