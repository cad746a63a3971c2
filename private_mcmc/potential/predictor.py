"""The affine predictors of a row, ``η = A(row)·θ + o(row)``, and the loss as a function of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from private_mcmc.domains.rows import Rows
from private_mcmc.potential.families import UNKNOWN, LikelihoodFamily, separate, total
from private_mcmc.potential.flatten import row_shapes, trace
from private_mcmc.potential.program import Level, Output, Program, Variable, affinity
from private_mcmc.potential.ranges import of_function, up
from private_mcmc.potential.sites import Observation
from private_mcmc.potential.terms import Term, evaluate, find_term
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
        groups: for each term, which predictor it uses.
        free: output names of observed sites that read no latent.
    """

    program: Program
    bases: tuple[Variable, ...]
    terms: tuple[Term, ...] = ()
    groups: tuple[int, ...] = ()
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
        edges = np.cumsum([0, *(program.size(base) for base in self.bases)])
        parts = [
            evaluate(program, term, self.bases[group], eta[edges[group] : edges[group + 1]], given)
            for term, group in zip(self.terms, self.groups, strict=True)
        ]
        free = program.run([program.outputs[key] for key in self.free], given)
        return functools.reduce(jnp.add, [*parts, *(-jnp.asarray(value) for value in free)])

    @property
    def families(self) -> tuple[LikelihoodFamily, ...]:
        """What is proved of the loss as a function of each predictor."""
        if not self.terms:
            return (UNKNOWN,)
        return tuple(
            total(
                [term.family for term, group in zip(self.terms, self.groups, strict=True) if group == index]
            )
            for index in range(max(self.groups) + 1)
        )

    @property
    def family(self) -> LikelihoodFamily:
        """What is proved of the loss as a function of all predictors together."""
        return separate(self.families)


def find_structure(program: Program, rows: Rows, observations: Sequence[Observation]) -> Structure | None:
    """The structure and its predictors: the known families' parameters, or else one scalar cut."""
    levels = affinity(program, "theta")
    rows_of = {site: Output("row", site.name) for site in observations}
    moving = [site for site, key in rows_of.items() if "theta" in program.reads([program.outputs[key]])]
    free = tuple(key for site, key in rows_of.items() if site not in moving)
    terms = [find_term(program, rows, site, levels) for site in moving]
    known = [term for term in terms if term is not None]
    if known and len(known) == len(terms):
        bases = tuple(dict.fromkeys(term.base for term in known))
        groups = tuple(bases.index(term.base) for term in known)
        return Structure(program, bases, tuple(known), groups, free)
    cut = cut_off(program, 1, levels)
    return None if cut is None else Structure(program, (cut,))


def cut_off(
    program: Program, most: float = math.inf, levels: Mapping[Variable, Level] | None = None
) -> Variable | None:
    """The last affine variable of at most so many numbers that cuts the latents off from the loss."""
    loss, known = program.outputs["loss"], affinity(program, "theta") if levels is None else levels
    produced = (output for equation in program.slice([loss]) for output in equation.outvars)
    for variable in reversed([program.inputs["theta"], *produced]):
        affine = known[variable] is Level.AFFINE and program.size(variable) <= most
        if affine and "theta" not in program.reads([loss], [variable]):
            return variable
    return None


_MOST_SEPARATE = 64


@dataclass(frozen=True, eq=False)
class Predictor:
    """``v(θ, row) = ψ(η, row)``, ``η = x(row)·θ + o(row)``: proved from the program of one row.

    Every way from the latents to the row's loss passes through ``η``, and ``η`` is affine in the flat
    unconstrained ``θ``; so the row's gradient is ``ψ'(η)·x`` with ``x`` free of ``θ``.

    Attributes:
        design: ``row ↦ x``, shape ``(p,)``.
        offset: ``row ↦ o``.
        loss: ``(η, row) ↦ ψ``.
        radius: proved bound of ``‖x(row)‖`` over the row domain; ``inf`` if there is none.
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
        radius: proved bound of the spectral norm of ``A(row)`` over the row domain.
        family: proved constants of ``ψ`` as a function of the vector ``η``.
    """

    size: int
    design: Callable[[Row], jax.Array]
    offset: Callable[[Row], jax.Array]
    loss: Callable[[ArrayLike, Row], jax.Array]
    radius: float
    family: LikelihoodFamily


def build(structure: Structure, rows: Rows, dim: int) -> tuple[Predictor | None, MultiPredictor]:
    """The predictors of a structure."""
    eta, loss = structure.eta, structure.loss
    size = sum(structure.program.size(base) for base in structure.bases)
    radius = _norm(eta, rows, dim, size)
    design, offset = functools.partial(_design, eta, dim), functools.partial(_offset, eta, dim)
    several = MultiPredictor(size, design, offset, loss, radius, structure.family)
    if size != 1:
        return None, several
    shift = of_function(offset, rows)
    single = Predictor(
        design=functools.partial(_line, eta, dim, 0),
        offset=lambda row: offset(row)[0],
        loss=loss,
        radius=radius,
        family=structure.family,
        centred=not (np.any(shift.lo) or np.any(shift.hi)),
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


def _origin(dim: int) -> jax.Array:
    return jnp.zeros(dim, jax.dtypes.canonicalize_dtype(np.float64))


def _design(eta: Callable[..., jax.Array], dim: int, row: Row) -> jax.Array:
    return jnp.asarray(jax.jacrev(eta)(_origin(dim), row))


def _line(eta: Callable[..., jax.Array], dim: int, index: int, row: Row) -> jax.Array:
    """One row of ``A``, without the others."""
    return jnp.asarray(jax.grad(lambda theta: eta(theta, row)[index])(_origin(dim)))


def _offset(eta: Callable[..., jax.Array], dim: int, row: Row) -> jax.Array:
    return eta(_origin(dim), row)


def _norm(eta: Callable[..., jax.Array], rows: Rows, dim: int, size: int) -> float:
    """A bound of the spectral norm of ``A``, from the programs of the rows.

    ``‖Aᵀu‖² ≤ m·max_i‖a_i‖²·‖u‖²`` if every coordinate of ``θ`` enters at most ``m`` predictors.
    """
    if size > _MOST_SEPARATE:
        return of_function(lambda row: _design(eta, dim, row), rows).norm
    lines = [of_function(functools.partial(_line, eta, dim, index), rows) for index in range(size)]
    radii = [line.norm for line in lines]
    shared = max(int(sum((line.lo != 0) | (line.hi != 0) for line in lines).max(initial=0)), 1)
    if shared == 1:
        return max(radii)
    together = up(math.hypot(*radii)) if all(map(math.isfinite, radii)) else math.inf
    return min(up(math.sqrt(shared) * max(radii)), together)
