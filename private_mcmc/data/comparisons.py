"""Predictions, comparisons and probabilities as lines of a table: of released draws alone, and free.

Names and definitions are those of marginaleffects (Arel-Bundock, Greifer, Heiss 2024): a prediction is the
outcome's mean, a comparison that of two predictions of the same people, one field changed; both are
averaged over stated people, and ``by`` over those of each level. Columns: the fields of ``by``, ``term``,
``contrast``, ``level`` (of outcomes with several), ``estimate``, ``conf_low`` and ``conf_high``. People are
profiles in the table's own words.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import combinations, pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from private_mcmc.data.codebook import lines_of
from private_mcmc.data.design import INTERCEPT, THRESHOLDS, Design, Groups
from private_mcmc.data.effects import Array, Draws, Effect
from private_mcmc.data.families import STEPS
from private_mcmc.data.fields import Field, plain_number
from private_mcmc.data.table import encoded
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record

if TYPE_CHECKING:
    import pandas

Profile: TypeAlias = Mapping[str, str | float]
# A profile, a list of them, or whatever is a table.
People: TypeAlias = Any
Scale: TypeAlias = Literal["response", "link", "ratio"]
Codes: TypeAlias = Mapping[str, float]
Person: TypeAlias = tuple[Codes, float]
Mean: TypeAlias = Callable[[Codes, str], Array]
# Words of a line, and its draws by level of the outcome.
Cell: TypeAlias = tuple[Record, Callable[[str], Array]]

_COMPARED = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
# Of a number's range: half of what its derivative is computed over.
_STEP = 1e-5


@dataclass(frozen=True, eq=False)
class Comparisons:
    """What released draws say of the outcome's mean: see ``Answers``, which also shows it."""

    design: Design
    draws: Draws
    prob: float = 0.9
    groups: Groups = "average"
    until: float | None = None

    def __post_init__(self) -> None:
        if self.until is not None and not (self.design.formula.event and self.until > 0):
            raise DeclarationError(f"until={self.until}: a time above 0, of outcomes surv(time, event).")
        if self.groups not in get_args(Groups):
            raise DeclarationError(f"groups={self.groups!r}: one of {', '.join(get_args(Groups))}.")

    @cached_property
    def coefficients(self) -> dict[str, Array]:
        """Draws in the user's units by term: ``β/s`` of the scaled model, exactly."""
        return self.design.to_user(self.draws)

    @property
    def by_name(self) -> dict[str, Array]:
        """Draws ``(draws,)`` of every coefficient, a level's as ``sex[male]``."""
        return {
            label: column
            for name, draws in self.coefficients.items()
            for label, column in zip(labels(self.design, name), draws.reshape(len(draws), -1).T, strict=True)
        }

    @property
    def fields(self) -> tuple[str, ...]:
        """What the outcome depends on, in the order of the formula."""
        return self.design.formula.covariates

    def means(self, codes: Codes, level: str) -> Array:
        """Of the outcome, or the probability of one of its levels, for every draw."""
        means = self.design.means(self.draws, codes, self.groups, self.until)
        return np.asarray(means[:, self.design.levels.index(level)]) if level else means

    def interval(self, draws: Array) -> tuple[float, float, float]:
        """Mean and ends of the central interval."""
        tail = (1 - self.prob) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return float(draws.mean()), float(low), float(high)

    def predictions(self, people: People) -> pandas.DataFrame:
        """The outcome's mean for each stated person, such as ``{"age": 60, "sex": "male"}``.

        Numbers that a profile leaves out are in the middle of their declared range, which may be far from
        anybody's, categories at their first level, groups at an average one. Columns: the fields, ``level``
        of outcomes with several (the estimate is its probability), ``estimate``, ``conf_low``, ``conf_high``.

        Raises:
            DeclarationError: for a field that the formula does not read, or a value that is not declared.
        """
        read = [read_profile(self.design, profile) for profile in read_people(people)]
        names = list(dict.fromkeys(name for _, shown, _ in read for name in shown))
        return self.frame(
            ({name: shown.get(name, "average") for name in names}, partial(self.means, codes))
            for codes, shown, _ in read
        )

    def predictions_by(
        self, people: People, by: Sequence[str] = (), weights: Sequence[float] = ()
    ) -> pandas.DataFrame:
        """Average predictions of stated people, within levels of ``by``.

        Columns: the fields of ``by``, ``contrast`` (``prediction``), ``level`` of outcomes with several,
        ``estimate``, ``conf_low``, ``conf_high``. People are a list of profiles, a file, or a data frame.
        An average over the private rows themselves would be another release, which nobody has paid for.
        """
        return self.frame(
            ({**shown, "contrast": "prediction"}, _average(here, self.means))
            for shown, here in self.at_levels(people, by, weights)
        )

    def comparisons(
        self,
        variable: str,
        people: People = ({},),
        by: Sequence[str] = (),
        weights: Sequence[float] = (),
        scale: Scale = "response",
        reference: bool = False,
    ) -> pandas.DataFrame:
        """Levels of a field, or two values of a number (``age=40,60``), compared for the same people.

        Columns: those of ``predictions_by``, with ``term`` and ``contrast`` such as ``male - female``. Pairs
        of all levels, or each against the first with ``reference``; ``scale``: ``response`` (differences of
        the outcome's mean), ``link`` or ``ratio`` (of average means).

        Raises:
            DeclarationError: for a field that the formula does not read, or a number without two values.
        """
        if scale not in get_args(Scale):
            raise DeclarationError(f"scale {scale!r}: one of {', '.join(get_args(Scale))}.")
        if scale == "link" and self.design.classes:
            raise DeclarationError("scale='link': not for outcomes with a predictor for each class.")
        name, values = self._values(variable)
        pairs = [pair for pair in combinations(values, 2) if not reference or pair[0] == values[0]]

        def mean(codes: Codes, level: str) -> Array:
            return self.design.predictor(self.draws, codes) if scale == "link" else self.means(codes, level)

        def cells() -> Iterator[Cell]:
            for shown, here in self.at_levels(people, by, weights):
                moved = {
                    label: cache(_average([({**codes, name: value}, weight) for codes, weight in here], mean))
                    for label, value in values
                }
                for (low, _), (high, _) in pairs:
                    words = {**shown, "term": name, "contrast": f"{high} {'/' if ratio else '-'} {low}"}
                    yield words, partial(_compared, moved[low], moved[high], ratio)

        ratio = scale == "ratio"
        return self.frame(cells(), ("",) if scale == "link" else ())

    def slopes(
        self, variable: str, people: People = ({},), by: Sequence[str] = (), weights: Sequence[float] = ()
    ) -> pandas.DataFrame:
        """Average derivatives of the mean by a number; columns as of ``comparisons``."""
        if variable not in self.fields or self.design.schema[variable].is_category:
            raise DeclarationError(f"slope of {variable!r}: a number that the formula reads.")
        low, high = self.design.schema[variable].range
        step = (high - low) * _STEP

        def slope(codes: Codes, level: str) -> Array:
            ends = max(codes[variable] - step, low), min(codes[variable] + step, high)
            below, above = (self.means({**codes, variable: end}, level) for end in ends)
            return np.asarray((above - below) / (ends[1] - ends[0]))

        return self.frame(
            ({**shown, "term": variable, "contrast": "dY/dX"}, _average(here, slope))
            for shown, here in self.at_levels(people, by, weights)
        )

    def difference(self, profile: Profile, other: Profile) -> pandas.DataFrame:
        """The mean at ``other`` less that at ``profile``; columns as of ``comparisons``."""
        codes, there = (read_profile(self.design, one)[0] for one in (profile, other))
        words = " - ".join(", ".join(f"{k}={v}" for k, v in one.items()) for one in (other, profile))
        ends = partial(self.means, codes), partial(self.means, there)
        return self.frame([({"contrast": words}, partial(_compared, *ends, False))])

    def probability(self, statement: str) -> float:
        """The share of draws of which ``age > 0``, ``sex[male] < -0.5`` or ``age > bmi`` is true.

        Raises:
            DeclarationError: for what is no comparison of coefficients and numbers.
        """
        # The sign is none of a level's, as in agecl[>40].
        found = re.fullmatch(r"\s*((?:\[[^]]*]|[^<>])+?)\s*(<=|>=|<|>)\s*(.+?)\s*", statement)
        names = self.by_name
        if found is None:
            raise DeclarationError(f"probability {statement!r}: a coefficient and a number, as in 'age > 0'.")
        sides = []
        for text in (found[1], found[3]):
            number = plain_number(text)
            if text not in names and np.isnan(number):
                raise DeclarationError(f"probability {statement!r}: {text!r} is none of {list(names)}.")
            sides.append(names[text] if text in names else np.asarray(number))
        return float(np.mean(_COMPARED[found[2]](*sides)))

    def frame(self, cells: Iterable[Cell], levels: Sequence[str] = ()) -> pandas.DataFrame:
        """A line for every cell and level of the outcome."""
        import pandas

        lines = []
        for words, of in cells:
            for level in levels or self.design.levels or ("",):
                ends = zip(("estimate", "conf_low", "conf_high"), self.interval(of(level)), strict=True)
                lines.append({**words, **({"level": level} if level else {}), **dict(ends)})
        return pandas.DataFrame(lines)

    def _values(self, variable: str) -> tuple[str, list[tuple[str, float]]]:
        """A field and its values that are compared, each with its words."""
        name, equals, given = variable.partition("=")
        name = name.strip()
        if name not in self.fields:
            raise DeclarationError(f"contrast {name!r}: the formula reads {list(self.fields)}.")
        field = self.design.schema[name]
        texts = [text.strip() for text in given.split(",")] if equals else []
        if not texts and field.is_category:
            return name, [(level.label, float(code)) for code, level in enumerate(field.all_levels)]
        if len(texts) < 2:
            raise DeclarationError(f"contrast {name!r}: two values of it, as in {name}=40,60.")
        return name, [(text, _profile_value(field, text)) for text in texts]

    def at_levels(
        self, people: People, by: Sequence[str], weights: Sequence[float]
    ) -> Iterator[tuple[Record, list[Person]]]:
        """People at each combination of levels of ``by``; all of them, moved, if none is stated there."""
        profiles = read_people(people)
        given = [1.0] * len(profiles) if len(weights) == 0 else list(weights)
        if len(given) != len(profiles) or not profiles or not min(given) > 0:
            raise DeclarationError("people: a weight above 0 for every profile, and at least one of them.")
        codes = [read_profile(self.design, profile)[0] for profile in profiles]
        everyone: list[Person] = list(zip(codes, given, strict=True))
        if unknown := [name for name in by if name not in self.fields]:
            raise DeclarationError(f"by {unknown}: the formula reads {list(self.fields)}.")
        fields = [self.design.schema[name] for name in by]
        if numbers := [field.name for field in fields if not field.is_category]:
            raise DeclarationError(f"by {numbers}: categories, whose levels make the groups.")
        stated = len(profiles) > 1 and all(name in profile for profile in profiles for name in by)
        for cell in product(*(enumerate(field.all_levels) for field in fields)):
            places = dict(zip(by, (float(code) for code, _ in cell), strict=True))
            if stated:
                here = [one for one in everyone if all(one[0].get(n) == v for n, v in places.items())]
            else:
                here = [({**one, **places}, weight) for one, weight in everyone]
            if here:
                yield {name: level.label for name, (_, level) in zip(by, cell, strict=True)}, here


