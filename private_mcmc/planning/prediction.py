"""Errors of posterior means: what a policy concludes from its releases, and what is to be expected before."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.planning.estimates import inverse_of, site_values
from private_mcmc.planning.facts import Facts
from private_mcmc.planning.stages import Array, CompletedStage, History, PathStage
from private_mcmc.records import Record
from private_mcmc.report import Table, number

RUN = "run"
_DRAWS = 400
# Of errors over predictions nine in ten (benchmarks/park.py, tables that nobody chose), by whether outcomes
# are few: before any release, of 60 runs on 30 tables and 276 on 25; and after the cheap stages, of 1,338.
GUESS = {True: (0.2, 6.0), False: (0.5, 30.0)}
KNOWN = {True: (0.4, 5.0), False: (0.3, 20.0)}
# Of a path's draws its first states are left out: so much of its time, or such a share of it if less.
_BURN_IN_TIME, _BURN_IN_SHARE = 2.0, 0.2
# More than these are no table that anybody reads.
_MOST = 100
OF_SYNTHETIC = "on synthetic people whose values fill the declared ranges"

# From draws of the sites, ``(draws, …)`` by name, to draws of what is read of them, ``(draws,)`` by name.
Named: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]


class Expected(NamedTuple):
    """Of one coefficient: how far its private mean is expected from the exact one, and its exact sd."""

    name: str
    error: float
    sd: float


class Prediction(NamedTuple):
    """Predicted root mean square error of posterior means, in posterior sds, and what it is made of.

    ``bias``: of clipping; ``monte_carlo``: of the noise that buys privacy; ``discretisation``: bound on
    the share of a posterior sd that the finite step size adds; ``low`` and ``high``: what nine in ten tables
    are between, 0 where that is not known; ``coefficients``: the same of each coefficient in its own units,
    where they can be told apart.

    Example:
        >>> from private_mcmc.planning import Prediction
        >>> Prediction(rms=0.5, bias=0.3, monte_carlo=0.4, discretisation=0.02).scaled_to(1.0).bias
        0.6
    """

    rms: float
    bias: float
    monte_carlo: float
    discretisation: float
    low: float = 0.0
    high: float = 0.0
    coefficients: tuple[Expected, ...] = ()

    def scaled_to(self, rms: float) -> Prediction:
        """Of another error of parameters, its two parts in proportion."""
        share = rms / max(math.hypot(self.bias, self.monte_carlo), 1e-300)
        bias, monte_carlo = share * self.bias, share * self.monte_carlo
        return Prediction(rms, bias, monte_carlo, self.discretisation, coefficients=self.coefficients)

    def to_record(self) -> Record:
        """Plain JSON types."""
        return self._asdict() | {"coefficients": [one._asdict() for one in self.coefficients]}

    @classmethod
    def from_record(cls, record: Record) -> Prediction:
        """The prediction that ``to_record`` tells of."""
        given = record["coefficients"]
        each = tuple(Expected(one["name"], float(one["error"]), float(one["sd"])) for one in given)
        numbers = {name: float(value) for name, value in record.items() if name != "coefficients"}
        return cls(**numbers, coefficients=each)


class Known(NamedTuple):
    """What tells the error of a run before it is bought.

    With a curvature ``H`` of which the bound leaves the share ``s`` and a mean score of covariance ``N`` the
    mode is known up to ``(sH)^{-1}N(sH)^{-1}``.

    Attributes:
        centre: about the mode, ``(p,)``.
        precision: the prior's, ``(p, p)``.
        curvatures: of rows' losses that releases allow, ``(draws, p, p)``.
        share: of the curvature that the bound on influence leaves.
        bias: error of the bound, in posterior sds.
        noise: covariance of the score's mean: of privacy's noise, and of what the clip takes, ``(p, p)``.
        discretisation: bound on the share of a posterior sd that the finite step size adds.
    """

    centre: Array
    precision: Array
    curvatures: Array
    share: float
    bias: float
    noise: Array
    discretisation: float

    def of_each(self) -> Iterator[tuple[Array, Array]]:
        """For each curvature the posterior's covariance, and that of the draws' mean around its mean."""
        information = np.linalg.inv(self.noise)
        for one in self.curvatures:
            exact = inverse_of(one + self.precision)
            told = self.share**2 * one @ information @ one
            both = inverse_of(inverse_of(told) + inverse_of(one))
            yield exact, inverse_of(self.precision + both) - exact + self.bias**2 * exact


@dataclass(frozen=True, eq=False)
class Conclusion:
    """What the releases amount to: post-processing, free.

    Attributes:
        draws: of the flat unconstrained parameter, shape ``(draws, p)``.
        prediction: the error to expect of them, from releases and public facts.
        beyond: whether persons reach further than the model says, which a likelihood of releases is made of.
        curvatures: of all rows' losses, near the last path, drawn as the noise of their release allows,
            ``(draws, p, p)``; none where no matrix was bought.
    """

    draws: Array
    prediction: Prediction
    beyond: bool = False
    curvatures: Array | None = None


def widened(run: CompletedStage, facts: Facts, rms: float) -> Array:
    """The run's states after its burn-in, ``√(1 + rms²)`` as wide around their mean.

    In whatever unit ``rms`` is: a run whose rows' losses are off by sds has parameters that are. The sds are
    those of the metric where the states' own are smaller: a path that is too short to leave its start says
    nothing of its width. Those of a flattened likelihood are made narrower as its weight says, and no draws
    are wider than the prior's are around their mean.
    """
    schedule, states = run.path.schedule, np.asarray(run.value)[burn_in(run.path) :]
    prior, centre = facts.prior, states.mean(axis=0)
    own = np.maximum(states.std(axis=0), 1e-300)
    of_metric = np.sqrt(np.diag(np.asarray(schedule.preconditioner)))
    sds = math.sqrt(schedule.temper / facts.temper) * np.maximum(own, of_metric)
    half = len(states) // 2
    moved = float(np.sqrt(np.mean(((states[half:].mean(axis=0) - states[:half].mean(axis=0)) / sds) ** 2)))
    # A path that is still on its way shows how far it may be from where it goes.
    if moved > 1:
        states, rms = states + (states[half:].mean(axis=0) - centre), math.hypot(rms, moved)
        centre = states.mean(axis=0)
    most = np.maximum(np.hypot(prior.scale, centre - prior.centre), np.minimum(own, sds))
    return np.asarray(centre + np.minimum(math.hypot(1.0, rms) * sds, most) / own * (states - centre))


def burn_in(stage: PathStage) -> int:
    """How many states of a path are left out of its draws."""
    schedule = stage.schedule
    share = min(_BURN_IN_SHARE, _BURN_IN_TIME / schedule.total_time)
    return round(share * schedule.num_steps)


def remaining(budget: float, history: History) -> float:
    """GDP that the stages so far leave of ``budget``: ``√(B² − Σm²)``, rounded down a little."""
    spent = sum((completed.stage.statement.gdp or np.inf) ** 2 for completed in history)
    return float(np.sqrt(max(budget**2 - spent, 0.0))) * (1 - 1e-9)


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
            return (self.named or elements)(site_values(self.reading, draws))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Empty where there are too many to be read."""
        if self.reading.dim > _MOST:
            return ()
        found = tuple(self.of(np.zeros((1, self.reading.dim))))
        return found if len(found) <= _MOST else ()


