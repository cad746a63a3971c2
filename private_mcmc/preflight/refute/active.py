"""Which coordinates a synthetic row speaks of: those of its design, or proved from the gradient of its loss."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.model.ir.interval import between
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Program, abstract, trace
from private_mcmc.preflight.refute.extremes import PublicRow

_FAR, _FAR_EXPONENT = 1e30, 300.0


def activity(row_model: RowModel) -> Callable[[PublicRow], frozenset[int]]:
    """Coordinates of ``θ`` on which the loss of a row may depend; on all others it does not.

    A loss of affine predictors depends on what their design at this row does not annul. Otherwise the
    gradient is bounded by interval arithmetic over all ``θ`` whose constrained values floats can hold.
    """
    predictors = row_model.predictors
    if predictors is None:
        program, reach = gradient_program(row_model), _reach(row_model)
        return lambda row: _from_gradient(program, reach, row)
    compiled = jax.jit(predictors.design)

    def from_design(row: PublicRow) -> frozenset[int]:
        with jax.enable_x64(True):
            design = np.asarray(compiled({name: np.asarray(value) for name, value in row.items()}))
        return frozenset(int(index) for index in np.flatnonzero(np.any(design != 0, axis=0)))

    return from_design


def gradient_program(row_model: RowModel) -> Program:
    """The gradient of one row's loss, as a program of ``theta`` and the row's columns, in float64."""
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in row_model.rows.items}
    with jax.enable_x64(True):
        return trace(
            lambda theta, **row: {"gradient": jax.grad(row_model.row_loss)(theta, row)},
            theta=abstract((row_model.dim,), np.float64),
            **shapes,
        )


def _reach(row_model: RowModel) -> np.ndarray:
    """How far each coordinate goes: sites that are not real are exponentials of theirs, or logistic."""
    reach = np.full(row_model.dim, _FAR)
    for site in row_model.sites:
        if site.support != "real":
            reach[site.slice] = _FAR_EXPONENT
    return reach


def _from_gradient(program: Program, reach: np.ndarray, row: PublicRow) -> frozenset[int]:
    given = {program.inputs["theta"]: between(-reach, reach)}
    for name, value in row.items():
        point = np.asarray(value, dtype=np.float64)
        given[program.inputs[name]] = between(point, point, whole=bool(np.all(point == np.round(point))))
    with jax.enable_x64(True):
        (gradient,) = bounds(program, given, [program.outputs["gradient"]])
    return frozenset(int(index) for index in np.flatnonzero((gradient.lo != 0) | (gradient.hi != 0)))
