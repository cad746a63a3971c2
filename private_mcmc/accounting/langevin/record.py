"""A run as its statement's record holds it: written from a schedule, and read back with every check."""

from __future__ import annotations

import math
from dataclasses import asdict

from private_mcmc.accounting.langevin.curvature import Curvature, check_scheme, kept_rounding
from private_mcmc.accounting.langevin.sensitivity import (
    ChainConstants,
    Run,
    condition_number,
    dense,
    noise_ratio,
    sensitivity,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Constant, Constants
from private_mcmc.schedule import ROUNDING, Average, Batch, Release, Schedule, check_steps
from private_mcmc.target import Adjacency, Unit

# What every record of a chain has by the names of the schedule's fields.
_SHARED = ("step_size", "num_steps", "num_chains", "num_rows", "dim", "clip", "temper")
_PROVED = ("strong_convexity", "smoothness", "prior_smoothness")


def chain_constants(schedule: Schedule, curvature: Curvature) -> dict[str, Constant]:
    """The numbers of a chain from which its curves follow, but for the bounds that are chosen."""
    batch, release = schedule.batch, schedule.release
    found: dict[str, Constant] = {name: getattr(schedule, name) for name in _SHARED}
    found |= {
        "release": None if isinstance(release, Average) else release,
        "batch": None if batch is None else asdict(batch),
        "condition_number": condition_number(schedule),
        "noise_ratio": noise_ratio(schedule)[0],
        "sensitivity": sensitivity(schedule),
    }
    if schedule.clips is not None:
        scales = dense(schedule.preconditioner, schedule.dim, "preconditioner").diagonal().tolist()
        noise = tuple(scales) if schedule.noise is None else schedule.noise
        found |= {"clips": schedule.clips, "metric": tuple(scales), "noise": noise}
    found |= {name: getattr(curvature, name) for name in _PROVED}
    if schedule.within < math.inf:
        found |= {name: getattr(schedule, name) for name in ("within", "rounding")}
        found["prior_slope"] = curvature.prior_slope
    return found


def read_chain(
    adjacency: Adjacency, c: Constants, release: Release, unit: Unit | None
) -> tuple[Run, Curvature]:
    """The run and what is proved of its potentials; ``DeclarationError`` where the record contradicts itself.

    Of a run whose rows are clipped coordinate by coordinate the whole schedule is in the record; of others
    the metric and the noise are there by their two numbers.
    """
    check_steps(c["num_steps"])
    shared = {
        **{name: c[name] for name in _SHARED},
        "adjacency": adjacency,
        "batch": None if c["batch"] is None else Batch(**c["batch"]),
        "within": c.get("within", math.inf),
        "rounding": c.get("rounding", ROUNDING),
        "release": release,
        "unit": unit,
    }
    run: Run
    if "clips" in c:
        run = Schedule(**shared, clips=c["clips"], preconditioner=c["metric"], noise=c["noise"])
        told = (condition_number(run), c["condition_number"]), (noise_ratio(run)[0], c["noise_ratio"])
        if not all(math.isclose(*pair, rel_tol=1e-9) for pair in told):
            raise DeclarationError(
                "the metric and the noise are not those that the record's numbers tell of."
            )
    else:
        run = ChainConstants(**shared, condition_number=c["condition_number"], noise_ratio=c["noise_ratio"])
    check_scheme(run)
    if not math.isclose(sensitivity(run), c["sensitivity"], rel_tol=1e-12):
        raise DeclarationError("the sensitivity is not that of the clip, the batch and the rows.")
    known = Curvature(**{name: c[name] for name in _PROVED}, prior_slope=c.get("prior_slope", math.inf))
    if run.within < math.inf and not kept_rounding(run, known) <= run.rounding * (1 + 1e-12):
        raise DeclarationError(
            f"within={run.within:g}: in this box rounding moves a step by more than {run.rounding:g} of what "
            "one row does, or no slope of the prior is proved there."
        )
    if run.within < math.inf and release == "path":
        raise DeclarationError("a path has no hidden states to be kept in a box.")
    return run, known
