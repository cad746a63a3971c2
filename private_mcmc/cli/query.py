"""``private-mcmc describe``, ``check`` and ``compare``: asked, charged, released and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import ChargedOptions, SchemaOption, split_names, tell, with_options
from private_mcmc.cli.study import show_release
from private_mcmc.errors import DeclarationError

if TYPE_CHECKING:
    from private_mcmc.analysis import Analysis

TableArgument = Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata, SPSS; folders of Parquet")]


@dataclass(frozen=True, kw_only=True)
class QueryOptions(ChargedOptions):
    """What commands that ask for sums are told."""

    out: Annotated[Path, typer.Option(help="folder for the dossier; made if there is none")]
    share: Annotated[
        float | None, typer.Option(help="of the ledger's whole squared budget, in place of --epsilon")
    ] = None
    prob: Annotated[float, typer.Option(help="of the intervals that are shown")] = 0.9

    def carry_out(self, table: Path, analysis: Analysis) -> None:
        """Plan, ask, charge, release, write the dossier, and show its answers."""
        from private_mcmc.dossier import new_dossier
        from private_mcmc.inference.bookkeeping import Bookkeeping
        from private_mcmc.inference.describe import Books, plan_query

        if not 0 < self.prob < 1:
            raise DeclarationError(f"--prob {self.prob}: must be between 0 and 1.")
        opened = self.books()
        charged = Bookkeeping(opened, self.dataset, self.purpose)
        books = Books(self.epsilon, self.delta, self.share, charged)
        with new_dossier(self.out) as dossier:
            planned = plan_query(table, analysis, books, self.relation, self.n)
            tell(planned.warnings)
            tell(planned.expected)
            self.confirm(planned.target, planned.mechanism.statement, opened, analysis.schema.unit)
            made = planned.run(dossier.keep)
            dossier.write(made)
        title, found = made.subject[:1].upper() + made.subject[1:], {"answers": made.lines(self.prob)}
        blocks = made.analysis.blocks(made.found, self.prob)
        show_release(title, blocks, found, made, self.out, self.as_json)


def _edges(given: Sequence[str]) -> dict[str, list[float]]:
    from private_mcmc.data.fields import is_number, plain_number

    found = {}
    for text in given:
        name, equals, edges = text.partition("=")
        parts = edges.split(",")
        if not equals or not all(map(is_number, parts)):
            raise DeclarationError(f"--bins {text!r}: FIELD=NUMBER,NUMBER,NUMBER, as in age=18,40,65,95.")
        found[name.strip()] = [plain_number(part) for part in parts]
    return found


@with_options(QueryOptions)
def describe(
    options: QueryOptions,
    table: TableArgument,
    schema: SchemaOption,
    fields: Annotated[str | None, typer.Option(help="such as age,sex; all fields if left out")] = None,
    by: Annotated[str | None, typer.Option(help="fields whose levels make cells, such as sex,region")] = None,
    mean: Annotated[str | None, typer.Option(help="numbers of which mean and sd alone are wanted")] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(help="edges that quartiles are told between, as age=18,40,65,95; may be repeated"),
    ] = None,
    sampling: Annotated[
        bool, typer.Option("--sampling", help="intervals also hold the sampling of these people")
    ] = False,
) -> None:
    """Counts, means, sds and quartiles of a table, with intervals, and their dossier.

    One mechanism for all numbers; nothing is spent before it is confirmed.
    """
    from private_mcmc.data.schema import Schema
    from private_mcmc.inference.describe import description

    asked = description(
        Schema.load(schema),
        split_names(fields),
        split_names(by),
        split_names(mean),
        _edges(bins or []),
        sampling,
    )
    options.carry_out(table, asked)


StudyArgument = Annotated[Path, typer.Argument(help="the folder that private-mcmc fit wrote")]


@with_options(QueryOptions)
def check(
    options: QueryOptions,
    study: StudyArgument,
    table: TableArgument,
    by: Annotated[
        str | None, typer.Option(help="categories whose levels make groups, such as region,sex")
    ] = None,
) -> None:
    """Whether a study's model fits: calibration or PIT by group, with a test, and its dossier.

    Which misfits would be found is said before anything is spent.
    """
    from private_mcmc.analysis import Check
    from private_mcmc.dossier import Study
    from private_mcmc.inference.describe import studied

    options.carry_out(table, Check.planned(studied(Study.load(study)), split_names(by)))


@with_options(QueryOptions)
def compare(
    options: QueryOptions,
    study: StudyArgument,
    other: Annotated[Path, typer.Argument(help="the folder of another fit of the same outcome")],
    table: TableArgument,
) -> None:
    """Which of two studies predicts better: a mean difference with its interval, and its dossier."""
    from private_mcmc.analysis import Comparison
    from private_mcmc.dossier import Study
    from private_mcmc.inference.describe import studied

    first, second = (studied(Study.load(place)) for place in (study, other))
    options.carry_out(table, Comparison.planned(first, second))
