"""From a formula to scaled effects, and from their draws back to the user's units.

A number with public range ``[a, b]`` enters as ``z = (x − c)/s`` with ``c = (a+b)/2``, ``s = (b−a)/2``, so
that ``|z| ≤ 1``: among affine maps into ``[−1, 1]`` this one spreads values most, and more spread at the same
norm is more signal at the same noise. Without an intercept, and for numbers times categories, ``c = 0`` and
``s = max(|a|, |b|)``. A category's level enters as an indicator. With ``k`` terms and an intercept a row's
design has norm at most ``√(k + 1)``.

The model's effects ``β`` are those of ``z``; the user's are ``β/s``, exactly, and the user's intercept is
``β_0 − Σ β c/s``. Thresholds of an ordinal outcome, which are what the predictor is compared with, are moved
the other way. Where a group's sd ``τ`` has a prior, its effects are ``τ·z`` with ``z`` standard Normal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from private_mcmc.data.expressions import Expression
from private_mcmc.data.families import Family
from private_mcmc.data.fields import Field, identifier
from private_mcmc.data.formula import Formula, Term, ranges
from private_mcmc.data.priors import Prior, normal, read_priors
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError

Array: TypeAlias = npt.NDArray[np.float64]
Draws: TypeAlias = Mapping[str, Array]

INTERCEPT, THRESHOLDS = "Intercept", "thresholds"


@dataclass(frozen=True)
class Effect:
    """One term's effects.

    Attributes:
        term: the formula's term.
        levels: labels of every dimension, the reference left out; one dimension for each category.
        centre: of the number.
        scale: of the number; an effect of the model divided by it is one of a unit.
        prior: of a unit's effect, on the user's scale; of its sd where ``spread``.
        classes: the outcome's levels that have effects of their own: all but the first of a categorical one.
        spread: whether the sd of a group's effects is estimated.
    """

    term: Term
    levels: tuple[tuple[str, ...], ...]
    centre: float
    scale: float
    prior: Prior
    classes: tuple[str, ...] = ()
    spread: bool = False

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

    def of(self, draws: Draws) -> Array:
        """The effects ``(draws, *shape)`` from draws of the model's sites."""
        found = draws[self.name].reshape(len(draws[self.name]), *self.shape)
        if not self.spread:
            return found
        return np.asarray(found * draws[self.spread_name].reshape(-1, *(1,) * len(self.shape)))

    def coordinates(self) -> tuple[str, ...]:
        """A name for every effect, the last dimension fastest, such as ``sex[male]``."""
        names = [""]
        for labels in [*self.levels, *([self.classes] if self.classes else [])]:
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
        parameters: priors or stated values of the family's other parameters, in the outcome's units.
        unsaid: those of them that nobody stated.
    """

    formula: Formula
    schema: Schema
    family: Family
    effects: tuple[Effect, ...]
    intercept: Prior | None
    parameters: Mapping[str, Prior]
    unsaid: tuple[str, ...]

    @property
    def norm(self) -> float:
        """Bound of the Euclidean norm of a row's design, from public declarations."""
        return math.sqrt(len(self.effects) + (self.intercept is not None))

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels of a categorical outcome's levels but the first; empty for other families."""
        labels = [level.label for level in self.schema[self.formula.outcome].all_levels]
        return tuple(labels[1:]) if self.family.kind == "levels" else ()

    @property
    def thresholds(self) -> int:
        """How many thresholds an ordinal outcome has."""
        levels = len(self.schema[self.formula.outcome].all_levels)
        return levels - 1 if self.family.kind == "ordered" else 0

    @cached_property
    def outcome_scale(self) -> tuple[float, float]:
        """Centre and half range of the outcome."""
        return self.family.outcome_scale(self.schema[self.formula.outcome])

    def to_user(self, draws: Draws) -> dict[str, Array]:
        """Draws of the model's sites, ``(draws, …)``, as coefficients in the user's units."""
        middle, half = self.outcome_scale
        found: dict[str, Array] = {}
        centred = (effect for effect in self.effects if effect.centre)
        shift = sum(
            (effect.of(draws) * (effect.centre / effect.scale) for effect in centred), start=np.zeros(1)
        )
        if self.intercept is not None:
            found[INTERCEPT] = middle + half * (draws[INTERCEPT] - shift)
        if self.thresholds:
            found[THRESHOLDS] = draws[THRESHOLDS] + shift[:, None]
        for effect in self.effects:
            found[effect.name] = effect.of(draws) * (half / effect.scale)
            if effect.spread:
                found[effect.spread_name] = draws[effect.spread_name] * (half / effect.scale)
        return found | {name: draws[name] for name in self.parameters if name in draws}

    def predictor(self, draws: Draws, profile: Mapping[str, float]) -> Array:
        """The predictor ``(draws,)`` of one person, or ``(draws, classes)``, from draws of the model's sites.

        ``profile`` has a number for every field that is read: a level's index, or a number in its units.
        Groups that are left out count as an average one, whose effect is zero.
        """
        middle, half = self.outcome_scale
        count = len(next(iter(draws.values())))
        shape = (count, len(self.classes)) if self.classes else (count,)
        eta = np.zeros(shape) + draws.get(INTERCEPT, np.zeros(shape))
        for effect in self.effects:
            if effect.term.group and effect.term.group not in profile:
                continue
            eta = eta + self._part(effect, effect.of(draws), profile)
        offset = self.formula.offset
        if offset is not None:
            eta = eta + offset.value(_values(offset, profile)) / half
        return np.asarray(middle + half * eta)

    def means(self, draws: Draws, profile: Mapping[str, float]) -> Array:
        """The outcome's mean ``(draws,)`` for one person, or the probabilities ``(draws, levels)``."""
        eta = self.predictor(draws, profile)
        if not self.thresholds:
            return self.family.inverse_link(eta)
        below = expit(draws[THRESHOLDS] - eta[:, None])
        ends = np.zeros((len(eta), 1)), np.ones((len(eta), 1))
        return np.diff(np.concatenate([ends[0], below, ends[1]], axis=1), axis=1)

    def _part(self, effect: Effect, draws: Array, profile: Mapping[str, float]) -> Array:
        index: list[int] = []
        for (name, reduced), labels in zip(effect.term.categories, effect.levels, strict=True):
            place = int(profile[name]) - reduced
            if not -1 <= place < len(labels) or (place < 0 and not reduced):
                raise DeclarationError(f"profile: {name!r} has no such level.")
            index.append(place)
        chosen: Array = draws.reshape(len(draws), *effect.shape)[(slice(None), *index)]  # type: ignore[arg-type]
        if any(place < 0 for place in index):
            return np.zeros_like(chosen)
        number = effect.term.number
        if number is None:
            return chosen
        return np.asarray(chosen * (number.value(_values(number, profile)) - effect.centre) / effect.scale)


