"""Which coordinates a made-up row speaks of: proved by interval arithmetic on the gradient of its loss."""

from __future__ import annotations

import jax
import numpy as np

from private_mcmc.modeling import RowModel
from private_mcmc.modeling.intervals import bounds
from private_mcmc.modeling.program import Program, abstract, trace
from private_mcmc.modeling.values import between
from private_mcmc.preflight.extremes import PublicRow


def gradient_program(row_model: RowModel) -> Program:
    """The gradient of one row's loss, as a program of ``theta`` and the row's columns, in float64."""
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in row_model.rows.items}
    with jax.enable_x64(True):
        return trace(
            lambda theta, **row: {"gradient": jax.grad(row_model.row_loss)(theta, row)},
            theta=abstract((row_model.dim,), np.float64),
            **shapes,
        )


def active_coordinates(program: Program, row: PublicRow) -> frozenset[int]:
    """Coordinates of ``θ`` on which the loss of this row may depend; on all others it does not, proved."""
    given = {}
    for name, value in row.items():
        point = np.asarray(value, dtype=np.float64)
        given[program.inputs[name]] = between(point, point, whole=bool(np.all(point == np.round(point))))
    with jax.enable_x64(True):
        (gradient,) = bounds(program, given, [program.outputs["gradient"]])
    return frozenset(int(index) for index in np.flatnonzero((gradient.lo != 0) | (gradient.hi != 0)))
