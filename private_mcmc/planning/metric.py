"""Metrics from a prior and the information of rows, and those of likelihoods to a power."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from private_mcmc.planning.prior_draws import Prior
from private_mcmc.planning.stages import Array


@dataclass(frozen=True, eq=False)
class Metric:
    """``M = AAᵀ`` and the sum over all rows of ``w E‖Aᵀ∇v‖²``, about the number of parameters."""

    root: Array
    trace: float


def next_metric(prior: Prior, root: Array, information: Array) -> Metric:
    """``M = (P + F)^{-1}`` from ``AᵀFA``, the information in the coordinates of ``root``; ``P`` diagonal."""
    precision = root.T @ (root * prior.precision[:, None])
    covariance = np.linalg.inv(precision + information)
    factor = np.linalg.cholesky((covariance + covariance.T) / 2)
    trace = float(np.trace(information @ covariance))
    return Metric(np.asarray(root @ factor, dtype=np.float64), max(trace, 0.05 * len(root)))


def flattened(metric: Metric, prior: Prior, weight: float) -> Metric:
    """Of the likelihood to the power ``weight``."""
    if weight == 1:
        return metric
    information = np.eye(len(metric.root)) - metric.root.T @ (metric.root * prior.precision[:, None])
    values, vectors = np.linalg.eigh((information + information.T) / 2)
    return next_metric(prior, metric.root, weight * (vectors * np.maximum(values, 0.0)) @ vectors.T)
