"""Does a row's term read its own person's latents alone? NumPyro's own density of several persons tells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.errors import DoThisInstead
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.ir.program import Output
from private_mcmc.model.sites import Site

SEVERAL = 3
_TOLERANCE = 1e-6


def refuse_other_persons(
    own: OwnLatents,
    sites: Sequence[Site],
    constrain: Callable[[jax.Array], Mapping[str, jax.Array]],
    rows: Mapping[str, np.ndarray],
    joint: Callable[[Mapping[str, jax.Array]], float],
) -> None:
    """Compare NumPyro's own density of several persons' rows with that of each person by herself.

    ``joint`` is the log density of the model of ``SEVERAL`` persons at values of all its latents, with row
    ``i`` of ``rows`` that of person ``i`` modulo ``SEVERAL``. Only differences between points count.

    Raises:
        DoThisInstead: where they differ: a row's term reads the latents of another person.
    """
    gaps, sizes = [], []
    for scale in (0.0, 0.5, 1.5):
        random = np.random.default_rng(0)
        theta = jnp.asarray(scale * random.normal(size=len(own.shared)))
        vectors = [
            own.embed(theta, jnp.asarray(scale * random.normal(size=len(own.own)))) for _ in range(SEVERAL)
        ]
        each = [constrain(vector) for vector in vectors]
        kinds = [
            {one.column: jnp.asarray(index % one.values, one.domain.dtype) for one in own.classes}
            for index in range(SEVERAL)
        ]
        values = {
            site.name: jnp.concatenate([value[site.name] for value in each])
            if site in own.sites
            else each[0][site.name]
            for site in sites
        } | {one.site: jnp.stack([kind[one.column] for kind in kinds]) for one in own.classes}
        of_rows = [
            -float(
                own.term(
                    vectors[index % SEVERAL],
                    kinds[index % SEVERAL],
                    {name: column[index] for name, column in rows.items()},
                )
            )
            for index in range(len(next(iter(rows.values()))))
        ]
        priors = [
            float(
                jnp.sum(
                    own.program.run(
                        [own.program.outputs[Output("prior", site.name)]],
                        {own.program.inputs["theta"]: vector},
                    )[0]
                )
            )
            for site in sites
            for vector in (vectors if site in own.sites else vectors[:1])
        ]
        priors += [float(own.of_classes(*pair)) for pair in zip(vectors, kinds, strict=True)]
        gaps.append(joint(values) - math.fsum([*of_rows, *priors]))
        sizes.append(1 + sum(map(abs, [*of_rows, *priors])))
    if not np.all(np.abs(np.subtract(gaps, gaps[0])) <= _TOLERANCE * np.add(sizes, sizes[0])):
        names = ", ".join(repr(name) for name in own.names)
        raise DoThisInstead(
            f"site {names}: a row's term is no function of its own person's latents and of those that "
            "all share. Index the latents of persons by the identifiers, "
            "as in u[person], and by nothing else."
        )
