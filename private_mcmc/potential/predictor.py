"""The affine predictors of a row, ``η = A(row)·θ + o(row)``, and the loss as a function of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.domains.rows import Rows
from private_mcmc.potential.bounds import function_of_rows
from private_mcmc.potential.families import UNKNOWN, LikelihoodFamily, separate, total, up
from private_mcmc.potential.flatten import row_shapes, trace
from private_mcmc.potential.program import Output, Program, Variable, affinity
from private_mcmc.potential.sites import Observation
from private_mcmc.potential.terms import Term, cut_off, find_term
from private_mcmc.records import Fields

Row: TypeAlias = Fields


@dataclass(frozen=True, eq=False)
class Structure:
    """The loss of a row as a function of affine variables of the latents.

    Attributes:
        program: of one row.
        bases: the affine variables.
        terms: the observed sites that read the latents; empty where the families are not recognised and
            one scalar affine variable cuts the latents off from the loss.
        free: output names of observed sites that read no latent.
    """

    program: Program
    bases: tuple[Variable, ...]
    terms: tuple[Term, ...] = ()
    free: tuple[Output, ...] = ()

    def eta(self, theta: jax.Array, row: Row) -> jax.Array:
        """The predictors, one after the other."""
        program = self.program
        values = program.run(self.bases, {program.inputs["theta"]: theta, **program.columns(row)})
        return jnp.concatenate([value.ravel() for value in values])

    def loss(self, eta: ArrayLike, row: Row) -> jax.Array:
        """The row's loss as a function of them."""
        program, given = self.program, self.program.columns(row)
        eta = jnp.asarray(eta).astype(jax.dtypes.canonicalize_dtype(np.float64)).ravel()
        if not self.terms:
            return jnp.reshape(program.run([program.outputs["loss"]], {**given, self.bases[0]: eta})[0], ())
        edges = np.cumsum([program.size(base) for base in self.bases])[:-1]
        parts = dict(zip(self.bases, jnp.split(eta, edges), strict=True))
        losses = [term.loss(program, parts[term.link.base], given) for term in self.terms]
        free = program.run([program.outputs[key] for key in self.free], given)
        return functools.reduce(jnp.add, [*losses, *(-jnp.asarray(value) for value in free)])

    @property
    def family(self) -> LikelihoodFamily:
        """What is proved of the loss as a function of all predictors together."""
        if not self.terms:
            return UNKNOWN
        of = {base: [term.family for term in self.terms if term.link.base is base] for base in self.bases}
        return separate([total(families) for families in of.values()])


def find_structure(program: Program, rows: Rows, observations: Sequence[Observation]) -> Structure | None:
    """The structure and its predictors: the known families' parameters, or else one scalar cut."""
    levels = affinity(program, "theta")
    rows_of = {site: Output("row", site.name) for site in observations}
    moving = [site for site, key in rows_of.items() if "theta" in program.reads([program.outputs[key]])]
    free = tuple(key for site, key in rows_of.items() if site not in moving)
    terms = [find_term(program, rows, site, levels) for site in moving]
    known = [term for term in terms if term is not None]
    if known and len(known) == len(terms):
        bases = tuple(dict.fromkeys(term.link.base for term in known))
        return Structure(program, bases, tuple(known), free)
    cut = cut_off(program, program.outputs["loss"], 1, levels)
    return None if cut is None else Structure(program, (cut,))


@dataclass(frozen=True, eq=False)
class Predictor:
    """``v(θ, row) = ψ(η, row)``, ``η = x(row)·θ + o(row)``: proved from the program of one row.

    Every way from the latents to the row's loss passes through ``η``, and ``η`` is affine in the flat
    unconstrained ``θ``; so the row's gradient is ``ψ'(η)·x`` with ``x`` free of ``θ``.

    Attributes:
        design: ``row ↦ x``, shape ``(p,)``.
        offset: ``row ↦ o``.
        loss: ``(η, row) ↦ ψ``.
        radius: ``R``, at which kernels hold ``‖x(row)‖`` (``kernels/gradient/affine.py``); ``inf`` for none.
            Where it is not proved that no row of the domain is longer, any other may take its place.
        family: proved constants of ``ψ``.
        centred: whether ``o`` is proved to be zero over the row domain.
        reads: the columns that ``loss`` reads; the design, as a rule the widest, is seldom one of them.
    """

    design: Callable[[Row], jax.Array]
    offset: Callable[[Row], jax.Array]
    loss: Callable[[ArrayLike, Row], jax.Array]
    radius: float
    family: LikelihoodFamily
    centred: bool
    reads: frozenset[str]


