"""Latents of a person, integrated out: the person's term is minus the log of a finite sum over a public grid.

``V(θ, person) = −log Σ_q ω_q(θ) Π_rows p(row | θ, u_q(θ))`` with ``Σ_q ω_q = 1`` for every ``θ``. This sum is
the model that is sampled, and statements are about it; how far it is from the integral is accuracy. It is
not convex, even where the integral is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model.ir.program import Output, Program
from private_mcmc.model.priors.prior import PriorConstants, neg_log_prior, prior_constants
from private_mcmc.model.row_constants import RowConstants
from private_mcmc.model.sites import Site

Row = Mapping[str, jax.Array]
RowLoss = Callable[[jax.Array, Row], jax.Array]

# Prior sds that the grid spans on either side, and its points, for one latent and for two. With spacing h a
# sum over a grid misses a Gaussian integrand of sd s by about exp(−2π²s²/h²) of it.
SPANS, POINTS = {1: 6.0, 2: 5.0}, {1: 41, 2: 21}
# Of other families: the ends on the unconstrained line, and the points.
END, PLAIN_POINTS = 8.0, 65
_ON_A_LINE = ("Normal", "LogNormal")
_MOST = 2
SEVERAL = 3
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class OwnLatents:
    """The latents of one person among those of a model of one person, and the grid that they are summed over.

    Attributes:
        program: the model of one person with one row.
        sites: the person's own sites.
        shared: positions of all other coordinates in the flat vector.
        own: positions of the person's.
        row_loss: ``(vector, row) ↦`` a row's term, given all of them.
    """

    program: Program
    sites: tuple[Site, ...]
    shared: np.ndarray
    own: np.ndarray
    row_loss: RowLoss

    def embed(self, theta: jax.Array, own: jax.Array) -> jax.Array:
        """The flat vector of the model of one person."""
        empty = jnp.zeros(len(self.shared) + len(self.own), theta.dtype)
        return empty.at[self.shared].set(theta).at[self.own].set(own)

    def _points(self, theta: jax.Array) -> jax.Array:
        """The grid ``u_q(θ)`` on the unconstrained space, shape ``(points, own)``.

        Of a Normal it is laid over the mean in units of the sd, and follows ``θ``.
        """
        at = self.embed(theta, jnp.zeros(len(self.own), theta.dtype))
        lines = [line for site in self.sites for line in self._lines(site, at)]
        return jnp.stack([part.ravel() for part in jnp.meshgrid(*lines, indexing="ij")], axis=-1)

    def _lines(self, site: Site, at: jax.Array) -> list[jax.Array]:
        count = site.slice.stop - site.slice.start
        if site.family not in _ON_A_LINE:
            return [jnp.linspace(-END, END, PLAIN_POINTS)] * count
        keys = [self.program.outputs[Output("given", site.name, name)] for name in ("loc", "scale")]
        loc, scale = self.program.run(keys, {self.program.inputs["theta"]: at})
        grid = jnp.linspace(-1.0, 1.0, POINTS[len(self.own)]) * SPANS[len(self.own)]
        centres = jnp.broadcast_to(loc, site.unconstrained_shape).ravel()
        sds = jnp.broadcast_to(scale, site.unconstrained_shape).ravel()
        return [centre + sd * grid for centre, sd in zip(centres, sds, strict=True)]

    def grid(self, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The flat vectors of the model of one person on the grid, and ``log ω_q``, normalised over it."""
        vectors = jax.vmap(self.embed, in_axes=(None, 0))(theta, self._points(theta))
        keys = [Output(kind, site.name) for kind in ("prior", "jacobian") for site in self.sites]

        def density(vector: jax.Array) -> jax.Array:
            values = self.program.run(
                [self.program.outputs[key] for key in keys], {self.program.inputs["theta"]: vector}
            )
            return jnp.sum(jnp.stack([jnp.sum(value) for value in values]))

        return vectors, jax.nn.log_softmax(jax.vmap(density)(vectors))


def own_latents(program: Program, sites: Sequence[Site], plate: str, row_loss: RowLoss) -> OwnLatents:
    """Those of ``sites`` that lie in the plate of persons.

    Raises:
        NotYetSupported: for more than two numbers for a person, or others whose prior depends on them.
    """
    own = tuple(site for site in sites if plate in site.plates)
    values = {program.outputs[Output("value", site.name)] for site in own}
    for site in sites:
        used = program.uses(program.outputs[Output(kind, site.name)] for kind in ("prior", "jacobian"))
        if site not in own and used & values:
            raise NotYetSupported(
                f"the prior of site {site.name!r} depends on latents of plate {plate!r}: what persons share "
                "comes before what each has alone."
            )
        if site in own and site.plates != (plate,):
            raise NotYetSupported(
                f"site {site.name!r} lies in plates {site.plates}; of persons' latents only {plate!r}."
            )
    positions = np.arange(sites[-1].slice.stop)
    mine = np.concatenate([positions[site.slice] for site in own]) if own else positions[:0]
    if len(mine) > _MOST:
        names = ", ".join(repr(site.name) for site in own)
        raise NotYetSupported(
            f"plate {plate!r}: each person has {len(mine)} latent numbers ({names}), and at most {_MOST} are "
            "integrated out; share some among persons."
        )
    return OwnLatents(program, own, np.setdiff1d(positions, mine), mine, row_loss)


def integrated_loss(own: OwnLatents, theta: jax.Array, person: Row) -> jax.Array:
    """``V``: ``person`` holds columns ``(k, …)`` and which of its rows there are."""
    rows = {name: column for name, column in person.items() if name != OWN_ROWS}
    vectors, log_weights = own.grid(theta)

    def of_rows(vector: jax.Array) -> jax.Array:
        losses = jax.vmap(own.row_loss, in_axes=(None, 0))(vector, rows)
        return jnp.sum(jnp.where(person[OWN_ROWS] > 0, losses, 0.0))

    terms = log_weights - jax.vmap(of_rows)(vectors)
    return -jax.nn.logsumexp(terms)


def of_one_row(loss: RowLoss, theta: jax.Array, row: Row) -> jax.Array:
    """The term of a person with one row."""
    person = {name: jnp.asarray(value)[None] for name, value in row.items()}
    return loss(theta, {**person, OWN_ROWS: jnp.ones(1, int)})


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
        vector = own.embed(theta, jnp.zeros(len(own.own), theta.dtype))
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
    constrain: Callable[[jax.Array], dict[str, jax.Array]],
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
        values = {
            site.name: jnp.concatenate([value[site.name] for value in each])
            if site in own.sites
            else each[0][site.name]
            for site in sites
        }
        of_rows = [
            -float(
                own.row_loss(vectors[index % SEVERAL], {name: column[index] for name, column in rows.items()})
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
        gaps.append(joint(values) - math.fsum([*of_rows, *priors]))
        sizes.append(1 + sum(map(abs, [*of_rows, *priors])))
    if not np.all(np.abs(np.subtract(gaps, gaps[0])) <= _TOLERANCE * np.add(sizes, sizes[0])):
        names = ", ".join(repr(site.name) for site in own.sites)
        raise DoThisInstead(
            f"site {names}: a row's term is no function of its own person's latents and of those that "
            "all share. Index the latents of persons by the identifiers, "
            "as in u[person], and by nothing else."
        )


NOTHING_PROVED = RowConstants(
    convex=False,
    gradient_bound=math.inf,
    curvature_bound=math.inf,
    range_bound=math.inf,
    why="nothing is proved of integrated latents; clip the persons (clip=…, guarantee='run')",
)
