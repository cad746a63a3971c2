"""A dossier is checked from its folder alone, and nothing in it can be changed without being seen."""

import contextlib
import dataclasses
import io
import json
import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import partial

import arviz
import numpy as np
import pytest
from rich.console import Console

from private_mcmc import DeclarationError, Ledger, OutputError, Study, Target, accounting
from private_mcmc.accounting.conjugate import posterior_conjugate
from private_mcmc.cli.study import report
from private_mcmc.dossier import folder as folders
from private_mcmc.dossier import new_dossier, verify_dossier
from private_mcmc.dossier.claims import checked, recomputed
from private_mcmc.dossier.folder import RELEASE, digest, finish, is_complete
from private_mcmc.dossier.page import page
from private_mcmc.dossier.record import StudyRecord, passes
from private_mcmc.dossier.verify import _charge
from private_mcmc.inference.question import question
from private_mcmc.model import read
from private_mcmc.preflight.certificates import certified_temper
from private_mcmc.release.ledger_state import Filter
from private_mcmc.report import Text
from private_mcmc.target import Unit
from tests.dossier.studies import SCHEMA, books_in, path_of, study_of
from tests.full_disk import full
from tests.schedules import schedule


@pytest.mark.parametrize("rate", [None, 0.25])
def test_passes_are_those_of_the_schedule(rate):
    chain = accounting.langevin_statement(schedule(num_steps=30, num_chains=3, release="path", rate=rate))
    query = accounting.gaussian(adjacency="replace_one", sensitivity=1.0, scale=9.0, what="counts")
    assert passes(chain) == passes(accounting.Statement.from_dict(chain.to_dict())) == 30 * (rate or 1)
    if rate is None:
        both = accounting.adaptive(9.0, "replace_one", (query, chain))
        assert passes(both) == 31


DRAWINGS, PRIVACY = "drawings of the page", "the privacy statement"


def differing(folder, ledger=None):
    return {check.what for check in verify_dossier(folder, ledger).checks if check.result == "differs"}


