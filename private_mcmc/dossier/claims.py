"""What a dossier's record claims: prices recomputed from their constants, errors beside those predicted."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from private_mcmc.accounting import Statement
from private_mcmc.accounting import verify as verify_statement
from private_mcmc.accounting.assumptions import no_more_rows
from private_mcmc.data.fields import count_of, identifier
from private_mcmc.data.schema import Schema
from private_mcmc.data.source import model_source
from private_mcmc.dossier.record import StudyRecord, privacy_numbers, texts, warnings_of
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.planning.frontier import elements
from private_mcmc.records import Fields
from private_mcmc.report import Block, Note, Table, Text, number
from private_mcmc.report.blocks import Cell
from private_mcmc.target import Target, Unit

Result = Literal["agrees", "differs", "not checked"]

_CLOSE = 1e-9


class Skipped(Exception):
    """A check that cannot be made here."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what was found."""

    what: str
    result: Result
    why: str = ""


def recomputed(study: StudyRecord) -> tuple[Check, ...]:
    """What a record claims, recomputed from its constants; not whether it is the record that was written."""
    return (
        checked("the privacy statement", lambda: _statement(study)),
        checked("ε, δ and the risk at the target", lambda: _numbers(study)),
        checked("the stages' prices", lambda: _stages(study)),
        checked("the posterior's certificate", lambda: _certificate(study)),
        checked("formula, schema, model and row bounds", lambda: _question(study)),
    )


def checked(what: str, check: Callable[[], str]) -> Check:
    """What a check found; it never raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of numbers that are out of all range
            return Check(what, "agrees", check())
    except Skipped as reason:
        return Check(what, "not checked", str(reason))
    except (PrivateMCMCError, OSError) as error:
        return Check(what, "differs", str(error))
    except Exception as error:  # a record may hold anything, and libraries raise anything for it
        return Check(what, "differs", f"makes no sense here ({type(error).__name__}: {error})")


def need(holds: bool, words: str) -> None:
    """Raise ``DeclarationError`` unless it holds."""
    if not holds:
        raise DeclarationError(words)


def _statement(study: StudyRecord) -> str:
    found = verify_statement(study.statement)
    need(bool(found), found.reason)
    need(study.price.adjacency == study.adjacency, "the statement speaks of another adjacency.")
    need(not study.seeded, "the caller chose the randomness: not private.")
    _is_for(study, study.price, "the statement")
    stated = [] if study.price.unit is None else [study.price.unit]
    need(_units(study) == stated, "the statement protects another unit than the rows declare.")
    price = study.price
    meets = price.delta(study.epsilon) <= study.delta or price.epsilon(study.delta) <= study.epsilon
    need(meets, f"the statement does not meet ε = {study.epsilon:g} at δ = {study.delta:g}.")
    return found.reason


def _units(study: StudyRecord) -> list[Unit]:
    """Whose rows were put together, as the row declaration of a record says."""
    found = [(name, one["person"]) for name, one in study.rows.items() if "person" in one]
    return [Unit(name, person["at_most"]) for name, person in found]


def _is_for(study: StudyRecord, made: Statement, what: str) -> None:
    """Raise ``DeclarationError`` unless a statement is for the record's number of rows."""
    counts = set(_counts(made))
    need(counts <= {study.n}, f"{what} is for {sorted(counts)} rows, not for {study.n}.")
    # A bounded log-likelihood alone needs no number of rows.
    if study.adjacency == "add_remove" and made.argument.rule != "posterior.bounded":
        capped = no_more_rows(study.n) in _sentences(made)
        need(capped, f"{what} is not for at most {study.n} rows.")


def _sentences(statement: Statement) -> Iterator[str]:
    yield from statement.argument.assumptions
    for part in statement.parts:
        yield from _sentences(part)


def _counts(statement: Statement) -> Iterator[int]:
    """The numbers of rows that its runs were for."""
    known = statement.argument.constants
    yield from (known[name] for name in ("num_rows", "n") if name in known)
    for part in statement.parts:
        yield from _counts(part)


def _numbers(study: StudyRecord) -> str:
    again, found = privacy_numbers(study.price, study.epsilon, study.delta), dict(study.privacy)
    wrong = [name for name in {**again, **found} if not close(found.get(name), again.get(name))]
    said = "; ".join(f"{name} is {again.get(name)}, not {found.get(name)}" for name in wrong)
    need(not wrong, f"recomputed, {said}.")
    remarks = warnings_of(Target(study.epsilon, study.delta, study.price.adjacency), study.n, study.ledger)
    need(set(remarks) <= set(study.warnings), f"what is to be known of this target is {list(remarks)}.")
    return f"ε = {again['epsilon_at_delta']:.6g} at δ = {study.delta:g}"


def close(found: Any, wanted: Any) -> bool:
    """Equal, up to rounding on another machine."""
    if isinstance(wanted, Mapping):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(close(found[key], wanted[key]) for key in wanted)
        )
    if isinstance(wanted, float):
        return type(found) in (int, float) and math.isclose(found, wanted, rel_tol=_CLOSE, abs_tol=1e-300)
    return type(found) is type(wanted) and found == wanted