@dataclass(frozen=True, eq=False)
class MultiPredictor:
    """``v(θ, row) = ψ(η, row)`` with a vector ``η = A(row)·θ + o(row)`` of several predictors.

    Attributes:
        size: ``k``, the number of predictors.
        design: ``row ↦ A``, shape ``(k, p)``.
        offset: ``row ↦ o``, shape ``(k,)``.
        loss: ``(η, row) ↦ ψ``.
        radius: proved bound of the spectral norm of ``A(row)`` over the row domain; ``inf`` if there is none.
        family: proved constants of ``ψ`` as a function of the vector ``η``.
    """

    size: int
    design: Callable[[Row], jax.Array]
    offset: Callable[[Row], jax.Array]
    loss: Callable[[ArrayLike, Row], jax.Array]
    radius: float
    family: LikelihoodFamily


def build(structure: Structure, rows: Rows, dim: int) -> tuple[Predictor | None, MultiPredictor]:
    """The predictors of a structure: the one, if it is one, and all of them as a vector."""
    eta, loss, family = structure.eta, structure.loss, structure.family
    size = sum(structure.program.size(base) for base in structure.bases)
    origin = np.zeros(dim)

    def design(row: Row) -> jax.Array:
        return jnp.asarray(jax.jacrev(eta)(jnp.asarray(origin), row))

    def offset(row: Row) -> jax.Array:
        return eta(jnp.asarray(origin), row)

    def line(index: int, row: Row) -> jax.Array:
        """One row of ``A``, without the others."""
        return jnp.asarray(jax.grad(lambda theta: eta(theta, row)[index])(jnp.asarray(origin)))

    radius = _norm([functools.partial(line, index) for index in range(size)], rows)
    several = MultiPredictor(size, design, offset, loss, radius, family)
    if size != 1:
        return None, several
    shift = function_of_rows(offset, rows)
    single = Predictor(
        design=functools.partial(line, 0),
        offset=lambda row: offset(row)[0],
        loss=loss,
        radius=radius,
        family=family,
        centred=shift is not None and not (np.any(shift.value) or np.any(shift.slope)),
        reads=_read_by_slope(loss, rows),
    )
    return single, several


def _read_by_slope(loss: Callable[[ArrayLike, Row], jax.Array], rows: Rows) -> frozenset[str]:
    """The columns that the loss reads besides the predictor, or a part of it that is free of it."""

    def slope(**row: jax.Array) -> dict[str, jax.Array]:
        value, slope = jax.value_and_grad(loss)(jnp.zeros(()), row)
        return {"slope": slope, "loss": value}

    program = trace(slope, **row_shapes(rows))
    return program.reads(program.outputs.values())


_MOST_LINES = 64


def _norm(lines: Sequence[Callable[[Row], jax.Array]], rows: Rows) -> float:
    """A bound of the spectral norm of ``A``, from its rows.

    ``‖Aᵀu‖² ≤ m·max_i‖a_i‖²·‖u‖²`` if every coordinate of ``θ`` enters at most ``m`` predictors.
    """
    found = [function_of_rows(line, rows) for line in lines[:_MOST_LINES]]
    known = [line for line in found if line is not None]
    if len(known) < len(lines):
        return math.inf
    radii = [line.norm() for line in known]
    shared = sum(np.any(line.value, axis=0) | np.any(line.slope, axis=(0, 2)) for line in known)
    most = max(int(np.max(shared, initial=0)), 1)
    return max(radii) if most == 1 else min(up(math.sqrt(most) * max(radii)), up(math.hypot(*radii)))