def changed(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if value == 0 else value * (1 + 1e-6) if isinstance(value, float) else value + 1
    return "x" + value if isinstance(value, str) else 0.5


def leaves(record, path=()):
    """Places of all values that are not containers."""
    if isinstance(record, dict | list):
        items = record.items() if isinstance(record, dict) else enumerate(record)
        for key, value in items:
            yield from leaves(value, (*path, key))
    else:
        yield path


def at(record, path):
    for key in path:
        record = record[key]
    return record


def test_a_dossier_is_verified_anywhere_without_the_table(folder, books):
    found = verify_dossier(folder, books)
    assert found and found.ok
    results = {check.what: check.result for check in found.checks}
    assert list(results.values()).count("agrees") == 11
    assert results["the posterior's certificate"] == "not checked"
    assert verify_dossier(folder / "study.json")
    assert Study.load(folder).fingerprint in (folder / "dossier.html").read_text()
    assert len(repr(Study.load(folder))) < 200


def test_the_first_line_says_what_a_dossier_was_compared_with(folder, books):
    """It said "verified" of whatever is consistent, compared with nothing outside."""
    signed = Study.load(folder).fingerprint
    for given, said in (
        ({}, "consistent; compared with: nothing"),
        ({"ledger": books, "fingerprint": signed}, "consistent; compared with: the ledger and a signature"),
        ({"fingerprint": "0" * 64}, "not consistent; compared with: a signature"),
    ):
        found = verify_dossier(folder, **given)
        assert found.to_dict()["answer"] == found.answer == said
        shown = io.StringIO()
        found.report().show(Console(file=shown, width=200))
        assert shown.getvalue().splitlines()[0] == f"{folder}: {said}"
        assert ("not that it is what ran" in shown.getvalue()) == (
            said.startswith("consistent") and not given
        )


@pytest.mark.long
def test_any_value_of_the_record_that_is_changed_by_hand_is_seen(folder):
    place = folder / "study.json"
    text = place.read_text()
    record = json.loads(text)
    paths = [path for path in leaves(record) if path[0] != "draws" or path[-1] < 2]
    assert len(paths) > 150
    rng = np.random.default_rng(1)
    deep = {int(k) for k in rng.choice(len(paths), 4, replace=False)}
    for number, path in enumerate(paths):
        at(record, path[:-1])[path[-1]] = changed(before := at(record, path))
        place.write_text(json.dumps(record))
        try:
            study = Study.load(folder)
        except DeclarationError:
            continue
        finally:
            at(record, path[:-1])[path[-1]] = before
        if path[0] == "files" or number in deep:
            assert differing(folder), path
        elif path != ("fingerprint",):
            assert study.fingerprint != record["fingerprint"], path
    place.write_text(text)
    assert not differing(folder)


def forged(folder, **changes):
    """A dossier that is made anew, in every file, around a record that was changed."""
    finish(folder, replace(Study.load(folder), **changes))
    assert is_complete(folder)
    return differing(folder)


def lower(value):
    return json.loads(json.dumps(value).replace(re.search(r'"m": ([\d.]+)', json.dumps(value))[1], "0.01"))


def without_stages(study):
    """A budget that nothing is said to have been spent of: of itself it follows from its constants."""
    smaller = accounting.adaptive(0.01, study.adjacency, (), num_rows=study.n)
    return {"statement": smaller.to_dict(), "stages": ()}


def seeded(record):
    """The statement of a run whose seed the caller chose."""
    argument = record["argument"]
    void = "NOT PRIVATE to anyone who knows the seed, which the caller gave"
    return record | {"argument": argument | {"assumptions": [void, *argument["assumptions"]]}}


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda s: {"epsilon": 0.5}, PRIVACY),
        (lambda s: {"delta": 1e-9}, PRIVACY),
        (lambda s: {"adjacency": "add_remove"}, PRIVACY),
        (lambda s: {"statement": lower(s.statement)}, PRIVACY),
        (lambda s: {"statement": s.statement | {"curves": []}}, PRIVACY),
        (lambda s: {"statement": accounting.of_unit(s.price, Unit("id", 9)).to_dict()}, PRIVACY),
        (lambda s: {"rows": {**s.rows, "id": {"person": {"at_most": 9}}}}, PRIVACY),
        (lambda s: {"statement": s.statement | {"parts": []}}, "the stages' prices"),
        (lambda s: {"stages": tuple({**x, "gdp": 0.01} for x in s.stages)}, "the stages' prices"),
        (lambda s: without_stages(s), "the stages' prices"),
        (lambda s: {"guarantee": "posterior"}, "the posterior's certificate"),
        (lambda s: {"certificate": s.statement}, "the posterior's certificate"),
        (lambda s: {"formula": "died ~ age + sex - 1"}, "formula, schema, model and row bounds"),
        (lambda s: {"priors": ("age ~ normal(0, 9)",)}, "formula, schema, model and row bounds"),
        (lambda s: {"model": s.model + "\n"}, "formula, schema, model and row bounds"),
        (lambda s: {"rows": {**s.rows, "sex": s.rows["age"]}}, "formula, schema, model and row bounds"),
        (lambda s: {"arguments": {"number_of_id": 9}}, "formula, schema, model and row bounds"),
        (lambda s: {"randomness": {"source": "caller"}}, PRIVACY),
        (lambda s: {"randomness": {"source": "Caller"}}, PRIVACY),
        (lambda s: {"randomness": {}}, PRIVACY),
        (lambda s: {"statement": seeded(s.statement)}, PRIVACY),
        (lambda s: {"warnings": ()}, "what is to be known of the target"),
    ],
)
def test_a_claim_is_recomputed_and_not_believed(change, seen):
    study = study_of()
    assert {check.result for check in recomputed(study)} == {"agrees", "not checked"}
    found = recomputed(replace(study, **change(study)))
    assert seen in {check.what for check in found if check.result == "differs"}


