"""The record of a run, put together from what was public beforehand and what was released."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np

from private_mcmc.accounting import Statement
from private_mcmc.data.source import shown_source
from private_mcmc.dossier import Study
from private_mcmc.dossier.record import privacy_numbers, warnings_of
from private_mcmc.errors import ReleaseError
from private_mcmc.inference.decision import Declaration
from private_mcmc.inference.runs import Outcome, Runnable
from private_mcmc.planning import Plan, Prediction
from private_mcmc.preflight.certificates import meets
from private_mcmc.records import Fields, Record
from private_mcmc.release import ReleasedExpectations
from private_mcmc.report import plain

_LIBRARIES = ("jax", "numpyro", "numpy", "scipy", "opendp", "arviz", "matplotlib")


@dataclass(frozen=True)
class About:
    """What a run does not know of itself: where its rows and its model came from.

    What is left out is read off the run: the model's source, the remarks on its target.
    """

    table: str = ""
    model: str = ""
    schema: Fields = field(default_factory=dict)
    formula: str = ""
    family: str = ""
    priors: tuple[str, ...] = ()
    norm: float | None = None
    warnings: tuple[str, ...] | None = None


def study_of(
    run: Runnable,
    n: int,
    outcome: Outcome,
    samples: Mapping[str, np.ndarray],
    charge: Fields | None,
    about: About,
) -> Study:
    """The record of a run that has released; ``samples`` are its draws by site, ``(chains, draws, …)``."""
    declared = run.declared
    released, target, statement = outcome.released, declared.target, outcome.statement
    if released is None:
        raise ReleaseError("the plan broke off: there is no result to keep, .history has its stages.")
    made = declared if isinstance(declared, Plan) else None
    certificate = _certificate(run, n)
    expectations = {}
    if isinstance(released, ReleasedExpectations):
        expectations = {value.name: value.to_dict() for value in released.values}
    after = None if outcome.conclusion is None else outcome.conclusion.prediction
    return Study(
        library=version("private-mcmc"),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        table=about.table,
        schema=dict(about.schema),
        rows=plain(declared.rows.to_dict()),
        formula=about.formula,
        family=about.family,
        priors=about.priors,
        model=about.model or shown_source(declared.model),
        arguments={name: _argument(value) for name, value in declared.model_args.items()},
        norm=about.norm,
        epsilon=float(target.epsilon),
        delta=float(target.delta),
        adjacency=target.adjacency,
        n=int(n),
        guarantee=declared.guarantee,
        temper=float(made.temper if made is not None else _temper(declared)),
        predicted=None if made is None else _plain(made.prediction),
        expected=None if after is None else _plain(after),
        stages=_stages(outcome),
        statement=statement.to_dict(),
        certificate=None if certificate is None else certificate.to_dict(),
        privacy=privacy_numbers(statement, target.epsilon, target.delta),
        ledger=None if charge is None else dict(charge),
        warnings=about.warnings
        if about.warnings is not None
        else (*(() if made is None else made.assumed), *warnings_of(target, n, charge)),
        versions={"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES},
        randomness=dict(released.provenance),
        chains=max((len(value) for value in samples.values()), default=1),
        draws={name: value.reshape(-1, *value.shape[2:]).tolist() for name, value in samples.items()},
        expectations=plain(expectations),
    )


def _stages(outcome: Outcome) -> tuple[Record, ...]:
    """Names and prices of a plan's stages, after whatever was bought before them within the same budget."""
    if not outcome.history:
        return ()
    names = [one.stage.name for one in outcome.history]
    prices = [part.gdp for part in outcome.statement.parts]
    before = ["bought before the plan"] * (len(prices) - len(names))
    return tuple({"name": name, "gdp": gdp} for name, gdp in zip(before + names, prices, strict=True))


def _certificate(run: Runnable, n: int) -> Statement | None:
    """That of the posterior, where the guarantee speaks of it."""
    declared = run.declared
    if isinstance(declared, Plan):
        return declared.certificate
    if declared.guarantee == "run":
        return None
    found = run.decide(n).report.certificates
    return next((statement for statement in found if meets(statement, declared.target)), None)


def _temper(declared: Declaration | Plan) -> float:
    return declared.temper if isinstance(declared, Plan) else declared.kernel.temper


def _plain(prediction: Prediction) -> Record:
    found: Record = plain(prediction.to_record())
    return found


def _argument(value: object) -> object:
    if isinstance(value, bool | int | float | str):
        return value
    try:
        return np.asarray(value, dtype=np.float64).tolist()
    except (TypeError, ValueError):
        return repr(value)