def _average(people: Sequence[Person], of: Mean) -> Callable[[str], Array]:
    """Of people with weights, by level of the outcome."""
    total = sum(weight for _, weight in people)
    return lambda level: np.asarray(sum(weight / total * of(codes, level) for codes, weight in people))


def _compared(low: Callable[[str], Array], high: Callable[[str], Array], ratio: bool, level: str) -> Array:
    return high(level) / low(level) if ratio else high(level) - low(level)


def read_people(people: object) -> list[Profile]:
    """Profiles from one, a list of them, a file, a data frame (pandas, Polars, Arrow), or a dict of columns.

    An empty cell is a field that is left out.
    """
    if isinstance(people, list | tuple) and all(isinstance(each, Mapping) for each in people):
        return [dict(each) for each in people]
    if isinstance(people, Mapping) and all(
        isinstance(each, str) or not np.ndim(each) for each in people.values()
    ):
        return [dict(people)]
    if isinstance(people, str | list | tuple):
        raise DeclarationError(
            "profile: a dict, as {'age': 60, 'sex': 'male'}; several are a list of them or a data frame."
        )
    return list(lines_of(people))


def read_profile(
    design: Design, profile: Mapping[str, str | float]
) -> tuple[dict[str, float], dict[str, str], tuple[str, ...]]:
    """Numbers of the row domain by field, the same in words, and the fields that were left out.

    Left out, a number is in the middle of its range and a category at its first level; a group is not there.
    """
    shown, assumed = {}, []
    read = design.formula.covariates
    if unknown := sorted(set(profile) - set(read)):
        raise DeclarationError(f"profile: {unknown} are not in the formula; it reads {list(read)}.")
    codes = {name: _profile_value(design.schema[name], str(text)) for name, text in profile.items()}
    fixed = {name for effect in design.effects if not effect.term.group for name in effect.term.fields}
    groups = {effect.term.group for effect in design.effects} - fixed
    for name in read:
        field = design.schema[name]
        if name in profile:
            shown[name] = field.shown(codes[name]) if field.is_category else str(profile[name])
            continue
        assumed.append(name)
        if name not in groups:
            codes[name] = 0.0 if field.is_category else sum(field.range) / 2
            shown[name] = field.shown(codes[name])
    return codes, shown, tuple(assumed)