def anew(study, budget=None, parts=None, spent=None):
    """The record with another policy, and everything that follows from it: what an editor would write."""
    parts = study.price.parts if parts is None else parts
    budget = study.price.gdp if budget is None else budget
    made = accounting.adaptive(budget, study.adjacency, parts, num_rows=study.n)
    epsilon = study.epsilon if spent is None else made.epsilon(study.delta) * (1 + 1e-12)
    books = None
    if study.ledger is not None:
        kept = Filter.of(Target(study.ledger["epsilon"], study.ledger["delta"]))
        before = Fraction(float(study.ledger["before"].removesuffix("-GDP"))) ** 2
        cost = kept.cost(made)
        books = dict(study.ledger) | {
            "cost": kept.describe(cost),
            "after": kept.describe(before + cost),
            "left": kept.describe(kept.limit - before - cost, left=True),
        }
    return replace(
        study,
        epsilon=epsilon,
        statement=made.to_dict(),
        stages=tuple({"name": part.mechanism or "", "gdp": part.gdp} for part in parts),
        ledger=books,
    )


def differences(study):
    return {check.what for check in recomputed(study) if check.result == "differs"}


STAGES = "the stages' prices"


@pytest.mark.parametrize("charged", [False, True])
def test_a_record_made_anew_around_stages_that_no_policy_buys_is_seen(tmp_path, charged):
    """Seven of eight stages were deleted, and everything else derived again: ε = 0.085 for a true 1.0."""
    study = study_of(books_in(tmp_path) if charged else None)
    query, warm, run = study.price.parts
    assert differences(study) == differences(anew(study)) == set()
    whole = study.price.gdp
    exact = accounting.posterior_strongly_log_concave(0.999 * warm.gdp, 1.0, study.adjacency, study.n)
    other = (
        # Stages deleted, with the budget, with the target, with both as they were.
        anew(study, query.gdp, (query,), spent=True),
        anew(study, math.hypot(query.gdp, warm.gdp), (query,), spent=True),
        anew(study, parts=(query, warm)),
        anew(study, parts=(run,)),
        anew(study, 0.95 * whole, (query, run)),
        anew(study, 0.95 * whole, (query, run), spent=True),
        # The last is no path, or not of these rows, or of more numbers than were drawn.
        anew(study, parts=(run, warm, query)),
        anew(study, parts=(query, warm, path_of(run.gdp, study.adjacency, num_rows=10))),
        anew(study, parts=(query, warm, path_of(run.gdp, study.adjacency, dim=9))),
        anew(study, parts=(query, exact, run)),
    )
    for number, edited in enumerate(other):
        assert STAGES in differences(edited), number


def test_clips_and_noise_made_anew_with_everything_else_are_seen_by_the_ledger_and_a_signature(folder, books):
    """Nothing else can see it, and the first line says that nothing was compared."""
    study = Study.load(folder)
    query, warm, run = study.price.parts
    gentle = anew(study, parts=(query, warm, path_of(run.gdp, study.adjacency, clip=0.01)))
    assert gentle.statement != study.statement
    finish(folder, gentle)
    found = verify_dossier(folder)
    assert found and found.answer == "consistent; compared with: nothing"
    found = verify_dossier(folder, books, study.fingerprint)
    wrong = {check.what for check in found.checks if check.result == "differs"}
    assert wrong == {"the charge in the ledger", "the fingerprint on the signed page"}


def test_the_record_of_a_declared_chain_is_of_its_rows_and_draws():
    price = path_of(0.2, "replace_one")
    study = study_of(statement=price.to_dict(), stages=(), predicted=None)
    assert differences(study) == set()
    for wrong in (path_of(0.2, "replace_one", num_rows=9), path_of(0.2, "replace_one", dim=9)):
        assert STAGES in differences(replace(study, statement=wrong.to_dict()))
    assert STAGES in differences(replace(study, stages=({"name": "run", "gdp": 0.2},)))


def test_the_budget_that_a_record_tells_of_is_that_of_its_statement(tmp_path):
    study, told = study_of(books_in(tmp_path)), {"the budget that the record tells of"}
    assert differences(study) == set()
    for change in ({"cost": "0.01-GDP"}, {"after": "0.01-GDP"}, {"left": "9-GDP"}, {"before": "0-GDP"}):
        assert differences(replace(study, ledger=study.ledger | change)) == told, change
    # Amounts in words are rounded, which made one honest record in twenty differ.
    kept = Filter.of(Target(6.0, 1e-5, study.adjacency))
    cost = kept.cost(study.price)
    for spent in range(0, 90, 2):
        before = kept.limit * spent / 100
        words = {"epsilon": 6.0, "delta": 1e-5, "budget": kept.describe(kept.limit)}
        words |= {"cost": kept.describe(cost), "before": kept.describe(before)}
        words["after"] = kept.describe(before + cost)
        words["left"] = kept.describe(kept.limit - before - cost, left=True)
        assert differences(replace(study, ledger=study.ledger | words)) == set(), words


