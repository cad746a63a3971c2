"""What any driver keeps of its last run: a record, a page, a verified dossier, and nothing else of rows."""

import logging
from dataclasses import asdict, replace

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.accounting.mechanisms import posterior_strongly_log_concave
from private_mcmc.dossier import verify_dossier
from private_mcmc.dossier.verify import _charge, checked, recomputed
from private_mcmc.inference.checkpoint import SavedRun
from private_mcmc.kernels import PrivateSGLD, PrivateULA
from private_mcmc.models import logistic, logistic_rows
from tests.data.fields import flag, schema
from tests.examples_of_models import declared


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    return {"X": rng.normal(size=(100, 2)), "y": rng.integers(0, 2, size=100)}


def driver(release="path", **options):
    declared = {"rows": logistic_rows(2), "target": pmc.Target(3.0, 1e-6), "n": 100, "num_steps": 20}
    kernel = pmc.PrivateULA(logistic, step_size=1e-3, clip=1.0, temper=0.1)
    return pmc.PrivateMCMC(kernel, release=release, progress_bar=False, **declared, **options)


@pytest.mark.long
def test_a_declared_run_is_saved_with_its_charge(people, books, tmp_path):
    mcmc = driver(bookkeeping=pmc.Bookkeeping(books, "people", "a test"), num_chains=2)
    with pytest.raises(pmc.ReleaseError, match="nothing was released"):
        mcmc.save(tmp_path / "early")
    assert mcmc._repr_html_() is None and not (tmp_path / "early").exists()
    mcmc.run(**people)
    study = pmc.Study.load(mcmc.save(tmp_path / "study"))
    assert study.ledger["purpose"] == "a test" and study.ledger["left"] != study.ledger["budget"]
    assert study.to_arviz().posterior["w"].shape == (2, 20, 2)
    np.testing.assert_array_equal(study.arrays["w"], mcmc.get_samples()["w"])
    assert (study.temper, study.guarantee, study.warnings, study.predicted) == (0.1, "posterior", (), None)
    found = verify_dossier(tmp_path / "study", books)
    assert found, found.report().to_dict()
    assert "No plan" in mcmc._repr_html_()


def test_what_a_record_says_beside_its_statement_is_compared_with_the_charge(people, books):
    """With a wider weight, other rows or a certificate that somebody made up a dossier was verified."""
    mcmc = driver(bookkeeping=pmc.Bookkeeping(books, "people"))
    mcmc.run(**people)
    study, made_up = mcmc.study(), posterior_strongly_log_concave(1e-6, 1.0, "replace_one", 100).to_dict()
    other_rows = {**study.rows, "X": {"ball": {"radius": 0.01, "dim": 2}}}
    changes = ({"temper": 1.0}, {"rows": other_rows}, {"certificate": made_up})
    studies = [study, *(replace(study, **change) for change in changes)]
    charges = [checked("", lambda one=one: _charge(one, books)) for one in studies]
    assert [one.result for one in charges] == ["agrees", "differs", "differs", "differs"]
    assert "weight of the likelihood is 0.1" in str(recomputed(replace(study, temper=1.0)))


def test_a_ledger_knows_the_one_dossier_of_a_run_and_no_ledger_is_a_warning(people, books, tmp_path):
    mcmc = driver(bookkeeping=pmc.Bookkeeping(books, "people"))
    mcmc.run(**people)
    study = mcmc.study()
    assert mcmc.study() is study is mcmc.kept() and mcmc._repr_html_() is not None
    (charge,) = books.history()
    assert charge.dossiers == [study.fingerprint]
    # A second run of the same declarations, of which no ledger knows, has none of the first one's charge.
    free = driver()
    free.run(**people)
    second = replace(free.study(), ledger=study.ledger, warnings=study.warnings, statement=study.statement)
    found = checked("", lambda: _charge(second, books))
    assert found.result == "differs" and "knows another dossier" in found.why
    mcmc.run(**people)
    (tmp_path / "books.db").rename(tmp_path / "away.db")
    with pytest.warns(UserWarning, match="will not be verified"):
        lost = mcmc.kept()
    assert lost.fingerprint != study.fingerprint
    (tmp_path / "away.db").rename(tmp_path / "books.db")
    found = checked("", lambda: _charge(lost, books))
    assert found.result == "differs" and "no dossier" in found.why
    # It is entered as soon as the ledger is back.
    assert checked("", lambda: _charge(mcmc.study(), books)).result == "agrees"


