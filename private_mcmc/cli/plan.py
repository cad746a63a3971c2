"""``private-mcmc preflight`` and ``plan``: answers without data."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from private_mcmc.cli.common import (
    AdjacencyOption,
    Delta,
    Epsilon,
    FamilyOption,
    FormulaOption,
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
    guarantee: Annotated[str, typer.Option(help="'run', or 'posterior' for the posterior as well")] = OF_FITS,
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
