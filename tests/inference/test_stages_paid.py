"""A plan is charged stage by stage: what it has not bought is free again, and what it has stays spent."""

import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from threadpoolctl import threadpool_info, threadpool_limits
from typer.testing import CliRunner

import private_mcmc as pmc
from private_mcmc import accounting
from private_mcmc.cli import app
from private_mcmc.dossier import verify_dossier
from private_mcmc.dossier.folder import RELEASE, finish, held, load_record, new_dossier
from private_mcmc.dossier.record import KNOWN
from private_mcmc.errors import OutputError
from private_mcmc.inference.fitting import plan_fit, resume
from private_mcmc.inference.question import question
from private_mcmc.inference.raw_release import authenticated, completed
from private_mcmc.planning import Policy
from private_mcmc.release.ledger_state import Filter
from tests.data import fields

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("draws_of_the_path")]
TARGET = pmc.Target(3.0, 1e-5)
N = 2000


def schema_of(**ours):
    return fields.schema(fields.number("age", 18, 95, own=ours, missingValues=["-1"]), fields.flag("died"))


@pytest.fixture
def books(tmp_path):
    ledger = pmc.Ledger.create(tmp_path / "books")
    ledger.declare("people", TARGET)
    return ledger


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 90, N)
    return {"age": age, "died": rng.random(N) < age / 100}


def fitted(table, ledger, schema=None, **more):
    """A fit for 1-DP of the budget of 3."""
    given = {"epsilon": 1.0, "delta": 1e-5, "ledger": ledger, "dataset": "people", "progress_bar": False}
    return pmc.fit(table, schema or schema_of(), "died ~ age", **given | more)


def planned_fit(table, schema=None, asked=None):
    asked = asked or question(schema or schema_of(), "died ~ age")
    return plan_fit(table, asked, epsilon=1.0, delta=1e-5, progress_bar=False)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "study"


@pytest.fixture
def go_on(place, table, books):
    """Resume the fit in ``place``."""
    return partial(resume, place, table, books, progress_bar=False)


def left(ledger):
    return ledger.balance("people").remaining


def test_a_plan_that_is_stopped_gives_back_what_it_has_not_bought_and_states_it_all(table, books, place):
    whole, looked = left(books), []
    study = fitted(table, books, stop_if=lambda expected: looked.append(expected.rms) or True)
    (charge,) = books.history("people")
    bought = study.price.parts
    budget = accounting.gdp.budget(1.0, 1e-5)
    assert len(looked) == 1 and study.stopped and not study.draws and bought
    assert charge.outcome == "stopped" and float(charge.charged) < 0.5 * budget**2
    assert left(books) == whole - sum(map(Filter.of(TARGET).cost, bought)) == whole - charge.spent
    # By itself the study is as private as the budget that it was given.
    assert study.price.gdp == pytest.approx(budget, rel=1e-9)
    folder = study.save(place)
    assert verify_dossier(folder, books) and "stopped" in (folder / "dossier.html").read_text()
    assert all(stage["values"] for stage in study.stages)
    books.verify()


def test_the_sum_of_what_was_bought_is_no_statement_of_a_study_that_was_stopped(table, books, tmp_path):
    """The mistake that a filter invites: stages chosen from releases are not as private as their sum."""
    study = fitted(table, books, stop_if=lambda expected: True)
    realised = sum(part.gdp**2 for part in study.price.parts) ** 0.5
    smaller = accounting.adaptive(realised * (1 + 1e-12), study.adjacency, study.price.parts)
    assert smaller.verify()
    wrong = study.__class__(**study.to_dict() | {"statement": smaller.to_dict()})
    found = {one.what: one.result for one in verify_dossier(wrong.save(tmp_path / "wrong"), books).checks}
    assert found["the stages' prices"] == found["the charge in the ledger"] == "differs"


def test_a_plan_that_runs_to_its_end_keeps_its_whole_charge(table, books, place):
    whole, looked = left(books), []
    study = fitted(table, books, stop_if=lambda expected: bool(looked.append(expected)))
    (charge,) = books.history("people")
    assert len(looked) == 1 and charge.outcome == "released" and not study.stopped
    assert left(books) == whole - charge.cost
    assert [one for one, _ in charge.stages] == [part.to_dict() for part in study.price.parts]
    assert verify_dossier(study.save(place), books)


