"""What a driver shows of its last run: released values, the statement, the record, draws of the posterior."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpyro.diagnostics import effective_sample_size

from private_mcmc.accounting import Statement
from private_mcmc.accounting.risk import lines, remarks
from private_mcmc.data.source import shown_source
from private_mcmc.dossier import Study
from private_mcmc.dossier.record import enter, environment_hash, mark_of_claims, standing_in, warnings_of
from private_mcmc.errors import NotYetSupported, ReleaseError
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.inference.declared import DIVERGED, Array, Outcome, constrained, diverged
from private_mcmc.inference.execute import DeclaredRun
from private_mcmc.inference.execute_plan import PlannedRun
from private_mcmc.inference.posterior import Astray, GivenReleases, posterior_of
from private_mcmc.planning import Conclusion, History, PathStage, Plan
from private_mcmc.planning.facts import Prior, exchangeable, prior_of
from private_mcmc.planning.policy import opening, predict_after
from private_mcmc.preflight import known_of_posterior
from private_mcmc.preflight.certificates import meets
from private_mcmc.records import Fields, Record
from private_mcmc.release import ReleasedExpectations, ReleasedStates
from private_mcmc.release.released import overshot, sickness
from private_mcmc.report import Report, json_types

if TYPE_CHECKING:
    from private_mcmc.data.answers import Exported


_GIVEN_RELEASES = "of the posterior given what was released"
# A path that counts for fewer independent draws is told of; one of fewer states does not tell.
_CONVERGED, _TELLING = 20.0, 8
# Quantiles of a prior beyond which means are against it, and how many of them are named.
_UNLIKELY, _NAMED = (0.025, 0.975), 5
_LABELS = (
    "Rows are as likely with components exchanged: another run, or NUTS, may number them otherwise, and one "
    "of them may be empty or between two, with intervals that are too narrow. Priors that order them are the "
    "remedy (numpyro.distributions.transforms.OrderedTransform)."
)
_LIBRARIES = ("jax", "numpyro", "numpy", "scipy", "opendp", "arviz-base", "matplotlib")


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
    warnings: tuple[str, ...] | None = None
    # Known from the start: a record that is made again from its release is the same, as a signature asks.
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))


def study_of(
    run: DeclaredRun | PlannedRun,
    n: int,
    outcome: Outcome,
    samples: Mapping[str, np.ndarray],
    charge: Fields | None,
    about: About,
) -> Study:
    """The record of a run that has released; ``samples`` are its draws by site, ``(chains, draws, …)``."""
    declared = run.declared
    released, target, statement = outcome.released, declared.target, outcome.statement
    stopped, gone = outcome.ended == "stopped", diverged(outcome.history)
    if released is None and not stopped:
        raise ReleaseError("the plan broke off: there is no result to keep, .history has its stages.")
    made = declared if isinstance(declared, Plan) else None
    certificate = _certificate(run, n)
    expectations = {}
    if isinstance(released, ReleasedExpectations):
        expectations = {value.name: value.to_dict() for value in released.values}
    said = about.warnings
    if said is None:
        said = (*(() if made is None else made.policy.assumed), *warnings_of(target, n, charge))
    after = None if outcome.conclusion is None else outcome.conclusion.prediction
    if made is not None and stopped:
        after = predict_after(made, outcome.history)
    return Study(
        library=version("private-mcmc"),
        created=about.created,
        table=about.table,
        schema=dict(about.schema),
        rows=json_types(declared.rows.to_dict()),
        formula=about.formula,
        family=about.family,
        priors=about.priors,
        model=about.model or shown_source(declared.model),
        arguments={name: _argument(value) for name, value in declared.model_args.items()},
        epsilon=float(target.epsilon),
        delta=float(target.delta),
        adjacency=target.adjacency,
        n=int(n),
        guarantee=declared.guarantee,
        temper=float(declared.temper),
        predicted=None if made is None else json_types(made.prediction.to_record()),
        expected=None if after is None else json_types(after.to_record()),
        stages=_stages(outcome, stopped or gone),
        stopped=stopped or gone,
        statement=statement.to_dict(),
        certificate=None if certificate is None else certificate.to_dict(),
        ledger=None if charge is None else dict(charge),
        warnings=said + ((DIVERGED,) if gone else ()),
        versions={"python": platform.python_version()}
        | {name: version(name) for name in _LIBRARIES}
        | {"environment": environment_hash()},
        randomness=dict(outcome.provenance),
        chains=max((len(value) for value in samples.values()), default=1),
        draws={name: value.reshape(-1, *value.shape[2:]).tolist() for name, value in samples.items()},
        expectations=json_types(expectations),
    )


def charged_words(run: DeclaredRun | PlannedRun, n: int) -> str:
    """A ledger's words for a run: its model, and a mark of what a dossier will say of rows and posterior."""
    declared, certificate = run.declared, _certificate(run, n)
    model = declared.model
    name = f"{model.__module__}.{getattr(model, '__qualname__', type(model).__name__)}"
    proved = None if certificate is None else certificate.to_dict()
    said = mark_of_claims(json_types(declared.rows.to_dict()), float(declared.temper), proved)
    return f"{name} on rows {declared.rows.fingerprint[:16]}, claims {said}"


