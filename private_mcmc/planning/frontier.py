"""Accuracy against ε and against n: what a plan would promise elsewhere and where that is enough; and by
coefficient, in the units that its user reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.planning.stages import Array, Expected, Prediction
from private_mcmc.records import RUN_ONCE, Record
from private_mcmc.report import Block, Line, Plot, Report, Table, at_most, floats, number
from private_mcmc.report.blocks import Cell
from private_mcmc.target import Target, check_positive

if TYPE_CHECKING:
    from rich.console import Console

Predict = Callable[[float, int], Prediction]
# In posterior sds, or of coefficients by name in their own units.
MaxError: TypeAlias = float | Mapping[str, float]

_FIRST, _FASTEST, _MARGIN, _LARGEST = 1.5, 32.0, 1.1, 2.0**14
_TRIES, _BISECTIONS = 8, 3


@dataclass(frozen=True)
class Point:
    """The error that a plan for ``epsilon`` and ``n`` predicts, in posterior sds."""

    epsilon: float
    n: int
    prediction: Prediction


@dataclass(frozen=True)
class Frontier:
    """Predicted errors over ε and over n, all from public facts."""

    points: tuple[Point, ...]

    def along(self, name: str) -> tuple[Point, ...]:
        """Points that differ in ``"epsilon"`` alone, or in ``"n"`` alone, in order."""
        other = {"epsilon": "n", "n": "epsilon"}[name]
        fixed = [getattr(point, other) for point in self.points]
        base = max(set(fixed), key=fixed.count)
        points = [point for point in self.points if getattr(point, other) == base]
        return tuple(sorted(points, key=lambda point: float(getattr(point, name))))

    def report(self) -> Report:
        """A table, and a plot where there is something to draw."""
        rows: tuple[tuple[Cell, ...], ...] = tuple(
            (number(p.epsilon), p.n, *(number(part, 2) for part in p.prediction[:3])) for p in self.points
        )
        columns = ("ε", "n", "error", "of it: bounded influence", "of it: noise")
        unit = " or ".join(sorted({point.prediction.unit for point in self.points}))
        blocks: list[Block] = [Table(columns, rows, f"Predicted error of posterior means, in {unit}")]
        for name, label in (("epsilon", "ε"), ("n", "number of rows")):
            points = self.along(name)
            if len(points) > 2:
                blocks.append(_plot(points, name, label, unit))
        return Report("What the budget buys", tuple(blocks))

    def show(self, console: Console | None = None) -> None:
        """Print the table."""
        self.report().show(console)

    def to_dict(self) -> Record:
        """Plain JSON types."""
        return {"points": [{**vars(p), "prediction": p.prediction.to_record()} for p in self.points]}


def frontier(
    predict: Predict, epsilon: float, n: int, epsilons: Sequence[float], ns: Sequence[int]
) -> Frontier:
    """Every ``epsilons`` at ``n``, every ``ns`` at ``epsilon``."""
    pairs = sorted({(float(e), n) for e in epsilons} | {(epsilon, int(k)) for k in ns})
    return Frontier(tuple(Point(e, k, predict(e, k)) for e, k in pairs))


def excess(prediction: Prediction, max_error: MaxError) -> float:
    """The predicted error over what is allowed; of several coefficients the largest such ratio."""
    if isinstance(max_error, Mapping):
        return _worst(prediction, max_error)[0]
    return prediction.rms / max_error


def _worst(prediction: Prediction, limits: Mapping[str, float]) -> tuple[float, Expected, float]:
    return max(
        (one.error / limit, one, limit)
        for one in prediction.coefficients
        for name, limit in limits.items()
        if _meant(name, [one.name])
    )


def _meant(name: str, names: Sequence[str]) -> list[str]:
    """The coefficients that a name is of: its own, or those of all levels of a term."""
    return [each for each in names if each == name or each.startswith(f"{name}[")]


def check_max_error(max_error: MaxError, names: Sequence[str]) -> None:
    """Raise ``DeclarationError`` for what is no limit, or one of a coefficient that is not there."""
    if not isinstance(max_error, Mapping):
        check_positive("max_error", max_error)
        return
    if not names:
        raise DeclarationError("max_error: this model has too many coefficients to limit single ones.")
    for name, limit in max_error.items():
        check_positive(f"max_error of {name!r}", limit)
        if not _meant(name, names):
            raise DeclarationError(f"max_error: there is no coefficient {name!r}; there are {list(names)}.")


def too_little(predict: Predict, target: Target, n: int, prediction: Prediction, max_error: MaxError) -> str:
    """A refusal's words: how many rows, or which ε, would do."""
    epsilon = target.epsilon
    more = _first(lambda factor: excess(predict(epsilon, math.ceil(n * factor)), max_error))
    weaker = _first(lambda factor: excess(predict(epsilon * factor, n), max_error))
    ways = [f"about {math.ceil(n * more):,} rows at ε = {at_most(epsilon, 6)}"] if more else []
    ways += [f"about ε = {at_most(epsilon * weaker, 2)} with these {n:,} rows"] if weaker else []
    if isinstance(max_error, Mapping):
        _, one, limit = _worst(prediction, max_error)
        what = f"the predicted error of {one.name} is {number(one.error, 2)}, above max_error={limit:g}"
    else:
        what = (
            f"the predicted error of the posterior means is {number(prediction.rms, 2)} {prediction.unit}, "
            f"above max_error={max_error:g}"
        )
    if not ways:
        return f"{what}. Neither more rows nor a larger ε was found that would do: allow a larger error."
    return f"{what}. It would take {', or '.join(ways)}."


