"""Does the sum of the rows' own terms equal the whole model? A check for mistakes, on public rows.

Soundness does not rest on it: the potential that is sampled *is* the sum of one-row terms and the prior.
The check makes sure that this is also what the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DoThisInstead
from private_mcmc.model.ir.evaluate import evaluate_each
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.sites import ModelSites

Data: TypeAlias = Mapping[str, np.ndarray]

COUNT = 7
# Of the rows, so many must move with the parameters: masks and weights may switch rows off.
_ACTIVE, _ATTEMPTS = 3, 12
_SCALES = np.array([[0.0], [0.3], [1.0], [3.0]])
# One data set may have a symmetry that hides the order of its rows: so many others are looked at, too.
_OTHERS = 4
# With more numbers in all rows than this the whole model is not evaluated on them.
MOST_NUMBERS = 500_000
_TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class _Programs:
    """The model on one row and on several: ``θ`` is ``(points, p)``, data ``(points, rows, …)``."""

    one: Program
    many: Program
    at_n: Callable[[], Program]
    n: int

    def alone(self, key: Output, theta: np.ndarray, data: Data) -> np.ndarray:
        """Every row's own term, ``(points, rows)``."""
        rows = {name: column.reshape(-1, 1, *column.shape[2:]) for name, column in data.items()}
        repeated = np.repeat(theta, COUNT, axis=0)
        return _summed(self.one, key, repeated, rows).reshape(len(theta), COUNT)

    def differ(
        self, key: Output, theta: np.ndarray, data: Data, alone: np.ndarray | None = None
    ) -> np.ndarray:
        """At which points the whole differs from the sum of its rows."""
        alone = self.alone(key, theta, data) if alone is None else alone
        return _differ(_summed(self.many, key, theta, data), alone)

    def differ_at_n(self, key: Output, theta: np.ndarray, data: Data) -> bool:
        """On the public number of rows, the same few again and again, at the first point."""
        which = np.arange(self.n) % COUNT
        alone = self.alone(key, theta, data)[:1]
        repeated = {name: column[:1, which] for name, column in data.items()}
        return bool(_differ(_summed(self.at_n(), key, theta[:1], repeated), alone[:, which])[0])


def _summed(program: Program, key: Output, theta: np.ndarray, data: Data) -> np.ndarray:
    value = evaluate_each(program, [key], theta=theta, **data)[0]
    return np.asarray(value.reshape(len(theta), -1).sum(axis=1))


def _differ(whole: np.ndarray, alone: np.ndarray) -> np.ndarray:
    summed = alone.sum(axis=1)
    with np.errstate(invalid="ignore"):
        same = np.abs(whole - summed) <= _TOLERANCE * (1 + np.abs(alone).sum(axis=1))
    # Both may overflow together (an unbounded column under exp); never one alone.
    finite = np.isfinite(whole), np.isfinite(summed)
    return np.asarray(np.where(finite[0] & finite[1], ~same, finite[0] != finite[1]))


