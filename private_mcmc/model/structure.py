"""Through which numbers the latents act on a row: the predictors of its loss, found and proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from private_mcmc.domains.rows import Rows
from private_mcmc.model.ir.affinity import Level, affinity
from private_mcmc.model.ir.program import Program, Variable
from private_mcmc.model.likelihoods.family import UNKNOWN, LikelihoodFamily, separate, total
from private_mcmc.model.likelihoods.terms import Term, base_of, find_term
from private_mcmc.model.sites import Observation


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
    free: tuple[str, ...]

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
    free = [f"row:{site.name}" for site in observations if not _moves(program, site)]
    terms = [find_term(program, rows, site, levels) for site in observations if _moves(program, site)]
    known = [term for term in terms if term is not None]
    if known and len(known) == len(terms):
        found = _bases(program, levels, known)
        if found is not None:
            bases, groups = found
            return Structure(tuple(known), groups, tuple(free)), bases
    cut = _scalar_cut(program, levels)
    return None if cut is None else (Structure((), (), ()), (cut,))


def locate(program: Program, structure: Structure) -> tuple[Variable, ...] | None:
    """The predictors of a structure in a program of the same model, traced in another precision."""
    levels = affinity(program, "theta")
    if not structure.terms:
        cut = _scalar_cut(program, levels)
        return None if cut is None else (cut,)
    found = _bases(program, levels, structure.terms)
    return None if found is None or found[1] != structure.groups else found[0]


def _moves(program: Program, site: Observation) -> bool:
    return "theta" in program.reads([program.outputs[f"row:{site.name}"]])


def _bases(
    program: Program, levels: Mapping[Variable, Level], terms: Sequence[Term]
) -> tuple[tuple[Variable, ...], tuple[int, ...]] | None:
    bases: list[Variable] = []
    groups: list[int] = []
    for term in terms:
        base = base_of(program, levels, term)
        if base is None:
            return None
        if base not in bases:
            bases.append(base)
        groups.append(bases.index(base))
    return tuple(bases), tuple(groups)


def _scalar_cut(program: Program, levels: Mapping[Variable, Level]) -> Variable | None:
    """The last scalar that is affine in the latents and without which the loss reads none of them."""
    loss = program.outputs["loss"]
    produced = (output for equation in program.slice([loss]) for output in equation.outputs)
    for variable in reversed([program.inputs["theta"], *produced]):
        affine = levels[variable] is Level.AFFINE and program.size(variable) == 1
        if affine and "theta" not in program.reads([loss], [variable]):
            return variable
    return None
