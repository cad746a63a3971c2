"""What was paid for is never lost: at every moment at which a run may be killed, its release is on disk.

A killed process leaves its files as they are. So a run is made once, and its files are copied before every
call that changes one of them: each copy is what a kill at that call leaves.
"""

import csv
import json
import os
import shutil

import numpy as np
import pytest
from typer.testing import CliRunner

import private_mcmc as pmc
from private_mcmc.cli import app
from private_mcmc.dossier.folder import RELEASE, NewDossier, held, is_raw
from tests.cli.test_commands import MODEL
from tests.cli.test_commands import SCHEMA as ROWS

pytestmark = pytest.mark.usefixtures("draws_of_the_path")
# By which a process changes files.
CALLS = ("write", "pwrite", "ftruncate", "fsync", "replace", "rename", "link", "unlink", "open")
SCHEMA = """\
fields:
  - {name: age, type: number, constraints: {minimum: "20", maximum: "90"}BOUNDS}
  - {name: died, type: boolean}
"""


@pytest.fixture
def here(tmp_path):
    """A folder with a table, its schema, and a ledger that knows it."""
    rng = np.random.default_rng(3)
    with (tmp_path / "people.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "died"])
        table.writerows([f"{age:.1f}", "true" if age > 60 else "false"] for age in rng.uniform(20, 90, 400))
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("BOUNDS", ""))
    pmc.Ledger.create(tmp_path / "ledger").declare("people", pmc.Target(3.0, 1e-5))
    return tmp_path


def copies(here, monkeypatch, work):
    """The folder before every call that changes a file, and after the last one."""
    found, inside = [], []

    def watched(name, real):
        def call(*args, **named):
            reads = name == "open" and not args[1] & (os.O_WRONLY | os.O_RDWR)
            if not (reads or inside):
                inside.append(name)
                place = here.with_name(f"{here.name}-{len(found)}")
                shutil.copytree(here, place)
                found.append(place)
                inside.clear()
            return real(*args, **named)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, watched(name, getattr(os, name)))
        work()
    return [*found, here]


