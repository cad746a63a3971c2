"""A fitted formula's answer without privacy, which benchmarks compare with: on public tables only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from scipy.optimize import minimize

from private_mcmc.data import Answers
from private_mcmc.data.effects import Array
from private_mcmc.data.schema import Schema
from private_mcmc.domains.columns import PRESENT
from private_mcmc.domains.persons import grouped, identified
from private_mcmc.dossier import Study
from private_mcmc.dossier.record import texts
from private_mcmc.errors import NotYetSupported
from private_mcmc.inference.question import question
from private_mcmc.inference.reading import read_columns
from private_mcmc.model import read

_DRAWS = 2_000
# Square of the distance, in posterior sds, that an optimum may be from the mode.
_OFF = 1e-4
# Chains whose scale is reduced by more when they are put together do not agree.
_MIXED = 1.05


def without_privacy(study: Study, table: Path) -> Answers:
    """The same model's Normal approximation at its mode, found on the rows themselves by a trust region.

    Draws of NUTS where an sd of groups is estimated: the mode of such an sd and of its effects together is
    far from their means, and of their widths it says nothing.
    """
    schema = Schema.from_dict(texts(study.schema))
    asked = question(schema, study.formula, family=study.family, priors=study.priors)
    reading = read(asked.model, asked.rows, n=study.n, model_args=asked.public(study.n))
    found, unit = read_columns(table, asked.schema, asked, "replace_one"), asked.rows.unit
    if unit is not None:
        codes = identified(unit.name, found.pop(unit.name))
        found = grouped(found, codes, study.n, unit.rows)
    there = np.asarray(found.pop(PRESENT, np.ones(len(next(iter(found.values())))))) > 0
    with jax.enable_x64(True):
        # As a run has them: a row that a person lacks has the derivative of a possible one, times zero.
        columns = reading.rows.project({name: each[there] for name, each in found.items()})

        # Rows are arguments, so that they are no constants of compiled programs.
        def potential(theta: jax.Array, columns: dict[str, jax.Array]) -> jax.Array:
            losses = jax.vmap(reading.row_loss, (None, 0))(theta, columns)
            return reading.neg_log_prior(theta) + losses.sum()

        slope, hessian = jax.jit(jax.value_and_grad(potential)), jax.jit(jax.hessian(potential))
        # Not from 0, where NumPyro's densities by logits have another slope than anywhere near.
        best = minimize(slope, np.full(reading.dim, 1e-3), (columns,), "trust-exact", jac=True, hess=hessian)
        mode, curvature = best.x, np.asarray(hessian(best.x, columns))
        off = float(best.jac @ np.linalg.solve(curvature, best.jac))
        if not (np.linalg.eigvalsh(curvature)[0] > 0 and off < _OFF):
            raise NotYetSupported("the mode of the posterior without privacy was not found.")
        covariance = np.linalg.inv(curvature)
        if reading.own is None and any(site.name.startswith("sd(") for site in reading.sites):
            found_draws = _by_nuts(partial(potential, columns=columns), mode, covariance)
        else:
            random = np.random.default_rng(0)
            found_draws = random.multivariate_normal(mode, covariance, size=_DRAWS)
        named = jax.jit(jax.vmap(reading.constrain))(found_draws)
    draws: dict[str, Array] = {name: np.asarray(values) for name, values in named.items()}
    return Answers(study.design, draws)


def _by_nuts(potential: Callable[..., jax.Array], mode: Array, covariance: Array) -> Array:
    """Draws ``(draws, p)`` of two chains from the mode, with the metric of the curvature there."""
    kernel = NUTS(potential_fn=potential, dense_mass=True, inverse_mass_matrix=jnp.asarray(covariance))
    chains = MCMC(
        kernel,
        num_warmup=_DRAWS // 4,
        num_samples=_DRAWS // 2,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    chains.run(jax.random.key(0), init_params=jnp.stack([mode, mode]))
    draws = np.asarray(chains.get_samples(group_by_chain=True), dtype=np.float64)
    if not np.max(split_gelman_rubin(draws)) < _MIXED:
        raise NotYetSupported("chains of the posterior without privacy do not agree.")
    return draws.reshape(-1, draws.shape[-1])
