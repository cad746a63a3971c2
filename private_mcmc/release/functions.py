"""Declared functions of the sites, as functions of the flat unconstrained vector with proved bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints
from numpyro.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    IndependentTransform,
    SigmoidTransform,
    biject_to,
)

from private_mcmc.accounting.transfer import AverageByConvergence
from private_mcmc.errors import DeclarationError
from private_mcmc.modeling import RowModel, Site
from private_mcmc.modeling.affinity import Level, affinity
from private_mcmc.modeling.intervals import bounds as proved_bounds
from private_mcmc.modeling.program import Program, abstract, trace
from private_mcmc.release.sensitivities import FloatArray, Lipschitz, Slopes

Sites = Mapping[str, jax.Array]
Bounds = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Function:
    """One declared item: values computed from the constrained sites.

    Attributes:
        name: as declared.
        shape: shape of the value.
        evaluate: from the dict of constrained sites to the value.
        slopes: what bounds its change.
        low, high: what it is clamped to, entry by entry, shape ``(d,)``; infinite if nothing.
        assumption: what the caller stated and nobody proved, or ``None``.
        by_convergence: the caller's bound on how far averages are from their limits, or ``None``.
    """

    name: str
    shape: tuple[int, ...]
    evaluate: Callable[[Sites], Any]
    slopes: Slopes | Lipschitz
    low: FloatArray
    high: FloatArray
    assumption: str | None
    by_convergence: AverageByConvergence | None = None

    @property
    def size(self) -> int:
        """Number of values ``d``."""
        return math.prod(self.shape)


def bind_functions(
    model: RowModel,
    items: tuple[tuple[str, Any], ...],
    lipschitz: Mapping[str, float],
    bounds: Mapping[str, Bounds],
    by_convergence: Mapping[str, AverageByConvergence],
) -> tuple[Function, ...]:
    """One ``Function`` for every declared item.

    Slopes of affine functions of ``θ``, and ranges of functions of bounded ones, are proved on the traced
    function; sites on an interval move a quarter of its width per unit.

    Raises:
        DeclarationError: for an unknown site, a function that does not return numbers, or one that nothing
            bounds.
    """
    with jax.enable_x64(True):
        return tuple(
            _bind(model, name, what, lipschitz.get(name), bounds.get(name), by_convergence.get(name))
            for name, what in items
        )


def _bind(
    model: RowModel,
    name: str,
    what: Any,
    constant: float | None,
    bounds: Bounds | None,
    by_convergence: AverageByConvergence | None,
) -> Function:
    evaluate = _function(model, what)

    def value(theta: jax.Array) -> jax.Array:
        return jnp.asarray(evaluate(model.constrain(theta)))

    found = jax.eval_shape(value, abstract((model.dim,), np.float64))
    if not any(jnp.issubdtype(found.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
        raise DeclarationError(f"expectation {name!r}: the function returns {found.dtype}, not numbers.")
    shape = tuple(found.shape)

    def flat(theta: jax.Array) -> jax.Array:
        return jnp.ravel(value(theta)).astype(theta.dtype)

    program = trace(lambda theta: {"value": flat(theta)}, theta=abstract((model.dim,), np.float64))
    slopes: Slopes | Lipschitz | None = _slopes(model, what, program, flat)
    low, high = _range(program, math.prod(shape), bounds)
    assumption = None
    if slopes is None and constant is not None:
        slopes = Lipschitz(math.prod(shape), constant)
        assumption = f"{name} is {constant:g}-Lipschitz on the unconstrained space (stated, not proved)"
    if slopes is None:
        if not np.all(np.isfinite(high - low)) and by_convergence is None:
            raise DeclarationError(
                f"expectation {name!r}: nothing bounds how far a row moves it. Give "
                f"bounds={{{name!r}: (a, b)}}, to which values are clamped, or the Lipschitz constant on the "
                f"unconstrained space, lipschitz={{{name!r}: ...}}, quoted in the statement as your "
                "assumption. Affine functions of sites on the real line, sites on an interval and bounded "
                "functions need neither."
            )
        slopes = Lipschitz(math.prod(shape), math.inf)
    return Function(name, shape, evaluate, slopes, low, high, assumption, by_convergence)


def _function(model: RowModel, what: Any) -> Callable[[Sites], Any]:
    if not isinstance(what, str):
        chosen: Callable[[Sites], Any] = what
        return chosen
    shapes = jax.eval_shape(model.constrain, abstract((model.dim,), np.float64))
    if what not in shapes:
        raise DeclarationError(f"expectation of {what!r}: the model's sites are {sorted(shapes)}.")
    return lambda sites: sites[what]


def _slopes(
    model: RowModel, what: Any, program: Program, flat: Callable[[jax.Array], jax.Array]
) -> Slopes | None:
    """``A`` where the value is proved affine with matrix ``A``, or a site on an interval."""
    level = affinity(program, "theta")[program.outputs["value"]]
    if level is not Level.UNKNOWN:
        matrix = jax.jacfwd(flat)(jnp.zeros(model.dim))
        return Slopes(np.asarray(matrix, dtype=np.float64))
    site = next((site for site in model.sites if site.name == what), None)
    return None if site is None else _interval_slopes(site, model.dim)


def _range(program: Program, size: int, bounds: Bounds | None) -> tuple[FloatArray, FloatArray]:
    """The caller's bounds, or the range that interval arithmetic proves over all parameters."""
    if bounds is not None:
        return np.full(size, bounds[0]), np.full(size, bounds[1])
    (found,) = proved_bounds(program, {}, [program.outputs["value"]])
    low, high = np.asarray(found.lo, dtype=np.float64), np.asarray(found.hi, dtype=np.float64)
    known = np.isfinite(low) & np.isfinite(high)
    return np.where(known, low, -math.inf), np.where(known, high, math.inf)


def _interval_slopes(site: Site, dim: int) -> Slopes | None:
    """A quarter of the width: the slope of the scaled logistic function that fills an interval."""
    if site.constraint is None or site.shape != site.unconstrained_shape:
        return None
    ends = _interval(site.constraint)
    if ends is None:
        return None
    chosen = np.eye(dim)[site.slice]
    return Slopes(chosen * ((ends[1] - ends[0]) / 4 * (1 + 1e-12)))


def _interval(support: Any) -> Bounds | None:
    """Ends of an interval with constant ends whose transform is a scaled logistic function."""
    transform = biject_to(support)
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    parts = transform.parts if isinstance(transform, ComposeTransform) else [transform]
    if type(parts[0]) is not SigmoidTransform or any(type(part) is not AffineTransform for part in parts[1:]):
        return None
    low = np.asarray(getattr(support, "lower_bound", np.nan), dtype=np.float64)
    high = np.asarray(getattr(support, "upper_bound", np.nan), dtype=np.float64)
    if low.size != 1 or high.size != 1 or not np.all(np.isfinite(low) & np.isfinite(high) & (low < high)):
        return None
    return float(low.reshape(())), float(high.reshape(()))
