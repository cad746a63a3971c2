"""Filling the curator's side of a run: hidden states and averages, and what was done to the rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.domains import Rows
from private_mcmc.domains.presence import PRESENT, holds_person
from private_mcmc.release.curator import Curator
from private_mcmc.release.noise import FloatArray

_FEWEST_DRAWS = 4


def curator_side(
    rows: Rows,
    columns: Mapping[str, npt.NDArray[Any]],
    states: FloatArray | None,
    averages: FloatArray | None,
    clipped_shares: FloatArray | None = None,
) -> Curator:
    """What the curator may look at after a run.

    ``moved_rows``: number of present rows that the domains changed. ``states``: unconstrained states before
    rounding, ``(chains, kept, p)``, and their ``effective_sample_size``; ``averages``: without noise, in
    units of their sensitivity; ``clipped_shares``: of the rows at every chain's last state. What the run did
    not keep is left out.
    """
    values: dict[str, Any] = {"moved_rows": _moved_rows(rows, columns)}
    if averages is not None:
        values["averages"] = averages
    if clipped_shares is not None:
        values["clipped_shares"] = clipped_shares
    if states is not None:
        values["states"] = states
        if states.shape[1] >= _FEWEST_DRAWS:
            from numpyro.diagnostics import effective_sample_size

            with np.errstate(all="ignore"):
                values["effective_sample_size"] = np.asarray(effective_sample_size(states))
    return Curator(values)


def _moved_rows(rows: Rows, columns: Mapping[str, npt.NDArray[Any]]) -> int:
    with jax.enable_x64(True):
        projected = {name: np.asarray(column) for name, column in rows.project(columns).items()}
    moved = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    for name in projected:
        same = projected[name] == np.asarray(columns[name])
        moved |= ~same.reshape(len(same), -1).all(axis=1)
    if PRESENT in columns:
        moved &= holds_person(columns[PRESENT])
    return int(moved.sum())
