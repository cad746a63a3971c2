"""Proved constants of the prior's potential ``K`` on the unconstrained space, transform included."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus

from private_mcmc.potential.flatten import abstract, trace
from private_mcmc.potential.program import Level, Output, Program, affinity
from private_mcmc.potential.sites import Site

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
    """``K``, and what is proved of its Hessian at every ``θ``: ``diag(lower) ≼ ∇²K ≼ diag(upper)``.

    Attributes:
        lower: ``(p,)``; ``−inf`` where nothing is proved.
        upper: ``(p,)``; ``inf`` where nothing is proved.
        hessian: the Hessian itself where it is constant, as its diagonal ``(p,)`` or ``(p, p)``.
        factorised: the unconstrained sites are independent.
        improper: names of sites whose prior is known not to integrate.
        sites: the argument, site by site.
        potential: ``θ ↦ K``, log-Jacobian of the transforms included, up to a constant.
        terms: observed sites that read latents alone, whose densities are factors of the prior.
        forms: by site, what runs in place of NumPyro's potential: that of which the bounds are proved.
    """

    lower: np.ndarray
    upper: np.ndarray
    hessian: np.ndarray | None
    factorised: bool
    improper: tuple[str, ...]
    sites: tuple[SitePrior, ...]
    potential: Potential = field(repr=False)
    terms: tuple[str, ...] = ()
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


Form: TypeAlias = Callable[..., jax.Array]


@dataclass(frozen=True)
class Line:
    """A family of single numbers on the unconstrained space, a line of the table.

    Attributes:
        names: its parameters, which must be public; all but locations and ends are positive.
        bounds: of them: the least and the largest ``K''``.
        why: the proof.
        form: ``(u, *parameters) ↦ K`` up to a constant, of which that is proved: it is what runs, in place of
            NumPyro's density, which may clamp, cancel, or be another than its class and parameters say.
    """

    names: tuple[str, ...]
    bounds: Callable[..., tuple[Any, Any]]
    why: str
    form: Form


def _square(u: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
    return jnp.square((u - m) / s)


def _gaussian(*names: str, why: str = "K'' = 1/s²") -> Line:
    return Line(names, lambda m, s: (1 / s**2, 1 / s**2), why, lambda *given: 0.5 * _square(*given))


_ONE = np.float64(1.0)
_OF_RATES = "on the log scale, u = log x: K'' = re^u, positive, neither bounded below nor above"
_GAMMA = Line(
    ("concentration", "rate"), lambda a, r: (0.0, math.inf), _OF_RATES, lambda u, a, r: r * jnp.exp(u) - a * u
)
_PUSHED = _gaussian("base.loc", "base.scale", why="a Normal through the support's own transform: K'' = 1/s²")
TABLE: Mapping[tuple[str, str], Line] = {
    ("Normal", "real"): _gaussian("loc", "scale"),
    ("LogNormal", "positive"): _gaussian("loc", "scale", why="a Normal in its logarithm: K'' = 1/s²"),
    ("TransformedDistribution(Normal)", "orderedvector"): _PUSHED,
    ("TransformedDistribution(Normal)", "positive"): _PUSHED,
    ("StudentT", "real"): Line(
        ("df", "loc", "scale"),
        lambda nu, m, s: (-(nu + 1) / (8 * nu * s**2), (nu + 1) / (nu * s**2)),
        "K = ½(ν+1) log(1+r²/νs²): −(ν+1)/(8νs²) ≤ K'' ≤ (ν+1)/(νs²), not convex",
        lambda u, nu, m, s: 0.5 * (nu + 1) * jnp.log1p(_square(u, m, s) / nu),
    ),
    ("Cauchy", "real"): Line(
        ("loc", "scale"),
        lambda m, s: (-0.25 / s**2, 2 / s**2),
        "a StudentT of ν = 1: −1/4s² ≤ K'' ≤ 2/s²",
        lambda u, m, s: jnp.log1p(_square(u, m, s)),
    ),
    ("HalfNormal", "positive"): Line(
        ("scale",),
        lambda s: (0.0, math.inf),
        "on the log scale: K'' = 2e^{2u}/s², positive, not bounded",
        lambda u, s: 0.5 * jnp.exp(2 * (u - jnp.log(s))) - u,
    ),
    ("HalfCauchy", "positive"): Line(
        ("scale",),
        lambda s: (0.0, 1.0),
        "on the log scale: K'' = 4t/(1+t)², t = e^{2u}/s², in (0, 1]",
        lambda u, s: softplus(2 * (u - jnp.log(s))) - u,
    ),
    ("Exponential", "positive"): Line(
        ("rate",), lambda r: (0.0, math.inf), _OF_RATES, lambda u, r: _GAMMA.form(u, _ONE, r)
    ),
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
    ("ImproperUniform", "real"): Line(
        (), lambda: (0.0, 0.0), "K = 0, which no posterior can rest on", jnp.zeros_like
    ),
}
_OF_ANY_SIGN = ("loc", "base.loc", "low", "high")


def prior_constants(program: Program, sites: Sequence[Site], terms: Sequence[str] = ()) -> PriorConstants:
    """Read the constants of each site by its line of the table, and of all others together.

    A line holds of a site that is independent of all others. With ``terms`` of latents alone there is none.
    """
    size = sites[-1].slice.stop
    lower, upper = np.full(size, -math.inf), np.full(size, math.inf)
    hessian: np.ndarray | None = np.zeros((size, size))
    records: dict[str, SitePrior] = {}
    forms: dict[str, Potential] = {}
    for site, line, given in [] if terms else _with_lines(program, sites):
        ends = (np.asarray(end, np.float64) for end in line.bounds(*given))
        low, high = (np.broadcast_to(end, site.unconstrained_shape).ravel() for end in ends)
        lower[site.slice], upper[site.slice] = low, high
        if not np.array_equal(low, high):
            hessian = None
        elif hessian is not None:
            hessian[site.slice, site.slice] = np.diag(low)
        forms[site.name] = functools.partial(_summed, site, line.form, given)
        records[site.name] = _record(site, low, high, f"{site.family}: {line.why}")
    rest = [site for site in sites if site.name not in forms]
    if rest:
        where = np.concatenate([np.arange(size)[site.slice] for site in rest])
        block = _quadratic(program, where, [*_densities(rest), *(Output("row", name) for name in terms)])
        why = "jointly Gaussian: constant Hessian"
        if block is not None:
            lower[where], upper[where] = _extremes(block, None)
            if hessian is not None:
                hessian[np.ix_(where, where)] = block
        else:
            hessian, names = None, ", ".join([*(site.name for site in rest), *terms])
            why = f"{names}: no prior with proved curvature (on its own, or jointly Gaussian)"
        for site in rest:
            records[site.name] = _record(site, lower[site.slice], upper[site.slice], why)
    if hessian is not None and np.count_nonzero(hessian - np.diag(np.diag(hessian))) == 0:
        hessian = np.diag(hessian).copy()
    return PriorConstants(
        lower=lower,
        upper=upper,
        hessian=hessian,
        factorised=not terms and len(rest) <= 1,
        improper=tuple(site.name for site in sites if site.improper),
        sites=tuple(records[site.name] for site in sites),
        potential=functools.partial(_potential, program, sites, terms, forms),
        terms=tuple(terms),
        forms=forms,
    )


def _record(site: Site, low: np.ndarray, high: np.ndarray, why: str) -> SitePrior:
    least, largest = float(low.min(initial=math.inf)), float(high.max(initial=-math.inf))
    return SitePrior(site.name, site.family, least, largest, why)


def _with_lines(program: Program, sites: Sequence[Site]) -> Iterator[tuple[Site, Line, list[np.ndarray]]]:
    """The sites with a line of the table whose parameters, in the site's shape, are public and in its range."""
    uses = {site.name: program.uses(program.outputs[key] for key in _densities([site])) for site in sites}
    values = {site.name: program.outputs[Output("value", site.name)] for site in sites}
    lines = [
        (site, TABLE[site.family, site.support])
        for site in sites
        if (site.family, site.support) in TABLE
        and not any(
            values[one] in uses[site.name] or values[site.name] in uses[one]
            for one in uses
            if one != site.name
        )
    ]
    keys = [Output("given", site.name, name) for site, line in lines for name in line.names]
    known = [key for key in keys if key in program.outputs and not program.reads([program.outputs[key]])]
    public = dict(zip(known, program.evaluate(known), strict=True))
    for site, line in lines:
        given = [public.get(Output("given", site.name, name)) for name in line.names]
        found = [
            np.broadcast_to(one, site.unconstrained_shape).astype(np.float64)
            for one in given
            if one is not None
        ]
        signs = [
            name in _OF_ANY_SIGN or bool(np.all(one > 0))
            for name, one in zip(line.names, found, strict=False)
        ]
        if len(found) == len(given) and np.all(np.isfinite(found)) and all(signs):
            yield site, line, found


