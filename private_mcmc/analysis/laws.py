"""What checks test: contrasts of released counts, and the law that they have where a model is right.

The law is simulated, never asymptotic: outcomes of random draws of the study for as many people as were
counted, and the release's own noise. The largest standardised contrast is tested, so that groups and shapes
need no correction.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, ndtr, ndtri

from private_mcmc.analysis.analysis import Released, Studied, interval, synthetic_people
from private_mcmc.data.fields import identifier
from private_mcmc.records import Fields, Record
from private_mcmc.report import Block, Interval, Line, Plot, Rule, floats

Array = npt.NDArray[np.float64]

PIT_BINS, _SHAPES = 10, 3
_SIMULATED, _OUTCOMES_OF, _PEOPLE = 2000, 24, 600
# What power is told of: an interaction of half an sd of the linear predictor, a prevalence off by a fifth.
_INTERACTION, _OFF = 0.5, 0.2
EVERYONE = "everyone"


class Asked(NamedTuple):
    """A study, the fields whose levels make groups, the groups' labels, and the ends of bins."""

    study: Studied
    by: tuple[str, ...]
    groups: tuple[str, ...]
    grid: tuple[float, ...]


class Law(ABC):
    """Linear contrasts of released counts, shape ``(groups, cells)``, and their simulated law."""

    names: tuple[str, ...]
    units: str  # of the contrasts, in words

    def __init__(self, asked: Asked) -> None:
        self.asked, self.count = asked, len(asked.groups)
        self.people = synthetic_people(asked.study.schema, asked.study.fields, _PEOPLE)
        self.last = f"in {asked.groups[-1]}" if self.count > 1 else "of everyone"

    @abstractmethod
    def contrasts(self, counts: Array) -> Array:
        """``(…, groups, shapes)`` of counts ``(…, groups, cells)``."""

    @abstractmethod
    def simulated(self, sizes: Array, noise: float, times: int) -> Array:
        """Counts ``(times, groups, cells)`` where the model is right, noise included."""

    @abstractmethod
    def sizes(self, counts: Array) -> Array:
        """Of groups, or of cells of a prediction, without outcomes; not negative."""

    @abstractmethod
    def planned_sizes(self, n: int) -> Array:
        """As ``sizes``, of synthetic people."""

    @abstractmethod
    def shifts(self, n: int) -> dict[str, Array]:
        """What stated misfits add to contrasts, by their words."""

    @abstractmethod
    def figure(self, lines: Sequence[Fields], prob: float) -> Block:
        """The shape of it, drawn from the check's lines."""

    @abstractmethod
    def scores(self, counts: Array, law: Array, noise: float, prob: float) -> list[Record]:
        """Other numbers of the same counts; ``law`` has simulated ones."""

    def counts(self, found: Released) -> Array:
        """The released ones, by group."""
        return np.asarray(found.sums[0].values[0].reshape(self.count, -1))

    def statistics(self, counts: Array) -> Array:
        """Contrasts of each group, and of everyone where there are several, in a row."""
        return self._with_whole(self.contrasts(counts))

    def _with_whole(self, each: Array) -> Array:
        whole = each.sum(axis=-2, keepdims=True)
        every = np.concatenate([whole, each], axis=-2) if self.count > 1 else each
        return every.reshape(*every.shape[:-2], -1)

    def lines(self, found: Released, prob: float) -> list[Record]:
        """The test of everything, each contrast with where it lies if the model fits, and scores."""
        counts, noise = self.counts(found), found.sums[0].noise_sd
        simulated = self.simulated(self.sizes(counts), noise, _SIMULATED)
        law = self.statistics(simulated)
        middle, sd = law.mean(axis=0), law.std(axis=0)
        law, observed = law - middle, self.statistics(counts) - middle
        squares = np.square(np.concatenate([law, observed[None]]) / sd)
        largest = np.sqrt(squares.max(axis=1))

        def tested(label: str, name: str, drawn: Array, value: float, tail: float) -> Record:
            """With both tails, or of what is not negative the upper one."""
            p = (1 + (np.abs(drawn) >= abs(value)).sum()) / (1 + len(drawn))
            low, high = np.quantile(drawn, [tail, 1 - tail]) if tail else (0.0, np.quantile(drawn, prob))
            return line(label, name, "", value, float(low), float(high), float(p))

        made = [tested(EVERYONE, "all contrasts", largest[:-1], float(largest[-1]), 0.0)]
        labels = [EVERYONE, *self.asked.groups] if self.count > 1 else [EVERYONE]
        tail, size = (1 - prob) / 2, len(self.names)
        for group, label in enumerate(labels):
            own = slice(group * size, (group + 1) * size)
            for name, drawn, value in zip(self.names, law[:, own].T, observed[own], strict=True):
                made.append(tested(label, name, drawn, float(value), tail))
            together = squares[:, own].sum(axis=1)
            made.append(tested(label, "χ² of these", together[:-1], float(together[-1]), 0.0))
        return made + self.scores(counts, simulated, noise, prob)

    def power(self, n: int, noise: float) -> tuple[str, ...]:
        """How likely stated misfits are found at the level of 5 %."""
        law = self.statistics(self.simulated(self.planned_sizes(n), noise, _SIMULATED))
        middle, sd = law.mean(axis=0), law.std(axis=0)
        z = (law - middle) / sd
        limit = np.quantile(np.abs(z).max(axis=1), 0.95)
        found = []
        for words, shift in self.shifts(n).items():
            moved = self._with_whole(shift) / sd
            share = (np.abs(z + moved).max(axis=1) > limit).mean()
            found.append(f"{words} would be found with probability {share:.0%}, in groups of equal size.")
        return tuple(found)


