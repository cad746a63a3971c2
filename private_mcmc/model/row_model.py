"""What a NumPyro model is read as: a potential, and what plans and preflight ask of it besides."""

from __future__ import annotations

from dataclasses import dataclass, field

from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.program import Program
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.sites import Observation
from private_mcmc.records import Model, PublicArguments


@dataclass(frozen=True, eq=False, kw_only=True)
class RowModel(Potential):
    """A model as the sum of a data-free potential and one term per row, and where that comes from.

    Attributes:
        observations: the observed sites.
        names: a name for every coordinate of ``θ``, for example ``w[2]``.
        program: the model on one abstract row in float64, for further proofs about its form; of persons,
            that of one of their rows.
        each: the reading of one of a person's rows by itself.
        own: a person's own latents, which are integrated out.
        model: the model as it is run on rows; of persons with latents, on those of one person.
        public: the public arguments that it was read with.
    """

    observations: tuple[Observation, ...]
    names: tuple[str, ...]
    program: Program = field(repr=False)
    model: Model = field(repr=False)
    each: RowModel | None = field(default=None, repr=False)
    own: OwnLatents | None = field(default=None, repr=False)
    public: PublicArguments = field(default_factory=dict, repr=False)
