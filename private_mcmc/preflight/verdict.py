"""The decision: private, not private or unknown, for a model nobody here has seen."""

from __future__ import annotations

import math

from private_mcmc.accounting import Statement, gdp
from private_mcmc.arguments import arguments_checked, check_kind, remarks_on_delta
from private_mcmc.domains import Rows
from private_mcmc.model import Observation, RowModel, read
from private_mcmc.preflight.certificates import (
    Advice,
    Constants,
    VerdictWord,
    certificates,
    constants,
    meets,
    posterior_advice,
    run_advice,
)
from private_mcmc.preflight.estimate import Estimate, estimate
from private_mcmc.preflight.page import PreflightReport
from private_mcmc.preflight.refutation import Refutation, refute
from private_mcmc.records import Model, PublicArguments, Record
from private_mcmc.report import at_most
from private_mcmc.report.document import say, telling
from private_mcmc.schedule import Matrix, Schedule
from private_mcmc.system import without_collection
from private_mcmc.target import Target, check_count, check_positive


def structure(row_model: RowModel, known: Constants) -> Record:
    """Sites, prior constants, predictors and proved constants; infinities mean "not proved"."""
    predictors, rows = row_model.predictors, (row_model.each or row_model).rows
    return {
        "dim": row_model.dim,
        "rows": rows.to_dict(),
        "latents": [
            {"name": site.name, "family": site.family, "shape": list(site.shape)}
            | dict(zip(("lower", "upper", "why"), row_model.proved(site), strict=True))
            for site in row_model.sites
        ],
        "observed": [{"name": site.name, "family": _family(site)} for site in row_model.observations],
        "predictors": 0 if predictors is None else predictors.size,
        "likelihood": row_model.argument,
        "prior_strong_convexity": known.strong_convexity,
        "row_gradient": known.gradient,
        "unbounded_columns": _unbounded(rows),
    }


@arguments_checked
def preflight(
    model: Model,
    rows: Rows,
    target: Target,
    *,
    n: int,
    clip: float | None = None,
    temper: float = 1.0,
    model_args: PublicArguments | None = None,
) -> PreflightReport:
    """Decide from the program and public facts whether one exact posterior draw meets the target.

    **private**: a certificate proves it, for every data set in the row domain. **not private**: an
    explicit pair of data sets and an event violate it, or a data set has no posterior. **unknown**:
    neither; the report says what would certify it. With ``clip`` the posterior meant is that of the
    Huberised likelihood, where clipping binds.

    Args:
        model: a NumPyro model.
        rows: columns and domains of one row.
        target: (ε, δ) and the adjacency.
        n: number of rows (its public bound under ``add_remove``).
        clip: bound ``C`` that a kernel enforces on every row's gradient.
        temper: ``w``, the power of the likelihood.
        model_args: the model's public arguments.

    Raises:
        DeclarationError: for numbers out of range.
        UnsupportedModel: for a model that cannot be read; the message names the site.

    Example:
        >>> from private_mcmc.models import logistic, logistic_rows
        >>> target = pmc.Target(epsilon=3.0, delta=1e-6)
        >>> report = pmc.preflight(logistic, logistic_rows(2), target, n=1000)
        >>> report.verdict, round(report.certificates[0].epsilon(1e-6), 1)
        ('not private', 26.4)
    """
    check_kind("target", target, Target)
    check_count("n", n)
    check_positive("temper", temper)
    if clip is not None:
        check_positive("clip", clip)
    with telling(True), without_collection():
        say("preflight: the model is read")
        found = read(model, rows, n=n, model_args=model_args)
        name = getattr(model, "__name__", "model")
        return examine(found, target, n=n, clip=clip, temper=temper, model_name=name)


def examine(
    row_model: RowModel,
    target: Target,
    *,
    n: int,
    clip: float | None = None,
    temper: float = 1.0,
    metric: Matrix | None = None,
    model_name: str = "model",
) -> PreflightReport:
    """``preflight`` for a model that has been read, clipped in ``metric``."""
    known = constants(row_model, clip, metric)

    def certify(at: float) -> tuple[Statement, ...]:
        return certificates(row_model, known, n=n, temper=at, target=target, whole_curve=False)

    proved = certificates(row_model, known, n=n, temper=temper, target=target)
    private = bool(proved) and meets(proved[0], target)
    refutation, estimated = None, None
    if not private and known.subject == "posterior":
        # Persons with one row each are persons: what refutes the posterior of rows refutes theirs.
        single = row_model if row_model.each is None else row_model.each
        say("preflight: two data sets that tell too much are looked for")
        refutation = refute(single, n=n, temper=temper, target=target)
        estimated = estimate(row_model, n=n, temper=temper, target=target)
    verdict: VerdictWord = "private" if private else ("not private" if refutation else "unknown")
    advice: tuple[Advice, ...] = ()
    if not private:
        advice += posterior_advice(row_model, known, certify, n=n, temper=temper, target=target)
        advice += run_advice(row_model, known, temper, target)
    return PreflightReport(
        model_name=model_name,
        verdict=verdict,
        reasons=(
            *_reasons(row_model, known, proved, refutation, target),
            *_estimated(estimated),
            *remarks_on_delta(target.delta, n),
        ),
        target=target,
        n=n,
        temper=temper,
        clip=clip,
        subject=known.subject,
        certificates=proved,
        refutation=refutation,
        structure=structure(row_model, known),
        advice=advice,
        unit=row_model.unit,
        estimate=estimated if isinstance(estimated, Estimate) else None,
    )