def _values(number: Expression, profile: Mapping[str, float]) -> dict[str, Array]:
    # The words of indicators are not fields of their own.
    return {
        word: np.asarray(profile[name] if word == identifier(name) else 0.0)
        for word, name in number.fields.items()
    }


def design(formula: Formula, schema: Schema, family: Family, priors: Sequence[str] = ()) -> Design:
    """Scale every term by its declared range; ``priors`` are such as ``age ~ normal(0, 0.1)``.

    A prior's name is a term's, ``Intercept``, or ``b`` for all effects but those of groups, as in brms. It is
    on the user's scale, per unit of a number; that of the intercept is in the middle of all ranges.
    ``sd(1 | region) ~ halfnormal(1)`` lets the sd of a group's effects be estimated, and ``sigma ~ …`` a
    family's other parameter; ``sigma = 12`` states it.

    Raises:
        DeclarationError: for a prior of a term that is not there, or that is not Normal.
    """
    if (family.name == "binomial") != bool(formula.trials):
        raise DeclarationError(
            "family 'binomial' is for numbers of successes: y | trials(n) ~ …. Did you mean 'bernoulli'?"
            if family.name == "binomial"
            else f"formula {formula.text!r}: trials are for family 'binomial'."
        )
    outcome = schema[formula.outcome]
    family.check(outcome)
    _, half = family.outcome_scale(outcome)
    if family.kind == "ordered" and not formula.intercept:
        raise DeclarationError(
            "family 'cumulative' has thresholds in place of an intercept: leave out the 0."
        )
    given = dict(read_priors(priors))
    shared = given.pop("b", None)
    labels = [level.label for level in outcome.all_levels]
    classes = tuple(labels[1:]) if family.kind == "levels" else ()
    effects = []
    for term in formula.terms:
        low, high, centre, scale = _scaling(term, schema, formula.intercept)
        usual = family.group_sd if term.group else family.effect_sd
        default = normal(0.0, usual * half / ((high - low) / 4 if _is_scaled(term) else 1.0))
        if shared is not None and not term.group:
            default = shared
        levels = tuple(
            tuple(level.label for level in schema[name].all_levels[int(reduced) :])
            for name, reduced in term.categories
        )
        spread = given.pop(f"sd({term.name})", None) if term.group else None
        prior = given.pop(term.name, default) if spread is None else spread
        _check_sign(term.name, prior, real=spread is None)
        effects.append(Effect(term, levels, centre, scale, prior, classes, spread is not None))
    intercept = None
    if formula.intercept and family.kind != "ordered":
        intercept = given.pop(INTERCEPT, _usual_intercept(family, outcome))
        _check_sign(INTERCEPT, intercept, real=True)
    parameters, unsaid = {}, []
    for each in family.parameters:
        said = [given.pop(word) for word in (each.name, *each.aliases) if word in given]
        unsaid += [] if said else [each.name]
        parameters[each.name] = said[0] if said else Prior("", (each.usual * (half if each.scaled else 1.0),))
        _check_sign(each.name, parameters[each.name], real=False)
    if given:
        names = [
            *(effect.name for effect in effects),
            *[INTERCEPT] * (intercept is not None),
            "b",
            *parameters,
        ]
        groups = [effect.spread_name for effect in effects if effect.term.group]
        raise DeclarationError(
            f"prior of {sorted(given)}: there is no such term; priors are for {[*names, *groups]}."
        )
    if not all(schema[name].is_used for name in formula.fields):
        raise DeclarationError("formula: a field that has no part in models is used.")
    taken = {INTERCEPT, THRESHOLDS, formula.outcome, *parameters} & {effect.name for effect in effects}
    if taken:
        raise DeclarationError(
            f"formula {formula.text!r}: {sorted(taken)} name parameters of the model; rename these columns."
        )
    return Design(formula, schema, family, tuple(effects), intercept, parameters, tuple(unsaid))


def _usual_intercept(family: Family, outcome: Field) -> Prior:
    if family.kind == "positive":
        low, high = (math.log(end) for end in outcome.range)
        return normal((low + high) / 2, (high - low) / 2)
    middle, half = family.outcome_scale(outcome)
    return normal(middle, family.intercept_sd * half)


def _check_sign(name: str, prior: Prior, *, real: bool) -> None:
    if prior.is_stated and not real:
        return
    if prior.is_real != real:
        kinds = "normal, student_t, cauchy, laplace" if real else "halfnormal, halfcauchy, exponential, gamma"
        raise DeclarationError(f"prior of {name!r}: {prior} does not fit it; take one of {kinds}.")


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
