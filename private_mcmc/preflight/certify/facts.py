"""What certificates of conjugate posteriors ask of a model's program."""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.model.ir.interval import Interval, of_domain
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Output, Variable, abstract, trace
from private_mcmc.model.likelihoods.terms import row_values
from private_mcmc.target import Adjacency

_RESHAPING = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy")


@dataclass(frozen=True)
class Asked:
    """Number of rows, temper, where the curve is wanted, and the adjacency."""

    n: int
    temper: float
    epsilons: tuple[float, ...]
    adjacency: Adjacency


def is_one_of_each(row_model: RowModel) -> bool:
    """One latent site, and per row one factor of one observed number without a weight.

    A value that is broadcast against its distribution is as many factors as the two together have.
    """
    if len(row_model.sites) != 1 or len(row_model.observations) != 1:
        return False
    if math.prod(row_model.observations[0].shape) != 1:
        return False
    program, name = row_model.program, row_model.observations[0].name
    return not program.parts("weight", name) and program.size(program.outputs[Output("observed", name)]) == 1


def slope_of(row_model: RowModel) -> float:
    """The design of a one-dimensional model if it is the same for every row, else NaN."""
    return row_free(row_model, "design")


def has_no_offset(row_model: RowModel) -> bool:
    """The predictor's offset is proved to be 0 for every row."""
    return row_free(row_model, "offset") == 0.0


def row_free(row_model: RowModel, part: str) -> float:
    """The value of a one-dimensional design or offset that is proved equal for all rows, else NaN."""
    function = getattr(row_model.predictor, part)
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in row_model.rows.items}
    with jax.enable_x64(True):
        program = trace(lambda **row: {"value": function(row)}, **shapes)
        given = {program.inputs[name]: of_domain(domain, leading=()) for name, domain in row_model.rows.items}
        (value,) = bounds(program, given, [program.outputs["value"]])
    return value.lowest if value.is_point else math.nan


def number_of(row_model: RowModel, parameter: str, *, observed: bool = False) -> float | None:
    """A parameter of the latent (or the observed site) that is one public constant."""
    site = row_model.observations[0].name if observed else row_model.sites[0].name
    value = constant_of(row_model, row_model.program.outputs.get(Output("given", site, parameter)))
    if value is None or not np.all(value == np.ravel(value)[0]):
        return None
    return float(np.ravel(value)[0])


def value_of(row_model: RowModel, variable: Variable) -> float:
    """A scalar of the program at ``θ = 0`` that reads no row."""
    program = row_model.program
    if not program.reads([variable]) <= {"theta"}:
        return math.nan
    with jax.enable_x64(True):
        origin = {program.inputs["theta"]: np.zeros(row_model.dim)}
        return float(np.ravel(program.run([variable], origin)[0])[0])


def constant_of(row_model: RowModel, variable: Variable | None) -> np.ndarray | None:
    """What a variable is that reads neither rows nor the parameter."""
    if variable is None or row_model.program.reads([variable]):
        return None
    with jax.enable_x64(True):
        return np.asarray(row_model.program.run([variable], {})[0], dtype=np.float64)


def observed(row_model: RowModel) -> Interval:
    """Bounds of the observed value over the row domain."""
    program = row_model.program
    target = program.outputs[Output("observed", row_model.observations[0].name)]
    (value,) = bounds(program, row_values(program, row_model.rows), [target])
    return value


def is_whole_up_to(row_model: RowModel, largest: float) -> bool:
    """Every observed value is a whole number in ``[0, largest]``."""
    value = observed(row_model)
    return value.whole and value.lowest >= 0 and value.highest <= largest == round(largest)


def is_handed_on(row_model: RowModel, parameter: str) -> bool:
    """The observed site's parameter is the latent's own value, at most reshaped."""
    program = row_model.program
    variable = program.outputs.get(Output("given", row_model.observations[0].name, parameter))
    made = {output: equation for equation in program.equations for output in equation.outputs}
    while variable in made and made[variable].name in _RESHAPING:
        variable = made[variable].inputs[0]
    return variable is not None and variable == program.outputs[Output("value", row_model.sites[0].name)]
