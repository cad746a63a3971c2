"""``describe`` from a table to a dossier: charged before, kept on disk before it is settled, and verified."""

import io
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from rich.console import Console

import private_mcmc as pmc
from private_mcmc import report
from private_mcmc.cli.study import people_of
from private_mcmc.data.answers import Answers
from private_mcmc.data.design import design
from private_mcmc.data.families import family
from private_mcmc.data.formula import read_formula
from private_mcmc.dossier import load_record, new_dossier, verify_dossier
from private_mcmc.dossier.folder import finish
from private_mcmc.inference import columns as placing
from private_mcmc.inference import execute_plan as sums
from private_mcmc.inference.describe import Books, description, plan_query
from private_mcmc.inference.fitting import plan_fit
from private_mcmc.inference.question import question
from private_mcmc.inference.reading import described_people
from private_mcmc.release import Family, SumsPlan, plan_sums
from tests.data.fields import levels, number, person, schema
from tests.dossier.studies import study_of

FIELDS = [levels("sex", "f", "m"), number("age", 0, 100)]
SCHEMA = schema(*FIELDS)
UNIT = {"person": {"field": "id", "at_most": "3"}}
VISITS = schema(*FIELDS, person("id"), private_mcmc=UNIT)
ONE_ROW = schema(*FIELDS, person("id"), private_mcmc={"person": {"field": "id"}})


