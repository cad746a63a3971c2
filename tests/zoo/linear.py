"""Regressions with real outcomes: normal errors need a clip, robust errors do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from private_mcmc.domains import Ball, Box, Real, Rows
from private_mcmc.target import Target
from tests.zoo.entry import Array, Entry, Pair, normal

FEATURES = Rows(X=Ball(1.0, dim=3), y=Box(-1, 1))
LINE = Rows(x=Box(-1, 1), y=Box(-1, 1))
OUTCOMES = Rows(y=Box(-1, 1))
TARGET = Target(1.0, 1e-6)


def linear(X: Any, y: Any = None, sd: float = 1.0) -> None:
    """Normal errors of known scale 1."""
    w = numpyro.sample("w", dist.Normal(0, sd).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, 1.0), obs=y)


def slope(x: Any, y: Any = None, sd: float = 0.1) -> None:
    """Heller and Fetaya's regression: one slope, normal errors of known scale 1."""
    theta = numpyro.sample("theta", dist.Normal(0, sd))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(theta * x, 1.0), obs=y)


def latent_scale(X: Any, y: Any = None) -> None:
    """Normal errors of unknown scale."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([X.shape[1]]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Normal(X @ w, s), obs=y)


def student(X: Any, y: Any = None) -> None:
    """Student errors with 4 degrees of freedom: bounded scores, not convex."""
    w = numpyro.sample("w", dist.Normal(0, 0.05).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.StudentT(4.0, X @ w, 1.0), obs=y)


def laplace(X: Any, y: Any = None) -> None:
    """Laplace errors (median regression): convex, scores at most 1."""
    w = numpyro.sample("w", dist.Normal(0, 0.1).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Laplace(X @ w, 1.0), obs=y)


def mean(y: Any = None) -> None:
    """The mean of normal outcomes of known scale 1."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def mean_flat(y: Any = None) -> None:
    """The same under a flat prior: the posterior is proper, since the number of rows is public."""
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def mean_and_scale(y: Any = None) -> None:
    """Mean and scale of normal outcomes."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, s), obs=y)


def _with_loss(sd: float, losses: tuple[Any, Any], spread: float) -> Pair:
    """One weight; the other rows have no features, one row has the loss ``losses[0]`` or ``losses[1]``."""
    return Pair(
        lambda t: normal(t, sd) - losses[0](t), lambda t: normal(t, sd) - losses[1](t), -spread, spread
    )


def _huber(at: float) -> Any:
    """Squared error of outcome 1 or −1 at feature 1, its slope clipped at ``at``."""

    def loss(residual: Array) -> Array:
        size = np.abs(residual)
        return np.where(size <= at, residual**2 / 2, at * size - at**2 / 2)

    return lambda t: loss(1.0 - t), lambda t: loss(-1.0 - t)


def _square(outcome: float, temper: float = 1.0) -> Any:
    return lambda t: temper * (outcome - t) ** 2 / 2


def _student_loss(outcome: float) -> Any:
    return lambda t: 2.5 * np.log1p((outcome - t) ** 2 / 4)


def _log_scale(squares: float) -> Any:
    """Log scale ``u`` of 100 normal errors without features whose squares add up to ``squares``."""
    return lambda u: -np.exp(2 * u) / 2 + u - 100 * u - squares * np.exp(-2 * u) / 2


ENTRIES = (
    # A normal score grows without bound with the weights.
    Entry(
        "linear",
        linear,
        FEATURES,
        "not private",
        _with_loss(1.0, (_square(1.0), _square(-1.0)), 12.0),
        n=1000,
    ),
    # Clipped at 0.1 the rows are Huber losses; 2·0.1/1 = 0.2-GDP.
    Entry(
        "linear_clipped", linear, FEATURES, "private", _with_loss(1.0, _huber(0.1), 12.0), n=1000, clip=0.1
    ),
    # A clip of 2 is larger than what a prior of sd 1 can hide.
    Entry(
        "linear_clipped_too_little",
        linear,
        FEATURES,
        "not private",
        _with_loss(1.0, _huber(2.0), 12.0),
        n=1000,
        clip=2.0,
    ),
    # Gaussian posteriors of bounded rows differ by a small shift and a small change of scale.
    Entry(
        "heller_fetaya",
        slope,
        LINE,
        "unknown",
        _with_loss(0.1, (_square(1.0, 0.5), _square(-1.0, 0.5)), 1.5),
        n=50,
        target=Target(1.0, 1e-4),
        temper=0.5,
    ),
    # Under a prior of sd 1 one row moves the slope by half its scale.
    Entry(
        "heller_fetaya_weak_prior",
        slope,
        LINE,
        "not private",
        _with_loss(1.0, (_square(1.0), _square(-1.0)), 12.0),
        n=50,
        target=Target(1.0, 1e-4),
        model_args={"sd": 1.0},
    ),
    # An outlier among inliers is told by the scale of the errors.
    Entry(
        "linear_latent_scale",
        latent_scale,
        FEATURES,
        "unknown",
        Pair(_log_scale(2.0), _log_scale(1.0), -3.5, 0.0),
        n=100,
    ),
    # Scores at most 1.25; a prior of precision 400 outweighs 100 rows that bend down by at most 1.25.
    Entry(
        "student",
        student,
        FEATURES,
        "private",
        _with_loss(0.05, (_student_loss(1.0), _student_loss(-1.0)), 0.6),
        n=100,
    ),
    # No line of the table of likelihoods.
    Entry(
        "laplace",
        laplace,
        FEATURES,
        "unknown",
        "no likelihood of one affine predictor with proved constants",
        n=1000,
        provable="convex rows with scores at most 1 under a prior of precision 100: 0.2-GDP",
    ),
    # All posteriors are normal with precision 1001; a row moves the gradient by at most 2: 0.0632-GDP.
    Entry(
        "mean",
        mean,
        OUTCOMES,
        "private",
        Pair(
            lambda t: normal(t, 1001 ** (-0.5), 1 / 1001),
            lambda t: normal(t, 1001 ** (-0.5), -1 / 1001),
            -0.4,
            0.4,
        ),
        n=1000,
    ),
    # An outcome without bound moves the mean without bound.
    Entry(
        "mean_unbounded",
        mean,
        Rows(y=Real()),
        "not private",
        Pair(
            lambda t: normal(t, 1001 ** (-0.5), 1000 / 1001),
            lambda t: normal(t, 1001 ** (-0.5), -1000 / 1001),
            -3.0,
            3.0,
        ),
        n=1000,
    ),
    # Every posterior is N(mean of y, 1/1000): 2/√1000 = 0.0632-GDP.
    Entry(
        "mean_flat",
        mean_flat,
        OUTCOMES,
        "private",
        Pair(
            lambda t: normal(t, 1000 ** (-0.5), 1 / 1000),
            lambda t: normal(t, 1000 ** (-0.5), -1 / 1000),
            -0.4,
            0.4,
        ),
        n=1000,
    ),
    # An outlier among equal outcomes is told by the scale.
    Entry("mean_and_scale", mean_and_scale, OUTCOMES, "unknown", "no certificate", n=100),
)
