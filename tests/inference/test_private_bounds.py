"""Bounds that are bought: priced with the run in one statement, charged before a row is looked at."""

from types import SimpleNamespace

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.data.table import data_marks, read_table
from private_mcmc.inference import fitting
from private_mcmc.inference.checkpoint import SavedRun
from private_mcmc.inference.fitting import Planned
from private_mcmc.inference.question import SHARE, plan_bounds, question
from private_mcmc.inference.reading import read_columns
from private_mcmc.release import ledger as ledger_module
from tests.data.fields import number, person
from tests.data.fields import schema as schema_of
from tests.examples_of_models import declared, normal_mean

ADJACENCIES = ("replace_one", "add_remove", "zero_out")


def private(name, low, high, kind="number", **ours):
    return number(name, low, high, kind, own={"bounds": "private", **ours})


WAGE, AGE = private("wage", 0, 1000), number("age", 0, 120)
SCHEMA = schema_of(
    WAGE, private("income", 1, 1e9, missing="indicator"), private("visits", 0, 1000, "integer"), AGE
)
RNG = np.random.default_rng(0)
COLUMNS = {
    "wage": RNG.normal(16, 4, 20_000).clip(0, 1000),
    "income": RNG.lognormal(10, 0.7, 20_000).clip(1, 1e9),
    "income_missing": np.zeros(20_000),
    "visits": RNG.poisson(6, 20_000).astype(float),
    "age": RNG.uniform(0, 120, 20_000),
}
NAMES = ["wage", "income", "visits", "age"]


def buy(bounds, schema, columns):
    return bounds.bought(schema, bounds.sums(schema, columns))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_bounds_and_plan_together_are_one_statement_that_is_verified_and_meets_the_target(adjacency):
    target = pmc.Target(1.0, 1e-6, adjacency)
    bounds = plan_bounds(SCHEMA, NAMES, target, 20_000)
    budget = accounting.gdp.budget(1.0, 1e-6)
    spent = bounds.mechanism.statement.gdp**2
    assert spent == pytest.approx(SHARE * budget**2, rel=1e-6) and len(bounds.mechanism.families) == 3
    # What is left for the plan fits beside them, and hardly anything is wasted.
    rest = accounting.gdp.budget(bounds.rest.epsilon, bounds.rest.delta)
    given = {"adjacency": adjacency, "num_rows": 20_000}
    stage = accounting.gaussian(sensitivity=1.0, scale=1 / rest * (1 + 1e-12), **given)
    whole = accounting.adaptive(budget, adjacency, (bounds.mechanism.statement, stage))
    assert whole.verify() and whole.delta(1.0) <= 1e-6
    assert rest**2 + spent == pytest.approx(budget**2, rel=1e-4)
    assert bounds.whole == target and "ε = 1" in bounds.notes[0]


def test_bounds_are_near_the_tails_inside_the_outer_range_and_said_to_be_bought():
    bounds = plan_bounds(SCHEMA, NAMES, pmc.Target(10.0, 1e-6), 20_000)
    exact = bounds.sums(SCHEMA, COLUMNS, pmc.Devices(1))
    cells = bounds.mechanism.families[0].cells
    np.testing.assert_array_equal(exact[:cells], np.histogram(COLUMNS["wage"], cells, (0, 1000))[0])
    bought = bounds.bought(SCHEMA, exact)
    wage, income, visits = (bought[name] for name in ("wage", "income", "visits"))
    assert 0 <= wage.minimum <= 16 and 24 <= wage.maximum <= 70  # of an outer range of 1000
    assert 1 <= income.minimum <= 22_000 and 50_000 <= income.maximum <= 1e6  # of one of 1e9
    assert visits.minimum == 0 and 10 <= visits.maximum <= 50 and visits.maximum == int(visits.maximum)
    assert bought["age"] == SCHEMA["age"]
    assert wage.bounds == "" and "bought privately" in wage.bounds_from
    assert bought.rows(["wage"]) == pmc.Rows(wage=pmc.Box(wage.minimum, wage.maximum))


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_noise_alone_leaves_a_range_inside_the_outer_one(adjacency):
    n, given = 30, {name: column[:30] for name, column in COLUMNS.items()}
    if adjacency == "zero_out":
        given["present"] = np.zeros(n)
    elif adjacency == "add_remove":
        given = {name: column[:0] for name, column in COLUMNS.items()}
    bounds = plan_bounds(SCHEMA, NAMES, pmc.Target(0.1, 1e-6, adjacency), n)
    for _ in range(5):
        bought = buy(bounds, SCHEMA, given)
        for name in NAMES:
            (low, high), (least, most) = bought[name].range, SCHEMA[name].range
            assert least <= low < high <= most
        bought.rows(NAMES)


