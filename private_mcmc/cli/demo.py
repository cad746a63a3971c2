"""``private-mcmc demo``: from a codebook to a dossier, on a census's 48,842 people, by commands alone."""

from __future__ import annotations

import contextlib
import gzip
import json
import shlex
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.cli.common import JsonOption, echo
from private_mcmc.errors import OutputError
from private_mcmc.target import Target

_BOOKS = "--ledger ledger.db --dataset adult --yes"
# What is done, and the command that does it.
STORY = (
    (
        "A schema from the codebook; of the table only the header is read",
        "init people.csv --codebook codebook.json --output schema.yaml",
    ),
    (
        "A ledger: all that may ever be told about these people",
        "ledger init ledger.db --dataset adult --epsilon {whole:g} --delta 1e-6",
    ),
    (
        "A table of these people, for a tenth of the squared budget",
        "describe people.csv --schema schema.yaml --fields sex --mean age,hours_per_week --by income "
        f"--share 0.1 --out table {_BOOKS}",
    ),
    (
        "The fit, planned, shown, and then paid for",
        "fit people.csv --schema schema.yaml --epsilon {epsilon:g} --out study --purpose demonstration "
        "--formula 'income ~ age + education_num + hours_per_week + sex + race' "
        f"--profile age=40,education_num=13,hours_per_week=40,sex=Female {_BOOKS}",
    ),
    (
        "Does it fit? Another tenth, in groups that the formula lacks",
        f"check study people.csv --by marital_status --share 0.1 --out check {_BOOKS}",
    ),
    (
        "Answers, over the people of the table: free, as often as you like",
        "summary study --contrast sex --over table",
    ),
    ("The dossier is checked: anywhere, without the table", "verify study --ledger ledger.db"),
)


def demo(
    epsilon: Annotated[float, typer.Option(help="ε of the fit")] = 1.0,
    output: Annotated[
        Path, typer.Option(help="folder for everything; a free name beside it if taken")
    ] = Path("demo-study"),
    as_json: JsonOption = False,
) -> None:
    """From a codebook to a dossier: UCI Adult's 48,842 people, commands that you can type yourself."""
    from private_mcmc.cli.main import app

    Target(epsilon, 1e-6)
    names = (output, *(output.with_name(f"{output.name}-{k}") for k in range(2, 1000)))
    output = next((name for name in names if not name.is_dir()), output)
    packed = resources.files("private_mcmc.data")
    try:
        output.mkdir(parents=True)
        (output / "people.csv").write_bytes(gzip.decompress(packed.joinpath("adult.csv.gz").read_bytes()))
        (output / "codebook.json").write_bytes(packed.joinpath("adult.codebook.json").read_bytes())
    except OSError as error:
        raise OutputError(f"{output}: cannot be written ({error.strerror}).") from None
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        echo(
            f"UCI Adult, an extract of the 1994 US census: 48,842 people. In {output}/ there are people.csv, "
            "as private as any table here, and codebook.json, which is public."
        )
        with contextlib.chdir(output):
            for number, (what, command) in enumerate(STORY, start=1):
                line = command.format(epsilon=epsilon, whole=3 * epsilon)
                echo(f"\n── {number}. {what}\n\n$ private-mcmc {line}")
                app(shlex.split(line), standalone_mode=False, prog_name="private-mcmc")
                sys.stdout.flush()
        echo(f"\n{output / 'study' / 'dossier.html'}: the page to read, print and sign.")
    if as_json:
        files = {path.name: str(path) for path in sorted(output.iterdir())}
        echo(json.dumps({"folder": str(output), "files": files}))
