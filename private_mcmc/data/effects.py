"""One term's effects: how its numbers are centred and scaled, and where what centring leaves over goes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.data.expressions import Expression
from private_mcmc.data.families import Prior
from private_mcmc.data.formula import Term
from private_mcmc.errors import DeclarationError

Array: TypeAlias = npt.NDArray[np.float64]
Draws: TypeAlias = Mapping[str, Array]


@dataclass(frozen=True)
class Effect:
    """One term's effects.

    Attributes:
        term: the formula's term.
        levels: labels of every dimension, the reference left out; one dimension for each category.
        numbers: what the levels' effects are multiplied by: the term's numbers, or their product.
        centres: of the numbers.
        scale: product of the numbers' scales; an effect of the model divided by it is one of a unit.
        prior: of a unit's effect, on the user's scale; of its sd where ``spread``.
        classes: the outcome's levels that have effects of their own: all but the first of a categorical one.
        spread: whether the sd of a group's effects is estimated.
        unit: the stated sd of a group's effects in the model's units, where its site is standard Normal.
    """

    term: Term
    levels: tuple[tuple[str, ...], ...]
    numbers: tuple[Expression, ...]
    centres: tuple[float, ...]
    scale: float
    prior: Prior
    classes: tuple[str, ...] = ()
    spread: bool = False
    unit: float = 1.0

    @property
    def name(self) -> str:
        """The model's site."""
        return self.term.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the effects, the outcome's classes last; ``()`` for a number alone."""
        return (*(len(labels) for labels in self.levels), *([len(self.classes)] if self.classes else []))

    @property
    def spread_name(self) -> str:
        """The site of the sd of a group's effects."""
        return f"sd({self.name})"

    @property
    def is_standard(self) -> bool:
        """Whether the site is standard Normal, and the effects are made of it."""
        return self.spread or bool(self.term.together)

    @property
    def leader(self) -> str:
        """The term whose effects these are correlated with and that is drawn before them, or empty."""
        first = self.term.together[:1]
        return first[0] if first and first[0] != self.name else ""

    def of(self, draws: Draws) -> Array:
        """The effects ``(draws, *shape)`` from draws of the model's sites."""
        shape = (len(draws[self.name]), *self.shape)
        one = (-1, *(1,) * len(self.shape))
        found = draws[self.name].reshape(shape)
        if self.leader:
            share = draws[correlation(self.term)].reshape(one)
            both = draws[self.leader].reshape(shape)
            found = (2 * share - 1) * both + 2 * np.sqrt(share * (1 - share)) * found
        return np.asarray(found * (draws[self.spread_name].reshape(one) if self.spread else self.unit))

    def coordinates(self) -> tuple[str, ...]:
        """A name for every effect, the last dimension fastest, such as ``sex[male]``."""
        names = [""]
        for labels in [*self.levels, *([self.classes] if self.classes else [])]:
            names = [f"{before}{', ' if before else ''}{label}" for before in names for label in labels]
        return tuple(f"{self.name}[{name}]" if name else self.name for name in names)


def correlation(term: Term) -> str:
    """The site of the correlation of a group's intercepts and slopes; of ``(ρ + 1)/2`` in the model."""
    return f"cor({', '.join(term.together)})"


def _left_out(effect: Effect) -> Iterator[dict[int, float]]:
    """Every choice of numbers of a product that are replaced by their centres, by position."""
    centred = [place for place, centre in enumerate(effect.centres) if centre]
    for size in range(1, len(centred) + 1):
        for chosen in combinations(centred, size):
            yield {place: effect.centres[place] for place in chosen}


