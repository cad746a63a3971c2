"""Does the sum of the rows' own terms equal the whole model? A check for mistakes, on public rows.

Soundness does not rest on it: the potential that is sampled *is* the sum of one-row terms and the prior.
The check makes sure that this is also what the user wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DoThisInstead
from private_mcmc.model.ir.evaluate import evaluate
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.sites import ModelSites
from private_mcmc.types import Record

Data: TypeAlias = Mapping[str, np.ndarray]

COUNT = 7
# Of the rows, so many must move with the parameters: masks and weights may switch rows off.
_ACTIVE, _ATTEMPTS = 3, 12
_SCALES = (0.0, 0.3, 1.0, 3.0)
# One data set may have a symmetry that hides the order of its rows: so many others are looked at, too.
_OTHERS = 4
# With more numbers in all rows than this the whole model is not evaluated on them.
_MOST_NUMBERS = 500_000
_TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class _Programs:
    """The model on one row and on several."""

    one: Program
    many: Program
    at_n: Callable[[], Program]
    n: int

    def whole(self, key: Output, theta: np.ndarray, data: Data) -> float:
        return float(evaluate(self.many, [key], theta=theta, **data)[0].sum())

    def alone(self, key: Output, theta: np.ndarray, data: Data) -> np.ndarray:
        rows = ({name: column[i : i + 1] for name, column in data.items()} for i in range(COUNT))
        return np.asarray([evaluate(self.one, [key], theta=theta, **row)[0].sum() for row in rows])

    def differ(self, key: Output, theta: np.ndarray, data: Data, alone: np.ndarray | None = None) -> bool:
        alone = self.alone(key, theta, data) if alone is None else alone
        return _differ(self.whole(key, theta, data), alone)

    def differ_at_n(self, key: Output, theta: np.ndarray, data: Data) -> bool:
        """On the public number of rows, the same few again and again."""
        which = np.arange(self.n) % COUNT
        repeated = {name: column[which] for name, column in data.items()}
        whole = float(evaluate(self.at_n(), [key], theta=theta, **repeated)[0].sum())
        return _differ(whole, self.alone(key, theta, data)[which])


def _differ(whole: float, alone: np.ndarray) -> bool:
    summed = float(alone.sum())
    if not (np.isfinite(whole) and np.isfinite(summed)):
        # Both may overflow together (an unbounded column under exp); never one alone.
        return bool(np.isfinite(whole) != np.isfinite(summed))
    return not abs(whole - summed) <= _TOLERANCE * (1 + float(np.abs(alone).sum()))


def refuse_coupled_rows(
    one: Program, many: Program, at_n: Callable[[], Program], n: int, rows: Rows, model_sites: ModelSites
) -> None:
    """Compare, at random parameters and synthetic rows, each observed site with its rows' own terms.

    ``many`` is the program of the model on ``COUNT`` rows, ``at_n`` gives that on ``n``, which may be large:
    it is asked for once the few agree.

    Raises:
        DoThisInstead: where they differ; the message names the site and the columns that couple rows.
    """
    programs = _Programs(one, many, at_n, n)
    draws = np.random.default_rng(0).normal(size=(len(_SCALES), model_sites.dim))
    thetas = [scale * draw for scale, draw in zip(_SCALES, draws, strict=True)]
    for site in model_sites.observations:
        key, finite = Output("row", site.name), False
        moves = "theta" in one.reads([one.outputs[key]])
        for attempt in range(_ATTEMPTS):
            data = synthetic_rows(rows, COUNT, attempt)
            alone = np.stack([programs.alone(key, theta, data) for theta in thetas])
            pairs = zip(thetas, alone, strict=True)
            if any(programs.differ(key, theta, data, terms) for theta, terms in pairs):
                raise DoThisInstead(_mismatch(site.name, _coupling(programs, key, thetas, data), model_sites))
            finite |= bool(np.any(np.all(np.isfinite(alone), axis=1)))
            if not moves or np.sum(np.any(alone != alone[0], axis=0)) >= _ACTIVE:
                break
        for data in (synthetic_rows(rows, COUNT, _ATTEMPTS + k) for k in range(_OTHERS)):
            if programs.differ(key, thetas[-2], data):
                raise DoThisInstead(_mismatch(site.name, _coupling(programs, key, thetas, data), model_sites))
        few = n * sum(column[0].size for column in data.values()) <= _MOST_NUMBERS
        if few and n != COUNT and programs.differ_at_n(key, thetas[-2], data):
            raise DoThisInstead(_mismatch(site.name, [], model_sites))
        if not finite:
            raise DoThisInstead(
                f"site {site.name!r}: its log density is not finite on rows of the declared domain; declare "
                "the domains of its columns so that every row is possible under the model (an outcome that "
                "must be positive: a Box that begins above 0)."
            )


def _coupling(programs: _Programs, key: Output, thetas: list[np.ndarray], data: Data) -> list[str]:
    """Columns that couple rows even when all other columns are the same in every row."""
    coupled = []
    for column, values in data.items():
        level: Record = {name: other[:1].repeat(COUNT, 0) for name, other in data.items()}
        if any(programs.differ(key, theta, {**level, column: values}) for theta in thetas):
            coupled.append(column)
    return coupled


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
