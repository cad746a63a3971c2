"""The demonstration's story: income above 50,000 dollars in the UCI Adult census extract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import numpyro
import numpyro.distributions as dist
from rich.console import Console

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.cli.demo_report import demo_report
from private_mcmc.cli.reference import nuts_reference
from private_mcmc.data import ADULT_COLUMNS, load_adult
from private_mcmc.inference import PrivateMCMC
from private_mcmc.kernels import PrivateULA
from private_mcmc.modeling import Ball, Binary, Real, Rows
from private_mcmc.plan import plan
from private_mcmc.preflight import PreflightReport, preflight
from private_mcmc.release import Expectations
from private_mcmc.target import Target

ROWS = Rows(X=Ball(1.0, dim=9), y=Binary())
# A public profile: 40 years old, 13 years of education, 40 hours a week, married, no capital income.
PROFILE = np.array([1.0, 23 / 73, 13 / 16, 40 / 99, 1.0, 1.0, 0.0, 0.0, 1.0]) / 3.0


def model(X: Any, y: Any = None) -> None:
    """Logistic regression with independent ``N(0, 2²)`` weights."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def flat_model(X: Any, y: Any = None) -> None:
    """The same regression with a flat, improper prior."""
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), event_shape=(X.shape[1],))
    w = numpyro.sample("w", flat)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def probability(sites: Mapping[str, jax.Array]) -> jax.Array:
    """Probability of an income above 50,000 dollars for the public profile."""
    return jax.nn.sigmoid(jnp.asarray(PROFILE) @ sites["w"])


@dataclass(frozen=True)
class AdultDemo:
    """One run of the demonstration."""

    epsilon: float
    delta: float
    output: Path
    nuts: bool

    def run(self) -> None:
        """Tell the whole story and write the report."""
        console = Console()
        X, y = load_adult("train")
        n = len(y)
        target = Target(self.epsilon, self.delta)
        console.rule(f"UCI Adult, {n:,} people, logistic regression, target ε = {self.epsilon:g}, δ = {self.delta:g}")
        own = self._refusals(console, target, n)
        driver = self._private_path(console, target, n, X, y)
        expectation, price = self._private_expectation(console, target, own, n, X, y)
        total = accounting.compose(driver.statement, expectation.statement)
        console.rule("What was spent")
        for what, statement in (("path", driver.statement), ("expectation", expectation.statement), ("total", total)):
            console.print(f"[bold]{what}[/bold]: {_in_short(statement, self.delta)}")
        reference = nuts_reference(model, X, y, console) if self.nuts else None
        page = self._report(own, driver, expectation, total, reference, target)
        console.print(f"\nReport: [bold]{page}[/bold]")
