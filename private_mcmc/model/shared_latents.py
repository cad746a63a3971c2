"""What persons with latents of their own share: sites, prior and values, as those of a model without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.ir.program import Output, Vector
from private_mcmc.model.priors.prior import PriorConstants, neg_log_prior, prior_constants
from private_mcmc.model.sites import Site


def shared_prior(
    own: OwnLatents, sites: Sequence[Site]
) -> tuple[PriorConstants, Callable[[jax.Array], jax.Array]]:
    """What is proved of the prior of the shared latents, and ``θ ↦ K``."""
    rest = [site for site in sites if site not in own.sites]
    known = prior_constants(own.program, rest)
    hessian = known.hessian
    if hessian is not None:
        hessian = hessian[own.shared] if hessian.ndim == 1 else hessian[np.ix_(own.shared, own.shared)]
    here = replace(known, lower=known.lower[own.shared], upper=known.upper[own.shared], hessian=hessian)

    def potential(theta: jax.Array) -> jax.Array:
        vector = own.embed(theta, jnp.zeros(len(own.own), theta.dtype)).whole()
        return neg_log_prior(own.program, rest, known, vector)

    return here, potential


def shared_sites(own: OwnLatents, sites: Sequence[Site]) -> tuple[Site, ...]:
    """The other sites, laid one after another."""
    start, found = 0, []
    for site in sites:
        if site not in own.sites:
            count = site.slice.stop - site.slice.start
            found.append(replace(site, slice=slice(start, start + count)))
            start += count
    return tuple(found)


def shared_values(
    own: OwnLatents,
    constrain: Callable[[Vector], dict[str, jax.Array]],
    names: frozenset[str],
    theta: jax.Array,
) -> dict[str, jax.Array]:
    """Values of the sites ``names``, which read none of a person's own."""
    vector = own.embed(theta, jnp.zeros(len(own.own), theta.dtype))
    return {name: value for name, value in constrain(vector).items() if name in names}


def free_of_own(own: OwnLatents) -> frozenset[str]:
    """Names of the sites, deterministic ones among them, that depend on none of a person's own latents."""
    program = own.program
    hidden = {program.outputs[Output("value", site.name)] for site in own.sites}
    return frozenset(
        key.site
        for key, variable in program.outputs.items()
        if isinstance(key, Output)
        and key.kind in ("value", "deterministic")
        and not program.uses([variable]) & hidden
    )
