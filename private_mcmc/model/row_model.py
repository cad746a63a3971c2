"""What a NumPyro model is read as: a potential, and what plans and preflight ask of it besides."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import jax
import jax.extend.core as jex
import numpy as np

from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.program import Equation, Program, row_shapes
from private_mcmc.model.sites import Observation
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.rowwise import abstract
from private_mcmc.records import Model, PublicArguments

# Of a loop without a fixed end, so many turns.
_TURNS = 32


def work_of(equations: Iterable[Equation]) -> int:
    """About how many numbers they compute."""
    total = 0
    for equation in equations:
        turns = _TURNS if equation.primitive.name == "while" else equation.params.get("length") or 1
        inner = sum(work_of(getattr(one, "jaxpr", one).eqns) for one in jex.jaxprs_in_params(equation.params))
        own = sum(math.prod(getattr(output.aval, "shape", ())) for output in equation.outvars)
        total += turns * inner if inner else own
    return total


@dataclass(frozen=True, eq=False, kw_only=True)
class RowModel(Potential):
    """A model as the sum of a data-free potential and one term per row, and where that comes from.

    Attributes:
        observations: the observed sites.
        program: the model on one abstract row in float64, for further proofs about its form; of persons,
            that of one of their rows.
        each: the reading of one of a person's rows by itself.
        own: a person's own latents, which are integrated out.
        model: the model as it is run on rows; of persons with latents, on those of one person.
        public: the public arguments that it was read with.
    """

    observations: tuple[Observation, ...]
    program: Program = field(repr=False)
    model: Model = field(repr=False)
    each: RowModel | None = field(default=None, repr=False)
    own: OwnLatents | None = field(default=None, repr=False)
    public: PublicArguments = field(default_factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for every coordinate of ``θ``, for example ``w[2]``."""
        return tuple(name for site in self.sites for name in site.coordinates)

    @functools.cached_property
    def work(self) -> int:
        """About how many numbers the loss of one row computes."""
        with jax.enable_x64(True):
            theta = abstract((self.dim,), np.float64)
            return work_of(jax.make_jaxpr(self.row_loss)(theta, row_shapes(self.rows)).jaxpr.eqns)
