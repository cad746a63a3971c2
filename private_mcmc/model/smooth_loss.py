"""Bounds of the derivatives of a smooth loss of one predictor whose family is not recognised.

The real line is cut into pieces and each derivative is bounded on every piece by interval arithmetic: a
proof, up to the rounding of its own bounds, and not a search.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.domains.rows import Rows, few_values
from private_mcmc.model.ir.dependence import Shape, smoothness
from private_mcmc.model.ir.flatten import abstract, trace
from private_mcmc.model.ir.interval import Interval, anything, between, of_domain, pinned
from private_mcmc.model.ir.intervals import bounds
from private_mcmc.model.likelihoods.family import UNKNOWN, LikelihoodFamily
from private_mcmc.records import Fields

Loss: TypeAlias = Callable[[ArrayLike, Fields], jax.Array]

_NEAR = np.linspace(-8.0, 8.0, 321)
_FAR = np.concatenate([np.linspace(8.0, 40.0, 65)[1:], [60.0, 100.0]])
_STEEPEST = 1e9
_EDGES = np.concatenate([[-np.inf], -_FAR[::-1], _NEAR, _FAR, [np.inf]])


def certified(loss: Loss, rows: Rows) -> LikelihoodFamily:
    """``|ψ'|`` and ``|ψ''|`` over all ``η`` and all rows, where interval arithmetic bounds them."""
    first = jax.grad(loss)

    def second(eta: jax.Array, row: Fields) -> jax.Array:
        """Forwards, which takes fewer operations, and loses less in them, than backwards once more."""
        slope: jax.Array = jax.jvp(lambda value: first(value, row), (eta,), (jnp.ones_like(eta),))[1]
        return slope

    def derivatives(eta: jax.Array, **row: jax.Array) -> dict[str, jax.Array]:
        return {
            "score": jax.vmap(lambda value: first(value, row))(eta),
            "curvature": jax.vmap(lambda value: second(value, row))(eta),
        }

    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in rows.items}
    program = trace(derivatives, eta=abstract((len(_EDGES) - 1,), np.float64), **shapes)
    known: dict[int, Interval] = {program.inputs["eta"]: between(_EDGES[:-1], _EDGES[1:])}
    known.update({program.inputs[name]: of_domain(domain, leading=()) for name, domain in rows.items})
    targets = [program.outputs[name] for name in ("score", "curvature")]
    largest = np.zeros(2)
    for case in few_values(rows):
        points = {program.inputs[name]: pinned(known[program.inputs[name]], at) for name, at in case.items()}
        found = bounds(program, {**known, **points}, targets)
        largest = np.maximum(largest, [value.largest for value in found])
    score, curvature = (float(bound) for bound in largest)
    shape = _shape(loss, rows)
    # A steeper bound is one of rounding at the edge of the floats.
    score = score if shape <= Shape.CONTINUOUS and score <= _STEEPEST else math.inf
    curvature = curvature if shape <= Shape.SMOOTH else math.inf
    if not math.isfinite(min(score, curvature)):
        return UNKNOWN
    return replace(
        UNKNOWN,
        score_bound=score,
        curvature_bound=curvature,
        why=f"interval arithmetic on the derivatives: |ψ'| ≤ {score:.6g}, |ψ''| ≤ {curvature:.6g}",
    )


def _shape(loss: Loss, rows: Rows) -> Shape:
    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in rows.items}
    program = trace(lambda eta, **row: {"loss": loss(eta, row)}, eta=abstract((), np.float64), **shapes)
    given = {program.inputs[name]: of_domain(domain, leading=()) for name, domain in rows.items}
    return smoothness(program, "eta", "loss", {**given, program.inputs["eta"]: anything(())})
