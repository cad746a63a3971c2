"""Proved constants of the prior's potential ``K`` on the unconstrained space, transform included."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from private_mcmc.modeling.program import Program
from private_mcmc.modeling.tracing import Site

Matrix = tuple[float, ...] | tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class SitePrior:
    """One site: ``lower ≤ ∂²K ≤ upper`` on its own coordinates (``−inf``, ``inf`` where not proved)."""

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
    """

    lower: np.ndarray
    upper: np.ndarray
    hessian: np.ndarray | None
    factorised: bool
    proper: bool
    improper: tuple[str, ...]
    sites: tuple[SitePrior, ...]

    @property
    def strong_convexity(self) -> float:
        """Proved ``μ ≥ 0`` with ``∇²K ≽ μ``; 0 where convexity is not proved."""
        return self.in_metric(None)[0]

    @property
    def smoothness(self) -> float:
        """Proved ``L`` with ``|∇²K| ≼ L``; ``inf`` if there is none."""
        return self.in_metric(None)[1]

    @property
    def convex(self) -> bool:
        """``K`` is proved convex."""
        if self.hessian is not None and self.hessian.ndim == 2:
            return bool(_extremes(self.hessian, None)[0] >= 0)
        return bool(np.all(self.lower >= 0))

    def in_metric(self, preconditioner: Matrix | None) -> tuple[float, float]:
        """``(μ, L)`` of ``M^{1/2} ∇²K M^{1/2}``, rounded down and up.

        ``preconditioner`` is ``None`` (identity), a diagonal, or the rows of an SPD matrix.
        """
        if self.hessian is not None:
            lower, upper = _extremes(self.hessian, preconditioner)
            return max(lower, 0.0), max(upper, 0.0)
        lowest = _extremes(self.lower, preconditioner)[0] if np.all(self.lower >= 0) else 0.0
        bounded = np.all(np.isfinite(self.lower)) and np.all(np.isfinite(self.upper))
        largest = np.maximum(np.abs(self.lower), np.abs(self.upper)) if bounded else None
        return max(lowest, 0.0), math.inf if largest is None else _extremes(largest, preconditioner)[1]


def _extremes(hessian: np.ndarray, preconditioner: Matrix | None) -> tuple[float, float]:
    """Extreme eigenvalues of ``M^{1/2} H M^{1/2}``, widened by the rounding of the eigensolver."""
    size = hessian.shape[0]
    metric = np.ones(size) if preconditioner is None else np.asarray(preconditioner, np.float64)
    if hessian.ndim == 1 and metric.ndim == 1:
        values = hessian * metric
        return float(values.min()) * (1 - 1e-15), float(values.max()) * (1 + 1e-15)
    full = np.diag(hessian) if hessian.ndim == 1 else hessian
    root = np.diag(np.sqrt(metric)) if metric.ndim == 1 else np.linalg.cholesky(metric)
    # The eigenvalues of LᵀHL, M = LLᵀ, are those of M^{1/2} H M^{1/2}.
    product = root.T @ full @ root
    values = np.linalg.eigvalsh((product + product.T) / 2)
    slack = float(np.linalg.norm(root) ** 2 * np.linalg.norm(full)) * size * 2.0**-48
    return float(values[0]) - slack, float(values[-1]) + slack


def prior_constants(program: Program, sites: list[Site]) -> PriorConstants:
    """Read the constants of every latent site; what is not recognised leaves ``−inf`` and ``inf``."""
    records, bounds = [], []
    tangled = _tangled(program, sites)
    for site in sites:
        record, lower, upper = _site(program, site, site.name in tangled)
        records.append(record)
        bounds.append((lower, upper))
    lower, upper = (np.concatenate([pair[end] for pair in bounds]) for end in (0, 1))
    constant = bool(np.all(lower == upper) and np.all(np.isfinite(lower)))
    return PriorConstants(
        lower=lower,
        upper=upper,
        hessian=lower if constant else None,
        factorised=not tangled,
        proper=all(record.proper for record in records),
        improper=tuple(site.name for site in sites if site.improper),
        sites=tuple(records),
    )


Bounds = tuple[np.ndarray, np.ndarray, str]


def _site(program: Program, site: Site, tangled: bool) -> tuple[SitePrior, np.ndarray, np.ndarray]:
    known = site.family.isidentifier() and not site.improper
    size = site.slice.stop - site.slice.start
    rule = _RULES.get(site.family)
    if tangled:
        found: Bounds | None = None
        why = "its density and that of another site share latents (hierarchical)"
    else:
        found = rule(program, site) if rule else None
        why = f"{site.family} is not recognised on its unconstrained space"
    lower, upper, why = found or (np.full(size, -math.inf), np.full(size, math.inf), why)
    record = SitePrior(site.name, site.family, float(lower.min()), float(upper.max()), known, why)
    return record, lower, upper


def _tangled(program: Program, sites: list[Site]) -> frozenset[str]:
    """Names of sites whose density depends on another latent, and of those latents."""
    values = {program.outputs[f"value:{site.name}"]: site.name for site in sites}
    tangled: set[str] = set()
    for site in sites:
        used = program.uses([program.outputs[f"prior:{site.name}"], program.outputs[f"jacobian:{site.name}"]])
        others = {name for variable, name in values.items() if variable in used} - {site.name}
        tangled |= others | ({site.name} if others else set())
    return frozenset(tangled)


def _parameter(program: Program, site: Site, name: str) -> np.ndarray | None:
    """A parameter's value, broadcast to the site, if it is a public constant."""
    variable = program.outputs.get(f"given:{site.name}:{name}")
    if variable is None or program.reads([variable]):
        return None
    value = np.asarray(program.run([variable], {})[0], np.float64)
    return np.broadcast_to(value, site.shape).ravel()


def _normal(program: Program, site: Site) -> Bounds | None:
    """``K = (u−m)²/2s²``: ``K'' = 1/s²``."""
    scale = _parameter(program, site, "scale")
    if scale is None or not np.all((scale > 0) & np.isfinite(scale)):
        return None
    curvature = 1.0 / scale**2
    return curvature, curvature, "Normal: K'' = 1/s²"


def _improper(program: Program, site: Site) -> Bounds | None:
    """A constant density on the real line: ``K = 0``. Elsewhere the Jacobian is all there is."""
    if site.support != "real":
        return None
    flat = np.zeros(site.slice.stop - site.slice.start)
    return flat, flat, "ImproperUniform: K = 0, which no posterior bound can rest on"


_RULES: Mapping[str, Callable[[Program, Site], Bounds | None]] = {
    "Normal": _normal,
    "ImproperUniform": _improper,
}
