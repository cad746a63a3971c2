"""The calculator's answer, as a table or as JSON."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import typer

from private_mcmc.errors import DeclarationError

if TYPE_CHECKING:
    from private_mcmc.accounting import Statement


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
    record: dict[str, Any] = {
        "epsilon": point[0] if math.isfinite(point[0]) else "inf",
        "delta": point[1],
        "gdp": _gdp(statement, *point),
        "argument": argument["theorem"],
        "constants": argument["constants"],
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


def _show(record: dict[str, Any]) -> None:
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


def _brief(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"
