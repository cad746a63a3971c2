"""What a record claims, recomputed from its constants: statement, stages, certificate, question, budget."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from private_mcmc.accounting import Statement, gdp
from private_mcmc.accounting import verify as verify_statement
from private_mcmc.accounting.risk import row_counts
from private_mcmc.accounting.statement import same
from private_mcmc.data.fields import count_of, identifier
from private_mcmc.data.schema import Schema
from private_mcmc.data.source import compile_model, model_source
from private_mcmc.dossier.folder import Query
from private_mcmc.dossier.record import ReleaseRecord, StudyRecord, texts, warnings_of
from private_mcmc.errors import DeclarationError, PrivateMCMCError
from private_mcmc.records import Fields
from private_mcmc.release.ledger_state import Filter
from private_mcmc.report import at_least, at_most
from private_mcmc.target import Target, Unit, check_adjacency

Result = Literal["agrees", "differs", "not checked"]

# Of the squared budget: what every policy's last path leaves unspent is rounding.
_SPENT = 0.999
# Amounts in a ledger's words have six digits.
_SHOWN = 1e-5
_BOUGHT = {"langevin", "noise.gaussian"}


class Skipped(Exception):
    """A check that cannot be made here."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at, and what was found."""

    what: str
    result: Result
    why: str = ""


def recomputed(record: ReleaseRecord) -> tuple[Check, ...]:
    """What a record claims, recomputed from its constants; not whether it is the record that was written."""
    found = [
        checked("the privacy statement", lambda: _statement(record)),
        checked("what is to be known of the target", lambda: _remarks(record)),
        checked("the budget that the record tells of", lambda: _books(record)),
    ]
    if isinstance(record, StudyRecord):
        study = record
        found[2:2] = [
            checked("the stages' prices", lambda: _stages(study)),
            checked("the posterior's certificate", lambda: _certificate(study)),
            checked("formula, schema, model and row bounds", lambda: _question(study)),
        ]
    if isinstance(record, Query):
        query = record
        found[2:2] = [checked("question, sums and row bounds", lambda: _sums(query))]
    return tuple(found)


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


def _statement(study: ReleaseRecord) -> str:
    found = verify_statement(study.statement)
    need(bool(found), found.reason)
    need(study.price.adjacency == study.adjacency, "the statement speaks of another adjacency.")
    need(not study.seeded, "the caller chose the randomness: not private.")
    known = study.randomness.get("source") == "operating system"
    need(known, "the record does not say that the operating system chose the randomness.")
    _is_for(study, study.price, "the statement")
    stated = [] if study.price.unit is None else [study.price.unit]
    need(_units(study) == stated, "the statement protects another unit than the rows declare.")
    price = study.price
    if isinstance(study, StudyRecord):
        _weight(study, price)
    meets = price.delta(study.epsilon) <= study.delta or price.epsilon(study.delta) <= study.epsilon
    need(meets, f"the statement does not meet ε = {at_most(study.epsilon)} at δ = {at_most(study.delta)}.")
    return found.reason


def _weight(study: StudyRecord, price: Statement) -> None:
    own = price.argument.constants.get("temper")
    weight = 1.0 if study.stages and study.guarantee == "run" else study.temper if own is None else own
    need(same(study.temper, float(weight)), f"the weight of the likelihood is {weight}, not {study.temper}.")


def _units(study: ReleaseRecord) -> list[Unit]:
    """Whose rows were put together, as the row declaration of a record says."""
    found = [(name, one["person"]) for name, one in study.rows.items() if "person" in one]
    return [Unit(name, person["at_most"]) for name, person in found]


def _is_for(study: ReleaseRecord, made: Statement, what: str) -> None:
    """Raise ``DeclarationError`` unless a statement is for the record's number of rows."""
    counts = set(row_counts(made))
    # Each of them is quoted where the number is private.
    said = counts == {study.n} or (not counts and study.adjacency != "add_remove")
    need(said, f"{what} is for {sorted(counts)} rows, not for {study.n}.")


def _remarks(study: ReleaseRecord) -> str:
    remarks = warnings_of(Target(study.epsilon, study.delta, study.price.adjacency), study.n, study.ledger)
    need(set(remarks) <= set(study.warnings), f"what is to be known of this target is {list(remarks)}.")
    return f"ε = {at_most(study.price.epsilon(study.delta))} at δ = {at_most(study.delta)}"


def _stages(study: StudyRecord) -> str:
    """That a policy can have bought what the record says, and that its last purchase gave the draws."""
    parts, budget = study.price.parts, study.price.argument.constants.get("budget")
    if study.price.argument.rule != "adaptive":
        need(not (study.stages or study.stopped), "stages, and a statement that is not of a plan.")
        if study.price.argument.rule == "langevin":
            _path(study, study.price)
        raise Skipped("not a plan")
    prices, shown = [part.gdp for part in parts], [stage["gdp"] for stage in study.stages]
    # Without a stage any budget follows from its constants.
    need(bool(prices), "the statement names no stage that could have released anything.")
    need(len(prices) == len(shown) and all(map(same, shown, prices)), f"{shown} are not {prices}.")
    whole = gdp.budget(study.epsilon, study.delta)
    need(same(budget, whole), f"the budget is {budget}-GDP, and the largest within the target is {whole}.")
    spent = sum(price**2 for price in prices if price is not None) / whole**2
    kinds = [part.argument.rule for part in parts]
    need(set(kinds) <= _BOUGHT, f"no policy buys {sorted(set(kinds) - _BOUGHT)}.")
    if study.stopped:
        need(not study.draws, "draws, and a plan that was stopped before its last stage.")
    else:
        need(
            spent >= _SPENT, f"the stages cost {spent:.4f} of the squared budget: a policy spends all of it."
        )
        # One query may follow the run, of where it was.
        paths = [price for kind, price in zip(kinds, shown, strict=True) if kind == "langevin"]
        run = "langevin" in kinds[-2:] and paths[-1] == max(paths)
        need(run, "the last stage is no path, the dearest of all, which every policy ends with.")
    for part in parts:
        if part.argument.rule == "langevin":
            need(part.argument.constants["release"] == "path", "a stage of a plan releases its whole path.")
            _path(study, part)
    return f"{len(shown)} stages"


