"""Finding the predictor: a number that is affine in the latents and cuts them off from the row's loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from private_mcmc.modeling.affinity import Level, affinity
from private_mcmc.modeling.families import LikelihoodFamily, Loss, recognise
from private_mcmc.modeling.intervals import bounds
from private_mcmc.modeling.program import Program, Variable
from private_mcmc.modeling.rows import Rows
from private_mcmc.modeling.tracing import Observation
from private_mcmc.modeling.values import Value, of_domain

# Primitives that hand a single number on unchanged.
_TRANSPARENT = frozenset(
    ["reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "convert_element_type"]
)
_LINKS = frozenset(["logistic", "exp"])


@dataclass(frozen=True, eq=False)
class Cut:
    """A variable ``η`` of the program, and what is known of the loss beyond it.

    ``loss`` is the family's own formula, of ``η``, the variable ``observed`` and the variables
    ``parameters``; ``None`` where the family is not recognised and the program itself is evaluated.
    """

    variable: Variable
    family: LikelihoodFamily = LikelihoodFamily()
    loss: Loss | None = None
    observed: Variable | None = None
    parameters: Mapping[str, Variable] = field(default_factory=dict)


def find_cut(program: Program, rows: Rows, observations: list[Observation]) -> Cut | None:
    """A scalar predictor of the program's ``loss``, preferably as the parameter of a known family.

    Proof: the variable is affine in ``theta``, and with it known the loss reads ``theta`` no more.
    """
    levels = affinity(program, "theta")
    if len(observations) == 1:
        known = _of_known_family(program, rows, observations[0], levels)
        if known is not None:
            return known
    produced = (
        output for equation in program.slice([program.outputs["loss"]]) for output in equation.outputs
    )
    for variable in reversed([program.inputs["theta"], *produced]):
        if _is_predictor(program, levels, variable):
            return Cut(variable)
    return None


def row_values(program: Program, rows: Rows) -> dict[Variable, Value]:
    """Bounds of the program's row inputs."""
    return {program.inputs[name]: of_domain(domain) for name, domain in rows.items if name in program.inputs}


def _is_predictor(program: Program, levels: Mapping[Variable, Level], variable: Variable) -> bool:
    return (
        levels[variable] is Level.AFFINE
        and program.size(variable) == 1
        and "theta" not in program.reads([program.outputs["loss"]], [variable])
    )


def _of_known_family(
    program: Program, rows: Rows, site: Observation, levels: Mapping[Variable, Level]
) -> Cut | None:
    given = {name: program.outputs.get(f"given:{site.name}:{name}") for name in site.parameters}
    if (
        site.scaled
        or site.masked
        or None in given.values()
        or program.size(program.outputs[f"density:{site.name}"]) != 1
    ):
        return None
    variables = {name: variable for name, variable in given.items() if variable is not None}
    observed = program.outputs[f"observed:{site.name}"]
    for parameter, variable in variables.items():
        link, base = _link(program, levels, variable)
        others = {name: other for name, other in variables.items() if name != parameter}
        free = all("theta" not in program.reads([other]) for other in (observed, *others.values()))
        if not (free and _is_predictor(program, levels, base)):
            continue
        value, *known = bounds(program, row_values(program, rows), [observed, *others.values()])
        found = recognise(site.family, parameter, link, value, dict(zip(others, known, strict=True)))
        if found is not None:
            return Cut(base, found.family, found.loss, observed, others)
    return None


def _link(program: Program, levels: Mapping[Variable, Level], variable: Variable) -> tuple[str, Variable]:
    """How a distribution's parameter is made of an affine variable: ``(link, variable)``."""
    producers = {output: equation for equation in program.equations for output in equation.outputs}
    link = "identity"
    while levels[variable] is not Level.AFFINE and variable in producers:
        equation = producers[variable]
        if equation.name in _LINKS and link == "identity":
            link = equation.name
        elif equation.name not in _TRANSPARENT:
            return "unknown", variable
        variable = equation.inputs[0]
    return link, variable