class Calibration(Law):
    """Residuals of groups, and their slope along predictions."""

    names = ("residual", "slope")
    units = (
        "Residual: people with the outcome, less those predicted; slope: each times the sds that the "
        "predicted log odds lie above their mean."
    )

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        grid = np.asarray(asked.grid)
        self.ends, self.widths = np.stack([grid[:-1], grid[1:]], axis=1), np.diff(grid)
        law = asked.study.of_people(lambda row: asked.study.predictive.law(row).mean, self.people)
        self.p, bins = law.mean(axis=1), len(self.widths)
        self.bin = np.clip(np.searchsorted(grid, self.p, side="right") - 1, 0, bins - 1)
        inside = np.eye(bins)[self.bin]
        mass = np.maximum(inside.sum(axis=0), 1e-9)
        self.shares = inside.mean(axis=0)
        self.middle = np.where(self.shares > 0, self.p @ inside / mass, self.ends.mean(axis=1))
        # How far each draw's predictions are from their mean, of people at either end of a bin.
        right = (self.p - grid[self.bin]) / self.widths[self.bin]
        near = np.concatenate([inside * (1 - right)[:, None], inside * right[:, None]], axis=1)
        moved = near.T @ (law - self.p[:, None]) / np.maximum(near.sum(axis=0), 1e-9)[:, None]
        self.moved = moved.T.reshape(-1, 2, bins)
        z = logit(np.clip(self.middle, 1e-3, 1 - 1e-3))
        z = z - self.shares @ z
        self.z = z / math.sqrt(max(float(self.shares @ z**2), 1e-9))

    def contrasts(self, counts: Array) -> Array:
        """Residuals, and residuals times a step function of the prediction."""
        residual = self._residuals(counts.reshape(*counts.shape[:-1], -1, 2, 2))
        return np.stack([residual.sum(axis=-1), residual @ self.z], axis=-1)

    def _residuals(self, cells: Array) -> Array:
        """Of bins, of counts ``(…, bins, ends, outcomes)``."""
        pairs = cells[..., 1] * (1 - self.ends) - cells[..., 0] * self.ends
        return np.asarray(pairs.sum(axis=-1))

    def sizes(self, counts: Array) -> Array:
        """People by group, bin and end."""
        return np.asarray(np.maximum(counts.reshape(self.count, -1, 2, 2).sum(axis=3), 0.0))

    def planned_sizes(self, n: int) -> Array:
        """Of equal groups of synthetic people."""
        right = (self.middle - self.ends[:, 0]) / self.widths
        return np.tile(
            (n / self.count * self.shares)[:, None] * np.stack([1 - right, right], 1), (self.count, 1, 1)
        )

    def simulated(self, sizes: Array, noise: float, times: int) -> Array:
        """Outcomes of a random draw of the study for people of each bin's mean prediction, and noise."""
        random = np.random.default_rng(times)
        people = np.rint(sizes.sum(axis=2)).astype(int)
        right = sizes[..., 1] / np.maximum(sizes.sum(axis=2), 1e-9)
        draws = random.integers(len(self.moved), size=times)
        left_moved, right_moved = self.moved[draws].transpose(1, 0, 2)[:, :, None]
        chance = self.ends[:, 0] + right * self.widths + (1 - right) * left_moved + right * right_moved
        ones = random.binomial(np.broadcast_to(people, chance.shape), np.clip(chance, 0.0, 1.0))
        # Ends are drawn whatever the outcome is.
        split = np.broadcast_to(right, chance.shape)
        up = [random.binomial(count, split) for count in (people - ones, ones)]
        cells = np.stack([np.stack([people - ones - up[0], ones - up[1]], -1), np.stack(up, -1)], axis=-2)
        noised = cells + noise * random.normal(size=cells.shape)
        return np.asarray(noised.reshape(times, self.count, -1))

    def shifts(self, n: int) -> dict[str, Array]:
        """Contrasts that misfits move, of ``n`` people like the synthetic ones."""
        found: dict[str, Array] = {}
        each = n / self.count / len(self.p)
        middle = logit(np.clip(self.p, 1e-6, 1 - 1e-6))
        spread = (middle - middle.mean()) / max(float(middle.std()), 1e-9)

        def of(p: Array) -> Array:
            return each * np.array([(p - self.p).sum(), (self.z[self.bin] * (p - self.p)).sum()])

        if self.count > 1:
            turned = np.zeros((self.count, 2))
            for group in range(self.count):
                sign = 1.0 if group % 2 else -1.0
                turned[group] = of(expit(middle + sign * _INTERACTION * spread))
            name = " and ".join(self.asked.by)
            found[f"A missing interaction with {name} of half an sd of the predictor"] = turned
        off = np.zeros((self.count, 2))
        off[-1] = of(np.clip(self.p * (1 + _OFF), 0, 1))
        return found | {f"A prevalence off by a fifth {self.last}": off}

    def scores(self, counts: Array, law: Array, noise: float, prob: float) -> list[Record]:
        """AUC and Brier score of bins, with intervals of the noise alone, and the calibration curve."""
        z = float(ndtri(0.5 + prob / 2))
        random, spread = np.random.default_rng(_SIMULATED), noise * math.sqrt(self.count)
        whole = counts.sum(axis=0).reshape(-1, 2, 2)
        noised = whole + spread * random.normal(size=(_SIMULATED, *whole.shape))
        made = []
        for name, of in (("AUC, by bins", _auc), ("Brier score, by bins", self._brier)):
            value = of(whole)
            sd = float(np.std([of(one) for one in noised]))
            made.append(line(EVERYONE, name, "", value, *interval(value, sd, z, 0.0, 1.0), None))
        for cells, residual, (low, high) in zip(whole, self._residuals(whole), self.ends, strict=True):
            people = float(cells.sum())
            if people - z * spread * 2 <= 0:
                continue
            rate, ends = share_of(cells, spread, z)
            mean = min(max(rate - float(residual) / people, low), high)
            made.append(line(EVERYONE, "observed share", f"{mean:.4g}", rate, *ends, None))
        return made

    def _brier(self, cells: Array) -> float:
        people, ones = (np.maximum(one, 0.0) for one in (cells.sum(axis=(1, 2)), cells[..., 1].sum(axis=1)))
        mean = np.clip((cells.sum(axis=2) * self.ends).sum(axis=1) / np.maximum(people, 1.0), 0, 1)
        return float((ones * (1 - 2 * mean) + people * mean**2).sum() / max(float(people.sum()), 1.0))

    def figure(self, lines: Sequence[Fields], prob: float) -> Block:
        """Observed shares by prediction."""
        at, low, middle, high = _drawn_from(lines, "observed share")
        drawn = (
            Line((0.0, 1.0), (0.0, 1.0), "calibrated", style="dashed"),
            Line(at, middle, "observed", 1, marker=True),
            Line(at, low, f"{prob:.0%} interval", 1, "dotted"),
            Line(at, high, "", 1, "dotted"),
        )
        words = "Shares of outcomes by mean prediction, in bins; dashed: where both are equal."
        return Plot("Calibration", "predicted probability", "observed share", drawn, words)


