"""The calculator's options as a schedule, and its answer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record
from private_mcmc.schedule import Batch, Release, Schedule
from private_mcmc.target import Adjacency, check_adjacency

if TYPE_CHECKING:
    from private_mcmc.accounting import Curvature, Statement


T = TypeVar("T")


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

    table = Table(show_header=False)
    level = record["epsilon"]
    table.add_row("ε", f"{level:.7g}" if isinstance(level, float) else "∞: no ε at this δ")
    table.add_row("δ", f"{record['delta']:.7g}")
    table.add_row("GDP", "not Gaussian" if record["gdp"] is None else f"{record['gdp']:.8g}")
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


def with_options(record: Callable[..., T]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function whose first argument is a ``record``: its fields become options."""
    shared = signature(record, eval_str=True).parameters

    def spread(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = signature(function, eval_str=True).parameters.values()
        options = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in (*shared.values(), *own)]
        options.sort(key=lambda one: one.default is not Parameter.empty)

        def command(**given: object) -> None:
            function(record(**{name: given.pop(name) for name in shared}), **given)

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__annotations__ = {one.name: one.annotation for one in options}
        command.__signature__ = Signature(options)  # type: ignore[attr-defined]
        return command

    return spread


def chain_batch(sampling: str, size: int, cap: int | None, rows: int) -> Batch:
    """The batch scheme that the options describe; Poisson rates are ``batch_size/num_rows``."""
    if (sampling == "truncated_poisson") != (cap is not None):
        raise DeclarationError("--batch-cap belongs to --sampling truncated_poisson, and only to it.")
    if not (size >= 1 and rows >= 1):
        raise DeclarationError(f"--batch-size {size}, --num-rows {rows}: at least 1.")
    if sampling == "poisson":
        return Batch(scheme="poisson", rate=size / rows)
    if sampling == "truncated_poisson":
        return Batch(scheme="truncated_poisson", rate=size / rows, size=cap)
    if sampling == "fixed":
        return Batch(scheme="fixed", size=size)
    if sampling == "cyclic":
        return Batch(scheme="cyclic", size=size)
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
