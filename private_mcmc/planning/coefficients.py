"""What a plan is expected to err in each coefficient, in the units that its user reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model import RowModel
from private_mcmc.planning.stages import Array, Expected, Prediction
from private_mcmc.records import RUN_ONCE
from private_mcmc.report import Table, number

# From draws of the sites, ``(draws, …)`` by name, to draws of what is read of them, ``(draws,)`` by name.
Named: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
# More than these are no table that anybody reads.
_MOST = 100


class Compared(NamedTuple):
    """Of one synthetic table: each coefficient's error, and its sd without privacy."""

    off: Array
    sd: Array


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of a model by name: its sites' elements, or what ``named`` makes of them.

    Args:
        reading: the model.
        named: what users read.
    """

    reading: RowModel
    named: Named | None = None

    @cached_property
    def _sites(self) -> Callable[[jax.Array], Mapping[str, jax.Array]]:
        return jax.jit(jax.vmap(self.reading.constrain), compiler_options=RUN_ONCE)

    def of(self, draws: Array) -> Mapping[str, Array]:
        """By name, shape ``(draws,)`` each, from ``draws`` of the flat unconstrained ``θ``."""
        with jax.enable_x64(True):
            sites = self._sites(jnp.asarray(draws))
        return (self.named or elements)({name: np.asarray(value) for name, value in sites.items()})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Empty where there are too many to be read."""
        if self.reading.dim > _MOST:
            return ()
        found = tuple(self.of(np.zeros((1, self.reading.dim))))
        return found if len(found) <= _MOST else ()

    def compared(self, private: Array, exact: Array) -> Compared:
        """Draws of the same table's posteriors, ``(draws, p)`` each."""
        ours, theirs = (np.stack(list(self.of(draws).values()), axis=1) for draws in (private, exact))
        return Compared(ours.mean(axis=0) - theirs.mean(axis=0), theirs.std(axis=0))

    def expected(
        self, tables: Sequence[Compared], errors: Sequence[float], rms: float
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


def table(prediction: Prediction, units: Mapping[str, str]) -> Table:
    """What to expect of every coefficient."""
    columns = ["coefficient", "unit", "predicted error", "sd without privacy", "both together"]
    rows = []
    for one in prediction.coefficients:
        values = (number(value, 2) for value in (one.error, one.sd, math.hypot(one.error, one.sd)))
        rows.append((one.name, units.get(one.name, ""), *values))
    if not units:
        columns.remove("unit")
        rows = [(name, *values) for name, _, *values in rows]
    title = "Of each coefficient, on synthetic people whose values fill the declared ranges"
    return Table(tuple(columns), tuple(rows), title=title)
