"""Declared functions of the sites, as functions of the flat unconstrained vector with proved slopes."""

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
    IdentityTransform,
    IndependentTransform,
    SigmoidTransform,
    biject_to,
)

from private_mcmc.errors import DeclarationError
from private_mcmc.release.sensitivities import Lipschitz, Slopes

Evaluate = Callable[[Mapping[str, jax.Array]], jax.Array]


@dataclass(frozen=True, eq=False)
class Function:
    """One declared item: ``shape`` values computed from the constrained sites.

    Attributes:
        name: as declared.
        shape: shape of the value.
        evaluate: from the dict of constrained sites to the value.
        slopes: what bounds its change.
        bounds: ``(a, b)`` it is clamped to, or ``None``.
        assumption: what the caller stated and nobody proved, or ``None``.
    """

    name: str
    shape: tuple[int, ...]
    evaluate: Evaluate
    slopes: Slopes | Lipschitz
    bounds: tuple[float, float] | None
    assumption: str | None

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def bind_functions(
    model: Any,
    items: tuple[tuple[str, Any], ...],
    lipschitz: Mapping[str, float],
    bounds: Mapping[str, tuple[float, float]],
) -> tuple[Function, ...]:
    """One ``Function`` for every declared item. Raises ``DeclarationError`` where nothing bounds it."""
    latent = {site.name: site for site in model.sites}
    point = _abstract((model.dim,))
    shapes = {name: tuple(value.shape) for name, value in jax.eval_shape(model.constrain, point).items()}
    return tuple(
        _bind(name, what, latent, shapes, lipschitz.get(name), bounds.get(name)) for name, what in items
    )


def _bind(
    name: str,
    what: Any,
    latent: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    constant: float | None,
    bounds: tuple[float, float] | None,
) -> Function:
    if isinstance(what, str):
        if what not in shapes:
            raise DeclarationError(f"expectation of {what!r}: the model's sites are {sorted(shapes)}.")
        known = _site_slopes(latent[what]) if what in latent else None
        if known is not None and constant is None:
            slopes, site_bounds = known
            return Function(name, shapes[what], _site(what), slopes, bounds or site_bounds, None)
        evaluate, shape = _site(what), shapes[what]
    else:
        evaluate = what
        example = {site: _abstract(shape) for site, shape in shapes.items()}
        out = jax.eval_shape(lambda sites: jnp.asarray(evaluate(sites)), example)
        if not any(jnp.issubdtype(out.dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_)):
            raise DeclarationError(f"expectation {name!r}: the function returns {out.dtype}, not numbers.")
        shape = tuple(out.shape)
        if out.dtype == jnp.bool_ and bounds is None:
            bounds = (0.0, 1.0)
    if constant is None and bounds is None:
        raise DeclarationError(
            f"expectation {name!r}: nothing bounds how far a row moves it. Give bounds={{{name!r}: (a, b)}}, "
            "to which values are clamped, or the Lipschitz constant on the unconstrained space, "
            f"lipschitz={{{name!r}: ...}}, quoted in the statement as your assumption. Sites on the real "
            "line or on an interval need neither."
        )
    assumption = None
    if constant is not None:
        assumption = f"{name} is {constant:g}-Lipschitz on the unconstrained space (stated, not proved)"
    size = math.prod(shape)
    return Function(name, shape, evaluate, Lipschitz(size, constant or math.inf), bounds, assumption)


def _abstract(shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.result_type(float))  # type: ignore[no-untyped-call]


def _site(name: str) -> Evaluate:
    return lambda sites: sites[name]


def _site_slopes(site: Any) -> tuple[Slopes, tuple[float, float] | None] | None:
    """Slope of each coordinate of a site in its own unconstrained coordinate, where that is proved."""
    if site.constraint is None:
        return None
    transform = biject_to(site.constraint)
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    indices = tuple(range(*site.slice.indices(site.slice.stop)))
    if type(transform) is IdentityTransform:
        return Slopes(indices, (1.0,) * len(indices)), None
    width = _interval(site.constraint, transform)
    if width is None or len(indices) != math.prod(site.shape):
        return None
    low, high = width
    return Slopes(indices, ((high - low) / 4 * (1 + 1e-12),) * len(indices)), (low, high)


def _interval(support: Any, transform: Any) -> tuple[float, float] | None:
    """Ends of an interval with constant ends whose transform is a scaled logistic function."""
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
