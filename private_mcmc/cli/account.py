"""``private-mcmc account ula|sgld|posterior|expectation``: the price of a release, from numbers alone."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from private_mcmc.cli.common import JsonOption, with_options
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record
from private_mcmc.schedule import Average, Batch, Release, Schedule
from private_mcmc.target import Adjacency, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.accounting import Curvature, Statement

app = typer.Typer(
    help="What a release costs: an accountant for Langevin chains.",
    no_args_is_help=True,
    add_completion=False,
)

Relation = Annotated[str, typer.Option("--adjacency", help="replace_one, add_remove or zero_out")]
NumRows = Annotated[int | None, typer.Option(help="n (n_max under add_remove)")]
BatchSize = Annotated[int, typer.Option(help="expected (poisson) or exact number of rows of a batch")]
BatchCap = Annotated[int | None, typer.Option(help="largest batch kept (truncated_poisson)")]
Sampling = Annotated[str, typer.Option(help="poisson, truncated_poisson, fixed or cyclic")]
AtDelta = Annotated[float | None, typer.Option("--delta", help="report ε at this δ (1e-6 by default)")]
AtEpsilon = Annotated[float | None, typer.Option("--epsilon", help="report δ at this ε instead")]


def asked_point(statement: Statement, delta: float | None, epsilon: float | None) -> float:
    """What is asked for: ``ε`` at ``δ``, or ``δ`` at ``ε``."""
    if epsilon is not None:
        if delta is not None:
            raise DeclarationError("give --delta (and get ε) or --epsilon (and get δ), not both.")
        return statement.delta(epsilon)
    return statement.epsilon(1e-6 if delta is None else delta)


def report(statement: Statement, delta: float | None, epsilon: float | None, as_json: bool) -> None:
    """Print ``(ε, δ)``, the GDP parameter where the numbers are its own, the argument and its constants."""
    answer = asked_point(statement, delta, epsilon)
    point = (epsilon, answer) if epsilon is not None else (answer, 1e-6 if delta is None else delta)
    argument = statement.argument.to_dict()
    record: Record = {
        "epsilon": point[0] if math.isfinite(point[0]) else "inf",
        "delta": point[1],
        "gdp": _gdp(statement, *point),
        "argument": argument["theorem"],
        "constants": argument["constants"] | _noise(statement),
        "assumptions": argument["assumptions"],
        "adjacency": statement.adjacency,
    }
    if as_json:
        typer.echo(json.dumps(record, ensure_ascii=False))
        return
    _show(record)


def _gdp(statement: Statement, epsilon: float, delta: float) -> float | None:
    """``m`` where the numbers reported are those of ``m``-GDP; ``None`` where another curve is smaller."""
    from private_mcmc.accounting.curves import gdp

    m = statement.gdp
    if m is None or not gdp.delta(m, epsilon) <= delta * (1 + 1e-9):
        return None
    return m


def _show(record: Record) -> None:
    from rich.console import Console
    from rich.table import Table

    from private_mcmc.report import rounded_up

    table = Table(show_header=False)
    level = record["epsilon"]
    table.add_row("ε", f"{rounded_up(level, 7):.7g}" if isinstance(level, float) else "∞: no ε at this δ")
    table.add_row("δ", f"{rounded_up(record['delta'], 7):.7g}")
    table.add_row("GDP", "not Gaussian" if record["gdp"] is None else f"{rounded_up(record['gdp'], 8):.8g}")
    table.add_row("adjacency", record["adjacency"])
    table.add_row("argument", record["argument"])
    table.add_row("given that", "\n".join(record["assumptions"]))
    table.add_row(
        "constants", ", ".join(f"{key}={_brief(value)}" for key, value in record["constants"].items())
    )
    Console().print(table)


def _noise(statement: Statement) -> dict[str, object]:
    """The scale of the noise on an average, which its own part of the statement holds."""
    if statement.argument.rule != "average":
        return {}
    return {"scale": statement.parts[0].argument.constants["scale"]}


def _brief(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


@dataclass(frozen=True)
class ChainOptions:
    """A chain and its potential, as options; the fields' names are the options'."""

    step_size: Annotated[float, typer.Option(help="γ; the noise of a step has variance 2γ")]
    num_steps: Annotated[int, typer.Option(help="T")]
    sensitivity: Annotated[
        float, typer.Option(help="Δ: the most one row changes the full gradient (sum form)")
    ]
    strong_convexity: Annotated[float, typer.Option(help="μ of every potential")] = 0.0
    smoothness: Annotated[float, typer.Option(help="L of every potential (of every batch's, for sgld)")] = (
        math.inf
    )
    convex: Annotated[bool, typer.Option(help="every potential is convex")] = False
    prior_strong_convexity: Annotated[float, typer.Option(help="μ_K of the prior side")] = 0.0
    prior_smoothness: Annotated[float, typer.Option(help="L_K of the prior side")] = math.inf
    prior_convex: Annotated[
        bool, typer.Option(help="the prior side is convex; without it L_K bounds both ends")
    ] = False
    gradient_bound: Annotated[float, typer.Option(help="B: bound on the whole data gradient")] = math.inf
    diameter: Annotated[float, typer.Option(help="of the set projected on after every step")] = math.inf

    @property
    def curvature(self) -> Curvature:
        """The constants of the potential."""
        from private_mcmc.accounting import Curvature

        return Curvature(
            self.strong_convexity,
            self.smoothness,
            self.prior_strong_convexity,
            self.prior_smoothness,
            self.convex,
            self.gradient_bound,
            self.prior_convex,
        )

    def schedule(
        self,
        *,
        release: Release,
        adjacency: str,
        num_rows: int | None,
        num_chains: int = 1,
        batch: Batch | None = None,
    ) -> Schedule:
        """A schedule with this Δ: untempered, every row clipped at Δ/2 (``replace_one``) or Δ.

        Without ``num_rows`` the schedule has as many rows as the gradient bound allows, since a clipped sum
        over ``n`` rows bounds the data gradient too.
        """
        curvature = self.curvature
        relation: Adjacency = check_adjacency(adjacency)
        clip = self.sensitivity / 2 if relation == "replace_one" else self.sensitivity
        if num_rows is None:
            if math.isfinite(curvature.prior_smoothness) and not math.isfinite(curvature.gradient_bound):
                raise DeclarationError(
                    "the prior's constants help only with a bound on the data gradient: --gradient-bound, or "
                    "--num-rows with rows clipped."
                )
            bound = curvature.gradient_bound
            num_rows = max(1, math.ceil(bound / clip)) if math.isfinite(bound) and clip > 0 else 1
        return Schedule(
            adjacency=relation,
            num_rows=num_rows,
            dim=1,
            step_size=self.step_size,
            num_steps=self.num_steps,
            clip=clip,
            num_chains=num_chains,
            batch=batch,
            diameter=self.diameter,
            release=release,
        )


@dataclass(frozen=True)
class StatesOptions(ChainOptions):
    """Released states of a chain, and what is asked of them."""

    num_chains: Annotated[int, typer.Option(help="independent chains, all released")] = 1
    states: Annotated[str, typer.Option("--release", help="last, path, or steps such as 10,20,50")] = "last"
    adjacency: Relation = "replace_one"
    delta: AtDelta = None
    epsilon: AtEpsilon = None
    as_json: JsonOption = False

    def answer(self, num_rows: int | None, batch: Batch | None = None) -> None:
        """Print what they cost."""
        from private_mcmc import accounting

        schedule = self.schedule(
            num_chains=self.num_chains,
            release=released_states(self.states),
            adjacency=self.adjacency,
            num_rows=num_rows,
            batch=batch,
        )
        statement = accounting.langevin_statement(schedule, self.curvature)
        report(statement, self.delta, self.epsilon, self.as_json)


def chain_batch(sampling: str, size: int, cap: int | None, rows: int) -> Batch:
    """The batch scheme that the options describe; Poisson rates are ``batch_size/num_rows``."""
    if (sampling == "truncated_poisson") != (cap is not None):
        raise DeclarationError("--batch-cap belongs to --sampling truncated_poisson, and only to it.")
    if not (size >= 1 and rows >= 1):
        raise DeclarationError(f"--batch-size {size}, --num-rows {rows}: at least 1.")
    if sampling in ("poisson", "truncated_poisson"):
        return Batch(scheme=sampling, rate=size / rows, size=cap)  # type: ignore[arg-type]
    if sampling in ("fixed", "cyclic"):
        return Batch(scheme=sampling, size=size)  # type: ignore[arg-type]
    raise DeclarationError(f"--sampling {sampling}: choose poisson, truncated_poisson, fixed or cyclic.")


def released_states(text: str) -> Release:
    """``last``, ``path``, or steps separated by commas."""
    if text == "last":
        return "last"
    if text == "path":
        return "path"
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise DeclarationError(f"--release {text!r}: last, path, or steps such as 10,20,50.") from error


@app.command()
@with_options(StatesOptions)
def ula(chain: StatesOptions, num_rows: NumRows = None) -> None:
    """States of an unadjusted Langevin chain on all rows."""
    chain.answer(num_rows)


@app.command()
@with_options(StatesOptions)
def sgld(
    chain: StatesOptions,
    num_rows: Annotated[int, typer.Option(help="n (n_max under add_remove)")],
    batch_size: BatchSize,
    batch_cap: BatchCap = None,
    sampling: Sampling = "poisson",
) -> None:
    """States of a stochastic-gradient Langevin chain; a batch's sum is scaled by n/b."""
    chain.answer(num_rows, chain_batch(sampling, batch_size, batch_cap, num_rows))


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
    as_json: JsonOption = False,
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
    as_json: JsonOption = False,
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
