"""``private-mcmc account ula|sgld|posterior|expectation``: the price of a release, from numbers alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from private_mcmc.cli.account_chain import (
    ChainOptions,
    asked_point,
    chain_batch,
    released_states,
    report,
    with_options,
)
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average
from private_mcmc.target import check_adjacency

if TYPE_CHECKING:
    from private_mcmc.accounting import Statement

app = typer.Typer(
    help="What a release costs: an accountant for Langevin chains.",
    no_args_is_help=True,
    add_completion=False,
)

NumChains = Annotated[int, typer.Option(help="independent chains, all released")]
States = Annotated[str, typer.Option("--release", help="last, path, or steps such as 10,20,50")]
Relation = Annotated[str, typer.Option("--adjacency", help="replace_one, add_remove or zero_out")]
NumRows = Annotated[int | None, typer.Option(help="n (n_max under add_remove)")]
BatchSize = Annotated[int, typer.Option(help="expected (poisson) or exact number of rows of a batch")]
BatchCap = Annotated[int | None, typer.Option(help="largest batch kept (truncated_poisson)")]
Sampling = Annotated[str, typer.Option(help="poisson, truncated_poisson, fixed or cyclic")]
AtDelta = Annotated[float | None, typer.Option("--delta", help="report ε at this δ (1e-6 by default)")]
AtEpsilon = Annotated[float | None, typer.Option("--epsilon", help="report δ at this ε instead")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]


@app.command()
@with_options(ChainOptions)
def ula(
    chain: ChainOptions,
    num_chains: NumChains = 1,
    release: States = "last",
    adjacency: Relation = "replace_one",
    num_rows: NumRows = None,
    delta: AtDelta = None,
    epsilon: AtEpsilon = None,
    as_json: AsJson = False,
) -> None:
    """States of an unadjusted Langevin chain on all rows."""
    from private_mcmc import accounting

    schedule = chain.schedule(
        num_chains=num_chains, release=released_states(release), adjacency=adjacency, num_rows=num_rows
    )
    report(accounting.langevin_statement(schedule, chain.curvature), delta, epsilon, as_json)


@app.command()
@with_options(ChainOptions)
def sgld(
    chain: ChainOptions,
    num_rows: Annotated[int, typer.Option(help="n (n_max under add_remove)")],
    batch_size: BatchSize,
    batch_cap: BatchCap = None,
    sampling: Sampling = "poisson",
    num_chains: NumChains = 1,
    release: States = "last",
    adjacency: Relation = "replace_one",
    delta: AtDelta = None,
    epsilon: AtEpsilon = None,
    as_json: AsJson = False,
) -> None:
    """States of a stochastic-gradient Langevin chain; a batch's sum is scaled by n/b."""
    from private_mcmc import accounting

    schedule = chain.schedule(
        num_chains=num_chains,
        release=released_states(release),
        adjacency=adjacency,
        num_rows=num_rows,
        batch=chain_batch(sampling, batch_size, batch_cap, num_rows),
    )
    report(accounting.langevin_statement(schedule, chain.curvature), delta, epsilon, as_json)


@app.command()
def posterior(
    likelihood_range: Annotated[
        float | None, typer.Option(help="b: range over θ of the change of log likelihood by one row")
    ] = None,
    sensitivity: Annotated[float | None, typer.Option(help="Δ: the most one row changes ∇U")] = None,
    strong_convexity: Annotated[float | None, typer.Option(help="μ of every potential")] = None,
    gradient_bound: Annotated[float | None, typer.Option(help="B: bound on the whole data gradient")] = None,
    prior_strong_convexity: Annotated[float | None, typer.Option(help="μ_K of the prior side")] = None,
    adjacency: Relation = "replace_one",
    delta: AtDelta = None,
    epsilon: AtEpsilon = None,
    as_json: AsJson = False,
) -> None:
    """One exact draw from the posterior; the best certificate that the numbers allow."""
    from private_mcmc import accounting

    relation = check_adjacency(adjacency)
    statements: list[Statement] = []
    if likelihood_range is not None:
        statements.append(accounting.posterior_bounded(likelihood_range, relation))
    if sensitivity is not None and strong_convexity is not None:
        statements.append(accounting.posterior_strongly_log_concave(sensitivity, strong_convexity, relation))
    if gradient_bound is not None and prior_strong_convexity is not None:
        statements.append(
            accounting.posterior_bounded_gradient(gradient_bound, prior_strong_convexity, relation)
        )
    if not statements:
        raise DeclarationError(
            "give --likelihood-range, or --sensitivity with --strong-convexity, or --gradient-bound with "
            "--prior-strong-convexity."
        )
    answers = [(asked_point(statement, delta, epsilon), statement) for statement in statements]
    best = min(answers, key=lambda answer: answer[0])[1]
    report(best, delta, epsilon, as_json)


