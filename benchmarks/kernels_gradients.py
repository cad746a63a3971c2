"""Gradients: clipped against unclipped, against NumPyro's, against jax-privacy's, against the memory bus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import jax
import jax.numpy as jnp
from kernels_problems import CLIP, Problem, descent, logistic, medians, repeats_of

import private_mcmc as pmc
from private_mcmc.kernels import gradient
from private_mcmc.kernels.gradient import AffineRows, clipped_gradient, whitening


def affine(problem: Problem, repeats: int, bandwidth: float) -> dict[str, float]:
    """Closed-form clipping against the same products without it, and the private step against NumPyro."""
    n, p, count = problem.n, problem.p, repeats_of(problem.n * problem.p)
    clipped = clipped_gradient(problem.reading, whitening(None, p), CLIP, states=1)
    rows = jax.jit(clipped.prepare)(problem.columns, problem.present)
    chain, prepared = problem.steps(pmc.PrivateULA(logistic, 1e-9, CLIP), count)
    ours, theirs = descent(clipped.total, n, p), descent(unclipped(problem), n, p)
    numpyros = descent(problem.potential_gradient(), n, p)
    u = problem.u
    found = medians(
        lambda: ours(u, rows), lambda: theirs(u, rows), lambda: chain(u[None], prepared),
        lambda: numpyros(u, problem.columns), repeats=repeats,
    )  # fmt: skip
    values = {
        "clipped / unclipped gradient": found[0] / found[1],
        "NumPyro's potential gradient / private step": found[3] / found[2],
        "private step, µs": 1e6 * found[2] / count,
    }
    if n >= 1_000_000:
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(rows))
        values["share of the memory bandwidth"] = size * count / found[0] / bandwidth
    return values


def unclipped(problem: Problem) -> Callable[..., jax.Array]:
    """The same program without its clip."""
    clipped = clipped_gradient(problem.reading, whitening(None, problem.p), CLIP, states=1)

    def total(u: jax.Array, rows: AffineRows) -> jax.Array:
        with patch.object(gradient, "held", lambda slope, cap: slope):
            return clipped.total(u, rows)

    return total


def general(problem: Problem, repeats: int) -> dict[str, float]:
    clipped = clipped_gradient(problem.reading, whitening(None, problem.reading.dim), CLIP, states=1)
    rows = jax.jit(clipped.prepare)(problem.columns, problem.present)
    n, dim = problem.n, problem.reading.dim
    mine, theirs = descent(clipped.total, n, dim), descent(problem.potential_gradient(), n, dim)
    found = medians(
        lambda: mine(problem.u, rows), lambda: theirs(problem.u, problem.columns), repeats=repeats
    )
    return {"general clipped / unclipped gradient": found[0] / found[1]}


def clipped_batch_seconds(problem: Problem, repeats: int) -> tuple[float, float | None]:
    """One clipped gradient of all the problem's rows: ours, and jax-privacy's if it is installed."""
    n, dim = problem.n, problem.reading.dim
    clipped = clipped_gradient(problem.reading, whitening(None, dim), CLIP)
    rows = jax.jit(clipped.prepare)(problem.columns, problem.present)
    ours = descent(clipped.total, n, dim)
    try:
        import jax_privacy
    except ImportError:
        return medians(lambda: ours(problem.u, rows), repeats=repeats)[0] / repeats_of(n * dim), None
    rival = jax_privacy.clipped_grad(
        lambda u, row: problem.reading.row_loss(u, row), l2_clip_norm=CLIP, keep_batch_dim=False
    )
    theirs = descent(rival, n, dim)
    found = medians(
        lambda: ours(problem.u, rows), lambda: theirs(problem.u, problem.columns), repeats=repeats
    )
    mine, his = (value / repeats_of(n * dim) for value in found)
    return mine, his


def bandwidth(repeats: int) -> float:
    """Bytes a second that XLA reads of an array far larger than a core's cache, by its sum."""
    values = jnp.ones(2**25)
    total: Any = jax.jit(jnp.sum)
    (seconds,) = medians(lambda: total(values), repeats=repeats)
    return values.nbytes / seconds
