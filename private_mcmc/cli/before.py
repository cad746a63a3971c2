"""``private-mcmc init``, ``preflight`` and ``plan``: declarations and answers without data."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

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
    ModelOption,
    NumRows,
    OptionalDelta,
    PriorOption,
    SchemaOption,
    echo,
    read_question,
    show,
)
from private_mcmc.target import OF_FITS, Target, check_adjacency, check_count, checked_guarantee, small_delta

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
    output: Annotated[
        Path | None, typer.Option(help="write the schema here, in place of printing it")
    ] = None,
    encoding: Annotated[str, typer.Option(help="of a CSV file that is not in UTF-8, such as cp1252")] = "",
    as_json: JsonOption = False,
) -> None:
    """Write a schema of public declarations from a codebook and the table's header. No value is ever read.

    Columns that the codebook does not declare are ignored until a person declares them.
    """
    from private_mcmc.data.codebook import read_codebook
    from private_mcmc.data.fields import Field
    from private_mcmc.data.schema import Schema
    from private_mcmc.data.table import read_header
    from private_mcmc.records import write_whole

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
    if unknown := [name for name in header if name not in declared]:
        _say(f"Ignored until they are declared, as the schema's first lines show: {unknown}.")
    numbers = [] if person else [name for name in unknown if _PERSON.fullmatch(name.replace(" ", "_"))]
    if numbers:
        _say(
            f"{numbers} may tell persons, or groups of them, apart; nothing is declared of them. The "
            "schema's last lines show how, if one person has several rows."
        )
    text = _HEAD * bool(unknown) + schema.to_yaml()
    text += "".join(_PERSONS.format(name) for name in numbers[:1])
    if output is not None:
        write_whole(output, text)
        _say(f"Wrote {output}.")
    if as_json:
        found = {
            "schema": schema.to_dict(),
            "ignored": unknown,
            "left_out": absent,
            "output": None if output is None else str(output),
        }
        echo(json.dumps(found, ensure_ascii=False))
    elif output is None:
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
    as_json: JsonOption = False,
) -> None:
    """Plan a private path of states and predict its error, from the program and public facts alone."""
    from private_mcmc.planning import plan as make

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
    echo(str(made.statement.summary(made.target.delta)))
