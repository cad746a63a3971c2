"""What public rows teach a plan: rows that are published already, or are nobody's, chosen without the data.

They shape metric, start and synthetic tables. No statement, certificate or bound rests on them: what they say
only decides where the stages begin, and every stage is priced and enforced as without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.errors import DeclarationError
from private_mcmc.model import RowModel
from private_mcmc.planning.affine import AffinePolicy
from private_mcmc.planning.affine_releases import Public
from private_mcmc.planning.simulate import SYNTHETIC_ROWS, mode_and_sd, with_posterior
from private_mcmc.planning.stages import Array
from private_mcmc.planning.synthetic import Columns, SyntheticData

PublicRows: TypeAlias = Mapping[str, ArrayLike]


def public_columns(reading: RowModel, given: PublicRows) -> Columns:
    """Public rows as the model reads them, mapped into their domains as private ones are.

    Raises:
        DeclarationError: for other columns than the declared ones, or columns of other shapes or lengths.
    """
    declared = reading.rows.columns
    if given.keys() != declared.keys():
        raise DeclarationError(f"public_rows: columns {sorted(given)}, and the rows have {sorted(declared)}.")
    arrays = {name: np.asarray(column) for name, column in given.items()}
    count = len(np.atleast_1d(next(iter(arrays.values()))))
    for name, array in arrays.items():
        shape = (count, *declared[name].event_shape)
        if array.shape != shape or array.dtype.kind not in "biuf" or count == 0:
            raise DeclarationError(f"public_rows: {name!r} has shape {array.shape}, not {shape} of numbers.")
    with jax.enable_x64(True):
        return dict(reading.rows.project(arrays))


def learnt(policy: AffinePolicy, rows: Columns) -> Public:
    """Mode, second moments and curvature of public rows, shrunk as by ``p`` rows of independent columns."""
    count, p = len(next(iter(rows.values()))), policy.dim
    one = np.ones(count)
    start, _ = mode_and_sd(policy, rows, one / policy.temper)
    with jax.enable_x64(True):
        root, at = np.eye(p), jnp.asarray(start)
        design = np.asarray(jax.jit(jax.vmap(lambda row: policy.influence.design(root, row)))(rows))
        curved = np.asarray(
            jax.jit(jax.vmap(lambda row: policy.influence.curvature(1.0, at, root, row)))(rows)
        )
    shrunk = [_shrunk(vectors.T @ vectors / count, p / (count + p)) for vectors in (design, curved)]
    return Public(count, start, *shrunk)


def _shrunk(moments: Array, share: float) -> Array:
    return np.asarray((1 - share) * moments + share * np.diag(np.diag(moments)))


def resampled(policy: AffinePolicy, rows: Columns, seed: int) -> SyntheticData:
    """A synthetic table: public rows drawn with replacement, each of which stands for many."""
    count = len(next(iter(rows.values())))
    chosen = np.random.default_rng(seed).integers(count, size=SYNTHETIC_ROWS)
    drawn = {name: column[chosen] for name, column in rows.items()}
    weights = np.full(SYNTHETIC_ROWS, policy.num_rows / SYNTHETIC_ROWS)
    return with_posterior(policy, drawn, weights)