def test_missing_and_dropped_numbers_have_no_place_in_a_histogram():
    target = pmc.Target(10.0, 1e-6, "zero_out")
    columns = {name: column.copy() for name, column in COLUMNS.items()}
    half = np.arange(20_000) % 2
    columns["income"][half == 1], columns["income_missing"] = 5e8, half.astype(float)
    columns["wage"][half == 1], columns["present"] = 990.0, 1.0 - half
    bought = buy(plan_bounds(SCHEMA, NAMES, target, 20_000), SCHEMA, columns)
    assert bought["income"].maximum < 1e7 and bought["wage"].maximum < 100


def test_what_missing_numbers_count_as_does_not_widen_bounds(tmp_path):
    rows = [f"{wage:.2f},{age:.0f}" for wage, age in zip(COLUMNS["wage"], COLUMNS["age"], strict=True)]
    rows[::10] = [f",{row.partition(',')[2]}" for row in rows[::10]]
    (tmp_path / "people.csv").write_text("\n".join(["wage,age", *rows]))
    schema = schema_of(private("wage", 0, 1000, missing="middle"), AGE)
    bounds = plan_bounds(schema, ["wage"], pmc.Target(10.0, 1e-6), 20_000)
    bought = buy(bounds, schema, read_table(tmp_path / "people.csv", bounds.marked(schema), ["wage"]))
    assert bought["wage"].maximum < 100 and bought["wage"].missing == "middle"


def test_a_question_is_asked_anew_of_the_bought_bounds():
    asked = question(SCHEMA, "wage ~ age", family="gaussian", priors=["sigma = 5"])
    narrow = buy(plan_bounds(SCHEMA, NAMES, pmc.Target(10.0, 1e-6), 20_000), SCHEMA, COLUMNS)
    again = asked.on(narrow)
    assert again.rows.columns["wage"].interval()[1] == narrow["wage"].maximum
    assert again.priors == asked.priors and again.source != asked.source


def test_what_has_no_private_bounds_is_refused_before_the_charge():
    """The last, a field of the name that tells what is missing: the whole budget was charged for nothing."""
    for wrong in ({"type": "number"}, {"type": "string", "constraints": {"enum": ["a", "b"]}}):
        with pytest.raises(pmc.DeclarationError, match=r"outer range|for numbers"):
            schema_of({"name": "x", **wrong, "private_mcmc": {"bounds": "private"}})
    assert plan_bounds(SCHEMA, ["age"], pmc.Target(1.0, 1e-6), 20_000) is None
    fields = (*SCHEMA.fields, pmc.Field("id", "string", role="person"))
    with pytest.raises(pmc.NotYetSupported, match="one row of each person"):
        plan_bounds(pmc.Schema(fields, "id", 2), NAMES, pmc.Target(1.0, 1e-6), 20_000)
    schema = schema_of(private("wage", 0, 1000, missing="middle"), number("wage_missing", 0, 1), AGE)
    with pytest.raises(pmc.DeclarationError, match="wage_missing"):
        plan_bounds(schema, ["wage", "wage_missing"], pmc.Target(1.0, 1e-6), 1000)


def test_of_persons_who_enter_with_one_row_one_falls_into_a_cell():
    wage = schema_of(WAGE, person("id"))
    schema = pmc.Schema(wage.fields, "id", 1)
    bounds = plan_bounds(schema, ["wage"], pmc.Target(1.0, 1e-6), 50)
    # One person has as many rows as all others, at the other end of the range.
    table = {"wage": [1.0] * 49 + [999.0] * 49, "id": [*map(str, range(49)), *["x"] * 49]}
    asked = question(schema, "wage ~ 1", family="gaussian")
    columns = read_columns(table, bounds.marked(schema), asked, "replace_one")
    assert np.sort(columns["wage"]).tolist() == [*[1.0] * 49, 999.0]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The predicted error", "ignore:Bounding rows", "ignore:Of ")