def _stages(study: StudyRecord) -> str:
    if not study.stages:
        raise Skipped("not a plan")
    prices = [part.gdp for part in study.price.parts]
    shown = [stage["gdp"] for stage in study.stages]
    need(len(prices) == len(shown) and all(map(close, shown, prices)), f"{shown} are not {prices}.")
    return f"{len(shown)} stages"


def _certificate(study: StudyRecord) -> str:
    if study.guarantee == "run":
        need(study.certificate is None, "a certificate that the guarantee does not speak of.")
        raise Skipped("guarantee 'run': the posterior is not claimed to be private")
    need(study.guarantee == "posterior", f"guarantee {study.guarantee!r} is unknown.")
    need(study.certificate is not None, "guarantee 'posterior' without a certificate.")
    found = verify_statement(study.certificate or {})
    need(bool(found), found.reason)
    made = Statement.from_dict(study.certificate or {})
    need(made.adjacency == study.adjacency, "the certificate speaks of another adjacency.")
    need(made.unit == study.price.unit, "the certificate protects another unit than the statement.")
    _is_for(study, made, "the certificate")
    weight = made.argument.constants.get("temper", study.temper)
    need(close(weight, study.temper), f"the certificate is for temper {weight}, not {study.temper}.")
    need(made.delta(study.epsilon) <= study.delta, "the certificate does not meet the target.")
    return found.reason


def _question(study: StudyRecord) -> str:
    if not study.formula:
        raise Skipped("a model of the user's own: the fingerprint covers it")
    same_library(study)
    schema, made = Schema.from_dict(texts(study.schema)), study.design
    need(model_source(made) == study.model, "the model is not the one that formula and schema give.")
    own = any(effect.term.own for effect in made.effects)
    given = {count_of(identifier(schema.person)): study.n} if own else {}
    need(study.arguments == given, f"public arguments {study.arguments} are not the formula's, {given}.")
    rows = json.loads(json.dumps(schema.rows(made.formula.fields).to_dict()))
    need(rows == study.rows, "the row bounds are not those of the schema.")
    need(close(study.norm, made.norm), f"norm {study.norm} is not {made.norm}.")
    return "the model is the one that the formula gives"


def same_library(study: StudyRecord) -> None:
    """Raise ``Skipped`` where another version made the record."""
    here = version("private-mcmc")
    if study.library != here:
        raise Skipped(f"made with version {study.library}, and this is {here}")


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
    if study.predicted is None:
        declared = "No plan: steps, clip and weight were declared. Nothing predicted the error."
        return [Text(declared), _passes(study)]
    before, after = study.predicted, study.expected
    # General plans learn nothing of their error from what they release.
    judged = None if after is None or all(after[key] == before[key] for _, key in _WHOLE) else after
    columns = [f"predicted before anything was spent, in {before['unit']} of synthetic people"]
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
        squares: dict[str, float] = {}
        for stage in study.stages:
            squares[stage["name"]] = squares.get(stage["name"], 0.0) + stage["gdp"] ** 2
        total = sum(squares.values())
        parts = "; ".join(f"{name} {100 * square / total:.0f} %" for name, square in squares.items())
        blocks.append(Text(f"What was used went to: {parts}."))
    return [*blocks, _passes(study)]


def widening(study: StudyRecord) -> list[Block]:
    """How much wider the intervals are than they would be without privacy, in plain words."""
    judged = study.expected or study.predicted
    if judged is None or study.guarantee != "run" or judged["unit"] != "posterior sds":
        return []
    times = math.hypot(1.0, float(judged["rms"]))
    said = "The intervals hold privacy's noise, which by estimate makes them about "
    said += f"{number(times, 2)} times as wide."
    if times < _DOMINATED:
        return [Text(said)]
    return [
        Note(
            f"{said} Most of what they show is noise: more rows, fewer terms or a larger ε would tell more.",
            "unsure",
        )
    ]


def _passes(study: StudyRecord) -> Text:
    return Text(f"Passes over the data, by the public schedule: {number(study.passes)}.")


def _of_each(study: StudyRecord, predicted: list[Fields]) -> Table:
    """Predicted error and sd of every coefficient beside the sd that was released, which holds both."""
    draws = study.answers().by_name if study.formula else elements(study.arrays)
    rows: list[tuple[Cell, ...]] = []
    for one in predicted:
        both = math.hypot(one["error"], one["sd"])
        released = draws.get(one["name"])
        shown = None if released is None or len(released) < 2 else number(float(released.std(ddof=1)), 2)
        rows.append((one["name"], _two(one, "error"), _two(one, "sd"), number(both, 2), shown))
    columns = ("coefficient", "predicted error", "sd without privacy", "both together", "sd released")
    title = "Of each coefficient, in its own unit: predicted on synthetic people, and released"
    return Table(columns, tuple(rows), title=title)


def _two(record: Fields, key: str) -> str:
    return number(float(record[key]), 2)
