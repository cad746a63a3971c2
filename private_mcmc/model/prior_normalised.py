"""Which priors integrate to one whatever their parameters: a table of families and the ranges they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from private_mcmc.model.ir.evaluate import values
from private_mcmc.model.ir.interval import Interval
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Equation, Program, Variable
from private_mcmc.model.sites import Site

_ALWAYS = frozenset(["exp", "logistic"])
# Positive where all operands are.
_OF_ALL = frozenset(["mul", "div", "min", "add", "concatenate", "pow"])
_KEEP = ("copy", "convert_element_type", "rev", "slice", "squeeze", "reshape", "transpose", "expand_dims")
_SUMS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "cumsum", "cumprod")
# Positive where the first operand is.
_OF_FIRST = frozenset(
    [*_KEEP, *_SUMS, "broadcast_in_dim", "sqrt", "rsqrt", "square", "integer_pow", "log1p", "expm1"]
)


def is_positive(program: Program, variable: Variable) -> bool:
    """Every element is defined and positive for all inputs, in real arithmetic: proved from the equations."""
    equations = program.slice([variable])
    variables = list(program.uses([variable]))
    known = dict(zip(variables, bounds(program, {}, variables), strict=True))
    positive = {v for v in variables if known[v].defined and known[v].lowest > 0}
    for equation in equations:
        if all(known[v].defined for v in equation.inputs) and _makes(equation, positive, known):
            positive.update(equation.outputs)
    return variable in positive


def _makes(equation: Equation, positive: set[Variable], known: Mapping[Variable, Interval]) -> bool:
    inputs = equation.inputs
    if equation.name in _ALWAYS:
        return True
    if equation.name in ("add", "max") and any(v in positive for v in inputs):
        return equation.name == "max" or all(known[v].lowest >= 0 for v in inputs)
    if equation.name in _OF_ALL:
        needed = inputs[:1] if equation.name == "pow" else inputs
        return all(v in positive for v in needed)
    return equation.name in _OF_FIRST and inputs[0] in positive


@dataclass(frozen=True, eq=False)
class _Parameter:
    """A parameter: its value where it is public, and its bounds over all latents where it is not."""

    program: Program
    variable: Variable
    bounds: Interval
    public: np.ndarray | None

    def within(self, lowest: float, highest: float) -> bool:
        """Between the two, both excluded."""
        if self.public is not None:
            return bool(np.all((self.public > lowest) & (self.public < highest)))
        value = self.bounds
        return value.defined and value.lowest > lowest and value.highest < highest


Check = Callable[[_Parameter], bool]


def _real(parameter: _Parameter) -> bool:
    if parameter.public is not None:
        return bool(np.all(np.isfinite(parameter.public)))
    return parameter.bounds.defined


def _positive(parameter: _Parameter) -> bool:
    """A latent scale may come as near to zero as it likes, but is not zero."""
    if parameter.public is not None:
        return parameter.within(0.0, np.inf)
    return is_positive(parameter.program, parameter.variable)


def _between(lowest: float, highest: float) -> Check:
    return lambda parameter: parameter.within(lowest, highest)


def _weights(parameter: _Parameter) -> bool:
    if parameter.public is not None:
        return _real(parameter) and bool(
            np.all(parameter.public >= 0) and np.all(parameter.public.sum(-1) > 0)
        )
    return is_positive(parameter.program, parameter.variable)


def _triangular(parameter: _Parameter) -> bool:
    """A public Cholesky factor without a zero on its diagonal; only its lower triangle is used."""
    if parameter.public is None or not _real(parameter):
        return False
    return bool(np.all(np.diagonal(parameter.public, axis1=-2, axis2=-1) != 0))


def _neighbours(parameter: _Parameter) -> bool:
    """A public symmetric matrix of weights in which every place has a neighbour."""
    matrix = parameter.public
    if matrix is None or not _real(parameter):
        return False
    symmetric = bool(np.all(matrix == np.swapaxes(matrix, -1, -2)))
    return symmetric and bool(np.all(matrix >= 0) and np.all(matrix.sum(-1) > 0))


_Family = Mapping[str, Check]

_LOCATION: _Family = {"loc": _real, "scale": _positive}
_SCALE: _Family = {"scale": _positive}
_CONCENTRATION: _Family = {"concentration": _positive}
_GAMMA: _Family = {"concentration": _positive, "rate": _positive}
_BETA: _Family = {"concentration1": _positive, "concentration0": _positive}
_STUDENT: _Family = {**_LOCATION, "df": _positive}
_WISHART: _Family = {"concentration": _real, "scale_tril": _triangular}

# Families of one number whose support has no parameter.
_SCALARS: Mapping[str, _Family] = {
    **dict.fromkeys(
        ("Normal", "LogNormal", "Cauchy", "Laplace", "Logistic", "Gumbel", "SoftLaplace"), _LOCATION
    ),
    "StudentT": _STUDENT,
    "AsymmetricLaplace": {**_LOCATION, "asymmetry": _positive},
    "AsymmetricLaplaceQuantile": {**_LOCATION, "quantile": _between(0.0, 1.0)},
    **dict.fromkeys(("HalfNormal", "HalfCauchy"), _SCALE),
    "Exponential": {"rate": _positive},
    **dict.fromkeys(("Gamma", "InverseGamma", "Chi2"), _GAMMA),
    "Gompertz": _GAMMA,
    "Weibull": {"scale": _positive, "concentration": _positive},
    **dict.fromkeys(("Beta", "BetaProportion", "Kumaraswamy"), _BETA),
    "VonMises": {"loc": _real, "concentration": _positive},
}
_TRUNCATED: Mapping[str, tuple[str, ...]] = {
    "LeftTruncatedDistribution": ("low",),
    "RightTruncatedDistribution": ("high",),
    "TwoSidedTruncatedDistribution": ("low", "high"),
}


def _inside(prefix: str, family: _Family) -> dict[str, Check]:
    return {f"{prefix}.{name}": check for name, check in family.items()}


_FAMILIES: Mapping[str, _Family] = {
    **_SCALARS,
    "Uniform": {"low": _real, "high": _real},
    "LogUniform": {"low": _positive, "high": _positive},
    "Pareto": {"scale": _positive, "alpha": _positive},
    "Levy": _LOCATION,
    **dict.fromkeys(("LKJ", "LKJCholesky", "Dirichlet"), _CONCENTRATION),
    **dict.fromkeys(("WishartCholesky", "InverseWishartCholesky"), _WISHART),
    "MultivariateNormal": {"loc": _real, "scale_tril": _triangular},
    "MultivariateStudentT": {"loc": _real, "scale_tril": _triangular, "df": _positive},
    "LowRankMultivariateNormal": {"loc": _real, "cov_factor": _real, "cov_diag": _positive},
    "MatrixNormal": {"loc": _real, "scale_tril_row": _triangular, "scale_tril_column": _triangular},
    "CirculantNormal": {"loc": _real, "covariance_rfft": _positive},
    "CAR": {
        "loc": _real,
        "correlation": _between(-1.0, 1.0),
        "conditional_precision": _positive,
        "adj_matrix": _neighbours,
    },
    **dict.fromkeys(("GaussianRandomWalk", "ZeroSumNormal"), _SCALE),
    **{
        f"{kind}({base})": {**_inside("base", _SCALARS[base]), **dict.fromkeys(ends, _real)}
        for kind, ends in _TRUNCATED.items()
        for base in ("Normal", "Cauchy", "Laplace", "Logistic", "SoftLaplace")
    },
    **{
        f"MixtureSameFamily({name})": {**_inside("component", family), "weights": _weights}
        for name, family in _SCALARS.items()
    },
}


def is_normalised(program: Program, site: Site) -> bool:
    """A family of the table with public parameters inside their ranges, or latent ones that cannot leave."""
    family = _FAMILIES.get(site.family)
    if site.image_of:
        family = _inside("base", _FAMILIES.get(site.image_of, {}))
    given = program.parts("given", site.name)
    if not family or not family.keys() <= given.keys():
        return False
    ranges = bounds(program, {}, [given[name] for name in family])
    parameters = {
        name: _Parameter(program, given[name], interval, _public(program, given[name]))
        for name, interval in zip(family, ranges, strict=True)
    }
    within = all(check(parameters[name]) for name, check in family.items())
    return within and _ordered(parameters) and _enough_degrees(site, parameters)


def _public(program: Program, variable: Variable) -> np.ndarray | None:
    return None if program.reads([variable]) else np.asarray(values(program, [variable], {})[0], np.float64)


def _ordered(parameters: Mapping[str, _Parameter]) -> bool:
    """The lower end lies below the upper one."""
    if not {"low", "high"} <= parameters.keys():
        return True
    low, high = parameters["low"], parameters["high"]
    if low.public is not None and high.public is not None:
        return bool(np.all(high.public > low.public))
    return bool(np.all(high.bounds.lo > low.bounds.hi))


def _enough_degrees(site: Site, parameters: Mapping[str, _Parameter]) -> bool:
    """A Wishart density of ``(p, p)`` matrices integrates where its degrees of freedom exceed ``p − 1``."""
    if "Wishart" not in site.family:
        return True
    return parameters["concentration"].within(site.shape[-1] - 1, np.inf)
