"""Shapes of cross moduli: increasing functions ``φ`` with ``|Φ_D(x) − Φ_{D'}(y)| ≤ φ(|x − y|)``.

Every shape is built from non-negative terms, so that its float64 value has a relative error far
below ``rounding.UP``; the shift bound relies on this. Parameters may be numbers, or arrays with one
entry for every step (then distances are arrays of that length).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from private_mcmc.accounting.rounding import FloatArray
from private_mcmc.errors import DeclarationError

Parameter = float | FloatArray


class Modulus(Protocol):
    """An increasing function of a distance, in the units of the noise metric.

    ``value`` maps distances to bounds elementwise; it is non-decreasing, non-negative, and accurate
    to ten units in the last place (``inf`` where nothing is known). ``tangent`` returns
    ``(slope, offset)`` of a touching line at each distance, both non-negative; it only guides the
    optimiser, no guarantee rests on it.
    """

    def value(self, distance: FloatArray) -> FloatArray:
        """``φ(distance)``, elementwise."""
        ...

    def tangent(self, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slope and offset of a touching line at each distance."""
        ...


def check_parameter(name: str, value: Parameter) -> None:
    """Raise ``DeclarationError`` unless every entry lies in ``[0, ∞)``."""
    array = np.asarray(value, dtype=np.float64)
    if not ((array >= 0).all() and np.isfinite(array).all()):
        raise DeclarationError(f"{name}={value}: must be non-negative and finite.")


def _like(value: Parameter, distance: FloatArray) -> FloatArray:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), np.shape(distance))


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

    def tangent(self, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The line itself."""
        return _like(self.slope, distance), _like(self.offset, distance)


@dataclass(frozen=True)
class Point:
    """``φ(0) = s`` and nothing known elsewhere: only the path bound follows."""

    offset: Parameter

    def __post_init__(self) -> None:
        check_parameter("offset", self.offset)

    def value(self, distance: FloatArray) -> FloatArray:
        """``s`` at zero, ``inf`` elsewhere."""
        return np.where(np.asarray(distance) == 0, self.offset, np.inf)

    def tangent(self, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """An infinitely steep line."""
        return _like(np.inf, distance), _like(self.offset, distance)


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

    def tangent(self, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The tangent of the least part."""
        best = np.argmin([part.value(distance) for part in self.parts], axis=0)
        lines = [part.tangent(distance) for part in self.parts]
        slope = np.choose(best, [line[0] for line in lines])
        return slope, np.choose(best, [line[1] for line in lines])


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

    def tangent(self, distance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The tangents of the steps' own moduli."""
        slope, offset = np.empty_like(distance), np.empty_like(distance)
        for index, part in self.groups:
            slope[index], offset[index] = part.tangent(distance[index])
        return slope, offset


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
