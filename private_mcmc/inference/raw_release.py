"""What a fit has released, as it is bought: on disk before its charge is settled, and a study made from it.

The file has what the plan is made of, which is public, the bounds that were bought, the numbers that every
stage released, and the statement. The stages themselves are not in it: the policy names them again, from the
plan and from what the earlier ones released.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.arguments import Guarantee, checked_guarantee
from private_mcmc.data.schema import Schema
from private_mcmc.dossier.claims import need
from private_mcmc.dossier.folder import RELEASE, Query, Study, held
from private_mcmc.dossier.record import KNOWN, ReleaseRecord, checked_record, enter, standing_in, texts
from private_mcmc.dossier.verify import charge_of, paid_for
from private_mcmc.errors import DeclarationError, LedgerError
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.declared import Outcome, outcome_of
from private_mcmc.inference.driver import PrivateMCMC
from private_mcmc.inference.last_run import About
from private_mcmc.inference.question import Question, question
from private_mcmc.planning import CompletedStage, History, PathStage, Plan, Prediction, Stage
from private_mcmc.planning.policy import without_prediction
from private_mcmc.records import Fields, Model, Record
from private_mcmc.release import Ledger
from private_mcmc.release.ledger_state import Outcome as Ending
from private_mcmc.report import Note, Report, Table, at_most
from private_mcmc.system import RECORDED, blas_of_one_thread, read_whole
from private_mcmc.target import Target


def so_far(
    plan: Plan,
    about: About,
    stages: Plan | None,
    rest: Target | None,
    max_error: float | None,
    outcome: Outcome,
    charge: Fields | None,
) -> Record:
    """All that the study of a fit is made from, of what it has released so far.

    Args:
        plan: its target, and what was bought before its stages.
        about: what its study says of the question.
        stages: the plan of what bounds left of the target, ``rest``, where some were bought before; ``None``
            until it is made.
        rest: that target, where bounds were bought.
        max_error: above which nothing more is bought after the cheap stages.
        outcome: what was released.
        charge: that pays for it.
    """
    return {
        "model": None if stages is None else stages.mark,
        "prediction": None if stages is None else stages.prediction.to_record(),
        "target": asdict(plan.target),
        "rest": None if rest is None else asdict(rest),
        "n": plan.n,
        "guarantee": plan.guarantee,
        "max_passes": plan.max_passes,
        "max_error": max_error,
        "before": [one.to_dict() for one in plan.before],
        "about": asdict(about),
        "statement": outcome.statement.to_dict(),
        "charge": charge,
        "provenance": dict(outcome.provenance),
        "stages": [
            {"name": one.stage.name, "gdp": one.stage.statement.gdp, "values": one.numbers.tolist()}
            for one in outcome.history
        ],
    }


Keep = Callable[[Fields], None]


def authenticated(keep: Keep | None, ledger: Ledger | None) -> Keep | None:
    """``keep``, given every release with a code under a key of the ledger: a changed one is told by it."""
    if keep is None or ledger is None:
        return keep
    key = ledger.checkpoint_key
    return lambda release: keep({**release, "code": _code(key, release)})


def _code(key: bytes, release: Fields) -> str:
    text = json.dumps(release, sort_keys=True).encode()
    return hmac.new(key, b"release " + text, hashlib.sha256).hexdigest()


def _read(place: Path, ledger: Ledger | None) -> Any:
    """The release as plain data; ``LedgerError`` for one that is not as its run, charged there, wrote it."""
    try:
        raw = json.loads(read_whole(place, RECORDED, links=False).decode())
        code = raw.pop("code", "")
    except OSError as error:
        raise DeclarationError(f"{place}: cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise DeclarationError(f"{place}: is no release of a run.") from None
    if ledger is not None and not hmac.compare_digest(str(code), _code(ledger.checkpoint_key, raw)):
        raise LedgerError(
            f"{place}: was changed after it was written, or not charged to this ledger, which is not told of "
            "it. `private-mcmc report` without a ledger shows what it holds."
        )
    return raw


_LISTS = ("priors", "warnings")


@dataclass(frozen=True, eq=False)
class RawRelease:
    """What the file in a folder holds, checked for its form."""

    place: Path
    model: str | None
    prediction: Record | None
    target: Target
    rest: Target | None
    n: int
    guarantee: Guarantee
    max_passes: int | None
    max_error: float | None
    before: tuple[Statement, ...]
    about: About
    statement: Statement
    charge: Fields | None
    provenance: Fields
    stages: tuple[tuple[str, float, Any], ...]

    @classmethod
    def load(cls, folder: Path, ledger: Ledger | None = None) -> RawRelease:
        """Raises ``DeclarationError`` for a file that is no release, or not that of the ``ledger``."""
        raw = _read(place := folder / RELEASE, ledger)
        try:
            given, rest = raw["about"], raw["rest"]
            lists = {name: None if given[name] is None else tuple(given[name]) for name in _LISTS}
            stages = [(one["name"], one["gdp"], np.asarray(one["values"], float)) for one in raw["stages"]]
            return cls(
                place=place,
                model=None if raw["model"] is None else str(raw["model"]),
                prediction=raw["prediction"],
                target=Target(**raw["target"]),
                rest=None if rest is None else Target(**rest),
                n=int(raw["n"]),
                guarantee=checked_guarantee(raw["guarantee"]),
                max_passes=None if raw["max_passes"] is None else int(raw["max_passes"]),
                max_error=None if raw["max_error"] is None else float(raw["max_error"]),
                before=tuple(map(Statement.from_dict, raw["before"])),
                about=About(**given | lists),
                statement=Statement.from_dict(raw["statement"]),
                charge=None if raw["charge"] is None else dict(raw["charge"]),
                provenance=dict(raw["provenance"]),
                stages=tuple(stages),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DeclarationError(f"{place}: is no release of a run.") from None

    def asked(self, model: Model | None) -> Question:
        """The question of the run, in the ranges that were bought.

        Raises:
            DeclarationError: for a run of a model of one's own without that ``model``: a program in the
                folder is never run, since whoever made it could have put anything into it.
        """
        about, schema = self.about, Schema.from_dict(texts(self.about.schema))
        if about.formula:
            return question(schema, about.formula, family=about.family, priors=about.priors)
        if model is None:
            raise DeclarationError(
                f"{self.place.parent}: a run of a model of one's own was stopped after its release. Name the "
                "model, whose program is not taken from the folder: --model FILE.py:FUNCTION."
            )
        return replace(question(schema, model=model), source=about.model)

    def planned(self, model: Model | None) -> Plan | None:
        """The plan of the stages, if it was made.

        Raises:
            DeclarationError: for another model.
        """
        if self.model is None or self.prediction is None:
            return None
        asked = self.asked(model)
        target, public, named = self.rest or self.target, asked.public(self.n), asked.coefficients
        made = without_prediction(
            asked.model, asked.rows, target, self.n, self.guarantee, public, named, self.max_passes
        )
        if made.mark != self.model:
            raise DeclarationError(
                f"{self.place}: made for another model, or by a library that reads the model differently."
            )
        return replace(made, prediction=Prediction.from_record(self.prediction))

    def of_whole(self, plan: Plan) -> Plan:
        """A plan of the stages as part of the whole target."""
        return replace(plan, target=self.target, before=self.before)

    def history(self, plan: Plan) -> tuple[History, Stage | None]:
        """The stages that were bought, and the next one if there is any.

        Raises:
            DeclarationError: for those of another model or library.
        """
        history: History = ()
        with blas_of_one_thread():  # as in a run: with many, last bits are others
            stage = plan.policy.next(history)
            for name, gdp, values in self.stages:
                if stage is None or stage.name != name or stage.statement.gdp != gdp:
                    raise DeclarationError(
                        f"{self.place}: its stages are not those that this library and machine choose again; "
                        "what they released is in it."
                    )
                value = values if isinstance(stage, PathStage) else stage.released(values)
                history = (*history, CompletedStage(stage, value))
                stage = plan.policy.next(history)
        return history, stage


def completed(
    folder: Path,
    model: Model | None,
    ledger: Ledger | None,
    write: Callable[[ReleaseRecord], None] | None = None,
) -> Study | Query | Report:
    """The study of a run that was stopped after its last stage; of one stopped before, what it released.

    With the ``ledger`` that was charged, a run that was stopped before its last stage ends there: what it has
    not bought is free again, and its study holds the stages that it has. A function of what was released.

    Args:
        folder: has the release and no record.
        model: of a run without a formula.
        ledger: that was charged, to keep the study's fingerprint.
        write: given the record while the folder is held.

    Raises:
        DeclarationError: for a file that is no release, or was made with another model or library.
        OutputError: while its run still goes on.
    """
    with held(folder):
        made = _completed(folder, model, ledger)
        if write is not None and not isinstance(made, Report):
            write(made)
    return made


def _completed(folder: Path, model: Model | None, ledger: Ledger | None) -> Study | Query | Report:
    release = _read(folder / RELEASE, ledger)
    if "kind" in release:  # what a query released is its whole record
        query = checked_record(Query, release, folder / RELEASE)
        enter(ledger, query)
        return query
    raw = RawRelease.load(folder, ledger)
    plan = raw.planned(model)
    history, stage = ((), None) if plan is None else raw.history(plan)
    if plan is None or (stage is not None and (not history or ledger is None or raw.charge is None)):
        if ledger is not None and raw.charge is not None:
            _end(ledger, raw)
        return _broken_off(raw)
    if stage is None:
        with blas_of_one_thread():
            outcome = outcome_of(raw.of_whole(plan), history, raw.statement, raw.provenance)
    else:
        source = dict(raw.provenance)
        outcome = Outcome(raw.statement, None, history=history, provenance=source, ended="stopped")
    charge = raw.charge
    if ledger is not None and charge is not None:
        _end(ledger, raw, "released" if stage is None else "stopped")
        charge = standing_in(ledger, charge["charge"])
    books = Bookkeeping() if ledger is None or charge is None else Bookkeeping(ledger, charge["dataset"])
    driver = PrivateMCMC.from_plan(raw.of_whole(plan), bookkeeping=books, progress_bar=False)
    driver.recall(outcome, charge)
    return driver.kept(raw.about)


def _end(ledger: Ledger, raw: RawRelease, outcome: Ending = "stopped") -> None:
    """Settle a charge of which no more is bought, if it is open; refuse to settle that of another run."""
    charge, paid = raw.charge or {}, paid_for(raw.statement.to_dict())
    for found in ledger.history(charge["dataset"]):
        if found.identity == charge["charge"] and found.outcome == "reserved":
            need(paid_for(found.statement) == paid, "the charge was made for another statement.")
            ledger.settle(found, outcome)


def settle_again(ledger: Ledger, record: ReleaseRecord) -> None:
    """Settle the charge of a dossier that its run, or its release, told the ledger of."""
    if record.ledger is None:
        return
    charge = charge_of(record, ledger)[1]
    need(bool(charge.dossiers), "of this charge the ledger knows no dossier, and there is no release.json.")
    if charge.outcome == "reserved":
        ledger.settle(charge, "released")
    KNOWN.update({record.fingerprint} & set(charge.dossiers))


def _broken_off(raw: RawRelease) -> Report:
    """What a run bought before it was stopped."""
    before = [("bounds", one.gdp or 0.0) for one in raw.before]
    rows = tuple((name, f"{at_most(gdp)}-GDP") for name, gdp in (*before, *(one[:2] for one in raw.stages)))
    title = f"A plan that was stopped: what its stages released is in {raw.place}"
    note = Note(
        "`private-mcmc resume` goes on with it. `private-mcmc report --ledger LEDGER` ends it: what it has "
        "not bought is free again."
    )
    return Report(title, (Table(("stage", "price"), rows), note))
