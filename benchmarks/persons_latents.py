"""Latents of persons: plans and runs against NUTS on the joint model, whose latents it samples.

5,000 persons each: a random intercept of four binary outcomes (``intercept``) and of four counts
(``poisson``), two-parameter items (``items``, 20 answers a person), and gamma frailty of two censored times
(``frailty``). Of every budget: the error that the plan predicts, root mean square over shared parameters and
runs of means against NUTS's, in NUTS's sds, and how many true values are held by 90 % of the draws. Of every
case: how far the sum over the grid moves a posterior mean from the integral's. Cells and runs that the file
of results has are not computed again; plans are kept in ``build/persons``.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.distributions import biject_to

import private_mcmc as pmc
from private_mcmc.model import read
from private_mcmc.model.integrated import integrated_loss

PERSONS, DELTA, DIM = 5_000, 1e-6, 3
WARM_UP, DRAWS = 300, 500
_BEGIN, _END = "<!-- latents: made by python -m benchmarks.persons --page -->\n", "<!-- end of latents -->\n"
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


def grid(case: Case) -> dict[str, object]:
    """How far the sum over the grid moves posterior means from the integral's, in posterior sds: the most.

    To first order by the inverse of the information (of scores) times both gradients' difference, at the
    values that the data were drawn at.
    """
    with jax.enable_x64(True):
        reading = read(case.model, case.rows, n=PERSONS, model_args={"persons": PERSONS})
        own, theta = reading.own, np.zeros(reading.dim)
        assert own is not None
        for site in reading.sites:
            assert site.constraint is not None
            theta[site.slice] = np.ravel(biject_to(site.constraint).inv(jnp.asarray(case.truth[site.name])))
        people = reading.rows.project(case.rows.grouped(case.data, PERSONS))

        def summed(of_person: Callable[[Mapping[str, jax.Array]], jax.Array]) -> np.ndarray:
            return np.sum(
                np.asarray(jax.jit(lambda rows: jax.lax.map(of_person, rows, batch_size=250))(people)), axis=0
            )

        finer = replace(own, finer=3)
        at = jnp.asarray(theta)
        slopes = [
            summed(lambda row, each=each: jax.grad(functools.partial(integrated_loss, each))(at, row))
            for each in (own, finer)
        ]
        scores = summed(
            lambda row: (lambda g: jnp.outer(g, g))(
                jax.grad(functools.partial(integrated_loss, own))(at, row)
            )
        )
        covariance = np.linalg.inv(scores + np.asarray(jax.hessian(reading.neg_log_prior)(at)))
    shift = covariance @ (slopes[0] - slopes[1]) / np.sqrt(np.diag(covariance))
    return {"moved, sds": float(np.max(np.abs(shift))), "parameters": reading.dim}


def reference(case: Case) -> dict[str, object]:
    """NUTS on the joint model."""
    begin = time.process_time()
    with jax.enable_x64(True):
        nuts = numpyro.infer.MCMC(
            numpyro.infer.NUTS(functools.partial(case.model, persons=PERSONS), target_accept_prob=0.7),
            num_warmup=WARM_UP,
            num_samples=DRAWS,
            progress_bar=False,
            jit_model_args=True,
        )
        nuts.run(jax.random.key(0), extra_fields=("num_steps",), **case.data)
        draws = {name: np.asarray(nuts.get_samples()[name]) for name in case.truth}
        taken = float(np.mean(np.asarray(nuts.get_extra_fields()["num_steps"])))
    numbers = np.concatenate([each.reshape(DRAWS, -1) for each in draws.values()], axis=1)
    return {
        "mean": {name: np.mean(draws[name], axis=0).tolist() for name in case.truth},
        "sd": {name: np.std(draws[name], axis=0).tolist() for name in case.truth},
        "least effective draws": min(float(effective_sample_size(column[None])) for column in numbers.T),
        "leapfrog steps a draw": taken,
        "CPU s": time.process_time() - begin,
    }


@functools.cache
def plan_of(case: Case, epsilon: float) -> pmc.Plan:
    target, public = pmc.Target(epsilon, DELTA), {"persons": PERSONS}
    return pmc.plan(case.model, case.rows, target, n=PERSONS, guarantee="run", model_args=public)


def planned(case: Case, epsilon: float) -> dict[str, object]:
    """What a plan says."""
    begin = time.process_time()
    said = plan_of(case, epsilon).prediction
    return {
        "predicted, sds": said.rms,
        "predicted of": said.unit,
        "predicted, range": [said.low, said.high],
        "plan, CPU s": time.process_time() - begin,
        "errors": [],
        "held": [],
        "run, CPU s": [],
    }


def one_more(
    case: Case, known: Mapping[str, Any], epsilon: float, cell: Mapping[str, Any]
) -> dict[str, object]:
    """The cell with another run of its plan, against the reference."""
    plan = plan_of(case, epsilon)
    begin, off, inside = time.process_time(), [], []
    mcmc = pmc.PrivateMCMC.from_plan(plan, progress_bar=False)
    mcmc.run(**case.data)
    draws = mcmc.get_samples()
    for name, truth in case.truth.items():
        mean, sd = (np.asarray(known[word][name]) for word in ("mean", "sd"))
        off.append(((draws[name].mean(axis=0) - mean) / sd).ravel())
        low, high = np.quantile(draws[name], [0.05, 0.95], axis=0)
        inside.append(((low <= truth) & (truth <= high)).ravel())
    more = {
        "errors": float(np.sqrt(np.mean(np.concatenate(off) ** 2))),
        "held": float(np.mean(np.concatenate(inside))),
        "run, CPU s": time.process_time() - begin,
    }
    found = {**cell, **{word: [*cell[word], value] for word, value in more.items()}}
    found["error, sds"] = float(np.sqrt(np.mean(np.square(found["errors"]))))
    found["held by 90 % of the draws"] = float(np.mean(found["held"]))
    return found | {"parameters": sum(map(len, off)), "runs": len(found["errors"])}


def _kept(store: Path) -> dict[str, dict[str, object]]:
    return dict(json.loads(store.read_text())) if store.exists() else {}


def measured(names: Sequence[str], epsilons: Sequence[float], repeats: int, store: Path) -> None:
    """Every cell that ``store`` does not have yet, and runs up to ``repeats``; it is written after each."""

    def cell(name: str, make: Callable[[], dict[str, object]], again: bool = False) -> dict[str, Any]:
        if again or name not in _kept(store):
            made = make()
            # Others may have written meanwhile.
            store.write_text(json.dumps(_kept(store) | {name: made}, indent=1, sort_keys=True) + "\n")
        found = _kept(store)[name]
        shown = {word: value for word, value in found.items() if word not in ("mean", "sd")}
        print(f"{name}:", shown, flush=True)
        return found

    for name in names or CASES:
        case = CASES[name](np.random.default_rng(0))
        cell(f"{name}, grid", functools.partial(grid, case))
        for epsilon in epsilons:
            known = cell(f"{name}, joint", functools.partial(reference, case))
            key = f"{name}, epsilon {epsilon:g}"
            found = cell(key, functools.partial(planned, case, epsilon))
            while len(found["errors"]) < repeats:
                found = cell(key, functools.partial(one_more, case, known, epsilon, found), again=True)


def table(store: Path) -> str:
    """What was measured as a table of Markdown; a dash where a cell was not."""
    found = _kept(store)
    budgets = sorted({name.partition("epsilon ")[2] for name in found} - {""}, key=float)
    heads = ["model", "grid moves a mean by, sds"]
    heads += [
        f"ε = {each}: {what}" for each in budgets for what in ("predicted", "seen, sds", "held of 90 %")
    ]
    lines = [heads, ["---"] * len(heads)]
    for case in CASES:
        numbers = [found.get(f"{case}, grid", {}).get("moved, sds")]
        for each in budgets:
            cell = found.get(f"{case}, epsilon {each}", {})
            numbers += [
                cell.get(word) for word in ("predicted, sds", "error, sds", "held by 90 % of the draws")
            ]
        lines.append([f"`{case}`", *("—" if one is None else f"{one:.2g}" for one in numbers)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def write_page(store: Path, page: Path) -> None:
    """Put the table between its marks in ``page``."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    page.write_text(before + _BEGIN + table(store) + _END + rest.partition(_END)[2], encoding="utf-8")
