"""How commands end that are interrupted, or whose output nobody reads: nothing is lost, nothing is free."""

import subprocess
import sys

import pytest

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
from private_mcmc.cli import main

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
