"""Cross moduli: increasing functions ``φ`` with ``|Φ_D(x) − Φ_{D'}(y)| ≤ φ(|x − y|)``, and those of a step.

Every shape is built from non-negative terms, so that its float64 value has a relative error far
below ``rounding.UP``; the shift bound relies on this. Parameters may be numbers, or arrays with one
entry for every step (then distances are arrays of that length).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from private_mcmc.accounting import steps
from private_mcmc.accounting.rounding import FloatArray, product_up
from private_mcmc.errors import DeclarationError
from private_mcmc.target import check_positive

Parameter = float | FloatArray


class Modulus(Protocol):
    """An increasing function of a distance, in the units of the noise metric.

    ``value`` maps distances to bounds elementwise; it is non-decreasing, non-negative, and accurate
    to ten units in the last place (``inf`` where nothing is known).
    """

    def value(self, distance: FloatArray) -> FloatArray:
        """``φ(distance)``, elementwise."""
        ...


Moduli = Modulus | Sequence[Modulus]


def check_parameter(name: str, value: Parameter) -> None:
    """Raise ``DeclarationError`` unless every entry lies in ``[0, ∞)``."""
    array = np.asarray(value, dtype=np.float64)
    if not ((array >= 0).all() and np.isfinite(array).all()):
        raise DeclarationError(f"{name}={value}: must be non-negative and finite.")


@dataclass(frozen=True)
class Affine:
    """``φ(z) = ρz + s`` with ``ρ = 1 − gap ≥ 0``; ``gap`` is kept because ``1 − ρ`` would lose digits."""

    gap: Parameter
    offset: Parameter
    slope: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        gap = np.asarray(self.gap, dtype=np.float64)
        if not ((gap <= 1).all() and np.isfinite(gap).all()):
            raise DeclarationError(f"gap={self.gap}: 1 − ρ must be a finite number of at most 1.")
        check_parameter("offset", self.offset)
        slope = np.where(gap < 1, np.nextafter(1.0 - gap, np.inf), 0.0)  # rounded up
        object.__setattr__(self, "slope", slope)

    def value(self, distance: FloatArray) -> FloatArray:
        """``ρz + s``."""
        return self.slope * distance + self.offset


@dataclass(frozen=True)
class Point:
    """``φ(0) = s`` and nothing known elsewhere: only the path bound follows."""

    offset: Parameter

    def __post_init__(self) -> None:
        check_parameter("offset", self.offset)

    def value(self, distance: FloatArray) -> FloatArray:
        """``s`` at zero, ``inf`` elsewhere."""
        return np.where(np.asarray(distance) == 0, self.offset, np.inf)


@dataclass(frozen=True)
class Minimum:
    """Pointwise minimum of several valid moduli of one step."""

    parts: tuple[Modulus, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise DeclarationError("a minimum of moduli needs at least one of them.")

    def value(self, distance: FloatArray) -> FloatArray:
        """The least of the parts' values."""
        return cast(FloatArray, np.min([part.value(distance) for part in self.parts], axis=0))


def parts_of(modulus: Modulus) -> tuple[Modulus, ...]:
    """The parts of a minimum, or the one modulus: each bounds the step by itself."""
    return modulus.parts if isinstance(modulus, Minimum) else (modulus,)


def undominated(parts: Sequence[Modulus]) -> tuple[Modulus, ...]:
    """``parts`` without the affine ones that lie on or above another: their pointwise minimum is the same."""
    kept: list[Modulus] = []
    for part in parts:
        if not any(_below(other, part) for other in kept):
            kept = [other for other in kept if not _below(part, other)] + [part]
    return tuple(kept)


def _below(low: Modulus, high: Modulus) -> bool:
    if not (isinstance(low, Affine) and isinstance(high, Affine)):
        return False
    return bool(np.all(low.gap >= high.gap) and np.all(low.offset <= high.offset))


@dataclass(frozen=True)
class PerStep:
    """One modulus for every step, evaluated group by group; distances have one entry for every step."""

    groups: tuple[tuple[NDArray[np.intp], Modulus], ...]

    def value(self, distance: FloatArray) -> FloatArray:
        """``φ_k(distance[k])``."""
        result = np.empty_like(distance)
        for index, part in self.groups:
            result[index] = part.value(distance[index])
        return result


def _form(part: Modulus) -> object:
    if isinstance(part, Minimum):
        return (Minimum, *(_form(inner) for inner in part.parts))
    return type(part) if is_dataclass(part) else id(part)


def _merge(parts: Sequence[Modulus]) -> Modulus:
    first = parts[0]
    if isinstance(first, Minimum):
        columns = zip(*(cast(Minimum, part).parts for part in parts), strict=True)
        return Minimum(tuple(_merge(column) for column in columns))
    if is_dataclass(first):
        names = [entry.name for entry in fields(first) if entry.init]
        return type(first)(**{name: np.array([getattr(part, name) for part in parts]) for name in names})
    return first


def per_step(moduli: Sequence[Modulus]) -> PerStep:
    """Gather the moduli of a run's steps into few vectorised groups."""
    members: dict[object, list[int]] = {}
    for step, part in enumerate(moduli):
        members.setdefault(_form(part), []).append(step)
    return PerStep(tuple((np.array(at), _merge([moduli[k] for k in at])) for at in members.values()))


