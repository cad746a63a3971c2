"""Proved constants of the prior's potential ``K`` on the unconstrained space, transform included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus

from private_mcmc.model.ir.dependence import Level, affinity
from private_mcmc.model.ir.evaluate import evaluate, values
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.sites import Site

Potential: TypeAlias = Callable[[jax.Array], jax.Array]
Matrix: TypeAlias = tuple[float, ...] | tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class SitePrior:
    """One site: ``lower ≤ K'' ≤ upper`` on its coordinates (``−inf``, ``inf`` where not proved).

    ``why``: the proof, or what is missing.
    """

    name: str
    family: str
    lower: float
    upper: float
    why: str


@dataclass(frozen=True, eq=False)
class PriorConstants:
    """What is proved of the Hessian of ``K`` at every ``θ``: ``diag(lower) ≼ ∇²K ≼ diag(upper)``.

    Attributes:
        lower: ``(p,)``; ``−inf`` where nothing is proved.
        upper: ``(p,)``; ``inf`` where nothing is proved.
        hessian: the Hessian itself where it is constant, as its diagonal ``(p,)`` or ``(p, p)``.
        factorised: the unconstrained sites are independent.
        improper: names of sites whose prior is known not to integrate.
        sites: the argument, site by site.
        forms: by site, what runs in place of NumPyro's potential, where that clamps or cancels.
    """

    lower: np.ndarray
    upper: np.ndarray
    hessian: np.ndarray | None
    factorised: bool
    improper: tuple[str, ...]
    sites: tuple[SitePrior, ...]
    forms: dict[str, Potential] = field(default_factory=dict, repr=False)

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


@dataclass(frozen=True)
class Line:
    """A family of single numbers on the unconstrained space, a line of the table.

    Attributes:
        names: its parameters, which must be public; all but locations and ends are positive.
        bounds: of them: the least and the largest ``K''``.
        why: the proof.
        form: ``(u, *parameters) ↦ K`` up to a constant, where NumPyro's clamps or cancels far out.
    """

    names: tuple[str, ...]
    bounds: Callable[..., tuple[Any, Any]]
    why: str
    form: Callable[..., jax.Array] | None = None


_NORMAL = Line(("loc", "scale"), lambda m, s: (1 / s**2, 1 / s**2), "K'' = 1/s²")
_PUSHED = Line(
    ("base.loc", "base.scale"),
    _NORMAL.bounds,
    "a Normal through the support's own transform: K'' = 1/s²",
    lambda u, m, s: 0.5 * jnp.square((u - m) / s),
)
_OF_RATES = "on the log scale, u = log x: K'' = re^u, positive, neither bounded below nor above"
_GAMMA = Line(("concentration", "rate"), lambda a, r: (0.0, math.inf), _OF_RATES)
TABLE: Mapping[tuple[str, str], Line] = {
    ("Normal", "real"): _NORMAL,
    # Normal in its logarithm; NumPyro's density reads the Normal inside it, not these names.
    ("LogNormal", "positive"): Line(_NORMAL.names, _NORMAL.bounds, _NORMAL.why, _PUSHED.form),
    ("TransformedDistribution(Normal)", "orderedvector"): _PUSHED,
    ("TransformedDistribution(Normal)", "positive"): _PUSHED,
    ("StudentT", "real"): Line(
        ("df", "loc", "scale"),
        lambda nu, m, s: (-(nu + 1) / (8 * nu * s**2), (nu + 1) / (nu * s**2)),
        "K = ½(ν+1) log(1+r²/νs²): −(ν+1)/(8νs²) ≤ K'' ≤ (ν+1)/(νs²), not convex",
    ),
    ("Cauchy", "real"): Line(
        ("loc", "scale"), lambda m, s: (-0.25 / s**2, 2 / s**2), "a StudentT of ν = 1: −1/4s² ≤ K'' ≤ 2/s²"
    ),
    ("HalfNormal", "positive"): Line(
        ("scale",), lambda s: (0.0, math.inf), "on the log scale: K'' = 2e^{2u}/s², positive, not bounded"
    ),
    ("HalfCauchy", "positive"): Line(
        ("scale",), lambda s: (0.0, 1.0), "on the log scale: K'' = 4t/(1+t)², t = e^{2u}/s², in (0, 1]"
    ),
    ("Exponential", "positive"): Line(("rate",), lambda r: (0.0, math.inf), _OF_RATES),
    ("Gamma", "positive"): _GAMMA,
    ("Chi2", "positive"): _GAMMA,
    ("Beta", "unitinterval"): Line(
        ("concentration1", "concentration0"),
        lambda a, b: (0.0, (a + b) / 4),
        "on the logit scale: K'' = (a+b)σ(1−σ), in (0, (a+b)/4]",
        lambda u, a, b: a * softplus(-u) + b * softplus(u),
    ),
    ("Uniform", "interval"): Line(
        ("low", "high"),
        lambda low, high: (0.0, 0.5),
        "on the logit scale: K'' = 2σ(1−σ), in (0, 1/2]",
        lambda u, low, high: softplus(-u) + softplus(u),
    ),
    ("ImproperUniform", "real"): Line((), lambda: (0.0, 0.0), "K = 0, which no posterior can rest on"),
}
_OF_ANY_SIGN = ("loc", "base.loc", "low", "high")
# Gaussian whatever their loc, as long as everything else is constant.
GAUSSIAN = frozenset(
    [
        *("Normal", "GaussianRandomWalk", "ZeroSumNormal", "MultivariateNormal"),
        *("LowRankMultivariateNormal", "MatrixNormal", "CirculantNormal", "CAR"),
    ]
)


def prior_constants(program: Program, sites: Sequence[Site]) -> PriorConstants:
    """Read the constants of every group of latent sites that depend on one another."""
    size = sites[-1].slice.stop
    lower, upper = np.full(size, -math.inf), np.full(size, math.inf)
    hessian: np.ndarray | None = np.zeros((size, size))
    records: dict[str, SitePrior] = {}
    forms: dict[str, Potential] = {}
    groups = _groups(program, sites)
    for group in groups:
        where = np.concatenate([np.arange(size)[site.slice] for site in group])
        line, block = TABLE.get((group[0].family, group[0].support)), None
        given = _public(program, group[0], line) if line is not None and len(group) == 1 else None
        if line is not None and given is not None:
            low, high = (
                np.broadcast_to(np.asarray(end, np.float64), group[0].unconstrained_shape).ravel()
                for end in line.bounds(*given)
            )
            lower[where], upper[where] = low, high
            block = np.diag(low) if np.array_equal(low, high) else None
            why = f"{group[0].family}: {line.why}"
            if line.form is not None:
                forms[group[0].name] = _anchored(program, group[0], line.form, given)
        elif (block := _quadratic(program, group)) is not None:
            lower[where], upper[where] = _extremes(block, None)
            why = "jointly Gaussian: constant Hessian"
        else:
            names = ", ".join(site.name for site in group)
            why = f"{names}: no prior with proved curvature (on its own, or jointly Gaussian)"
        if block is None:
            hessian = None
        elif hessian is not None:
            hessian[np.ix_(where, where)] = block
        for site in group:
            least = float(lower[site.slice].min(initial=math.inf))
            largest = float(upper[site.slice].max(initial=-math.inf))
            records[site.name] = SitePrior(site.name, site.family, least, largest, why)
    if hessian is not None and np.count_nonzero(hessian - np.diag(np.diag(hessian))) == 0:
        hessian = np.diag(hessian).copy()
    return PriorConstants(
        lower=lower,
        upper=upper,
        hessian=hessian,
        factorised=all(len(group) == 1 for group in groups),
        improper=tuple(site.name for site in sites if site.improper),
        sites=tuple(records[site.name] for site in sites),
        forms=forms,
    )


def _public(program: Program, site: Site, line: Line) -> list[np.ndarray] | None:
    """The line's parameters, in the site's shape; ``None`` where one is not public or out of its range."""
    found: list[np.ndarray] = []
    for name in line.names:
        variable = program.outputs.get(Output("given", site.name, name))
        if variable is None or program.reads([variable]):
            return None
        value = np.asarray(values(program, [variable], {})[0], np.float64)
        if not np.all(np.isfinite(value)) or (name not in _OF_ANY_SIGN and not np.all(value > 0)):
            return None
        found.append(np.broadcast_to(value, site.unconstrained_shape))
    return found


def _anchored(
    program: Program, site: Site, form: Callable[..., jax.Array], given: Sequence[np.ndarray]
) -> Potential:
    """The form with NumPyro's normalising constant, that of both at the origin."""

    def potential(u: jax.Array) -> jax.Array:
        return jnp.sum(form(u.reshape(site.unconstrained_shape), *given))

    keys = [Output(kind, site.name) for kind in ("prior", "jacobian")]
    origin = np.zeros(program.shape(program.inputs["theta"]))
    own = -sum(float(value) for value in evaluate(program, keys, theta=origin))
    gap = own - float(potential(jnp.zeros(site.unconstrained_shape)))
    return lambda u: potential(u) + gap


def neg_log_prior(
    program: Program, sites: Sequence[Site], prior: PriorConstants, theta: jax.Array
) -> jax.Array:
    """``K(θ)``: NumPyro's, but for the sites with a form of their own."""
    rest = [site for site in sites if site.name not in prior.forms]
    keys = [Output(kind, site.name) for kind in ("prior", "jacobian") for site in rest]
    found = program.run([program.outputs[key] for key in keys], {program.inputs["theta"]: theta})
    own = [prior.forms[site.name](theta[site.slice]) for site in sites if site not in rest]
    return jnp.sum(jnp.stack([*(-value for value in found), *own]))


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
