"""Posterior expectations, declared before the run: which functions, at what price, with what noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
from jax.typing import ArrayLike

from private_mcmc.accounting import Curvature
from private_mcmc.errors import DeclarationError
from private_mcmc.schedule import Average, Schedule

Bounds = tuple[float, float]
Sites = Mapping[str, jax.Array]
SiteFunction = Callable[[Sites], ArrayLike]
What = str | SiteFunction


@dataclass(frozen=True, init=False)
class Expectations:
    """Monte Carlo averages of functions of the constrained sites, released with noise.

    ``A = mean_n f(X_n) + noise``. Two chains on adjacent data that share start and noise stay within
    ``e_n`` of each other surely, so their averages differ by at most ``η = ℓ·mean e_n``, and by at most
    ``b − a`` when ``f`` is kept in ``[a, b]``; the smaller one sets the noise.

    **Guarantee**: pure ``ε``-DP, by Laplace noise. ``ℓ = 1`` of sites on the real line, clamped or not; sites
    on an interval have its range; any other function is clamped to ``bounds``. Nothing is taken on trust.
    **Cost**: known from ``plan`` before anything is spent. One run, one mechanism: all expectations
    share it and their costs add.
    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7, with the synchronous coupling.

    Args:
        what: names of sites, functions of the dict of constrained sites, or dicts from a name to either.
        epsilon: the price; ``None`` takes the target's.
        bounds: ``(a, b)``, or a dict by name: values are clamped to it, NaN counts as ``a``.
        burn_in: steps left out of the average; ``None`` leaves out a fifth. It makes ``η`` larger.

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

    def __init__(
        self,
        *what: What | Mapping[str, What],
        epsilon: float | None = None,
        bounds: Bounds | Mapping[str, Bounds] | None = None,
        burn_in: int | None = None,
    ) -> None:
        items = _named(what)
        if epsilon is not None and not 0 < epsilon < math.inf:
            raise DeclarationError(f"epsilon={epsilon}: must be positive and finite.")
        if burn_in is not None and not burn_in >= 0:
            raise DeclarationError(f"burn_in={burn_in}: a number of steps is needed.")
        names = [name for name, _ in items]
        if bounds is None:
            bounds = {}
        elif not isinstance(bounds, Mapping):
            bounds = dict.fromkeys(names, bounds)
        if unknown := sorted(set(bounds) - set(names)):
            raise DeclarationError(f"bounds for {unknown}: the declared expectations are {names}.")
        for name, pair in bounds.items():
            _check_bounds(name, pair)
        vars(self).update(items=items, epsilon=epsilon, bounds=dict(bounds), burn_in=burn_in)

    def with_burn_in(self, burn_in: int) -> Expectations:
        """The same with another burn-in."""
        return Expectations(dict(self.items), epsilon=self.epsilon, bounds=self.bounds, burn_in=burn_in)

    def average(self, num_steps: int) -> Average:
        """The schedule's release: averages over the steps after the burn-in.

        Raises:
            DeclarationError: when the burn-in leaves no step.
        """
        burn_in = num_steps // 5 if self.burn_in is None else self.burn_in
        if not burn_in < num_steps:
            raise DeclarationError(f"burn_in={burn_in}: leaves none of the {num_steps} steps.")
        return Average(first=burn_in + 1)


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
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError(f"expectations {repeated}: each name once; give functions names with a dict.")
    return tuple(items)


def _check_bounds(name: str, pair: Bounds) -> None:
    try:
        low, high = (float(end) for end in pair)
    except (TypeError, ValueError):
        raise DeclarationError(f"bounds of {name!r}: a pair of numbers (a, b) is needed.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise DeclarationError(f"bounds of {name!r} are ({low}, {high}): need finite a < b.")


def monte_carlo_sd(schedule: Schedule, curvature: Curvature) -> float:
    """``σ/((1 − ρ)√(Nc))``: bounds the sd of the average of a 1-Lipschitz function (in ``‖M^{-1/2}·‖``).

    The average is a Lipschitz function of the independent Gaussian noises, so its variance is at most
    the sum of squares of its slopes (Poincaré inequality). It says nothing about the bias of the
    burn-in and of the step size. ``inf`` unless the potential is strongly convex and smooth.

    Source: Bertazzi, Johnston, Roberts, Durmus, Assumption 3.8; Dalalyan, Karagulyan 2019 (``ρ``).
    """
    if not isinstance(schedule.release, Average) or schedule.rate is not None or schedule.noise is not None:
        return math.inf
    if not (curvature.strong_convexity > 0 and curvature.smoothness < math.inf):
        return math.inf
    variance, ahead = 0.0, 0.0
    for index, size in reversed(list(enumerate(schedule.step_sizes, 1))):
        # Slope of the sum of kept states in the state after this step, then in this step's noise.
        ahead += 1.0 if index >= schedule.release.first else 0.0
        variance += 2 * size * ahead * ahead
        ahead *= 1 - curvature.gap(size)
    kept = schedule.num_steps - schedule.release.first + 1
    return math.sqrt(variance / schedule.num_chains) / kept if variance < math.inf else math.inf
