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
from private_mcmc.model.row_latents import END, PLAIN_POINTS, POINTS, SPANS, RowLatent, log_total
from private_mcmc.model.sites import Site

Row = Mapping[str, jax.Array]
RowLoss = Callable[[jax.Array, Row], jax.Array]

# Enough where only the size of errors is asked for.
_COARSE = {1: 13, 2: 9}
_ON_A_LINE = ("Normal", "LogNormal")
_MOST = 2


@dataclass(frozen=True, eq=False)
class OwnLatents:
    """The latents of one person among those of a model of one person, and the grid that they are summed over.

    Attributes:
        program: the model of one person with one row.
        sites: the person's own sites.
        shared: positions of all other coordinates in the flat vector.
        own: positions of the person's.
        row_loss: ``(vector, row) ↦`` a row's term, given all of them.
        classes: discrete latents of the person, columns of the row to ``row_loss``.
        coarse: whether the grid has fewer points, for simulations.
    """

    program: Program
    sites: tuple[Site, ...]
    shared: np.ndarray
    own: np.ndarray
    row_loss: RowLoss
    classes: tuple[RowLatent, ...] = ()
    coarse: bool = False

    @property
    def names(self) -> list[str]:
        """Of the person's own sites."""
        return [*(site.name for site in self.sites), *(each.site for each in self.classes)]

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
            return [jnp.linspace(-END, END, PLAIN_POINTS // 2 if self.coarse else PLAIN_POINTS)] * count
        keys = [self.program.outputs[Output("given", site.name, name)] for name in ("loc", "scale")]
        loc, scale = self.program.run(keys, {self.program.inputs["theta"]: at})
        points = (_COARSE if self.coarse else POINTS)[len(self.own)]
        grid = jnp.linspace(-1.0, 1.0, points) * SPANS[len(self.own)] * (0.8 if self.coarse else 1.0)
        centres = jnp.broadcast_to(loc, site.unconstrained_shape).ravel()
        sds = jnp.broadcast_to(scale, site.unconstrained_shape).ravel()
        return [centre + sd * grid for centre, sd in zip(centres, sds, strict=True)]

    def atoms(self, theta: jax.Array) -> tuple[jax.Array, Row, jax.Array]:
        """What a person may be: points of the grid with every class, and the logs of their probabilities."""
        vectors, log_weights = self.grid(theta) if self.sites else (theta[None], jnp.zeros(1))
        counts = [jnp.arange(each.values, dtype=each.domain.dtype) for each in self.classes]
        kinds = [part.ravel() for part in jnp.meshgrid(*counts, indexing="ij")]
        count, repeats = len(vectors), math.prod(each.values for each in self.classes)
        columns = {each.column: jnp.tile(kind, count) for each, kind in zip(self.classes, kinds, strict=True)}
        vectors = jnp.repeat(vectors, repeats, axis=0)
        own = jax.vmap(self.of_classes)(vectors, columns)
        return vectors, columns, jnp.repeat(log_weights, repeats) + own

    def of_classes(self, vector: jax.Array, columns: Row) -> jax.Array:
        """The log probability of a person's classes."""
        if not self.classes:
            return jnp.zeros((), vector.dtype)
        keys = [Output("row", each.site) for each in self.classes]
        given = {self.program.inputs[name]: value for name, value in columns.items()}
        given[self.program.inputs["theta"]] = vector
        found = self.program.run([self.program.outputs[key] for key in keys], given)
        return jnp.sum(jnp.stack([jnp.sum(value) for value in found]))

    def term(self, vector: jax.Array, columns: Row, row: Row) -> jax.Array:
        """A row's term, given all of the person's own."""
        return self.row_loss(vector, {**row, **columns}) + self.of_classes(vector, columns)

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


def own_latents(
    program: Program,
    sites: Sequence[Site],
    plate: str,
    row_loss: RowLoss,
    classes: tuple[RowLatent, ...] = (),
) -> OwnLatents:
    """Those of ``sites`` that lie in the plate of persons."""
    own = tuple(site for site in sites if plate in site.plates)
    values = {program.outputs[Output("value", site.name)] for site in own}
    for site in sites:
        used = program.uses(program.outputs[Output(kind, site.name)] for kind in ("prior", "jacobian"))
        if site not in own and used & values:
            raise NotYetSupported(
                f"the prior of site {site.name!r} depends on latents of plate {plate!r}: what persons share "
                "comes before what each has alone."
            )
        if site in own and site.improper:
            raise DoThisInstead(
                f"site {site.name!r} is a latent of every person, and its density does not integrate to 1 "
                "(ImproperUniform): integrating it out has no meaning. Give it a proper distribution."
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
    read = program.reads([program.outputs[Output("row", each.site)] for each in classes])
    if data := sorted(read - {"theta"} - {each.column for each in classes}):
        raise NotYetSupported(f"discrete latents of persons whose probabilities follow columns {data}.")
    return OwnLatents(program, own, np.setdiff1d(positions, mine), mine, row_loss, classes)


def integrated_loss(own: OwnLatents, theta: jax.Array, person: Row) -> jax.Array:
    """``V``: ``person`` holds columns ``(k, …)`` and which of its rows there are."""
    there = person[OWN_ROWS] > 0

    def placed(column: jax.Array) -> jax.Array:
        # In the place of a row that there is not: the first one, which overflows only where the person does.
        return jnp.where(there.reshape(-1, *(1,) * (column.ndim - 1)), column, column[:1])

    rows = {name: placed(column) for name, column in person.items() if name != OWN_ROWS}
    vectors, columns, log_weights = own.atoms(theta)

    def term(vector: jax.Array, columns: Row, log_weight: jax.Array) -> jax.Array:
        losses = jax.vmap(own.term, in_axes=(None, None, 0))(vector, columns, rows)
        return log_weight - jnp.sum(jnp.where(there, losses, 0.0))

    return -log_total(lambda points: jax.vmap(term)(*points), (vectors, columns, log_weights))


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


NOTHING_PROVED = RowConstants(
    convex=False,
    gradient_bound=math.inf,
    curvature_bound=math.inf,
    range_bound=math.inf,
    why="nothing is proved of integrated latents; clip the persons (clip=…, guarantee='run')",
)
