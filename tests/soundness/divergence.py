"""The true hockey-stick divergence of two posteriors, from NumPyro's densities on a grid."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains import Ball, Box
from private_mcmc.model import RowModel
from tests.soundness.grammar import Written
from tests.soundness.oracle import draw_rows, terms

Adjacent = tuple[np.ndarray, np.ndarray]
# Points of the grid along each of one or two axes, and how far it reaches on the unconstrained space.
_AXES = {1: (4001, 1e5), 2: (161, 1e2)}
_STRETCH = {1: 18.0, 2: 8.0}
_ASCENTS = 12


@dataclass(frozen=True)
class Grid:
    """Points of the unconstrained space, dense around zero, and the log volume of their cells."""

    points: np.ndarray
    log_volume: np.ndarray
    edge: np.ndarray


def grid(dim: int) -> Grid:
    """A grid in one or two dimensions."""
    count, reach = _AXES[dim]
    places, stretch = np.linspace(-1, 1, count), _STRETCH[dim]
    axis = reach * np.sinh(stretch * places) / math.sinh(stretch)
    width = np.log(np.cosh(stretch * places))
    edge = np.abs(places) > 0.97
    points = np.stack([p.ravel() for p in np.meshgrid(*[axis] * dim, indexing="ij")], axis=-1)
    volume = sum(v.ravel() for v in np.meshgrid(*[width] * dim, indexing="ij"))
    outside = sum(e.ravel() for e in np.meshgrid(*[edge] * dim, indexing="ij")) > 0
    return Grid(points, np.asarray(volume), outside)


class Posteriors:
    """Posteriors of one model on the grid, from NumPyro's prior and the likelihood of each row alone.

    A data set is a vector of how often each of some candidate rows occurs.
    """

    def __init__(
        self, written: Written, row_model: RowModel, temper: float, rng: np.random.Generator
    ) -> None:
        self.written, self.sites, self.temper = written, row_model.sites, temper
        self.grid = grid(row_model.dim)
        self.rows = draw_rows(written.rows, 14 if row_model.dim == 1 else 8, rng)
        loss = jax.jit(jax.vmap(self.losses))
        self.log_prior = self.grid.log_volume - np.asarray(jax.jit(self.prior)(self.rows))
        self.loss = self.temper * np.asarray(loss(self.rows))

    def losses(self, row: Mapping[str, Any]) -> jax.Array:
        """Minus the log likelihood of one row alone at every point."""
        one = {name: jnp.asarray(value)[None] for name, value in row.items()}
        at = jnp.asarray(self.grid.points)
        return jax.vmap(lambda theta: terms(self.written.whole, self.sites, one, theta)[1])(at)

    def prior(self, rows: Mapping[str, Any]) -> jax.Array:
        """Minus the log prior density at every point."""
        one = {name: jnp.asarray(column)[:1] for name, column in rows.items()}
        at = jnp.asarray(self.grid.points)
        return jax.vmap(lambda theta: terms(self.written.whole, self.sites, one, theta)[0])(at)

    def masses(self, log: np.ndarray) -> np.ndarray | None:
        """Probabilities of the cells, or ``None`` where the posterior does not lie within the grid."""
        log = np.where(np.isnan(log), -np.inf, log)
        top = log.max(axis=-1, keepdims=True)
        if not np.all(np.isfinite(top)):
            return None
        mass = np.exp(log - top)
        mass /= mass.sum(axis=-1, keepdims=True)
        coarse = mass.max() > (0.05 if self.grid.points.shape[1] == 1 else 0.02)
        return None if coarse or mass[..., self.grid.edge].sum(axis=-1).max() > 1e-5 else mass


def hockey_stick(one: Any, other: Any, epsilon: float, xp: Any = np) -> Any:
    """``sup_A P(A) − e^ε Q(A)``."""
    return xp.maximum(one - math.exp(epsilon) * other, 0).sum(axis=-1)


@dataclass(frozen=True)
class Worst:
    """The largest divergence found: at which ε, of which rows, found how."""

    delta: float
    epsilon: float
    how: str


def worst(
    posteriors: Posteriors,
    adjacency: str,
    n: int,
    epsilons: Sequence[float],
    rng: np.random.Generator,
    *,
    ascend: bool,
) -> dict[float, Worst]:
    """The largest divergence over extremes and random data sets, then by gradient ascent on the rows."""
    best = {epsilon: Worst(0.0, epsilon, "nothing") for epsilon in epsilons}
    start: tuple[float, np.ndarray, int, int] | None = None
    for common_rows in _crowds(len(posteriors.loss), adjacency, n, rng):
        # A row that does not occur adds nothing, where it would be impossible as well.
        there = common_rows > 0
        base = posteriors.log_prior - common_rows[there] @ posteriors.loss[there]
        firsts = posteriors.masses(base - posteriors.loss)
        seconds = firsts if adjacency == "replace_one" else posteriors.masses(base[None])
        if firsts is None or seconds is None:
            continue
        for epsilon in epsilons:
            forth = np.stack([hockey_stick(firsts, second, epsilon) for second in seconds], axis=1)
            back = np.stack([hockey_stick(second, firsts, epsilon) for second in seconds], axis=1)
            found = np.maximum(forth, back)
            where = np.unravel_index(int(np.argmax(found)), found.shape)
            if found[where] > best[epsilon].delta:
                best[epsilon] = Worst(float(found[where]), epsilon, f"rows {where} in a crowd {common_rows}")
                if epsilon == epsilons[0]:
                    start = (float(found[where]), common_rows, int(where[0]), int(where[1]))
    if ascend and start is not None:
        for epsilon, found in _ascended(posteriors, adjacency, epsilons, start).items():
            if found > best[epsilon].delta:
                best[epsilon] = Worst(found, epsilon, "ascent")
    return best


def _crowds(count: int, adjacency: str, n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """How often each candidate occurs among the rows that both data sets share."""
    least = {"replace_one": n - 1, "add_remove": min(1, n - 1), "zero_out": 0}[adjacency]
    sizes = sorted({least, n - 1})
    if adjacency == "add_remove" and n < 2:
        return
    for size in sizes:
        for index in rng.choice(count, size=3, replace=False):
            yield size * np.eye(count)[index]
        yield rng.multinomial(size, np.full(count, 1 / count)).astype(np.float64)


def _ascended(
    posteriors: Posteriors,
    adjacency: str,
    epsilons: Sequence[float],
    start: tuple[float, np.ndarray, int, int],
) -> dict[float, float]:
    """Move the real columns of the two rows, and of a group of equal rows, up the gradient of ``δ(ε)``."""
    _, common_rows, first, second = start
    size, third = float(common_rows.sum()), int(np.argmax(common_rows))
    picked = {name: column[[first, second, third]] for name, column in posteriors.rows.items()}
    moving = {name: value for name, value in picked.items() if value.dtype.kind == "f"}
    fixed = {name: value for name, value in picked.items() if name not in moving}
    domains = posteriors.written.rows.columns
    prior, temper = jnp.asarray(posteriors.log_prior), posteriors.temper

    def deltas(free: dict[str, Any]) -> jax.Array:
        loss = temper * jax.vmap(posteriors.losses)({**fixed, **free})
        base = prior - size * loss[2]
        other = base - loss[1] if adjacency == "replace_one" else base
        pair = [jax.nn.softmax(jnp.where(jnp.isnan(log), -jnp.inf, log)) for log in (base - loss[0], other)]
        return jnp.stack(
            [
                jnp.maximum(hockey_stick(*pair, epsilon, jnp), hockey_stick(*pair[::-1], epsilon, jnp))
                for epsilon in epsilons
            ]
        )

    step_of = jax.jit(jax.value_and_grad(lambda free: (deltas(free)[0], deltas(free)), has_aux=True))
    best = dict.fromkeys(epsilons, 0.0)
    if not moving:
        return best
    for index in range(_ASCENTS):
        (_, found), slope = step_of(moving)
        best = {e: max(best[e], float(value)) for e, value in zip(epsilons, np.asarray(found), strict=True)}
        moving = {
            name: _project(domains[name], value + 0.5**index * _unit(domains[name], np.asarray(slope[name])))
            for name, value in moving.items()
        }
    return best


def _unit(domain: Ball | Box, slope: np.ndarray) -> np.ndarray:
    """The direction of the slope, as long as the domain is wide."""
    width = domain.radius if isinstance(domain, Ball) else float(np.max(np.subtract(domain.hi, domain.lo)))
    length = float(np.linalg.norm(slope))
    return np.nan_to_num(slope) * (2 * width / length if 0 < length < math.inf else 0.0)


def _project(domain: Ball | Box, values: np.ndarray) -> np.ndarray:
    if isinstance(domain, Box):
        return np.clip(values, domain.lo, domain.hi)
    length = np.linalg.norm(values, axis=-1, keepdims=True)
    return values * np.minimum(1.0, domain.radius / np.maximum(length, 1e-300))
