"""The demonstration's story: income above 50,000 dollars in the UCI Adult census extract."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS
from rich.console import Console

from private_mcmc import accounting
from private_mcmc.accounting import Statement
from private_mcmc.cli.demo_report import DemoResults, demo_report
from private_mcmc.data import ADULT_COLUMNS, load_adult
from private_mcmc.domains import Ball, Binary, Real, Rows
from private_mcmc.errors import NotPrivate
from private_mcmc.files import check_writable
from private_mcmc.inference import PrivateMCMC
from private_mcmc.kernels import PrivateULA
from private_mcmc.planning import plan
from private_mcmc.preflight import PreflightReport, preflight
from private_mcmc.release import Expectations, ReleasedExpectations
from private_mcmc.target import Target


def nuts_reference(
    model: Callable[..., object],
    *,
    num_warmup: int = 400,
    num_samples: int = 1000,
    progress_bar: bool = False,
    **data: npt.ArrayLike,
) -> dict[str, npt.NDArray[np.float64]]:
    """Posterior draws of every site: **not private**, curator-side only.

    The data travel as traced arguments, so that they are not baked into compiled programs.
    """
    with jax.enable_x64(True):
        mcmc = MCMC(
            NUTS(model, dense_mass=True),
            num_warmup=num_warmup,
            num_samples=num_samples,
            progress_bar=progress_bar,
            jit_model_args=True,
        )
        mcmc.run(jax.random.key(0), **data)
        return {name: np.asarray(draws) for name, draws in mcmc.get_samples().items()}


Numbers = npt.NDArray[np.float64]
ROWS = Rows(X=Ball(1.0, dim=9), y=Binary())
# A synthetic, public profile: a married man of 40 with 13 years of schooling who works 40 hours a week.
PROFILE = np.array([1.0, 23 / 73, 13 / 16, 40 / 99, 1.0, 1.0, 0.0, 0.0, 1.0]) / 3.0
_EXPECTATION_STEPS = 20_000


def model(X: jax.Array, y: jax.Array | None = None) -> None:
    """Logistic regression with independent ``N(0, 2²)`` weights."""
    w = numpyro.sample("w", dist.Normal(0, 2).expand([X.shape[1]]).to_event(1))
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def flat_model(X: jax.Array, y: jax.Array | None = None) -> None:
    """The same regression with a flat, improper prior."""
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), event_shape=(X.shape[1],))
    w = numpyro.sample("w", flat)
    with numpyro.plate("rows", X.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)


def probability(sites: Mapping[str, jax.Array]) -> jax.Array:
    """Probability that the public profile earns more than 50,000 dollars."""
    return jax.nn.sigmoid(jnp.asarray(PROFILE) @ sites["w"])


@dataclass(frozen=True)
class AdultDemo:
    """One run of the demonstration: targets, where to write, whether to compare with NUTS."""

    epsilon: float
    delta: float
    output: Path
    nuts: bool

    def run(self, console: Console) -> Path:
        """Tell the whole story on the console and write the report; returns the report's path."""
        page = self.output / "report.html"
        self.output.mkdir(parents=True, exist_ok=True)
        check_writable(page)
        X, y = load_adult("train")
        target = Target(self.epsilon, self.delta)
        console.print(
            f"UCI Adult (1994 US census extract): {len(y):,} people, 9 covariates, logistic regression.\n"
            f"Target: ε = {self.epsilon:g} at δ = {self.delta:g}, one person's row replaced by any other."
        )
        own = _refusals(console, target, len(y))
        path = _private_path(console, target, X, y)
        expectation = _private_expectation(console, target, own, X, y)
        total = accounting.compose(path.statement, expectation.statement)
        _spent(console, self.delta, path=path.statement, expectation=expectation.statement, total=total)
        reference = None
        if self.nuts:
            _rule(console, "For comparison on the curator's side: non-private NUTS")
            with console.status("running NUTS"):
                reference = nuts_reference(model, X=X, y=y)["w"]
            _compare(console, path.get_samples()["w"], reference)
        released = expectation.released
        if not isinstance(released, ReleasedExpectations):
            raise TypeError("the second mechanism releases expectations")
        results = DemoResults(
            target,
            own,
            path.get_samples()["w"],
            path.statement,
            released,
            expectation.statement,
            total,
            reference,
        )
        demo_report(results, ADULT_COLUMNS, probability, len(y)).to_html(page)
        console.print(f"\nReport: {page}")
        return page


def _rule(console: Console, title: str) -> None:
    console.print()
    console.rule(f"[bold]{title}")