def test_a_fit_with_bought_bounds_is_charged_once_before_any_row_is_used(tmp_path, monkeypatch):
    ledger = pmc.Ledger.create(tmp_path / "l.db")
    ledger.declare("people", pmc.Target(1.2, 1e-6))
    table = {name: COLUMNS[name][:4000] for name in ("wage", "age")}
    told = {"family": "gaussian", "priors": ["sigma = 4"], "epsilon": 1.0, "progress_bar": False}
    books = {"ledger": ledger, "dataset": "people"}
    with monkeypatch.context() as broken, pytest.warns(UserWarning), pytest.raises(Stopped):
        broken.setattr(fitting, "check_arithmetic", stop)
        pmc.fit(table, SCHEMA, "wage ~ age", **told, **books)
    assert ledger.history("people") == ()
    with pytest.warns(UserWarning, match="bought first"):
        study = pmc.fit(table, SCHEMA, "wage ~ age", **told, **books)
    (charge,) = ledger.history("people")
    assert charge.outcome == "released"
    statement = pmc.Statement.from_dict(study.statement)
    assert statement.verify() and statement.delta(1.0) <= 1e-6
    assert charge.cost == ledger.state().dataset("people").filter.cost(statement)
    assert statement.parts[0].argument.rule == "noise.gaussian" and len(statement.parts) > 1
    (wage,) = (field for field in study.schema["fields"] if field["name"] == "wage")
    assert float(wage["constraints"]["maximum"]) < 200
    assert abs(study.answers().summary()[0].mean - 16) < 2
    # A second one does not fit, and nothing is bought for it.
    with pytest.warns(UserWarning), pytest.raises(pmc.BudgetExceeded):
        pmc.fit(table, SCHEMA, "wage ~ 1", **told, **books)
    assert len(ledger.history("people")) == 1


def test_a_wrong_number_of_rows_is_refused_before_bounds_are_charged(books):
    schema, target = schema_of(WAGE), pmc.Target(1.0, 1e-6)
    asked = question(schema, "wage ~ 1", family="gaussian")
    plan = SimpleNamespace(model=asked.model, rows=asked.rows, target=target, n=7)
    bounds = plan_bounds(schema, ["wage"], target, 7)
    table = {"wage": np.ones(5)}
    planned = Planned(asked, plan, table, table, data_marks(table), bounds)
    with pytest.raises(pmc.DataSchemaError, match="declared n=7"):
        planned.run(ledger=books, dataset="people", progress_bar=False)
    assert books.history("people") == ()


class Stopped(pmc.errors.PrivateMCMCError):
    """What ends a run."""


def stop(*args):
    raise Stopped


@pytest.mark.long
def test_a_charge_pays_for_the_run_that_it_was_made_for_while_it_is_open(books, tmp_path, monkeypatch):
    rows, y = pmc.Rows(y=pmc.Box(-1.0, 1.0)), np.linspace(-1, 1, 6)
    kernel = pmc.PrivateULA(normal_mean, 0.02, 1.0)

    def run(reserved, checkpoint=None):
        kept = pmc.Bookkeeping(books, "people", reserved=reserved, checkpoint=checkpoint)
        declared(kernel, rows, num_steps=2, bookkeeping=kept).run(y=y)

    run(None)
    (settled,) = books.history("people")
    with pytest.raises(pmc.ReleaseError, match="settled, or was made for another"):
        run(settled)
    other = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1e-6, scale=1.0, what="a little")
    cheap = books.reserve("people", other, purpose="a test")
    with pytest.raises(pmc.ReleaseError, match="settled, or was made for another"):
        run(cheap)
    paid = books.reserve("people", pmc.Statement.from_dict(settled.statement), purpose="one run")
    run(paid)
    with pytest.raises(pmc.ReleaseError, match="has paid for a run"):
        run(paid)
    # Made by a process that was stopped: its run may have released.
    elsewhere = books.reserve("people", pmc.Statement.from_dict(settled.statement), purpose="one run")
    with monkeypatch.context() as patched, pytest.raises(pmc.ReleaseError, match="made in another process"):
        patched.setattr(ledger_module.os, "getpid", lambda: -1)
        run(elsewhere)
    # Left open by a run that may be resumed.
    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(SavedRun, "save", stop)
        run(None, checkpoint=pmc.Checkpoint(tmp_path / "saved", seconds=0.0))
    with pytest.raises(pmc.ReleaseError, match="has paid for a run"):
        run(books.history("people")[-1])
    assert books.history("people")[-1].outcome == "reserved"


def test_a_question_that_bought_ranges_do_not_fit_is_asked_in_the_declared_ones():
    """Knots outside ended a run whose whole budget was charged."""
    schema = schema_of(WAGE, AGE)
    asked = question(schema, "age ~ ns(wage, knots=[100, 900])", family="gaussian")
    bounds = plan_bounds(schema, ["wage"], pmc.Target(1.0, 1e-6), 20_000)
    bought = buy(bounds, schema, {"wage": COLUMNS["wage"]})
    assert bought["wage"].maximum < 900
    found = fitting._of_bought(asked, bought)
    assert found.rows == asked.rows and "knots increase" in found.notes[-1]
    assert found.schema["wage"].bounds == ""
