"""The error that public facts and releases tell to expect of a plan before it is carried out to its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from private_mcmc.planning.coefficients import Coefficients
from private_mcmc.planning.conclusion import Expected, Known, Prediction
from private_mcmc.planning.general import RUN
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

    A function of releases and public facts alone: post-processing, free. Before the next stage is the run it
    is the plan's own prediction, which is a guess. Then it is computed from the curvature that was released,
    its noise, and what the rest of the budget buys of a path.

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
    run = named(releases, RUN)
    stage = run[0].stage if run else plan.policy.next(releases)
    if not isinstance(stage, PathStage) or stage.name != RUN:
        return plan.prediction
    before = releases[: releases.index(run[0])] if run else releases
    with jax.enable_x64(True):
        return _of_runs(plan.planner.read, [(plan.policy.known(before, stage), stage)], _KNOWN)


def guess(read: Coefficients, runs: Sequence[tuple[Known, PathStage]]) -> Prediction:
    """The typical error of runs that public facts or synthetic tables lead to."""
    return _of_runs(read, runs, _GUESS)


def _of_runs(
    read: Coefficients, runs: Sequence[tuple[Known, PathStage]], within: tuple[float, float]
) -> Prediction:
    """Over the curvatures that are allowed root mean squares, over runs geometric means."""
    errors, sds, biases = [], [], []
    for known, _ in runs:
        each = [[_sds(read, known.centre, one) for one in pair] for pair in known.of_each()]
        sd, off = np.moveaxis(np.maximum(each, 1e-300), 1, 0)
        errors.append(np.sqrt(np.mean(np.square(off / sd), axis=0)))
        sds.append(_typical(sd))
        biases.append(known.bias)
    error, sd = _typical(errors), _typical(sds)
    rms, (low, high) = math.sqrt(float(np.mean(error**2))), within
    bias = min(float(np.mean(biases)), rms)
    coefficients = tuple(
        Expected(name, float(off * width), float(width))
        for name, off, width in zip(read.names, error, sd, strict=False)
    )
    noise, step = math.sqrt(rms**2 - bias**2), max(runs[-1][1].schedule.step_sizes) / 4
    return Prediction(rms, bias, noise, step, low=low * rms, high=high * rms, coefficients=coefficients)


def _typical(values: Sequence[Array] | Array) -> Array:
    """The geometric mean over the first axis."""
    return np.asarray(np.exp(np.mean(np.log(np.maximum(values, 1e-300)), axis=0)))


def _sds(read: Coefficients, centre: Array, covariance: Array) -> Array:
    """Of what is read of Normal draws with a public key, ``(coefficients,)``; of ``θ`` if nothing is."""
    if not read.names:
        return np.sqrt(np.maximum(np.diag(covariance), 0.0))
    normal = np.random.default_rng(0).standard_normal((_DRAWS, len(centre)))
    normal = (normal - normal.mean(axis=0)) / normal.std(axis=0)
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    draws = centre + normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.stack([each.std(axis=0) for each in read.of(draws).values()])
