"""Answers in the user's units, from released draws alone: all of it is free."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from private_mcmc.data.comparisons import Comparisons, People, effect_of, labels, read_people, read_profile
from private_mcmc.data.design import INTERCEPT, THRESHOLDS, Design
from private_mcmc.data.projection import nested
from private_mcmc.errors import NotYetSupported
from private_mcmc.report import Interval, Plot, Report, Rule, Table, between, digits, floats, number

if TYPE_CHECKING:
    import arviz
    import pandas
    import xarray

    Exported: TypeAlias = "xarray.DataTree | arviz.InferenceData"


_MOST_SHOWN = 40
# What becomes of numbers, categories and groups.
_LEFT_OUT = "in the middle of the declared range", "at the first level", "an average group"


@dataclass(frozen=True)
class Coefficient:
    """One coefficient in the user's units.

    Attributes:
        name, per: such as ``age`` or ``sex[male]``, and what it is the effect of.
        mean, sd: of the draws.
        low, high: ends of the central interval.
        ratio: odds or rate ratio: ``exp`` of the median, with ``exp`` of the ends; or ``None``, all three.
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


@dataclass(frozen=True, eq=False)
class Answers(Comparisons):
    """Released draws of a formula's model, read in the user's units.

    Attributes:
        design: the formula with its public scaling.
        draws: of the model's sites, ``(draws, …)``.
        prob: of the central intervals.
        groups: what is done with effects of groups and persons that a profile leaves out: ``average`` (zero),
            ``integrated`` (the mean over all of them, a population's) or ``new`` (a new group's own).
        until: of times to an event, a time: means are probabilities of no event until then, not medians.

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

    def summary(self) -> tuple[Coefficient, ...]:
        """Every coefficient with its interval, and its odds or rate ratio."""
        per, made = units(self.design), []
        effects = {label for effect in self.design.shared for label in effect.coordinates()}
        for label, draws in self.by_name.items():
            mean, low, high = self.interval(draws)
            logs = (np.median(draws), low, high) if self.design.family.ratio and label in effects else ()
            ratios: list[float | None] = [float(np.exp(value)) for value in logs] or [None] * 3
            made.append(Coefficient(label, per[label], mean, float(draws.std(ddof=1)), low, high, *ratios))
        return tuple(made)

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
                low, high = one.ratio_low, one.ratio_high
                cells += [number(one.ratio, digits(low, high)), between(low, high)]
            else:
                cells += ["(mean)"] * bool(family.ratio) + [between(one.low, one.high)]
            rows.append(tuple(cells))
        return Table(tuple(columns), tuple(rows), title=self.design.formula.text)

    def to_arviz(self) -> Exported:
        """The coefficients in the user's units as the installed ArviZ has draws."""
        return for_arviz(self.draws_tree(1, {}))

    def draws_tree(self, chains: int, attributes: Mapping[str, str]) -> xarray.DataTree:
        """The coefficients in the user's units, by the names of the summary, in so many chains."""
        draws = {name: column.reshape(chains, -1) for name, column in self.by_name.items()}
        return draws_tree(draws, attributes)

    def nested(self, people: People, weights: Sequence[float] = ()) -> pandas.DataFrame:
        """What is lost without each term: see :func:`private_mcmc.data.projection.nested`."""
        return nested(self, people, weights)

    def title(self, shown: str = "") -> str:
        """Words for the outcome's mean, its ``difference``, ``ratio`` or ``slope``, or its ``link``."""
        field = self.design.schema[self.design.formula.outcome]
        mean = f"{self.design.mean} of {self.outcome}"
        if self.until is not None:
            mean = f"probability of no event until {field.measured(self.until)}"
        words = {"": "", "response": "difference in ", "ratio": "ratio of ", "slope": "slope of "}
        if shown == "link" and self.design.family.ratio:
            return f"log {self._ratio}"
        return f"{words.get(shown, 'difference in ')}{mean}{self.of_whom}"

    def beyond(self, lines: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """What to say where times are, or in averages and contrasts may be, later than any declared one."""
        if not self.design.formula.event:
            return ()
        field, end = self.design.schema[self.design.formula.outcome], self.design.longest
        later = any("contrast" in one or one["conf_high"] > end for one in lines)
        said = f"Beyond {field.measured(end)}, the longest declared time, the model is extrapolated."
        return (said,) * (later if self.until is None else self.until > end)

    @property
    def of_whom(self) -> str:
        """What to add to a title: whom predictions are of, where each person has effects."""
        if any(effect.term.group for effect in self.design.effects) and self.groups != "average":
            return {"integrated": ", averaged over groups", "new": ", of a new group"}[self.groups]
        own = any(effect.term.own for effect in self.design.effects)
        return f", of a {self.design.schema.person} whose own effects are zero" * own

    @property
    def _against(self) -> str:
        """What to add to a ratio of an outcome with more than two levels: which it compares."""
        ordered = ", of being further up" if self.design.levels else ""
        return f" against {self.design.levels[0]}" if self.design.classes else ordered

    @property
    def _ratio(self) -> str:
        """What ratios of coefficients are of."""
        kind = self.design.family.ratio
        whose = self._in_words(self.design.formula.event) if "hazard" in kind else self.outcome
        return f"{kind} of {whose}{self._against}"

    def forest(self) -> Plot:
        """Intervals of all effects, the first on top; of ratios, where there are any, on a log scale."""
        family, effects = self.design.family, {n for one in self.design.shared for n in one.coordinates()}
        shown = [one for one in self.summary() if one.name in effects][:_MOST_SHOWN]
        heights = [float(len(shown) - index) for index in range(len(shown))]
        ends = [(one.low, one.mean, one.high) for one in shown]
        label = f"difference in {self.outcome}"
        if ratio := bool(family.ratio):
            ends = [(one.ratio_low or 0.0, one.ratio or 0.0, one.ratio_high or 0.0) for one in shown]
            label = self._ratio
        label += f", {self.prob:.0%} interval"
        # The first level that others are compared with is in the table.
        units = [", ".join(part for part in one.per.split(", ") if part[:3] != "vs ") for one in shown]
        names = [one.name + (f" ({unit})" if unit else "") for one, unit in zip(shown, units, strict=True)]
        low, middle, high = (floats(each[place] for each in ends) for place in range(3))
        return Plot(
            title=self.design.formula.text,
            x_label=label,
            y_label="",
            drawn=(Interval(floats(heights), low, middle, high), Rule("x", float(ratio))),
            description=f"{label[:1].upper()}{label[1:]}, by coefficient; the table above has the numbers.",
            x_log=ratio,
            y_ticks=tuple(zip(heights, names, strict=True)),
            y_range=(0.4, len(shown) + 0.6),
        )

    def report(self) -> Report:
        """The summary and the forest plot."""
        forest = self.forest()
        return Report("Answers", (self.table(), *([forest] if forest.y_ticks else [])))

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    @property
    def outcome(self) -> str:
        """The outcome in words: its title, or the event that a probability is of."""
        return self._in_words(self.design.formula.outcome)

    def _in_words(self, name: str) -> str:
        outcome = self.design.schema[name]
        words = outcome.title or outcome.name
        if self.design.levels:
            return words
        if outcome.is_category:
            event = outcome.all_levels[-1].label
            return words if event in (outcome.name, "true") else f"{words} = {event}"
        return outcome.words

    def whom(self, people: People, moved: Collection[str] = ()) -> str:
        """Whose means these are: where the fields are that are not ``moved``, and which nobody has stated."""
        read = [read_profile(self.design, profile) for profile in read_people(people)]
        assumed = list(dict.fromkeys(name for _, _, left in read for name in left if name not in moved))
        said = ", ".join(f"{name} {value}" for name, value in read[0][1].items() if name not in moved)
        whose = f"At {said}" * bool(said) if len(read) == 1 else f"{len(read)} profiles"
        groups = {name for codes, _, left in read for name in left if name not in codes}
        of = {
            name: _LEFT_OUT[2 if name in groups else self.design.schema[name].is_category] for name in assumed
        }
        if self.groups != "average":
            of = {name: fate for name, fate in of.items() if name not in groups}
        told = {fate: ", ".join(name for name in of if of[name] == fate) for fate in of.values()}
        left_out = "; ".join(f"{names} {fate}" for fate, names in told.items())
        left_out = f" (not stated: {left_out})" * bool(left_out)
        return f"{whose}{self.of_whom}{left_out}".removeprefix(", ").strip()


def draws_tree(
    posterior: Mapping[str, np.ndarray],
    attributes: Mapping[str, str],
    *,
    warmup: Mapping[str, np.ndarray] | None = None,
) -> xarray.DataTree:
    """Arrays ``(chains, draws, …)`` by name, warm-up in its own group; every group has the ``attributes``.

    A slash in a name, as in ``I(age / 10)``, becomes a division slash (U+2215): a tree takes no other.
    """
    from arviz_base import from_dict

    groups = {"posterior": posterior} | ({"warmup_posterior": warmup} if warmup else {})
    for group, sites in groups.items():
        groups[group] = {name.replace("/", "\u2215"): each for name, each in sites.items()}
    tree = from_dict(groups, save_warmup=True, check_conventions=False)
    for group in tree.subtree:
        group.attrs = dict(attributes)  # and no time of making: equal draws are equal files
    return tree


def for_arviz(tree: xarray.DataTree) -> Exported:
    """What the installed ArviZ expects: the tree itself from ArviZ 1 on, ``InferenceData`` below.

    Groups of rows are not there, and who asks for them, as ``loo`` and ``plot_ppc`` do, is told what is.
    """
    try:
        before = int(version("arviz").partition(".")[0]) < 1
    except PackageNotFoundError:
        before = False
    found: Any = tree
    if before:
        with warnings.catch_warnings():
            # It announces its next major version once a day, on import.
            warnings.simplefilter("ignore", FutureWarning)
            import arviz
        found = arviz.InferenceData.from_datatree(tree)
    kind: Any = type(found)
    found.__class__ = _without_rows(kind)
    return cast("Exported", found)


def _restored(kind: type, *given: Any) -> Any:
    """A copy's, or a pickle's: its class is nowhere by name."""
    own = _without_rows(kind)
    return own.__new__(own, *given)


@cache
def _without_rows(kind: Any) -> Any:
    def refused(_: Any) -> None:
        raise NotYetSupported(
            "log_likelihood, observed_data and posterior_predictive are of private rows, and are not here. "
            "Whether the model fits is private-mcmc check (pmc.check); which of two predicts better, in the "
            "place of loo and compare, private-mcmc compare (pmc.compare)."
        )

    def reduced(self: Any, protocol: Any) -> Any:
        _, (_, *rest), *more = kind.__reduce_ex__(self, protocol)
        return _restored, (kind, *rest), *more

    own: dict[str, Any] = {"__slots__": (), "__reduce_ex__": reduced}
    own |= dict.fromkeys(("log_likelihood", "observed_data", "posterior_predictive"), property(refused))
    return type(kind)(kind.__name__, (kind,), own)


def units(design: Design) -> dict[str, str]:
    """What each coefficient is per, or against."""
    names = [INTERCEPT, *(effect.name for effect in design.shared), *design.correlations]
    names += [*design.parameters, *([THRESHOLDS] if design.thresholds else [])]
    names += [effect.spread_name for effect in design.effects if effect.spread]
    return {label: unit(design, name) for name in names for label in labels(design, name)}


def unit(design: Design, name: str) -> str:
    """What the coefficients of a term are per, or against; of ``sigma`` the outcome's unit."""
    schema, effect = design.schema, effect_of(design, name)
    if name == INTERCEPT:
        return "at 0 and first levels"
    if effect is None:
        of_group = next((one for one in design.effects if one.spread_name == name), None)
        own = unit(design, of_group.name) if of_group is not None else ""
        whole = design.family.is_linear and (name == "sigma" or of_group is not None)
        return own or schema[design.formula.outcome].unit * whole
    parts = []
    for each in effect.term.numbers:
        field = schema[next(iter(each.fields.values()))]
        plain = each.text == field.name and len(effect.term.numbers) == 1
        parts.append(each.per or (field.unit or "days" * (field.type == "date")) * plain)
    for field_name, reduced in effect.term.categories:
        if reduced:
            parts.append(f"vs {schema[field_name].all_levels[0].label}")
    return ", ".join(part for part in parts if part)
