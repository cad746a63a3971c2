"""How the rows' expected score moves with the parameter, as public rows tell.

At ``c`` rows that follow ``θ`` have the mean score ``Σ_r E_θ ∇v(c, r, y)``, near ``c`` about ``F(c − θ)``,
``F`` being Fisher's information. Further away outcomes level off, and of products, as an sd of groups times
an effect, no linear function is close. ``T(θ) = c − F⁺ Σ_r (E_θ − E_c) ∇v(c, r, y)`` is where linear rows
would have the same mean score: ``θ`` itself where the score is linear, in what rows read of it, and in what
other rows of the declared domain read of it and these do not, as a level that none of them has. With public
rows in the place of private ones the linear part is as before, and the rest is about right: without it 90 %
intervals of simulated groups (``benchmarks/calibration.py``, 12 runs at ε = 1 and 3) held 0.60, not 0.88.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.domains.rows import project_rows
from private_mcmc.model import RowModel
from private_mcmc.model.program import Output
from private_mcmc.model.proposals import find_link
from private_mcmc.model.synthetic import people
from private_mcmc.planning.outcomes import likelihood_of
from private_mcmc.potential.rowwise import at_each
from private_mcmc.records import Record
from private_mcmc.system import ON_FEW_ROWS

Array: TypeAlias = npt.NDArray[np.float64]

# Public rows are of so many kinds of tables, so many of each: fewer where outcomes take many values.
_KINDS, _EACH, _EACH_OF_MANY = 8, 16, 4
# Of many values so many nodes, as far beyond most of a row's law at ``c`` as that is wide.
_NODES, _TAIL = 33, 0.01
# Rows that show what rows of the domain can read.
_SINGULAR, _OTHERS = 1e-6, 512


class Outcomes(NamedTuple):
    """Public rows ``(rows, …)``, values of the outcome ``(rows, k)`` by name, and their log weights."""

    rows: Record
    values: Record
    log_weights: jax.Array

    def each(self, function: Any) -> jax.Array:
        """``function(row)`` of every row with every value: ``(rows, k, …)``."""

        def of_row(row: Record, values: Record) -> jax.Array:
            return jnp.asarray(at_each(lambda value: function({**row, **value}), values))

        return jnp.asarray(at_each(of_row, self.rows, self.values))

    def probabilities(self, reading: RowModel, theta: jax.Array) -> jax.Array:
        """Of the values under ``θ``, ``(rows, k)``."""
        losses = self.each(partial(reading.row_loss, theta))
        return jax.nn.softmax(jnp.where(jnp.isfinite(losses), self.log_weights - losses, -1e30), axis=1)


class ExpectedScore(NamedTuple):
    """The function ``T``.

    Attributes:
        at: ``c``, ``(p,)``.
        outcomes: what expectations are sums over.
        moves: ``F⁺∇v(c, r, y)``, ``(rows, k, p)``.
        probabilities: at ``c``, ``(rows, k)``.
        unseen: projector on what other rows of the domain read and these do not, ``(p, p)``.
    """

    at: jax.Array
    outcomes: Outcomes
    moves: jax.Array
    probabilities: jax.Array
    unseen: jax.Array

    def linear(self, reading: RowModel, theta: jax.Array) -> jax.Array:
        """``T(θ)``."""
        more = self.outcomes.probabilities(reading, theta) - self.probabilities
        return self.at + self.unseen @ (theta - self.at) - jnp.einsum("rk,rkp->p", more, self.moves)

    def divergence(self, reading: RowModel, theta: jax.Array) -> jax.Array:
        """``2 Σ_r KL(c ‖ θ)`` of rows' outcomes: near ``c`` ``(θ − c)ᵀF(θ − c)``."""
        there = self.outcomes.probabilities(reading, theta)
        return 2 * jnp.sum(jax.scipy.special.rel_entr(self.probabilities, jnp.maximum(there, 1e-300)))


