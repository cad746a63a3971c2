"""One statement of every kind as plain JSON, with its curves read at several points.

Runs are decided, not executed: no statement depends on data. Statements are made by the names that users
have; those of ``tests.accounting.every_statement`` cover every rule, bound, scheme and adjacency.
"""

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

import private_mcmc as pmc
from private_mcmc import accounting as acc
from private_mcmc.cli.common import balance_record
from private_mcmc.records import plain
from private_mcmc.release import Family, plan_second_moments, plan_sums
from private_mcmc.schedule import Average
from tests.accounting import every_statement
from tests.examples_of_models import linear, logistic

FOLDER = Path(__file__).parent
N = 2000
TARGET = pmc.Target(1e4, 1e-6)
LINEAR_ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Box(-1, 1))
LOGISTIC_ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
# Δ, μ and L of a contracting chain of the accountant's own numbers.
CONTRACTING = acc.Curvature(strong_convexity=1.0, smoothness=50.0)

Json = dict[str, Any]


# What composes a loss distribution, where a curve has one: seconds.
READINGS = frozenset({"delta", "epsilon", "summary"})


def gridded(statement: acc.Statement) -> bool:
    """Whether a reading of a curve takes a loss distribution."""
    return any(kind in repr(statement.curves) for kind in ("Sampled", "Product"))


def shown(statement: acc.Statement, without: frozenset[str] = frozenset()) -> Json:
    """The record, whether it verifies, and what its curves say; less where that takes a loss distribution."""
    slow = gridded(statement)
    epsilons, deltas = ((2.0,), (1e-6,)) if slow else ((0.0, 0.5, 2.0, 8.0), (0.0, 1e-6, 1e-2))
    fields: dict[str, Callable[[], Any]] = {
        "record": statement.to_dict,
        "verified": lambda: bool(acc.verify(statement.to_dict())),
        "delta": lambda: {str(epsilon): statement.delta(epsilon) for epsilon in epsilons},
        "epsilon": lambda: {str(delta): plain(statement.epsilon(delta)) for delta in deltas},
        "gdp": lambda: statement.gdp,
        "summary": lambda: statement.summary().splitlines(),
    }
    return {name: read() for name, read in fields.items() if name not in without}


def accountant() -> Mapping[str, acc.Statement]:
    """Every rule, every bound of a run, every scheme of batches, compositions and stages."""
    return every_statement.statements()


def runs() -> Mapping[str, acc.Statement]:
    """What drivers decide: every kernel, every release of states, averages with every kind of sensitivity."""
    steps = {"step_size": 8e-4, "clip": 2.6}
    kernels = {
        "PrivateULA, path": (pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0), "path"),
        "PrivateULA, last": (pmc.PrivateULA(linear, **steps), "last"),
        "PrivateULA, steps": (pmc.PrivateULA(linear, **steps), (10, 40)),
        "PrivateSGLD, path": (pmc.PrivateSGLD(logistic, step_size=1e-3, clip=1.0, batch_size=100), "path"),
        "AnisotropicLangevin, path": (
            pmc.AnisotropicLangevin(logistic, step_size=1e-3, clip=1.0, noise=(1.0, 4.0)),
            "path",
        ),
        "AnisotropicLangevin, coordinates clipped": (
            pmc.AnisotropicLangevin(logistic, step_size=1e-3, clips=(1.0, 0.1), noise=(1.0, 0.1)),
            "path",
        ),
    }
    return {name: _decided(kernel, release) for name, (kernel, release) in kernels.items()}


