"""Answers in the user's units, from released draws alone: all of it is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np

from private_mcmc.data import comparisons
from private_mcmc.data.design import INTERCEPT, THRESHOLDS, Design, Groups
from private_mcmc.data.effects import Array, Draws
from private_mcmc.data.figures import (
    Coefficient,
    Prediction,
    between,
    curve_plot,
    digits,
    forest_plot,
    labels,
    outcome_levels,
    units,
)
from private_mcmc.data.profiles import Margins, People, Profile, read_people, read_profile
from private_mcmc.draws import draws_tree, for_arviz
from private_mcmc.errors import DeclarationError
from private_mcmc.records import Record
from private_mcmc.report import Plot, Report, Table, number, png

if TYPE_CHECKING:
    import pandas
    import xarray

    from private_mcmc.draws import Exported


_LEFT_OUT = "not stated: the middle of the declared range, the first level, an average group"
_ASSUMED = f" (* {_LEFT_OUT})"
# Points of a curve.
_CURVE = 41


@dataclass(frozen=True, eq=False)
class Answers:
    """Released draws of a formula's model, read in the user's units.

    Attributes:
        design: the formula with its public scaling.
        draws: of the model's sites, ``(draws, …)``.
        prob: of the central intervals.
        groups: what is done with effects of groups and persons that a profile leaves out: ``average`` (zero),
            ``integrated`` (the mean over all of them, a population's) or ``new`` (a new group's own).

    Example:
        >>> from private_mcmc.data.design import design
        >>> from private_mcmc.data.families import family
        >>> from private_mcmc.data.formula import read_formula
        >>> schema = pmc.Schema.from_dict({"fields": [
        ...     {"name": "age", "type": "number", "constraints": {"minimum": "0", "maximum": "120"}},
        ...     {"name": "died", "type": "boolean"},
        ... ]})
        >>> scaled = design(read_formula("died ~ age", schema), schema, family("bernoulli"))
        >>> draws = {"Intercept": np.zeros(100), "age": np.full(100, 6.0)}
        >>> pmc.Answers(scaled, draws).coefficients["age"][0]  # per year: 120 years are 2 units
        np.float64(0.1)
    """

    design: Design
    draws: Draws
    prob: float = 0.9
    groups: Groups = "average"

    def __post_init__(self) -> None:
        if self.groups not in get_args(Groups):
            raise DeclarationError(f"groups={self.groups!r}: one of {', '.join(get_args(Groups))}.")

    @cached_property
    def coefficients(self) -> dict[str, Array]:
        """Draws in the user's units by term: ``β/s`` of the scaled model, exactly."""
        return self.design.to_user(self.draws)

    def summary(self) -> tuple[Coefficient, ...]:
        """Every coefficient with its interval, and its odds or rate ratio."""
        per = units(self.design)
        effects = {label for effect in self.design.shared for label in effect.coordinates()}
        return tuple(
            self._coefficient(label, per[label], column, label in effects)
            for label, column in self.by_name.items()
        )

    @property
    def by_name(self) -> dict[str, Array]:
        """Draws ``(draws,)`` of every coefficient, a level's as ``sex[male]``."""
        return {
            label: column
            for name, draws in self.coefficients.items()
            for label, column in zip(labels(self.design, name), draws.reshape(len(draws), -1).T, strict=True)
        }

    def table(self) -> Table:
        """The summary as a table for a report."""
        family, level = self.design.family, f"{self.prob:.0%}"
        columns = ["term", "unit", "mean", "sd", f"{level} interval"]
        if family.ratio:
            # The interval of what is read: of the ratio where there is one, which is exp of the median.
            columns[-1:] = [f"{family.ratio}{self._against} (median)", f"{level} interval"]
        rows = []
        for one in self.summary():
            cells: list[str | float | None] = [one.name, one.per, one.mean, one.sd]
            if one.ratio is not None and one.ratio_low is not None and one.ratio_high is not None:
                ratio = number(one.ratio, digits(one.ratio_low, one.ratio_high))
                cells += [ratio, between(one.ratio_low, one.ratio_high)]
            else:
                cells += [None] * bool(family.ratio) + [between(one.low, one.high)]
            rows.append(tuple(cells))
        return Table(tuple(columns), tuple(rows), title=self.design.formula.text)

    def predict(self, profile: Profile, level: str = "") -> Prediction:
        """The outcome's mean for a profile such as ``{"age": 60, "sex": "male"}``, in the file's own words.

        Numbers that are left out are in the middle of their declared range, which may be far from anybody's,
        categories at their first level, groups at an average one; ``assumed`` names them. ``level`` is the
        level of the outcome whose probability is wanted, where there are more than two; the last one if left
        out.

        Raises:
            DeclarationError: for a field that the formula does not read, or a value that is not declared.
        """
        codes, shown, assumed = read_profile(self.design, profile)
        return Prediction(shown, *self.interval(self.means(codes, level)), assumed, self._level(level))

    def predictions(self, profiles: People) -> Table:
        """Predictions as a table for a report; profiles are a list of them or a data frame."""
        profiles = read_people(profiles)
        levels = self.levels or ("",)
        made = [(level, self.predict(profile, level)) for profile in profiles for level in levels]
        names = list(dict.fromkeys(name for _, one in made for name in one.profile))
        kind = f"{self.design.mean} of {self.outcome}"
        columns = (*names, *(["level"] if self.levels else []), kind, f"{self.prob:.0%} interval")
        rows = (_row((_shown(name, one) for name in names), level, one) for level, one in made)
        title = "Predictions for stated profiles" + self.of_whom
        if any(one.assumed for _, one in made):
            title += _ASSUMED
        return Table(columns, tuple(rows), title=title)

    def marginal_effects(self, profile: Profile, level: str = "") -> tuple[Prediction, ...]:
        """How the outcome's mean moves at a profile: by a unit of each number, or to each other level.

        Of a number it is the slope there. ``Prediction.profile`` says what is moved.
        """
        return self.average_effects([profile], level=level)

    def average(self, profiles: People, weights: Sequence[float] = (), level: str = "") -> Prediction:
        """The outcome's mean over people that are stated: public or released margins, with weights.

        They are a list of profiles or a data frame (pandas, Polars, Arrow) with a row for each.
        An average over the private rows themselves would be another release, which nobody has paid for.

        Raises:
            DeclarationError: for fields or values that are not declared, or other than one weight for each.
        """
        profiles = read_people(profiles)
        stated = Margins(self.design, profiles, [1.0] * len(profiles) if len(weights) == 0 else weights)
        means = stated.average(lambda codes: self.means(codes, level))
        shown = {"people": f"{len(profiles)} profiles"}
        return Prediction(shown, *self.interval(means), stated.assumed, self._level(level))

    def average_effects(
        self, profiles: People, weights: Sequence[float] = (), level: str = ""
    ) -> tuple[Prediction, ...]:
        """Average marginal effects over people that are stated, as ``average`` has them."""
        profiles = read_people(profiles)
        stated = Margins(self.design, profiles, [1.0] * len(profiles) if len(weights) == 0 else weights)
        return tuple(
            Prediction({name: words}, *self.interval(moved), stated.assumed, self._level(level))
            for name, words, moved in stated.effects(lambda codes: self.means(codes, level))
        )

    def to_arviz(self) -> Exported:
        """The coefficients in the user's units as the installed ArviZ has draws, levels as coordinates."""
        return for_arviz(self.draws_tree(1, {}))

    def draws_tree(self, chains: int, attributes: Mapping[str, str]) -> xarray.DataTree:
        """The coefficients in the user's units, in so many chains, with levels as coordinates."""
        coords: dict[str, list[str]] = {}
        dims: dict[str, list[str]] = {}
        for effect in self.design.shared:
            names = []
            for (field, reduced), named in zip(effect.term.categories, effect.levels, strict=True):
                # Whether a dimension has the first level depends on the term.
                name = f"{field} (vs {self.design.schema[field].all_levels[0].label})" if reduced else field
                coords[name] = list(named)
                names.append(name)
            if effect.classes:
                names.append(self.design.formula.outcome)
                coords[self.design.formula.outcome] = list(effect.classes)
            dims[effect.name] = names
        for name in (INTERCEPT, THRESHOLDS):
            if name in self.coefficients and self.coefficients[name].ndim > 1:
                dims[name] = [f"{self.design.formula.outcome}{' from' * (name == THRESHOLDS)}"]
                coords[dims[name][0]] = [label.partition("[")[2][:-1] for label in labels(self.design, name)]
        draws = {n: value.reshape(chains, -1, *value.shape[1:]) for n, value in self.coefficients.items()}
        return draws_tree(draws, attributes, coords=coords, dims=dims)

    def predictions_by(
        self, people: People, by: Sequence[str] = (), weights: Sequence[float] = ()
    ) -> pandas.DataFrame:
        """Average predictions of stated people, within levels of ``by``.

        Columns: the fields of ``by``, ``contrast`` (``prediction``), ``level`` of outcomes with several,
        ``estimate``, ``conf_low``, ``conf_high``.
        """
        return _frame(comparisons.predictions(self, people, weights, by))

    def comparisons(
        self,
        variable: str,
        people: People = ({},),
        by: Sequence[str] = (),
        weights: Sequence[float] = (),
        scale: comparisons.Scale = "response",
        reference: bool = False,
    ) -> pandas.DataFrame:
        """Levels of a field, or two values of a number (``age=40,60``), compared for the same people.

        Columns: those of ``predictions_by``, with ``term`` and ``contrast`` such as ``male - female``. Pairs
        of all levels, or each against the first with ``reference``; ``scale``: ``response`` (differences of
        the outcome's mean), ``link`` or ``ratio``.
        """
        found = comparisons.comparisons(self, variable, people, weights, by, scale, reference)
        return _frame(found)

    def slopes(
        self, variable: str, people: People = ({},), by: Sequence[str] = (), weights: Sequence[float] = ()
    ) -> pandas.DataFrame:
        """Average derivatives of the mean by a number; columns as of ``comparisons``."""
        return _frame(comparisons.slopes(self, variable, people, weights, by))

    def difference(self, profile: Profile, other: Profile) -> pandas.DataFrame:
        """The mean at ``other`` less that at ``profile``; columns as of ``comparisons``."""
        return _frame(comparisons.difference(self, profile, other))

    def probability(self, statement: str) -> float:
        """That ``"age > 0"`` is true of the coefficients, in the user's units; or ``"age > bmi"``."""
        return comparisons.probability(self, statement)

    @property
    def of_whom(self) -> str:
        """What to add to a title: whom predictions are of, where each person has effects."""
        if self.groups != "average":
            return {"integrated": ", averaged over groups", "new": ", of a new group"}[self.groups]
        own = any(effect.term.own for effect in self.design.effects)
        return f", of a {self.design.schema.person} whose own effects are zero" * own

    @property
    def _against(self) -> str:
        """What to add to a ratio of an outcome with more than two levels: which it compares."""
        ordered = ", of being further up" if self.levels else ""
        return f" against {self.levels[0]}" if self.design.classes else ordered

    @property
    def fields(self) -> tuple[str, ...]:
        """What the outcome depends on, in the order of the formula."""
        return tuple(name for name in self.design.formula.fields[:-1] if name != self.design.formula.trials)

    def forest(self) -> Plot:
        """Intervals of all effects, on the scale of ratios where there is one."""
        family = self.design.family
        effects = {name for effect in self.design.shared for name in effect.coordinates()}
        shown = [one for one in self.summary() if one.name in effects]
        label = f"{family.ratio} of {self.outcome}" if family.ratio else f"difference in {self.outcome}"
        label += f"{self._against}, {self.prob:.0%} interval"
        return forest_plot(shown, self.design.formula.text, label, ratio=bool(family.ratio))

    def effect_plot(self, name: str, profile: Profile | None = None, level: str = "") -> Plot:
        """The outcome's mean along the declared range or the levels of a field, the rest at a profile.

        Of an outcome with more than two levels the probability of each, or of one ``level``.

        Raises:
            DeclarationError: for a field that the formula does not read.
        """
        stated: Profile = {} if profile is None else profile
        codes, _, _ = read_profile(self.design, stated)
        if name not in self.fields:
            raise DeclarationError(f"effect of {name!r}: the formula reads {list(self.fields)}.")
        field = self.design.schema[name]
        low, high = (0.0, len(field.all_levels) - 1.0) if field.is_category else field.range
        count = len(field.all_levels) if field.is_category else _CURVE
        points = [float(point) for point in np.linspace(low, high, count)]
        curves = {
            each: [self.interval(self.means({**codes, name: point}, each)) for point in points]
            for each in ((level,) if level else self.levels or ("",))
        }
        label = f"{self.design.mean} of {self.outcome}" + f" = {level}" * bool(level)
        words = (label, self.design.mean, f"{self.prob:.0%} interval")
        return curve_plot(field, points, curves, words, at_profile(self, stated, moved=name))

    def report(self) -> Report:
        """The summary and the forest plot."""
        forest = self.forest()
        return Report("Answers", (self.table(), *([forest] if forest.y_ticks else [])))

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def draw_forest(self, path: str | Path) -> None:
        """Write the forest plot as a PNG."""
        png(self.forest(), path)

    @property
    def levels(self) -> tuple[str, ...]:
        """Labels of an outcome with more than two levels; empty for others."""
        return outcome_levels(self.design)

    def means(self, codes: Mapping[str, float], level: str) -> Array:
        """Of the outcome, or the probability of one of its levels, for every draw."""
        means = self.design.means(self.draws, codes, self.groups)
        if not self.levels:
            if level:
                raise DeclarationError(f"level={level!r}: the outcome has no more than two levels.")
            return means
        if level and level not in self.levels:
            raise DeclarationError(f"level={level!r}: the outcome has {list(self.levels)}.")
        return np.asarray(means[:, self.levels.index(self._level(level))])

    def _level(self, level: str) -> str:
        """The level of the outcome that a mean is the probability of: the last one if none is wanted."""
        return level or (self.levels[-1] if self.levels else "")

    @property
    def outcome(self) -> str:
        """The outcome in words: its title, or the event that a probability is of."""
        outcome = self.design.schema[self.design.formula.outcome]
        if self.levels:
            return outcome.title or outcome.name
        if outcome.is_category:
            event = outcome.all_levels[-1].label
            return outcome.name if event in (outcome.name, "true") else f"{outcome.name} = {event}"
        return outcome.words

    def _coefficient(self, label: str, per: str, draws: Array, effect: bool) -> Coefficient:
        mean, low, high = self.interval(draws)
        ratios: tuple[float | None, float | None, float | None] = (None, None, None)
        if self.design.family.ratio and effect:
            ratios = tuple(float(np.exp(value)) for value in (np.median(draws), low, high))  # type: ignore[assignment]
        return Coefficient(label, per, mean, float(draws.std(ddof=1)), low, high, *ratios)

    def interval(self, draws: Array) -> tuple[float, float, float]:
        """Mean and ends of the central interval."""
        tail = (1 - self.prob) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return float(draws.mean()), float(low), float(high)


