"""A posterior quantile, chosen privately among public candidates; and the plan of it, or of averages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.accounting import (
    AveragedValue,
    Curvature,
    Statement,
    average_sensitivity,
    noised_average,
    stepwise,
)
from private_mcmc.errors import DeclarationError, ReleaseError
from private_mcmc.model import RowModel
from private_mcmc.release.averages import ExpectationsPlan, movement, plan_averages, together
from private_mcmc.release.expectations import Expectations
from private_mcmc.release.noise import FloatArray, opendp
from private_mcmc.release.released import ReleasedExpectations, ReleasedValue
from private_mcmc.release.site_functions import (
    ROUNDING_SHARE,
    Bounds,
    Function,
    Observed,
    Sites,
    What,
    observed,
    site_function,
)
from private_mcmc.schedule import Average, Schedule
from private_mcmc.target import Target

_RESOLUTION = 2.0**40
_CONFIDENCE = 0.95


@dataclass(frozen=True, init=False)
class Quantile(Expectations):
    """The ``q``-quantile of a function of the sites under the posterior, in ``[a, b]``.

    Candidates ``c_1 < … < c_k`` are spread evenly over ``[a, b]``. The chain averages the smoothed indicators
    ``clip((c_j − f)/h + ½, 0, 1)``; the candidate whose average is nearest to ``q`` is chosen by
    permute-and-flip.

    **Guarantee**: pure ``ε``-DP. Each average moves by at most ``min(1, ℓe/h)``, with ``e`` the
    synchronous-coupling distance; the scores' sensitivity is that of one, not of all.
    **Assumptions**: as for :class:`Expectations`.
    **Cost**: ``ε``, and an error in *rank* that ``describe`` tells before the run.
    Source: Bertazzi, Johnston, Roberts, Durmus, Prop. 3.7 (coupling); McKenna, Sheldon 2020 (selection).

    Args:
        what: a site or a function with a single number.
        probability: ``q``.
        support: ``(a, b)``, public.
        epsilon: the price; ``None`` takes the target's.
        candidates: ``k``.
        width: ``h``; a sixteenth of the support by default. A wide ``h`` blurs the quantile, a narrow one
            needs more noise: take what is thought to be the posterior's sd.
        lipschitz: as for :class:`Expectations`.
        burn_in: as for :class:`Expectations`.

    Example:
        >>> median = pmc.Quantile("mean", 0.5, (-5.0, 5.0), candidates=11)
        >>> print(median.grid)
        [-5. -4. -3. -2. -1.  0.  1.  2.  3.  4.  5.]
    """

    probability: float
    support: Bounds
    candidates: int
    width: float

    def __init__(
        self,
        what: What | Mapping[str, What],
        probability: float,
        support: Bounds,
        *,
        epsilon: float | None = None,
        candidates: int = 128,
        width: float | None = None,
        lipschitz: float | None = None,
        burn_in: int | None = None,
    ) -> None:
        super().__init__(what, epsilon=epsilon, lipschitz=lipschitz, bounds=support, burn_in=burn_in)
        low, high = support
        chosen = (high - low) / 16 if width is None else width
        if len(self.items) != 1:
            raise DeclarationError("Quantile: of one site or function.")
        if not 0 < probability < 1:
            raise DeclarationError(f"probability={probability}: must lie in (0, 1).")
        if not (candidates >= 2 and chosen > 0 and math.isfinite(chosen)):
            raise DeclarationError(f"candidates={candidates}, width={chosen}: at least 2, and positive.")
        for field, value in (
            ("probability", probability),
            ("support", (float(low), float(high))),
            ("candidates", candidates),
            ("width", chosen),
        ):
            object.__setattr__(self, field, value)

    @property
    def grid(self) -> FloatArray:
        """The candidates, shape ``(k,)``."""
        return np.linspace(*self.support, self.candidates)

    def bind(self, model: RowModel) -> tuple[Function, ...]:
        """The smoothed indicators of the candidates, as one vector-valued function."""
        ((name, what),) = self.items
        grid, width = self.grid, self.width
        function = site_function(model, what)

        def indicators(sites: Sites) -> jax.Array:
            value = jnp.asarray(function(sites))
            if value.size != 1:
                raise DeclarationError(f"quantile of {name!r}: it has shape {value.shape}, not one number.")
            return jnp.clip((grid - value.reshape(())) / width + 0.5, 0.0, 1.0)

        # Of each indicator by itself: a selection never needs their joint sensitivity.
        slope = {name: constant / width for name, constant in self.lipschitz.items()}
        one = Expectations({name: indicators}, bounds=(0.0, 1.0), lipschitz=slope or None)
        return one.bind(model)


@dataclass(frozen=True, eq=False)
class QuantilePlan:
    """A quantile's selection, known before anything is spent.

    Attributes:
        observable: the smoothed indicators, in units of their sensitivity.
        quantile: the declaration.
        epsilon: the price.
        sensitivity: what one row changes of any score, in multiples of ``2^-40``.
        statement: what the release costs.
    """

    observable: Observed
    quantile: Quantile
    epsilon: float
    sensitivity: int
    statement: Statement

    @property
    def scale(self) -> float:
        """Noise scale on the scores, in multiples of ``2^-40``."""
        return 2 * self.sensitivity / self.epsilon * (1 + 2.0**-40)

    @property
    def rank_error(self) -> float:
        """Bound, with probability 0.95, on how much further from ``q`` the chosen rank is than the best."""
        return self.scale / _RESOLUTION * math.log(self.quantile.candidates / (1 - _CONFIDENCE))

    def describe(self) -> str:
        """What will be released, its expected error and its price, in a few lines."""
        (function,) = self.observable.functions
        return (
            f"{function.name}: {self.quantile.probability:g}-quantile among {self.quantile.candidates} "
            f"candidates, its rank off by at most {self.rank_error:.3g} with probability {_CONFIDENCE}\n"
            f"{self.statement}"
        )

    def release(self, averages: npt.ArrayLike, provenance: Mapping[str, str]) -> ReleasedExpectations:
        """Choose a candidate from the averages of ``observable`` (curator-side)."""
        seen = self.observable
        ranks = seen.averages(averages) * seen.units + seen.centres
        scores = [-round(abs(rank - self.quantile.probability) * _RESOLUTION) for rank in ranks.tolist()]
        dp = opendp()
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
        choose = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=self.scale)
        if not choose.map(self.sensitivity) <= self.epsilon:
            raise ReleaseError("OpenDP certifies less than the promised ε: nothing was released.")
        value = self.quantile.grid[choose(scores)]
        released = ReleasedValue(seen.functions[0].name, np.asarray(value), None, None)
        return ReleasedExpectations((released,), self.statement, dict(provenance))


def plan_quantile(
    quantile: Quantile,
    functions: tuple[Function, ...],
    schedule: Schedule,
    curvature: Curvature,
    distance: float,
    target: Target,
) -> QuantilePlan:
    """The selection when one row moves the coupled averages by ``distance``."""
    (function,) = functions
    moved = together((movement(schedule, distance, function.slopes, function.high - function.low),))
    largest = float(moved.units.max()) * (1 + ROUNDING_SHARE)
    sensitivity = math.ceil(largest * _RESOLUTION) + 2
    epsilon = target.epsilon if quantile.epsilon is None else quantile.epsilon
    selection = stepwise(
        {"selection": (epsilon, 0.0)},
        adjacency=target.adjacency,
        theorem="permute-and-flip selection (McKenna, Sheldon 2020)",
        assumptions=(
            f"one row changes each of {quantile.candidates} smoothed ranks of {function.name} by at most "
            f"{largest:.12g}",
        ),
    )
    parts = moved.slopes.tolist(), (function.high - function.low).tolist(), moved.units.tolist()
    statement = noised_average(
        selection,
        schedule,
        curvature,
        distance=distance,
        values=(AveragedValue(slope, limit, unit, 1.0) for slope, limit, unit in zip(*parts, strict=True)),
        norm="each",
        joint=largest,
        stated=() if function.assumption is None else (function.assumption,),
    )
    seen = observed(functions, moved.units, schedule)
    return QuantilePlan(seen, quantile, epsilon, sensitivity, statement)


def plan_expectations(
    expectations: Expectations, model: RowModel, schedule: Schedule, curvature: Curvature, target: Target
) -> ExpectationsPlan | QuantilePlan:
    """Sensitivities, noise, expected error and cost of ``expectations`` under ``schedule``.

    ``curvature`` holds constants proved for every data set of the domain, in the schedule's metric.
    """
    if not isinstance(schedule.release, Average):
        raise DeclarationError(f"release={schedule.release!r}: expectations need a schedule of averages.")
    if schedule.adjacency != target.adjacency:
        raise DeclarationError(f"schedule under {schedule.adjacency!r}, target under {target.adjacency!r}.")
    functions = expectations.bind(model)
    distance = average_sensitivity(schedule, curvature)
    if isinstance(expectations, Quantile):
        return plan_quantile(expectations, functions, schedule, curvature, distance, target)
    return plan_averages(expectations, functions, schedule, curvature, distance, target)
