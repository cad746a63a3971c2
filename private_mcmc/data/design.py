"""From a formula to scaled effects, and from their draws back to the user's units.

A number with public range ``[a, b]`` enters as ``z = (x − c)/s`` with ``c = (a+b)/2``, ``s = (b−a)/2``, so
that ``|z| ≤ 1``: among affine maps into ``[−1, 1]`` this one spreads values most, and more spread at the same
norm is more signal at the same noise. Without an intercept, and for numbers times categories, ``c = 0`` and
``s = max(|a|, |b|)``. A category's level enters as an indicator. With ``k`` terms and an intercept a row's
design has norm at most ``√(k + 1)``.

The model's effects ``β`` are those of ``z``; the user's are ``β/s``, exactly, and the user's intercept is
``β_0 − Σ β c/s``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from private_mcmc.data.families import Family
from private_mcmc.data.fields import identifier
from private_mcmc.data.formula import Formula, Term, ranges
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError

Array: TypeAlias = npt.NDArray[np.float64]
Draws: TypeAlias = Mapping[str, Array]

INTERCEPT, SIGMA = "Intercept", "sigma"
_NUMBER = r"([-+]?[\d.]+(?:[eE][-+]?\d+)?)"
_PRIOR = re.compile(rf"^(.+?)~\s*normal\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\)\s*$", re.IGNORECASE)
_STATED = re.compile(rf"^sigma\s*=\s*{_NUMBER}\s*$")


@dataclass(frozen=True)
class Normal:
    """A Normal prior on the user's scale."""

    mean: float
    sd: float

    def __str__(self) -> str:
        return f"normal({self.mean:.4g}, {self.sd:.4g})"


@dataclass(frozen=True)
class Effect:
    """One term's effects.

    Attributes:
        term: the formula's term.
        levels: labels of every dimension, the reference left out; one dimension for each category.
        centre: of the number.
        scale: of the number; an effect of the model divided by it is one of a unit.
        prior: of a unit's effect, on the user's scale.
    """

    term: Term
    levels: tuple[tuple[str, ...], ...]
    centre: float
    scale: float
    prior: Normal

    @property
    def name(self) -> str:
        """The model's site."""
        return self.term.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the effects; ``()`` for a number alone."""
        return tuple(len(labels) for labels in self.levels)

    @property
    def norm(self) -> float:
        """Bound of what the term adds to the norm of a row's design."""
        return 1.0

    def coordinates(self) -> tuple[str, ...]:
        """A name for every effect, the last dimension fastest, such as ``sex[male]``."""
        names = [""]
        for labels in self.levels:
            names = [f"{before}{', ' if before else ''}{label}" for before in names for label in labels]
        return tuple(f"{self.name}[{name}]" if name else self.name for name in names)


@dataclass(frozen=True)
class Design:
    """All effects of a formula.

    Attributes:
        formula: what was read.
        schema: what it was read against.
        family: of the outcome.
        effects: in the order of the formula's terms.
        intercept: prior of the intercept in the middle of all ranges, or ``None`` without one.
        sigma: stated sd of a Normal outcome around its mean, in its units.
    """

    formula: Formula
    schema: Schema
    family: Family
    effects: tuple[Effect, ...]
    intercept: Normal | None
    sigma: float | None

    @property
    def norm(self) -> float:
        """Bound of the Euclidean norm of a row's design, from public declarations."""
        return math.sqrt(len(self.effects) + (self.intercept is not None))

    @cached_property
    def outcome_scale(self) -> tuple[float, float]:
        """Centre and half range of the outcome."""
        return self.family.outcome_scale(self.schema[self.formula.outcome])

    def to_user(self, draws: Draws) -> dict[str, Array]:
        """Draws of the model's sites, ``(draws, …)``, as coefficients in the user's units."""
        middle, half = self.outcome_scale
        found: dict[str, Array] = {}
        if self.intercept is not None:
            shift = sum(
                (
                    draws[effect.name] * (effect.centre / effect.scale)
                    for effect in self.effects
                    if effect.centre
                ),
                start=np.zeros(len(draws[INTERCEPT])),
            )
            found[INTERCEPT] = middle + half * (draws[INTERCEPT] - shift)
        for effect in self.effects:
            shape = (len(draws[effect.name]), *effect.shape)
            found[effect.name] = draws[effect.name].reshape(shape) * (half / effect.scale)
        return found

    def predictor(self, draws: Draws, profile: Mapping[str, float]) -> Array:
        """The predictor ``(draws,)`` of one person, from draws of the model's sites.

        ``profile`` has a number for every field that is read: a level's index, or a number in its units.
        Groups that are left out count as an average one, whose effect is zero.
        """
        middle, half = self.outcome_scale
        count = len(next(iter(draws.values())))
        eta = np.zeros(count) + draws.get(INTERCEPT, np.zeros(count))
        for effect in self.effects:
            if effect.term.group and effect.term.group not in profile:
                continue
            part = self._part(effect, draws[effect.name], profile)
            eta = eta + part
        return np.asarray(middle + half * eta)

    def _part(self, effect: Effect, draws: Array, profile: Mapping[str, float]) -> Array:
        part = draws.reshape(len(draws), *effect.shape)
        index: list[int] = []
        for (name, reduced), labels in zip(effect.term.categories, effect.levels, strict=True):
            place = int(profile[name]) - reduced
            if not -1 <= place < len(labels) or (place < 0 and not reduced):
                raise DeclarationError(f"profile: {name!r} has no such level.")
            index.append(place)
        if any(place < 0 for place in index):
            return np.zeros(len(draws))
        chosen: Array = part.reshape(len(draws), -1)[
            :, np.ravel_multi_index(index, effect.shape) if index else 0
        ]
        if effect.term.number is None:
            return chosen
        fields = effect.term.number.fields
        # The words of indicators are not fields of their own.
        values = {
            word: np.asarray(profile[name] if word == identifier(name) else 0.0)
            for word, name in fields.items()
        }
        return np.asarray(chosen * (effect.term.number.value(values) - effect.centre) / effect.scale)


