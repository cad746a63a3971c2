"""The statement of the states that a Langevin run releases."""

from __future__ import annotations

from dataclasses import asdict, replace

from private_mcmc.accounting import assumptions
from private_mcmc.accounting.composition import capped
from private_mcmc.accounting.curves.curve import Gaussian
from private_mcmc.accounting.langevin import bounds
from private_mcmc.accounting.langevin.bounds import Bound
from private_mcmc.accounting.langevin.sensitivity import (
    condition_number,
    gradient_limit,
    noise_ratio,
    rounding_box,
    sensitivity,
)
from private_mcmc.accounting.langevin.steps import Curvature, check_scheme
from private_mcmc.accounting.statement import Argument, Statement, of_unit
from private_mcmc.records import Constant
from private_mcmc.schedule import Average, Schedule


def langevin_statement(
    schedule: Schedule, curvature: Curvature | None = None, *, delta: float | None = None
) -> Statement:
    """The statement of the states released by a run: every bound that is proved for it.

    ``path``: ``m² = chains · Σ γ_k Δ²/2``. ``last`` and declared steps: the shift bound with every
    modulus that ``curvature`` proves, each stretch between releases starting again from distance 0.
    Minibatches: the composed loss of the sampled steps, for a last state also combined with shifts.
    Independent chains compose.

    **Guarantee**: every curve of the statement, under ``schedule.adjacency``. **Assumptions**: quoted
    in its argument.

    Args:
        schedule: what ran, or will run.
        curvature: constants proved for every data set; none by default.
        delta: where given, the noise split of a Poisson-sampled last state is tuned for this ``δ``.

    Raises:
        DeclarationError: for an average (it needs noise of its own), or a batch scheme for which
            nothing is proved under this adjacency.
    """
    bounds.check_states(schedule)
    check_scheme(schedule)
    curvature = curvature or Curvature()
    gaussian = [bounds.whole_path(schedule)]
    if schedule.clips is not None:
        gaussian = [bounds.box_path(schedule)]
    shifted = bounds.shifted(schedule, curvature)
    if shifted is not None:
        gaussian.append(shifted)
    best = min(gaussian, key=_size)
    if shifted is not None and best is not shifted:
        best = replace(
            best, theorem=f"{best.theorem}, charged for hidden states too: {_expansion(schedule, curvature)}"
        )
    found = [*bounds.sampled_path(schedule), *bounds.sampled_last(schedule, curvature, delta), best]
    theorems = tuple(dict.fromkeys(bound.theorem for bound in found))
    quoted = (line for bound in found for line in bound.assumptions)
    lines = (*chain_assumptions(schedule), *quoted)
    records = tuple(dict(bound.record) for bound in found)
    argument = Argument(
        "; and ".join(theorems),
        tuple(dict.fromkeys(lines)),
        {**chain_constants(schedule, curvature), "bounds": records},
        "langevin",
    )
    curves = tuple(bound.curve for bound in found)
    return of_unit(capped(Statement(schedule.adjacency, curves, argument), schedule.num_rows), schedule.unit)


def chain_assumptions(schedule: Schedule) -> tuple[str, ...]:
    """What every statement of a chain rests on."""
    # A replaced row counts twice in the sensitivity; the two kinds of presence have equal numbers.
    presence = () if schedule.adjacency == "replace_one" else (assumptions.RELATION[schedule.adjacency],)
    stored = () if schedule.storage == "float64" else (assumptions.NARROW,)
    lines = assumptions.CLIPPED_ROWS, assumptions.PUBLIC_START, assumptions.GAUSSIAN_NOISE
    number = gradient_limit(schedule) if schedule.release == "path" else rounding_box(schedule)
    return (*lines, *presence, *stored, assumptions.rounding(schedule.release, f"{number:.3g}"))


def _expansion(schedule: Schedule, curvature: Curvature) -> str:
    """Why no shorter bound was found, in words."""
    largest = max(schedule.step_sizes)
    if not curvature.smoothness < float("inf"):
        return "no smoothness of the potential is proved"
    if not curvature.convex:
        return "no convexity of the potential is proved"
    if not largest * curvature.smoothness < 2:
        return f"the step size {largest:g} is not below 2/L = {2 / curvature.smoothness:g}"
    return "the proved contraction does not help over so few steps"


def _size(bound: Bound) -> float:
    return bound.curve.m if isinstance(bound.curve, Gaussian) else float("inf")


def chain_constants(schedule: Schedule, curvature: Curvature) -> dict[str, Constant]:
    """The numbers of a chain from which ``verify`` recomputes its moduli."""
    batch = schedule.batch
    proved = {key: value for key, value in asdict(curvature).items() if key != "source"}
    release = schedule.release
    return {
        "step_size": schedule.step_size,
        "num_steps": schedule.num_steps,
        "num_chains": schedule.num_chains,
        "num_rows": schedule.num_rows,
        "dim": schedule.dim,
        "storage": schedule.storage,
        "release": None if isinstance(release, Average) else release,
        "clip": schedule.clip,
        "temper": schedule.temper,
        "batch": None if batch is None else asdict(batch),
        "condition_number": condition_number(schedule),
        "noise_ratio": noise_ratio(schedule)[0],
        "sensitivity": sensitivity(schedule),
        "diameter": schedule.diameter,
        **({} if schedule.clips is None else {"clips": schedule.clips}),
        **proved,
    }
