"""Latents of persons: plans and runs against NUTS on the joint model, whose latents it samples.

5,000 persons each: a random intercept of four binary outcomes (``intercept``) and of four counts
(``poisson``), two-parameter items (``items``, 20 answers a person), and gamma frailty of two censored times
(``frailty``). Of every budget: the error that the plan predicts, root mean square over shared parameters and
runs of means against NUTS's, in NUTS's sds, and how many true values are held by 90 % of the draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import private_mcmc as pmc

PERSONS, DELTA, DIM = 5_000, 1e-6, 3
_WEIGHTS = np.array([-0.5, 1.0, -1.0])


@dataclass(frozen=True, eq=False)
class Case:
    """A model, its rows, data drawn from it, and the values they were drawn at."""

    model: Callable[..., Any]
    rows: pmc.Rows
    data: Mapping[str, np.ndarray]
    truth: Mapping[str, np.ndarray]


def _regression(outcome: Callable[[jax.Array], dist.Distribution]) -> Callable[..., None]:
    def model(X: jax.Array, person: jax.Array, persons: int, y: jax.Array | None = None) -> None:
        w = numpyro.sample("w", dist.Normal(0, 2).expand([DIM]).to_event(1))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
        with numpyro.plate("persons", persons):
            u = numpyro.sample("u", dist.Normal(0, 1))
        with numpyro.plate("rows", X.shape[0]):
            numpyro.sample("y", outcome(X @ w + spread * u[person]), obs=y)

    return model


def items_model(item: jax.Array, person: jax.Array, persons: int, y: jax.Array | None = None) -> None:
    easy = numpyro.sample("easy", dist.Normal(0, 1.5).expand([20]).to_event(1))
    slope = numpyro.sample("slope", dist.LogNormal(0, 0.5).expand([20]).to_event(1))
    with numpyro.plate("persons", persons):
        u = numpyro.sample("u", dist.Normal(0, 1))
    with numpyro.plate("rows", item.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=slope[item] * u[person] + easy[item]), obs=y)


def frailty_model(X: jax.Array, time: jax.Array, event: jax.Array, person: jax.Array, persons: int) -> None:
    w = numpyro.sample("w", dist.Normal(0, 2).expand([DIM]).to_event(1))
    variance = numpyro.sample("variance", dist.LogNormal(-0.5, 0.7))
    with numpyro.plate("persons", persons):
        f = numpyro.sample("f", dist.Gamma(1 / variance, 1 / variance))
    log_hazard = X @ w + jnp.log(f[person])
    with numpyro.plate("rows", X.shape[0]):
        numpyro.factor("survival", event * log_hazard - time * jnp.exp(log_hazard))


def _covariates(random: np.random.Generator, count: int) -> np.ndarray:
    return np.column_stack([np.ones(count), random.uniform(-1, 1, (count, DIM - 1))])


def _intercept(random: np.random.Generator, counts: bool) -> Case:
    who = np.repeat(np.arange(PERSONS), 4)
    X, u = _covariates(random, len(who)), random.normal(size=PERSONS)
    eta = X @ _WEIGHTS + 0.8 * u[who]
    y = (
        np.minimum(random.poisson(np.exp(eta)), 20)
        if counts
        else random.random(len(eta)) < 1 / (1 + np.exp(-eta))
    )
    outcome = (lambda eta: dist.Poisson(jnp.exp(eta))) if counts else (lambda eta: dist.Bernoulli(logits=eta))
    domain = pmc.Counts(20) if counts else pmc.Binary()
    rows = pmc.Rows(X=pmc.Ball(np.sqrt(DIM), dim=DIM), y=domain, person=pmc.Person(4))
    data = {"X": X, "y": y.astype(int), "person": who}
    return Case(_regression(outcome), rows, data, {"w": _WEIGHTS, "spread": np.array(0.8)})


def _items(random: np.random.Generator) -> Case:
    who, item = np.repeat(np.arange(PERSONS), 20), np.tile(np.arange(20), PERSONS)
    easy, slope, u = random.normal(size=20), np.exp(0.4 * random.normal(size=20)), random.normal(size=PERSONS)
    y = random.random(len(who)) < 1 / (1 + np.exp(-(slope[item] * u[who] + easy[item])))
    rows = pmc.Rows(item=pmc.Categories(20), y=pmc.Binary(), person=pmc.Person(20))
    data = {"item": item, "y": y.astype(int), "person": who}
    return Case(items_model, rows, data, {"easy": easy, "slope": slope})


def _frailty(random: np.random.Generator) -> Case:
    who = np.repeat(np.arange(PERSONS), 2)
    X, f = _covariates(random, len(who)), random.gamma(2.0, 0.5, size=PERSONS)
    died = random.exponential(1 / (f[who] * np.exp(X @ _WEIGHTS)))
    left = np.minimum(random.exponential(4.0, len(who)), 10.0)
    rows = pmc.Rows(
        X=pmc.Ball(np.sqrt(DIM), dim=DIM), time=pmc.Box(0, 10), event=pmc.Binary(), person=pmc.Person(2)
    )
    data = {"X": X, "time": np.minimum(died, left), "event": (died < left).astype(int), "person": who}
    return Case(frailty_model, rows, data, {"w": _WEIGHTS, "variance": np.array(0.5)})


CASES: Mapping[str, Callable[[np.random.Generator], Case]] = {
    "intercept": lambda random: _intercept(random, counts=False),
    "poisson": lambda random: _intercept(random, counts=True),
    "items": _items,
    "frailty": _frailty,
}


def _joint(case: Case) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Means and sds of NUTS on the joint model."""
    nuts = numpyro.infer.MCMC(
        numpyro.infer.NUTS(case.model), num_warmup=300, num_samples=500, progress_bar=False
    )
    nuts.run(jax.random.key(0), persons=PERSONS, **case.data)
    draws = nuts.get_samples()
    return {name: (np.mean(draws[name], axis=0), np.std(draws[name], axis=0)) for name in case.truth}


