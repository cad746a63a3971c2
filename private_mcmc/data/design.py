"""From a formula to scaled effects, and from their draws back to the user's units.

A number with public range ``[a, b]`` enters as ``z = (x − c)/s`` with ``c = (a+b)/2``, ``s = (b−a)/2``, so
that ``|z| ≤ 1``: among affine maps into ``[−1, 1]`` this one spreads values most, and more spread at the same
norm is more signal at the same noise. A category's level enters as an indicator. With ``k`` terms and an
intercept a row's design has norm at most ``√(k + 1)``.

The model's effects ``β`` are those of products of ``z`` and indicators; the user's are ``β/Πs``, and what
``Π(x − c)`` has besides ``Πx`` is added to the terms of fewer numbers, exactly: of ``age`` to the intercept,
of ``sex:age`` to ``sex``. Where a formula lacks such a term, the product enters as one number, with ``c = 0``
and ``s = max(|a|, |b|)`` where there is no intercept either or it is multiplied by categories.
Thresholds of an ordinal outcome, which are what the predictor is compared with, are moved the other way.

Where a group's sd ``τ`` has a prior, its effects are ``τ·z`` with ``z`` standard Normal. A slope that is
correlated with the group's intercept is ``τ·(ρz_0 + √(1 − ρ²)·z)``, with ``(ρ + 1)/2 ~ Beta(η, η)``: the law
``LKJ(η)`` of two effects (Lewandowski, Kurowicka, Joe 2009). Effects of each person are integrated out: what
is released of them is their sds and correlation, which are those in the middle of a slope's range.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import scipy.special
from scipy.special import expit

from private_mcmc.data.effects import Array, Draws, Effect, base_of, correlation, per_unit, quarter_of, scaled
from private_mcmc.data.expressions import Expression
from private_mcmc.data.families import (
    EVENTS,
    STEPS,
    Family,
    Prior,
    check_sign,
    normal,
    read_priors,
    unknown_priors,
)
from private_mcmc.data.fields import Field, identifier
from private_mcmc.data.formula import Formula
from private_mcmc.data.schema import Schema
from private_mcmc.errors import DeclarationError

if TYPE_CHECKING:
    from private_mcmc.domains import Rows

INTERCEPT, THRESHOLDS = "Intercept", "thresholds"
# What is done with effects of groups that a profile leaves out.
Groups: TypeAlias = Literal["average", "integrated", "new"]
_NODES = 31
# A median is looked for within so many powers of e of the longest time, and its interval halved so often.
_WIDEST, _HALVINGS = 50.0, 60


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
        correlations: prior of each, by its site.
        unsaid: those of the parameters that have a value which nobody stated.
    """

    formula: Formula
    schema: Schema
    family: Family
    effects: tuple[Effect, ...]
    intercept: Prior | None
    parameters: Mapping[str, Prior]
    correlations: Mapping[str, Prior]
    unsaid: tuple[str, ...]

    @property
    def rows(self) -> Rows:
        """Domains of what the formula reads; of a count from 0 on, as its distribution has it."""
        schema, outcome = self.schema, self.schema[self.formula.outcome]
        if self.family.kind == "count" and not outcome.is_category:
            counted = replace(outcome, minimum=0.0)
            schema = replace(
                schema, fields=tuple(counted if one is outcome else one for one in schema.fields)
            )
        return schema.rows(self.formula.fields)

    @property
    def shared(self) -> tuple[Effect, ...]:
        """The effects that are no person's own."""
        return tuple(effect for effect in self.effects if not effect.term.own)

    @property
    def levels(self) -> tuple[str, ...]:
        """Labels of an outcome with more than two levels; empty for others."""
        several = self.family.kind in ("levels", "ordered")
        return tuple(level.label for level in self.schema[self.formula.outcome].all_levels) * several

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels of a categorical outcome's levels but the first; empty for other families."""
        return self.levels[1:] if self.family.kind == "levels" else ()

    @property
    def thresholds(self) -> int:
        """How many thresholds an ordinal outcome has."""
        return len(self.levels) - 1 if self.family.kind == "ordered" else 0

    @property
    def mean(self) -> str:
        """What a prediction is; of an event over a time the integral of its rate, which may be above 1."""
        event = self.family.kind == "count" and self.schema[self.formula.outcome].is_category
        return "cumulative hazard" if event and self.formula.offset is not None else self.family.mean

    @cached_property
    def outcome_scale(self) -> tuple[float, float]:
        """Centre and half range of the outcome; a predictor without a constant is of the outcome itself."""
        return self.family.outcome_scale(self.schema[self.formula.outcome], self.is_based)

    @property
    def is_based(self) -> bool:
        """Whether a constant can go to the predictor: to its intercept, or to one effect of each row."""
        return self.formula.intercept or bool(base_of(self.formula.terms))

    def to_user(self, draws: Draws) -> dict[str, Array]:
        """Draws of the model's sites, ``(draws, …)``, as coefficients in the user's units."""
        middle, half = self.outcome_scale
        effects, shift = per_unit(self.effects, draws, half)
        shift = middle + shift
        found: dict[str, Array] = {}
        if self.thresholds:
            found[THRESHOLDS] = draws[THRESHOLDS] - shift[:, None]
        elif self.intercept is not None:
            found[INTERCEPT] = half * draws[INTERCEPT] + shift
        elif self.is_based:
            base = base_of(self.formula.terms)
            levels = next(len(effect.levels) for effect in self.effects if effect.name == base)
            effects[base] = effects[base] + np.expand_dims(shift, tuple(range(1, 1 + levels)))
        found |= effects | {name: 2 * draws[name] - 1 for name in self.correlations}
        return found | {name: draws[name] for name in self.parameters if name in draws}

    def predictor(self, draws: Draws, profile: Mapping[str, Any], xp: Any = np) -> Any:
        """The predictor ``(draws,)`` of one person, or ``(draws, classes)``, from draws of the model's sites.

        ``profile`` has a number for every field that is read: a level's index, or a number in its units.
        Groups that are left out count as an average one, whose effect is zero. ``xp``: NumPy, or JAX.
        """
        middle, half = self.outcome_scale
        count = len(next(iter(draws.values())))
        shape = (count, len(self.classes)) if self.classes else (count,)
        eta = xp.zeros(shape) + draws.get(INTERCEPT, np.zeros(shape))
        for effect in self.effects:
            if not effect.term.group or effect.term.group in profile:
                eta = eta + self._part(effect, draws, profile, xp).reshape(shape)
        offset = self.formula.offset
        if offset is not None:
            eta = eta + offset.value(_values(offset, profile), xp) / half
        return middle + half * eta

    def means(
        self,
        draws: Draws,
        profile: Mapping[str, float],
        groups: Groups = "average",
        until: float | None = None,
    ) -> Array:
        """The outcome's mean ``(draws,)`` for one person, or the probabilities ``(draws, levels)``.

        Of a time to an event: the median, or the probability of no event ``until`` a time.
        ``groups``: what is done with effects of groups and persons that the profile leaves out. ``average``:
        they are zero; ``integrated``: the mean is averaged over their law, which under a link that is not
        linear is another number, and the one of a population; ``new``: each draw has a new group's own.
        """
        eta = self.predictor(draws, profile)
        spread = None if groups == "average" else self.group_sd(draws, profile)
        if spread is None:
            return self._outcome(eta, draws, until)
        shape = (len(eta), *(1,) * (eta.ndim - 1))
        random = np.random.default_rng(_NODES)
        if groups == "new":
            return self._outcome(eta + spread.reshape(shape) * random.normal(size=eta.shape), draws, until)
        if eta.ndim > 1:  # an effect of each class: points of a plane, the same for every draw
            nodes = random.normal(size=(_NODES, eta.shape[1]))
            nodes, weights = np.concatenate([nodes, -nodes]), np.full(2 * _NODES, 0.5 / _NODES)
        else:
            nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
            weights = weights / weights.sum()
        return np.asarray(
            sum(
                weight * self._outcome(eta + spread.reshape(shape) * node, draws, until)
                for node, weight in zip(nodes, weights, strict=True)
            )
        )

    def group_sd(self, draws: Draws, profile: Mapping[str, float]) -> Array | None:
        """The sd ``(draws,)`` of the sum of all groups' effects that a profile leaves out, if there are any.

        The sum is linear in independent standard Normals: what it is where one of them is 1 is squared.
        """
        _, half = self.outcome_scale
        gone = [each for each in self.effects if each.term.group and each.term.group not in profile]
        if not gone:
            return None
        count = len(next(iter(draws.values())))
        anywhere = {**profile, **{effect.term.group: 0.0 for effect in gone}}
        none = {effect.name: np.zeros((count, *effect.shape)) for effect in gone}
        square = np.zeros(count)
        for effect in gone:
            unit = 1.0 if effect.is_standard else effect.prior.numbers[-1] * effect.scale / half
            one = {**draws, **none, effect.name: none[effect.name] + unit}
            moved = sum(self._part(each, one, anywhere, np) for each in gone) * half
            square = square + np.square(moved.reshape(count, -1)[:, 0])
        return np.sqrt(square)

    def values(self, draws: Draws) -> dict[str, Array]:
        """The family's other parameters: their draws ``(draws, …)``, or the numbers that were stated."""
        return {
            name: np.asarray(draws[name] if name in draws else prior.numbers[0])
            for name, prior in self.parameters.items()
        }

    def _outcome(self, eta: Array, draws: Draws, until: float | None) -> Array:
        """Mean, median time, or probabilities of levels, at a predictor."""
        if self.formula.event:
            if until is not None:
                return np.exp(-self._cumulative(eta, np.full(len(eta), until), draws))
            low, high = np.full((2, len(eta)), math.log(self.longest))
            low, high = low - _WIDEST, high + _WIDEST
            for _ in range(_HALVINGS):
                middle = (low + high) / 2
                later = self._cumulative(eta, np.exp(middle), draws) < math.log(2)
                low, high = np.where(later, middle, low), np.where(later, high, middle)
            return np.exp(low)
        if not self.thresholds:
            values = self.values(draws)
            return self.family.inverse_link(eta) * (1 - values.get("zi", values.get("hu", 0.0)))
        below = expit(draws[THRESHOLDS] - eta[:, None])
        ends = np.zeros((len(eta), 1)), np.ones((len(eta), 1))
        return np.diff(np.concatenate([ends[0], below, ends[1]], axis=1), axis=1)

    @property
    def longest(self) -> float:
        """The longest time that the outcome's declaration allows."""
        return self.schema[self.formula.outcome].range[1]

    def _cumulative(self, eta: Array, time: Array, draws: Draws) -> Array:
        """The cumulative hazard ``(draws,)`` at a predictor until a time of each draw."""
        given: dict[str, Any] = {"eta": eta, "time": time, "longest": self.longest, **self.values(draws)}
        if STEPS in given:
            given |= {"cuts": self.formula.cuts, "hazards": np.pad(given[STEPS], [(0, 0), (1, 0)])}
        # The family's own line of models, with NumPy and SciPy in the place of JAX.
        return np.asarray(
            eval(self.family.cumulative, {"jnp": np, "jax": SimpleNamespace(scipy=scipy)}, given)
        )

    def _part(self, effect: Effect, draws: Draws, profile: Mapping[str, Any], xp: Any) -> Any:
        values = effect.of(draws).reshape(-1, *effect.shape)
        rest = values.ndim - 1 - len(effect.levels)
        # Zero in front of levels that are left out.
        pads = [(0, 0), *((int(reduced), 0) for _, reduced in effect.term.categories), *[(0, 0)] * rest]
        chosen = xp.asarray(np.pad(values, pads))
        for name, _ in effect.term.categories:
            chosen = xp.take(chosen, xp.asarray(profile[name]).astype(int), axis=1)
        for number, centre in zip(effect.numbers, effect.centres, strict=True):
            chosen = chosen * (number.value(_values(number, profile), xp) - centre)
        return chosen / effect.scale


