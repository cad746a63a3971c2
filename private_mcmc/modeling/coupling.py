"""Does the sum of the rows' own terms equal the whole model? A check for mistakes, on public rows.

Soundness does not rest on it: the potential that is sampled *is* the sum of one-row terms and the prior.
The check makes sure that this is also what the user wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DoThisInstead
from private_mcmc.modeling.rows import Rows
from private_mcmc.modeling.tracing import Anatomy, Model, terms

_COUNT = 7
_SCALES = (0.0, 0.3, 1.0, 3.0)


def refuse_coupled_rows(
    model: Model, model_args: Mapping[str, Any], rows: Rows, anatomy: Anatomy, key: jax.Array
) -> None:
    """Compare, at random parameters and synthetic rows, each observed site with its rows' own terms.

    Raises:
        DoThisInstead: where they differ; the message names the site and the columns that couple rows.
    """
    function = terms(model, model_args, anatomy.latents)
    names = [site.name for site in anatomy.observations]

    def observed(theta: jax.Array, data: Mapping[str, jax.Array]) -> jax.Array:
        values = function(theta, **data)
        return jnp.stack([values[f"row:{name}"] for name in names])

    @jax.jit
    def both(thetas: jax.Array, data: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        single = {name: column[:, None] for name, column in data.items()}
        whole = jax.vmap(lambda theta: observed(theta, data))(thetas)
        alone = jax.vmap(lambda theta: jax.vmap(lambda row: observed(theta, row))(single))(thetas)
        return whole, alone

    row_key, theta_key = jax.random.split(key)
    data = jax.jit(lambda seed: rows.synthetic(seed, _COUNT))(row_key)
    thetas = jax.random.normal(theta_key, (len(_SCALES), anatomy.dim)) * jnp.asarray(_SCALES)[:, None]
    whole, alone = (np.asarray(values) for values in both(thetas, data))
    summed, size = alone.sum(axis=1), np.abs(alone).sum(axis=1)
    for index, name in enumerate(names):
        finite = np.isfinite(whole[:, index]) & np.isfinite(summed[:, index])
        with np.errstate(invalid="ignore"):
            same = np.abs(whole[:, index] - summed[:, index]) <= 1e-7 * (1 + size[:, index])
        # Both may overflow together (an unbounded column under exp); never one alone.
        together = np.isfinite(whole[:, index]) == np.isfinite(summed[:, index])
        if not np.all(together & (same | ~finite)):
            raise DoThisInstead(_mismatch(name, _coupling(both, thetas, data, index), anatomy))
        if not np.any(finite):
            raise DoThisInstead(
                f"site {name!r}: its log density is not finite on any synthetic row of the declared domain; "
                "declare the domain of its columns so that every row is possible under the model."
            )


def _coupling(both: Any, thetas: jax.Array, data: Mapping[str, jax.Array], index: int) -> list[str]:
    """Columns whose reordering changes what the whole model makes of the site beyond reordering its rows."""
    coupled = []
    for column in data:
        changed = {name: values[:1].repeat(len(values), 0) for name, values in data.items() if name != column}
        first = {**changed, column: data[column]}
        whole, alone = both(thetas, first)
        gap = np.asarray(whole)[:, index] - np.asarray(alone).sum(axis=1)[:, index]
        if not np.all(np.abs(gap) <= 1e-7 * (1 + np.abs(np.asarray(alone)).sum(axis=1)[:, index])):
            coupled.append(column)
    return coupled


def _mismatch(name: str, columns: list[str], anatomy: Anatomy) -> str:
    site = next(site for site in anatomy.observations if site.name == name)
    fixed = sorted(plate for plate, size in anatomy.plates.items() if plate in site.plates and size > 1)
    causes = [
        f"its rows are not inside a plate ({name!r} has none)" if not site.plates else "",
        f"plate {', '.join(fixed)} has a size that does not follow the number of rows" if fixed else "",
        f"the model mixes rows of column {', '.join(columns)} (centring, sorting, a lag)" if columns else "",
        "its term depends on the number of rows (pass a public n through model_args)",
    ]
    return (
        f"site {name!r}: the sum of the rows' own log densities differs from that of the whole model. "
        f"Likely: {'; '.join(cause for cause in causes if cause)}. Every row needs a term of its own: "
        "compute such columns beforehand from public facts, and put observed sites inside "
        "`numpyro.plate(…, X.shape[0])`."
    )