def _summed(site: Site, form: Form, given: Sequence[np.ndarray], u: jax.Array) -> jax.Array:
    return jnp.sum(form(u.reshape(site.unconstrained_shape), *given))


def _potential(
    program: Program,
    sites: Sequence[Site],
    terms: Sequence[str],
    forms: Mapping[str, Potential],
    theta: jax.Array,
) -> jax.Array:
    """``K(θ)``: NumPyro's, but for the sites with a form of their own, up to a constant."""
    rest = [site for site in sites if site.name not in forms]
    keys = [*_densities(rest), *(Output("row", name) for name in terms)]
    found = program.run([program.outputs[key] for key in keys], {program.inputs["theta"]: theta})
    own = [forms[site.name](theta[site.slice]) for site in sites if site not in rest]
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


def _densities(sites: Sequence[Site]) -> list[Output]:
    return [Output(kind, site.name) for kind in ("prior", "jacobian") for site in sites]


def _quadratic(program: Program, where: np.ndarray, keys: Sequence[Output]) -> np.ndarray | None:
    """The constant Hessian of a potential whose gradient is proved affine, or ``None``.

    Such a potential is quadratic: its second derivative anywhere is its second derivative everywhere.
    """
    targets = [program.outputs[key] for key in keys]
    dim = program.shape(program.inputs["theta"])[0]

    def potential(part: jax.Array) -> jax.Array:
        theta = jnp.zeros(dim, part.dtype).at[where].set(part)
        return -jnp.sum(jnp.stack(program.run(targets, {program.inputs["theta"]: theta})))

    slope = jax.grad(potential)
    part = abstract((len(where),), np.float64)
    first = trace(lambda part: {"slope": slope(part)}, part=part)
    if affinity(first, "part")[first.outputs["slope"]] is Level.UNKNOWN:
        return None
    second = trace(lambda part: {"hessian": jax.jacfwd(slope)(part)}, part=part)
    block = second.evaluate(["hessian"], part=np.zeros(len(where)))[0]
    even = np.allclose(block, block.T, rtol=1e-9, atol=1e-12)
    return (block + block.T) / 2 if even and np.all(np.isfinite(block)) else None