def _values(number: Expression, profile: Mapping[str, Any]) -> dict[str, Any]:
    # The words of indicators are not fields of their own: what a profile states is known.
    return {
        word: profile[name] if word == identifier(name) else profile.get(word, 0.0)
        for word, name in number.fields.items()
    }


def design(formula: Formula, schema: Schema, family: Family, priors: Sequence[str] = ()) -> Design:
    """Scale every term by its declared range; ``priors`` are such as ``age ~ normal(0, 0.1)``.

    A prior's name is a term's, ``Intercept``, or ``b`` for all effects but those of groups, as in brms. It is
    on the user's scale, per unit of a number; that of the intercept is in the middle of all ranges.
    ``sd(1 | region) ~ halfnormal(1)`` lets the sd of a group's effects be estimated, and ``sigma ~ …`` a
    family's other parameter; ``sigma = 12`` states it.
    """
    family = EVENTS.get(family.name, family) if formula.event else family
    outcome = schema[formula.outcome]
    _check(formula, family)
    family.check(outcome)
    based = formula.intercept or bool(base_of(formula.terms))
    _, half = family.outcome_scale(outcome, based)
    stated, used = read_priors(priors), set()

    def prior(usual: Prior, *names: str) -> Prior:
        """What is stated by the first of these names that anything is stated by."""
        found = next((name for name in names if name in stated), "")
        used.add(found)
        return stated.get(found, usual)

    classes = tuple(level.label for level in outcome.all_levels[1:]) if family.kind == "levels" else ()
    effects: list[Effect] = []
    for term in formula.terms:
        unit = half / quarter_of(term)
        usual = normal(0.0, (family.sds.group if term.group else family.sds.effect) * unit)
        levels = tuple(
            tuple(level.label for level in schema[name].all_levels[int(reduced) :])
            for name, reduced in term.categories
        )
        site, basis = f"sd({term.name})", re.sub(r"(\))\[[^][]*\]", r"\1", term.name)
        spread = bool(term.group) and (site in stated or (term.own and term.name not in stated))
        if spread:
            found = prior(Prior("halfnormal", (family.sds.effect * unit,)), site)
        else:
            found = prior(usual, term.name, basis, *["b"] * (not term.group))
        check_sign(term.name, found, real=not spread)
        effects.append(Effect(term, levels, term.numbers, (), 1.0, found, classes, spread))
    effects = [scaled(effect, effects, based, half) for effect in effects]
    sites = [correlation(effect.term) for effect in effects if effect.leader]
    correlations = {site: prior(Prior("lkj", (2.0,)), site) for site in sites}
    if wrong := [site for site, found in correlations.items() if found.law != "lkj"]:
        raise DeclarationError(f"prior of {wrong[0]!r}: lkj(eta), as lkj(2).")
    intercept = None
    if formula.intercept and family.kind != "ordered":
        intercept = prior(_usual_intercept(family, outcome, _middle(formula, schema)), INTERCEPT)
        check_sign(INTERCEPT, intercept, real=True)
    parameters = {each.name: prior(each.prior(half), each.name) for each in family.parameters}
    for each in family.parameters:
        each.check(parameters[each.name])
        if formula.event and each.name == "sigma" and not parameters[each.name].is_stated:
            raise DeclarationError(
                "prior of 'sigma': of times that may be cut off it is stated, as sigma = 1.2: the earliest "
                "events, whose influence is bounded, would decide an estimate. Of family='weibull' the shape "
                "is estimated."
            )
    if unknown := stated.keys() - used - {"b"}:
        names = [effect.name for effect in effects] + [INTERCEPT] * (intercept is not None)
        groups = [effect.spread_name for effect in effects if effect.term.group]
        raise unknown_priors(unknown, [*names, "b", *parameters, *groups, *correlations])
    taken = {INTERCEPT, THRESHOLDS, formula.outcome, *parameters} & {effect.name for effect in effects}
    if taken:
        raise DeclarationError(
            f"formula {formula.text!r}: {sorted(taken)} name parameters of the model; rename these columns."
        )
    unsaid = tuple(name for name, found in parameters.items() if found.is_stated and name not in stated)
    return Design(formula, schema, family, tuple(effects), intercept, parameters, correlations, unsaid)