def test_a_stage_that_fails_stays_spent_and_the_rest_is_free_again(table, books, monkeypatch):
    whole = left(books)

    def breaks(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("private_mcmc.inference.execute_plan.PlannedRun._path", breaks)
    with pytest.raises(KeyboardInterrupt):
        fitted(table, books)
    (charge,) = books.history("people")
    assert charge.outcome == "kept" and 0 < charge.charged < charge.cost
    assert json.loads(json.dumps(charge.stages[-1][0]))["argument"]["rule"] == "langevin"
    assert left(books) == whole - charge.charged


def test_what_stops_a_run_after_its_last_stage_changes_no_charge(table, books, monkeypatch, place):
    """It was settled as failed, and the dossier that ``report`` made of it was refused.

    With as many threads as in a run, by whose number last bits of wide matrices differ.
    """
    threads = set()

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    def chosen(policy, history, choose=Policy.next):
        threads.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return choose(policy, history)

    planned = planned_fit(table)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("private_mcmc.inference.execute_plan.outcome_of", interrupted)
        with new_dossier(place) as dossier:
            planned.run(ledger=books, dataset="people", progress_bar=False, keep=dossier.keep)
    (charge,) = books.history("people")
    assert charge.outcome == "released"
    monkeypatch.setattr(Policy, "next", chosen)
    with threadpool_limits(2, "blas"):
        study = completed(place, None, books)
    assert threads == {1}
    assert study.draws and verify_dossier(study.save(place.with_name("again")), books)


@pytest.fixture
def killed(monkeypatch, table, books, place):
    """A fit that ends, as a process that is killed does, where ``name`` is called: nothing is settled.

    Without a name: after its cheap stages.
    """

    class Killed(BaseException):
        pass

    left_behind = place.with_name("killed")

    def dies(*args, **kwargs):
        shutil.copytree(place, left_behind)
        raise Killed

    def kill(name=None, schema=None, asked=None, max_error=None):
        planned = replace(planned_fit(table, schema, asked), max_error=max_error)
        with monkeypatch.context() as patch, pytest.raises(Killed):
            if name is not None:
                patch.setattr(name, dies)
            patch.setattr(pmc.Ledger, "settle", lambda *args: None)
            with new_dossier(place) as dossier:
                look = dies if name is None else None
                planned.run(ledger=books, dataset="people", progress_bar=False, keep=dossier.keep, look=look)
        shutil.rmtree(place, ignore_errors=True)
        left_behind.rename(place)

    return kill


def test_bounds_are_on_disk_before_the_plan_is_made_and_not_bought_again(books, killed, place, go_on):
    """A kill while the plan was made lost them."""
    schema = schema_of(bounds="private")
    killed("private_mcmc.inference.fitting.plan_asked", schema)
    raw = json.loads((place / RELEASE).read_text())
    (charge,) = books.history("people")
    assert raw["prediction"] is None and len(charge.stages) == len(raw["before"]) == 1
    study = go_on()
    (charge,) = books.history("people")
    assert json.loads(json.dumps(study.schema)) == raw["about"]["schema"] and charge.outcome == "released"
    assert len(study.price.parts) == len(charge.stages)
    assert verify_dossier(study.save(place.with_name("again")), books)


def test_a_fit_that_was_killed_before_it_bought_bounds_costs_nothing(books, killed, place, go_on):
    """Nothing told of its charge, and the whole budget stayed set aside."""
    whole = left(books)
    killed("private_mcmc.Ledger.stage", schema_of(bounds="private"))
    with pytest.raises(pmc.DeclarationError, match="before it bought its bounds"):
        go_on()
    assert left(books) < whole and "stopped" in completed(place, None, books).title
    assert left(books) == whole


@pytest.mark.parametrize("name", [None, "private_mcmc.release.ledger.Ledger.stage"])
def test_a_fit_that_was_killed_between_stages_goes_on_with_those_it_has(books, name, killed, place, go_on):
    """Before the first of them too: nothing told of its charge, and the whole budget stayed set aside."""
    killed(name)
    before = books.history("people")[0].stages
    text = (place / RELEASE).read_text()
    raw = {name: value for name, value in json.loads(text).items() if name != "code"}
    again = authenticated(lambda made: (place / RELEASE).write_text(json.dumps(made)), books)
    again(raw | {"model": "0" * 64})
    with pytest.raises(pmc.DeclarationError, match="another model"):
        go_on()
    (place / RELEASE).write_text(text)
    study = go_on(look=lambda plan, releases: False)
    (charge,) = books.history("people")
    assert charge.stages[: len(before)] == before and charge.outcome == "released"
    assert verify_dossier(study.save(place.with_name("again")), books)
    with pytest.raises(pmc.LedgerError, match="open"):
        go_on()


def test_a_fit_killed_before_its_first_stage_or_without_room_costs_nothing(table, books, killed, place):
    whole = left(books)
    killed("private_mcmc.release.ledger.Ledger.stage")
    assert left(books) < whole and "stopped" in completed(place, None, books).title
    assert left(books) == whole
    planned = planned_fit(table)

    def full(release):
        raise OutputError("no room")

    with pytest.raises(OutputError, match="no room"):
        planned.run(ledger=books, dataset="people", progress_bar=False, keep=full)
    assert left(books) == whole and not books.history("people")[-1].stages


def test_a_ledger_that_cannot_be_written_leaves_what_ends_its_charge(table, books, monkeypatch, place):
    """The folder went, and the whole budget stayed set aside."""

    def full(*args):
        raise pmc.LedgerError("no room")

    whole = left(books)
    planned = planned_fit(table)
    with monkeypatch.context() as patch, pytest.raises(pmc.LedgerError), new_dossier(place) as dossier:
        patch.setattr(pmc.Ledger, "stage", full)
        patch.setattr(pmc.Ledger, "settle", full)
        planned.run(ledger=books, dataset="people", progress_bar=False, keep=dossier.keep)
    assert left(books) < whole and "stopped" in completed(place, None, books).title
    assert left(books) == whole


def test_a_fit_that_is_resumed_stops_at_the_error_at_which_the_first_one_would_have(killed, go_on):
    killed(max_error=1e-9)
    assert go_on().stopped


@pytest.mark.parametrize("gone", [1e300, np.nan])
def test_a_fit_whose_path_diverges_shows_what_it_paid_for_alone(table, books, monkeypatch, gone, place):
    """Its means were NaN or millions, with a remark on slow chains."""
    path = "private_mcmc.inference.execute_plan.PlannedRun._path"
    monkeypatch.setattr(path, lambda run, stage, *_: np.full((stage.schedule.num_steps, 2), gone))
    study = fitted(table, books)
    assert "The path diverged" in study.warnings[-1] and not study.draws
    assert all(np.all(np.isfinite(one["values"])) for one in study.stages)
    assert verify_dossier(study.save(place), books)
    with pytest.raises(pmc.NotYetSupported, match="diverged"):
        study.answers()


def test_what_a_running_fit_has_bought_is_neither_ended_nor_bought_again(books, killed, place, go_on):
    """A second process settled its charge, or charged a stage twice: then neither could buy the last one."""
    killed()
    with held(place):
        for more in (lambda: completed(place, None, books), go_on):
            with pytest.raises(OutputError, match="still works on it"):
                more()
    assert books.history("people")[0].outcome == "reserved"


@pytest.mark.parametrize("another", [held, new_dossier])
def test_a_folder_is_held_while_its_dossier_is_made(another, place):
    with new_dossier(place), pytest.raises(OutputError, match="still works on it"), another(place):
        pass


def test_a_charge_whose_run_was_killed_after_its_last_stage_is_settled_with_its_study(books, killed, place):
    """It stayed open, for more stages."""
    killed("private_mcmc.inference.execute_plan.outcome_of")
    (own,), release = books.history("people"), place / RELEASE
    price = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=99.0)
    another, whole = books.reserve("people", price, purpose="of another run"), release.read_text()
    raw = json.loads(whole.replace(own.identity, another.identity))
    del raw["code"]
    authenticated(lambda made: release.write_text(json.dumps(made)), books)(raw)
    with pytest.raises(pmc.DeclarationError, match="another statement"):
        completed(place, None, books)
    release.write_text(whole)
    assert own.outcome == "reserved" and completed(place, None, books).draws
    assert [charge.outcome for charge in books.history("people")] == ["released", "reserved"]