@app.command()
@with_options(ChainOptions)
def expectation(
    chain: ChainOptions,
    epsilon: Annotated[float | None, typer.Option(help="pure ε of Laplace noise (1 by default)")] = None,
    noise_sd: Annotated[float | None, typer.Option(help="Gaussian noise of this sd instead")] = None,
    burn_in: Annotated[int, typer.Option(help="states left out before the first kept one")] = 0,
    lipschitz: Annotated[float, typer.Option(help="ℓ of f on the unconstrained space")] = 1.0,
    value_range: Annotated[float, typer.Option(help="b − a where f is clamped to [a, b]")] = math.inf,
    grid: Annotated[float, typer.Option(help="grid that the average is rounded to")] = 0.0,
    adjacency: Relation = "replace_one",
    num_rows: NumRows = None,
    batch_size: Annotated[int | None, typer.Option(help="rows of a batch; all rows by default")] = None,
    batch_cap: BatchCap = None,
    sampling: Sampling = "poisson",
    delta: AtDelta = None,
    as_json: AsJson = False,
) -> None:
    """A noised average of a Lipschitz function over the kept states of one chain, or of several."""
    from private_mcmc import accounting

    if batch_size is not None and num_rows is None:
        raise DeclarationError("--batch-size needs --num-rows.")
    batch = chain_batch(sampling, batch_size, batch_cap, num_rows) if batch_size and num_rows else None
    schedule = chain.schedule(
        release=Average(first=burn_in + 1), adjacency=adjacency, num_rows=num_rows, batch=batch
    )
    change = accounting.average_sensitivity(schedule, chain.curvature)
    if not (lipschitz >= 0 and value_range > 0):
        raise DeclarationError("--lipschitz must be non-negative and --value-range positive.")
    moved = min(lipschitz * change if lipschitz > 0 else 0.0, value_range) * (1 + 2.0**-50)
    if not moved < math.inf:
        raise DeclarationError(
            "nothing bounds how far a row moves the average: give --strong-convexity and --smoothness, or "
            "--gradient-bound with the prior's constants, or --value-range."
        )
    relation = check_adjacency(adjacency)
    value = accounting.AveragedValue(lipschitz, value_range, moved, 1.0)

    def averaged(noise: Statement, norm: Literal["L1", "L2"]) -> Statement:
        return accounting.noised_average(
            noise, schedule, chain.curvature, distance=change, values=(value,), norm=norm, joint=moved
        )

    if noise_sd is not None:
        if epsilon is not None:
            raise DeclarationError("give --epsilon (Laplace noise) or --noise-sd (Gaussian noise), not both.")
        noised = accounting.gaussian(
            adjacency=relation, sensitivity=moved, scale=noise_sd, grid=grid or None, what="average"
        )
        report(averaged(noised, "L2"), delta, None, as_json)
        return
    level = 1.0 if epsilon is None else epsilon
    if not 0 < level < math.inf:
        raise DeclarationError(f"--epsilon {level}: must be positive and finite.")
    laplace = accounting.laplace(
        level,
        adjacency=relation,
        sensitivity=moved,
        scale=(moved + grid) / level * (1 + 2.0**-50),
        grid=grid,
        what="average",
    )
    report(averaged(laplace, "L1"), 0.0 if delta is None else delta, None, as_json)
