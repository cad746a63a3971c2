"""Predictions, comparisons and probabilities as data frames: of released draws alone, and free.

Names and definitions are those of marginaleffects (Arel-Bundock, Greifer, Heiss 2024): a prediction is the
outcome's mean, a comparison that of two predictions of the same people, one field changed; both are
averaged over stated people, and ``by`` over those of each level. Columns: the fields of ``by``, ``term``,
``contrast``, ``level`` (of outcomes with several), ``estimate``, ``conf_low`` and ``conf_high``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np

from private_mcmc.data.design import Design
from private_mcmc.data.effects import Array, Draws
from private_mcmc.data.fields import plain_number
from private_mcmc.data.profiles import People, Profile, profile_value, read_people, read_profile
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

Scale: TypeAlias = Literal["response", "link", "ratio"]
Person: TypeAlias = tuple[dict[str, float], float]


class Answers(Protocol):
    """What is asked of released draws: see ``pmc.Answers``."""

    @property
    def design(self) -> Design:
        """The formula."""

    @property
    def draws(self) -> Draws:
        """Of the model's sites."""

    @property
    def levels(self) -> tuple[str, ...]:
        """Of an outcome with several."""

    @property
    def fields(self) -> tuple[str, ...]:
        """What the outcome depends on."""

    @property
    def by_name(self) -> dict[str, Array]:
        """Draws of every coefficient."""

    def means(self, codes: Mapping[str, float], level: str) -> Array:
        """Of the outcome, for every draw."""

    def interval(self, draws: Array) -> tuple[float, float, float]:
        """Mean and ends of the central interval."""


_COMPARED = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def predictions(
    answers: Answers, people: People, weights: Sequence[float] = (), by: Sequence[str] = ()
) -> list[Record]:
    """Average predictions over people, and over those at each level of ``by``."""
    found = []
    for shown, here in _groups(answers, people, weights, by):
        for level in answers.levels or ("",):
            mean = _average(here, lambda codes, level=level: answers.means(codes, level))  # type: ignore[misc]
            found.append(_line(answers, shown, "", "prediction", level, mean))
    return found


def comparisons(
    answers: Answers,
    variable: str,
    people: People,
    weights: Sequence[float] = (),
    by: Sequence[str] = (),
    scale: Scale = "response",
    reference: bool = False,
) -> list[Record]:
    """Average differences between levels of a field, or two values of a number, ``age=40,60``.

    Of levels all pairs, or each against the first with ``reference``. ``scale``: ``response``, differences of
    means; ``link``, of predictors; ``ratio``, of average means.

    Raises:
        DeclarationError: for a field that the formula does not read, or a number without two values.
    """
    if scale not in get_args(Scale):
        raise DeclarationError(f"scale {scale!r}: one of {', '.join(get_args(Scale))}.")
    name, values = _values(answers, variable)
    pairs = [pair for pair in combinations(values, 2) if not reference or pair[0] == values[0]]
    found = []
    for shown, here in _groups(answers, people, weights, by):
        for level in ("",) if scale == "link" else answers.levels or ("",):
            means = {
                label: _average(here, _at(answers, name, value, level, scale)) for label, value in values
            }
            for (low, _), (high, _) in pairs:
                moved = means[high] / means[low] if scale == "ratio" else means[high] - means[low]
                contrast = f"{high} {'/' if scale == 'ratio' else '-'} {low}"
                found.append(_line(answers, shown, name, contrast, level, moved))
    return found


def slopes(
    answers: Answers, variable: str, people: People, weights: Sequence[float] = (), by: Sequence[str] = ()
) -> list[Record]:
    """Average derivatives of the mean by a number."""
    field = answers.design.schema[variable]
    if variable not in answers.fields or field.is_category:
        raise DeclarationError(f"slope of {variable!r}: a number that the formula reads.")
    low, high = field.range
    step = (high - low) * 1e-5
    found = []
    for shown, here in _groups(answers, people, weights, by):
        for level in answers.levels or ("",):

            def slope(codes: Mapping[str, float], level: str = level) -> Array:
                ends = [answers.means({**codes, variable: codes[variable] + d}, level) for d in (-step, step)]
                return np.asarray((ends[1] - ends[0]) / (2 * step))

            found.append(_line(answers, shown, variable, "dY/dX", level, _average(here, slope)))
    return found


