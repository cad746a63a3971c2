"""The dossier's page: results first, then risk, question, errors, price, and what a person confirms."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from textwrap import shorten

import numpy as np

from private_mcmc.accounting import Statement, gdp
from private_mcmc.accounting.risk import curve, details
from private_mcmc.data.fields import identifier
from private_mcmc.data.schema import Schema
from private_mcmc.dossier.record import ReleaseRecord, StudyRecord, not_protected, texts
from private_mcmc.dossier.shape import declared_rows
from private_mcmc.errors import LedgerError
from private_mcmc.planning.prediction import elements
from private_mcmc.records import Fields
from private_mcmc.release.released import SICK
from private_mcmc.report import (
    Block,
    Code,
    Details,
    Facts,
    Form,
    Heading,
    Note,
    Report,
    Table,
    Text,
    Verdict,
    at_least,
    at_most,
    number,
)
from private_mcmc.report.blocks import Cell

_MOST_SHOWN = 40
_STATED = "(stated, not proved)"


def page(study: StudyRecord, prob: float = 0.9) -> Report:
    """All blocks; a function of the record alone, so that it can be made again to check a page."""
    chosen = "The schema's bounds and levels, the formula, the priors"
    if not study.formula:
        chosen = "The model, its public arguments and the bounds of the rows"
    folded: list[Block] = []
    if study.certificate is not None:
        certificate = Statement.from_dict(study.certificate)
        folded.append(Details("The posterior's certificate", (Code(certificate.summary(study.delta)),)))
    if study.model:
        folded.append(Details("The NumPyro model that ran", (Code(study.model),)))
    return sections(
        study,
        study.formula or study.table or "a private run",
        [*results(study, prob), *widening(study)],
        [_question(study), _columns(study), Heading("Plan and error"), *accuracy(study)],
        _limits(study),
        chosen,
        folded,
    )


def sections(
    record: ReleaseRecord,
    title: str,
    found: Sequence[Block],
    asked: Sequence[Block],
    limits: Sequence[str],
    chosen: str,
    folded: Sequence[Block] = (),
) -> Report:
    """What every dossier says around what was ``found`` and ``asked``; ``chosen``: without looking."""
    blocks: list[Block] = [
        _verdict(record),
        Heading("Results"),
        *found,
        Heading("What can be learnt about one person"),
        Text(record.in_words),
        Heading("What was asked"),
        *asked,
        Heading("What was spent, and what is left"),
        *_ledger(record),
        Heading("Limits"),
        *(Text(f"• {line}") for line in limits),
        Table(("not protected", "what a reader learns of it"), tuple(not_protected(record).items())),
        Heading("For a person to confirm"),
        Text("No program can check these. The statement holds if all of them are true."),
        Form(_sentences(record, chosen), ("name and role", "place and date", "signature")),
        Heading("How to check this page"),
        Text(
            "On any machine, without the table, in the folder of this page. Every privacy number is "
            "recomputed from the record, the page is made again and compared."
        ),
        Code("private-mcmc verify ." + (" --ledger LEDGER" if record.ledger else "")),
        Facts(
            (
                ("fingerprint", f"`{record.fingerprint}`"),
                ("made", record.created),
                ("versions", f"private-mcmc {record.library}, {_listed(record.versions, ' ')}"),
                ("randomness", _listed(record.randomness, ": ") or "not recorded"),
            )
        ),
        details(record.price, record.delta),
        Details("The privacy curve", (curve(record.price, (record.epsilon, record.delta)),)),
        *folded,
    ]
    return Report(f"Dossier: {title}", tuple(blocks))


def _listed(words: Mapping[str, str], sign: str) -> str:
    return ", ".join(f"{name}{sign}{value}" for name, value in words.items())


def _verdict(study: ReleaseRecord) -> Verdict:
    target = f"ε = {at_most(study.epsilon)} at δ = {at_most(study.delta)}"
    if study.seeded:
        return Verdict(
            "Not private",
            "The caller chose the randomness: whoever knows the seed can undo the noise.",
            "bad",
        )
    line = f"What is on this page meets {target}: {study.protects}."
    if isinstance(study, StudyRecord) and study.stopped:
        return Verdict("Private, and without coefficients", line, "unsure", study.warnings)
    if study.warnings:
        first = sorted(study.warnings, key=lambda words: not words.startswith(SICK))
        return Verdict("Private, with remarks", line, "unsure", tuple(first))
    return Verdict("Private", line, "good")


def results(study: StudyRecord, prob: float) -> list[Block]:
    """What was released: a table, and where there is one a picture."""
    if study.stopped:
        bought = tuple((one["name"], f"{at_most(one['gdp'])}-GDP") for one in study.stages)
        return [
            Text(
                "No coefficients: the plan was stopped after these stages, or its path diverged. What they "
                "released is in the record, and may be used freely. By itself this run is as private as the "
                "budget that it was given, not as the sum of its stages; the ledger counts the stages."
            ),
            Table(("stage", "price"), bought),
        ]
    if study.formula:
        answers = study.answers(prob)
        forest = answers.forest()
        return [answers.table(), *([forest] if forest.y_ticks else [])]
    if study.expectations:
        rows = []
        for name, found in study.expectations.items():
            value, noise = (np.ravel(found[key]).tolist() for key in ("value", "noise_sd"))
            for index, each in enumerate(value[:_MOST_SHOWN]):
                label = name if len(value) == 1 else f"{name}[{index}]"
                sd = noise[min(index, len(noise) - 1)]
                rows.append((label, float(each), None if sd is None else float(sd)))
        return [Table(("expectation", "released value", "sd of its noise"), tuple(rows))]
    return _sites(study, prob)


def _sites(study: StudyRecord, prob: float) -> list[Block]:
    tail = (1 - prob) / 2
    rows: list[tuple[Cell, ...]] = []
    every = elements(study.arrays)
    for label, column in islice(every.items(), _MOST_SHOWN):
        low, high = np.quantile(column, [tail, 1 - tail])
        sd = float(column.std(ddof=1)) if len(column) > 1 else None
        rows.append((label, float(column.mean()), sd, f"{number(low)} to {number(high)}"))
    blocks: list[Block] = [Table(("site", "mean", "sd", f"{prob:.0%} interval"), tuple(rows))]
    if study.schema:
        blocks.append(Text("Parameters of a model of the user's own, in the units that it gives them."))
    if len(every) > len(rows):
        blocks.append(Text(f"The first {len(rows)} of {len(every):,} values; `draws.csv` has all."))
    return blocks


def of_whom(study: ReleaseRecord) -> list[tuple[str, Cell]]:
    """The table and its public size."""
    rows = "rows" if study.price.unit is None else "persons"
    return [("table", study.table or "rows in memory"), (rows, study.n)]


def protection(study: ReleaseRecord) -> list[tuple[str, Cell]]:
    """Who is protected, and how well."""
    target = f"ε = {at_most(study.epsilon)}, δ = {at_most(study.delta)}, {study.adjacency}"
    return [("who is protected", study.protects), ("target", target)]


def _question(study: StudyRecord) -> Facts:
    items, arguments = of_whom(study), study.arguments.items()
    given = "; ".join(f"{name} = {shorten(str(value), 60, placeholder=' …')}" for name, value in arguments)
    if study.formula:
        items += [
            ("formula", study.formula if "`" in study.formula else f"`{study.formula}`"),
            ("family", study.family),
            ("priors", "; ".join(study.priors) or "the defaults, see the model"),
        ]
    else:
        items += [("model", "of the user's own"), *([("its public arguments", given)] if given else [])]
    items += protection(study)
    certified = study.guarantee == "posterior"
    items += [("guarantee", "the run and the posterior" if certified else "the run, with its noise")]
    items += [("weight of the likelihood", study.temper)] if study.temper != 1 else []
    return Facts(tuple(items))


def _columns(study: StudyRecord) -> Table:
    if not study.schema:
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (name, shorten(repr(domain), 90, placeholder=" …"))
            for name, domain in declared_rows(study.rows).items
        )
        return Table(("column", "what a row may hold (enforced)"), rows)
    schema = Schema.from_dict(texts(study.schema))
    names = study.design.formula.fields if study.formula else tuple(schema.by_name)
    return columns_of(schema, [name for name in names if identifier(name) in study.rows])


def columns_of(schema: Schema, names: Sequence[str]) -> Table:
    """What a cell of these fields may be."""
    found: list[tuple[Cell, ...]] = []
    for name in names:
        field = schema.by_name[name]
        if not field.is_used:
            continue
        if field.is_category:
            labels = [level.label for level in field.all_levels]
            allowed = ", ".join(labels[:8]) + (f", … ({len(labels)})" if len(labels) > 8 else "")
        else:
            low, high = map(field.shown, field.range)
            allowed = f"{low} to {high} {field.unit}".strip()
        outside = f"; outside {_fate(field.outside)}" if field.outside != "refuse" else ""
        fate = f"{_fate(field.missing)}{outside}; {_fate(field.otherwise)}"
        title = f"{name}: {field.title}" if field.title and field.title != name else name
        found.append((title, allowed, fate, field.bounds_from or "the schema"))
    columns = ("field", "what a cell may be (enforced)", "missing; other cells", "known from")
    return Table(columns, tuple(found))


def _fate(word: str) -> str:
    """What becomes of a cell, in words."""
    words = {"refuse": "refused", "indicator": "kept apart", "other": "a level of its own"}
    words |= {"drop": "its row counts for nothing", "middle": "as the middle of the range"}
    words |= {"marginal": "as every value, as probable as declared", "nearest": "as the nearest end"}
    return words.get(word, f"as {word}")


def _as_epsilon(amount: str, delta: float, left: bool = False) -> str:
    """An amount in words with the ε of one such release; rounded as ``Filter.describe``."""
    shown = at_least if left else at_most
    try:
        m = float(amount.removesuffix("-GDP"))
    except ValueError:
        raise LedgerError(f"{amount!r} is no amount of a ledger, which is such as '0.5-GDP'.") from None
    # Few digits would make 1.1 of the 1.000004 that a rounded amount of ε = 1 comes to.
    return f"about ε = {shown(gdp.epsilon(m, delta))} ({amount})"


def _ledger(study: ReleaseRecord) -> list[Block]:
    books = study.ledger
    if books is None:
        return [Note("Nothing keeps count: what other runs tell about the same people adds up.", "unsure")]
    budget = f"ε = {at_most(books['epsilon'], 6)} at δ = {at_most(books['delta'], 6)}"
    return [
        Facts(
            (
                ("ledger, data set", f"{books['file']}, {books['dataset']}"),
                ("budget of everything, ever", f"{budget} ({books['budget']})"),
                ("spent before", _as_epsilon(books["before"], books["delta"])),
                ("this release", _as_epsilon(books["cost"], books["delta"])),
                ("spent with it", _as_epsilon(books["after"], books["delta"])),
                ("left", _as_epsilon(books["left"], books["delta"], left=True)),
                ("purpose", books["purpose"] or "not stated"),
            )
        )
    ]


def _sentences(study: ReleaseRecord, chosen: str) -> tuple[str, ...]:
    unit = study.price.unit
    who = "No person has more than one row in the table."
    if unit is not None:
        who = (
            f"Rows with equal {unit.name!r} are those of one person, and no person has two of them; of a "
            f"person with more than {unit.rows} rows, {unit.rows} entered."
        )
    found = [
        f"{chosen}, ε and δ were chosen without looking at the private table.",
        who,
        "Whoever could read the machine's memory or time its work while it ran is trusted.",
    ]
    if study.ledger is None:
        found.append("Nothing else was or will be released about these people that is not added to this.")
    else:
        file, name = study.ledger["file"], study.ledger["dataset"]
        found.append(f"All that is ever released about these people is charged to `{file}` as `{name}`.")
    if study.adjacency != "replace_one":
        found.append(f"{study.n:,} is a public number that was not counted from the table.")
    return (*found, *dict.fromkeys(line for line in sentences(study.price) if _STATED in line))


def sentences(statement: Statement) -> list[str]:
    """What a statement and its parts assume."""
    return [*statement.argument.assumptions, *(line for part in statement.parts for line in sentences(part))]


def _limits(study: StudyRecord) -> list[str]:
    found = []
    if study.guarantee == "run":
        found.append(
            "The promise is that of this run and its noise. It does not cover the exact posterior, which may "
            "not be private: publish nothing that was computed from the table without noise."
        )
    found += [
        of_two(study),
        "Intervals assume that the model is about right and hold the noise that was added; errors are "
        "estimates, no theorem covers them.",
        "The predicted error is an average over coefficients, for rows as ranges and priors make them. What "
        "few rows tell of (a rare level, a rare outcome, a long tail) may err several times more: bounding "
        "rows' influence pulls such effects towards zero, and their intervals need not show it.",
        "The chain's noise is floating point, idealised as exact.",
    ]
    return found


def of_two(study: ReleaseRecord) -> str:
    """How well two people together are protected."""
    who, m = "One row" if study.price.unit is None else "One person", study.price.gdp
    # Dong, Roth, Su 2022, Theorem 2.14: twice the m, or twice the pure ε.
    found = 2 * study.price.epsilon(0.0) if m is None else gdp.epsilon(2 * m, study.delta)
    told = f"ε = {at_most(found)} (same δ)" if found < math.inf else "more than twice this ε"
    return f"{who} is protected; what is true of two people together is protected at {told}."


_WHOLE = (
    ("error of posterior means", "rms"),
    ("of it, bounding rows' influence", "bias"),
    ("of it, the noise that buys privacy", "monte_carlo"),
    ("a step's share of a posterior sd, at most", "discretisation"),
)
# Intervals that are so many times as wide tell more of the noise than of the people.
_DOMINATED = 2.0
_UNITS = (
    "The columns have different units: each is a multiple of the sds that the posterior without privacy has, "
    "for synthetic people in the first, for these people as far as the releases tell in the second."
)


def accuracy(study: StudyRecord) -> list[Block]:
    """The whole, then every coefficient, then where the budget went."""
    passes = Text(f"Passes over the data, by the public schedule: {number(study.passes)}.")
    if study.predicted is None:
        return [Text("No plan: steps, clip and weight were declared. Nothing predicted the error."), passes]
    before, after = study.predicted, study.expected
    # General plans learn nothing of their error from what they release.
    judged = None if after is None or all(after[key] == before[key] for _, key in _WHOLE) else after
    columns = ["predicted before anything was spent, in posterior sds of synthetic people"]
    columns += [] if judged is None else ["judged from the releases, in posterior sds as they tell them"]
    rows: list[tuple[Cell, ...]] = [
        (name, *(_two(found, key) for found in (before, judged) if found is not None)) for name, key in _WHOLE
    ]
    blocks: list[Block] = [Table(("", *columns), tuple(rows))]
    if judged is not None:
        blocks.append(Text(_UNITS))
    if before.get("coefficients"):
        blocks.append(_of_each(study, before["coefficients"]))
    if study.stages:
        total = sum(stage["gdp"] ** 2 for stage in study.stages)
        shares: defaultdict[str, float] = defaultdict(float)
        for stage in study.stages:
            shares[stage["name"]] += stage["gdp"] ** 2 / total
        parts = "; ".join(f"{name} {share:.0%}" for name, share in shares.items())
        blocks.append(Text(f"What was used went to: {parts}."))
    return [*blocks, passes]


def widening(study: StudyRecord) -> list[Block]:
    """How much wider the intervals are than they would be without privacy, in plain words."""
    judged = study.expected or study.predicted
    if judged is None or study.stopped or study.guarantee != "run":
        return []
    times = math.hypot(1.0, float(judged["rms"]))
    said = f"Privacy's noise makes the intervals, by estimate, about {number(times, 3)} times as wide."
    if times < _DOMINATED:
        return [Text(said)]
    more = "Most of what they show is noise: more rows, fewer terms or a larger ε would tell more."
    return [Note(f"{said} {more}", "unsure")]


def _of_each(study: StudyRecord, predicted: list[Fields]) -> Table:
    """Predicted error and sd of every coefficient beside the sd that was released, which holds both."""
    draws = study.answers().by_name if study.formula and not study.stopped else elements(study.arrays)
    rows: list[tuple[Cell, ...]] = []
    for one in predicted:
        both = math.hypot(float(one["error"]), float(one["sd"]))
        released = draws.get(one["name"])
        shown = None if released is None or len(released) < 2 else number(float(released.std(ddof=1)), 2)
        rows.append((one["name"], _two(one, "error"), _two(one, "sd"), number(both, 2), shown))
    columns = ("coefficient", "predicted error", "sd without privacy", "both together", "sd released")
    title = "Of each coefficient, in its own unit: predicted on synthetic people, and released"
    return Table(columns, tuple(rows), title=title)


def _two(record: Fields, key: str) -> str:
    return number(float(record[key]), 2)