def elements(sites: Mapping[str, Array]) -> dict[str, Array]:
    """Of every site, as ``w[0]``."""
    found = {}
    for name, draws in sites.items():
        places = product(*map(range, draws.shape[1:]))
        for place, column in zip(places, draws.reshape(len(draws), -1).T, strict=True):
            found[f"{name}[{','.join(map(str, place))}]" if place else name] = column
    return found


def coefficient_table(prediction: Prediction, units: Mapping[str, str], of: str = OF_SYNTHETIC) -> Table:
    """What to expect of every coefficient, and ``of`` whom."""
    of_units = ["unit"] if units else []
    columns = ["coefficient", *of_units, "predicted error", "sd without privacy", "both together"]
    rows = []
    for one in prediction.coefficients:
        values = (number(value, 2) for value in (one.error, one.sd, math.hypot(one.error, one.sd)))
        rows.append((one.name, *(units.get(one.name, "") for _ in of_units), *values))
    return Table(tuple(columns), tuple(rows), title=f"Of each coefficient, {of}")


def prediction_of(read: Coefficients, known: Known, within: tuple[float, float]) -> Prediction:
    """The error of a run: root mean squares over allowed curvatures, over the geometric means of sds.

    Nine in ten tables are ``within`` these factors of it.
    """
    each = [[_sds(read, known.centre, one) for one in pair] for pair in known.of_each()]
    sds, off = np.moveaxis(np.maximum(each, 1e-300), 1, 0)
    sd = np.exp(np.mean(np.log(sds), axis=0))
    # The posterior given releases is a mixture over curvatures: flat ones count by their squares.
    error = np.sqrt(np.mean(np.square(off), axis=0)) / sd
    rms, (low, high) = math.sqrt(float(np.mean(error**2))), within
    bias = min(known.bias, rms)
    coefficients = tuple(map(Expected, read.names, (error * sd).tolist(), sd.tolist()))
    noise, step = math.sqrt(rms**2 - bias**2), known.discretisation
    return Prediction(rms, bias, noise, step, low=low * rms, high=high * rms, coefficients=coefficients)


def _sds(read: Coefficients, centre: Array, covariance: Array) -> Array:
    """Of what is read of Normal draws with a public key, ``(coefficients,)``; of ``θ`` if nothing is."""
    if not read.names:
        return np.sqrt(np.maximum(np.diag(covariance), 0.0))
    normal = np.random.default_rng(0).standard_normal((_DRAWS, len(centre)))
    normal = (normal - normal.mean(axis=0)) / normal.std(axis=0)
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    draws = centre + normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return np.stack([each.std(axis=0) for each in read.of(draws).values()])