def mixes_latents(reading: RowModel) -> bool:
    """Whether a parameter of an outcome may be a product, or so, of several latents.

    It is none that is a link of one affine variable, or that reads one site alone: near a path rows tell of
    such latents by their curvature, and public rows, whose covariates are not these people's, add nothing
    but ways in which other parameters could have the same mean score. Where it cannot be told, it is taken
    for one.
    """
    program = reading.program
    values = [program.outputs[Output("value", site.name)] for site in reading.sites]
    for observed in reading.observations:
        given = program.parts("given", observed.name).values()
        moving = [variable for variable in given if "theta" in program.reads([variable])]
        if not moving:
            return True
        for variable in moving:
            used = program.uses([variable])
            if sum(value in used for value in values) > 1 and find_link(program, variable) is None:
                return True
    return False


def expected_score(reading: RowModel, at: Array) -> ExpectedScore | None:
    """At ``c``; ``None`` where the outcome of a row is not one bounded number: ``T(θ) = θ`` is used then."""
    likelihood = likelihood_of(reading, 1.0)
    if not likelihood.of_one:
        return None
    ((name, choices),) = likelihood.outcomes.items()
    each, theta = _EACH if likelihood.few else _EACH_OF_MANY, jnp.asarray(at)
    kinds = [project_rows(reading.rows, people(reading.rows, each, seed)) for seed in range(_KINDS)]
    rows = {key: np.concatenate([kind[key] for kind in kinds]) for key in kinds[0]}
    listed = np.broadcast_to(choices, (_KINDS * each, len(choices)))
    outcomes = Outcomes(rows, {name: listed}, jnp.zeros(listed.shape))
    if not likelihood.few:
        told = jax.jit(Outcomes.probabilities, static_argnums=1, compiler_options=ON_FEW_ROWS)
        probabilities = np.asarray(told(outcomes, reading, theta))
        values, there = _nodes(np.asarray(choices, np.float64), probabilities)
        logs = jnp.where(jnp.asarray(there), 0.0, -jnp.inf)
        outcomes = Outcomes(rows, {name: jnp.asarray(values, dtype=choices.dtype)}, logs)
    elsewhere = reading.rows.synthetic(11, _OTHERS)
    found = ExpectedScore(theta, outcomes, *_moves(reading, outcomes, theta, elsewhere))
    return found if np.all(np.isfinite(np.asarray(found.moves))) else None


def _nodes(choices: Array, probabilities: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Evenly spaced nodes for every row, ``(rows, k)``, and which of them are there."""
    below, (low, high) = np.cumsum(probabilities, axis=1), choices[[0, -1]]
    first, last = (choices[np.argmax(below > level, axis=1)] for level in (_TAIL, 1 - _TAIL))
    wide = np.maximum(last - first, (high - low) / len(choices))
    first, last = np.clip(first - wide, low, high), np.clip(last + wide, low, high)
    nodes = first[:, None] + np.linspace(0.0, 1.0, _NODES) * (last - first)[:, None]
    if np.array_equal(choices, choices.round()):
        few = (last - first < _NODES)[:, None]
        nodes = np.where(few, first[:, None].round() + np.arange(_NODES), nodes.round())
    return nodes, nodes <= high


def jacobian(function: Callable[[jax.Array], jax.Array], at: jax.Array) -> jax.Array:
    """Transposed, a direction at a time: calls of LAPACK get no more rows at once than the function gives."""
    return jnp.asarray(jax.lax.map(lambda way: jax.jvp(function, (at,), (way,))[1], jnp.eye(len(at))))


@partial(jax.jit, static_argnums=0, compiler_options=ON_FEW_ROWS)
def _moves(
    reading: RowModel, outcomes: Outcomes, at: jax.Array, others: Record
) -> tuple[jax.Array, jax.Array, jax.Array]:
    score = partial(reading.row_slope, at)
    scores = jnp.nan_to_num(outcomes.each(score))

    def mean(theta: jax.Array) -> jax.Array:
        return jnp.einsum("rk,rkp->p", outcomes.probabilities(reading, theta), scores)

    information = -jacobian(mean, at).T
    inverse = jnp.linalg.pinv(information, rtol=_SINGULAR)
    seen, told = inverse @ information, jnp.nan_to_num(at_each(score, others))
    beyond = told - told @ seen
    values, axes = jnp.linalg.eigh(beyond.T @ beyond)
    unseen = (axes * (values > _SINGULAR * jnp.sum(told**2))) @ axes.T
    return scores @ inverse.T, outcomes.probabilities(reading, at), unseen
