"""What a plan has released, as it is bought: on disk before its charge is settled, and a study made from it.

The file has the plan, which is public, the numbers that every stage released, and the statement. The stages
themselves are not in it: the policy names them again, from the plan and from what the earlier ones released.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.data.schema import Schema
from private_mcmc.dossier.folder import RELEASE, Study
from private_mcmc.dossier.record import texts
from private_mcmc.errors import DeclarationError
from private_mcmc.files import RECORDED, read_whole
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.driver import PrivateMCMC
from private_mcmc.inference.execute import Outcome
from private_mcmc.inference.execute_plan import outcome_of
from private_mcmc.inference.last_run import About
from private_mcmc.inference.question import question
from private_mcmc.planning import CompletedStage, History, PathStage, Plan, Stage
from private_mcmc.records import Fields, Model, Record
from private_mcmc.release import Counts, Ledger, SecondMoments
from private_mcmc.report import Report, Table, at_most
from private_mcmc.target import Target


def keeper(
    keep: Callable[[Fields], None], plan: Plan, about: About, stages: Plan | None = None
) -> Callable[[Outcome, Fields | None], None]:
    """``Bookkeeping.keep`` for runs of ``plan``: gives ``keep`` all that the study is made from.

    ``stages`` is the plan of what bounds left of the target, where some were bought before.
    """
    head: Record = {
        "plan": (stages or plan).to_record(),
        "target": asdict(plan.target),
        "before": [one.to_dict() for one in plan.before],
        "about": asdict(about),
    }

    def kept(outcome: Outcome, charge: Fields | None) -> None:
        provenance = {"provenance": dict(outcome.provenance)}
        found = {"statement": outcome.statement.to_dict(), "charge": charge, **provenance}
        keep({**head, **found, "stages": [_numbers(one) for one in outcome.history]})

    return kept


def _numbers(one: CompletedStage) -> Record:
    """What a stage released."""
    value = one.value
    if isinstance(value, SecondMoments):
        value = value.matrix
    elif isinstance(value, Counts):
        value = value.values
    return {"name": one.stage.name, "gdp": one.stage.statement.gdp, "values": np.asarray(value).tolist()}


def completed(folder: Path, model: Model | None, ledger: Ledger | None) -> Study | Report:
    """The study of a run that was stopped after its last stage; of one stopped before, what it released.

    A function of what was released: free. A program in the folder is never run: whoever made a dossier could
    have put anything into it.

    Args:
        folder: has the release and no record.
        model: of a run without a formula.
        ledger: that was charged, to keep the study's fingerprint.

    Raises:
        DeclarationError: for a file that is no release, or was made with another model or library.
    """
    place = folder / RELEASE
    try:
        raw = json.loads(read_whole(place, RECORDED, links=False).decode())
        given = raw["about"]
        about = About(**given | {name: tuple(given[name] or ()) for name in ("priors", "warnings")})
        statement, stages = Statement.from_dict(raw["statement"]), list(raw["stages"])
        target, before = Target(**raw["target"]), tuple(map(Statement.from_dict, raw["before"]))
        charge, provenance = raw["charge"], dict(raw["provenance"])
        values = [np.asarray(one["values"], dtype=np.float64) for one in stages]
        plan_record = dict(raw["plan"])
    except OSError as error:
        raise DeclarationError(f"{place}: cannot be read ({error.strerror}).") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DeclarationError(f"{place}: is no release of a run.") from None
    if given["warnings"] is None:
        about = replace(about, warnings=None)
    plan = Plan.from_record(place, plan_record, _model(about, model, folder))
    plan = replace(plan, target=target, before=before)
    history: History = ()
    stage = plan.policy.next(history)
    for one, value in zip(stages, values, strict=True):
        if stage is None or stage.name != one["name"] or stage.statement.gdp != one["gdp"]:
            raise DeclarationError(
                f"{place}: its stages are not those that this library and machine choose again; what they "
                "released is in it."
            )
        history = (*history, CompletedStage(stage, _value(stage, value)))
        stage = plan.policy.next(history)
    if stage is not None:
        return _broken_off(folder, history)
    driver = PrivateMCMC.from_plan(plan, bookkeeping=_books(ledger, charge), progress_bar=False)
    driver.recall(outcome_of(plan, history, statement, provenance), charge)
    return driver.kept(about)


def _books(ledger: Ledger | None, charge: Fields | None) -> Bookkeeping:
    return Bookkeeping() if ledger is None or charge is None else Bookkeeping(ledger, charge["dataset"])


def _model(about: About, given: Model | None, folder: Path) -> Model:
    if about.formula:
        schema = Schema.from_dict(texts(about.schema))
        return question(schema, about.formula, family=about.family, priors=about.priors).model
    if given is None:
        raise DeclarationError(
            f"{folder}: a run of a model of one's own was stopped after its release. Name the model, whose "
            "program is not taken from the folder: --model FILE.py:FUNCTION."
        )
    return given


def _value(stage: Stage, values: Any) -> Any:
    return values if isinstance(stage, PathStage) else stage.mechanism.released(values)


def _broken_off(folder: Path, history: History) -> Report:
    """What a plan bought before it was stopped."""
    rows = tuple((one.stage.name, f"{at_most(one.stage.statement.gdp or 0.0)}-GDP") for one in history)
    title = f"A plan that was stopped: what its stages released is in {folder / RELEASE}"
    return Report(title, (Table(("stage", "price"), rows),))