@pytest.fixture
def table():
    random = np.random.default_rng(0)
    return {"sex": np.where(random.random(500) < 0.4, "f", "m"), "age": random.uniform(20, 90, 500)}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_row_of_each_person_is_charged_for_persons_and_never_beside_rows(table, books):
    """Its statement speaks of rows, and each of them is a person's: rows of that person are others'."""
    table = table | {"id": np.arange(500) // 2}
    books.declare("persons", pmc.Target(epsilon=5.0, delta=1e-6), unit="id")
    asked = {"by": ["sex"], "epsilon": 0.5, "ledger": books}
    pmc.describe(table, ONE_ROW, dataset="persons", **asked)
    with pytest.raises(pmc.LedgerError, match="kept for rows"):
        pmc.describe(table, ONE_ROW, dataset="people", **asked)
    with pytest.raises(pmc.LedgerError, match="kept for persons"):
        pmc.describe(table, SCHEMA, dataset="persons", **asked)
    assert len(books.history()) == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_two_readings_of_a_column_of_identifiers_are_two_data_sets(table, books):
    """Where some identifiers are codes of missing values, persons are others than those charged before."""
    again = schema(*FIELDS, person("id", missingValues=["", "7"]), private_mcmc=UNIT)
    table = table | {"id": np.arange(500) // 2}
    books.declare("persons", pmc.Target(epsilon=5.0, delta=1e-6), unit="id")
    asked = {"by": ["sex"], "epsilon": 0.5, "ledger": books, "dataset": "persons", "n": 250}
    for _ in range(2):
        pmc.describe(table, VISITS, **asked)
    with pytest.raises(pmc.LedgerError, match="not the data"):
        pmc.describe(table, again, **asked)
    assert len(books.history()) == 2


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_to_one_row_of_each_person_is_charged_for_persons(table, books):
    asked = {"epsilon": 0.5, "ledger": books, "dataset": "people", "progress_bar": False}
    with pytest.raises(pmc.LedgerError, match="kept for rows"):
        pmc.fit(table | {"id": np.arange(500)}, ONE_ROW, "sex ~ age", **asked)
    assert not books.history()


def values(found, statistic, field="", level="", cell="everyone"):
    return next(
        line["value"]
        for line in found.lines()
        if (line["statistic"], line["field"], line["level"], line["cell"]) == (statistic, field, level, cell)
    )


def test_a_large_budget_gives_the_tables_own_numbers(table):
    with pytest.warns(UserWarning):
        found = pmc.describe(table, SCHEMA, by=["sex"], means=["age"], epsilon=1e4, delta=1e-6)
    women = table["sex"] == "f"
    assert values(found, "count", cell="sex f") == pytest.approx(women.sum(), abs=0.5)
    assert values(found, "mean", "age", cell="sex f") == pytest.approx(table["age"][women].mean(), abs=0.1)
    assert values(found, "sd", "age") == pytest.approx(table["age"].std(), abs=0.1)
    frame = found.answers()
    assert list(frame) == ["cell", "field", "level", "statistic", "value", "low", "high"]
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(found.lines())


def test_an_sd_that_noise_drowns_is_not_shown_as_nought(table):
    """An sd of 0, from 0 to 1.2e4, was shown where the estimate of the variance was below 0."""
    for epsilon in (0.01, 0.02, 0.05):
        with pytest.warns(UserWarning):
            found = pmc.describe(table, SCHEMA, means=["age"], epsilon=epsilon, delta=1e-6)
        line = next(one for one in found.lines() if one["statistic"] == "sd")
        assert line["value"] is None or 0 < line["low"] + line["value"] <= 2 * line["high"]


def test_a_share_of_the_ledgers_squared_budget_is_what_is_charged(table, books):
    found = pmc.describe(table, SCHEMA, share=0.05, ledger=books, dataset="people")
    balance = books.balance("people")
    assert float(balance.spent / balance.filter.limit) == pytest.approx(0.05, rel=1e-6)
    assert found.price.gdp**2 <= 0.05 * float(balance.filter.limit)
    assert found.delta == 1e-6 and found.price.epsilon(1e-6) == found.epsilon
    assert [charge.outcome for charge in books.history("people")] == ["released"]


def saved(folder, table, books, **asked):
    paid = Books(share=0.05, charged=pmc.Bookkeeping(books, "people"))
    with new_dossier(folder) as dossier:
        planned = plan_query(table, description(SCHEMA, **asked), paid, "replace_one", None)
        dossier.write(planned.run(dossier.keep))
    return folder


def test_a_dossier_is_verified_with_the_ledger_and_read_back(table, books, tmp_path):
    folder = saved(tmp_path / "table", table, books)
    found = verify_dossier(folder, books)
    assert found and found.compared_with == ("the ledger",)
    assert {
        one.result
        for one in found.checks
        if one.what in ("question, sums and row bounds", "the page, made again", "the charge in the ledger")
    } == {"agrees"}
    assert isinstance(load_record(folder), pmc.Query)
    assert "female" not in (folder / "answers.csv").read_text()


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "edit",
    [
        lambda record: record.update(gdp=record["gdp"] / 2),
        lambda record: record["question"].update(by=["sex"]),
        lambda record: record["question"].update(shown=["sex"]),
        lambda record: record.update(released=record["released"][:-1]),
        lambda record: record.update(epsilon=record["epsilon"] / 2),
        lambda record: record["statement"]["argument"]["constants"].update(scale=1.0),
        lambda record: record["rows"]["age"].update(box={"lo": 0.0, "hi": 1.0}),
        lambda record: record.update(adjacency="add_remove"),
    ],
)
def test_a_record_that_was_edited_is_not_consistent_even_under_its_own_new_hash(table, books, tmp_path, edit):
    folder = saved(tmp_path / "table", table, books)
    record = json.loads((folder / "study.json").read_text())
    edit(record)
    record.pop("fingerprint"), record.pop("files")
    (folder / "study.json").write_text(json.dumps(record))
    try:
        made = load_record(folder)
        (folder / "study.json").write_text(made.to_json())
        finish(folder, made)
    except pmc.PrivateMCMCError:
        pass
    assert not verify_dossier(folder)


def test_noise_that_is_changed_is_told_by_the_ledger(table, books, tmp_path):
    folder = saved(tmp_path / "table", table, books)
    made = load_record(folder)
    finish(folder, replace(made, released=(made.released[0] + 100, *made.released[1:])))
    assert verify_dossier(folder)
    assert not verify_dossier(folder, books)


def test_a_release_that_cannot_be_kept_leaves_its_charge_open(table, books):
    def keep(_):
        raise OSError("no space")

    asked = Books(share=0.05, charged=pmc.Bookkeeping(books, "people"))
    with pytest.warns(UserWarning, match="not on disk"):
        plan_query(table, description(SCHEMA), asked, "replace_one", None).run(keep)
    assert [charge.outcome for charge in books.history("people")] == ["reserved"]


def test_nothing_is_summed_before_it_is_charged(table, books, monkeypatch):
    events = []
    before, reserve = SumsPlan.noised, pmc.Ledger.reserve
    monkeypatch.setattr(
        SumsPlan, "noised", lambda self, exact: events.append("noised") or before(self, exact)
    )
    monkeypatch.setattr(
        pmc.Ledger, "reserve", lambda self, *a, **k: events.append("charged") or reserve(self, *a, **k)
    )
    pmc.describe(table, SCHEMA, share=0.05, ledger=books, dataset="people")
    assert events == ["charged", "noised"]


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove", "zero_out"])
def test_persons_with_several_rows_count_once_and_are_the_unit_of_the_statement(adjacency):
    visits = {"id": list("aaabbc"), "sex": list("fffmmm"), "age": [10.0, 20, 30, 40, 60, 70]}
    with pytest.warns(UserWarning):
        found = pmc.describe(
            visits, VISITS, means=["age"], fields=["sex"], epsilon=1e7, delta=1e-6, n=9, adjacency=adjacency
        )
    assert found.price.unit.name == "id" and found.price.unit.rows == 3
    assert values(found, "count") == pytest.approx(3, abs=0.05)
    assert values(found, "count", "sex", "f") == pytest.approx(1, abs=0.05)
    assert values(found, "mean", "age") == pytest.approx((20 + 50 + 70) / 3, abs=0.5)


def test_codes_of_missing_values_are_counted_as_missing_and_are_in_no_mean():
    fields = [
        FIELDS[0] | {"missingValues": ["9"], "private_mcmc": {"missing": "indicator"}},
        FIELDS[1] | {"missingValues": ["", "99"], "private_mcmc": {"missing": "indicator"}},
    ]
    table = {"sex": ["f", "9", "m", "f", "f"], "age": ["10", "99", "30", "", "50"]}
    with pytest.warns(UserWarning):
        found = pmc.describe(table, schema(*fields), epsilon=1e7, delta=1e-6)
    assert values(found, "count", "sex", "missing") == pytest.approx(1, abs=0.05)
    assert values(found, "count", "age", "missing") == pytest.approx(2, abs=0.05)
    assert values(found, "mean", "age") == pytest.approx(30, abs=0.3)
    assert 25 <= values(found, "quantile 0.5", "age") <= 37.5


def test_page_terminal_and_file_have_the_same_numbers_and_say_where_there_are_too_few(
    table, books, tmp_path, monkeypatch
):
    # Three people are within the noise of nobody; what is drawn of it would hide that in one run of eight.
    monkeypatch.setattr(SumsPlan, "noised", lambda self, exact: exact)
    table["sex"][:] = "m"
    table["sex"][:3] = "f"
    folder = saved(tmp_path / "table", table, books, by=["sex"], means=["age"])
    found = load_record(folder)
    lines, terminal = pandas.read_csv(folder / "answers.csv"), Console(file=io.StringIO(), width=80)
    found.report().show(terminal)
    shown = terminal.file.getvalue()
    page = (folder / "dossier.html").read_text()
    men = next(one for one in found.lines() if one["cell"] == "sex m" and one["statistic"] == "mean")
    assert lines.query("cell == 'sex m' and statistic == 'mean'").value.item() == pytest.approx(men["value"])
    assert lines.query("cell == 'sex f' and statistic == 'mean'").value.isna().all()
    for text in (page, shown):
        assert report.number(men["value"]) in text and "too few people" in text and "alone" in text


def test_a_released_table_is_averaged_over_as_often_as_one_likes(table, books, tmp_path):
    """Women are old in the table, which the middle of the declared range knows nothing of."""
    table["age"] = np.where(table["sex"] == "f", 70.0, 30.0)
    folder = saved(tmp_path / "t", table, books, by=["sex", "age"], bins={"age": [0, 50, 60, 100]})
    made = design(read_formula("sex ~ age", SCHEMA), SCHEMA, family("bernoulli"))
    answers = Answers(made, {"Intercept": np.zeros(9), "age": np.full(9, 0.4)})
    people, weights = people_of(answers, folder)
    ages = np.array([float(one["age"]) for one in people])
    assert set(one for one in map(len, people)) == {1} and len(weights) == len(people)
    assert (ages > 60).mean() == pytest.approx((table["sex"] == "f").mean(), abs=0.1)
    assert people_of(answers, folder)[0] == people
    assert len(books.history("people")) == 1


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_released_table_makes_the_next_fits_prediction_one_for_its_people(books):
    """Ages fill a tenth of the declared range: effects have several times the sd of synthetic ones."""
    random = np.random.default_rng(0)
    sexes = [{"value": "f", "label": "female"}, {"value": "m", "label": "male"}]
    labelled_sex = {"name": "sex", "categories": sexes}
    labelled = schema(labelled_sex, number("age", 0, 100, unit="years"))
    table = {"sex": np.where(random.random(4000) < 0.5, "f", "m"), "age": random.uniform(60, 70, 4000)}
    bins = {"age": [0, 50, 60, 65, 70, 80, 100]}
    told = pmc.describe(table, labelled, bins=bins, share=0.1, ledger=books, dataset="people")
    asked = question(labelled, "sex ~ age")
    plans = [
        plan_fit(table, asked, epsilon=1.0, described=one, progress_bar=False).plan for one in (None, told)
    ]
    blind, seen = ({one.name: one for one in each.prediction.coefficients}["age"].sd for each in plans)
    true = 2 / np.sqrt(len(table["age"])) / table["age"].std()
    assert true / 2 < seen < 2 * true and blind < 0.5 * true
    assert "as described" in str(plans[1].report().to_dict())
    assert plans[0].statement.to_dict() == plans[1].statement.to_dict()
    with pytest.raises(pmc.DeclarationError, match="a table that describe released"):
        plan_fit(table, asked, epsilon=1.0, described=study_of(), progress_bar=False)
    # What changed since, and does not matter to these people: a range, its title and fates, a label.
    again = number("age", 0, 65, title="Age", missingValues=["60"], own={"outside": "nearest"})
    codes = {"name": "sex", "categories": [{"value": "m", "label": "men"}, {"value": "f", "label": "women"}]}
    found = described_people(question(schema(codes, again), "sex ~ age"), told)
    assert found["sex"].mean() == pytest.approx(0.5, abs=0.1) and 60 <= np.median(found["age"]) <= 65
    for field, words in (
        (number("age", 0, 100, unit="months"), "was in years, not months"),
        (levels("age", "old", "young"), "had numbers, not levels"),
    ):
        other = question(schema(labelled_sex, field), "sex ~ age")
        with pytest.raises(pmc.DeclarationError, match=words):
            described_people(other, told)
    assert len(books.history("people")) == 1


def test_a_row_that_counts_for_nothing_is_in_no_cell():
    fields = [FIELDS[0] | {"missingValues": ["?"], "private_mcmc": {"missing": "drop"}}, FIELDS[1]]
    table = {"sex": ["f", "?", "m", "f"], "age": [10.0, 99.0, 30, 50]}
    with pytest.warns(UserWarning):
        asked = {"epsilon": 1e7, "delta": 1e-6, "n": 4, "adjacency": "zero_out"}
        found = pmc.describe(table, schema(*fields), means=["age"], fields=["sex"], **asked)
    assert values(found, "count") == pytest.approx(3, abs=0.05)
    assert values(found, "mean", "age") == pytest.approx(30, abs=0.3)


def test_rows_under_a_hidden_number_lie_in_slots_drawn_at_random(table, monkeypatch):
    seen, before = [], placing.partitions_of
    monkeypatch.setattr(placing, "partitions_of", lambda *given: seen.append(given[-1]) or before(*given))
    for _ in range(2):
        plan_query(table, description(SCHEMA), Books(1.0), "add_remove", 600)
    assert all(sorted(order) == list(range(600)) for order in seen)
    assert not np.array_equal(seen[0], seen[1])


def test_no_check_of_values_ends_a_query_at_a_row_whose_term_is_no_number():
    """Set to look for such values, JAX told by an error that there was such a row."""
    mechanism = plan_sums(1.0, [Family("logarithms", 1, 1)], num_rows=9, adjacency="replace_one")
    rows, columns = pmc.Rows(x=pmc.Box(-1.0, 1.0)), {"x": np.linspace(-1, 1, 9)}
    with np.errstate(all="raise"), jax.debug_nans(True), jax.debug_infs(True):
        found = sums.row_sums(
            lambda row: [(jnp.asarray(0), jnp.log(row["x"]))],
            rows,
            mechanism,
            columns,
            pmc.Target(1.0, 1e-6),
            False,
        )
    # Of the nine only four have a logarithm, none above 0; that of 0 counts as −1, and no number as 0.
    wanted = np.log([0.25, 0.5, 0.75, 1]).clip(-1).sum() - 1
    np.testing.assert_allclose(found, [9, wanted], atol=1e-5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give epsilon"),
        ({"epsilon": 1.0, "share": 0.1}, "not both"),
        ({"share": 0.1}, "give ledger and dataset"),
        ({"epsilon": 1.0, "dataset": "people"}, "or neither"),
        ({"epsilon": 1.0, "adjacency": "add_remove"}, "hides the number"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_is_spent(table, given, words):
    with pytest.raises(pmc.DeclarationError, match=words):
        pmc.describe(table, SCHEMA, **given)