def _target(effects: Sequence[Effect], effect: Effect, left_out: Collection[int]) -> Effect | None:
    """The effect of the same product with fewer numbers; ``None`` for what all rows have."""
    kept = [number.text for place, number in enumerate(effect.numbers) if place not in left_out]
    if not kept and not effect.term.categories and not effect.term.group:
        return None
    coding = dict(effect.term.categories)
    for other in effects:
        same = other.term.group == effect.term.group and coding.keys() == dict(other.term.categories).keys()
        # What has an effect of every level takes one that has none of the first, and not the reverse.
        fits = same and all(coding[name] or not reduced for name, reduced in other.term.categories)
        if fits and sorted(number.text for number in other.numbers) == sorted(kept):
            return other
    raise LookupError(effect.name)


def base_of(terms: Sequence[Term]) -> str:
    """The term of whose effects every row has one, which takes an intercept's place; empty without one."""
    whole = (term for term in terms if term.categories and not term.numbers and not term.group)
    return next((term.name for term in whole if not any(reduced for _, reduced in term.categories)), "")


def _aligned(moved: Array, effect: Effect, target: Effect) -> Array:
    """``(draws, *levels, …)`` in the order of the target's categories, zero at levels left out."""
    names = [name for name, _ in effect.term.categories]
    order = [names.index(name) for name, _ in target.term.categories]
    rest = range(1 + len(names), moved.ndim)
    moved = moved.transpose(0, *(1 + place for place in order), *rest)
    coding = dict(effect.term.categories)
    pads = [(int(coding[name] and not reduced), 0) for name, reduced in target.term.categories]
    return np.pad(moved, [(0, 0), *pads, *[(0, 0)] * len(rest)])


def per_unit(effects: Sequence[Effect], draws: Draws, half: float) -> tuple[dict[str, Array], Array]:
    """Effects and sds of one of the user's units, persons' own effects left out; and what every row gets.

    ``half``: the unit of the model's predictor.
    """
    found: dict[str, Array] = {}
    for effect in effects:
        if not effect.term.own:
            found[effect.name] = effect.of(draws) * (half / effect.scale)
        if effect.spread:
            found[effect.spread_name] = draws[effect.spread_name] * (half / effect.scale)
    shift = np.zeros(1)
    for effect in (effect for effect in effects if not effect.term.own):
        for left_out in _left_out(effect):
            moved = effect.of(draws) * (
                math.prod(-centre for centre in left_out.values()) * half / effect.scale
            )
            target = _target(effects, effect, left_out)
            if target is None:
                shift = shift + moved
            else:
                found[target.name] = found[target.name] + _aligned(moved, effect, target)
    return found, shift


def scaled(effect: Effect, effects: Sequence[Effect], based: bool, half: float) -> Effect:
    """The effect with its numbers centred, where the formula has terms that what is left over goes to."""
    term, numbers = effect.term, effect.numbers
    centres = tuple(_middle(number) for number in numbers)
    whole = replace(effect, centres=centres)
    try:
        targets = [_target(effects, whole, left_out) for left_out in _left_out(whole)]
    except LookupError:
        targets = []
    if not (targets and (based or None not in targets)):
        numbers = () if term.number is None else (term.number,)
        alone = based and not term.categories and not term.group
        centres = tuple(_middle(number) if alone else 0.0 for number in numbers)
    sizes = (
        max(number.bounds[1] - centre, centre - number.bounds[0]) or 1.0
        for number, centre in zip(numbers, centres, strict=True)
    )
    scale = math.prod(sizes)
    made = replace(effect, numbers=numbers, centres=centres, scale=scale)
    if not term.together or effect.spread:
        return made
    law, (mean, *sd) = effect.prior.law, effect.prior.numbers
    if law != "normal" or mean:
        raise DeclarationError(f"prior of {term.name!r}: correlated effects are normal(0, sd).")
    return replace(made, unit=sd[0] * scale / half)


def _middle(number: Expression) -> float:
    return 0.0 if number.is_indicator else sum(number.bounds) / 2


def quarter_of(term: Term) -> float:
    """What an effect's default prior is of: a quarter of a number's range, or a level."""
    number = term.number
    if number is None or number.is_indicator or all(each.is_level for each in term.numbers):
        return 1.0
    return (number.bounds[1] - number.bounds[0]) / 4 or 1.0
