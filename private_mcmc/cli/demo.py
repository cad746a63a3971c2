"""``private-mcmc demo``: from a codebook to a dossier, on a census's 48,842 people, by commands alone."""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.cli.common import JsonOption, echo
from private_mcmc.errors import OutputError
from private_mcmc.target import Target

FORMULA = "income ~ age + education_num + hours_per_week + sex + race"


def demo(
    epsilon: Annotated[float, typer.Option(help="ε of the fit")] = 1.0,
    output: Annotated[
        Path, typer.Option(help="folder for everything; a free name beside it if taken")
    ] = Path("demo-study"),
    as_json: JsonOption = False,
) -> None:
    """From a codebook to a dossier: UCI Adult's 48,842 people, commands that you can type yourself."""
    Target(epsilon, 1e-6)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        folder = _prepared(output)
        with contextlib.chdir(folder):
            _story(epsilon)
    if as_json:
        files = {path.name: str(path) for path in sorted(folder.iterdir())}
        echo(json.dumps({"folder": str(folder), "files": files}))


def _prepared(output: Path) -> Path:
    """A new folder with the table and its codebook."""
    names = (output, *(output.with_name(f"{output.name}-{k}") for k in range(2, 1000)))
    folder = next((name for name in names if not name.is_dir()), output)
    packed = resources.files("private_mcmc.data")
    try:
        folder.mkdir(parents=True)
        (folder / "people.csv").write_bytes(gzip.decompress(packed.joinpath("adult.csv.gz").read_bytes()))
        (folder / "codebook.json").write_bytes(packed.joinpath("adult.codebook.json").read_bytes())
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written ({error.strerror}).") from None
    return folder


def _story(epsilon: float) -> None:
    _say(
        f"UCI Adult, an extract of the 1994 US census: 48,842 people. In {Path.cwd().name}/ there are "
        "people.csv, as private as any table here, and codebook.json, which is public."
    )
    _rule("1. A schema from the codebook; of the table only the header is read")
    _run("init people.csv --codebook codebook.json --output schema.yaml")
    _rule("2. A ledger: all that may ever be told about these people")
    _run(f"ledger init ledger.db --dataset adult --epsilon {3 * epsilon:g} --delta 1e-6")
    _rule("3. A table of these people, for a tenth of the squared budget")
    _run(
        "describe people.csv --schema schema.yaml --fields sex --mean age,hours_per_week --by income "
        "--share 0.1 --out table --ledger ledger.db --dataset adult --yes"
    )
    _rule("4. The fit, planned, shown, and then paid for")
    _run(
        f'fit people.csv --schema schema.yaml --formula "{FORMULA}" --epsilon {epsilon:g} --out study '
        "--ledger ledger.db --dataset adult --purpose demonstration "
        "--profile age=40,education_num=13,hours_per_week=40,sex=Female --yes"
    )
    _rule("5. Does it fit? Another tenth, in groups that the formula lacks")
    _run(
        "check study people.csv --by marital_status --share 0.1 --out check --ledger ledger.db "
        "--dataset adult --yes"
    )
    _rule("6. Answers, over the people of the table: free, as often as you like")
    _run("summary study --contrast sex --over table")
    _rule("7. The dossier is checked: anywhere, without the table")
    _run("verify study --ledger ledger.db")
    _rule("8. One number of it is changed by hand")
    _tamper()
    _run("verify changed")
    _rule("Where to look")
    _say(f"{Path.cwd() / 'study' / 'dossier.html'}: the page to read, print and sign.")


def _run(command: str) -> None:
    """A command in this process, shown as one would type it in the folder."""
    from private_mcmc.cli.main import app

    _say(f"$ private-mcmc {command}")
    app(shlex.split(command), standalone_mode=False, prog_name="private-mcmc")
    sys.stdout.flush()


def _rule(words: str) -> None:
    from rich.console import Console

    console = Console()
    console.print()
    console.rule(f"[bold]{words}")


def _say(words: str) -> None:
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(words))


def _tamper() -> None:
    """A copy of the dossier that claims half the ε."""
    shutil.copytree("study", "changed")
    place = Path("changed") / "study.json"
    record = json.loads(place.read_text(encoding="utf-8"))
    _say(f"changed/study.json: epsilon {record['epsilon']:g} becomes {record['epsilon'] / 2:g}")
    record["epsilon"] /= 2
    place.write_text(json.dumps(record), encoding="utf-8")