def _frame(lines: Sequence[Record]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame(list(lines))


def _shown(name: str, one: Prediction) -> str:
    return one.profile.get(name, "average") + "*" * (name in one.assumed)


def _row(cells: Iterable[str], level: str, one: Prediction) -> tuple[str | float, ...]:
    return (*cells, *([level] if level else []), one.mean, between(one.low, one.high))


def at_profile(answers: Answers, profile: Profile, moved: str = "") -> str:
    """Where the fields are, other than the one that is moved, and whom means are of."""
    _, shown, assumed = read_profile(answers.design, profile)
    there = {name: value + "*" * (name in assumed) for name, value in shown.items() if name != moved}
    said = ", ".join(f"{name} {value}" for name, value in there.items())
    stars = any(value.endswith("*") for value in there.values())
    return (f"At {said}" * bool(said) + answers.of_whom + _ASSUMED * stars).removeprefix(", ")


def _over(answers: Answers, profiles: Sequence[Profile]) -> str:
    """Whom averages are of, and which fields are not of these people."""
    assumed = Margins(answers.design, profiles, [1.0] * len(profiles)).assumed
    left_out = f" ({', '.join(assumed)} {_LEFT_OUT})" if assumed else ""
    return f"Averages over {len(profiles)} stated profiles{answers.of_whom}{left_out}"


def effects_table(answers: Answers, profiles: Sequence[Profile], weights: Sequence[float] = ()) -> Table:
    """Effects at a profile, or averages over several, as a table for a report."""
    rows = [
        _row((part for pair in one.profile.items() for part in pair), level, one)
        for level in answers.levels or ("",)
        for one in answers.average_effects(profiles, weights, level)
    ]
    title = at_profile(answers, profiles[0]) if len(profiles) == 1 else _over(answers, profiles)
    change = f"change in the {answers.design.mean} of {answers.outcome}"
    level = ["level"] if answers.levels else []
    columns = ("field", "moved", *level, change, f"{answers.prob:.0%} interval")
    return Table(columns, tuple(rows), title=title)


def average_table(answers: Answers, profiles: Sequence[Profile], weights: Sequence[float] = ()) -> Table:
    """Averages over stated people as a table for a report."""
    levels = answers.levels or ("",)
    rows = [_row((), level or answers.outcome, answers.average(profiles, weights, level)) for level in levels]
    columns = ("outcome", f"average {answers.design.mean}", f"{answers.prob:.0%} interval")
    return Table(columns, tuple(rows), title=_over(answers, profiles))
