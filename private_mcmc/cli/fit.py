"""``private-mcmc fit people.csv --schema schema.yaml …`` and ``resume``: plan, ask, run and keep."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import (
    ChargedOptions,
    FamilyOption,
    FormulaOption,
    JsonOption,
    KeyOption,
    MaxErrorOption,
    ModelOption,
    PriorOption,
    ProfileOption,
    ask,
    echo,
    load_model,
    open_ledger,
    read_profile,
    read_question,
    show_prediction,
    tell,
    with_options,
)
from private_mcmc.cli.study import show_answers
from private_mcmc.errors import DeclarationError, clean_errors
from private_mcmc.target import OF_FITS, checked_guarantee, remarks_on_delta

if TYPE_CHECKING:
    from private_mcmc.data import Schema
    from private_mcmc.inference.execute_plan import Look
    from private_mcmc.inference.fitting import Planned
    from private_mcmc.inference.question import Question
    from private_mcmc.planning import History, Plan


@dataclass(frozen=True, kw_only=True)
class FitOptions(ChargedOptions):
    """What ``fit`` is told of its plan and its dossier."""

    out: Annotated[Path | None, typer.Option(help="folder for the dossier; made if there is none")] = None
    guarantee: Annotated[str, typer.Option(help="'run', or 'posterior' for the posterior as well")] = OF_FITS
    max_error: MaxErrorOption = None
    bounds_share: Annotated[
        float | None,
        typer.Option(help="of the squared budget, for fields with bounds: private; 0.1 if left out"),
    ] = None

    def planned(self, table: Path, asked: Question, epsilon: float, shown: bool) -> Planned:
        """The fit before anything is spent."""
        from private_mcmc.inference.fitting import plan_fit
        from private_mcmc.inference.question import SHARE

        return plan_fit(
            table,
            asked,
            epsilon=epsilon,
            delta=self.delta,
            adjacency=self.relation,
            n=self.n,
            guarantee=checked_guarantee(self.guarantee),
            max_error=self.max_error,
            bounds_share=SHARE if self.bounds_share is None else self.bounds_share,
            progress_bar=shown,
        )

    def look(self, units: Mapping[str, str]) -> Look:
        """Show what the cheap stages say of the error; stop above ``--max-error``, or if a person says so."""
        from private_mcmc.inference.fitting import exceeds
        from private_mcmc.planning.prediction import predict_after

        limit = self.max_error

        def look(plan: Plan, releases: History) -> bool:
            expected = predict_after(plan, releases)
            show_prediction(expected, units, self.as_json)
            if limit is not None and exceeds(expected, limit):
                tell(["The error is larger than --max-error: nothing more is bought."])
                return True
            if limit is not None or self.yes or not sys.stdin.isatty():
                return False
            return ask("Buy the rest? [Y/n]").lower() in ("n", "no")

        return look


@with_options(FitOptions)
def fit(
    options: FitOptions,
    table: Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata, SPSS; folders of Parquet")],
    schema: Annotated[Path | None, typer.Option(help="what its cells may be: see private-mcmc init")] = None,
    formula: FormulaOption = None,
    model: ModelOption = None,
    family: FamilyOption = "bernoulli",
    prior: PriorOption = None,
    profile: ProfileOption = None,
    show_model: Annotated[
        bool, typer.Option("--show-model", help="print the NumPyro model and stop")
    ] = False,
) -> None:
    """Fit a model privately, answer in the table's own units, and write the dossier.

    The predicted error is shown, and nothing is spent before it is confirmed.
    """
    from rich.console import Console

    from private_mcmc.dossier import new_dossier

    if schema is None:
        raise DeclarationError(
            f"--schema: what cells may be is declared first: private-mcmc init {table} --output schema.yaml "
            "writes what a person then checks, and --schema schema.yaml names it."
        )
    asked = read_question(schema, formula, model, family, prior or [])
    if show_model:
        echo(asked.source, nl=False)
        return
    out, as_json = options.out, options.as_json
    if out is None or options.epsilon is None:
        lacks = ["--out FOLDER, where the dossier is written"] * (out is None)
        lacks += ["--epsilon"] * (options.epsilon is None)
        raise DeclarationError(f"give {', and '.join(lacks)} (or --show-model).")
    profiles = [read_profile(text) for text in profile or []]
    _check_profiles(asked.schema, asked.fields, profiles)
    books, shown = options.books(), not as_json and sys.stderr.isatty()
    with new_dossier(out) as dossier:
        planned = clean_errors(options.planned)(table, asked, options.epsilon, shown)
        made, remarks = planned.plan, planned.warnings(books)
        made.report(asked.units).show(Console(stderr=as_json))
        said = remarks_on_delta(made.target.delta, made.n)
        tell([words for words in remarks if words not in said])
        options.confirm(made.target, made.statement, books, asked.schema.unit)
        study = clean_errors(planned.run)(
            ledger=books,
            dataset=options.dataset,
            purpose=options.purpose,
            progress_bar=shown,
            keep=dossier.keep,
            look=options.look(asked.units),
        )
        dossier.write(study)
    tell(study.warnings[len(remarks) :])
    show_answers(study, profiles, as_json, out)


def _check_profiles(schema: Schema, fields: Sequence[str], profiles: Sequence[dict[str, str]]) -> None:
    """Raise before anything is spent what a prediction would."""
    from private_mcmc.data.comparisons import profile_value

    for profile in profiles:
        if unknown := sorted(set(profile) - set(fields)):
            raise DeclarationError(f"--profile: {unknown} are not in the model; it reads {list(fields)}.")
        for name, text in profile.items():
            profile_value(schema[name], text)


def resume(
    study: Annotated[Path, typer.Argument(help="the folder of a fit that was killed")],
    table: Annotated[Path, typer.Argument(help="the very table that it was started with")],
    ledger: Annotated[Path, typer.Option(help="that was charged")],
    key: KeyOption = None,
    model: Annotated[str | None, typer.Option(help="FILE.py:FUNCTION, of a fit without a formula")] = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with a fit that was killed: bounds and stages that it has bought are not bought again."""
    from private_mcmc.dossier.folder import finish, kept_in
    from private_mcmc.inference.fitting import resume as resumed

    program, source = (None, "") if model is None else load_model(model)
    books, keep = open_ledger(ledger, key), partial(kept_in, study)
    shown = not as_json and sys.stderr.isatty()
    made = clean_errors(resumed)(
        study, table, books, model=program, source=source, progress_bar=shown, keep=keep
    )
    finish(study, made)
    tell(made.warnings)
    show_answers(made, [], as_json, study)