def _first(ratio: Callable[[float], float]) -> float | None:
    """A factor above 1 at which ``ratio`` is at most 1, and not much larger than it needs to be.

    Errors fall about as one over the factor; every one of them is a whole simulation.
    """
    low, high = 1.0, _FIRST
    for _ in range(_TRIES):
        if (found := ratio(high)) <= 1:
            break
        low, high = high, high * min(max(_MARGIN * found, _FIRST), _FASTEST)
        if high > _LARGEST:
            return None
    else:
        return None
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if ratio(middle) <= 1 else (middle, high)
    return high


def _plot(points: Sequence[Point], name: str, label: str, unit: str) -> Plot:
    x = floats(getattr(point, name) for point in points)
    errors = floats(point.prediction.rms for point in points)
    return Plot(
        f"Accuracy against {label}",
        label,
        f"error in {unit}",
        (Line(x, errors, marker=True),),
        x_log=True,
        y_log=True,
        x_ticks=tuple((at, f"{at:,g}" if at < 1000 else f"{at:,.0f}") for at in x),
        y_ticks=_ticks([error for error in errors if 0 < error < math.inf]),
    )


def _ticks(values: Sequence[float]) -> tuple[tuple[float, str], ...]:
    """1, 2 and 5 times the powers of ten around ``values``, with their names."""
    if not values:
        return ()
    powers = range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)
    every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return tuple((at, f"{at:g}") for at in every if min(values) / 1.5 < at < 1.5 * max(values))


# From draws of the sites, ``(draws, …)`` by name, to draws of what is read of them, ``(draws,)`` by name.
Named: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
# More than these are no table that anybody reads.
_MOST = 100


@partial(jax.jit, static_argnums=0, compiler_options=RUN_ONCE)
def _sites(reading: RowModel, draws: jax.Array) -> dict[str, jax.Array]:
    """The model's sites at each of the draws."""
    return jax.vmap(reading.constrain)(draws)


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of a model by name: its sites' elements, or what ``named`` makes of them.

    Args:
        reading: the model.
        named: what users read.
    """

    reading: RowModel
    named: Named | None = None

    def of(self, draws: Array) -> Mapping[str, Array]:
        """By name, shape ``(draws,)`` each, from ``draws`` of the flat unconstrained ``θ``."""
        with jax.enable_x64(True):
            sites = _sites(self.reading, jnp.asarray(draws))
        return (self.named or elements)({name: np.asarray(value) for name, value in sites.items()})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Empty where there are too many to be read."""
        if self.reading.dim > _MOST:
            return ()
        found = tuple(self.of(np.zeros((1, self.reading.dim))))
        return found if len(found) <= _MOST else ()

    def compared(self, private: Array, exact: Array) -> tuple[Array, Array]:
        """Each coefficient's error and its sd without privacy, from draws of one table, ``(draws, p)``."""
        ours, theirs = (np.stack(list(self.of(draws).values()), axis=1) for draws in (private, exact))
        return ours.mean(axis=0) - theirs.mean(axis=0), theirs.std(axis=0)

    def expected(
        self, tables: Sequence[tuple[Array, Array]], errors: Sequence[float], rms: float
    ) -> tuple[Expected, ...]:
        """Of each coefficient, from tables whose overall errors were ``errors``; ``rms`` is a typical one.

        Tables differ in how much they err, coefficients in their share of it: the shares are averaged.
        """
        off, sd = (np.array(each) for each in zip(*tables, strict=True))
        with np.errstate(all="ignore"):
            shares = off / sd / np.asarray(errors)[:, None]
            usual = np.exp(np.mean(np.log(sd), axis=0))
            error = rms * np.sqrt(np.mean(shares**2, axis=0)) * usual
            columns = zip(self.names, error, usual, strict=True)
            found = tuple(Expected(name, *(float(each) for each in rest)) for name, *rest in columns)
        return found if np.isfinite([one[1:] for one in found]).all() else ()


def elements(sites: Mapping[str, Array]) -> dict[str, Array]:
    """Of every site, as ``w[0]``."""
    found = {}
    for name, draws in sites.items():
        places = product(*map(range, draws.shape[1:]))
        for place, column in zip(places, draws.reshape(len(draws), -1).T, strict=True):
            found[f"{name}[{','.join(map(str, place))}]" if place else name] = column
    return found


OF_SYNTHETIC = "on synthetic people whose values fill the declared ranges"


def table(prediction: Prediction, units: Mapping[str, str], of: str = OF_SYNTHETIC) -> Table:
    """What to expect of every coefficient, and ``of`` whom."""
    of_units = ["unit"] if units else []
    columns = ["coefficient", *of_units, "predicted error", "sd without privacy", "both together"]
    rows = []
    for one in prediction.coefficients:
        values = (number(value, 2) for value in (one.error, one.sd, math.hypot(one.error, one.sd)))
        rows.append((one.name, *(units.get(one.name, "") for _ in of_units), *values))
    return Table(tuple(columns), tuple(rows), title=f"Of each coefficient, {of}")
