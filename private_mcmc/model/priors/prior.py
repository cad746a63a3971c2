"""Proved constants of the prior's potential ``K`` on the unconstrained space, transform included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model.ir.dependence import Level, affinity
from private_mcmc.model.ir.evaluate import evaluate, values
from private_mcmc.model.ir.interval import Interval
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.ir.program import Equation, Output, Program, Variable, abstract, trace
from private_mcmc.model.priors.normals import Separable
from private_mcmc.model.priors.single_sites import GAUSSIAN, SEPARABLE
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


def _fraction(parameter: _Parameter) -> bool:
    return parameter.within(0.0, 1.0)


def _correlation(parameter: _Parameter) -> bool:
    return parameter.within(-1.0, 1.0)


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
    "AsymmetricLaplaceQuantile": {**_LOCATION, "quantile": _fraction},
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
        "correlation": _correlation,
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


Matrix: TypeAlias = tuple[float, ...] | tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class SitePrior:
    """One site: ``lower ≤ K'' ≤ upper`` on its coordinates (``−inf``, ``inf`` where not proved).

    ``proper``: its density is normalised by construction. ``why``: the proof, or what is missing.
    """

    name: str
    family: str
    lower: float
    upper: float
    proper: bool
    why: str


@dataclass(frozen=True, eq=False)
class PriorConstants:
    """What is proved of the Hessian of ``K`` at every ``θ``: ``diag(lower) ≼ ∇²K ≼ diag(upper)``.

    Attributes:
        lower: ``(p,)``; ``−inf`` where nothing is proved.
        upper: ``(p,)``; ``inf`` where nothing is proved.
        hessian: the Hessian itself where it is constant, as its diagonal ``(p,)`` or ``(p, p)``.
        factorised: the unconstrained sites are independent.
        proper: the prior integrates to one, proved.
        improper: names of sites whose prior is known not to integrate.
        sites: the argument, site by site.
        potentials: by site, the form of ``K`` that the constants are proved of, where it is not NumPyro's.
    """

    lower: np.ndarray
    upper: np.ndarray
    hessian: np.ndarray | None
    factorised: bool
    proper: bool
    improper: tuple[str, ...]
    sites: tuple[SitePrior, ...]
    potentials: dict[str, Callable[[jax.Array], jax.Array]] = field(default_factory=dict, repr=False)

    @property
    def strong_convexity(self) -> float:
        """Proved ``μ ≥ 0`` with ``∇²K ≽ μ``; 0 where convexity is not proved."""
        return self.in_metric(None)[0]

    @property
    def smoothness(self) -> float:
        """Proved ``L`` with ``‖∇²K‖ ≤ L``; ``inf`` if there is none."""
        return self.in_metric(None)[1]

    @property
    def convex(self) -> bool:
        """``K`` is proved convex."""
        return bool(np.all(self.lower >= 0))

    def in_metric(self, preconditioner: Matrix | None) -> tuple[float, float]:
        """``(μ, L)`` of ``M^{1/2} ∇²K M^{1/2}``, rounded down and up.

        ``preconditioner`` is ``None`` (identity), a diagonal, or the rows of an SPD matrix.
        """
        if self.hessian is not None:
            lower, upper = _extremes(self.hessian, preconditioner)
            return max(lower, 0.0), max(-lower, upper)
        lowest = _extremes(self.lower, preconditioner)[0] if self.convex else 0.0
        bounded = bool(np.all(np.isfinite(self.lower)) and np.all(np.isfinite(self.upper)))
        largest = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return max(lowest, 0.0), _extremes(largest, preconditioner)[1] if bounded else math.inf


def prior_constants(program: Program, sites: Sequence[Site]) -> PriorConstants:
    """Read the constants of every group of latent sites that depend on one another."""
    size = sites[-1].slice.stop
    lower, upper = np.full(size, -math.inf), np.full(size, math.inf)
    hessian: np.ndarray | None = np.zeros((size, size))
    records: dict[str, SitePrior] = {}
    potentials: dict[str, Callable[[jax.Array], jax.Array]] = {}
    groups = _groups(program, sites)
    recognised = _recognised(program, [group[0] for group in groups if len(group) == 1])
    for group in groups:
        separable = recognised.get(group[0].name) if len(group) == 1 else None
        block = None if separable is not None else _quadratic(program, group)
        where = np.concatenate([np.arange(size)[site.slice] for site in group])
        if separable is not None:
            lower[where], upper[where] = separable.lower.ravel(), separable.upper.ravel()
            potentials[group[0].name] = separable.potential
            same = bool(np.all(separable.lower == separable.upper))
            block = np.diag(separable.lower.ravel()) if same else None
            why = separable.why
        elif block is not None:
            lower[where], upper[where] = _extremes(block, None)
            why = "jointly Gaussian: constant Hessian"
        else:
            why = _missing(group)
        hessian = None if block is None or hessian is None else _with_block(hessian, where, block)
        for site in group:
            ends = float(lower[site.slice].min()), float(upper[site.slice].max())
            known = not site.improper and is_normalised(program, site)
            records[site.name] = SitePrior(site.name, site.family, *ends, known, why)
    if hessian is not None and np.count_nonzero(hessian - np.diag(np.diag(hessian))) == 0:
        hessian = np.diag(hessian).copy()
    return PriorConstants(
        lower=lower,
        upper=upper,
        hessian=hessian,
        factorised=all(len(group) == 1 for group in groups),
        proper=all(record.proper for record in records.values()),
        improper=tuple(site.name for site in sites if site.improper),
        sites=tuple(records[site.name] for site in sites),
        potentials=potentials,
    )


def neg_log_prior(
    program: Program, sites: Sequence[Site], prior: PriorConstants, theta: jax.Array
) -> jax.Array:
    """``K(θ)``: the proved forms where there are any, NumPyro's for the other sites."""
    rest = [site for site in sites if site.name not in prior.potentials]
    keys = [Output(kind, site.name) for kind in ("prior", "jacobian") for site in rest]
    found = program.run([program.outputs[key] for key in keys], {program.inputs["theta"]: theta})
    proved = [prior.potentials[site.name](theta[site.slice]) for site in sites if site not in rest]
    return jnp.sum(jnp.stack([*(-value for value in found), *proved]))


