"""``private-mcmc summary``, ``report`` and ``verify``: what a dossier answers and shows, and its check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, cast

import typer

from private_mcmc.cli.common import (
    AllOption,
    HtmlOption,
    JsonOption,
    KeyOption,
    ProfileOption,
    echo,
    load_model,
    open_ledger,
    read_profile,
    shortened,
    show,
    split_names,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

if TYPE_CHECKING:
    from private_mcmc.data import Answers
    from private_mcmc.data.comparisons import Scale
    from private_mcmc.data.design import Groups
    from private_mcmc.data.profiles import Profile
    from private_mcmc.dossier import Study
    from private_mcmc.dossier.record import ReleaseRecord
    from private_mcmc.report import Block, Report


def show_answers(
    study: Study,
    profiles: Sequence[dict[str, str]],
    prob: float,
    as_json: bool,
    out: Path | None = None,
    whole: bool = False,
    until: float | None = None,
) -> None:
    """Print a study's answers, what they cost, and where the dossier is."""
    from private_mcmc.dossier.page import results, widening

    answers = replace(study.answers(prob), until=until) if study.formula and not study.stopped else None
    blocks: list[Block] = results(study, prob)[:1]
    if profiles and answers is not None:
        blocks.append(answers.predictions(profiles))
    found = _record(study, answers, profiles)
    show_release("Answers", [*blocks, *widening(study)], found, study, out, as_json, whole)


def show_release(
    title: str,
    blocks: Sequence[Block],
    found: Record,
    record: ReleaseRecord,
    out: Path | None,
    as_json: bool,
    whole: bool,
) -> None:
    """Print what was found, the statement of its release, and where the dossier is."""
    from private_mcmc.report import Report, Text

    price = record.price.summary(record.delta).splitlines()
    statement = "\n".join(line.strip() for line in price[:2])
    found["statement"], blocks = statement, [*blocks, Text(statement)]
    if out is not None:
        found["dossier"], page, check = str(out), out / "dossier.html", f"private-mcmc verify {out}"
        blocks.append(Text(f"Dossier: {page}. Check it anywhere, without the table: `{check}`"))
    show(shortened(Report(title, tuple(blocks)), whole), found, as_json)


def _record(study: Study, answers: Answers | None, profiles: Sequence[dict[str, str]]) -> Record:
    found: Record = {
        "n": study.n,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "adjacency": study.adjacency,
        "stopped": study.stopped,
        "predicted": study.predicted,
        "expected": study.expected,
        "passes": study.passes,
        "warnings": list(study.warnings),
        "fingerprint": study.fingerprint,
    }
    if answers is None:
        return found | {
            "sites": {name: values.mean(axis=0).tolist() for name, values in study.arrays.items()}
        }
    return found | {
        "formula": study.formula,
        "family": study.family,
        "coefficients": answers.summary(),
        "predictions": [
            answers.predict(profile, level) for profile in profiles for level in answers.levels or ("",)
        ],
    }


def summary(
    study: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit or run wrote")],
    profile: ProfileOption = None,
    prob: Annotated[float, typer.Option(help="of the intervals")] = 0.9,
    forest: Annotated[Path | None, typer.Option(help="draw the forest plot to this PNG file")] = None,
    marginal: Annotated[
        bool, typer.Option("--marginal", help="how the mean moves with each field: slopes, and levels")
    ] = False,
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
    groups: Annotated[
        str, typer.Option(help="effects of groups left out: average (zero), integrated (all groups), or new")
    ] = "average",
    until: Annotated[
        float | None,
        typer.Option(help="of times to an event: the probability of none until this time, not the median"),
    ] = None,
    table: Annotated[Path | None, typer.Option("--csv", help="write what is shown as CSV")] = None,
    effects: Annotated[
        Path | None, typer.Option(help="draw the mean along every field to PNG files in this folder")
    ] = None,
    draws: Annotated[
        Path | None, typer.Option(help="write the draws to this CSV file, as posterior::as_draws_df has them")
    ] = None,
    whole: AllOption = False,
    as_json: JsonOption = False,
) -> None:
    """Coefficients, odds or rate ratios and predictions of a study: free, as often as you like."""
    from private_mcmc.dossier import Study

    found, profiles = Study.load(study), [read_profile(text) for text in profile or []]
    if forest is not None:
        found.answers(prob).draw_forest(forest)
    if effects is not None:
        draw(found.answers(prob), profiles[0] if profiles else {}, effects)
    if draws is not None:
        write_draws(found, draws)
    asked = Asked(
        contrast, reference, scale, slope, split_names(by), difference, tuple(probability or []), marginal
    )
    plain = groups == "average" and table is None and over is None and (until is None or bool(profiles))
    if not asked and plain:
        show_answers(found, profiles, prob, as_json, whole=whole, until=until)
        return
    answers = replace(found.answers(prob), groups=cast("Groups", groups), until=until)
    people, weights = _people(answers, over) if over is not None else (profiles or [{}], [])
    asked.tell(answers, people, weights, table, as_json)


