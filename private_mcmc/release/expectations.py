"""Posterior expectations, declared before the run: which functions, at what price, with what noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.records import Record
from private_mcmc.release.noise import FloatArray
from private_mcmc.release.released import ReleasedExpectations
from private_mcmc.release.site_functions import (
    Bounds,
    Function,
    SiteFunction,
    Sites,
    What,
    bind_functions,
)
from private_mcmc.schedule import Average

NoiseName = Literal["laplace", "gaussian"]


@dataclass(frozen=True, init=False)
class Expectations:
    """Monte Carlo averages of functions of the constrained sites, released with noise.

    ``A = mean_n f(X_n) + noise``. Two chains on adjacent data that share start and noise stay within
    ``e_n`` of each other surely, so their averages differ by at most ``η = ℓ·mean e_n``, and by at most
    ``b − a`` when ``f`` is kept in ``[a, b]``; the smaller one sets the noise.

    **Guarantee**: ``laplace``: pure ``ε``-DP, ``gaussian``: ``m``-GDP with ``m`` the largest that meets the
    target. The Lipschitz constants of affine functions, of sites on an interval and of smooth functions of
    either, and the ranges of bounded functions, are proved; nothing is taken on trust.
    **Cost**: known from ``plan`` before anything is spent. One run, one mechanism: all expectations
    share it and their costs add.
    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.

    Args:
        what: names of sites, functions of the dict of constrained sites, or dicts from a name to either.
        epsilon: the price; ``None`` takes the target's. With ``gaussian`` noise leave it out.
        bounds: ``(a, b)``, or a dict by name: values are clamped to it, NaN counts as ``a``.
        burn_in: steps left out of the average; ``None`` leaves out a fifth. It makes ``η`` larger.
        noise: ``"laplace"`` or ``"gaussian"``.

    Raises:
        DeclarationError: for an empty declaration, repeated names, or numbers out of range.

    Example:
        >>> share = {"share": lambda sites: sites["w"][0] > 0}
        >>> declared = pmc.Expectations("w", share, bounds={"share": (0.0, 1.0)}, burn_in=20)
        >>> [name for name, _ in declared.items], declared.average(num_steps=100)
        (['w', 'share'], Average(first=21))
    """

    items: tuple[tuple[str, What], ...]
    epsilon: float | None
    bounds: Mapping[str, Bounds]
    burn_in: int | None
    noise: NoiseName

    def __init__(
        self,
        *what: What | Mapping[str, What],
        epsilon: float | None = None,
        bounds: Bounds | Mapping[str, Bounds] | None = None,
        burn_in: int | None = None,
        noise: NoiseName = "laplace",
    ) -> None:
        items = _named(what)
        if epsilon is not None and not 0 < epsilon < math.inf:
            raise DeclarationError(f"epsilon={epsilon}: must be positive and finite.")
        if noise not in ("laplace", "gaussian"):
            raise DeclarationError(f"noise={noise!r}: 'laplace' or 'gaussian'.")
        if noise == "gaussian" and epsilon is not None:
            raise DeclarationError(
                "epsilon belongs to Laplace noise; Gaussian noise takes the target's (ε, δ)."
            )
        if burn_in is not None and not burn_in >= 0:
            raise DeclarationError(f"burn_in={burn_in}: a number of steps is needed.")
        names = [name for name, _ in items]
        bounds_by_name = _by_name(bounds, names)
        for name, pair in bounds_by_name.items():
            _check_bounds(name, pair)
        given: Record = {"items": items, "epsilon": epsilon, "burn_in": burn_in, "noise": noise}
        given["bounds"] = bounds_by_name
        for field, value in given.items():
            object.__setattr__(self, field, value)

    def average(self, num_steps: int) -> Average:
        """The schedule's release: averages over the steps after the burn-in.

        Raises:
            DeclarationError: when the burn-in leaves no step.
        """
        burn_in = num_steps // 5 if self.burn_in is None else self.burn_in
        if not burn_in < num_steps:
            raise DeclarationError(f"burn_in={burn_in}: leaves none of the {num_steps} steps.")
        return Average(first=burn_in + 1)

    def bind(self, model: RowModel) -> tuple[Function, ...]:
        """The declared functions on the flat unconstrained vector of ``model``.

        Raises:
            DeclarationError: for an unknown site, or a function that nothing bounds.
        """
        return bind_functions(model, self.items, self.bounds)


def _named(what: tuple[What | Mapping[str, What], ...]) -> tuple[tuple[str, What], ...]:
    items: list[tuple[str, What]] = []
    for position, item in enumerate(what):
        if isinstance(item, Mapping):
            items += [(str(name), value) for name, value in item.items()]
        elif isinstance(item, str):
            items.append((item, item))
        else:
            name = getattr(item, "__name__", "<lambda>")
            items.append((f"f{position}" if name == "<lambda>" else name, item))
    if not items:
        raise DeclarationError("Expectations(): name at least one site or function.")
    for name, value in items:
        if not isinstance(value, str) and not callable(value):
            raise DeclarationError(f"expectation {name!r}: a site's name or a function is needed.")
    names = [name for name, _ in items]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DeclarationError(f"expectations {repeated}: each name once; give functions names with a dict.")
    return tuple(items)


def _by_name(given: Bounds | Mapping[str, Bounds] | None, names: list[str]) -> dict[str, Bounds]:
    """One pair for all expectations, or a dict that names them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise DeclarationError(f"bounds for {unknown}: the declared expectations are {names}.")
    return dict(given)


