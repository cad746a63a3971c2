"""Latents of a person, integrated out: the person's term is minus the log of a finite sum over a public grid.

``V(θ, person) = −log Σ_q ω_q(θ) Π_rows p(row | θ, u_q(θ))`` with ``Σ_q ω_q = 1`` for every ``θ``. This sum is
the model that is sampled, and statements are about it; how far it is from the integral is accuracy. It is
not convex, even where the integral is. What persons share is that of a model without these latents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.persons import OWN_ROWS
from private_mcmc.domains.rows import Rows, few_values
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model.ir.program import Output, Pieces, Program, Vector
from private_mcmc.model.prior import PriorConstants, neg_log_prior, prior_constants
from private_mcmc.model.row_latents import END, PLAIN_POINTS, POINTS, SPANS, RowLatent, log_total
from private_mcmc.model.sites import Site

Row = Mapping[str, jax.Array]
Kinds = Mapping[str, np.ndarray]
RowLoss = Callable[[Vector, Row], jax.Array]

# Enough where only the size of errors is asked for.
_COARSE = {1: 13, 2: 9}
_ON_A_LINE = ("Normal", "LogNormal")
_MOST = 2
# Kinds of rows at a point whose gradient takes as long as that of a row's term there.
_OF_A_TERM = 8


@dataclass(frozen=True, eq=False)
class OwnLatents:
    """The latents of one person among those of a model of one person, and the grid that they are summed over.

    Attributes:
        program: the model of one person with one row.
        sites: the person's own sites.
        shared: positions of all other coordinates in the flat vector.
        own: positions of the person's.
        row_loss: ``(vector, row) ↦`` a row's term, given all of them; ``vector`` may be in pieces.
        classes: discrete latents of the person, columns of the row to ``row_loss``.
        coarse: whether the grid has fewer points, for simulations.
        kinds: all that a row can be, as columns ``(kinds,)``, where that is little: what each says is then
            computed once for all persons.
    """

    program: Program
    sites: tuple[Site, ...]
    shared: np.ndarray
    own: np.ndarray
    row_loss: RowLoss
    classes: tuple[RowLatent, ...] = ()
    coarse: bool = False
    kinds: Kinds | None = None

    @property
    def names(self) -> list[str]:
        """Of the person's own sites."""
        return [*(site.name for site in self.sites), *(each.site for each in self.classes)]

    def atoms_of(self) -> int:
        """How many things a person may be."""
        origin = jnp.zeros(len(self.shared), jax.dtypes.canonicalize_dtype(np.float64))
        return len(jax.eval_shape(self.atoms, origin)[2])

    def work(self, rows: int) -> float:
        """What the gradient of a person with so many rows takes, in terms of a row at a point."""
        each = rows if self.kinds is None else len(next(iter(self.kinds.values()))) / _OF_A_TERM
        return self.atoms_of() * each

    def embed(self, theta: jax.Array, own: jax.Array) -> Pieces:
        """The flat vector of the model of one person."""
        return Pieces((theta, own), (self.shared, self.own))

    def _points(self, theta: jax.Array) -> jax.Array:
        """The grid ``u_q(θ)``, unconstrained, ``(points, own)``; of a Normal in units of its sd."""
        at = self.embed(theta, jnp.zeros(len(self.own), theta.dtype))
        lines = [line for site in self.sites for line in self._lines(site, at)]
        return jnp.stack([part.ravel() for part in jnp.meshgrid(*lines, indexing="ij")], axis=-1)

    def _lines(self, site: Site, at: Pieces) -> list[jax.Array]:
        count = site.slice.stop - site.slice.start
        if site.family not in _ON_A_LINE:
            return [jnp.linspace(-END, END, PLAIN_POINTS // 2 if self.coarse else PLAIN_POINTS)] * count
        keys = [self.program.outputs[Output("given", site.name, name)] for name in ("loc", "scale")]
        loc, scale = self.program.run(keys, {self.program.inputs["theta"]: at})
        points = (_COARSE if self.coarse else POINTS)[len(self.own)]
        grid = jnp.linspace(-1.0, 1.0, points) * SPANS[len(self.own)] * (0.8 if self.coarse else 1.0)
        centres, sds = (jnp.broadcast_to(end, site.unconstrained_shape).ravel() for end in (loc, scale))
        return [centre + sd * grid for centre, sd in zip(centres, sds, strict=True)]

    def atoms(self, theta: jax.Array) -> tuple[jax.Array, Row, jax.Array]:
        """What a person may be: points of the grid with every class, and the logs of their probabilities."""
        points, log_weights = self.grid(theta)
        counts = [jnp.arange(each.values, dtype=each.domain.dtype) for each in self.classes]
        kinds = [part.ravel() for part in jnp.meshgrid(*counts, indexing="ij")]
        count, repeats = len(points), math.prod(each.values for each in self.classes)
        columns = {each.column: jnp.tile(kind, count) for each, kind in zip(self.classes, kinds, strict=True)}
        points = jnp.repeat(points, repeats, axis=0)
        own = jax.vmap(lambda *each: self.of_classes(theta, *each))(points, columns)
        return points, columns, jnp.repeat(log_weights, repeats) + own

    def of_classes(self, theta: jax.Array, own: jax.Array, columns: Row) -> jax.Array:
        """The log probability of a person's classes."""
        if not self.classes:
            return jnp.zeros((), theta.dtype)
        keys = [Output("row", each.site) for each in self.classes]
        given = {self.program.inputs[name]: value for name, value in columns.items()}
        vector = {self.program.inputs["theta"]: self.embed(theta, own)}
        found = self.program.run([self.program.outputs[key] for key in keys], given | vector)
        return jnp.sum(jnp.stack([jnp.sum(value) for value in found]))

    def term(self, theta: jax.Array, own: jax.Array, columns: Row, row: Row) -> jax.Array:
        """A row's term, given all of the person's own."""
        loss = self.row_loss(self.embed(theta, own), {**row, **columns})
        return loss + self.of_classes(theta, own, columns)

    def grid(self, theta: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The points ``(points, own)`` of the grid, and ``log ω_q``, normalised over it."""
        if not self.sites:
            return jnp.zeros((1, 0), theta.dtype), jnp.zeros(1)
        points = self._points(theta)
        keys = [Output(kind, site.name) for kind in ("prior", "jacobian") for site in self.sites]

        def density(own: jax.Array) -> jax.Array:
            given = {self.program.inputs["theta"]: self.embed(theta, own)}
            values = self.program.run([self.program.outputs[key] for key in keys], given)
            return jnp.sum(jnp.stack([jnp.sum(value) for value in values]))

        return points, jax.nn.log_softmax(jax.vmap(density)(points))


def own_latents(
    program: Program,
    sites: Sequence[Site],
    plate: str,
    row_loss: RowLoss,
    classes: tuple[RowLatent, ...] = (),
    kinds: Kinds | None = None,
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
    return OwnLatents(program, own, np.setdiff1d(positions, mine), mine, row_loss, classes, kinds=kinds)


def kinds_of(rows: Rows, at_most: int) -> Kinds | None:
    """Every combination of values of the columns, where they are few beside a person's ``at_most`` rows."""
    cases = list(few_values(rows))
    if len(cases[0]) < len(rows.items) or len(cases) > _OF_A_TERM * at_most:
        return None
    return {
        name: np.array([case[name] for case in cases]).astype(domain.dtype) for name, domain in rows.items
    }


def integrated_loss(own: OwnLatents, theta: jax.Array, person: Row) -> jax.Array:
    """``V``: ``person`` holds columns ``(k, …)`` and which of its rows there are."""
    if own.kinds is not None:
        return _of_kinds(own, own.kinds, theta, person)
    there = person[OWN_ROWS] > 0

    def placed(column: jax.Array) -> jax.Array:
        # In the place of a row that there is not: the first one, which overflows only where the person does.
        return jnp.where(there.reshape(-1, *(1,) * (column.ndim - 1)), column, column[:1])

    rows = {name: placed(column) for name, column in person.items() if name != OWN_ROWS}

    def term(point: jax.Array, columns: Row, log_weight: jax.Array) -> jax.Array:
        losses = jax.vmap(lambda row: own.term(theta, point, columns, row))(rows)
        return log_weight - jnp.sum(jnp.where(there, losses, 0.0))

    return -log_total(lambda atoms: jax.vmap(term)(*atoms), own.atoms(theta))


# A term of this size has a likelihood of 0, however many rows a person has.
_IMPOSSIBLE = 1e30


def _of_kinds(own: OwnLatents, kinds: Kinds, theta: jax.Array, person: Row) -> jax.Array:
    """The same from how many rows of each kind the person has: the terms of kinds are the same for everybody.

    A term that overflows has no gradient: in the place of its point stands one where the kind is likeliest.
    """
    points, columns, log_weights = own.atoms(theta)

    def at(points: jax.Array, columns: Row) -> jax.Array:
        return jax.vmap(lambda *each: own.term(theta, *each))(points, columns, kinds)

    count = len(next(iter(kinds.values())))
    each = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], count, axis=1), (points, columns))
    found = jax.lax.stop_gradient(jax.vmap(at)(*each))
    possible = jnp.isfinite(found) & (found < _IMPOSSIBLE)
    best = jnp.argmin(jnp.where(possible, found, jnp.inf), axis=0)

    def placed(leaf: jax.Array) -> jax.Array:
        shown = possible.reshape(*possible.shape, *(1,) * (leaf.ndim - 2))
        return jnp.where(shown, leaf, leaf[best, jnp.arange(count)])

    losses = jnp.where(possible, jax.vmap(at)(*jax.tree.map(placed, each)), _IMPOSSIBLE)
    same = jnp.stack([person[name][:, None] == values for name, values in kinds.items()])
    has = jnp.all(same, axis=0) & (person[OWN_ROWS] > 0)[:, None]
    return -jax.nn.logsumexp(log_weights - losses @ jnp.sum(has, axis=0).astype(losses.dtype))


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
    own: OwnLatents, constrain: Callable[[Vector], dict[str, jax.Array]]
) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """``θ ↦`` values of the sites, deterministic ones too, that depend on none of a person's own latents."""
    program = own.program
    hidden = {program.outputs[Output("value", site.name)] for site in own.sites}
    names = {
        key.site
        for key, variable in program.outputs.items()
        if isinstance(key, Output) and key.kind in ("value", "deterministic")
        if not program.uses([variable]) & hidden
    }

    def values(theta: jax.Array) -> dict[str, jax.Array]:
        vector = own.embed(theta, jnp.zeros(len(own.own), theta.dtype))
        return {name: value for name, value in constrain(vector).items() if name in names}

    return values