@dataclass(frozen=True)
class Curvature:
    """Constants of ``U_D = K + w Σ v_i`` that are proved for **every** ``D`` of the row domain.

    All are measured in the metric of the schedule's preconditioner (eigenvalues of
    ``M^{1/2} ∇² M^{1/2}``, gradients in ``‖M^{1/2}·‖``), with clipping taken into account. Under
    minibatches they must hold for the potential of every batch that can be drawn, with its public
    factor: ``strong_convexity`` is then the prior's, ``smoothness`` that of the largest batch.

    Attributes:
        strong_convexity: ``μ``, of ``U_D``; 0 proves nothing, not even that ``U_D`` is convex.
        smoothness: ``L``, of ``U_D``: the gradient's Lipschitz constant, so a bound on **both** ends of the
            Hessian wherever convexity is not proved.
        prior_strong_convexity: ``μ_K``, of the prior side ``K``; 0 proves nothing.
        prior_smoothness: ``L_K``, two-sided like ``smoothness``.
        convex: ``U_D`` is convex; implied by ``strong_convexity > 0``.
        gradient_bound: ``B ≥ |w Σ ∇v_i|_*``.
        prior_convex: ``K`` is convex; implied by ``prior_strong_convexity > 0``.
        prior_slope: ``|∇K(0)|_*``, of which only the size of rounding errors makes use.

    ``DeclarationError`` for negative or contradictory constants.
    """

    strong_convexity: float = 0.0
    smoothness: float = math.inf
    prior_strong_convexity: float = 0.0
    prior_smoothness: float = math.inf
    convex: bool = False
    gradient_bound: float = math.inf
    prior_convex: bool = False
    prior_slope: float = math.inf

    def __post_init__(self) -> None:
        if not self.prior_slope >= 0:
            raise DeclarationError(f"prior_slope={self.prior_slope}: must be a number in [0, ∞].")
        if not self.gradient_bound >= 0:
            raise DeclarationError(f"gradient_bound={self.gradient_bound}: must be a number in [0, ∞].")
        for low, high in (("strong_convexity", "smoothness"), ("prior_strong_convexity", "prior_smoothness")):
            if not 0 <= getattr(self, low) <= getattr(self, high):
                raise DeclarationError(
                    f"{low}={getattr(self, low)}, {high}={getattr(self, high)}: need 0 ≤ {low} ≤ {high}."
                )
        if math.inf in (self.strong_convexity, self.prior_strong_convexity):
            raise DeclarationError("strong convexity must be finite.")
        if self.strong_convexity > 0 and not self.convex:
            object.__setattr__(self, "convex", True)
        if self.prior_strong_convexity > 0 and not self.prior_convex:
            object.__setattr__(self, "prior_convex", True)


def langevin(step_size: float, sensitivity: float, known: Curvature | None = None) -> Modulus:
    """The least modulus that the constants prove for ``Φ_D(x) = x − γM∇U_D(x)``, all adjacent ``D, D'``.

    ======================================================  ==================================
    known of ``U_D = K + V_D`` for every ``D``              ``φ(z)``
    ======================================================  ==================================
    convex, ``L``-smooth, ``μ``-strongly convex             ``max(|1−γμ|, |1−γL|) z + γΔ``
    ``L``-smooth                                            ``(1+γL) z + γΔ``
    ``K`` convex, ``L_K``-smooth, ``|∇V_D|_* ≤ B``          ``max(|1−γμ_K|, |1−γL_K|) z + 2γB``
    ``K`` ``L_K``-smooth, ``|∇V_D|_* ≤ B``                  ``(1+γL_K) z + 2γB``
    nothing                                                 ``φ(0) = γΔ`` only
    ======================================================  ==================================

    The pointwise minimum of all rows that apply is returned. ``L``-smooth means that the gradient is
    ``L``-Lipschitz: without convexity the Hessian lies between ``−L`` and ``L``.

    Source: BJRD Assumption 5.1 and proof of Theorem 5.2; BFG Section 2.
    """
    check_positive("step_size", step_size)
    if not sensitivity >= 0:
        raise DeclarationError(f"sensitivity={sensitivity}: must be non-negative.")
    known = known or Curvature()
    push = product_up(step_size, sensitivity)
    parts: list[Modulus] = [Point(push)]
    if math.isfinite(known.smoothness):
        gap = _gap(step_size, known.strong_convexity, known.smoothness, known.convex)
        parts.append(Affine(gap, push))
    if math.isfinite(known.gradient_bound) and math.isfinite(known.prior_smoothness):
        gap = _gap(step_size, known.prior_strong_convexity, known.prior_smoothness, known.prior_convex)
        parts.append(Affine(gap, product_up(2.0, step_size, known.gradient_bound)))
    # Where another one is as low at zero, the point says nothing that it does not.
    at_zero = [float(part.value(np.zeros(1))[0]) for part in parts]
    parts = list(undominated(parts[1:] if min(at_zero[1:], default=math.inf) <= at_zero[0] else parts))
    return parts[0] if len(parts) == 1 else Minimum(tuple(parts))


def _gap(step_size: float, strong_convexity: float, smoothness: float, convex: bool) -> float:
    """``1 − ρ`` of the gradient step of a function, rounded down: ``−γL`` where it may bend both ways."""
    if convex:
        return steps.Curvature(strong_convexity, smoothness).gap(step_size)
    return -product_up(step_size, smoothness)
