"""What is public of a general policy: the model, draws of its prior, a first metric."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc import accounting
from private_mcmc.model import RowModel
from private_mcmc.planning.estimates import Metric, next_metric, spectral_norm
from private_mcmc.planning.prior_draws import Plausible, Prior, prior_of
from private_mcmc.planning.stages import Array
from private_mcmc.planning.synthetic import Likelihood
from private_mcmc.planning.synthetic_persons import likelihood_of
from private_mcmc.records import RUN_ONCE, Model, PublicArguments
from private_mcmc.release import SecondMomentsPlan, plan_second_moments
from private_mcmc.target import Adjacency

INFORMATION_SHARE = 0.05  # of the squared budget, for each query
# Of the mean square of a row's vectors: room for rows that say more than others.
_ROOM = 6.0
_SYNTHETIC_ROWS = 512
_WIDEST = 200
# Parameters that the information is averaged over.
REFERENCES = 4


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything public that the stages are made from.

    Attributes:
        reading: the model as it was read.
        num_rows: ``n`` or its public bound.
        budget: of all stages together, in GDP.
        plausible: draws of the prior, and of it where outcomes are as declared.
        likelihood: losses at possible outcomes.
        references: parameters that stage one asks about, shape ``(k, p)``.
        metric: a guess from synthetic rows of the declared domain.
        temper: weight of the likelihood.
    """

    reading: RowModel
    num_rows: int
    adjacency: Adjacency
    budget: float
    plausible: Plausible
    likelihood: Likelihood
    references: Array
    metric: Metric
    temper: float

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return self.reading.dim

    @property
    def prior(self) -> Prior:
        """Draws of the prior."""
        return self.plausible.prior

    def query(self, metric: Metric, references: int) -> SecondMomentsPlan | None:
        """The information of all rows in ``metric``, or ``None`` where its noise would drown it."""
        if self.dim > _WIDEST:
            return None
        mechanism = plan_second_moments(
            self.budget * math.sqrt(INFORMATION_SHARE),
            radius=math.sqrt(_ROOM * metric.trace / self.num_rows),
            dim=self.dim,
            num_rows=self.num_rows,
            adjacency=self.adjacency,
            vectors=references * self.likelihood.vectors,
        )
        stated = accounting.of_unit(mechanism.statement, self.reading.unit)
        useful = spectral_norm(mechanism.noise.sd, self.dim) < 1.0
        return replace(mechanism, statement=stated) if useful else None


def facts_of(
    model: Model,
    reading: RowModel,
    n: int,
    adjacency: Adjacency,
    budget: float,
    model_args: PublicArguments,
    temper: float = 1.0,
) -> Facts:
    """Draw what is synthetic, once."""
    prior = prior_of(reading.model, reading, model_args)
    likelihood = likelihood_of(reading, temper)
    root = np.diag(prior.scale)
    with jax.enable_x64(True):
        drawn = functools.partial(reading.rows.synthetic, 3, _SYNTHETIC_ROWS)
        rows = jax.jit(drawn, compiler_options=RUN_ONCE)()
        plausible = Plausible(prior, likelihood, rows)
        references = np.stack([plausible.drawn(index, 0.5) for index in range(REFERENCES)])
        one = functools.partial(likelihood.information, references, root)
        vectors = jax.jit(jax.vmap(one), compiler_options=RUN_ONCE)(rows)
        information = np.asarray(jnp.einsum("nki,nkj->ij", vectors, vectors)) * (n / _SYNTHETIC_ROWS)
    metric = next_metric(prior, root, information)
    return Facts(reading, n, adjacency, budget, plausible, likelihood, references, metric, temper)