def releases() -> Mapping[str, acc.Statement]:
    """Expectations, moments, counts and plans."""
    kernel = pmc.PrivateULA(linear, step_size=1e-4, clip=0.2, temper=0.05)
    smooth = {"f": lambda sites: jnp.sin(sites["w"]).sum()}
    expectations = {
        "means, Laplace": pmc.Expectations("w", epsilon=0.5),
        "a bounded function": pmc.Expectations(smooth, bounds={"f": (-0.5, 0.5)}, epsilon=0.5),
    }
    found = {name: _decided(kernel, release) for name, release in expectations.items()}
    for adjacency in ("replace_one", "add_remove", "zero_out"):
        of: Json = {"num_rows": N, "adjacency": adjacency}
        counts = plan_sums(0.3, (Family("levels", 4),), what="counts by cell", **of)
        sums = plan_sums(0.3, (Family("levels", 4), Family("age", 2, 2, 1.5)), **of)
        moments = plan_second_moments(0.2, radius=1.5, dim=3, **of)
        path = acc.langevin_statement(every_statement.schedule(adjacency=adjacency, num_steps=20))
        stages = (counts.statement.of("counts"), moments.statement.of("moments"), path.of("path"))
        found |= {
            f"counts, {adjacency}": counts.statement,
            f"sums by cell, {adjacency}": sums.statement,
            f"second moments, {adjacency}": moments.statement,
            f"stages of a plan, {adjacency}": acc.adaptive(1.2, adjacency, stages),
            f"a plan's budget, {adjacency}": acc.adaptive(1.2, adjacency, ()),
        }
    return found


def posteriors() -> Mapping[str, acc.Statement]:
    """The certificates that preflight finds: for logistic regression, and for a conjugate model."""

    def coin(y: Any) -> None:
        chance = numpyro.sample("chance", dist.Beta(2.0, 3.0))
        with numpyro.plate("rows", y.shape[0]):
            numpyro.sample("y", dist.Bernoulli(probs=chance), obs=y)

    found = {}
    for adjacency in ("replace_one", "add_remove", "zero_out"):
        target = pmc.Target(1.0, 1e-6, adjacency)
        reports = (
            pmc.preflight(logistic, LOGISTIC_ROWS, target, n=50, clip=0.1, temper=0.5),
            pmc.preflight(coin, pmc.Rows(y=pmc.Binary()), target, n=50, temper=0.5),
        )
        certificates = [certificate for report in reports for certificate in report.certificates]
        found |= {f"{item.argument.rule}, {adjacency}": item for item in certificates}
    return found


def ledger() -> Json:
    """Balances and what is left after charges of both kinds."""
    noise = acc.gaussian(adjacency="replace_one", sensitivity=1.0, scale=10.0, what="counts")
    pure = acc.laplace(0.2, adjacency="replace_one", sensitivity=1.0, scale=5.0)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        book = pmc.Ledger.create(Path(folder) / "ledger.jsonl")
        book.declare("people", pmc.Target(2.0, 1e-5))
        for number, statement in enumerate((noise, pure)):
            with book.charge("people", statement, purpose=f"release {number}"):
                pass
        found["people"] = balance_record(book.balance("people")) | {
            "charges": [
                {"outcome": charge.outcome, "cost": float(charge.cost), "statement": dict(charge.statement)}
                for charge in book.history("people")
            ]
        }
    return found


def averages() -> Json:
    """How far one row moves an average of states, for every way that rows enter steps."""
    found = {}
    for name, schedule in every_statement.SCHEDULES.items():
        if schedule.release == "last" and schedule.noise is None and schedule.clips is None:
            same = ("adjacency", "step_size", "num_steps", "rate", "preconditioner")
            given = {field: getattr(schedule, field) for field in same}
            averaged = every_statement.schedule(release=Average(11), **given)
            found[name] = acc.average_sensitivity(averaged, CONTRACTING)
    return found


def _decided(kernel: Any, release: Any, **changes: Any) -> acc.Statement:
    rows = LOGISTIC_ROWS if kernel.model is logistic else LINEAR_ROWS
    driver = pmc.PrivateMCMC(
        kernel, rows=rows, target=TARGET, release=release, num_steps=50, **({"guarantee": "run"} | changes)
    )
    return driver.decide(N).statement


def _all(statements: Callable[[], Mapping[str, acc.Statement]]) -> Callable[[], Json]:
    return lambda: {name: shown(statement) for name, statement in statements().items()}


FILES: Mapping[str, Callable[[], Json]] = {
    "accountant": _all(accountant),
    "runs": _all(runs),
    "releases": _all(releases),
    "posteriors": _all(posteriors),
    "ledger": ledger,
    "averages": averages,
}


def built(name: str) -> Json:
    """Today's content of a file, as JSON gives it back."""
    return dict(json.loads(text(name)))


def text(name: str) -> str:
    """Today's content of a file."""
    return json.dumps(FILES[name](), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