def difference(answers: Answers, profile: Profile, other: Profile) -> list[Record]:
    """The mean at ``other`` less that at ``profile``."""
    codes, there = (read_profile(answers.design, one)[0] for one in (profile, other))
    words = "; ".join(", ".join(f"{k}={v}" for k, v in one.items()) for one in (other, profile))
    return [
        _line(
            answers,
            {},
            "",
            words.replace("; ", " - "),
            level,
            answers.means(there, level) - answers.means(codes, level),
        )
        for level in answers.levels or ("",)
    ]


def probability(answers: Answers, statement: str) -> float:
    """The share of draws of which ``age > 0``, ``sex[male] < -0.5`` or ``age > bmi`` is true.

    Raises:
        DeclarationError: for what is no comparison of coefficients and numbers.
    """
    found = re.fullmatch(r"\s*(.+?)\s*(<=|>=|<|>)\s*(.+?)\s*", statement)
    names = answers.by_name
    if found is None:
        raise DeclarationError(f"probability {statement!r}: a coefficient and a number, as in 'age > 0'.")
    sides = []
    for text in (found[1], found[3]):
        number = plain_number(text)
        if text not in names and np.isnan(number):
            raise DeclarationError(f"probability {statement!r}: {text!r} is none of {list(names)}.")
        sides.append(names[text] if text in names else np.asarray(number))
    return float(np.mean(_COMPARED[found[2]](*sides)))


def _values(answers: Answers, variable: str) -> tuple[str, list[tuple[str, float]]]:
    """A field and its values that are compared, each with its words."""
    name, equals, given = variable.partition("=")
    name = name.strip()
    if name not in answers.fields:
        raise DeclarationError(f"contrast {name!r}: the formula reads {list(answers.fields)}.")
    field = answers.design.schema[name]
    texts = [text.strip() for text in given.split(",")] if equals else []
    if not texts and field.is_category:
        return name, [(level.label, float(code)) for code, level in enumerate(field.all_levels)]
    if len(texts) < 2:
        raise DeclarationError(f"contrast {name!r}: two values of it, as in {name}=40,60.")
    return name, [(text, profile_value(field, text)) for text in texts]


def _at(
    answers: Answers, name: str, value: float, level: str, scale: Scale
) -> Callable[[Mapping[str, float]], Array]:
    def of(codes: Mapping[str, float]) -> Array:
        moved = {**codes, name: value}
        return (
            answers.design.predictor(answers.draws, moved) if scale == "link" else answers.means(moved, level)
        )

    return of


def _average(people: Sequence[Person], of: Callable[[Mapping[str, float]], Array]) -> Array:
    total = sum(weight for _, weight in people)
    return np.asarray(sum(weight / total * of(codes) for codes, weight in people))


def _groups(
    answers: Answers, people: People, weights: Sequence[float], by: Sequence[str]
) -> Iterator[tuple[Record, list[Person]]]:
    """People at each combination of levels of ``by``; where nobody is stated there, those who are, moved."""
    profiles = read_people(people)
    given = [1.0] * len(profiles) if len(weights) == 0 else list(weights)
    if len(given) != len(profiles) or not profiles or not min(given) > 0:
        raise DeclarationError("people: a weight above 0 for every profile, and at least one of them.")
    codes = [read_profile(answers.design, profile)[0] for profile in profiles]
    everyone = list(zip(codes, given, strict=True))
    if unknown := [name for name in by if name not in answers.fields]:
        raise DeclarationError(f"by {unknown}: the formula reads {list(answers.fields)}.")
    fields = [answers.design.schema[name] for name in by]
    if numbers := [field.name for field in fields if not field.is_category]:
        raise DeclarationError(f"by {numbers}: categories, whose levels make the groups.")
    stated = [all(name in profile for profile in profiles) for name in by]
    for cell in product(*(enumerate(field.all_levels) for field in fields)):
        places = dict(zip(by, (float(code) for code, _ in cell), strict=True))
        if all(stated) and len(profiles) > 1:
            here = [one for one in everyone if all(one[0].get(n) == v for n, v in places.items())]
        else:
            here = [({**one, **places}, weight) for one, weight in everyone]
        if here:
            yield {name: level.label for name, (_, level) in zip(by, cell, strict=True)}, here


def _line(answers: Answers, shown: Record, term: str, contrast: str, level: str, draws: Array) -> Record:
    if draws.ndim > 1:  # predictors of a categorical outcome's classes
        raise DeclarationError("scale='link': not for outcomes with a predictor for each class.")
    mean, low, high = answers.interval(draws)
    level_of = {"level": level} if level else {}
    named = {"term": term} if term else {}
    return {
        **shown,
        **named,
        "contrast": contrast,
        **level_of,
        "estimate": mean,
        "conf_low": low,
        "conf_high": high,
    }
