"""Marks of programs: hashes by which a later process knows that a model is the same."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model.row_model import RowModel


def program_mark(function: Callable[..., object], *shapes: object) -> str:
    """A hash of a traced function: its operations and every constant in them."""
    with jax.enable_x64(True):
        program = jax.make_jaxpr(function)(*shapes)
    # Functions print with their address in this process.
    mark = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", str(program.jaxpr)).encode())
    for constant in _constants(program):
        mark.update(np.asarray(constant).tobytes())
    return mark.hexdigest()


def model_marks(reading: RowModel) -> list[str]:
    """Of the prior and of a row's loss, with their gradients: a function may come with its own derivative."""
    with jax.enable_x64(True):
        theta = jnp.zeros(reading.dim)
        row = {name: jnp.zeros(domain.event_shape, domain.dtype) for name, domain in reading.rows.items}
    prior, loss = jax.value_and_grad(reading.neg_log_prior), jax.value_and_grad(reading.row_loss)
    return [program_mark(prior, theta), program_mark(loss, theta, row)]


def _constants(program: Any) -> Iterator[object]:
    """The constants of a closed jaxpr and of those inside it, which do not print them."""
    yield from getattr(program, "consts", ())
    for equation in getattr(program, "jaxpr", program).eqns:
        for inner in jax.tree.leaves(tuple(equation.params.values())):
            if hasattr(inner, "eqns"):
                yield from _constants(inner)