def refuse_coupled_rows(
    one: Program, many: Program, at_n: Callable[[], Program], n: int, rows: Rows, model_sites: ModelSites
) -> None:
    """Compare, at random parameters and synthetic rows, each observed site with its rows' own terms.

    ``many`` is the program of the model on ``COUNT`` rows, ``at_n`` gives that on ``n``, which may be large:
    it is asked for once the few agree.
    """
    programs = _Programs(one, many, at_n, n)
    thetas = np.random.default_rng(0).normal(size=(len(_SCALES), model_sites.dim)) * _SCALES
    others = _data_sets(rows, range(_ATTEMPTS, _ATTEMPTS + _OTHERS))
    for site in model_sites.observations:
        key, finite = Output("row", site.name), False
        moves = "theta" in one.reads([one.outputs[key]])
        for attempt in range(_ATTEMPTS):
            data = _data_sets(rows, [attempt] * len(thetas))
            alone = programs.alone(key, thetas, data)
            if np.any(programs.differ(key, thetas, data, alone)):
                raise DoThisInstead(_mismatch(site.name, _coupling(programs, key, thetas, data), model_sites))
            finite |= bool(np.any(np.all(np.isfinite(alone), axis=1)))
            if not moves or np.sum(np.any(alone != alone[0], axis=0)) >= _ACTIVE:
                break
        same = np.repeat(thetas[-2:-1], _OTHERS, axis=0)
        if np.any(programs.differ(key, same, others)):
            raise DoThisInstead(_mismatch(site.name, _coupling(programs, key, same, others), model_sites))
        few = n * sum(column[0, 0].size for column in data.values()) <= MOST_NUMBERS
        if few and n != COUNT and programs.differ_at_n(key, same, others):
            raise DoThisInstead(_mismatch(site.name, [], model_sites))
        if not finite:
            raise DoThisInstead(
                f"site {site.name!r}: its log density is not finite on rows of the declared domain; declare "
                "the domains of its columns so that every row is possible under the model (an outcome that "
                "must be positive: a Box that begins above 0; an interval: its lower end, and its width, "
                "above 0)."
            )


def _data_sets(rows: Rows, seeds: Iterable[int]) -> dict[str, np.ndarray]:
    found = [synthetic_rows(rows, COUNT, seed) for seed in seeds]
    return {name: np.stack([data[name] for data in found]) for name in found[0]}


def _coupling(programs: _Programs, key: Output, theta: np.ndarray, data: Data) -> list[str]:
    """Columns that couple rows even when all other columns are the same in every row."""
    level = {name: np.broadcast_to(column[:, :1], column.shape) for name, column in data.items()}
    return [
        column
        for column, values in data.items()
        if np.any(programs.differ(key, theta, {**level, column: values}))
    ]


def _mismatch(name: str, columns: list[str], model_sites: ModelSites) -> str:
    site = next(site for site in model_sites.observations if site.name == name)
    fixed = sorted(plate for plate, size in model_sites.plates.items() if plate in site.plates and size > 1)
    causes = [
        f"its rows are not inside a plate ({name!r} has none)" if not site.plates else "",
        f"plate {', '.join(fixed)} has a size that does not follow the number of rows" if fixed else "",
        f"the model mixes rows of column {', '.join(columns)} (centring, sorting, a lag)" if columns else "",
        "its term depends on the number of rows (pass a public n through model_args)",
    ]
    return (
        f"site {name!r}: the sum of the rows' own log densities differs from that of the whole model. "
        f"Likely: {'; '.join(cause for cause in causes if cause)}. Every row needs a term of its own: "
        "compute such columns beforehand from public facts, and put observed sites inside "
        "`numpyro.plate(…, X.shape[0])`."
    )


# In place of the ends of columns that have none.
_FAR = 10.0


def synthetic_rows(rows: Rows, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """``count ≥ 3`` rows, the same at every call: every other one has each number at an end of its interval.

    Each number is at either end in one of them.
    """
    random = np.random.default_rng(seed)
    return {name: _column(domain, count, random) for name, domain in rows.items}


def _column(domain: Domain, count: int, random: np.random.Generator) -> np.ndarray:
    low, high = (np.clip(end, -_FAR, _FAR) if np.any(np.isinf(end)) else end for end in domain.interval())
    turns = random.random((count, *domain.event_shape))
    turns[::2] = np.round(turns[::2])
    turns[2::4] = 1.0 - turns[:-2:4]
    values: np.ndarray = low + (high - low) * turns
    if np.issubdtype(domain.dtype, np.integer):
        return np.asarray(np.rint(values), domain.dtype)
    lengths = np.linalg.norm(values.reshape(count, -1), axis=1)
    largest = domain.norm_bound
    shrink = np.where(lengths > largest, largest * (1 - 1e-15) / np.maximum(lengths, 1e-300), 1.0)
    shrink = shrink.reshape((count, *(1,) * len(domain.event_shape)))
    return np.asarray(values * shrink)
