"""Policies carried out on synthetic rows.

Every stage is computed with its own noise on rows that each stand for many; paths are those of the kernels.
"""

from __future__ import annotations

import jax
import numpy as np

from private_mcmc.kernels.synthetic import synthetic_path
from private_mcmc.planning.general import Policy
from private_mcmc.planning.outcomes import Columns
from private_mcmc.planning.stages import Array, CompletedStage, History, QueryStage
from private_mcmc.potential.rowwise import of_rows
from private_mcmc.release import SecondMoments, Sums, SumsPlan
from private_mcmc.system import blas_of_one_thread


def simulate(policy: Policy, rows: Columns, weights: Array, seed: int) -> History:
    """What the stages of ``policy`` would release of ``rows``, which stand for ``weights`` rows each."""
    random = np.random.default_rng(seed)
    history: History = ()
    with blas_of_one_thread(), jax.enable_x64(True):
        while (stage := policy.next(history)) is not None:
            value: SecondMoments | Sums | Array
            if isinstance(stage, QueryStage):
                value = _released(stage, rows, weights, random)
            else:
                given = rows if stage.derived is None else {**rows, **of_rows(stage.derived, rows)}
                key = jax.random.key(len(history) + 64 * seed)
                followed = policy.followed(stage)
                value = synthetic_path(followed, stage.schedule, stage.start, given, weights, key)
            history = (*history, CompletedStage(stage, value))
    return history


def _released(
    stage: QueryStage, rows: Columns, weights: Array, random: np.random.Generator
) -> SecondMoments | Sums:
    mechanism, sd = stage.mechanism, stage.mechanism.noise.sd
    if isinstance(mechanism, SumsPlan):
        cells = np.asarray(of_rows(stage.of_row, rows))
        exact = np.bincount(cells, weights, minlength=mechanism.families[0].cells)
        return stage.released(exact + sd * random.standard_normal(len(exact)))
    vectors = np.asarray(of_rows(stage.of_row, rows)).reshape(len(weights), -1, mechanism.dim)
    norm = np.sqrt(np.square(vectors).sum(axis=(1, 2)))
    vectors = vectors * np.minimum(1.0, mechanism.radius / np.maximum(norm, 1e-300))[:, None, None]
    exact = np.einsum("n,nki,nkj->ij", weights, vectors, vectors, optimize=True)
    noise = np.tril(random.standard_normal(exact.shape)) * sd
    lower = np.tril(noise, -1) / np.sqrt(2.0)
    return SecondMoments(exact + lower + lower.T + np.diag(np.diag(noise)), sd, stage.statement)