def _check_bounds(name: str, pair: Bounds) -> None:
    try:
        low, high = (float(end) for end in pair)
    except (TypeError, ValueError):
        raise DeclarationError(f"bounds of {name!r}: a pair of numbers (a, b) is needed.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DeclarationError(f"bounds of {name!r} are ({low}, {high}): need finite a < b.")


def mean_and_square(site: str, bounds: Bounds) -> dict[str, SiteFunction]:
    """``{site: g, site²: (g − c)²}`` with ``g`` the site clamped to ``[a, b]`` and ``c`` its middle.

    For ``Expectations(mean_and_square("w", (-3, 3)))``. Both slopes are proved: that of the square is at
    most ``b − a`` times the site's, so that a narrow ``[a, b]`` costs less.
    """
    _check_bounds(site, bounds)
    low, high = (float(end) for end in bounds)

    def clamped(sites: Sites) -> jax.Array:
        return jnp.clip(sites[site], low, high)

    def squared(sites: Sites) -> jax.Array:
        return (clamped(sites) - (low + high) / 2) ** 2

    return {site: clamped, f"{site}²": squared}


def variance(released: ReleasedExpectations, site: str, bounds: Bounds) -> FloatArray:
    """``E(g − c)² − (E g − c)²`` from what ``mean_and_square`` released, not below 0.

    Noise on the mean makes it smaller by the noise's variance on average, which is added back.

    Example:
        >>> from private_mcmc.release import ReleasedExpectations, ReleasedValue
        >>> price = pmc.accounting.laplace(1.0, adjacency="replace_one", sensitivity=1.0, scale=1.0)
        >>> released = ReleasedExpectations(
        ...     (
        ...         ReleasedValue("w", np.array(0.5), np.array(0.1), None),
        ...         ReleasedValue("w²", np.array(1.0), np.array(0.1), None),
        ...     ), price, {},
        ... )
        >>> pmc.variance(released, "w", (-3.0, 3.0)).round(6).tolist()
        0.76
    """
    mean, square = released[site], released[f"{site}²"]
    centre = (bounds[0] + bounds[1]) / 2
    noise = 0.0 if mean.noise_sd is None else mean.noise_sd**2
    result: FloatArray = np.maximum(square.value - (mean.value - centre) ** 2 + noise, 0.0)
    return result