def _profile_value(field: Field, text: str) -> float:
    """A value that a profile states, as a number of the row domain: a level's index, or a number."""
    if field.is_category:
        levels = field.all_levels
        # A label, which is what is shown, before a value that is spelled the same.
        names = [*(level.label for level in levels), *(level.value for level in levels)]
        if text in names:
            return float(names.index(text) % len(levels))
    else:
        fates: Record = {"missing": "refuse", "otherwise": "refuse", "outside": "refuse"}
        field = replace(field, **fates)
    columns, whole = encoded(field, [text])
    if not whole:
        allowed = f"{[level.label for level in field.all_levels]}"
        if not field.is_category:
            allowed = " to ".join(map(field.shown, field.range))
        raise DeclarationError(f"profile: {field.name!r}={text!r} is not declared; the schema has {allowed}.")
    return float(next(iter(columns.values()))[0])


WEIGHT = "weight"


def read_margins(path: Path) -> tuple[list[Profile], list[float]]:
    """Profiles and weights from a table of public margins: fields, and ``weight`` where they differ."""
    profiles = [dict(profile) for profile in read_people(path)]
    weights = [plain_number(str(profile.pop(WEIGHT, "1"))) for profile in profiles]
    if not profiles or not all(weight > 0 for weight in weights):
        raise DeclarationError(f"{path}: rows with fields of the formula, and a {WEIGHT} above 0.")
    return list(profiles), weights


def labels(design: Design, name: str) -> tuple[str, ...]:
    """Names of a term's coefficients, or of intercept, thresholds, sds and parameters of the family."""
    effect = effect_of(design, name)
    if effect is not None:
        return effect.coordinates()
    if name == THRESHOLDS:
        return tuple(f"{name}[{low}|{high}]" for low, high in pairwise(design.levels))
    if name == STEPS:
        ends = [*(f"{cut:g}" for cut in design.formula.cuts), ""]
        return tuple(f"{name}[{low} to {high}]".replace(" to ]", " on]") for low, high in pairwise(ends))
    if name == INTERCEPT and design.classes:
        return tuple(f"{name}[{label}]" for label in design.classes)
    return (name,)


def effect_of(design: Design, name: str) -> Effect | None:
    """The effect of this name, if it is one's."""
    return next((effect for effect in design.effects if effect.name == name), None)
