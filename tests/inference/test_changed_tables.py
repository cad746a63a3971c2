"""What is charged is what is read: a table or a model that changes on the way, an open charge, other rows."""

import importlib
import os
from types import SimpleNamespace

import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import polars
import pyarrow
import pytest

import private_mcmc as pmc
from private_mcmc.cli.common import load_model
from private_mcmc.data.readers import source_of
from private_mcmc.data.source import shown_source
from private_mcmc.domains.cells import is_part
from private_mcmc.inference import fitting, reading
from private_mcmc.inference.describe import Books, description, plan_query
from private_mcmc.inference.question import plan_bounds, question
from private_mcmc.inference.reading import read_once
from tests.data.fields import number, person
from tests.data.fields import schema as schema_of
from tests.examples_of_models import declared, normal_mean, observed

WAGE = number("wage", 0, 100)


def written(path, wages):
    """A new file in the place of an old one, as editors and `mv` leave it."""
    draft = path.with_suffix(".new")
    draft.write_text("who,wage\n" + "".join(f"p{i},{wage}\n" for i, wage in enumerate(wages)))
    os.replace(draft, path)
    return path


@pytest.mark.parametrize("moment", ["read_table", "read_identifiers"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, moment):
    """Rows of one file with the identifiers, or charged under the mark, of another are nobody's."""
    path = written(tmp_path / "t.csv", [1, 2, 3])
    schema = schema_of(WAGE, person("who"), private_mcmc={"person": {"field": "who"}})
    first = getattr(reading, moment)

    def meanwhile(*arguments):
        found = first(*arguments)
        written(path, [9, 9, 9])
        return found

    monkeypatch.setattr(reading, moment, meanwhile)
    with pytest.raises(pmc.DataSchemaError, match="was changed while it was read"):
        fitting.plan_fit(path, question(schema, "wage ~ 1", family="gaussian"), epsilon=1.0)


def table_of(folder, kind):
    return {"wage": np.array([1.0, 2.0, 3.0])} if kind == "columns" else written(folder / "t.csv", [1, 2, 3])


def change(table, kind):
    if kind == "columns":
        table["wage"][0] = 9.0
    elif kind == "file":
        written(table, [9, 9, 9])
    else:
        with table.open("r+b") as file:
            file.write(b"x")


KINDS = ["file", "file in place", "columns"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_changes_after_a_query_was_planned_is_not_charged_for(tmp_path, books, kind):
    """The ledger would know the new rows by what the old ones say."""
    asked, table = Books(epsilon=0.5, charged=pmc.Bookkeeping(books, "people")), table_of(tmp_path, kind)
    planned = plan_query(table, description(schema_of(WAGE)), asked, "replace_one", None)
    change(table, kind)
    with pytest.raises(pmc.DataSchemaError, match="changed"):
        planned.run()
    assert not books.history()


@pytest.mark.parametrize("bought", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_that_changes_after_the_plan_is_not_charged_for(tmp_path, books, kind, bought):
    """The ledger would know its rows by the new text."""
    schema = schema_of(WAGE | ({"private_mcmc": {"bounds": "private"}} if bought else {}))
    asked, target = question(schema, "wage ~ 1", family="gaussian"), pmc.Target(1.0, 1e-6)
    table = table_of(tmp_path, kind)
    columns, marks = read_once(table, asked, target.adjacency)
    plan = SimpleNamespace(model=asked.model, rows=asked.rows, target=target, n=3)
    planned = fitting.Planned(asked, plan, table, columns, marks, plan_bounds(schema, ["wage"], target, 3))
    assert list(planned.read(schema)["wage"]) == [1, 2, 3]
    change(table, kind)
    for refused in (planned.run, lambda **_: planned.read(schema)):
        with pytest.raises(pmc.DataSchemaError, match="was changed") as refusal:
            refused(ledger=books, dataset="people", progress_bar=False)
        assert "9" not in str(refusal.value).replace(str(tmp_path), "")
    assert books.history("people") == ()


def test_the_model_that_runs_is_the_text_that_is_shown(tmp_path):
    """Bytecode of an earlier text of the same length and time would be taken for it."""
    path = tmp_path / "model.py"
    for value in (1, 9):
        path.write_text(f"def model():\n    return {value}\n")
        os.utime(path, (1_000_000_000, 1_000_000_000))
        model, source = load_model(f"{path}:model")
        assert model() == value and f"return {value}" in source


def test_what_a_frame_shows_of_another_is_a_part_of_it():
    frame = pd.DataFrame({"wage": np.arange(6.0), "died": np.arange(6) % 2, "name": list("abcdef")})
    arrow = pyarrow.table({"wage": [1.0, 2.0, 3.0], "name": ["a", "b", "c"]})
    polar = polars.DataFrame({"wage": [1.0, None, 3.0], "name": ["a", "b", "c"]})
    parts = [(frame, frame.iloc[2:]), (polar, polar[1:].select("wage")), (polar, {"name": polar["name"]})]
    whole = polars.DataFrame({"wage": [1.0, 2.0, 3.0]})
    parts += [(frame, {"died": frame["died"].to_numpy()}), (whole, {"wage": whole["wage"].to_numpy()[1:]})]
    parts += [(frame, frame[["wage"]])] if pd.__version__ >= "3" else []  # pandas 2 copies columns
    for private, public in [
        *parts,
        (polar.to_arrow(), polar),
        (arrow, arrow.slice(1)),
        (arrow, {"name": arrow["name"]}),
    ]:
        assert any(is_part(public[name], private[name]) for name in source_of(public).names)
    copies = (
        (frame, frame.copy()),
        (polar, polars.DataFrame({"wage": [1.0, None, 3.0]})),
        (arrow, pyarrow.table({"wage": [1.0, 2.0, 3.0]})),
        (frame["wage"].to_numpy()[:3], frame["wage"].to_numpy()[3:]),
    )
    assert not any(is_part(one, other) for one, other in copies)


ROWS = pmc.Rows(y=pmc.Box(-1.0, 1.0))


def driver(ledger, **books):
    kept = pmc.Bookkeeping(ledger, "people", **books)
    return declared(pmc.PrivateULA(normal_mean, 0.02, 1.0), ROWS, num_steps=2, bookkeeping=kept)


def test_a_charge_of_stages_pays_for_no_run_that_charges_none(books):
    """Settled as stopped it would be free again, with every state of the run released."""
    price = driver(books).decide(6).statement
    reserved = books.reserve("people", price, purpose="a run", staged=True)
    mcmc = driver(books, reserved=reserved)
    with pytest.raises(pmc.ReleaseError, match="another run"):
        mcmc.run(y=np.linspace(-1, 1, 6))


@pytest.mark.parametrize("told", [True, False])
def test_an_open_charge_pays_for_no_other_rows(books, told):
    y, other = np.linspace(-1, 1, 6), np.linspace(-1, 0, 6)
    ledger, price = books, driver(books).decide(6).statement
    with ledger.charge("people", price, purpose="a run", data={"y": y}):
        pass
    with ledger.charge("people", price, purpose="a run", data={"y": y} if told else None) as reserved:
        with pytest.raises(pmc.LedgerError, match="not the data"):
            driver(ledger, reserved=reserved).run(y=other)
        driver(ledger, reserved=reserved).run(y=y)


def test_a_model_whose_file_has_another_text_by_now_is_shown_without_one(tmp_path, monkeypatch):
    """The text that a file has later is not what ran."""
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "a_changing_model.py"
    text = "def model(y):\n    return y + 1\n\n\ndef other(y):\n    return 2\n"
    path.write_text(text)
    module = importlib.import_module("a_changing_model")
    assert "y + 1" in shown_source(module.model)
    for later in (text.replace("2", "3"), "# Another line.\n" + text, text.replace("def other", "def gone")):
        path.write_text(later)
        assert shown_source(module.other) == ""
    path.write_text(text + "# The end.\n")
    assert "return 2" in shown_source(module.other)

    def inside(y):
        return path, y

    assert "return path, y" in shown_source(inside) and shown_source(len) == ""


@pytest.mark.parametrize(
    ("column", "part"),
    [
        (np.asarray, lambda y: y),
        (np.asarray, lambda y: y[:2]),
        (lambda y: pd.DataFrame({"y": y})["y"], lambda y: y.to_numpy()[:3]),
    ],
)
def test_a_private_column_is_no_public_argument(column, part):
    def model(y, known):
        mean = numpyro.sample("mean", dist.Normal(known.mean(), 1))
        observed(y, dist.Normal(mean, 1), y)

    y = column(np.linspace(-1, 1, 6))
    driver = declared(pmc.PrivateULA(model, 0.02, 1.0, model_args={"known": part(y)}), ROWS, num_steps=2)
    with pytest.raises(pmc.DeclarationError, match="'known' is the private column 'y'"):
        driver.run(y=y)