def _one(
    case: Case, joint: Mapping[str, tuple[np.ndarray, np.ndarray]], epsilon: float, repeats: int
) -> dict[str, float]:
    begin = time.process_time()
    target, public = pmc.Target(epsilon, DELTA), {"persons": PERSONS}
    plan = pmc.plan(case.model, case.rows, target, n=PERSONS, guarantee="run", model_args=public)
    planned, errors, held, begin = time.process_time() - begin, [], [], time.process_time()
    for _ in range(repeats):
        mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
        mcmc.run(**case.data)
        draws = mcmc.get_samples()
        for name, (mean, sd) in joint.items():
            errors.append(((draws[name].mean(axis=0) - mean) / sd).ravel())
            low, high = np.quantile(draws[name], [0.05, 0.95], axis=0)
            held.append(((low <= case.truth[name]) & (case.truth[name] <= high)).ravel())
    return {
        "predicted, sds": plan.prediction.rms,
        "error, sds": float(np.sqrt(np.mean(np.concatenate(errors) ** 2))),
        "held by 90 % of the draws": float(np.mean(np.concatenate(held))),
        "plan, CPU s": planned,
        "run, CPU s": (time.process_time() - begin) / repeats,
    }


def measured(names: Sequence[str], epsilons: Sequence[float], repeats: int) -> dict[str, object]:
    """The table, by case and budget."""
    found: dict[str, object] = {}
    for name in names or CASES:
        case = CASES[name](np.random.default_rng(0))
        joint = _joint(case)
        for epsilon in epsilons:
            found[f"{name}, epsilon {epsilon:g}"] = one = _one(case, joint, epsilon, repeats)
            print(
                f"{name}, ε = {epsilon:g}:",
                {word: round(value, 3) for word, value in one.items()},
                flush=True,
            )
    return found