def test_a_charge_says_that_the_caller_chose_the_seed(people, books):
    """A dossier that no longer said so was verified against it."""
    mcmc = driver(bookkeeping=pmc.Bookkeeping(books, "people"), execution=pmc.Execution(unsafe_seed=True))
    mcmc.run(**people, rng_key=jax.random.key(0))
    study = mcmc.study()
    assert checked("", lambda: _charge(study, books)).result == "agrees" and study.seeded
    claim = {**study.statement["argument"], "assumptions": study.statement["argument"]["assumptions"][1:]}
    silent = replace(study, statement={**study.statement, "argument": claim})
    silent = replace(silent, randomness={"source": "operating system"})
    assert not silent.seeded and silent.price.verify()
    assert "another statement" in checked("", lambda: _charge(silent, books)).why


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [KeyboardInterrupt, MemoryError])
def test_what_was_paid_for_is_kept_where_drawing_the_posterior_ends_early(people, monkeypatch, stopped):
    """An interruption after the release, while its posterior was drawn, lost a result that was charged."""
    mcmc = driver()
    mcmc.run(**people)
    with monkeypatch.context() as patched:
        patched.setattr(type(mcmc), "_states", lambda *_, **__: (_ for _ in ()).throw(stopped))
        # Of a declared run there is nothing to draw: its states are what was released.
        with pytest.raises(stopped):
            mcmc.kept()
        mcmc._outcome = replace(mcmc._outcome, draws=mcmc.released)
        study = mcmc.kept()
    np.testing.assert_array_equal(study.arrays["w"], mcmc.released.get_samples()["w"])
    why = "was interrupted" if stopped is KeyboardInterrupt else "ended by MemoryError"
    assert why in study.warnings[-1]


@pytest.mark.long
def test_a_fit_that_is_interrupted_after_its_release_is_a_study(books, tmp_path, monkeypatch):
    def ends(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("private_mcmc.inference.last_run.posterior_of", ends)
    options = {"epsilon": 3.0, "ledger": books, "dataset": "people", "progress_bar": False}
    with pytest.warns(UserWarning, match="Drawing the posterior given the releases was interrupted"):
        study = pmc.fit({"died": np.arange(200) % 3 == 0}, schema(flag("died")), "died ~ 1", **options)
    assert [charge.outcome for charge in books.history()] == ["released"]
    assert np.isfinite(study.arrays["Intercept"]).all() and len(study.arrays["Intercept"]) > 10
    study.save(tmp_path / "study")
    assert verify_dossier(tmp_path / "study", books)


N = 30
ROWS = logistic_rows(2)
KERNELS = {"all rows": PrivateULA(logistic, 0.02, 1.0), "batches": PrivateSGLD(logistic, 0.02, 1.0, rate=0.3)}
# Rows at one point, far outside of their domain, or missing.
TABLES = (
    {"X": np.zeros((N, 2)), "y": np.zeros(N)},
    {"X": np.full((N, 2), 1e300), "y": np.arange(N) % 2},
    {"X": np.full((N, 2), np.nan), "y": np.full(N, np.inf)},
)


@pytest.mark.some(1)
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_files_records_and_words_are_the_same_for_all_rows(kernel, tmp_path, monkeypatch, capfd, caplog):
    caplog.set_level(logging.DEBUG, "private_mcmc")
    sizes, save = [], SavedRun.save

    def saving(saver, state):
        save(saver, state)
        sizes[-1].append(path.stat().st_size)

    monkeypatch.setattr(SavedRun, "save", saving)
    found = []
    for number, columns in enumerate(TABLES):
        folder = tmp_path / str(number)
        folder.mkdir()
        path, ledger = folder / "run", pmc.Ledger.create(folder / "books.db")
        ledger.declare("rows", pmc.Target(99.0, 1e-6))
        books = pmc.Bookkeeping(ledger, "rows", checkpoint=pmc.Checkpoint(path, seconds=0.0))
        asked = {"target": pmc.Target(90.0, 1e-6), "num_steps": 24, "progress_bar": True}
        mcmc = declared(KERNELS[kernel], ROWS, bookkeeping=books, **asked)
        sizes.append([])
        mcmc.run(**columns)
        charge = asdict(ledger.history("rows")[0]) | {"identity": "", "time": "", "settled": ""}
        record = mcmc.study().to_dict() | {"draws": {}, "created": "", "statement": {}}
        record["ledger"] = dict(record["ledger"]) | {"charge": ""}
        words = (capfd.readouterr(), [entry.getMessage() for entry in caplog.records])
        caplog.clear()
        found.append((record, words, ledger.path.stat().st_size, charge))
    assert len(sizes[0]) > 2 and len({tuple(each) for each in sizes}) == 1
    for record, words, size, charge in found[1:]:
        assert record == found[0][0] and size == found[0][2]
        assert charge == found[0][3]
        assert len(words[0].out) > 0 or len(words[0].err) > 0
        assert _without_times(words) == _without_times(found[0][1])


def _without_times(words):
    shown, logged = words
    # A terminal's bar is drawn anew as time passes.
    return [[line for line in text.splitlines() if "sampling" not in line] for text in shown], logged
