"""Heller and Fetaya's lower bound for unfinished SGLD on one-dimensional regression."""

from __future__ import annotations

import jax
import numpy as np

from private_mcmc.accounting.papers import hf
from private_mcmc.modeling import Box, RowModel
from private_mcmc.preflight.conjugates import normal_facts
from private_mcmc.schedule import Schedule
from private_mcmc.target import Target

_MOST_ROWS = 1_000_000


def interim_lower_bound(row_model: RowModel, schedule: Schedule, target: Target) -> float | None:
    """An ε that a state of this schedule, *unclipped* and started from the prior, does not reach at δ.

    All rows are ``(R, Y)``, or one is ``(R/2, Y/2)``: between burn-in and convergence the two chains are far
    apart, however private the posterior is. ``None`` for other models, batches or releases.

    Source: Heller, Fetaya 2023, Section IV.
    """
    facts, batch = normal_facts(row_model), schedule.batch
    if facts is None or facts.mean != 0 or facts.slope is not None or target.adjacency != "replace_one":
        return None
    cyclic = batch is not None and batch.scheme == "cyclic" and batch.size == 1
    if not cyclic or schedule.release == "path" or isinstance(schedule.step_size, tuple):
        return None
    epochs = schedule.num_steps // schedule.num_rows
    scale = _realised(row_model, facts.high)
    if scale is None or epochs < 1 or not target.delta < 0.5 or schedule.num_rows > _MOST_ROWS:
        return None
    step = 2 * schedule.step_size
    noise = schedule.temper * facts.noise
    if not step / 2 * (facts.precision + schedule.num_rows * scale**2 * noise) < 1:
        return None
    problem = hf.Regression(schedule.num_rows, facts.precision, noise, scale, facts.high / scale, step)
    return hf.lower_bound(problem, epochs, target.delta)


def _realised(row_model: RowModel, response: float) -> float | None:
    """``R > 0`` such that rows of design ``R`` and ``R/2``, outcomes ``response`` and its half, exist."""
    columns = dict(row_model.rows.items)
    if len(columns) != 2 or not all(isinstance(c, Box) and c.event_shape == () for c in columns.values()):
        return None
    predictor = row_model.predictor
    if predictor is None or not response > 0:
        return None
    highs = {name: float(domain.interval()[1]) for name, domain in columns.items()}
    if not all(domain.interval()[0] <= highs[name] / 2 for name, domain in columns.items()):
        return None
    halves = {name: high / 2 for name, high in highs.items()}
    with jax.enable_x64(True):
        full, half = (float(predictor.design(row)[0]) for row in (highs, halves))
    return full if full > 0 and np.isclose(half, full / 2, rtol=1e-12) else None