CERTIFICATE = accounting.posterior_bounded_gradient(1e-3, 1.0, "replace_one", 1000)
of_a_die = partial(posterior_conjugate, "dirichlet_categorical", epsilons=(1.0,))


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        (CERTIFICATE, None),
        (accounting.posterior_bounded_gradient(1e-3, 1.0, "replace_one", 999), "for [999] rows"),
        (accounting.posterior_strongly_log_concave(1e-3, 1.0, "replace_one", 2000), "for [2000] rows"),
        (of_a_die(concentration=(900.0, 900.0), n=50, temper=1.0), "50"),
        (of_a_die(concentration=(9e3, 9e3), n=1000, temper=0.5), "temper"),
        (accounting.of_unit(CERTIFICATE, Unit("patient", 3)), "another unit"),
        (accounting.posterior_bounded_gradient(1e-3, 1.0, "add_remove", 999), "999"),
    ],
)
def test_a_certificate_is_for_the_rows_of_the_record(certificate, why):
    """One of fewer rows, or of another temper, was believed: its own numbers followed from its constants."""
    study = study_of(target=Target(1.0, 1e-6, certificate.adjacency), formula="")
    made = replace(study, guarantee="posterior", certificate=certificate.to_dict())
    (found,) = (one for one in recomputed(made) if one.what == "the posterior's certificate")
    assert found.result == ("agrees" if why is None else "differs") and (why or "") in found.why


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_certificate_of_a_formula_is_proved_anew(adjacency):
    """One with constants of another model was believed: its own numbers followed from them."""
    target = Target(1.0, 1e-6, adjacency)
    asked, study = question(SCHEMA, "died ~ age + sex"), study_of(target=target)
    temper, proved = certified_temper(read(asked.model, asked.rows, n=1000), target, 1000, "posterior")
    honest = replace(study, guarantee="posterior", temper=temper, certificate=proved.to_dict())

    def certified(claimed):
        # The weight of the run's own statement is no part of these.
        (found,) = (one for one in recomputed(claimed) if one.what == "the posterior's certificate")
        return found.result

    constants = proved.argument.constants
    stronger = accounting.posterior_strongly_log_concave(
        constants["sensitivity"], 100 * constants["strong_convexity"], adjacency, 1000
    )
    assert certified(honest) == "agrees"
    assert certified(replace(honest, certificate=stronger.to_dict())) == "differs"
    assert certified(replace(honest, temper=2 * temper)) == "differs"
    assert certified(replace(honest, priors=("age ~ normal(0, 9)",))) == "differs"


