"""How much more people's slopes vary than the model says, as released counts of them tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from private_mcmc.inference.posterior.people import People
from private_mcmc.model import RowModel
from private_mcmc.planning import CountsStage, History, of_rows
from private_mcmc.planning.affine_releases import COUNTS
from private_mcmc.planning.influence_counts import CELLS, InfluenceCounts
from private_mcmc.records import Fields
from private_mcmc.release import Counts


def dispersion(
    reading: RowModel, histories: Sequence[History], rows: People, theta: np.ndarray, n: int
) -> float:
    """Mean square of released slopes over that of the model's outcomes in the same cells, 1 or more.

    Sampling deviates by as much more: the posterior without privacy is taken at the people that there are,
    and where counts vary five times as much as a model says, its mean is √5 of its sds from the parameter.
    1 where nothing was counted, or noise hides it.
    """
    found = [1.0]
    for one in (completed for history in histories for completed in history):
        if not (isinstance(one.stage, CountsStage) and isinstance(one.value, Counts)):
            continue
        # Of slots that may be empty, so many hold somebody by the other releases.
        counted = InfluenceCounts(one.value, n, 0.0, people=float(rows.weights.sum()))
        if one.stage.name != COUNTS["clip"] or counted.hidden:
            continue
        columns: Fields = rows.columns
        cells = np.asarray(of_rows(one.stage.cell, columns)).ravel()
        people = (rows.shares(reading, theta) * rows.weights[:, None]).ravel()
        expected = np.bincount(cells, people, minlength=CELLS).astype(np.float64)
        of_model = InfluenceCounts(replace(one.value, values=expected), n, 0.0)
        found.append(counted.mean_square / max(of_model.mean_square, 1e-300))
    return max(found)
