"""Latents of a person, integrated out: the person's term is minus the log of a finite sum over a public grid.

``V(θ, person) = −log Σ_q ω_q Π_rows p(row | θ, u_q)``, with points that follow that person's rows and ``θ``
alone, and are held fixed in its slope, which is clipped: statements are about the path of these slopes; how
far the sum is from the integral is accuracy. It is not convex, even where the integral is. The latents are
columns of a row: see ``row_latents``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.domain import Binary, Categories, Domain
from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.domains.rows import Rows
from private_mcmc.errors import NotYetSupported
from private_mcmc.model.program import Output, Program
from private_mcmc.model.row_latents import Row, RowLatent, RowLoss, Summed

Kinds = Mapping[str, np.ndarray]

# Arrays of a person's terms that are alive together.
_OF_TERMS = 4
# Kinds of rows at a point whose gradient takes as long as that of a row's term there.
_OF_A_TERM = 8


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnLatents(Summed):
    """The latents of one person, by the program of a row, and all that they may be.

    Attributes:
        row_loss: ``(θ, row) ↦`` a row's term, given the latents as columns.
        kinds: all that a row can be, as columns ``(kinds,)``, where that is little: what each says is then
            computed once for all persons.
    """

    row_loss: RowLoss
    kinds: Kinds | None = None

    @property
    def names(self) -> list[str]:
        """Of the person's own sites."""
        return [latent.site for latent in self.latents]

    def atoms_of(self) -> int:
        """How many things a person may be."""
        dim = self.program.shape(self.program.inputs["theta"])
        origin = jnp.zeros(dim, jax.dtypes.canonicalize_dtype(np.float64))
        return len(jax.eval_shape(self.atoms, origin, {})[1])

    def elements(self, rows: int) -> int:
        """How many numbers are alive while the gradient of a person with so many rows is formed."""
        terms = rows if self.kinds is None else len(next(iter(self.kinds.values())))
        return _OF_TERMS * self.atoms_of() * terms

    def term(self, theta: jax.Array, own: Row, row: Row) -> jax.Array:
        """A row's term, given the person's own latents."""
        return self.row_loss(theta, {**row, **own})


def own_latents(
    latents: tuple[RowLatent, ...], program: Program, row_loss: RowLoss, kinds: Kinds | None
) -> OwnLatents:
    """Those of a person, whose distributions may follow each other and ``θ``, and no row."""
    read = program.reads([program.outputs[Output("row", latent.site)] for latent in latents])
    if data := sorted(read - {"theta"} - {latent.column for latent in latents}):
        raise NotYetSupported(f"latents of persons whose distributions follow columns {data}.")
    return OwnLatents(latents, program, row_loss=row_loss, kinds=kinds)


def kinds_of(rows: Rows, at_most: int) -> Kinds | None:
    """Every combination of values of the columns, where they are few beside a person's ``at_most`` rows."""
    cases = list(_few_values(rows))
    if len(cases[0]) < len(rows.items) or len(cases) > _OF_A_TERM * at_most:
        return None
    return {
        name: np.array([case[name] for case in cases]).astype(domain.dtype) for name, domain in rows.items
    }


_MOST_CASES = 64


def _few_values(rows: Rows) -> Iterator[dict[str, float]]:
    """All combinations of values of such columns, by name; one empty combination if there are too many."""
    listed = {name: _values(domain) for name, domain in rows.items if _values(domain)}
    if math.prod(len(values) for values in listed.values()) > _MOST_CASES:
        listed = {}
    for case in itertools.product(*listed.values()):
        yield dict(zip(listed, map(float, case), strict=True))


def _values(domain: Domain) -> range:
    if isinstance(domain, Binary):
        return range(2)
    return range(domain.k) if isinstance(domain, Categories) else range(0)


def integrated_loss(own: OwnLatents, theta: jax.Array, person: Row) -> jax.Array:
    """``V``: ``person`` holds columns ``(k, …)`` and which of its rows there are."""
    if own.kinds is not None:
        return _of_kinds(own, own.kinds, theta, person)
    there = person[OWN_ROWS] > 0

    def placed(column: jax.Array) -> jax.Array:
        # In the place of a row that there is not: the first one, which overflows only where the person does.
        return jnp.where(there.reshape(-1, *(1,) * (column.ndim - 1)), column, column[:1])

    rows = {name: placed(column) for name, column in person.items() if name != OWN_ROWS}

    def term(columns: Row) -> jax.Array:
        losses = jax.vmap(lambda row: own.term(theta, columns, row))(rows)
        return -jnp.sum(jnp.where(there, losses, 0.0))

    return own.total(theta, {}, term)


# A term of this size has a likelihood of 0, however many rows a person has.
_IMPOSSIBLE = 1e30


def _of_kinds(own: OwnLatents, kinds: Kinds, theta: jax.Array, person: Row) -> jax.Array:
    """The same from how many rows of each kind the person has: the terms of kinds are the same for everybody.

    A term that overflows has no gradient: in the place of its point stands one where the kind is likeliest.
    """
    columns, log_weights = own.atoms(theta, {})

    def at(columns: Row) -> jax.Array:
        return jax.vmap(lambda own_values, row: own.term(theta, own_values, row))(columns, kinds)

    count = len(next(iter(kinds.values())))
    each = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], count, axis=1), columns)
    found = jax.lax.stop_gradient(jax.vmap(at)(each))
    possible = jnp.isfinite(found) & (found < _IMPOSSIBLE)
    best = jnp.argmin(jnp.where(possible, found, jnp.inf), axis=0)

    def placed(leaf: jax.Array) -> jax.Array:
        shown = possible.reshape(*possible.shape, *(1,) * (leaf.ndim - 2))
        return jnp.where(shown, leaf, leaf[best, jnp.arange(count)])

    losses = jnp.where(possible, jax.vmap(at)(jax.tree.map(placed, each)), _IMPOSSIBLE)
    same = jnp.stack([person[name][:, None] == values for name, values in kinds.items()])
    has = jnp.all(same, axis=0) & (person[OWN_ROWS] > 0)[:, None]
    return -jax.nn.logsumexp(log_weights - losses @ jnp.sum(has, axis=0).astype(losses.dtype))


def of_one_row(loss: RowLoss, theta: jax.Array, row: Row) -> jax.Array:
    """The term of a person with one row."""
    person = {name: jnp.asarray(value)[None] for name, value in row.items()}
    return loss(theta, {**person, OWN_ROWS: jnp.ones(1, int)})