def _extremes(hessian: np.ndarray, preconditioner: Matrix | None) -> tuple[float, float]:
    """Extreme eigenvalues of ``M^{1/2} H M^{1/2}``, widened by the rounding of the eigensolver."""
    size = hessian.shape[0]
    metric = np.ones(size) if preconditioner is None else np.asarray(preconditioner, np.float64)
    if hessian.ndim == 1 and metric.ndim == 1:
        values = hessian * metric
        low, high = float(values.min()), float(values.max())
        return low - abs(low) * 1e-15, high + abs(high) * 1e-15
    full = np.diag(hessian) if hessian.ndim == 1 else hessian
    root = np.diag(np.sqrt(metric)) if metric.ndim == 1 else np.linalg.cholesky(metric)
    # The eigenvalues of LᵀHL, M = LLᵀ, are those of M^{1/2} H M^{1/2}.
    product = root.T @ full @ root
    values = np.linalg.eigvalsh((product + product.T) / 2)
    slack = float(np.linalg.norm(root) ** 2 * np.linalg.norm(full)) * size * 2.0**-48
    return float(values[0]) - slack, float(values[-1]) + slack


def _groups(program: Program, sites: Sequence[Site]) -> list[list[Site]]:
    """Sites whose densities depend on one another, together; each site in one group."""
    values = {program.outputs[Output("value", site.name)]: site.name for site in sites}
    label = {site.name: index for index, site in enumerate(sites)}
    for site in sites:
        used = program.uses(program.outputs[Output(kind, site.name)] for kind in ("prior", "jacobian"))
        names = {site.name, *(name for variable, name in values.items() if variable in used)}
        merged = {label[name] for name in names}
        label = {name: min(merged) if index in merged else index for name, index in label.items()}
    return [[site for site in sites if label[site.name] == index] for index in sorted(set(label.values()))]


