"""``private-mcmc preflight`` and ``plan``, of ``MODEL.py:model``: answers without data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import (
    AdjacencyOption,
    AllOption,
    ArgsOption,
    Delta,
    Epsilon,
    FamilyOption,
    FormulaOption,
    HtmlOption,
    JsonOption,
    MaxErrorOption,
    ModelArgument,
    NumRows,
    OptionalDelta,
    OptionalRows,
    PriorOption,
    PublicRowsOption,
    RowsOption,
    echo,
    load_model,
    read_arguments,
    read_max_error,
    read_question,
    read_rows,
    shortened,
    show,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.files import check_writable
from private_mcmc.target import (
    OF_FITS,
    OF_PLANS,
    Target,
    check_adjacency,
    check_count,
    checked_guarantee,
    small_delta,
)

if TYPE_CHECKING:
    from private_mcmc.planning import Plan


EXIT_CODES = {"private": 0, "not private": 1, "unknown": 2}


def preflight(
    model: ModelArgument,
    rows: RowsOption,
    n: NumRows,
    epsilon: Epsilon,
    delta: Delta,
    adjacency: AdjacencyOption = "replace_one",
    clip: Annotated[
        float | None, typer.Option(help="bound on every row's gradient that a kernel enforces")
    ] = None,
    temper: Annotated[float, typer.Option(help="power of the likelihood")] = 1.0,
    args: ArgsOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Decide whether a model's posterior is private, from the program and public facts alone.

    Exit code: 0 private, 1 not private, 2 unknown, 3 error.
    """
    from private_mcmc.preflight import preflight as decide

    target = Target(epsilon, delta, check_adjacency(adjacency))
    report = decide(
        load_model(model)[0],
        read_rows(rows),
        target,
        n=n,
        clip=clip,
        temper=temper,
        model_args=read_arguments(args),
    )
    show(report, report.to_dict(), as_json, html)
    raise typer.Exit(EXIT_CODES[report.verdict])


def plan(
    n: NumRows,
    epsilon: Epsilon,
    model: Annotated[
        str | None, typer.Argument(help="a NumPyro model, as FILE.py:FUNCTION, with --rows or --schema")
    ] = None,
    rows: OptionalRows = None,
    schema: Annotated[Path | None, typer.Option(help="in place of --rows: see private-mcmc init")] = None,
    formula: FormulaOption = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    delta: OptionalDelta = None,
    adjacency: AdjacencyOption = "replace_one",
    guarantee: Annotated[
        str | None, typer.Option(help="'posterior' or 'run'; with a schema 'run', as fit has it")
    ] = None,
    max_error: MaxErrorOption = None,
    public_rows: PublicRowsOption = None,
    save: Annotated[Path | None, typer.Option(help="write the plan here, for --plan of run or fit")] = None,
    args: ArgsOption = None,
    whole: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan a private path of states and predict its error, from the program and public facts alone."""
    from private_mcmc.data.table import read_present
    from private_mcmc.planning import plan as make

    wanted = checked_guarantee(guarantee or (OF_PLANS if schema is None else OF_FITS))
    relation = check_adjacency(adjacency)
    check_count("n", n)
    target = Target(epsilon, small_delta(n) if delta is None else delta, relation)
    if save is not None:
        check_writable(save)
    if schema is not None:
        if rows is not None or args is not None:
            raise DeclarationError("--schema declares the rows: leave out --rows and --args.")
        asked = read_question(schema, formula, model, family, prior or [])
        program, declared = asked.model, asked.rows
        public = None if public_rows is None else read_present(public_rows, asked.schema, asked.fields)
        named, units, public_args = asked.coefficients, asked.units, asked.public(n)
    elif model is None or rows is None or formula is not None:
        raise DeclarationError("give MODEL.py:model with --rows, or --schema with --formula or a model.")
    else:
        program, declared = load_model(model)[0], read_rows(rows)
        public, named, units, public_args = None, None, {}, read_arguments(args)
        if public_rows is not None:
            raise DeclarationError("--public-rows goes with --schema here; run takes it with --rows too.")
    made = make(
        program,
        declared,
        target,
        n=n,
        guarantee=wanted,
        model_args=public_args,
        max_error=read_max_error(max_error),
        public_rows=public,
        coefficients=named,
    )
    if save is not None:
        made.save(save)
    if as_json:
        echo(json.dumps(record(made), ensure_ascii=False))
        return
    shortened(made.report(units), whole).show()
    echo(str(made.statement.summary(made.target.delta)))


def record(made: Plan) -> dict[str, object]:
    """A plan as plain data."""
    return {
        "guarantee": made.guarantee,
        "posterior": made.posterior,
        "temper": made.temper,
        "n": made.n,
        "gdp": made.budget,
        "prediction": made.prediction.to_record(),
        "statement": made.statement.to_dict(),
    }