@pytest.mark.long
@pytest.mark.parametrize("name", ["dossier.html", "draws.csv", "model.py", "schema.yaml"])
def test_any_byte_of_any_file_counts(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(bytes(content))
    assert "hashes of the files" in differing(folder)
    (folder / name).unlink()
    assert "hashes of the files" in differing(folder)


def rehashed(folder, name, content):
    """Change a file and its hash in the record."""
    (folder / name).write_bytes(content)
    record = json.loads((folder / "study.json").read_text())
    record["files"][name] = digest(content)
    (folder / "study.json").write_text(json.dumps(record))


@pytest.mark.long
def test_numbers_of_the_page_are_compared_with_the_record(folder):
    text = (folder / "dossier.html").read_text()
    body = text.index("<h1>")
    numbers = [match for match in re.finditer(r"(?<=>)\d+\.\d+", text) if match.start() > body]
    rng = np.random.default_rng(0)
    for match in (numbers[int(k)] for k in rng.choice(len(numbers), 5, replace=False)):
        other = f"{float(match[0]) + 0.01:.3f}"
        page = text[: match.start()] + other + text[match.end() :]
        rehashed(folder, "dossier.html", page.encode())
        found = {check.what: check.result for check in verify_dossier(folder).checks}
        assert found["the page, made again"] == "differs" or found[DRAWINGS] == "not checked", match


def test_a_drawing_made_anew_and_a_name_given_twice_are_seen(folder):
    page, record = (folder / "dossier.html").read_text(), (folder / "study.json").read_text()
    rehashed(folder, "dossier.html", page.replace("stroke-width: 2.2", "stroke-width: 0.1").encode())
    found = verify_dossier(folder)
    (drawings,) = (one for one in found.checks if one.what == DRAWINGS)
    assert drawings.result == "not checked" and "drawn elsewhere" in found.report().to_html()
    (folder / "study.json").write_text(record.replace("{", '{"epsilon": 0.1, ', 1))
    assert differing(folder) == {"the record"}
    without = json.loads(record)
    del without["files"]["model.py"]
    (folder / "study.json").write_text(json.dumps(without))
    assert "hashes of the files" in differing(folder)


@pytest.mark.long
def test_the_charge_must_be_in_the_ledger(folder, books, tmp_path):
    other = Ledger.create(tmp_path / "books.db")
    other.declare("people", Target(3.0, 1e-6))
    assert "the charge in the ledger" in differing(folder, other)
    study = Study.load(folder)
    forged(folder, ledger=study.ledger | {"before": "0-GDP"})
    assert differing(folder, books) == {"the charge in the ledger", "the budget that the record tells of"}
    first = next(iter(books.state().reservations))
    forged(folder, ledger=study.ledger | {"charge": first})
    assert differing(folder, books) == {"the charge in the ledger"}


def test_two_persons_are_protected_as_two_rows_are_and_the_page_says_how():
    rows = study_of()
    alike = accounting.of_unit(rows.price, Unit("patient", 5))
    persons = replace(rows, statement=alike.to_dict())
    number = f"{accounting.gdp.epsilon(2 * rows.price.gdp, 1e-6):.4g}"
    for study, whom in ((rows, "One row"), (persons, "One person")):
        said = f"{whom} is protected; what is true of two people together is protected at ε = {number} (same"
        assert said in " ".join(block.text for block in page(study).blocks if isinstance(block, Text))


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_a_charge_pays_for_no_other_statement_of_the_same_cost(folder, books, adjacency):
    """What was charged for people replaced verified a dossier that promised who was there at all."""
    kept = Study.load(folder).ledger
    forged = study_of(target=Target(1.0, 1e-6, adjacency), ledger=kept, warnings=())
    assert all(check.result != "differs" for check in recomputed(forged))
    for study, why in ((forged, ""), (study_of(), "charged to no ledger")):
        found = checked("", lambda: _charge(study, books))  # noqa: B023
        assert found.result == "differs" and why in found.why


def test_nonsense_is_not_verified_and_raises_nothing(folder):
    for content in (b"[]", b"{}", b'{"version": 1}', b"x", b'{"version": 2}', b"\xff\xfe"):
        (folder / "study.json").write_bytes(content)
        assert not verify_dossier(folder)
    with pytest.raises(DeclarationError):
        verify_dossier(folder / "nowhere")


def test_a_folder_is_on_disk_once_it_is_made_and_its_release_is_not_overwritten(tmp_path, monkeypatch):
    """Its name was lost in a power cut, or another process released in it before it was held."""
    place, synced, sync, hold = tmp_path / "new" / "study", [], folders.sync_folder, folders.held

    @contextlib.contextmanager
    def later(folder):
        with hold(folder):
            (folder / RELEASE).write_text("of another process")
            yield

    monkeypatch.setattr(folders, "sync_folder", lambda folder: synced.append(folder) or sync(folder))
    monkeypatch.setattr(folders, "held", later)
    with pytest.raises(OutputError, match="never overwritten"), new_dossier(place):
        pass
    assert {tmp_path, tmp_path / "new"} <= set(synced)
    assert (place / RELEASE).read_text() == "of another process"


def test_a_record_that_finds_no_room_anywhere_is_printed(tmp_path, monkeypatch, capsys):
    study = study_of()
    with pytest.raises(OutputError, match="printed"), new_dossier(tmp_path / "out") as made:
        monkeypatch.setattr("os.replace", full)
        with pytest.raises(OutputError, match="No space"):
            made.keep({"stages": [1], "before": []})
        made.write(study)
    assert json.loads(capsys.readouterr().out)["fingerprint"] == study.fingerprint


@pytest.mark.long
def test_a_dossier_that_cannot_be_finished_has_lost_nothing(tmp_path):
    study = study_of()
    told = pytest.raises(OutputError, match=r"Nothing is lost: the release is in .*study\.json")
    with told, new_dossier(tmp_path / "out") as made:
        (tmp_path / "out" / "draws.csv").mkdir()
        made.write(study)
    assert Study.load(tmp_path / "out").fingerprint == study.fingerprint
    assert not is_complete(tmp_path / "out")
    (tmp_path / "out" / "draws.csv").rmdir()
    report([tmp_path / "out"], as_json=True)
    assert verify_dossier(tmp_path / "out")


def test_a_run_that_fails_leaves_no_folder_and_a_dossier_is_never_overwritten(tmp_path, written):
    with pytest.raises(ValueError), new_dossier(tmp_path / "a" / "b"):
        raise ValueError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OutputError, match="exists already"):
        study_of().save(written)
    with pytest.raises(OutputError, match="is a link"), new_dossier(tmp_path / "made") as made:
        (tmp_path / "made" / RELEASE).symlink_to(tmp_path / "elsewhere")
        made.keep({"stages": [1], "before": []})
    with pytest.raises(OutputError, match="exists already"):
        study_of().save(tmp_path / "made")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.long