def design(formula: Formula, schema: Schema, family: Family, priors: Sequence[str] = ()) -> Design:
    """Scale every term by its declared range; ``priors`` are such as ``age ~ normal(0, 0.1)``.

    A prior's name is a term's, ``Intercept``, or ``b`` for all effects but those of groups, as in brms. It is
    on the user's scale, per unit of a number; that of the intercept is in the middle of all ranges.
    ``sigma = 12`` states the sd of a Normal outcome around its mean; a quarter of its range if left out.

    Raises:
        DeclarationError: for a prior of a term that is not there, or that is not Normal.
    """
    outcome = schema[formula.outcome]
    family.check(outcome)
    _, half = family.outcome_scale(outcome)
    given = _priors(priors)
    shared = given.pop("b", None)
    effects = []
    for term in formula.terms:
        low, high, centre, scale = _scaling(term, schema, formula.intercept)
        usual = family.group_sd if term.group else family.effect_sd
        default = Normal(0.0, usual * half / ((high - low) / 4 if _is_scaled(term) else 1.0))
        if shared is not None and not term.group:
            default = shared
        levels = tuple(
            tuple(level.label for level in schema[name].all_levels[int(reduced) :])
            for name, reduced in term.categories
        )
        effects.append(Effect(term, levels, centre, scale, given.pop(term.name, default)))
    middle, _ = family.outcome_scale(outcome)
    intercept = (
        given.pop(INTERCEPT, Normal(middle, family.intercept_sd * half)) if formula.intercept else None
    )
    sigma = given.pop(SIGMA, Normal(0.0, half / 2)).sd if family.name == "gaussian" else None
    if given:
        names = [*(effect.name for effect in effects), INTERCEPT, "b"]
        raise DeclarationError(f"prior of {sorted(given)}: there is no such term; priors are for {names}.")
    if not all(schema[name].is_used for name in formula.fields):
        raise DeclarationError("formula: a field that has no part in models is used.")
    return Design(formula, schema, family, tuple(effects), intercept, sigma)


def _is_scaled(term: Term) -> bool:
    """Whether the term has a number other than an indicator."""
    number = term.number
    return number is not None and all(word == identifier(name) for word, name in number.fields.items())


def _scaling(term: Term, schema: Schema, intercept: bool) -> tuple[float, float, float, float]:
    """Range, centre and scale of a term's number."""
    if term.number is None:
        return 0.0, 1.0, 0.0, 1.0
    low, high = term.number.bounds(ranges(schema, term.number))
    if intercept and not term.categories and _is_scaled(term):
        return low, high, (low + high) / 2, (high - low) / 2 or 1.0
    return low, high, 0.0, max(abs(low), abs(high)) or 1.0


def _priors(texts: Sequence[str]) -> dict[str, Normal]:
    found = {}
    for text in texts:
        if stated := _STATED.match(text.strip()):
            name, prior = SIGMA, Normal(0.0, float(stated[1]))
        elif match := _PRIOR.match(text.strip()):
            name, prior = match[1].strip(), Normal(float(match[2]), float(match[3]))
        else:
            raise DeclarationError(
                f"prior {text!r}: TERM ~ normal(mean, sd), as in 'age ~ normal(0, 0.1)'. Other priors: edit "
                "the model that --show-model prints."
            )
        if name.startswith("sd(") or not prior.sd > 0:
            raise DeclarationError(
                f"prior {text!r}: sds are positive, and that of a group is stated and not estimated, as in "
                "'1 | region ~ normal(0, 0.5)'."
            )
        found[name] = prior
    return found
