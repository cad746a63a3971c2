"""Whether the fit explains its releases: each of them beside what the fitted people would have released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from private_mcmc.inference.posterior.likelihood import Terms, off_and_covariance
from private_mcmc.inference.posterior.outcomes import outcome_of
from private_mcmc.inference.posterior.people import People
from private_mcmc.model import RowModel
from private_mcmc.report import number

Array: TypeAlias = npt.NDArray[np.float64]

# A fit that is right is said to explain too little in so many runs at most.
_ERROR_RATE = 1e-3
# So many outcomes beyond their declared range, by the fit, are worth a word.
_BEYOND = 0.01


def unexplained(
    reading: RowModel, names: Sequence[str], matrices: Sequence[Array], terms: Terms, at: Array
) -> tuple[str, ...]:
    """A sentence where a release is further from its fitted mean than noise and sampling allow.

    The squares of all entries, in their sds, are about χ² where the fit is right, or smaller, since it
    follows its releases: beyond the quantile of ``1e-3`` over their number is one fit in 1,000 at most.

    Args:
        names: of the stages that released matrices.
        matrices: less their fitted means, in sds of noise and of sampling, ``(entries,)`` each.
        terms: of the paths' likelihood.
        at: the parameter and the two numbers of the misfit.
    """
    off, covariance = (np.asarray(each) for each in off_and_covariance(reading, terms, jnp.asarray(at)))
    offs = [
        *zip(names, matrices, strict=True),
        ("paths", np.linalg.solve(np.linalg.cholesky(covariance), off)),
    ]
    worst: dict[str, float] = {}
    for name, found in offs:
        if chi2.sf(float(found @ found), len(found)) < _ERROR_RATE / len(offs):
            worst[name] = max(worst.get(name, 0.0), float(np.abs(found).max()))
    if not worst:
        return ()
    parts = ", ".join(f"{name} (off by up to {number(size, 2)} sds)" for name, size in worst.items())
    return (
        f"The fitted model does not explain all of its releases: {parts}. Chance alone does that in one "
        "run of 1,000. Outcomes vary otherwise than the model says, or columns are distributed otherwise "
        "than those of the synthetic people that intervals are computed on: intervals may be too narrow.",
    )


def beyond_range(reading: RowModel, people: People, theta: Array) -> tuple[str, ...]:
    """A sentence where the fitted law has many outcomes beyond their declared range, which cuts them."""
    outcome = outcome_of(reading)
    if outcome is None or people.outcomes.shape[1] < 2 or reading.unit is not None:
        return ()
    outside = (people.outcomes < outcome.low) | (people.outcomes > outcome.high)
    shares = (people.shares(reading, theta) * outside).sum(axis=1)
    share = float(people.weights @ shares) / float(people.weights.sum())
    if not share > _BEYOND:
        return ()
    return (
        f"By the fitted model {number(100 * share, 2)} % of all outcomes lie beyond their declared range. "
        "Where people did, they counted as the nearest bound, which pulls effects towards zero: declare a "
        "wider range. Where nobody can, the model is wrong there.",
    )