def test_expectations_and_models_of_ones_own_have_dossiers(tmp_path):
    price = accounting.laplace(
        0.5, adjacency="replace_one", sensitivity=1.0, scale=2.0, grid=0.0, what="average"
    )
    value = {"mean": {"value": [0.25], "noise_sd": [0.1], "error": None}}
    common = {"formula": "", "family": "", "schema": {}, "stages": (), "predicted": None}
    noised = study_of(
        draws={}, expectations=value, statement=price.to_dict(), epsilon=0.5, delta=0.0, **common
    )
    assert verify_dossier(noised.save(tmp_path / "noised"))
    page = (tmp_path / "noised" / "dossier.html").read_text()
    assert "0.25" in page and "whatever is released" in page
    assert not (tmp_path / "noised" / "draws.csv").exists()
    planned = {name: value for name, value in common.items() if name != "stages"}
    own = study_of(**planned, draws={"w": [[0.5, 1.5]] * 20}, chains=2)
    assert verify_dossier(own.save(tmp_path / "own"))
    assert own.to_arviz().posterior["w"].shape == (2, 10, 2)


def test_a_formulas_draws_go_to_arviz_in_the_chains_they_are_of_and_files_too(tmp_path):
    """R-hat compares chains: one chain of all draws would have none."""
    study = study_of(chains=4)
    posterior = study.to_arviz().posterior
    assert posterior.sizes["chain"] == 4 and np.isfinite(arviz.rhat(posterior)["age"])
    study.draws_tree().to_netcdf(tmp_path / "draws.nc")
    assert arviz.from_netcdf(tmp_path / "draws.nc").posterior.sizes == posterior.sizes


@pytest.mark.long
def test_names_with_a_slash_are_saved_with_a_division_slash(tmp_path):
    draws = study_of().draws
    of_decades = study_of(formula="died ~ I(age / 10) + sex", draws=draws | {"I(age / 10)": draws["age"]})
    assert "draws, model, schema and answers" not in differing(of_decades.save(tmp_path / "study"))
    assert "I(age \u2215 10)" in of_decades.to_arviz().posterior


def test_every_field_of_a_record_is_bound_to_its_charge(tmp_path):
    books = books_in(tmp_path)
    study = study_of(books)
    assert checked("", lambda: _charge(study, books)).result == "agrees"
    names = [field.name for field in dataclasses.fields(StudyRecord)]
    for name in names:
        value = getattr(study, name)
        edited = replace(
            study, **{name: 2 * value if isinstance(value, int | float | str) and value else [0.5]}
        )
        assert edited.fingerprint != study.fingerprint, name
        assert checked("", lambda: _charge(edited, books)).result == "differs", name  # noqa: B023
