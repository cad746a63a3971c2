"""``private-mcmc init``, ``preflight``, ``plan`` and ``demo``: what needs no table of one's own."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shlex
import sys
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from private_mcmc.arguments import OF_FITS, checked_guarantee, small_delta
from private_mcmc.cli.common import (
    AdjacencyOption,
    Delta,
    Epsilon,
    FamilyOption,
    FormulaOption,
    GuaranteeOption,
    HtmlOption,
    JsonOption,
    MaxErrorOption,
    MaxPassesOption,
    ModelOption,
    NumRows,
    OptionalDelta,
    PriorOption,
    SchemaOption,
    echo,
    read_question,
    show,
)
from private_mcmc.errors import OutputError
from private_mcmc.target import Target, check_adjacency, check_count

_say = partial(echo, err=True)

# Words that identifiers are called by; nothing follows from them but a remark.
_PERSON = re.compile(r"(\w+_)?id|pid|person|patient|subject|ssn|insurance_?number", re.I)
_HEAD = """\
# Declare the fields that are `role: ignored` and wanted. A field looks like one of
#   {name: age, type: number, unit: years, constraints: {minimum: 0, maximum: 120}}
#   {name: sex, type: string, constraints: {enum: [f, m]}}            the first level is the reference
#   {name: dead, type: boolean, trueValues: ["1"], falseValues: ["0"]}
#   {name: admitted, type: date, constraints: {minimum: 2000-01-01, maximum: 2030-12-31}}
# with missingValues: ["", NA] and private_mcmc: {missing: indicator} where values are missing.
# Bounds and levels are what anybody knows, never what this table has.
# Of rows with one identifier (person: field) `at_most` enter; all of them together are protected.
"""
_PERSONS = """\
# If {0!r} tells persons apart who may have several rows, give it private_mcmc: {{role: person}} and declare
# private_mcmc: {{person: {{field: {0}, at_most: …}}}}
# with the number of rows of one person that enter: of at_most: 1 all others are left out.
"""


def init(
    table: Annotated[
        Path, typer.Argument(help="CSV, Parquet, Arrow, Stata or SPSS file; only its header is read")
    ],
    codebook: Annotated[
        Path | None,
        typer.Option(help="Table Schema (JSON, YAML), or a dictionary with a line for every variable (CSV)"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write the schema here, in place of printing it")] = None,
    encoding: Annotated[str, typer.Option(help="of a CSV file that is not in UTF-8, such as cp1252")] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a schema of public declarations from a codebook and the table's header. No value is ever read.

    Columns that the codebook does not declare are ignored until a person declares them.
    """
    from private_mcmc.data.codebook import read_codebook, read_header
    from private_mcmc.data.fields import Field
    from private_mcmc.data.schema import Schema
    from private_mcmc.system import write_whole

    Schema((), encoding=encoding)  # refuses one that nobody knows
    book = Schema(()) if codebook is None else read_codebook(codebook)
    declared, encoding = book.by_name, encoding or book.encoding
    header = [name for name in read_header(table, declared, encoding) if name]
    fields = [declared.get(name) or Field(name, "string", role="ignored") for name in header]
    people = [field.name for field in fields if field.role == "person"]
    person = book.person if book.person in people else "".join(people[:1])
    schema = Schema(tuple(fields), person, book.at_most if person == book.person else 1, encoding)
    # First what leaves rows out.
    for words in schema.notes:
        _say(words)
    _say(
        f"{table}: read the header only ({len(header)} columns), no row. Bounds and levels are public facts: "
        "take them from a codebook or from what anybody knows, never from the table."
    )
    absent = sorted(set(declared) - set(header))
    if absent:
        _say(f"The codebook also declares {absent}, which are not in the header and are left out.")
    if unknown := [field.name for field in fields if field.role == "ignored"]:
        _say(f"Ignored until they are declared, as the schema's first lines show: {unknown}.")
    numbers = [] if person else [name for name in unknown if _PERSON.fullmatch(name.replace(" ", "_"))]
    if numbers:
        _say(
            f"{numbers} may tell persons, or groups of them, apart; nothing is declared of them. The "
            "schema's last lines show how, if one person has several rows."
        )
    text = _HEAD * bool(unknown) + schema.to_yaml()
    text += "".join(_PERSONS.format(name) for name in numbers[:1])
    if out is not None:
        write_whole(out, text)
        _say(f"Wrote {out}.")
    if as_json:
        found = {
            "schema": schema.to_dict(),
            "ignored": unknown,
            "left_out": absent,
            "output": None if out is None else str(out),
        }
        echo(json.dumps(found, ensure_ascii=False))
    elif out is None:
        echo(text, nl=False)


