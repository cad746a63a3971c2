"""Declarations at the ends of what can be said: an answer or words, and never a false "private"."""

import itertools
import math
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from private_mcmc.accounting import gdp
from private_mcmc.domains import Binary, Box, Rows
from private_mcmc.errors import PrivateMCMCError
from private_mcmc.model import read
from private_mcmc.preflight import PreflightReport, preflight
from private_mcmc.preflight.certificates import certificates, constants, posterior_advice, run_advice
from private_mcmc.target import Target
from tests.examples_of_models import observed

COUNTS = (1, 2, 10**9)
TARGETS = ((50.0, 1e-6), (1e-6, 1e-6), (1.0, 0.0), (1.0, 1e-300), (50.0, 0.0), (1e-6, 1e-300))


def mean(y: Any = None, sd: float = 1.0) -> None:
    theta = numpyro.sample("theta", dist.Normal(0, sd))
    observed(y, dist.Normal(theta, 1.0), y)


def logit(y: Any = None, sd: float = 1.0) -> None:
    theta = numpyro.sample("theta", dist.Normal(0, sd))
    observed(y, dist.Bernoulli(logits=theta), y)


def answer(model: Any, rows: Rows, target: Target, n: int, sd: float, **said: Any) -> PreflightReport | None:
    try:
        return preflight(model, rows, target, n=n, model_args={"sd": sd}, **said)
    except PrivateMCMCError:
        return None


def check_mean(n: int, target: tuple[float, float], sd: float, temper: float) -> None:
    asked = Target(*target)
    found = answer(mean, Rows(y=Box(-1, 1)), asked, n, sd, temper=temper)
    # The posterior's variance is 1/(1/s² + wn), and a row moves its mean by 2w times that.
    exact = 2 * temper / math.sqrt(sd**-2 + temper * n)
    if found is not None and found.verdict == "private":
        assert gdp.delta(exact * (1 - 1e-9), asked.epsilon) <= asked.delta * (1 + 1e-6)
    if found is not None and found.verdict == "not private":
        assert gdp.delta(exact * (1 + 1e-9), asked.epsilon) > asked.delta


MEANS = list(itertools.product(COUNTS, TARGETS, (1e-8, 1.0, 1e8), (1e-9, 1.0, 1e3)))


@pytest.mark.some(1)
@pytest.mark.parametrize("case", MEANS, ids=str)
def test_every_normal_mean_is_private_only_if_its_exact_curve_is(case: Any) -> None:
    check_mean(*case)


def logit_divergence(n: int, sd: float, temper: float, clip: float | None, epsilon: float) -> float:
    """A lower bound of δ(ε): half of the others each way, one row changed; exact around the mode."""
    limit = math.inf if clip is None else clip
    spread = 1 / math.sqrt(sd**-2 + temper * n / 4)
    t = np.linspace(-40, 40, 400_001) * max(spread, min(sd, 1e4))
    t = np.unique(np.concatenate([t, np.linspace(-40, 40, 400_001) * spread]))
    width = np.gradient(t)

    def loss(sign: float) -> np.ndarray:
        slope = np.clip(-sign / (1 + np.exp(np.clip(sign * t, -700, 700))), -limit, limit)
        middle = np.cumsum(np.concatenate([[0.0], 0.5 * (slope[1:] + slope[:-1]) * np.diff(t)]))
        return middle - middle[len(t) // 2]

    up, down = loss(1.0), loss(-1.0)
    half = (n - 1) // 2
    laws = []
    for first in (up, down):
        log = -(t**2) / (2 * sd**2) - temper * (half * (up + down) + first)
        mass = np.exp(log - log.max()) * width
        laws.append(mass / mass.sum())
    return float(np.maximum(laws[0] - math.exp(epsilon) * laws[1], 0).sum())


CUTS = ((None, 1.0), (1e-9, 1.0), (1e9, 1.0), (None, 1e-9), (0.1, 1e3))
LOGITS = list(itertools.product(COUNTS, TARGETS[:4], (1e-8, 1.0, 1e8), CUTS))


def check_logit(n: int, target: tuple[float, float], sd: float, cut: tuple[float | None, float]) -> None:
    asked, (clip, temper) = Target(*target), cut
    found = answer(logit, Rows(y=Binary()), asked, n, sd, clip=clip, temper=temper)
    if found is not None and found.verdict == "private":
        exact = logit_divergence(n, sd, temper, clip, asked.epsilon)
        assert exact <= asked.delta * (1 + 1e-3) + 1e-9


@pytest.mark.long
@pytest.mark.parametrize("case", LOGITS, ids=str)
def test_every_clipped_or_tempered_logit_is_private_only_if_a_pair_allows(case: Any) -> None:
    check_logit(*case)


@pytest.mark.some(3)
@pytest.mark.parametrize("sd", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("temper", [1e-300, 1e300])
@pytest.mark.parametrize("target", [(1.0, 0.0), (1.0, 1e-300), (1e-300, 1e-300)])
def test_numbers_beyond_all_use_get_certificates_and_advice_or_words(
    sd: float, temper: float, target: tuple[float, float]
) -> None:
    row_model = read(logit, Rows(y=Binary()), n=2, model_args={"sd": sd})
    asked: dict[str, Any] = {"n": 2, "target": Target(*target)}
    for clip in (None, 1e-300, 1e300):
        known = constants(row_model, clip)
        found = certificates(row_model, known, temper=temper, **asked)
        # Bernoulli(1) against Bernoulli(0): the posterior moves, so pure privacy at ε = 0 is false.
        assert all(statement.delta(0.0) > 0 for statement in found)
        posterior_advice(
            row_model, known, lambda w, k=known: certificates(row_model, k, temper=w, **asked),
            temper=temper, **asked,
        )  # fmt: skip
        run_advice(row_model, known, temper, asked["target"])
