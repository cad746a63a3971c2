"""A person with several rows: group privacy."""

from __future__ import annotations

from private_mcmc.accounting.assumptions import at_most_rows
from private_mcmc.accounting.curves.curve import Concentrated, Curve, Gaussian, Laplace, Pure
from private_mcmc.accounting.curves.product import Product
from private_mcmc.accounting.rounding import product_up
from private_mcmc.accounting.statement import Argument, Statement
from private_mcmc.errors import DeclarationError


def group(statement: Statement, rows: int) -> Statement:
    """The statement for data sets that differ in up to ``rows`` rows: ``k·m``-GDP, ``k·ε``, ``k²ρ``-zCDP.

    Products scale part by part; curves of other kinds have no such rule and are left out.

    Raises:
        DeclarationError: for ``rows < 1``, or where no curve has a rule.

    Source: Dong, Roth, Su 2022, Theorem 2.14; Bun, Steinke 2016, Proposition 27.
    """
    if not rows >= 1:
        raise DeclarationError(f"rows={rows}: at least 1.")
    curves = tuple(scaled for curve in statement.curves if (scaled := _scaled(curve, rows)) is not None)
    if not curves:
        raise DeclarationError(
            "none of the statement's curves (Gaussian, pure, zCDP) extends to groups of rows: "
            "state the mechanism with a sensitivity for all of a person's rows instead."
        )
    argument = Argument(
        f"group privacy for {rows} rows (Dong, Roth, Su 2022; Bun, Steinke 2016)",
        (at_most_rows(rows),),
        {"rows": int(rows)},
        "group",
    )
    return Statement(statement.adjacency, curves, argument, parts=(statement,))


def _scaled(curve: Curve, rows: int) -> Curve | None:
    if isinstance(curve, Gaussian):
        return Gaussian(product_up(curve.m, rows))
    if isinstance(curve, Laplace):
        return Laplace(product_up(curve.level, rows))
    if isinstance(curve, Pure):
        return Pure(product_up(curve.level, rows))
    if isinstance(curve, Concentrated):
        return Concentrated(product_up(curve.rho, rows, rows))
    if isinstance(curve, Product):
        parts = [_scaled(part, rows) for part in curve.parts]
        known = tuple(part for part in parts if part is not None)
        return Product(known) if len(known) == len(parts) else None
    return None
