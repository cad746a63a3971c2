"""How commands end that are interrupted, or whose output nobody reads: nothing is lost, nothing is free."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from private_mcmc import Ledger, Target
from private_mcmc.cli.common import INTERRUPTED, UNREAD
from tests.dossier.studies import books_in, study_of

PROGRAM = [sys.executable, "-c", "from private_mcmc.cli import main; main()"]


@pytest.mark.some(1)
@pytest.mark.parametrize("line", ["--help", "verify study", "ledger show books.db"])
def test_a_closed_pipe_is_no_claim_that_fails(tmp_path, line):
    """`verify | head` ended with 1, which says that a dossier is not what ran."""
    study_of(books_in(tmp_path)).save(tmp_path / "study")
    running = subprocess.Popen(
        [*PROGRAM, *line.split()], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.close()
    assert running.wait(timeout=120) == UNREAD
    assert running.stderr.read() == b""
    running.stderr.close()


ENDED = """
import os, signal, typer
from private_mcmc.cli.main import main

app = typer.Typer()

@app.command()
def run():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        while True:
            pass
    finally:
        print("kept")

main(app)
"""


@pytest.mark.slow
def test_a_scheduler_that_ends_a_command_ends_it_as_a_person_does():
    """By default the process is gone at once, and what it released with it."""
    done = subprocess.run([sys.executable, "-c", ENDED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (INTERRUPTED, "kept\n")
    assert "stays charged" in done.stderr


@pytest.mark.long
def test_an_interrupted_fit_is_charged_and_leaves_no_half_of_a_dossier(tmp_path):
    rng = np.random.default_rng(0)
    rows = "\n".join(
        f"{age},{y}" for age, y in zip(rng.integers(18, 90, 3000), rng.integers(0, 2, 3000), strict=True)
    )
    (tmp_path / "people.csv").write_text(f"age,died\n{rows}\n")
    (tmp_path / "schema.yaml").write_text(
        "fields:\n- {name: age, type: integer, constraints: {minimum: 18, maximum: 95}}\n"
        "- {name: died, type: boolean}\n"
    )
    books = Ledger.create(tmp_path / "books.db")
    books.declare("people", Target(3.0, 1e-6))
    asked = (
        "fit people.csv --schema schema.yaml --epsilon 1 --ledger books.db --dataset people --out study --yes"
    )
    running = subprocess.Popen(
        [*PROGRAM, *asked.split(), "--formula", "died ~ age"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 500
    while not books.history() and running.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=500)
    (charge,) = books.history()
    assert "Traceback" not in said
    if charge.outcome == "released":
        # It came when the release was there: then the dossier is.
        assert (tmp_path / "study" / "study.json").stat().st_size > 0
    else:
        assert running.returncode == INTERRUPTED and charge.outcome == "kept"
        assert said.strip().endswith("stays charged.")
        assert not (tmp_path / "study").exists()
