"""``private-mcmc fit people.csv --schema schema.yaml --formula "death ~ age" --epsilon 1 --out study/``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import AdjacencyOption, JsonOption, near_private_rows
from private_mcmc.cli.study import (
    DatasetOption,
    GuaranteeOption,
    LedgerOption,
    MaxErrorOption,
    ProfileOption,
    PurposeOption,
    YesOption,
    confirm,
    opened,
    read_profile,
    show,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.target import check_adjacency

if TYPE_CHECKING:
    from private_mcmc.data import Schema


def fit(
    table: Annotated[Path, typer.Argument(help="CSV or Parquet file of private rows")],
    schema: Annotated[Path, typer.Option(help="what its cells may be: see private-mcmc init")],
    epsilon: Annotated[float | None, typer.Option(help="ε of the target")] = None,
    out: Annotated[Path | None, typer.Option(help="folder for the dossier; made if there is none")] = None,
    formula: Annotated[
        str | None, typer.Option(help="such as 'death ~ age + log(kappa) + (1 | region)'")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="a NumPyro model in its place, FILE.py:FUNCTION; arguments are fields")
    ] = None,
    family: Annotated[str, typer.Option(help="bernoulli, poisson or gaussian")] = "bernoulli",
    prior: Annotated[
        list[str] | None,
        typer.Option(help="on the users' scale, as 'age ~ normal(0, 0.1)' or 'sigma = 12'; may be repeated"),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="δ of the target; by default 1e-6, or less where rows are many")
    ] = None,
    adjacency: AdjacencyOption = "replace_one",
    n: Annotated[
        int | None, typer.Option("--n", help="public bound on the number of rows (add_remove, zero_out)")
    ] = None,
    guarantee: GuaranteeOption = "run",
    max_error: MaxErrorOption = None,
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
    """Fit a model privately and answer in the table's own units.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from private_mcmc.data.schema import Schema
    from private_mcmc.dossier import new_dossier
    from private_mcmc.inference.fit import plan_fit
    from private_mcmc.inference.question import question

    declared, priors = Schema.load(schema), prior or []
    function = None
    if model is not None:
        from private_mcmc.cli.common import load_model

        function = load_model(model)
    asked = question(declared, formula, family=family, priors=priors, model=function)
    if model is not None:
        asked = replace(asked, source=Path(model.rpartition(":")[0]).read_text(encoding="utf-8"))
    if show_model:
        typer.echo(asked.source, nl=False)
        return
    if epsilon is None or out is None:
        raise DeclarationError("give --epsilon and --out, or --show-model.")
    if guarantee not in ("run", "posterior"):
        raise DeclarationError(f"--guarantee {guarantee!r}: 'run' or 'posterior'.")
    profiles = [read_profile(text) for text in profile or []]
    _check_profiles(declared, asked.fields, profiles)
    books = opened(ledger, dataset)
    with new_dossier(out) as place:
        with near_private_rows():
            planned = plan_fit(
                table,
                asked,
                epsilon=epsilon,
                delta=delta,
                adjacency=check_adjacency(adjacency),
                n=n,
                guarantee="posterior" if guarantee == "posterior" else "run",
                max_error=max_error,
            )
        confirm(planned.plan, planned.warnings(books), yes, as_json, books, dataset)
        bar = not as_json and sys.stderr.isatty()
        with near_private_rows():
            study = planned.run(ledger=books, dataset=dataset, purpose=purpose, progress_bar=bar)
        place.write(study)
    show(study, profiles, 0.9, as_json, out)


def _check_profiles(schema: Schema, fields: Sequence[str], profiles: Sequence[dict[str, str]]) -> None:
    """Raise before anything is spent what a prediction would."""
    from private_mcmc.data.answers import profile_value

    for profile in profiles:
        if unknown := sorted(set(profile) - set(fields)):
            raise DeclarationError(f"--profile: {unknown} are not in the model; it reads {list(fields)}.")
        for name, text in profile.items():
            profile_value(schema[name], text)
