"""Scores of outputs that are learned from half of them."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from private_mcmc.auditing.confidence import FloatArray
from private_mcmc.auditing.mechanism import Score

_MOST_SQUARED = 40


def linear(first: FloatArray, second: FloatArray) -> Score:
    """The direction ``S^{-1}(x̄_2 − x̄_1)``, ``S`` the pooled covariance: best for Gaussians that share it."""
    centre, scale = _standards(first, second)
    one, two = (first - centre) / scale, (second - centre) / scale
    pooled = (np.cov(one, rowvar=False) + np.cov(two, rowvar=False)).reshape(one.shape[1], -1) / 2
    ridge = 1e-9 * np.eye(len(pooled))
    direction = np.linalg.lstsq(pooled + ridge, two.mean(0) - one.mean(0), rcond=None)[0]
    return lambda outputs: (outputs - centre) / scale @ direction


def logistic(first: FloatArray, second: FloatArray) -> Score:
    """Log density ratio by logistic regression on the outputs and (up to 40 of them) their squares."""
    centre, scale = _standards(first, second)

    def features(outputs: FloatArray) -> FloatArray:
        # Bounded, so that one far output cannot decide the fit.
        z = np.clip((outputs - centre) / scale, -6.0, 6.0)
        squares = [z**2, np.abs(z)] if z.shape[1] <= _MOST_SQUARED else []
        return np.concatenate([np.ones((len(z), 1)), z, *squares], axis=1)

    inputs = np.concatenate([features(first), features(second)])
    labels = np.concatenate([np.zeros(len(first)), np.ones(len(second))])

    def loss(weights: FloatArray) -> tuple[float, FloatArray]:
        predictor = inputs @ weights
        value = np.logaddexp(0.0, predictor).sum() - labels @ predictor + 5e-4 * weights @ weights
        return float(value), inputs.T @ (expit(predictor) - labels) + 1e-3 * weights

    weights = minimize(loss, np.zeros(inputs.shape[1]), jac=True, method="L-BFGS-B").x
    return lambda outputs: features(outputs) @ weights


LEARNED = {"linear direction": linear, "logistic density ratio": logistic}


def _standards(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre and spread of every output, resistant to heavy tails; constant outputs have spread 1."""
    both = np.concatenate([first, second])
    low, middle, high = np.quantile(both, (0.1, 0.5, 0.9), axis=0)
    spread = np.where(high > low, (high - low) / 2.5, both.std(axis=0))
    return middle, np.where(spread > 0, spread, 1.0)