def _check(formula: Formula, family: Family) -> None:
    """Refuse a formula that is not for the family."""
    own = any(term.own for term in formula.terms)
    surv = "surv(time, event)"
    binomial = "family 'binomial' is for numbers of successes: y | trials(n) ~ …. Did you mean 'bernoulli'?"
    wrong = {
        binomial: family.name == "binomial" and not formula.trials,
        "trials are for family 'binomial'.": family.name != "binomial" and bool(formula.trials),
        f"{surv} is for families {', '.join(EVENTS)}; for cox with cuts, surv(time, event, cuts=[30, 90]).": (
            bool(formula.event) != bool(family.cumulative) or (family.name == "cox") != bool(formula.cuts)
        ),
        f"of weights(w), {surv}, effects of each person it has one at most.": (
            sum(map(bool, (formula.weights, formula.event, own))) > 1
        ),
        "family 'categorical': an effect of each person is for other families.": (
            family.kind == "levels" and own
        ),
        "family 'cumulative' has thresholds in place of an intercept: leave out the 0.": (
            family.kind == "ordered" and not formula.intercept
        ),
    }
    for words, holds in wrong.items():
        if holds:
            raise DeclarationError(f"formula {formula.text!r}: {words}")


def _usual_intercept(family: Family, outcome: Field, offset: float) -> Prior:
    """Of the intercept alone: what stands in the offset is no part of it."""
    if family.kind == "positive":
        low, high = (math.log(end) for end in outcome.range)
        if not family.cumulative:
            return normal((low + high) / 2 - offset, (high - low) / 2)
        # A typical time is about the longest one that is followed: of its logarithm, of that of a hazard per
        # unit of time, or until then; the sd of that logarithm is 2.
        middle = {"lognormal": high, "weibull": 0.0}.get(family.name, -high)
        return normal(middle - offset, 2.0)
    middle, half = family.outcome_scale(outcome)
    return normal(middle - offset, family.sds.intercept * half)


def _middle(formula: Formula, schema: Schema) -> float:
    """The offset where its fields are in the middle of their ranges, in the predictor's units; 0 without one.

    A year followed is 365 days: a rate per day is not centred where a rate per year is.
    """
    if formula.offset is None:
        return 0.0
    ends = {word: schema[name].range for word, name in formula.offset.fields.items()}
    return float(formula.offset.value({word: np.asarray(sum(each) / 2) for word, each in ends.items()}))
