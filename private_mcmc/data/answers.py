"""Answers in the user's units, from released draws alone: all of it is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from private_mcmc.data.cells import Encoder
from private_mcmc.data.design import INTERCEPT, Array, Design, Draws, Effect
from private_mcmc.data.fields import Field, is_number, plain_number
from private_mcmc.errors import DeclarationError
from private_mcmc.report import Interval, Plot, Rule, Table, floats, number, png

if TYPE_CHECKING:
    import arviz

_MOST_SHOWN = 40


@dataclass(frozen=True)
class Coefficient:
    """One coefficient in the user's units.

    Attributes:
        name: such as ``age`` or ``sex[male]``.
        per: what it is the effect of.
        mean: of the draws.
        sd: of the draws.
        low: lower end of the central interval.
        high: its upper end.
        ratio: odds or rate ratio: ``exp`` of the median, or ``None``.
        ratio_low: ``exp(low)``.
        ratio_high: ``exp(high)``.
    """

    name: str
    per: str
    mean: float
    sd: float
    low: float
    high: float
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


@dataclass(frozen=True)
class Prediction:
    """The outcome's mean for one stated profile, with a central interval of the draws."""

    profile: Mapping[str, str]
    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Answers:
    """Released draws of a formula's model, read in the user's units.

    Attributes:
        design: the formula with its public scaling.
        draws: of the model's sites, ``(draws, …)``.
        prob: of the central intervals.

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

    @cached_property
    def coefficients(self) -> dict[str, Array]:
        """Draws in the user's units by term: ``β/s`` of the scaled model, exactly."""
        return self.design.to_user(self.draws)

    def summary(self) -> tuple[Coefficient, ...]:
        """Every coefficient with its interval, and its odds or rate ratio."""
        found = []
        effects = {effect.name: effect for effect in self.design.effects}
        for name, draws in self.coefficients.items():
            effect = effects.get(name)
            labels = (name,) if effect is None else effect.coordinates()
            flat = draws.reshape(len(draws), -1)
            for label, column in zip(labels, flat.T, strict=True):
                found.append(self._coefficient(label, self._per(name, effect), column, effect is not None))
        return tuple(found)

    def table(self) -> Table:
        """The summary as a table for a report."""
        family, level = self.design.family, f"{self.prob:.0%}"
        columns = ["term", "unit", "estimate", "sd", f"{level} interval"]
        columns += [family.ratio, f"its {level} interval"] if family.ratio else []
        rows = []
        for one in self.summary():
            cells: list[str | float | None] = [
                one.name,
                one.per,
                one.mean,
                one.sd,
                _between(one.low, one.high),
            ]
            if family.ratio and one.ratio is None:
                cells += [None, None]
            elif family.ratio:
                cells += [one.ratio, _between(one.ratio_low or 0.0, one.ratio_high or 0.0)]
            rows.append(tuple(cells))
        return Table(tuple(columns), tuple(rows), title=self.design.formula.text)

    def predict(self, profile: Mapping[str, str | float]) -> Prediction:
        """The outcome's mean for a profile such as ``{"age": 60, "sex": "male"}``, in the file's own words.

        Numbers that are left out are in the middle of their range, categories at their first level, groups
        at an average one.

        Raises:
            DeclarationError: for a field that the formula does not read, or a value that is not declared.
        """
        codes, shown = {}, {}
        read = [name for name in self.design.formula.fields if name != self.design.formula.outcome]
        if unknown := sorted(set(profile) - set(read)):
            raise DeclarationError(f"profile: {unknown} are not in the formula; it reads {read}.")
        groups = {effect.term.group for effect in self.design.effects}
        for name in read:
            field = self.design.schema[name]
            if name in profile:
                codes[name] = profile_value(field, str(profile[name]))
                shown[name] = str(profile[name])
            elif name not in groups:
                codes[name] = 0.0 if field.is_category else sum(field.range) / 2
                shown[name] = field.all_levels[0].label if field.is_category else f"{codes[name]:g}"
        means = self.design.family.inverse_link(self.design.predictor(self.draws, codes))
        low, high = self._ends(means)
        return Prediction(shown, float(means.mean()), low, high)

    def predictions(self, profiles: Sequence[Mapping[str, str | float]]) -> Table:
        """Predictions as a table for a report."""
        made = [self.predict(profile) for profile in profiles]
        names = list(dict.fromkeys(name for one in made for name in one.profile))
        kind = f"{self.design.family.mean} of {self.design.formula.outcome}"
        columns = (*names, kind, f"{self.prob:.0%} interval")
        rows: tuple[tuple[str | float, ...], ...] = tuple(
            (*(one.profile.get(name, "average") for name in names), one.mean, _between(one.low, one.high))
            for one in made
        )
        return Table(columns, rows, title="Predictions for stated profiles")

    def to_arviz(self) -> arviz.InferenceData:
        """The coefficients in the user's units as an ArviZ object, with levels as coordinates."""
        import warnings

        with warnings.catch_warnings():
            # ArviZ announces its next major version once a day, on import.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz

        coords: dict[str, list[str]] = {}
        dims: dict[str, list[str]] = {}
        for effect in self.design.effects:
            names = []
            for (field, reduced), labels in zip(effect.term.categories, effect.levels, strict=True):
                # Whether a dimension has the first level depends on the term.
                name = f"{field} (vs {self.design.schema[field].all_levels[0].label})" if reduced else field
                coords[name] = list(labels)
                names.append(name)
            dims[effect.name] = names
        draws = {name: value[None] for name, value in self.coefficients.items()}
        return arviz.from_dict(posterior=draws, coords=coords, dims=dims)

    def forest(self) -> Plot:
        """Intervals of all effects, on the scale of ratios where there is one."""
        family = self.design.family
        shown = [one for one in self.summary() if one.name != INTERCEPT][:_MOST_SHOWN]
        ratio = bool(family.ratio)
        heights = [float(len(shown) - index) for index in range(len(shown))]
        low = [one.ratio_low or 0.0 if ratio else one.low for one in shown]
        high = [one.ratio_high or 0.0 if ratio else one.high for one in shown]
        middle = [one.ratio or 0.0 if ratio else one.mean for one in shown]
        label = f"{family.ratio} of {self._outcome}" if ratio else f"difference in {self._outcome}"
        return Plot(
            title=self.design.formula.text,
            x_label=f"{label}, {self.prob:.0%} interval",
            y_label="",
            drawn=(
                Interval(floats(heights), floats(low), floats(middle), floats(high)),
                Rule("x", 1.0 if ratio else 0.0),
            ),
            description=f"{label}: an interval for each of {', '.join(one.name for one in shown)}.",
            x_log=ratio,
            y_ticks=tuple((height, _tick(one)) for height, one in zip(heights, shown, strict=True)),
            y_range=(0.4, len(shown) + 0.6),
        )

    def draw_forest(self, path: str | Path) -> None:
        """Write the forest plot as a PNG."""
        png(self.forest(), path)

    @property
    def _outcome(self) -> str:
        outcome = self.design.schema[self.design.formula.outcome]
        if outcome.is_category:
            return f"{outcome.name} = {outcome.all_levels[-1].label}"
        return outcome.words

    def _coefficient(self, label: str, per: str, draws: Array, effect: bool) -> Coefficient:
        low, high = self._ends(draws)
        ratios: tuple[float | None, float | None, float | None] = (None, None, None)
        if self.design.family.ratio and effect:
            ratios = tuple(float(np.exp(value)) for value in (np.median(draws), low, high))  # type: ignore[assignment]
        return Coefficient(label, per, float(draws.mean()), float(draws.std(ddof=1)), low, high, *ratios)

    def _ends(self, draws: Array) -> tuple[float, float]:
        tail = (1 - self.prob) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        return float(low), float(high)

    def _per(self, name: str, effect: Effect | None) -> str:
        schema = self.design.schema
        if effect is None:
            return "at 0 and first levels"
        number = effect.term.number
        parts = []
        if number is not None:
            fields = list(number.fields.values())
            field = schema[fields[0]]
            plain = len(fields) == 1 and number.text == field.name
            parts.append(field.unit if plain else "")
        for field_name, reduced in effect.term.categories:
            if reduced:
                parts.append(f"vs {schema[field_name].all_levels[0].label}")
        return ", ".join(part for part in parts if part)


def _between(low: float, high: float) -> str:
    return f"{number(low)} to {number(high)}"


def _tick(one: Coefficient) -> str:
    return f"{one.name} ({one.per})" if one.per else one.name


def profile_value(field: Field, text: str) -> float:
    """A value that a profile states, as a number of the row domain: a level's index, or a number.

    Raises:
        DeclarationError: for one that is not declared; nothing is moved into a range here.
    """
    if field.is_category:
        by_label = {level.label: level.value for level in field.levels}
        text = by_label.get(text, text)
    columns, whole = Encoder(field).columns([text])
    value = float(next(iter(columns.values()))[0])
    outside = not field.is_category and is_number(text) and plain_number(text) != value
    if not whole or not np.isfinite(value) or outside:
        allowed = f"{[level.value for level in field.levels]}" if field.is_category else f"{field.range}"
        raise DeclarationError(f"profile: {field.name!r}={text!r} is not declared; the schema has {allowed}.")
    return value
