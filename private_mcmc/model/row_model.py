"""What a NumPyro model is read as: a data-free potential and one term per row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
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