def opening_of(run: DeclaredRun | PlannedRun, n: int) -> str:
    """What is said before a run: its target, and what is known of the posterior."""
    if isinstance(run, PlannedRun):
        return run.declared.opening
    declared = run.declared
    known = "certified at this target"  # refused otherwise
    if declared.guarantee == "run":
        known = known_of_posterior(run.decide(n).reading, declared.target, n, declared.temper)
    return opening(declared.target, n, declared.guarantee, known)


def _stages(outcome: Outcome, stopped: bool) -> tuple[Record, ...]:
    """Names and prices of a plan's stages, after whatever was bought before them within the same budget.

    Of one that was ``stopped`` with what they released.
    """
    if not outcome.history:
        return ()
    names = [one.stage.name for one in outcome.history]
    prices = [part.gdp for part in outcome.statement.parts]
    before = ["bought before the plan"] * (len(prices) - len(names))
    found: list[Record] = [
        {"name": name, "gdp": gdp} for name, gdp in zip(before + names, prices, strict=True)
    ]
    for record, one in zip(found[len(before) :], outcome.history, strict=True) if stopped else ():
        record["values"] = one.numbers.tolist()
    return tuple(found)


def _certificate(run: DeclaredRun | PlannedRun, n: int) -> Statement | None:
    """That of the posterior, where the guarantee speaks of it."""
    if isinstance(run, PlannedRun):
        return run.declared.certificate
    declared = run.declared
    if declared.guarantee == "run":
        return None
    found = run.decide(n).report.certificates
    return next((statement for statement in found if meets(statement, declared.target)), None)


def _argument(value: object) -> object:
    if isinstance(value, bool | int | float | str):
        return value
    try:
        return np.asarray(value, dtype=np.float64).tolist()
    except (TypeError, ValueError):
        return repr(value)