def test_a_stage_whose_release_was_lost_is_not_bought_again_and_the_rest_is_free(books, killed, place, go_on):
    whole = left(books)
    path = "private_mcmc.inference.execute_plan.PlannedRun._path"
    killed(path)
    with pytest.raises(pmc.DeclarationError, match="nothing is bought twice"):
        go_on()
    (charge,) = books.history("people")
    assert left(books) == whole - charge.cost  # open: all is set aside
    study = completed(place, None, books)
    (charge,) = books.history("people")
    assert left(books) == whole - charge.charged and study.stopped
    assert len(charge.stages) == len(study.stages) + 1
    assert verify_dossier(study.save(place.with_name("again")), books)


def test_a_release_that_was_changed_is_told_to_no_ledger(table, books, killed, place, go_on):
    """Other numbers became the study that the ledger knew; a page made without it, and then changed, too."""
    killed("private_mcmc.inference.execute_plan.outcome_of")
    release, told = place / RELEASE, ("report", str(place), "--ledger", str(books.path))
    whole = release.read_text()
    raw = json.loads(whole)
    raw["stages"][-1]["values"][-1][0] = 0.125
    for changed in (raw, {name: value for name, value in raw.items() if name != "code"}):
        release.write_text(json.dumps(changed))
        for wrong in (lambda: completed(place, None, books), go_on):
            with pytest.raises(pmc.LedgerError, match="was changed after"):
                wrong()
    assert CliRunner().invoke(app, told[:2]).exit_code == 0 and release.exists()
    assert isinstance(CliRunner().invoke(app, told).exception, pmc.LedgerError)
    kept = release.rename(place / "kept")
    assert isinstance(CliRunner().invoke(app, told).exception, pmc.DeclarationError)
    (charge,) = books.history("people")
    assert charge.outcome == "reserved" and not charge.dossiers
    kept.rename(release).write_text(whole)
    assert CliRunner().invoke(app, told).exit_code == 0 and not release.exists()
    release.write_text(whole)
    KNOWN.clear()  # another process, which did not see whether the ledger was told
    finish(place, load_record(place))
    assert release.exists() and CliRunner().invoke(app, told).exit_code == 0 and not release.exists()
    assert load_record(place).created == raw["about"]["created"]  # a page that was signed stays the same
    assert verify_dossier(place, books).compared_with == ("the ledger",)


def test_other_rows_do_not_go_on_with_a_fit(table, books, killed, place):
    killed()
    with pytest.raises(pmc.LedgerError, match="not the data"):
        resume(place, {**table, "age": table["age"][::-1].copy()}, books, progress_bar=False)


def with_scale(scale):
    def model(age, died):
        slope = numpyro.sample("slope", dist.Normal(0, scale))
        with numpyro.plate("rows", len(age)):
            numpyro.sample("died", dist.Bernoulli(logits=slope * age / 100), obs=died)

    return model


@pytest.mark.long
def test_bounds_that_were_bought_for_one_model_are_not_used_by_another(killed, go_on):
    """The study would show the first one's text, and what is proved of the second."""
    schema = schema_of(bounds="private")
    asked = replace(question(schema, model=with_scale(1.0)), source="one")
    killed("private_mcmc.inference.fitting.plan_asked", schema, asked)
    with pytest.raises(pmc.DeclarationError, match="another model"):
        go_on(model=with_scale(9.0), source="another", look=lambda *_: True)
    assert go_on(model=with_scale(1.0), source="one", look=lambda *_: True).model == "one"
