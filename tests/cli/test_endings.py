"""How commands end that are interrupted, or whose output nobody reads: nothing is lost, nothing is free.

Malformed declarations never end in anything but the library's own errors.
"""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from private_mcmc.cli.common import INTERRUPTED, UNREAD, load_model
from private_mcmc.dossier.shape import declared_column
from private_mcmc.errors import PrivateMCMCError
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


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    record=st.one_of(
        JSON, st.dictionaries(st.sampled_from(["ball", "box", "counts", "real"]), JSON, max_size=2)
    )
)
def test_random_domain_records(record):
    try:
        domain = declared_column(record)
    except PrivateMCMCError:
        return
    assert domain.norm_bound >= 0


@pytest.mark.parametrize(
    "content", [b"", b"def model(:", b"raise SystemError('no')", b"\xff\xfe", b"model = 3"]
)
def test_model_files_that_do_not_work(tmp_path, content):
    path = tmp_path / "model.py"
    path.write_bytes(content)
    with pytest.raises(PrivateMCMCError):
        load_model(f"{path}:model")
