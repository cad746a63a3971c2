"""``private-mcmc describe``, ``check`` and ``compare``: asked, charged, released and kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from private_mcmc.cli.common import (
    AdjacencyOption,
    AllOption,
    JsonOption,
    KeyOption,
    OptionalDelta,
    ask,
    echo,
    open_ledger,
    shortened,
    show,
    split_names,
    tell,
    with_options,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.target import check_adjacency

if TYPE_CHECKING:
    from private_mcmc.analysis import Analysis
    from private_mcmc.dossier import Query

TableArgument = Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow, Stata or SPSS file")]


@dataclass(frozen=True)
class QueryOptions:
    """What commands that ask for sums are told; the fields' names are the options'."""

    out: Annotated[Path, typer.Option(help="folder for the dossier; made if there is none")]
    epsilon: Annotated[float | None, typer.Option("--epsilon", help="ε of the target")] = None
    share: Annotated[
        float | None, typer.Option(help="of the ledger's whole squared budget, in place of --epsilon")
    ] = None
    delta: OptionalDelta = None
    n: Annotated[
        int | None,
        typer.Option("--n", help="public: bound on the number of rows, slots (zero_out), or persons"),
    ] = None
    adjacency: AdjacencyOption = "replace_one"
    ledger: Annotated[Path | None, typer.Option(help="ledger file to charge")] = None
    dataset: Annotated[str | None, typer.Option(help="the ledger's name for the table")] = None
    key: KeyOption = None
    purpose: Annotated[str, typer.Option(help="the owner's words for the ledger's history")] = ""
    prob: Annotated[float, typer.Option(help="of the intervals that are shown")] = 0.9
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before the budget is spent")] = False
    whole: AllOption = False
    as_json: JsonOption = False

    def carry_out(self, table: Path, analysis: Analysis) -> None:
        """Plan, ask, charge, release, write the dossier, and show its answers."""
        from private_mcmc.dossier import new_dossier
        from private_mcmc.inference.query import Books, plan_query
        from private_mcmc.report import at_most

        if not 0 < self.prob < 1:
            raise DeclarationError(f"--prob {self.prob}: must be between 0 and 1.")
        if self.key is not None and self.ledger is None:
            raise DeclarationError("--key: is the ledger's: give --ledger and --dataset too.")
        opened = None if self.ledger is None else open_ledger(self.ledger, self.key)
        books = Books(self.epsilon, self.delta, self.share, opened, self.dataset, self.purpose)
        with new_dossier(self.out) as dossier:
            planned = plan_query(table, analysis, books, check_adjacency(self.adjacency), self.n)
            tell(planned.warnings)
            tell(planned.expected)
            if opened is not None and self.dataset is not None:
                left = opened.room_for(self.dataset, planned.mechanism.statement)
                echo(f"The ledger has {left} left.", err=True)
            if not self.yes:
                spends = f"ε = {at_most(planned.target.epsilon, 6)} at δ = {at_most(planned.target.delta, 6)}"
                _confirm(f"This spends {spends}.")
            made = planned.run(dossier.keep)
            dossier.write(made)
        self._show(made)

    def _show(self, made: Query) -> None:
        from private_mcmc.report import Report, Text

        price = made.price.summary(made.delta).splitlines()
        statement = "\n".join(line.strip() for line in price[:2])
        check = f"private-mcmc verify {self.out}"
        blocks = [
            *made.analysis.blocks(made.found, self.prob),
            Text(statement),
            Text(f"Dossier: {self.out / 'dossier.html'}. Check it anywhere, without the table: `{check}`"),
        ]
        record = {"answers": made.lines(self.prob), "statement": statement, "dossier": str(self.out)}
        title = made.subject[:1].upper() + made.subject[1:]
        show(shortened(Report(title, tuple(blocks)), self.whole), record, self.as_json)


def _confirm(words: str) -> None:
    echo(words, err=True)
    try:
        agreed = ask("Go on? [y/N]").lower() in ("y", "yes")
    except EOFError:
        agreed = False
    if not agreed:
        raise DeclarationError("not confirmed: nothing was spent. Answer y, or give --yes in scripts.")


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
    schema: Annotated[Path, typer.Option(help="what its cells may be: see private-mcmc init")],
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
