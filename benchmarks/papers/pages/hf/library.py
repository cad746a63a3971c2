"""The same lesson from the library's own preflight: a private posterior, an unfinished run that is not."""

from __future__ import annotations

from typing import Any

import numpyro
import numpyro.distributions as dist

from benchmarks.papers.pages.page import Claim, Section
from private_mcmc import Box, Rows, Schedule, Target, preflight
from private_mcmc.model import read
from private_mcmc.preflight.refute.run_refutation import interim_lower_bound
from private_mcmc.report import Heading, Text, Verdict, number
from private_mcmc.schedule import Batch

ROWS, TARGET = 200, Target(20.0, 1e-6)


def mean(y: Any = None) -> None:
    """``y ~ N(μ, 1)``, ``μ ~ N(0, 1)``."""
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)


def one_report() -> Section:
    """Both verdicts on one model, one domain and one target."""
    domain = Rows(y=Box(0, 40))
    run = Schedule(
        adjacency="replace_one",
        num_rows=ROWS,
        dim=1,
        step_size=1 / (1 + ROWS) ** 2,
        num_steps=5 * ROWS,
        clip=1e6,
        release="last",
        batch=Batch(scheme="cyclic", size=1),
    )
    posterior = preflight(mean, domain, TARGET, n=ROWS)
    unfinished = preflight(mean, domain, TARGET, n=ROWS, schedule=run).run
    interim = interim_lower_bound(read(mean, domain, n=ROWS), run, TARGET)
    if unfinished is None or interim is None:
        raise ValueError("the run has no lower bound: the example shows nothing.")
    certified = posterior.certificates[0].epsilon(TARGET.delta)
    claim = Claim(
        "Section IV, by preflight",
        "a private posterior says nothing of an unfinished run of SGLD",
        f"ε that 5 passes over {ROWS} rows do not reach, beside the posterior's certified one, δ = 1e-6",
        "above",
        certified,
        interim,
        "exact",
        "cyclic SGLD with batches of one row, start at 0, exact Gaussian divergences; rows in [0, 40]",
        "`pmc.preflight(…, schedule=…)`",
        "tests/preflight/test_unfinished_runs.py::test_a_private_posterior_and_an_unfinished_run_that_provably_is_not",
    )
    verdict = Verdict(
        f"posterior {posterior.verdict}, run refuted",
        f"target ε = 20 at δ = 1e-6: a posterior draw has ε ≤ {number(certified)}, the run ε ≥ "
        f"{number(interim)}",
        "bad",
        (posterior.reasons[0], unfinished.text),
    )
    words = "Not the paper's regression but a mean, which the library reads, certifies and refutes by itself."
    return Section((claim,), (Heading("The same by the library's preflight"), Text(words), verdict))
