"""``private-mcmc summary``, ``report``, ``verify``, ``sign``, ``ledger``: what records answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from private_mcmc.cli.common import (
    HtmlOption,
    JsonOption,
    ProfileOption,
    balance_record,
    balances,
    charge_record,
    charges,
    echo,
    load_model,
    read_profile,
    show,
    split_names,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record
from private_mcmc.target import Target, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.data import Answers
    from private_mcmc.data.comparisons import Profile, Scale
    from private_mcmc.data.design import Groups
    from private_mcmc.dossier import Study
    from private_mcmc.dossier.record import ReleaseRecord
    from private_mcmc.release import Ledger
    from private_mcmc.report import Block, Report

# What is told of a study besides its answers.
_TOLD = (
    *("n", "epsilon", "delta", "adjacency", "stopped", "predicted", "expected", "passes", "warnings"),
    *("fingerprint", "formula", "family"),
)


def show_answers(
    study: Study,
    as_json: bool,
    out: Path | None = None,
    profiles: Sequence[Profile] = (),
    prob: float = 0.9,
    until: float | None = None,
) -> None:
    """Print a study's answers, what they cost, and where the dossier is."""
    from private_mcmc.dossier.page import results, widening
    from private_mcmc.report import Text, table_of

    blocks: list[Block] = results(study, prob)[:1]
    found: Record = {name: getattr(study, name) for name in _TOLD}
    if study.formula and not study.stopped:
        answers = replace(study.answers(prob), until=until)
        found["coefficients"] = answers.summary()
        if profiles:
            found["predictions"] = answers.predictions(profiles).to_dict("records")
            title = f"{answers.title()}, {answers.prob:.0%} intervals"
            said = (answers.whom(profiles), *answers.beyond(found["predictions"]))
            blocks += [table_of(found["predictions"], title), *map(Text, said)]
    else:
        found["sites"] = {name: values.mean(axis=0).tolist() for name, values in study.arrays.items()}
    show_release("Answers", [*blocks, *widening(study)], found, study, out, as_json)


def show_release(
    title: str, blocks: Sequence[Block], found: Record, record: ReleaseRecord, out: Path | None, as_json: bool
) -> None:
    """Print what was found, the statement of its release, and where the dossier is."""
    from private_mcmc.report import Report, Text

    price = record.price.summary(record.delta).splitlines()
    statement = "\n".join(line.strip() for line in price[:2])
    found["statement"], blocks = statement, [*blocks, Text(statement)]
    if out is not None:
        found["dossier"], page, check = str(out), out / "dossier.html", f"private-mcmc verify {out}"
        blocks.append(Text(f"Dossier: {page}. Check it anywhere, without the table: `{check}`"))
    show(Report(title, tuple(blocks)), found, as_json)


