"""The same from the library's own preflight: the paper's model and domain, posterior and run on one page."""

from __future__ import annotations

from typing import Any

import numpyro
import numpyro.distributions as dist

from benchmarks.papers.pages.page import Claim, Section
from private_mcmc import Ratio, Rows, Schedule, Target, preflight
from private_mcmc.report import Heading, Text, Verdict, number
from private_mcmc.schedule import Batch

ROWS, EPOCHS, TARGET = 400, 30, Target(8.0, 1e-3)
DOMAIN = Ratio(x_low=0.9, x_high=1.8, center=ROWS**1.22, width=ROWS**0.1)
RUN = Schedule(
    adjacency="replace_one",
    num_rows=ROWS,
    dim=1,
    # η of Claim IV.9 is 2γ.
    step_size=0.5 / (2 + ROWS * 1.8**2) ** 2,
    num_steps=EPOCHS * ROWS,
    clip=1e12,
    release="last",
    batch=Batch(scheme="cyclic", size=1),
)


def regression(xy: Any = None) -> None:
    """``y ~ N(θx, 1)``, ``θ ~ N(0, 1/2)``: the paper's, with α = 2 and β = 1."""
    slope = numpyro.sample("slope", dist.Normal(0, 2**-0.5))
    with numpyro.plate("rows", xy.shape[0]):
        numpyro.sample("y", dist.Normal(slope * xy[:, 0], 1.0), obs=xy[:, 1])


def one_report() -> Section:
    """One preflight of the paper's regression: the posterior certified, the run refuted."""
    report = preflight(regression, Rows(xy=DOMAIN), TARGET, n=ROWS, schedule=RUN)
    if report.unclipped is None or report.run is None or report.run.interim is None:
        raise ValueError("nothing is certified, or nothing refuted: the example shows nothing.")
    certified = report.unclipped.epsilon(TARGET.delta)
    claim = Claim(
        "Section IV, by preflight",
        "a private posterior says nothing of an unfinished run of SGLD",
        f"ε that {EPOCHS} passes over {ROWS} rows do not reach, beside the posterior's certified one, "
        f"δ = {number(TARGET.delta)}",
        "above",
        certified,
        report.run.interim,
        "exact",
        "the paper's regression and domain, `pmc.Ratio`, c = n^1.22, γ₁ = 0.1; cyclic batches of one row, "
        "start at 0, exact Gaussian divergences (searched up to 700)",
        "`pmc.preflight(…, schedule=…)`",
        "tests/preflight/test_ratio.py::test_one_report_certifies_the_posterior_and_refutes_the_run",
    )
    words = (
        "What `preflight` shows of the paper's model, its domain and its run, in its own words. A clip of "
        f"{number(RUN.clip)}, which a schedule needs, is charged against the refutation."
    )
    shown = [block for block in report.report.blocks if isinstance(block, Verdict)]
    return Section((claim,), (Heading("The same by the library's preflight"), Text(words), *shown))