def _recognised(program: Program, sites: Sequence[Site]) -> dict[str, Separable]:
    """The sites with a proved form, as functions of their slices of ``θ``, on NumPyro's scale.

    The form is compared with NumPyro's own at a few points: it is used only where both are the same
    function, so that another transform in another version cannot go unnoticed.
    """
    rules = {site.name: SEPARABLE.get((site.family, site.support)) for site in sites}
    found = {site.name: rule(program, site) for site in sites if (rule := rules[site.name]) is not None}
    kept = [(site, form) for site in sites if (form := found.get(site.name)) is not None]
    if not kept:
        return {}
    dim = program.shape(program.inputs["theta"])[0]
    points = [np.zeros(dim), *(0.7 * np.cos(np.arange(1.0, dim + 1) * step) for step in (1.3, 2.9))]
    ours = trace(
        lambda theta: {site.name: _anchored(site, form, 0.0)(theta[site.slice]) for site, form in kept},
        theta=abstract((dim,), np.float64),
    )
    parts = [[Output(kind, site.name) for kind in ("prior", "jacobian")] for site, _ in kept]
    own = np.asarray([[-sum(evaluate(program, part, theta=at)) for part in parts] for at in points])
    forms = np.asarray([evaluate(ours, [site.name for site, _ in kept], theta=at) for at in points])
    gaps = own - forms
    same = np.all(np.abs(gaps - gaps[0]) <= 1e-8 * (1 + np.abs(own)), axis=0)
    return {
        site.name: replace(form, potential=_anchored(site, form, float(gap)))
        for (site, form), gap, agrees in zip(kept, gaps[0], same, strict=True)
        if agrees
    }


def _anchored(site: Site, form: Separable, constant: float) -> Callable[[jax.Array], jax.Array]:
    """The proved form with NumPyro's normalising constant."""
    return lambda u: jnp.sum(form.potential(u.reshape(site.unconstrained_shape))) + constant


def _quadratic(program: Program, group: Sequence[Site]) -> np.ndarray | None:
    """The constant Hessian of a jointly Gaussian group, or ``None``.

    Each density is Gaussian with a mean affine in the latents and everything else constant, so ``K`` is
    quadratic and its second derivative anywhere is its second derivative everywhere.
    """
    levels = affinity(program, "theta")
    for site in group:
        given = program.parts("given", site.name)
        rest = [levels[variable] for name, variable in given.items() if name != "loc"]
        affine = "loc" not in given or levels[given["loc"]] is not Level.UNKNOWN
        if site.family not in GAUSSIAN or not affine or any(level is not Level.CONSTANT for level in rest):
            return None
        if levels[program.outputs[Output("value", site.name)]] is Level.UNKNOWN:
            return None
    where = np.concatenate([np.arange(site.slice.start, site.slice.stop) for site in group])
    keys = [Output(kind, site.name) for kind in ("prior", "jacobian") for site in group]
    targets = [program.outputs[key] for key in keys]
    dim = program.shape(program.inputs["theta"])[0]

    def potential(part: jax.Array) -> jax.Array:
        theta = jnp.zeros(dim, part.dtype).at[where].set(part)
        return -jnp.sum(jnp.stack(program.run(targets, {program.inputs["theta"]: theta})))

    second = trace(
        lambda part: {"hessian": jax.hessian(potential)(part)}, part=abstract((len(where),), np.float64)
    )
    block = evaluate(second, ["hessian"], part=np.zeros(len(where)))[0]
    return (block + block.T) / 2 if np.all(np.isfinite(block)) else None


def _with_block(hessian: np.ndarray, where: np.ndarray, block: np.ndarray) -> np.ndarray:
    filled = hessian.copy()
    filled[np.ix_(where, where)] = block
    return filled


def _missing(group: Sequence[Site]) -> str:
    if len(group) == 1:
        return f"{group[0].family} is not recognised on its unconstrained space"
    return (
        f"sites {', '.join(site.name for site in group)} depend on one another (hierarchical) and are not "
        "jointly Gaussian with constant covariance: no convexity is proved"
    )
