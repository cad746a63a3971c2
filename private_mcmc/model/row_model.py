"""What a NumPyro model is read as: a data-free potential and one term per row; and marks to know it by."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.rows import Rows
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.ir.program import Program
from private_mcmc.model.predictor import MultiPredictor, Predictor, Row
from private_mcmc.model.priors.prior import PriorConstants
from private_mcmc.model.row_constants import RowConstants
from private_mcmc.model.sites import Observation, Site
from private_mcmc.records import Model
from private_mcmc.target import Unit


@dataclass(frozen=True, eq=False)
class RowModel:
    """A model as the sum of a data-free potential and one term per row: ``U = K(θ) + w Σ_i v(θ, d_i)``.

    All functions are pure, traceable and free of the data: rows are arguments. They work in float64 under
    ``jax.enable_x64`` and in float32 otherwise. ``θ`` is the flat vector of all latents on NumPyro's
    unconstrained space.

    Attributes:
        rows: the row declaration.
        dim: ``p``, the length of ``θ``.
        sites: the latent sites and where they lie in ``θ``.
        observations: the observed sites.
        names: a name for every coordinate of ``θ``, for example ``w[2]``.
        neg_log_prior: ``θ ↦ K``, log-Jacobian of the transforms included.
        row_loss: ``(θ, row) ↦ v``, minus the log likelihood of one row; ``row`` maps column names to
            values of the domains' event shapes.
        constrain: ``θ ↦`` constrained values of the sites, and deterministic sites that read no row.
        predictor: the row's one affine predictor, where that is proved.
        predictors: all affine predictors of the row as one vector, where they are proved.
        constants: proved constants of ``v`` in ``θ``, before clipping.
        prior: proved constants of ``K``.
        program: the model on one abstract row in float64, for further proofs about its form.
        unit: where a person with several rows is what is called a row above: who that is. ``predictor`` and
            ``predictors`` are ``None`` then, and ``program`` is that of one of its rows.
        each: the reading of one of a person's rows by itself.
        own: a person's own latents, which are integrated out.
        model: the model as it is run on rows; of persons with latents, on those of one person.
    """

    rows: Rows
    dim: int
    sites: tuple[Site, ...]
    observations: tuple[Observation, ...]
    names: tuple[str, ...]
    neg_log_prior: Callable[[jax.Array], jax.Array] = field(repr=False)
    row_loss: Callable[[jax.Array, Row], jax.Array] = field(repr=False)
    constrain: Callable[[jax.Array], dict[str, jax.Array]] = field(repr=False)
    predictor: Predictor | None = field(repr=False)
    predictors: MultiPredictor | None = field(repr=False)
    constants: RowConstants = field(repr=False)
    prior: PriorConstants = field(repr=False)
    program: Program = field(repr=False)
    model: Model = field(repr=False)
    unit: Unit | None = None
    each: RowModel | None = field(default=None, repr=False)
    own: OwnLatents | None = field(default=None, repr=False)


def names_of(sites: list[Site]) -> tuple[str, ...]:
    """A name for every coordinate of ``θ``."""
    names: list[str] = []
    for site in sites:
        if site.unconstrained_shape:
            indices = np.ndindex(site.unconstrained_shape)
            names += [f"{site.name}[{','.join(map(str, index))}]" for index in indices]
        else:
            names.append(site.name)
    return tuple(names)


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