def write_draws(study: Study, path: Path) -> None:
    """A line for each draw: its chain and iteration, then every coefficient, or every value of a site."""
    import csv
    import io

    from private_mcmc.files import write_whole
    from private_mcmc.planning.coefficients import elements

    columns = study.answers().by_name if study.formula else elements(study.arrays)
    count = len(next(iter(columns.values()))) // study.chains
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([".chain", ".iteration", ".draw", *columns])
    for index, values in enumerate(zip(*columns.values(), strict=True)):
        lines.writerow([index // count + 1, index % count + 1, index + 1, *map(float, values)])
    write_whole(path, text.getvalue())


class Asked(NamedTuple):
    """Which predictions, comparisons or probabilities are wanted; predictions where nothing is."""

    contrast: str | None = None
    reference: bool = False
    scale: str = "response"
    slope: str | None = None
    by: tuple[str, ...] = ()
    difference: bool = False
    probability: tuple[str, ...] = ()
    marginal: bool = False

    def __bool__(self) -> bool:
        return any((self.contrast, self.slope, self.by, self.difference, self.probability, self.marginal))

    def lines(self, answers: Answers, people: Sequence[Profile], weights: Sequence[float]) -> list[Record]:
        """What is wanted, a line for each number."""
        if self.probability:
            return [
                {"statement": text, "probability": answers.probability(text)} for text in self.probability
            ]
        if self.difference:
            if len(people) < 2:
                raise DeclarationError("--difference: give two profiles or more, --profile A --profile B.")
            frames = [answers.difference(people[0], other) for other in people[1:]]
            return [line for frame in frames for line in frame.to_dict("records")]
        given = people, self.by, weights
        if self.marginal:
            frame = answers.effects(*given)
        elif self.contrast is not None:
            frame = answers.comparisons(self.contrast, *given, cast("Scale", self.scale), self.reference)
        elif self.slope is not None:
            frame = answers.slopes(self.slope, *given)
        else:
            frame = answers.predictions_by(*given)
        return list(frame.to_dict("records"))

    def tell(
        self,
        answers: Answers,
        people: Sequence[Profile],
        weights: Sequence[float],
        path: Path | None,
        as_json: bool,
    ) -> None:
        """Show what is wanted as a table or JSON, and write it as CSV where a path is given."""
        from private_mcmc.files import write_whole
        from private_mcmc.report import Report, Table, Text, as_csv, json_types

        lines = self.lines(answers, people, weights)
        if path is not None:
            write_whole(path, as_csv(lines))
        title = f"{answers.mean} of {answers.outcome}{answers.of_whom}, {answers.prob:.0%} intervals"
        rows = tuple(tuple(line.values()) for line in lines)
        blocks: list[Block] = [Table(tuple(lines[0]), rows, title="" if self.probability else title)]
        if not (self.probability or self.difference):
            moved = [*self.by, (self.contrast or "").partition("=")[0].strip(), self.slope]
            blocks.append(Text(answers.whom(people, moved=[name for name in moved if name])))
        show(Report(answers.design.formula.text, tuple(blocks)), json_types(lines), as_json)


def _people(answers: Answers, over: Path) -> tuple[Sequence[Profile], list[float]]:
    """Public margins from a file, or synthetic people of a described table."""
    from private_mcmc.data.profiles import read_margins

    if not over.is_dir():
        return read_margins(over)
    from private_mcmc.analysis import Description
    from private_mcmc.dossier import Query, load_record

    found = load_record(over)
    if not isinstance(found, Query) or not isinstance(found.analysis, Description):
        raise DeclarationError(f"{over}: no table; name the folder that private-mcmc describe wrote.")
    people = found.analysis.people(found.found, answers.fields)
    return people, [1.0] * len(people)


def draw(answers: Answers, profile: dict[str, str], folder: Path) -> None:
    """A figure of every field of the formula, as PNG."""
    from private_mcmc.data.fields import identifier
    from private_mcmc.report import png

    folder.mkdir(parents=True, exist_ok=True)
    for name in answers.fields:
        plot = answers.effect_plot(name, profile)
        png(plot, folder / f"effect-{identifier(name)}.png", below=plot.description)


def report(
    what: Annotated[
        list[Path],
        typer.Argument(help="a dossier's folder, a ledger file, or a saved plan; or all dossiers of a study"),
    ],
    key: KeyOption = None,
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
        Path | None, typer.Option(help="what only people know, for it: a YAML file, see docs/dossier.md")
    ] = None,
    html: HtmlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dossier, a ledger, a plan, or several dossiers as one. What was interrupted is completed."""
    if len(what) > 1 and any(one is not None for one in (key, model, ledger, registry, about)):
        raise DeclarationError("--key, --model, --ledger, --registry and --about are of one dossier.")
    page = _page(what[0], key, model, ledger) if len(what) == 1 else _several(what)
    if registry is not None:
        _register(what[0], about, registry)
        return
    show(page, page.to_dict(), as_json, html)


def _several(folders: Sequence[Path]) -> Report:
    """The releases of one study on one page, with what they cost together."""
    from private_mcmc.dossier import load_record
    from private_mcmc.dossier.several import several

    return several([load_record(folder) for folder in folders])


def _page(what: Path, key: Path | None, model: str | None, ledger: Path | None) -> Report:
    from private_mcmc.dossier.record import RECORD
    from private_mcmc.release.ledger.file import MAGIC
    from private_mcmc.report import Report

    if what.is_dir() or what.name == RECORD:
        from private_mcmc.dossier.folder import finish, is_complete, is_raw, load_record

        folder = what if what.is_dir() else what.parent
        if is_raw(folder):
            from private_mcmc.inference.raw_release import completed

            program = None if model is None else load_model(model)[0]
            made = completed(folder, program, None if ledger is None else open_ledger(ledger, key))
            if isinstance(made, Report):
                return made
            finish(folder, made)
        study = load_record(folder)
        if not is_complete(folder):
            finish(folder, study)
        return study.report()
    if not what.exists():
        raise DeclarationError(
            f"{what}: there is nothing. Name a dossier's folder, a ledger, or a saved plan."
        )
    if not what.is_file():
        raise DeclarationError(f"{what}: a device or a pipe, where a file is needed.")
    with what.open("rb") as file:
        first = file.read(len(MAGIC))
    if first == MAGIC:
        return open_ledger(what, key).report()
    return _plan(what)


def _register(what: Path, about: Path | None, registry: Path) -> None:
    """Write the entry, and name the questions that nobody has answered."""
    from private_mcmc.dossier import Study
    from private_mcmc.dossier.deployment import deployment, deployment_yaml, read_about
    from private_mcmc.files import write_whole

    made, unsaid = deployment(Study.load(what), {} if about is None else read_about(about))
    write_whole(registry, deployment_yaml(made))
    echo(f"{registry}: written." + (f" Not stated (--about): {', '.join(unsaid)}." if unsaid else ""))


def _plan(what: Path) -> Report:
    """A saved plan, as it stands in its file: only its model could make it again."""
    from private_mcmc.planning.policy import saved_plan
    from private_mcmc.report import Facts, Note, Report, at_most, number

    try:
        saved = saved_plan(what)
    except DeclarationError:
        raise DeclarationError(f"{what}: no dossier, no ledger and no saved plan.") from None
    target, expected = saved["target"], saved["prediction"]
    items = (
        ("guarantee", saved["guarantee"]),
        ("target", f"ε = {at_most(target.epsilon)} at δ = {at_most(target.delta)}, {target.adjacency}"),
        ("rows", f"{saved['n']:,}"),
        ("columns", ", ".join(name for name, _ in saved["rows"].items)),
        ("predicted error of posterior means", f"{number(expected.rms, 2)} {expected.unit}"),
        ("weight of the likelihood", number(saved["temper"])),
    )
    note = Note("As it stands in the file. `run --plan` and `fit --plan` check it against the model.")
    return Report("A plan", (Facts(items), note))


NOT_CONSISTENT = 1


def verify(
    dossier: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit or run wrote")],
    ledger: Annotated[Path | None, typer.Option(help="also compare with the charge in this ledger")] = None,
    key: KeyOption = None,
    fingerprint: Annotated[
        str | None, typer.Option(help="also compare with the one on the page that was signed")
    ] = None,
    allowed_signers: Annotated[
        Path | None, typer.Option(help="also check the signature against this file, as ssh-keygen has it")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute every privacy number of a dossier from its folder alone, and compare its files.

    Alone this shows that a dossier is consistent, not that it is what ran: the first line says what it was
    compared with. Exit code: 0 consistent, 1 not consistent, 3 error.
    """
    from private_mcmc.dossier import verify_dossier

    books = None if ledger is None else open_ledger(ledger, key)
    found = verify_dossier(dossier, books, fingerprint, allowed_signers)
    show(found.report(), found.to_dict(), as_json)
    raise typer.Exit(0 if found else NOT_CONSISTENT)


def sign(
    dossier: Annotated[Path, typer.Argument(help="the folder that private-mcmc fit or run wrote")],
    key: Annotated[Path, typer.Option(help="a private key of OpenSSH, or a public one that an agent knows")],
    as_json: JsonOption = False,
) -> None:
    """Sign a dossier that is consistent with `ssh-keygen -Y`: study.json.sig, beside the record."""
    from private_mcmc.dossier import verify_dossier
    from private_mcmc.dossier.signature import sign as signed

    if not (found := verify_dossier(dossier)):
        raise DeclarationError(f"{dossier}: {found.answer}: nothing was signed; see private-mcmc verify.")
    place = str(signed(dossier, key))
    words = f"{place}: whoever has the public key checks it with verify --allowed-signers."
    echo(json.dumps({"signature": place}) if as_json else words)