def summary(
    study: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit wrote")],
    profile: ProfileOption = None,
    prob: Annotated[float, typer.Option(help="of the intervals")] = 0.9,
    over: Annotated[
        Path | None,
        typer.Option(
            help="average over public margins (profiles with a column weight), or a table that describe wrote"
        ),
    ] = None,
    contrast: Annotated[
        str | None, typer.Option(help="compare the levels of a field, or two values, as age=40,60")
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="each level against the first one, not all pairs")
    ] = False,
    scale: Annotated[str, typer.Option(help="of contrasts: response, link or ratio")] = "response",
    slope: Annotated[str | None, typer.Option(help="the derivative of the mean by a number")] = None,
    by: Annotated[
        str | None,
        typer.Option(help="predictions and contrasts at each level of these fields, as sex,region"),
    ] = None,
    difference: Annotated[
        bool, typer.Option("--difference", help="the second profile less the first, and so on")
    ] = False,
    probability: Annotated[
        list[str] | None, typer.Option(help="that a statement is true, as 'age > 0'; may be repeated")
    ] = None,
    nested: Annotated[
        bool, typer.Option("--nested", help="what each term adds: nats per person that are lost without it")
    ] = False,
    groups: Annotated[
        str, typer.Option(help="effects of groups left out: average (zero), integrated (all groups), or new")
    ] = "average",
    until: Annotated[
        float | None,
        typer.Option(help="of times to an event: the probability of none until this time, not the median"),
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--csv", help="write what is shown as CSV; - for standard output")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Coefficients, odds or rate ratios and predictions of a study: free, as often as you like."""
    from private_mcmc.dossier import Study
    from private_mcmc.report import Report, Text, as_csv, json_types, table_of
    from private_mcmc.system import write_whole

    found, profiles = Study.load(study), [read_profile(text) for text in profile or []]
    asked = any((contrast, slope, by, difference, probability, nested, table, over, groups != "average"))
    if not asked and (until is None or profiles):
        show_answers(found, as_json, None, profiles, prob, until)
        return
    answers = replace(found.answers(prob), groups=cast("Groups", groups), until=until)
    people, weights = people_of(answers, over) if over is not None else (profiles or [{}], [])
    given, fields = (people, split_names(by), weights), [*split_names(by), slope]
    lines: list[Record]
    if probability:
        lines = [{"statement": text, "probability": answers.probability(text)} for text in probability]
    elif difference:
        if len(people) < 2:
            raise DeclarationError("--difference: give two profiles or more, --profile A --profile B.")
        frames = [answers.difference(people[0], other) for other in people[1:]]
        lines = [line for frame in frames for line in frame.to_dict("records")]
    elif nested:
        lines = answers.nested(people, weights).to_dict("records")
    elif contrast is not None:
        lines = answers.comparisons(contrast, *given, cast("Scale", scale), reference).to_dict("records")
        fields.append(contrast.partition("=")[0].strip())
    elif slope is not None:
        lines = answers.slopes(slope, *given).to_dict("records")
    else:
        lines = answers.predictions_by(*given).to_dict("records")
    if table == Path("-"):
        echo(as_csv(lines), nl=False)
        return
    if table is not None:
        write_whole(table, as_csv(lines))
    shown = "difference" if difference else scale if contrast else "slope" if slope else ""
    title = f"{answers.title(shown)}, {prob:.0%} intervals"
    title = f"lost without a term: log density per person, {prob:.0%} intervals" if nested else title
    blocks: list[Block] = [table_of(lines, "" if probability else title)]
    if not probability:
        whom = answers.whom(people, moved=[name for name in fields if name])
        blocks.append(Text("Averages over " * (len(people) > 1 and not difference) + whom))
        blocks += map(Text, () if nested or shown == "link" else answers.beyond(lines))
    show(Report(answers.design.formula.text, tuple(blocks)), json_types(lines), as_json)


def people_of(answers: Answers, over: Path) -> tuple[Sequence[Profile], list[float]]:
    """Public margins from a file, or synthetic people of a described table."""
    from private_mcmc.data.comparisons import read_margins

    if not over.is_dir():
        return read_margins(over)
    from private_mcmc.analysis import Description
    from private_mcmc.dossier import Query, load_record

    found = load_record(over)
    if not isinstance(found, Query) or not isinstance(found.analysis, Description):
        raise DeclarationError(f"{over}: no table; name the folder that private-mcmc describe wrote.")
    people = found.analysis.people(found.found, answers.fields)
    return people, [1.0] * len(people)


def report(
    what: Annotated[list[Path], typer.Argument(help="a dossier's folder, or those of all steps of a study")],
    model: Annotated[
        str | None, typer.Option(help="FILE.py:FUNCTION, to complete a run of a model of one's own")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="that was charged: it keeps the fingerprint of a completed dossier")
    ] = None,
    registry: Annotated[
        Path | None,
        typer.Option(help="write a dossier's entry for OpenDP's registry of deployments to this YAML file"),
    ] = None,
    about: Annotated[
        Path | None, typer.Option(help="what only people know, for page or entry: see docs/dossier.md")
    ] = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dossier, or several as one; one that was interrupted is completed."""
    from private_mcmc.dossier import load_record
    from private_mcmc.dossier.publication import read_about, several, with_answers

    if len(what) > 1 and any(one is not None for one in (model, ledger, registry, about)):
        raise DeclarationError("--model, --ledger, --registry and --about are of one dossier.")
    if len(what) > 1:
        page = several([load_record(folder) for folder in what])
    else:
        page = _page(what[0], model, ledger)
    if registry is not None:
        _register(what[0], about, registry)
        return
    if about is not None:
        page = with_answers(page, read_about(about))
    show(page, page.to_dict(), as_json, html)


def _page(what: Path, model: str | None, ledger: Path | None) -> Report:
    from private_mcmc.dossier.folder import RELEASE, NewDossier, finish, is_complete, is_raw, load_record
    from private_mcmc.dossier.shape import RECORD
    from private_mcmc.dossier.verify import charge_of
    from private_mcmc.inference.raw_release import completed, settle_again
    from private_mcmc.release import Ledger
    from private_mcmc.report import Report

    folder = what.parent if what.name == RECORD else what
    books = None if ledger is None else Ledger(ledger)
    raw = is_raw(folder)
    if not raw and books is not None and (folder / RELEASE).exists():
        # A dossier that the ledger was not told of is made again from its release.
        raw = not charge_of(load_record(folder), books)[1].dossiers
    if raw:
        program = None if model is None else load_model(model)[0]
        made = completed(folder, program, books, NewDossier(folder).write)
        if isinstance(made, Report):
            return made
    study = load_record(folder)
    if books is not None:
        settle_again(books, study)
    if not is_complete(folder) or (books is not None and (folder / RELEASE).exists()):
        finish(folder, study)
    return study.report()


def _register(what: Path, about: Path | None, registry: Path) -> None:
    """Write the entry, and name the questions that nobody has answered."""
    from private_mcmc.data.schema import as_yaml
    from private_mcmc.dossier import Study
    from private_mcmc.dossier.publication import deployment, read_about
    from private_mcmc.system import write_whole

    made, unsaid = deployment(Study.load(what), {} if about is None else read_about(about))
    write_whole(registry, as_yaml(made))
    echo(f"{registry}: written." + (f" Not stated (--about): {', '.join(unsaid)}." if unsaid else ""))


NOT_CONSISTENT = 1


def verify(
    dossier: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit wrote")],
    ledger: Annotated[Path | None, typer.Option(help="also compare with the charge in this ledger")] = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="also compare with the one on the page that was signed")
    ] = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(help="also check the signature against this file, as ssh-keygen has it")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every privacy number of a dossier from its folder alone, and compare its files.

    Alone this shows that it is consistent, not that it is what ran: line 1 says what it was compared with.

    Exit code: 0 consistent, 1 not consistent, 3 error.
    """
    from private_mcmc.dossier import verify_dossier
    from private_mcmc.release import Ledger

    books = None if ledger is None else Ledger(ledger)
    found = verify_dossier(dossier, books, fingerprint, allowed_signers)
    show(found.report(), found.to_dict(), as_json)
    raise typer.Exit(0 if found else NOT_CONSISTENT)


def sign(
    dossier: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit wrote")],
    key: Annotated[Path, typer.Option(help="a private key of OpenSSH, or a public one that an agent knows")],
    as_json: JsonOption = False,
) -> None:
    """Sign a dossier that is consistent with `ssh-keygen -Y`: study.json.sig, beside the record."""
    from private_mcmc.dossier import verify_dossier
    from private_mcmc.dossier.verify import sign as signed

    if not (found := verify_dossier(dossier)):
        raise DeclarationError(f"{dossier}: {found.answer}: nothing was signed; see private-mcmc verify.")
    place = str(signed(dossier, key))
    words = f"{place}: whoever has the public key checks it with verify --allowed-signers."
    echo(json.dumps({"signature": place}) if as_json else words)


ledger = typer.Typer(
    help="What has been spent on every data set, and what is left.",
    no_args_is_help=True,
    add_completion=False,
)

FileArgument = Annotated[Path, typer.Argument(help="ledger file", show_default=False)]
DataSetOption = Annotated[str | None, typer.Option(help="only this data set", show_default=False)]


@ledger.command("init")
def ledger_init(
    path: FileArgument,
    dataset: Annotated[str, typer.Option(help="the ledger's name for the table", show_default=False)],
    epsilon: Annotated[float, typer.Option(help="total ε of everything ever released on it")],
    delta: Annotated[float, typer.Option(help="total δ")],
    adjacency: Annotated[str, typer.Option(help="replace_one, add_remove or zero_out")] = "replace_one",
    unit: Annotated[
        str | None, typer.Option(help="column of identifiers, where persons with several rows are protected")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Declare a data set and its budget; the file is made if there is none."""
    from private_mcmc.release import Filter, Ledger

    # Before a file is made.
    target = Target(epsilon, delta, check_adjacency(adjacency))
    Filter.of(target)
    books = Ledger(path) if path.exists() else Ledger.create(path)
    books.declare(dataset, target, unit=unit)
    _show(books, dataset, as_json)


@ledger.command("show")
def ledger_show(path: FileArgument, dataset: DataSetOption = None, as_json: JsonOption = False) -> None:
    """Spent and remaining budget of every data set."""
    from private_mcmc.release import Ledger

    _show(Ledger(path), dataset, as_json)


@ledger.command("history")
def ledger_history(path: FileArgument, dataset: DataSetOption = None, as_json: JsonOption = False) -> None:
    """Every charge: when, what for, how much, how it ended."""
    from private_mcmc.release import Ledger

    books = Ledger(path)
    state, made = books.state(), books.history(dataset)
    show(charges(state, made), [charge_record(state, charge) for charge in made], as_json)


@ledger.command("verify")
def ledger_verify(
    path: FileArgument,
    head: Annotated[str | None, typer.Option(help="an earlier head, kept elsewhere")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the whole file and every charge against its statement; prints the head to keep elsewhere."""
    from private_mcmc.release import Ledger

    head_now = Ledger(path).verify(head)
    if as_json:
        echo(json.dumps({"ok": True, "entries": head_now.number, "head": str(head_now)}))
    else:
        echo(f"{head_now.number} entries, all sound. Head: {head_now}")


def _show(books: Ledger, dataset: str | None, as_json: bool) -> None:
    """Where one data set stands, or each of them."""
    state = books.state()
    shown = [*state.datasets.values()] if dataset is None else [state.dataset(dataset)]
    show(balances(shown), [balance_record(one) for one in shown], as_json)