def _path(study: StudyRecord, made: Statement) -> None:
    """Raise ``DeclarationError`` unless a chain ran on the record's rows, in no more numbers than drawn."""
    known = made.argument.constants
    rows, dim = known["num_rows"], known["dim"]
    need(rows == study.n, f"a chain ran on {rows} rows, and the record is of {study.n}.")
    # A simplex of k levels has k - 1 free coordinates: never more than are drawn.
    drawn = sum(math.prod(each.shape[1:]) for each in study.arrays.values())
    need(
        not study.draws or dim <= drawn, f"a chain moved in {dim} dimensions, and {drawn} numbers are drawn."
    )


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
    need(same(weight, study.temper), f"the certificate is for temper {weight}, not {study.temper}.")
    need(made.delta(study.epsilon) <= study.delta, "the certificate does not meet the target.")
    if not study.formula:
        return found.reason
    proved = _proved_of_formula(study)
    need(any(same(study.certificate, one) for one in proved), "no such certificate is proved of the model.")
    return "what is proved of the model that the formula gives"


def _proved_of_formula(study: StudyRecord) -> list[Fields]:
    """The certificates of a formula's posterior at the record's weight, proved anew: no row is needed.

    Of the model that formula and schema give, and never of a program that the record holds.
    """
    from private_mcmc.model import read
    from private_mcmc.preflight.certificates import certificates, constants

    made = study.design
    model, rows = compile_model(model_source(made)), made.rows
    target = Target(study.epsilon, study.delta, check_adjacency(study.adjacency))
    reading = read(model, rows, n=study.n, model_args=study.arguments)
    known = constants(reading, None, None)
    found = certificates(reading, known, n=study.n, temper=study.temper, target=target)
    return [json.loads(json.dumps(one.to_dict())) for one in found]


def _question(study: StudyRecord) -> str:
    if not study.formula:
        raise Skipped("a model of the user's own: the fingerprint covers it")
    schema, made = Schema.from_dict(texts(study.schema)), study.design
    need(model_source(made) == study.model, "the model is not the one that formula and schema give.")
    own = any(effect.term.own for effect in made.effects)
    given = {count_of(identifier(schema.person)): study.n} if own else {}
    need(study.arguments == given, f"public arguments {study.arguments} are not the formula's, {given}.")
    rows = json.loads(json.dumps(made.rows.to_dict()))
    need(rows == study.rows, "the row bounds are not those of the schema.")
    return "the model is the one that the formula gives"


def _sums(query: Query) -> str:
    """That the question gives mechanism and row bounds of the record."""
    again = query.mechanism.statement.of(query.price.mechanism or "")
    need(same(query.statement, json.loads(json.dumps(again.to_dict()))), "the question has another price.")
    rows = json.loads(json.dumps(query.analysis.rows.to_dict()))
    need(rows == query.rows, "the row bounds are not those of the schema.")
    return f"{len(query.found.sums)} families, {len(query.released)} sums"


def _books(study: ReleaseRecord) -> str:
    """The charge that the record tells of, against the price of what was released."""
    books = study.ledger
    if books is None:
        raise Skipped("nothing kept count of this run")
    kept = Filter.of(Target(books["epsilon"], books["delta"], study.price.adjacency))
    budget = kept.describe(kept.limit)
    need(books["budget"] == budget, f"the budget comes to {budget}, not {books['budget']}.")
    stopped = isinstance(study, StudyRecord) and study.stopped
    counted = study.price.parts if stopped else (study.price,)
    cost = kept.describe(sum(map(kept.cost, counted), Fraction(0)))
    # A stage may have been charged whose release was lost.
    lost = stopped and float(cost.removesuffix("-GDP")) <= float(books["cost"].removesuffix("-GDP"))
    need(lost or books["cost"] == cost, f"the release costs {cost}, not {books['cost']}.")
    before, paid, after, left = (
        float(books[name].removesuffix("-GDP")) for name in ("before", "cost", "after", "left")
    )
    added = math.hypot(before, paid)
    need(math.isclose(after, added, rel_tol=_SHOWN), f"{before} and {paid} come to {at_most(added, 6)}-GDP.")
    rest = math.sqrt(max(float(kept.limit) - after**2, 0.0))
    # Squares, since next to nothing is left of a budget that is spent; they are off by twice as much.
    near = math.isclose(left**2, rest**2, abs_tol=2 * _SHOWN * float(kept.limit))
    need(near, f"{at_least(rest, 6)}-GDP is left, not {left}.")
    return f"{cost} of {books['budget']}"
