"""What the pages show runs as shown: code, commands, and what is printed below them.

A page's blocks are one program, from top to bottom. In comments of the page, which readers do not see:
``<!-- run … -->`` is code that a block needs and would only distract, ``<!-- not run: why -->`` is before a
block that is only compiled. A block ``text`` is what the block of code above it prints; ``…`` stands for
anything. Of shells, lines that begin with ``private-mcmc`` are run in blocks ``bash``, and elsewhere their
options are checked.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import typer
import yaml

from private_mcmc.cli import app

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PARTS = re.compile(
    r"<!-- run\n(?P<hidden>.*?)-->|<!-- (?P<skip>not run: [^>]*)-->"
    r"|^```(?P<kind>\w*)[^\n]*\n(?P<code>.*?)^```",
    re.DOTALL | re.MULTILINE,
)
# Seconds each, in the default tier; the others are run by `make test-pages`.
QUICK = {"models.md", "hierarchies.md", "glossary.md"}


def parts(page):
    """Kind and code of every part of a page, in order; those that are not run have the kind ``skipped``."""
    skipped = False
    for match in PARTS.finditer(page.read_text(encoding="utf-8")):
        if match["skip"]:
            skipped = True
            continue
        kind, code = ("python", match["hidden"]) if match["hidden"] else (match["kind"], match["code"])
        yield ("skipped " + kind if skipped else kind), code
        skipped = False


def commands(code):
    """The lines of a block for a shell that call this program, continued ones joined."""
    for line in code.replace("\\\n", " ").splitlines():
        with contextlib.suppress(ValueError):
            words = shlex.split(line, comments=True)
            if words[:1] == ["private-mcmc"]:
                yield [word for word in words[1:] if word != ">" and not word.startswith("|")]


def unknown_options(words):
    """Commands and options of a call that the program does not have."""
    command = typer.main.get_command(app)
    for word in words:
        names = command.list_commands(None) if hasattr(command, "list_commands") else ()
        if word in names:
            command = command.get_command(None, word)
        elif names and not word.startswith("-"):
            return [word]
    known = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
    known |= {"--help", "--install-completion", "--show-completion"}
    return [word for word in words if word.startswith("--") and word.split("=")[0] not in known]


def run(page):
    """Run all of a page and count what was run; raises at the first thing that is not as shown."""
    names, printed, ran = {"__name__": "page"}, "", 0
    for number, (kind, code) in enumerate(parts(page)):
        where = f"{page.name}, part {number}"
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, where, "exec"), names)
            printed, ran = out.getvalue(), ran + 1
        elif kind == "text":
            shown = r".*?".join(re.escape(part) for part in " ".join(code.split()).split("…"))
            found = re.fullmatch(shown, " ".join(printed.split()), re.DOTALL)
            assert found, f"{where}: printed {printed!r}"
        elif kind == "bash":
            for words in commands(code):
                app(words, standalone_mode=False, prog_name="private-mcmc")
                ran += 1
    return ran


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_compiles_options_exist_and_yaml_reads(page):
    for kind, code in parts(page):
        if kind.endswith("python"):
            compile(code, page.name, "exec")
        elif kind.endswith("yaml"):
            yaml.safe_load(code)
        elif kind in ("", "bash", "skipped bash"):
            assert [unknown_options(words) for words in commands(code) if unknown_options(words)] == []


WITH_CODE = [
    page
    for page in PAGES
    if any(kind == "python" or (kind == "bash" and any(commands(code))) for kind, code in parts(page))
]


LONG = (pytest.mark.long, pytest.mark.pages)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in QUICK else LONG)
        for page in WITH_CODE
    ],
)
def test_a_page_runs_as_shown(page, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    assert run(page) >= 1


@pytest.mark.long
@pytest.mark.pages
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R and its package posterior")
def test_the_lines_for_r_run(tmp_path):
    """From a codebook to R's own summary of the draws."""
    (code,) = (code for kind, code in parts(ROOT / "docs" / "numpyro.md") if kind == "r")
    rng = np.random.default_rng(0)
    words = (rng.choice(each, 500) for each in (["f", "m"], ["true", "false"]))
    people = zip(rng.integers(20, 90, 500), *words, strict=True)
    lines = "".join(",".join(map(str, one)) + "\n" for one in people)
    (tmp_path / "people.csv").write_text("age,sex,death\n" + lines)
    fields = [
        {"name": "age", "type": "number", "constraints": {"minimum": 18, "maximum": 100}},
        {"name": "sex", "constraints": {"enum": ["f", "m"]}},
        {"name": "death", "type": "boolean"},
    ]
    (tmp_path / "codebook.json").write_text(json.dumps({"fields": fields}))
    own = os.environ | {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    asked = {"input": code, "cwd": tmp_path, "env": own, "text": True, "capture_output": True}
    done = subprocess.run(["Rscript", "-"], **asked)
    assert done.returncode == 0, done.stderr
    assert "rhat" in done.stdout and "sex[m]" in done.stdout


def test_what_is_wrong_on_a_page_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match="printed '2"):
        run(page)
    page.write_text("<!-- run\nx = 2\n-->\n\n```python\nprint(x, 'and so on')\n```\n\n```text\n2 …\n```\n")
    run(page)
    page.write_text("<!-- not run: needs a cluster -->\n```python\nraise ValueError\n```\n")
    run(page)
    assert unknown_options(["fit", "people.csv", "--schema", "s.yaml", "--sceme", "x"]) == ["--sceme"]
    assert unknown_options(["fitt", "people.csv"]) == ["fitt"]
    assert unknown_options(["ledger", "init", "a.db", "--epsilon", "1"]) == []
