"""``private-mcmc fit people.csv --schema schema.yaml --formula "death ~ age" --epsilon 1 --out study/``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import AdjacencyOption, JsonOption, near_private_rows
from private_mcmc.cli.study import (
    DatasetOption,
    FamilyOption,
    FormulaOption,
    GuaranteeOption,
    LedgerOption,
    MaxErrorOption,
    OptionalDelta,
    OptionalEpsilon,
    PlanOption,
    PriorOption,
    ProfileOption,
    PublicRowsOption,
    PurposeOption,
    YesOption,
    as_guarantee,
    confirm,
    opened,
    planned_elsewhere,
    read_profile,
    read_question,
    show,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.target import check_adjacency

if TYPE_CHECKING:
    from private_mcmc.data import Schema


def fit(
    table: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata, SPSS or SAS file")],
    schema: Annotated[Path, typer.Option(help="what its cells may be: see private-mcmc init")],
    epsilon: OptionalEpsilon = None,
    out: Annotated[Path | None, typer.Option(help="folder for the dossier; made if there is none")] = None,
    formula: FormulaOption = None,
    model: Annotated[
        str | None, typer.Option(help="a NumPyro model in its place, FILE.py:FUNCTION; arguments are fields")
    ] = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    delta: OptionalDelta = None,
    adjacency: AdjacencyOption = "replace_one",
    n: Annotated[
        int | None, typer.Option("--n", help="public bound on the number of rows (add_remove, zero_out)")
    ] = None,
    guarantee: GuaranteeOption = "run",
    max_error: MaxErrorOption = None,
    bounds_share: Annotated[
        float | None,
        typer.Option(help="of the squared budget, for fields with bounds: private; 0.1 if left out"),
    ] = None,
    saved: PlanOption = None,
    public_rows: PublicRowsOption = None,
    profile: ProfileOption = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = None,
    purpose: PurposeOption = "",
    show_model: Annotated[
        bool, typer.Option("--show-model", help="print the NumPyro model and stop")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fit a model privately, answer in the table's own units, and write the dossier.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from private_mcmc.dossier import new_dossier
    from private_mcmc.inference.fit import plan_fit, with_plan
    from private_mcmc.inference.question import SHARE
    from private_mcmc.planning import Plan

    asked = read_question(schema, formula, model, family, prior or [])
    if show_model:
        typer.echo(asked.source, nl=False)
        return
    if out is None or (epsilon is None) == (saved is None):
        raise DeclarationError("give --out and one of --epsilon and --plan, or --show-model.")
    relation, wanted = check_adjacency(adjacency), as_guarantee(guarantee)
    profiles = [read_profile(text) for text in profile or []]
    _check_profiles(asked.schema, asked.fields, profiles)
    made: Plan | None = None
    if saved is not None:
        planned_elsewhere(
            delta=delta, n=n, max_error=max_error, bounds_share=bounds_share, public_rows=public_rows
        )
        made = Plan.load(saved, asked.model)
    books = opened(ledger, dataset)
    with new_dossier(out) as place:
        with near_private_rows():
            if made is not None:
                planned = with_plan(table, asked, made)
            elif epsilon is not None:
                planned = plan_fit(
                    table,
                    asked,
                    epsilon=epsilon,
                    delta=delta,
                    adjacency=relation,
                    n=n,
                    guarantee=wanted,
                    max_error=max_error,
                    bounds_share=SHARE if bounds_share is None else bounds_share,
                    public_rows=public_rows,
                )
        confirm(planned.plan, planned.warnings(books), yes, as_json, books, dataset)
        bar = not as_json and sys.stderr.isatty()
        with near_private_rows():
            study = planned.run(ledger=books, dataset=dataset, purpose=purpose, progress_bar=bar)
        place.write(study)
    show(study, profiles, 0.9, as_json, out)


def _check_profiles(schema: Schema, fields: Sequence[str], profiles: Sequence[dict[str, str]]) -> None:
    """Raise before anything is spent what a prediction would."""
    from private_mcmc.data.profiles import profile_value

    for profile in profiles:
        if unknown := sorted(set(profile) - set(fields)):
            raise DeclarationError(f"--profile: {unknown} are not in the model; it reads {list(fields)}.")
        for name, text in profile.items():
            profile_value(schema[name], text)
