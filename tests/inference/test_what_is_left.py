"""What a run leaves behind tells of its rows through the released draws alone: not by sizes, not by words."""

import logging
from dataclasses import asdict

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.inference.checkpoint import SavedRun
from private_mcmc.kernels import PrivateSGLD, PrivateULA
from tests.examples_of_models import declared, logistic

N = 30
ROWS = pmc.Rows(X=pmc.Ball(1.0, dim=2), y=pmc.Binary())
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
        charge = ledger.history("rows")[0]
        record = mcmc.study().to_dict() | {"draws": {}, "created": "", "statement": {}}
        record["ledger"] = dict(record["ledger"]) | {"charge": ""}
        words = (capfd.readouterr(), [entry.getMessage() for entry in caplog.records])
        caplog.clear()
        found.append(
            (
                record,
                words,
                ledger.path.stat().st_size,
                asdict(charge) | {"identity": "", "time": "", "settled": ""},
            )
        )
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