EXIT_CODES = {"private": 0, "not private": 1, "unknown": 2}


def preflight(
    schema: SchemaOption,
    n: NumRows,
    epsilon: Epsilon,
    delta: Delta,
    formula: FormulaOption = None,
    model: ModelOption = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    adjacency: AdjacencyOption = "replace_one",
    clip: Annotated[
        float | None, typer.Option(help="bound on every row's gradient that a kernel enforces")
    ] = None,
    temper: Annotated[float, typer.Option(help="power of the likelihood")] = 1.0,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Decide whether a model's posterior is private, from the program and public facts alone.

    Exit code: 0 private, 1 not private, 2 unknown, 3 error.
    """
    from private_mcmc.preflight import preflight as decide

    target = Target(epsilon, delta, check_adjacency(adjacency))
    check_count("n", n)
    asked = read_question(schema, formula, model, family, prior or [])
    report = decide(
        asked.model, asked.rows, target, n=n, clip=clip, temper=temper, model_args=asked.public(n)
    )
    show(report, report.to_dict(), as_json, html)
    raise typer.Exit(EXIT_CODES[report.verdict])


def plan(
    schema: SchemaOption,
    n: NumRows,
    epsilon: Epsilon,
    formula: FormulaOption = None,
    model: ModelOption = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    delta: OptionalDelta = None,
    adjacency: AdjacencyOption = "replace_one",
    guarantee: GuaranteeOption = OF_FITS,
    max_error: MaxErrorOption = None,
    max_passes: MaxPassesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Plan a private path of states and predict its error, from the program and public facts alone."""
    from private_mcmc.planning import plan as make
    from private_mcmc.report import Report, Text

    wanted, relation = checked_guarantee(guarantee), check_adjacency(adjacency)
    check_count("n", n)
    target = Target(epsilon, small_delta(n) if delta is None else delta, relation)
    asked = read_question(schema, formula, model, family, prior or [])
    made = make(
        asked.model,
        asked.rows,
        target,
        n=n,
        guarantee=wanted,
        model_args=asked.public(n),
        max_error=max_error,
        max_passes=max_passes,
        coefficients=asked.coefficients,
    )
    if as_json:
        record = {
            "guarantee": made.guarantee,
            "posterior": made.posterior,
            "temper": made.temper,
            "n": made.n,
            "gdp": made.budget,
            "prediction": made.prediction.to_record(),
            "statement": made.statement.to_dict(),
        }
        echo(json.dumps(record, ensure_ascii=False))
        return
    made.report(asked.units).show()
    Report("", (Text(made.statement.summary(made.target.delta)),)).show()


_BOOKS = "--ledger ledger.db --dataset adult --yes"
# What is done, and the command that does it.
STORY = (
    (
        "A schema from the codebook; of the table only the header is read",
        "init people.csv --codebook codebook.json --out schema.yaml",
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
        f"--formula 'income ~ age + education_num + hours_per_week + sex + race' {_BOOKS}",
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
    out: Annotated[Path, typer.Option(help="folder for everything; a free name beside it if taken")] = Path(
        "demo-study"
    ),
    as_json: JsonOption = False,
) -> None:
    """From a codebook to a dossier: UCI Adult's 48,842 people, commands that you can type yourself."""
    from private_mcmc.cli import app

    Target(epsilon, 1e-6)
    names = (out, *(out.with_name(f"{out.name}-{k}") for k in range(2, 1000)))
    out = next((name for name in names if not name.is_dir()), out)
    packed = resources.files("private_mcmc.data")
    try:
        out.mkdir(parents=True)
        (out / "people.csv").write_bytes(gzip.decompress(packed.joinpath("adult.csv.gz").read_bytes()))
        (out / "codebook.json").write_bytes(packed.joinpath("adult.codebook.json").read_bytes())
    except OSError as error:
        raise OutputError(f"{out}: cannot be written ({error.strerror}).") from None
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        echo(
            f"UCI Adult, an extract of the 1994 US census: 48,842 people. In {out}/ there are people.csv, "
            "as private as any table here, and codebook.json, which is public."
        )
        with contextlib.chdir(out):
            for number, (what, command) in enumerate(STORY, start=1):
                line = command.format(epsilon=epsilon, whole=3 * epsilon)
                echo(f"\n── {number}. {what}\n\n$ private-mcmc {line}")
                app(shlex.split(line), standalone_mode=False, prog_name="private-mcmc")
                sys.stdout.flush()
        echo(f"\n{out / 'study' / 'dossier.html'}: the page to read, print and sign.")
    if as_json:
        files = {path.name: str(path) for path in sorted(out.iterdir())}
        echo(json.dumps({"folder": str(out), "files": files}))