def command(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result


def charged(here, name, *more):
    books = ("--out", here / "study", "--ledger", here / "ledger", "--dataset", "people", "--yes")
    return command(name, here / "people.csv", "--schema", here / "schema.yaml", "--epsilon", 1, *books, *more)


def fit(here, *more, asked=("--formula", "died ~ age")):
    return charged(here, "fit", *asked, *more)


def outcomes(place):
    return [charge.outcome for charge in pmc.Ledger(place / "ledger").history("people")]


def released(place):
    """Whether the release is on disk: the record, or all that it is made from."""
    folder = place / "study"
    if is_raw(folder):
        return bool(json.loads((folder / RELEASE).read_text())["stages"])
    return (folder / "study.json").exists() and bool(pmc.Study.load(folder).draws)


def written(dossier, study, write=NewDossier.write):
    """As it is written, while nobody else gets the folder: two could write parts of one dossier."""
    with pytest.raises(pmc.errors.OutputError, match="still works on it"), held(dossier._place):
        pass
    write(dossier, study)


@pytest.mark.long
@pytest.mark.parametrize("own", [False, True], ids=["a formula", "a model of one's own"])
def test_nothing_is_charged_as_released_without_its_release_on_disk(here, monkeypatch, own):
    model, asked = (), ("--formula", "died ~ age")
    if own:
        (here / "model.py").write_text(MODEL)
        (here / "schema.yaml").write_text(ROWS)
        rng = np.random.default_rng(4)
        lines = ([*rng.uniform(-0.7, 0.7, 2), int(rng.random() < 0.4)] for _ in range(400))
        with (here / "people.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["age", "income", "y"], *lines])
        model = ("--model", f"{here / 'model.py'}:model")
        asked = (*model, "--delta", 1e-5)
    every = copies(here, monkeypatch, lambda: fit(here, asked=asked))
    settled = [place for place in every if "released" in outcomes(place)]
    raw = [place for place in settled if is_raw(place / "study")]
    assert len(every) > 20 and raw and raw != settled
    assert all(map(released, settled))
    # From one that was killed before there was a record: the same study, known to the ledger.
    place = raw[0]
    if own:
        refused = CliRunner().invoke(app, ["report", str(place / "study")])
        assert "--model FILE.py:FUNCTION" in str(refused.exception)
    with monkeypatch.context() as patch:
        patch.setattr(NewDossier, "write", written)
        command("report", place / "study", *model, "--ledger", place / "ledger")
    again, made = pmc.Study.load(place / "study"), pmc.Study.load(here / "study")
    assert again.draws == made.draws and again.statement == made.statement and again.ledger == made.ledger
    assert not (place / "study" / RELEASE).exists() and not (here / "study" / RELEASE).exists()
    command("verify", place / "study", "--ledger", place / "ledger")


@pytest.mark.long
def test_a_query_killed_anywhere_is_completed_and_verified_once_its_sums_are_on_disk(here, monkeypatch):
    """Its charge stayed open, and the ledger knew no dossier of it."""
    every = copies(here, monkeypatch, lambda: charged(here, "describe"))
    raw = 0
    for place in every:
        folder = place / "study"
        raw += is_raw(folder)
        if is_raw(folder) or any(one.stat().st_size for one in folder.glob("study.json")):
            command("report", folder, "--ledger", place / "ledger")
            command("verify", folder, "--ledger", place / "ledger")
            assert outcomes(place) == ["released"]
        else:
            assert outcomes(place) in ([], ["reserved"])
    assert len(every) > 20 and raw


@pytest.mark.long
@pytest.mark.parametrize(
    ("failure", "bounds"),
    [(pmc.errors.OutputError("no room"), ", private_mcmc: {bounds: private}"), (MemoryError("no room"), "")],
)
def test_a_charge_of_what_is_in_memory_alone_stays_open_and_is_handed_on(here, monkeypatch, failure, bounds):
    def full(_, release):
        if release["stages"] or release["before"]:
            raise failure

    text = SCHEMA.replace('"90"}BOUNDS', f'"90"}}{bounds}')
    (here / "schema.yaml").write_text(text)
    monkeypatch.setattr(NewDossier, "keep", full)
    assert fit(here).output.count("not on disk") == 1
    assert outcomes(here) == ["reserved"] and pmc.Study.load(here / "study").draws
    command("verify", here / "study", "--ledger", here / "ledger")


@pytest.mark.long
def test_a_resumed_fit_that_is_killed_anywhere_loses_no_more_than_the_stage_that_ran(here, monkeypatch):
    """Each copy of the files goes on, is complete, or gives back what it has not bought; in as few passes."""
    every = copies(here, monkeypatch, lambda: fit(here, "--max-passes", 40))
    bought = [
        (place, len(json.loads((place / "study" / RELEASE).read_text())["stages"]))
        for place in every
        if is_raw(place / "study") and outcomes(place) == ["reserved"]
    ]
    start = next(place for place, stages in bought if stages == len(charge_of(place).stages) == 1)
    words = ("resume", start / "study", start / "people.csv", "--ledger", start / "ledger")
    monkeypatch.setattr(NewDossier, "write", written)
    again = copies(start, monkeypatch, lambda: command(*words))
    ended = set()
    for one in [*again[:: max(1, len(again) // 8)], *again[-3:]]:
        charge, study = charge_of(one), one / "study"
        if not is_raw(study):
            command("report", study, "--ledger", one / "ledger")
            ended.add("complete")
        else:
            result = CliRunner().invoke(
                app, ["resume", str(study), str(one / "people.csv"), "--ledger", str(one / "ledger")]
            )
            if result.exit_code:
                command("report", study, "--ledger", one / "ledger")
                ended.add("ended")
            else:
                ended.add("resumed")
        assert charge_of(one).stages[: len(charge.stages)] == charge.stages
        command("verify", study, "--ledger", one / "ledger")
    assert {"resumed", "ended", "complete"} == ended
    assert pmc.Study.load(start / "study").passes <= 40


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name", "failure"),
    [(pmc.Ledger, "know", KeyboardInterrupt()), (NewDossier, "keep", pmc.errors.OutputError("no room"))],
)
def test_what_a_ledger_was_not_told_of_a_dossier_it_is_told_again_and_once(
    here, monkeypatch, where, name, failure
):
    """A paid dossier could not be verified for ever, and its charge not be settled."""

    def failing(*_):
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(where, name, failing)
        charged(here, "describe")
    record = here / "study" / "study.json"
    whole, own = record.read_text(), charge_of(here).identity
    price = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=4.0)
    another = pmc.Ledger(here / "ledger").reserve("people", price, purpose="of another study")
    told = [json.loads(whole)["fingerprint"]]
    for changed, to in (("people.csv", "others.csv"), (own, another.identity)):
        record.write_text(whole.replace(changed, to))
        CliRunner().invoke(app, ["report", str(here / "study"), "--ledger", str(here / "ledger")])
        assert [charge.dossiers for charge in pmc.Ledger(here / "ledger").history()] == [told, []]
    record.write_text(whole)
    command("report", here / "study", "--ledger", here / "ledger")
    command("verify", here / "study", "--ledger", here / "ledger")
    assert outcomes(here) == ["released", "reserved"]
    record.write_text(record.read_text().replace("people.csv", "others.csv"))
    command("report", here / "study", "--ledger", here / "ledger")
    words = ["verify", str(here / "study"), "--ledger", str(here / "ledger")]
    assert CliRunner().invoke(app, words).exit_code == 1
    pmc.Ledger.create(here / "other").declare("people", pmc.Target(3.0, 1e-5))
    refused = CliRunner().invoke(app, ["report", str(here / "study"), "--ledger", str(here / "other")])
    assert isinstance(refused.exception, pmc.LedgerError)


def charge_of(place):
    return pmc.Ledger(place / "ledger").history("people")[0]