class LastRun:
    """The last run of a driver; everything here was released or is public."""

    _run: DeclaredRun | PlannedRun
    _outcome: Outcome | None = None
    _charge: Fields | None = None
    _n: int = 0
    _known: GivenReleases | None = None
    _books: Bookkeeping
    _recorded: tuple[About, Study] | None = None

    def recall(self, outcome: Outcome, charge: Fields | None) -> None:
        """Show what a plan's run has released in another process: public values and their statement."""
        self._known = self._recorded = None
        self._n, self._outcome, self._charge = int(self._run.declared.n or 0), outcome, charge

    @property
    def statement(self) -> Statement:
        """(ε, δ), the whole curve, and the argument that proves it: of the last run, or of the plan."""
        if self._outcome is not None:
            return self._outcome.statement
        if isinstance(self._run, DeclaredRun):
            raise ReleaseError("nothing was run yet; decide(n).statement tells the price beforehand.")
        return self._run.declared.statement

    @property
    def released(self) -> ReleasedStates | ReleasedExpectations:
        """What the last run released."""
        if self._outcome is not None and self._outcome.released is None:
            raise ReleaseError("the plan broke off: .history has what its stages released.")
        if self._outcome is None or self._outcome.released is None:
            raise ReleaseError("nothing was released yet.")
        return self._outcome.released

    @property
    def history(self) -> History:
        """The stages of a plan and what each of them released; empty for a declared run."""
        return () if self._outcome is None else self._outcome.history

    @property
    def conclusion(self) -> Conclusion | None:
        """What a plan's policy made of its releases: draws of its own, and the error to expect of the mean.

        Once ``get_samples()``, ``posterior()`` or ``save()`` have drawn the posterior given the releases, the
        error is that of its mean, as its width tells; its parts are in the policy's proportions.
        """
        found = None if self._outcome is None else self._outcome.conclusion
        if found is None or self._known is None or found.beyond:
            return found
        return replace(found, prediction=found.prediction.scaled_to(self._known.error))

    def get_samples(self, group_by_chain: bool = False) -> Mapping[str, np.ndarray]:
        """Released draws of every site after warm-up; ``(chains, draws, …)`` with ``group_by_chain``.

        Of a plan: draws of ``posterior()``; ``released`` has the raw path.
        """
        return self._states().get_samples(group_by_chain)

    def to_arviz(self) -> Exported:
        """Released draws with their statement: a ``DataTree`` for ArviZ 1, ``InferenceData`` before."""
        return self._states().to_arviz(self._run.declared.target.delta)

    def print_summary(self, prob: float = 0.9) -> None:
        """NumPyro's summary table of released draws, or the released expectations; then its price in a line.

        ``print(mcmc.statement)`` gives the argument, ``mcmc.statement.show()`` what it means to a person.
        """
        if isinstance(self.released, ReleasedStates):
            states = self._states()
            states.print_summary(prob)
            if "draws" in states.provenance:
                print(f"Draws: {states.provenance['draws']}.")
            for remark in (*(() if self._known is None else self._known.remarks), *self._labels()):
                print(remark)
        else:
            print(self.released)
        price, delta = self.statement, self._run.declared.target.delta
        print("\n".join([lines(price, delta)[0], *remarks(price, delta)]))

    def study(self, about: About | None = None) -> Study:
        """The record of the last run: all that a reader or a reviewer needs, and nothing private.

        The ledger that was charged keeps its fingerprint.
        """
        found = self._study(about or About())
        enter(self._books.ledger, found)
        return found

    def _study(self, about: About) -> Study:
        if self._outcome is None:
            raise ReleaseError("nothing was released yet: run first.")
        if self._recorded is not None and self._recorded[0] == about:
            return self._recorded[1]
        if self._outcome.ended == "stopped" and self._charge is not None and self._books.ledger is not None:
            # What was not bought is free again.
            self._charge = standing_in(self._books.ledger, self._charge["charge"])
        noised = self._outcome.released is None or isinstance(self._outcome.released, ReleasedExpectations)
        states = None if noised or diverged(self.history) else self._states()
        samples = {} if states is None else states.get_samples(group_by_chain=True)
        outcome = replace(self._outcome, conclusion=self.conclusion)
        found = study_of(self._run, self._n, outcome, samples, self._charge, about)
        if states is not None:
            found = replace(found, warnings=(*found.warnings, *self._remarks(states)))
        self._recorded = about, found
        return found

    def _remarks(self, states: ReleasedStates) -> tuple[str, ...]:
        """What must be known of draws: that they are the path's, and what their fit does not explain."""
        which = states.provenance.get("draws", _GIVEN_RELEASES)
        of_path = () if which == _GIVEN_RELEASES else (f"Draws: {which}.",)
        if (of_path or not self.history) and (own := sickness(self._chain(states))):
            return (own, *of_path)
        return (*of_path, *(() if self._known is None else self._known.remarks), *self._labels())

    def _labels(self) -> tuple[str, ...]:
        """That components have no names of their own, where a plan's model has such."""
        plan = self._run.declared
        return (_LABELS,) if isinstance(plan, Plan) and exchangeable(plan.reading) else ()

    def kept(self, about: About | None = None) -> Study:
        """As :meth:`study`, whatever happens after a release that was paid for.

        Where the posterior given the releases cannot be drawn, or drawing it is interrupted, the draws are
        the path's, and a warning of the study says so.
        """
        about = about or About()
        try:
            found = self._study(about)
        except (Exception, KeyboardInterrupt) as stopped:
            if self._outcome is None or self._outcome.draws is None:
                raise
            by = f"ended by {type(stopped).__name__}"
            why = "was interrupted" if isinstance(stopped, KeyboardInterrupt) else by
            draws = _of_the_path(self._outcome.draws, f"drawing the posterior {why}")
            outcome, samples = replace(self._outcome, draws=draws), draws.get_samples(group_by_chain=True)
            found = study_of(self._run, self._n, outcome, samples, self._charge, about)
            said = f"Drawing the posterior given the releases {why}: its draws are those of the path."
            found = replace(found, warnings=(*found.warnings, said))
        enter(self._books.ledger, found)
        return found

    def report(self) -> Report:
        """The dossier of the last run as a page; of a plan that was not run yet, the plan."""
        declared = self._run.declared
        if self._outcome is None and isinstance(declared, Plan):
            return declared.report()
        return self.study().report()

    def _repr_html_(self) -> str | None:
        waiting = self._outcome is None or self._outcome.released is None
        return None if waiting else self.report()._repr_html_()

    def save(self, folder: str | Path) -> Path:
        """Write the dossier of the last run into a folder: record, page, draws, model."""
        return self.study().save(folder)

    def expectation(self, what: Any) -> Any:
        """A released expectation by its declared name, or a mean over released draws (free)."""
        released = self.released
        if isinstance(released, ReleasedStates):
            return self._states().expectation(what)
        return released[what].value

    def posterior(self) -> ReleasedStates:
        """Draws of the posterior given everything that a plan's run released, in several chains.

        Stages are noisy observations with known noise: privacy's noise, the cost of bounding rows' influence
        and the prior are in the width. It is post-processing: free, a function of what was released, with a
        public key, so that the draws are reproduced. They are around the policy's own estimate, where it has
        one. Under ``guarantee="posterior"`` too it is that of the model, whose likelihood is not weighted.
        """
        plan, outcome = self._run.declared, self._outcome
        conclusion, draws = (None, None) if outcome is None else (outcome.conclusion, outcome.draws)
        if not isinstance(plan, Plan) or outcome is None or conclusion is None or draws is None:
            raise ReleaseError("posterior: only of plans that were run to their end.")
        if self._known is None:
            found = posterior_of(plan.reading, outcome.history, conclusion)
            self._known = found._replace(remarks=(*found.remarks, *against_prior(plan, found.draws)))
        return _drawn(plan, draws, self._known.draws)

    def _chain(self, states: ReleasedStates) -> Mapping[str, np.ndarray]:
        """The states of the run: of a plan's last path, on the unconstrained space."""
        if not self.history:
            return states.get_samples(group_by_chain=True)
        return {"parameters": self._last_path()[None]} if np.any(self._overshot()) else {}

    def _last_path(self) -> Array:
        """The states of a plan's last path, which a query may follow; of no path, none."""
        paths = (one.states for one in reversed(self.history) if isinstance(one.stage, PathStage))
        return next(paths, np.zeros((0, 0)))

    def _overshot(self) -> npt.NDArray[np.bool_]:
        """Which parameters the last path of a plan jumps over, in its second half."""
        path = self._last_path()
        return overshot(path[None, len(path) // 2 :]) if len(path) else np.zeros(0, dtype=bool)

    def _states(self) -> ReleasedStates:
        if diverged(self.history):
            raise ReleaseError(DIVERGED)
        plan, outcome = self._run.declared, self._outcome
        conclusion, draws = (None, None) if outcome is None else (outcome.conclusion, outcome.draws)
        if isinstance(plan, Plan) and conclusion is not None and draws is not None:
            if np.any(self._overshot()):
                return _of_the_prior(plan, draws, conclusion.draws, "the path's steps overshoot")
            if conclusion.beyond:
                return _of_the_path(draws, "persons' summed gradients are longer than the model says")
            try:
                return self.posterior()
            except Astray as reason:
                return _of_the_prior(plan, draws, conclusion.draws, str(reason))
            except NotYetSupported as reason:
                return _of_the_path(draws, str(reason))
        if not isinstance(self.released, ReleasedStates):
            raise ReleaseError(
                "this run released expectations, not states: its states stay hidden. "
                "Another run with release='path' is another mechanism, charged again."
            )
        return self.released


def _drawn(plan: Plan, like: ReleasedStates, found: Array) -> ReleasedStates:
    """Draws ``(chains, draws, p)`` that were computed from what a plan released, as values of its sites."""
    return replace(
        like,
        samples=constrained(plan.reading, found),
        steps=tuple(range(1, found.shape[1] + 1)),
        provenance={**like.provenance, "draws": _GIVEN_RELEASES},
    )


def against_prior(plan: Plan, draws: Array) -> tuple[str, ...]:
    """Which coefficients of draws ``(chains, draws, p)`` have means that the prior hardly allows, in words.

    Intervals of a proper prior hold what it deems likely as often as they say; of what is far outside it, as
    a slope by which covariates determine the outcome, they hold less, the more the less rows tell.
    """
    means = plan.read.of(draws.reshape(-1, draws.shape[-1]))
    allowed = plan.read.of(prior_of(plan.reading).draws)
    tails = {name: np.quantile(each, _UNLIKELY) for name, each in allowed.items()}
    names = [name for name, (low, high) in tails.items() if not low <= np.mean(means[name]) <= high]
    if not names:
        return ()
    said = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return (
        f"{said}: means beyond the middle 95 % of their priors, which pull them back by what releases hardly "
        "tell, so that intervals may be on the priors' side of the truth. Where a prior was meant to say "
        "little, a wider one is the remedy.",
    )


def as_wide_as_prior(draws: Array, prior: Prior) -> Array:
    """Those of the prior around the mean of ``draws``, ``(draws, p)``, so wide that its centre is within.

    Of all numbers: where a path overshoots or strays in one direction, none that curves into it is known.
    """
    centre = draws.mean(axis=0)
    away = (centre - prior.centre) / prior.scale
    return np.asarray(centre + np.hypot(1.0, away) * (prior.draws - prior.centre))


def _of_the_prior(plan: Plan, like: ReleasedStates, path: Array, reason: str) -> ReleasedStates:
    """Draws as wide as the prior, which say why."""
    draws = _drawn(plan, like, as_wide_as_prior(path, plan.policy.facts.prior)[None])
    said = f"of the prior, around the path's mean ({reason.rstrip('.')})"
    return replace(draws, provenance={**draws.provenance, "draws": said})


def _of_the_path(draws: ReleasedStates, reason: str) -> ReleasedStates:
    """The policy's own draws, which say why they are not the posterior's."""
    said = f"of the path, as wide as the plan expects its means to be off ({reason.rstrip('.')})"
    count = _least_effective(draws)
    if count < _CONVERGED:
        said += (
            f"; it moves so slowly that it counts for {count:.0f} independent draws: it may not have "
            "converged, and intervals may be far too narrow"
        )
    return replace(draws, provenance={**draws.provenance, "draws": said})


def _least_effective(draws: ReleasedStates) -> float:
    """The least effective sample size of all numbers of a path; infinite where it is too short to tell."""
    every = [np.asarray(values) for values in draws.get_samples(group_by_chain=True).values()]
    if not every or every[0].shape[1] < _TELLING:
        return math.inf
    with np.errstate(all="ignore"):  # of numbers that never move
        found = [np.min(effective_sample_size(values)) for values in every if values.size]
    return float(np.nanmin([*found, math.inf]))
