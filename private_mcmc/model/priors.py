"""The prior as it is proposed to kernels: which sites have a line of the table, and what is Gaussian."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.model.flatten import trace
from private_mcmc.model.program import Level, Output, Program, affinity
from private_mcmc.potential.prior import OF_ANY_SIGN, TABLE, OwnPrior, PriorConstants
from private_mcmc.potential.rowwise import abstract
from private_mcmc.potential.sites import Site


def read_prior(program: Program, sites: Sequence[Site], terms: Sequence[str] = ()) -> PriorConstants:
    """The prior of a program of one row. With ``terms`` of latents alone no site is independent of others."""
    own = [] if terms else _with_lines(program, sites)
    named = {part.site.name for part in own}
    rest = [site for site in sites if site.name not in named]
    targets = [program.outputs[key] for key in [*_densities(rest), *(Output("row", name) for name in terms)]]
    where = np.concatenate(
        [np.zeros(0, int), *(np.arange(site.slice.start, site.slice.stop) for site in rest)]
    )
    dim = program.shape(program.inputs["theta"])[0]

    def potential(theta: jax.Array) -> jax.Array:
        return -jnp.sum(jnp.stack(program.run(targets, {program.inputs["theta"]: theta})))

    slope = jax.grad(lambda u: potential(jnp.zeros(dim, u.dtype).at[where].set(u)))
    gaussian = _quadratic(slope, len(where)) if rest else None
    names = ", ".join([*(site.name for site in rest), *terms])
    missing = f"{names}: no prior with proved curvature (on its own, or jointly Gaussian)"
    return PriorConstants(sites, own, potential, gaussian, missing, tuple(terms))


def _with_lines(program: Program, sites: Sequence[Site]) -> list[OwnPrior]:
    """The sites with a line of the table that depend on no other, whose parameters are public."""
    uses = {site.name: program.uses(program.outputs[key] for key in _densities([site])) for site in sites}
    values = {site.name: program.outputs[Output("value", site.name)] for site in sites}

    def coupled(name: str, other: str) -> bool:
        return name != other and (values[other] in uses[name] or values[name] in uses[other])

    lines = [
        (site, TABLE[site.family, site.support])
        for site in sites
        if (site.family, site.support) in TABLE and not any(coupled(site.name, other) for other in uses)
    ]
    keys = [Output("given", site.name, name) for site, line in lines for name in line.names]
    known = [key for key in keys if key in program.outputs and not program.reads([program.outputs[key]])]
    values_of = (value.astype(np.float64) for value in program.evaluate(known))
    public = dict(zip(known, values_of, strict=True))
    found = []
    for site, line in lines:
        given = [public.get(Output("given", site.name, name), np.nan) for name in line.names]
        fits = [
            np.all(np.isfinite(value)) and (name in OF_ANY_SIGN or np.all(value > 0))
            for name, value in zip(line.names, given, strict=True)
        ]
        if all(fits):
            found.append(OwnPrior(site, line, [np.broadcast_to(v, site.unconstrained_shape) for v in given]))
    return found


def _densities(sites: Sequence[Site]) -> list[Output]:
    return [Output(kind, site.name) for kind in ("prior", "jacobian") for site in sites]


def _quadratic(slope: Callable[[jax.Array], jax.Array], size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Slope at zero and Hessian of a potential whose slope is proved affine, or ``None``.

    Such a potential is quadratic: its second derivative anywhere is its second derivative everywhere.
    """
    first = trace(lambda u: {"slope": slope(u)}, u=abstract((size,), np.float64))
    if affinity(first, "u")[first.outputs["slope"]] is Level.UNKNOWN:
        return None
    shape = abstract((size,), np.float64)
    both = trace(lambda u: {"slope": slope(u), "second": jax.jacfwd(slope)(u)}, u=shape)
    at_zero, second = both.evaluate(["slope", "second"], u=np.zeros(size))
    even = np.allclose(second, second.T, rtol=1e-9, atol=1e-12)
    return (at_zero, (second + second.T) / 2) if even and np.all(np.isfinite(second)) else None
