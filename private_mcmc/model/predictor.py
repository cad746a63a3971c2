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
from private_mcmc.model.families import UNKNOWN, LikelihoodFamily, separate, total
from private_mcmc.model.program import Level, Output, Program, Variable, affinity
from private_mcmc.model.ranges import of_function, up
from private_mcmc.model.sites import Observation
from private_mcmc.model.terms import Term, evaluate, find_term
from private_mcmc.records import Fields


@dataclass(frozen=True, eq=False)
class Structure:
    """The loss of a row as a function of affine variables of the latents.

    Attributes:
        terms: the observed sites that read the latents; empty where the families are not recognised and
            one scalar affine variable cuts the latents off from the loss.
        groups: for each term, which predictor it uses.
        free: output names of observed sites that read no latent.
    """

    terms: tuple[Term, ...]
    groups: tuple[int, ...]
    free: tuple[Output, ...]

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


def find_structure(
    program: Program, rows: Rows, observations: Sequence[Observation]
) -> tuple[Structure, tuple[Variable, ...]] | None:
    """The structure and its predictors: the known families' parameters, or else one scalar cut."""
    levels = affinity(program, "theta")
    rows_of = {site: Output("row", site.name) for site in observations}
    moving = [site for site, key in rows_of.items() if "theta" in program.reads([program.outputs[key]])]
    free = tuple(key for site, key in rows_of.items() if site not in moving)
    terms = [find_term(program, rows, site, levels) for site in moving]
    known = [term for term in terms if term is not None]
    if known and len(known) == len(terms):
        bases = tuple(dict.fromkeys(term.base for term in known))
        return Structure(tuple(known), tuple(bases.index(term.base) for term in known), free), bases
    cut = cut_off(program, 1, levels)
    return None if cut is None else (Structure((), (), ()), (cut,))


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


Row: TypeAlias = Fields

_MOST_SEPARATE = 64


@dataclass(frozen=True, eq=False)
class View:
    """The program of one row, with its predictors."""

    program: Program
    bases: tuple[Variable, ...]

    def columns(self, row: Row) -> dict[Variable, jax.Array]:
        """The row's values by the program's input variables; columns that nothing reads may be left out."""
        return {variable: row[name] for name, variable in self.program.inputs.items() if name in row}


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
    """

    design: Callable[[Row], jax.Array]
    offset: Callable[[Row], jax.Array]
    loss: Callable[[ArrayLike, Row], jax.Array]
    radius: float
    family: LikelihoodFamily
    centred: bool = False


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


def build(
    view: Callable[[], View], structure: Structure, rows: Rows, dim: int
) -> tuple[Predictor | None, MultiPredictor]:
    """The predictors of the program that ``view`` gives."""
    eta = functools.partial(_eta, view)
    loss = functools.partial(_loss, view, structure)
    first = view()
    size = sum(first.program.size(base) for base in first.bases)
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
    )
    return single, several


def predicted_loss(view: Callable[[], View], structure: Structure, theta: jax.Array, row: Row) -> jax.Array:
    """The row's loss, through its predictors."""
    return _loss(view, structure, _eta(view, theta, row), row)


def _eta(view: Callable[[], View], theta: jax.Array, row: Row) -> jax.Array:
    now = view()
    values = now.program.run(now.bases, {now.program.inputs["theta"]: theta, **now.columns(row)})
    return jnp.concatenate([value.ravel() for value in values])


def _loss(view: Callable[[], View], structure: Structure, eta: ArrayLike, row: Row) -> jax.Array:
    now = view()
    program, given = now.program, now.columns(row)
    eta = jnp.asarray(eta).astype(jax.dtypes.canonicalize_dtype(np.float64)).ravel()
    if not structure.terms:
        return jnp.reshape(program.run([program.outputs["loss"]], {**given, now.bases[0]: eta})[0], ())
    edges = np.cumsum([0, *(program.size(base) for base in now.bases)])
    parts = [
        evaluate(program, term, now.bases[group], eta[edges[group] : edges[group + 1]], given)
        for term, group in zip(structure.terms, structure.groups, strict=True)
    ]
    free = program.run([program.outputs[key] for key in structure.free], given)
    return functools.reduce(jnp.add, [*parts, *(-jnp.asarray(value) for value in free)])


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
