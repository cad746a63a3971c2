"""Rows of affine predictors, ``η = A(row)·θ + o(row)``: affine, and of the table, by construction.

Whoever made the functions of a row that are put together here, the loss reads ``θ`` through ``A(row)·θ``
alone; outcomes and parameters are held within the ends of which a line's constants are; and kernels hold
designs at the radius. So hidden states cost what is said, whatever a model was read as.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.errors import DeclarationError
from private_mcmc.potential.families import UNKNOWN, Interval, LikelihoodFamily, Line, in_table, together
from private_mcmc.potential.rowwise import rowwise
from private_mcmc.records import Fields

Row: TypeAlias = Fields
OUTCOME, WEIGHT, MULTIPLIER = "outcome", "weight", "multiplier"


@dataclass(frozen=True, eq=False)
class Term:
    """An observed site: a line of the table, with functions of a row for all that is no predictor.

    Attributes:
        line: of the table.
        shape: of the predictor; ``joint`` families have one over its last axis.
        observed: shape of outcome and distribution together.
        read: ``row ↦`` outcome, parameters that the line needs, multiplier of its link, and weight, by name.
        ends: within which each of them is held.
        falling: the link is of ``−η``.
    """

    line: Line
    shape: tuple[int, ...]
    observed: tuple[int, ...]
    read: Callable[[Row], Mapping[str, jax.Array]]
    ends: Mapping[str, Interval]
    falling: bool = False

    def loss(self, eta: jax.Array, row: Row) -> jax.Array:
        """Minus the log density, or a multiple of it, a scalar; of the predictor's elements in order."""
        values = self.read(row)
        given = {name: ends.hold(jnp.asarray(values[name], float)) for name, ends in self.ends.items()}
        shape, eta = self.observed, eta.reshape(self.shape)
        if math.prod(shape) == 1 and all(one.size == 1 for one in (eta, *given.values())):
            # A single observation is a scalar: axes of length one slow a chain's step down.
            shape, eta, given = (), jnp.squeeze(eta), {name: jnp.squeeze(one) for name, one in given.items()}
        y, weight = given.pop(OUTCOME), given.pop(WEIGHT, None)
        if self.line.scaled:
            given["log_multiplier"] = jnp.log(given.pop(MULTIPLIER))
            given["sign"] = jnp.asarray(-1.0 if self.falling else 1.0)
        loss = self.line.loss(eta, y, given)
        loss = loss if weight is None else jnp.where(weight > 0, weight * loss, 0.0)
        return jnp.sum(jnp.broadcast_to(loss, shape))

    @functools.cached_property
    def family(self) -> LikelihoodFamily | None:
        """What the line proves within the ends, as a function of all elements of the predictor."""
        classes = Interval(*[np.asarray(float(self.shape[-1] if self.shape else 1))] * 2)
        heaviest = self.ends.get(WEIGHT, Interval(np.zeros(()), np.ones(())))
        fit = heaviest.lowest >= 0 and (not self.line.scaled or self.ends[MULTIPLIER].lowest > 0)
        if not (fit and in_table(self.line)):
            return None
        found = self.line.family(self.ends[OUTCOME], {**self.ends, "classes": classes})
        if found is None:
            return None
        count = math.prod(self.shape[:-1] if self.line.joint else self.shape)
        each = [found.weighted(heaviest.highest)] * (math.prod(self.observed) // max(count, 1))
        return together([together(each, False)] * count, True)


@dataclass(frozen=True, eq=False)
class Predictor:
    """``v(θ, row) = ψ(η, row)`` with a vector ``η = A(row)·θ + o(row)`` of predictors.

    ``ψ`` is a sum of terms of the table, or a function of which nothing is known.

    Attributes:
        eta: ``(θ, row) ↦ η``, of which only value and slope at ``θ = 0`` are used.
        size: ``k``, the number of predictors.
        dim: ``p``.
        terms: each with the places of its own elements among all predictors.
        rest: ``row ↦`` the part of ``ψ`` that no latent is in.
        unknown: ``(η, row) ↦ ψ``, which runs in place of both.
        radius: ``R``, at which kernels hold ``length(row)``, a bound of ``‖A(row)‖``; ``inf`` for none.
        proved: no row of the domain is longer, and none is held at an end of its outcome or parameters.
        farthest: at which kernels hold ``|o|``, elementwise, so that what rounding does is known.
        centred: kernels leave ``o`` out, which is zero for every row.
        reads: the columns that ``ψ`` reads; the design, as a rule the widest, is seldom one of them.
        written_out: ``A·θ`` is formed of the array ``A``. A program of ``η`` may add and take away what is
            far larger than both, and round that off.
    """

    eta: Callable[[jax.Array, Row], jax.Array]
    size: int
    dim: int
    terms: tuple[tuple[Term, slice], ...] = ()
    rest: Callable[[Row], jax.Array] = lambda row: jnp.zeros(())
    unknown: Callable[[jax.Array, Row], jax.Array] | None = None
    radius: float = math.inf
    farthest: float = math.inf
    proved: bool = False
    centred: bool = False
    reads: frozenset[str] = frozenset()
    written_out: bool = False

    def __post_init__(self) -> None:
        if not self.radius >= 0:
            raise DeclarationError(f"radius={self.radius}: a length is at least 0.")

    def loss(self, eta: ArrayLike, row: Row) -> jax.Array:
        """``ψ``."""
        eta = jnp.asarray(eta).astype(jax.dtypes.canonicalize_dtype(np.float64)).ravel()
        if self.unknown is not None:
            return self.unknown(eta, row)
        return functools.reduce(jnp.add, [term.loss(eta[at], row) for term, at in self.terms], self.rest(row))

    @functools.cached_property
    def slope(self) -> Callable[[jax.Array, Row], jax.Array]:
        """``(η, row) ↦ ψ'`` of one predictor, of that row alone whoever made ``ψ``; one program."""
        return rowwise(jax.grad(rowwise(self.loss)))

    @property
    def family(self) -> LikelihoodFamily:
        """What is proved of ``ψ`` as a function of the vector ``η``."""
        families: dict[tuple[int, int], list[LikelihoodFamily]] = {}
        for term, at in self.terms if self.unknown is None else ():
            families.setdefault((at.start, at.stop), []).append(term.family or UNKNOWN)
        places = sorted(families)
        apart = all(first >= 0 for first, _ in places) and all(
            before[1] <= after[0] for before, after in itertools.pairwise(places)
        )
        # Of predictors that several terms share in part, a sum is a bound as well.
        each = [together(one, False) for one in families.values()]
        return together(each, apart) if families else UNKNOWN

    def designs(self, row: Row) -> jax.Array:
        """``A``, shape ``(k, p)``; of one predictor, ``η = x·θ + o``, ``x``: ``∇v = ψ'(η)·x``."""
        return jnp.asarray(jax.jacrev(self.eta)(jnp.zeros(self.dim), row))

    def offsets(self, row: Row) -> jax.Array:
        """``o``, shape ``(k,)``."""
        return jnp.clip(self.eta(jnp.zeros(self.dim), row), -self.farthest, self.farthest)

    def row_loss(self, theta: jax.Array, row: Row) -> jax.Array:
        """``v``: a derivative is linear in its direction, whatever ``eta`` does elsewhere."""
        if self.written_out:
            return self.loss(self.offsets(row) + self.designs(row) @ theta, row)
        offset, along = jax.jvp(lambda at: self.eta(at, row), (jnp.zeros_like(theta),), (theta,))
        return self.loss(jnp.clip(offset, -self.farthest, self.farthest) + along, row)

    def length(self, row: Row) -> jax.Array:
        """A bound of the spectral norm of ``A``: ``‖A‖² ≤ max_i Σ_j |⟨a_i, a_j⟩|``; of one line its norm."""
        designs = self.designs(row)
        return jnp.sqrt(jnp.max(jnp.sum(jnp.abs(designs @ designs.T), axis=1)))

    def share(self, row: Row) -> jax.Array:
        """``min(1, R²/length²)``: the weight with which a row bends by at most ``R²ψ''`` and adds ``Rψ'``."""
        length = self.length(row)
        # A length that is not a number gives no weight that is one: such a row adds nothing.
        return jnp.where(length <= self.radius, 1.0, (self.radius / length) ** 2)