def known_of_posterior(row_model: RowModel, target: Target, n: int, temper: float = 1.0) -> str:
    """Whether one exact posterior draw is certified, or about how far it is from that; nothing is refuted."""
    known = constants(row_model, None)
    proved = certificates(row_model, known, n=n, temper=temper, target=target, whole_curve=False)
    if proved and meets(proved[0], target):
        return "certified at this target as well"
    about = estimate(row_model, n=n, temper=temper, target=target)
    words = f"; {about.words(target)}" if isinstance(about, Estimate) else ""
    if not proved:
        return f"not certified: {_missing(row_model, known)}{words}"
    best = min(statement.epsilon(target.delta) for statement in proved)
    only = f", only at ε = {at_most(best)}" if math.isfinite(best) else ""
    return f"not certified at this target{only}{words}"


def _reasons(
    row_model: RowModel,
    known: Constants,
    proved: tuple[Statement, ...],
    refutation: Refutation | None,
    target: Target,
) -> tuple[str, ...]:
    reasons = [f"no certificate: {_missing(row_model, known)}"]
    if proved:
        best = proved[0]
        shown = f"{at_most(best.gdp)}-GDP, " if best.gdp is not None else ""
        price = f"ε = {at_most(best.epsilon(target.delta))} at δ = {at_most(target.delta)}"
        reasons = [f"the {known.subject} is {shown}{price}, by {best.argument.theorem}"]
    if refutation is not None:
        reasons.append(refutation.reason)
    if known.subject == "Huberised posterior":
        reasons.append("clipping binds: all this concerns the posterior of the Huberised likelihood")
    return tuple(reasons)


def _estimated(found: Estimate | str | None) -> tuple[str, ...]:
    """The row that the estimate is of, or why there is no estimate."""
    if isinstance(found, Estimate):
        return (f"the estimate, which certifies nothing, is of {found.change}",)
    return () if found is None else (f"no estimate: {found}",)


def _family(site: Observation) -> str:
    return "factor" if site.family == "Unit" else site.family


def _unbounded(rows: Rows) -> list[str]:
    return [name for name, domain in rows.items if not math.isfinite(domain.norm_bound)]


def _missing(row_model: RowModel, known: Constants) -> str:
    """What is missing for a certificate, most important first."""
    if known.subject == "no posterior":
        return "clipped rows that are no loss of one predictor have no posterior (theirs is no gradient)"
    missing = []
    unbounded = _unbounded(row_model.rows)
    if row_model.improper:
        missing.append(f"the prior of {', '.join(row_model.improper)} is improper")
    elif not known.strong_convexity > 0:
        weak = [site.name for site in row_model.sites if not row_model.proved(site)[0] > 0]
        missing.append(f"the prior of {', '.join(weak)} is not strongly log-concave")
    if not math.isfinite(known.gradient):
        if unbounded:
            missing.append(f"column {', '.join(unbounded)} is unbounded, so one row's gradient is")
        else:
            families = " and ".join(dict.fromkeys(map(_family, row_model.observations)))
            missing.append(f"no bound on one row's gradient is proved ({families}): clip the rows")
    return "; ".join(missing) or "the constants that are proved certify nothing"


def refusal_of_posterior(report: PreflightReport) -> str:
    """Why no run is made under ``guarantee="posterior"``, and what would change that."""
    changes = "; ".join(item.text for item in report.advice if item.concerns == "posterior")
    return (
        f"refused under guarantee='posterior': preflight answers {report.verdict!r}, because "
        f"{'; '.join(report.reasons)}. What would change that: "
        f"{changes or 'nothing that this library can compute'}. Or rely on the run alone: guarantee='run'."
    )


def refusal_of_run(statement: Statement, schedule: Schedule, target: Target) -> str:
    """Why a run is not made that costs more than its target, and what would fit."""
    found = statement.epsilon(target.delta)
    message = (
        f"the run itself is ε = {at_most(found)} at δ = {at_most(target.delta)}, above the target "
        f"ε = {at_most(target.epsilon)} ({statement.argument.theorem})."
    )
    if statement.gdp is not None and target.delta > 0:
        share = (gdp.budget(target.epsilon, target.delta) / statement.gdp) ** 2
        steps = math.floor(schedule.num_steps * share)
        message += (
            f" On a path the budget pays for Langevin time {schedule.total_time * share:.4g} instead of "
            f"{schedule.total_time:.4g}: num_steps={steps} at this step size, or a clip "
            f"{math.sqrt(share):.3g} times as large."
        )
    return message
