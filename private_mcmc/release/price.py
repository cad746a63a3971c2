"""The price of a schedule: from what is declared and proved to a statement. No preflight is asked.

With ``release="path"`` and an enforced clip nothing about the model enters. Hidden states rest on constants
of prior and rows, and on a box in which float64 rounds little.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from private_mcmc import accounting
from private_mcmc.accounting import Curvature, Statement
from private_mcmc.accounting.sensitivity import noise_ratio, noise_sd
from private_mcmc.errors import DeclarationError
from private_mcmc.potential.chain_constants import curvature, reach_of_prior
from private_mcmc.potential.potential import Potential
from private_mcmc.release.averages import ExpectationsPlan, plan_expectations
from private_mcmc.release.expectations import Expectations
from private_mcmc.schedule import ROUNDING, Schedule
from private_mcmc.target import Target


@dataclass(frozen=True, eq=False)
class Price:
    """What a run costs, with the schedule that it is the price of and the plan of its expectations."""

    statement: Statement
    schedule: Schedule
    expectations: ExpectationsPlan | None = None


def price(
    reading: Potential, schedule: Schedule, target: Target, expectations: Expectations | None = None
) -> Price:
    """The statement of one run of ``schedule``, whose release is what ``expectations`` average, if given.

    The schedule that comes back is the one to run: that of hidden states has got the box they are kept in.

    **Guarantee**: what the statement says, of that schedule, for every data set of the declared rows.

    Raises:
        DeclarationError: where rounding hides what one row moves, or an average's chain may not contract.
    """
    # The states of a path are released: no constant of the model is part of its price.
    path = schedule.release == "path"
    proved = Curvature() if path else curvature(reading, schedule)
    schedule, proved = (schedule, proved) if path else _within_box(schedule, proved, reading)
    if expectations is not None:
        _check_contraction(schedule, proved)
        planned = plan_expectations(expectations, reading, schedule, proved, target)
        return Price(planned.statement, schedule, planned)
    return Price(accounting.langevin_statement(schedule, proved), schedule)


# The largest share of what one row moves that rounding may move a step.
_LARGEST_SHARE = 1e-3


def _within_box(schedule: Schedule, proved: Curvature, reading: Potential) -> tuple[Schedule, Curvature]:
    """The schedule with a box that hidden states are kept in, so that what rounding moves is charged.

    Where nothing says how wide, states are assumed to stay in a box that the statement names; such chains are
    not known to contract either, and are charged as paths.
    """
    half, slope = reach_of_prior(reading, schedule)
    smooth = math.isfinite(proved.prior_smoothness) and math.isfinite(slope)
    if not (smooth and math.isfinite(half) and noise_ratio(schedule)[1] and schedule.clips is None):
        _check_rounding(schedule)
        return schedule, proved
    proved, kept = replace(proved, prior_slope=slope), replace(schedule, within=half)
    share = accounting.kept_rounding(kept, proved)
    if not share <= _LARGEST_SHARE:
        raise _rounded_away(
            f"float64 rounds off {share:.3g} of what one row moves a step, where |θ| ≤ {half:.3g}"
        )
    return replace(kept, rounding=max(share, ROUNDING)), proved


def _check_rounding(schedule: Schedule) -> None:
    """Statements of hidden states rest on a box, in which float64 rounds little beside what a row moves."""
    size, noise = accounting.rounding_box(schedule), noise_sd(schedule, max(schedule.step_sizes))
    if not size >= noise:
        raise _rounded_away(
            f"the noise of a step, {noise:.3g}, takes hidden states out of |θ| ≤ {size:.3g}, where float64 "
            "rounds off little beside what one row moves"
        )


def _rounded_away(why: str) -> DeclarationError:
    return DeclarationError(
        f"{why}: nothing would be proved. Take a larger product of clip, temper and step_size, or "
        "release='path'."
    )


def _check_contraction(schedule: Schedule, proved: Curvature) -> None:
    """An average of a chain that does not contract has a sensitivity that grows without bound."""
    limit = 2 / proved.smoothness if proved.strong_convexity > 0 else math.inf
    if not max(schedule.step_sizes) < limit:
        raise DeclarationError(
            f"step_size={max(schedule.step_sizes):g}: the chain contracts only for step sizes below 2/L = "
            f"{limit:.4g} (L = {proved.smoothness:.4g}, for every data set of the declared rows)."
        )
