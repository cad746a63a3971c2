"""The latent sites, and proved constants of their prior's potential ``K``, on the unconstrained space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import softplus
from numpyro.distributions import constraints

from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Matrix

Function: TypeAlias = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Site:
    """A latent site.

    Attributes:
        name: its name in the model.
        unconstrained_shape: shape on the unconstrained space.
        slice: where it lies in the flat unconstrained vector.
        constraint: NumPyro's object of the support, if its bounds are known numbers, else ``None``.
    """

    name: str
    unconstrained_shape: tuple[int, ...]
    slice: slice
    constraint: constraints.Constraint | None


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
OF_ANY_SIGN = ("loc", "base.loc", "low", "high")


@dataclass(frozen=True, eq=False)
class OwnPrior:
    """A site that is independent of all others, with its line and the parameters of that in its shape."""

    site: Site
    line: Line
    given: Sequence[np.ndarray]

    def potential(self, u: jax.Array) -> jax.Array:
        """Its part of ``K``, of its flat unconstrained value."""
        return jnp.sum(self.line.form(u.reshape(self.site.unconstrained_shape), *self.given))

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest ``K''`` of every coordinate; the parameters are in the line's range."""
        if not any(self.line is line for line in TABLE.values()):
            raise DeclarationError(f"site {self.site.name!r}: its prior is no line of the table.")
        for name, value in zip(self.line.names, self.given, strict=True):
            if not np.all(np.isfinite(value)) or (name not in OF_ANY_SIGN and not np.all(value > 0)):
                raise DeclarationError(
                    f"site {self.site.name!r}: {name} is out of the range of {self.line.why}"
                )
        ends = (np.asarray(end, np.float64) for end in self.line.bounds(*self.given))
        low, high = (np.broadcast_to(end, self.site.unconstrained_shape).ravel() for end in ends)
        return low, high


@dataclass(frozen=True, eq=False)
class PriorConstants:
    """``K`` of some sites with lines and of all others together, and what is proved of its Hessian.

    At every ``θ``, ``diag(lower) ≼ ∇²K ≼ diag(upper)``: that follows from the table and from what runs,
    whoever says which site is of which line.

    Attributes:
        latents: all sites.
        own: those with lines, each independent of all others.
        rest: ``θ ↦`` the others' part of ``K``.
        gaussian: ``(g, H)``: in place of ``rest``, ``g·u + ½uᵀHu`` runs, ``u`` the others' values.
        terms: observed sites that read latents alone; they are in ``rest``.
        lower: ``(p,)``; ``−inf`` where nothing is proved.
        upper: ``(p,)``; ``inf`` where nothing is proved.
        hessian: the Hessian itself where it is constant, as its diagonal ``(p,)`` or ``(p, p)``.
        others: the coordinates of the sites without lines.

    ``DeclarationError`` where sites overlap, or parameters are out of the range of a line.
    """

    latents: Sequence[Site]
    own: Sequence[OwnPrior]
    rest: Function = field(repr=False)
    gaussian: tuple[np.ndarray, np.ndarray] | None = None
    terms: tuple[str, ...] = ()
    lower: np.ndarray = field(init=False)
    upper: np.ndarray = field(init=False)
    hessian: np.ndarray | None = field(init=False)
    others: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        size, named = self.latents[-1].slice.stop, {part.site.name for part in self.own}
        rest = [site.slice for site in self.latents if site.name not in named]
        parts = [*(part.site.slice for part in self.own), *rest]
        if sorted(place for part in parts for place in range(size)[part]) != list(range(size)):
            raise DeclarationError("the sites of a prior: every coordinate is of one of them.")
        others = np.concatenate([np.zeros(0, int), *(np.arange(size)[part] for part in rest)])
        lower, upper = np.full(size, -math.inf), np.full(size, math.inf)
        for part in self.own:
            lower[part.site.slice], upper[part.site.slice] = part.bounds()
        whole: np.ndarray | None = np.diag(np.where(lower == upper, lower, 0.0))
        whole = whole if np.array_equal(np.delete(lower, others), np.delete(upper, others)) else None
        if self.gaussian is not None:
            lower[others], upper[others] = _extremes(self.gaussian[1], None)
            if whole is not None:
                whole[np.ix_(others, others)] = self.gaussian[1]
        elif rest:
            whole = None
        if whole is not None and np.count_nonzero(whole - np.diag(np.diag(whole))) == 0:
            whole = np.diag(whole).copy()
        for name, value in (("lower", lower), ("upper", upper), ("hessian", whole), ("others", others)):
            object.__setattr__(self, name, value)

    @property
    def factorised(self) -> bool:
        """The unconstrained sites are independent."""
        return not self.terms and len(self.latents) - len(self.own) <= 1

    def potential(self, theta: jax.Array) -> jax.Array:
        """``K``, log-Jacobian of the transforms included, up to a constant."""
        parts = [part.potential(theta[part.site.slice]) for part in self.own]
        if self.gaussian is not None:
            slope, second = map(jnp.asarray, self.gaussian)
            u = theta[self.others]
            parts.append(slope @ u + 0.5 * (u @ (second @ u)))
        elif len(self.latents) > len(self.own):
            # Of their own values alone.
            parts.append(self.rest(jnp.zeros_like(theta).at[self.others].set(theta[self.others])))
        return jnp.sum(jnp.stack(parts))

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