def _refusals(console: Console, target: Target, n: int) -> PreflightReport:
    """Three models that are refused, each with what would change that; the last one's report is kept."""
    _rule(console, "1. Preflight, before any private row is read")
    console.print(
        "guarantee='posterior' asks for more than a private run: the exact posterior must be private too.\n"
    )
    unbounded = Rows(X=Real(9), y=Binary())
    cases = {
        "covariates without bounds": preflight(model, unbounded, target, n=n),
        "a flat prior": preflight(flat_model, ROWS, target, n=n),
        "bounded covariates and the model's own prior": preflight(model, ROWS, target, n=n),
    }
    for name, report in cases.items():
        console.print(f"[bold]{name}[/bold]: {report.verdict}")
        for reason in report.reasons:
            console.print(f"  because {reason}")
        for advice in report.advice:
            console.print(f"  to change that: {advice.text}")
    own = cases["bounded covariates and the model's own prior"]
    kernel = PrivateULA(model, step_size=1e-3, clip=1.0)
    driver = PrivateMCMC(kernel, rows=ROWS, target=target, release="path", num_steps=100, n=n)
    try:
        driver.decide()
    except NotPrivate as refusal:
        console.print(f"\nPrivateMCMC raises [bold]NotPrivate[/bold]: {refusal}", markup=True)
    return own


def _private_path(console: Console, target: Target, X: Numbers, y: npt.NDArray[np.int64]) -> PrivateMCMC:
    """The stages of a plan, each shaped by what the earlier ones released."""
    _rule(console, "2. A private path of states (guarantee='run')")
    with console.status("planning on synthetic rows"):
        policy = plan(model, ROWS, target, n=len(y), guarantee="run")
    console.print(
        f"Predicted from public facts alone: posterior means within {policy.prediction.rms:.2f} posterior sd "
        "(root mean square)."
    )
    driver = PrivateMCMC.from_plan(policy)
    driver.run(X=X, y=y)
    for completed in driver.history:
        console.print(f"  {completed.stage.name}: {completed.stage.statement.gdp:.3g}-GDP")
    if driver.conclusion is not None:
        console.print(
            f"Predicted again from the releases: {driver.conclusion.prediction.rms:.2f} posterior sd."
        )
    driver.print_summary()
    inference_data = driver.to_arviz()
    console.print(
        f"\nArviZ groups: {', '.join(inference_data.groups())}; the statement is in their attributes."
    )
    return driver


def _private_expectation(
    console: Console, target: Target, own: PreflightReport, X: Numbers, y: npt.NDArray[np.int64]
) -> PrivateMCMC:
    """A Laplace-perturbed expectation from a tempered posterior that is itself certified."""
    _rule(console, "3. A private posterior expectation (guarantee='posterior')")
    temper = next(item.value for item in own.advice if item.change == "temper")
    if temper is None:
        raise TypeError("preflight computes the temper it advises")
    curvature = 1 / 4 + temper * len(y) / 4
    kernel = PrivateULA(model, step_size=1.0 / curvature, clip=1.0, temper=temper)
    driver = PrivateMCMC(
        kernel,
        rows=ROWS,
        target=target,
        release=Expectations({"probability": probability}, bounds=(0.0, 1.0), lipschitz=0.25),
        num_steps=_EXPECTATION_STEPS,
        n=len(y),
    )
    decision = driver.decide()
    console.print(f"With the temper that preflight advises, w = {temper:g}: {decision.report.verdict}.")
    if decision.expectations is not None:
        console.print(f"Before anything is spent: {decision.expectations.describe()}")
    driver.run(X=X, y=y)
    console.print(f"Released: probability = {float(driver.expectation('probability')):.3f}")
    return driver


def _spent(console: Console, delta: float, **statements: Statement) -> None:
    _rule(console, "4. What was spent")
    for name, statement in statements.items():
        pure = statement.epsilon(0.0)
        price = (
            f"ε = {pure:.4g}, pure"
            if pure < float("inf")
            else f"ε = {statement.epsilon(delta):.4g} at δ = {delta:g}"
        )
        console.print(f"[bold]{name:>12}[/bold]: {price}; {statement.argument.theorem}")


def _compare(console: Console, private: Numbers, reference: Numbers) -> None:
    error = (private.mean(0) - reference.mean(0)) / reference.std(0)
    ratio = private.std(0) / reference.std(0)
    console.print(
        "private against non-private posterior: rms error of the means "
        f"{np.sqrt(np.mean(error**2)):.2f} posterior sd, "
        f"rms ratio of the sds {np.sqrt(np.mean(ratio**2)):.2f}"
    )
