"""Tighter row domains: by how much columns must shrink for the predictors' design to stay within a radius."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from private_mcmc.domains import Ball, Box, Domain, Real
from private_mcmc.model import RowModel
from private_mcmc.model.ir.interval import of_domain
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Program, abstract, trace

_TINY = 1e-9


def shrunk(row_model: RowModel, radius: float) -> tuple[Mapping[str, Domain], float] | None:
    """The real columns that the design reads, shrunk together, and by which factor of their bounds.

    Unbounded columns are bounded at the factor itself. ``None`` without one predictor, or where what is left
    of the design without these columns, an intercept for example, is too large already.
    """
    predictor = row_model.predictor
    if predictor is None:
        return None
    program = _design_program(row_model)
    read = program.reads([program.outputs["design"]])
    columns: dict[str, Domain] = {
        name: domain
        for name, domain in row_model.rows.items
        if name in read and isinstance(domain, Ball | Box | Real)
    }
    if not columns:
        return None

    def norm(factor: float) -> float:
        scaled = {name: _scaled(domain, factor) for name, domain in columns.items()}
        return _norm(program, {**row_model.rows.columns, **scaled})

    fixed, whole = norm(_TINY), norm(1.0)
    if not fixed * (1 + _TINY) < radius or not math.isfinite(whole):
        return None
    low, high = 0.0, max(radius / max(whole, 1e-300), 1.0)
    if norm(high) <= radius:
        low = high
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if norm(middle) <= radius else (low, middle)
    return columns, low


def _design_program(row_model: RowModel) -> Program:
    predictor = row_model.predictor
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in row_model.rows.items}
    with jax.enable_x64(True):
        return trace(lambda **row: {"design": predictor.design(row)}, **shapes)  # type: ignore[union-attr]


def _norm(program: Program, columns: Mapping[str, Domain]) -> float:
    given = {program.inputs[name]: of_domain(domain, leading=()) for name, domain in columns.items()}
    with jax.enable_x64(True):
        return float(bounds(program, given, [program.outputs["design"]])[0].norm)


def _scaled(domain: Domain, factor: float) -> Domain:
    if isinstance(domain, Ball):
        return Ball(domain.radius * factor, dim=domain.dim)
    if isinstance(domain, Real):
        return Box(-factor, factor) if domain.dim is None else Ball(factor, dim=domain.dim)
    lo, hi = domain.interval()
    return Box(*(_plain(bound * factor) for bound in (lo, hi)))


def _plain(bound: np.ndarray) -> Any:
    return float(bound) if bound.ndim == 0 else bound.tolist()
