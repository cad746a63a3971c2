"""Proved constants of the prior's potential ``K`` on the unconstrained space, transform included."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model.ir.dependence import Level, affinity
from private_mcmc.model.ir.evaluate import evaluate, evaluate_each
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.prior_families import GAUSSIAN, SEPARABLE, Separable
from private_mcmc.model.prior_normalised import is_normalised
from private_mcmc.model.sites import Site

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
        if block is None:
            hessian = None
        elif hessian is not None:
            hessian[np.ix_(where, where)] = block
        for site in group:
            ends = (
                float(lower[site.slice].min(initial=math.inf)),
                float(upper[site.slice].max(initial=-math.inf)),
            )
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
    points = 0.7 * np.cos(np.outer((1.3, 2.9), np.arange(1.0, dim + 1)))
    points = np.concatenate([np.zeros((1, dim)), points])
    ours = trace(
        lambda theta: {site.name: _anchored(site, form, 0.0)(theta[site.slice]) for site, form in kept},
        theta=abstract((dim,), np.float64),
    )
    parts = [[Output(kind, site.name) for kind in ("prior", "jacobian")] for site, _ in kept]
    own = np.stack([-sum(evaluate_each(program, part, theta=points)) for part in parts], axis=1)
    forms = np.stack(evaluate_each(ours, [site.name for site, _ in kept], theta=points), axis=1)
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


def _missing(group: Sequence[Site]) -> str:
    if len(group) == 1:
        return f"{group[0].family} is not recognised on its unconstrained space"
    return (
        f"sites {', '.join(site.name for site in group)} depend on one another (hierarchical) and are not "
        "jointly Gaussian with constant covariance: no convexity is proved"
    )
