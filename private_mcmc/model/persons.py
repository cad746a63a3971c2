"""A person with several rows as one row of a chain: the sum of its rows' own terms, whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.model.row_constants import RowConstants

Person = Mapping[str, jax.Array]


def person_loss(
    row_loss: Callable[[jax.Array, Person], jax.Array], theta: jax.Array, person: Person
) -> jax.Array:
    """``V = Σ_j v(θ, row_j)`` over the rows that the person has; columns are ``(k, …)``."""
    rows = {name: column for name, column in person.items() if name != OWN_ROWS}
    losses = jax.vmap(row_loss, in_axes=(None, 0))(theta, rows)
    return jnp.sum(jnp.where(person[OWN_ROWS] > 0, losses, 0.0))


def person_constants(each: RowConstants, count: int) -> RowConstants:
    """Those of a sum of up to ``count`` rows: every bound is for all of them, none for a difference of rows.

    Two persons may differ in how many rows they have, so that what the rows of both have in common does not
    cancel.
    """
    larger = count * (1 + 2.0**-50)
    return RowConstants(
        convex=each.convex,
        gradient_bound=larger * each.gradient_bound,
        curvature_bound=larger * each.curvature_bound,
        range_bound=larger * each.range_bound,
        why=f"a sum of up to {count} rows, each: {each.why}",
    )
