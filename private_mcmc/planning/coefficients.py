"""Errors of coefficients in the units that their user reads, and whether they are small enough."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.planning.conclusion import Expected, Prediction
from private_mcmc.planning.stages import Array
from private_mcmc.records import RUN_ONCE
from private_mcmc.report import Table, at_most, number
from private_mcmc.target import Target, check_positive

# In posterior sds, or of coefficients by name in their own units.
MaxError: TypeAlias = float | Mapping[str, float]

_MARGIN, _LARGEST = 1.2, 1e3


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


def too_little(target: Target, n: int, prediction: Prediction, max_error: MaxError) -> str:
    """A refusal's words: how many rows, or which ε, would do.

    The noise of a mean falls as ``1/(εn)``, and a posterior sd as ``1/√n``.
    """
    ratio = _MARGIN * excess(prediction, max_error)
    rows, epsilon = n * ratio, target.epsilon * ratio
    if isinstance(max_error, Mapping):
        _, one, limit = _worst(prediction, max_error)
        what = f"the predicted error of {one.name} is {number(one.error, 2)}, above max_error={limit:g}"
    else:
        rows *= ratio
        what = (
            f"the predicted error of the posterior means is {number(prediction.rms, 2)} {prediction.unit}, "
            f"above max_error={max_error:g}"
        )
    if not ratio <= _LARGEST:
        return f"{what}. Neither more rows nor a larger ε would do: allow a larger error."
    return (
        f"{what}. It would take about {math.ceil(rows):,} rows at ε = {at_most(target.epsilon, 6)}, or about "
        f"ε = {at_most(epsilon, 2)} with these {n:,} rows."
    )


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


def elements(sites: Mapping[str, Array]) -> dict[str, Array]:
    """Of every site, as ``w[0]``."""
    found = {}
    for name, draws in sites.items():
        places = product(*map(range, draws.shape[1:]))
        for place, column in zip(places, draws.reshape(len(draws), -1).T, strict=True):
            found[f"{name}[{','.join(map(str, place))}]" if place else name] = column
    return found


OF_SYNTHETIC = "on synthetic people whose values fill the declared ranges"


OF_A_BALL = " (of a Ball an intercept and numbers above 0; of centred ones: Ball(…, centred=True))"


def table(prediction: Prediction, units: Mapping[str, str], of: str = OF_SYNTHETIC) -> Table:
    """What to expect of every coefficient, and ``of`` whom."""
    of_units = ["unit"] if units else []
    columns = ["coefficient", *of_units, "predicted error", "sd without privacy", "both together"]
    rows = []
    for one in prediction.coefficients:
        values = (number(value, 2) for value in (one.error, one.sd, math.hypot(one.error, one.sd)))
        rows.append((one.name, *(units.get(one.name, "") for _ in of_units), *values))
    return Table(tuple(columns), tuple(rows), title=f"Of each coefficient, {of}")
