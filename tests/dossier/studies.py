"""Studies without a run: a statement, a charge and draws of a formula's model."""

import math
from dataclasses import replace
from importlib.metadata import version

import numpy as np

from private_mcmc import Ledger, Study, Target, accounting
from private_mcmc.dossier.record import standing_in, warnings_of
from private_mcmc.inference.question import question
from private_mcmc.report import json_types
from tests.data.fields import flag, number, schema
from tests.schedules import schedule

SEXES = [{"value": "f", "label": "female"}, {"value": "m", "label": "male"}]
SCHEMA = schema(
    number("age", 0, 120, unit="years", own={"bounds_from": "nobody has lived longer"}),
    {"name": "sex", "type": "string", "categories": SEXES},
    flag("died"),
)
PREDICTED = {
    "rms": 0.4,
    "bias": 0.1,
    "monte_carlo": 0.38,
    "discretisation": 0.02,
    "reference": 0.0,
    "coefficients": [
        {"name": "Intercept", "error": 0.2, "sd": 0.1},
        {"name": "age", "error": 0.003, "sd": 0.004},
        {"name": "not released", "error": 0.03, "sd": 0.04},
    ],
}


def statement_of(target):
    """A plan of three stages that spend the whole budget: a query, and two paths on 1,000 rows."""
    budget = accounting.gdp.budget(target.epsilon, target.delta)
    query = accounting.gaussian(
        adjacency=target.adjacency, sensitivity=1.0, scale=1 / (0.3 * budget), what="s", num_rows=1000
    )
    rest = math.sqrt(1 - 0.3**2 - 0.4**2)
    paths = [
        path_of(share * budget, target.adjacency).of(name) for name, share in (("warm", 0.4), ("run", rest))
    ]
    parts = (query.of("moments"), *paths)
    return accounting.adaptive(budget, target.adjacency, parts, num_rows=1000)


def path_of(price, adjacency, num_rows=1000, dim=2, clip=1.0):
    """The statement of a path that costs ``price``-GDP."""
    made = schedule(adjacency=adjacency, num_rows=num_rows, dim=dim, step_size=1.0, num_steps=10, clip=clip)
    unit = accounting.langevin_statement(made).gdp
    return accounting.langevin_statement(replace(made, step_size=(price / unit) ** 2 * (1 - 1e-6)))


def study_of(books=None, target=Target(1.0, 1e-6), **changes):  # noqa: B008
    """A fit of ``died ~ age + sex`` to 1,000 rows that nobody has seen, charged to ``books``."""
    asked, statement = question(SCHEMA, "died ~ age + sex"), statement_of(target)
    kept = None
    if books is not None:
        with books.charge("people", statement, purpose="a test") as charge:
            pass
        kept = standing_in(books, charge.identity)
    rng = np.random.default_rng(0)
    fields = {
        "library": version("private-mcmc"), "versions": {"matplotlib": version("matplotlib")},
        "created": "2026-01-01T00:00:00+00:00", "table": "people.csv", "schema": SCHEMA.to_dict(),
        "rows": json_types(asked.rows.to_dict()), "formula": asked.formula, "family": asked.family,
        "priors": asked.priors, "model": asked.source, "arguments": {}, "epsilon": target.epsilon,
        "delta": target.delta, "adjacency": target.adjacency, "n": 1000, "guarantee": "run", "temper": 1.0,
        "predicted": PREDICTED, "expected": PREDICTED | {"rms": 0.5}, "stopped": False, "chains": 1,
        "stages": tuple({"name": part.mechanism or "", "gdp": part.gdp} for part in statement.parts),
        "statement": statement.to_dict(), "certificate": None, "ledger": kept, "expectations": {},
        "warnings": warnings_of(target, 1000, books),
        "randomness": {"source": "operating system", "generator": "chacha20"},
        "draws": {
            name: rng.normal(0.5, 0.1, (40, *shape)).round(6).tolist()
            for name, shape in (("Intercept", ()), ("age", ()), ("sex", (1,)))
        },
    }  # fmt: skip
    study = Study(**fields | changes)
    if books is not None:
        books.know(charge.identity, study.fingerprint)
    return study


def books_in(folder):
    """A ledger with a budget for three such studies, of which one is spent."""
    books = Ledger.create(folder / "books.db")
    books.declare("people", Target(3.0, 1e-6))
    with books.charge("people", statement_of(Target(0.5, 1e-6)), purpose="before"):
        pass
    return books