class Uniformity(Law):
    """Neyman's smooth contrasts of PIT bins: level, spread and skewness of outcomes against predictions."""

    names = ("level", "spread", "skewness")
    units = (
        "Level, spread, skewness: sums over people of scores with sd 1, above 0 where outcomes are higher, "
        "more spread out, or longer above than below, than predicted."
    )

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        middle = (np.arange(PIT_BINS) + 0.5) / PIT_BINS * 2 - 1
        shapes = np.polynomial.legendre.legvander(middle, _SHAPES)[:, 1:]
        shapes = shapes - shapes.mean(axis=0)
        self.shapes = shapes / np.sqrt(np.square(shapes).mean(axis=0))
        predictive = asked.study.predictive

        def bins(row: Fields) -> Any:
            drawn = predictive.drawn(row, jax.random.key(row["seed"].astype(int)))
            some = {name: values[:_OUTCOMES_OF] for name, values in drawn.items()}
            # Of the same chance: what is left between draws is how their laws differ.
            pits = jax.vmap(lambda one: predictive.pit({**row, **one}, row["uniform"]))(some)
            return jnp.clip(jnp.floor(pits * PIT_BINS), 0, PIT_BINS - 1).astype(int)

        random, count = np.random.default_rng(5), _PEOPLE
        rows = {**self.people, "uniform": random.random(count), "seed": np.arange(count, dtype=float)}
        cells = asked.study.of_people(bins, rows)
        shares = np.stack([(cells == b).mean(axis=0) for b in range(PIT_BINS)], axis=1)
        self.laws = np.maximum(1 / PIT_BINS + shares - shares.mean(axis=0), 1e-6)
        self.laws = self.laws / self.laws.sum(axis=1, keepdims=True)

    def contrasts(self, counts: Array) -> Array:
        """Of counts by cell."""
        return np.asarray(counts @ self.shapes)

    def sizes(self, counts: Array) -> Array:
        """Those of groups."""
        return np.asarray(np.maximum(counts.sum(axis=1), 0.0))

    def planned_sizes(self, n: int) -> Array:
        """Of equal groups."""
        return np.full(self.count, n / self.count)

    def simulated(self, sizes: Array, noise: float, times: int) -> Array:
        """Outcomes of a random draw of the study, and noise."""
        random = np.random.default_rng(times)
        laws = self.laws[random.integers(len(self.laws), size=times)][:, None, :]
        people = np.broadcast_to(np.rint(sizes).astype(int), (times, self.count))
        counts = random.multinomial(people, np.broadcast_to(laws, (times, self.count, PIT_BINS)))
        return np.asarray(counts + noise * random.normal(size=counts.shape))

    def shifts(self, n: int) -> dict[str, Array]:
        """A fifth of an sd that one group lies higher, in units of the outcome's own spread.

        Of times to an event whoever has none by the end is cut off: the PIT is uniform above ``F(end)``.
        """
        study, ends = self.asked.study, np.linspace(0, 1, PIT_BINS + 1)[:, None]
        formula, until, followed = study.design.formula, np.ones(1), ""
        if formula.event:
            end = study.design.longest
            last = {
                identifier(formula.outcome): jnp.asarray(end),
                identifier(formula.event): jnp.asarray(0.0),
            }
            until = study.of_people(lambda row: study.predictive.pit({**row, **last}, 0.0), self.people)
            followed = f", all followed until {study.schema[formula.outcome].measured(end)},"
        below = ndtr(ndtri(np.minimum(ends, until)) - _OFF)
        above = np.clip((ends - until) / np.maximum(1 - until, 1e-12), 0, 1)
        shares = np.diff((below + (1 - below) * above).mean(axis=1))
        moved = np.zeros((self.count, _SHAPES))
        moved[-1] = n / self.count * shares @ self.shapes
        return {f"Outcomes that lie a fifth of an sd higher {self.last}{followed}": moved}

    def scores(self, counts: Array, law: Array, noise: float, prob: float) -> list[Record]:
        """The PIT histogram, and where its bins lie if the model fits."""
        whole, tail = counts.sum(axis=0), (1 - prob) / 2
        ends = np.quantile(law.sum(axis=1), [tail, 1 - tail], axis=0)
        shares = np.stack([whole, *np.maximum(ends, 0.0)], axis=1) / max(float(whole.sum()), 1.0)
        what, bins = "share of PIT bin", enumerate(shares.tolist())
        return [line(EVERYONE, what, f"{b / PIT_BINS:g}", v, low, high, None) for b, (v, low, high) in bins]

    def figure(self, lines: Sequence[Fields], prob: float) -> Block:
        """Shares of PIT bins, the first on top."""
        at, low, middle, high = _drawn_from(lines, "share of PIT bin")
        heights = floats(-left for left in at)
        names = (f"{left:g} to {left + 1 / PIT_BINS:g}" for left in at)
        ticks = tuple(zip(heights, names, strict=True))
        drawn = (Interval(heights, low, middle, high), Rule("x", 1 / PIT_BINS, ""))
        words = (
            "Dots: shares of people by where their outcome lies in its prediction. Lines: where they lie if "
            f"the model fits, with probability {prob:.0%} each."
        )
        return Plot("PIT histogram", f"share, {prob:.0%} if it fits", "PIT", drawn, words, y_ticks=ticks)


def _drawn_from(lines: Sequence[Fields], what: str) -> list[tuple[float, ...]]:
    keys = ("at", "low", "value", "high")
    return [floats(float(one[key]) for one in lines if one["what"] == what) for key in keys]


def share_of(cells: Array, noise: float, z: float) -> tuple[float, tuple[float, float]]:
    """Of people those in the second column of four cells with such noise each, and its interval."""
    people = float(cells.sum())
    share = float(cells[:, 1].sum()) / people
    noises = 2 * ((1 - share) ** 2 + share**2) * (noise / people) ** 2
    sd = math.sqrt(noises + max(share * (1 - share), 0.0) / people)
    return share, interval(share, sd, z, 0.0, 1.0)


def _auc(cells: Array) -> float:
    pairs = np.maximum(cells.sum(axis=1), 0.0)
    below = np.cumsum(pairs[:, 0]) - pairs[:, 0] / 2
    return float((pairs[:, 1] * below).sum() / max(float(pairs[:, 0].sum() * pairs[:, 1].sum()), 1.0))


def line(group: str, what: str, at: str, value: float, low: float, high: float, p: float | None) -> Record:
    """Of a check's file."""
    return {"group": group, "what": what, "at": at, "value": value, "low": low, "high": high, "p": p}
