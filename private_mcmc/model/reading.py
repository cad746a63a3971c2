"""Reading a NumPyro model for privacy: its rows' own terms, its prior, and what is proved of them."""

from __future__ import annotations

import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.arguments import check_kind
from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DeclarationError, DoThisInstead, NotYetSupported
from private_mcmc.model.integrated import (
    OwnLatents,
    Summed,
    integrated_loss,
    of_one_row,
    own_latents,
    summed_loss,
)
from private_mcmc.model.program import Output, Program, trace, work_of
from private_mcmc.model.proposals import read_prior, row_term, without_lines
from private_mcmc.model.refusals import (
    COUNT,
    check_arguments,
    differing_terms,
    refuse_coarse_sums,
    refuse_coupled_rows,
    refuse_growing_latents,
    refuse_other_densities,
    refuse_other_persons,
    refuse_prior_on_count,
    refuse_prior_on_data,
)
from private_mcmc.model.row_latents import RowLatent, columns_of, persons_latents, row_latents, with_columns
from private_mcmc.model.sites import Latent, ModelSites, Observation
from private_mcmc.model.tracing import (
    ONE_AT_A_TIME,
    PersonsModel,
    discover,
    first_line,
    log_densities,
    terms,
    with_indexed_arguments,
)
from private_mcmc.potential.families import UNKNOWN
from private_mcmc.potential.potential import SHARE, Potential, RowConstants, RowLoss, RowTerm
from private_mcmc.potential.predictor import Predictor
from private_mcmc.potential.rowwise import EXACT, abstract
from private_mcmc.records import Model, PublicArguments
from private_mcmc.target import Unit, check_count

_INTEGRATED = "nothing is proved of integrated latents; clip each row, or person (clip=…, guarantee='run')"
_HELD = (
    ", at which kernels hold longer designs; of the model itself it is not proved: make what is not affine "
    "in the columns (squares, products, logarithms) columns of their own"
)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowModel(Potential):
    """A model as the sum of a data-free potential and one term per row, and where that comes from.

    Attributes:
        observations: the observed sites.
        program: the model on one abstract row in float64, for further proofs about its form; of persons,
            that of one of their rows.
        each: the reading of one of a person's rows by itself.
        own: a person's own latents, which are integrated out.
        summed: the latents of a row, or of its person, that are summed out.
        given: the reading of a row with these as columns.
        model: the model as it is run on rows; of persons with latents, on those of one person.
        public: the public arguments that it was read with.
    """

    sites: tuple[Latent, ...]
    observations: tuple[Observation, ...]
    program: Program = field(repr=False)
    model: Model = field(repr=False)
    each: RowModel | None = field(default=None, repr=False)
    own: OwnLatents | None = field(default=None, repr=False)
    summed: Summed | None = field(default=None, repr=False)
    given: RowModel | None = field(default=None, repr=False)
    public: PublicArguments = field(default_factory=dict, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """A name for every coordinate of ``θ``, for example ``w[2]``."""
        return tuple(name for site in self.sites for name in site.coordinates)

    @property
    def neg_log_prior(self) -> Callable[[jax.Array], jax.Array]:
        """``θ ↦ K``."""
        return self.prior.potential

    @property
    def rows(self) -> Rows:
        """The declaration of what is one row here."""
        return self.term.rows

    @property
    def unit(self) -> Unit | None:
        """Who is protected, where it is not a row."""
        return self.term.unit

    @property
    def row_loss(self) -> RowLoss:
        """``(θ, row) ↦ v``."""
        return self.term.loss

    @property
    def predictors(self) -> Predictor | None:
        """All affine predictors of the row."""
        return self.term.predictors

    @property
    def predictor(self) -> Predictor | None:
        """The row's one affine predictor."""
        return self.term.predictor

    @property
    def constants(self) -> RowConstants:
        """What is proved of a row's term."""
        return self.term.constants

    @property
    def argument(self) -> str:
        """Why that is so, or why nothing is proved, in words."""
        several = self.term.of
        if not isinstance(several, Predictor) or several.family.name == UNKNOWN.name:
            own = self.program.inputs.keys() - {"theta", *(self.each or self).rows.columns}
            return _INTEGRATED if own else without_lines(self.program, self.observations)
        family, radius = several.family, several.radius
        return (
            ("" if self.unit is None else f"a sum of up to {self.unit.rows} rows, each: ")
            + "; ".join(dict.fromkeys(term.line.why for term, _ in several.terms))
            + f"; over the row domain |ψ'| ≤ {family.score_bound:.6g}, |ψ''| ≤ {family.curvature_bound:.6g}, "
            f"‖∂η/∂θ‖ ≤ {radius:.6g}" + ("" if several.proved or radius == math.inf else _HELD)
        )

    def proved(self, site: Latent) -> tuple[float, float, str]:
        """``lower ≤ K'' ≤ upper`` on a site's coordinates, infinite where not proved; and the argument."""
        whys = {part.site.name: part.line.why for part in self.prior.own}
        rest = [*(one.name for one in self.sites if one.name not in whys), *self.prior.terms]
        other = f"{', '.join(rest)}: no prior with proved curvature (on its own, or jointly Gaussian)"
        if self.prior.gaussian is not None:
            other = "jointly Gaussian: constant Hessian"
        lower, upper = self.prior.lower[site.slice], self.prior.upper[site.slice]
        ends = float(lower.min(initial=math.inf)), float(upper.max(initial=-math.inf))
        return *ends, f"{site.family}: {whys[site.name]}" if site.name in whys else other

    def trace_slopes(self) -> None:
        """Make the slopes that kernels run, once and for all; raises as ``rowwise``."""
        theta, row = self.types
        jax.eval_shape(self.prior_slope, theta)
        if self.predictor is not None:
            read = {name: row[name] for name in self.predictor.reads}
            jax.eval_shape(self.predictor.slope, abstract((), np.float64), read)
        if self.term.share is not None:
            row[SHARE] = jax.eval_shape(self.term.share, row)
        jax.eval_shape(self.row_slope, theta, row)

    @property
    def improper(self) -> tuple[str, ...]:
        """Names of sites whose prior is known not to integrate."""
        return tuple(site.name for site in self.sites if site.improper)

    @functools.cached_property
    def work(self) -> int:
        """About how many numbers the loss of one row computes."""
        with jax.enable_x64(True), jax.default_matmul_precision(EXACT):
            return work_of(jax.make_jaxpr(self.row_loss)(*self.types).jaxpr.eqns)


def read(model: Model, rows: Rows, *, n: int, model_args: PublicArguments | None = None) -> RowModel:
    """Read a NumPyro model; no private data is needed or used.

    The model is run on one abstract row, which gives that row's term by construction: no other row is
    there to depend on. Rows are passed by the names in ``rows``, everything else by ``model_args``, which
    is public. Where ``rows`` has a column of identifiers, the reading is that of a person as one row.

    Args:
        model: a callable with NumPyro primitives.
        rows: the columns of a row and their domains.
        n: number of rows, or of persons (or its public bound).
        model_args: the model's other arguments.

    ``DeclarationError``: the arguments do not fit the model; ``UnsupportedModel`` the model has no such form,
    or rows that depend on one another; the message names the site.
    """
    check_kind("rows", rows, Rows)
    check_kind("model_args", {} if model_args is None else model_args, Mapping)
    check_count("n", n)
    if isinstance(jnp.zeros(()), jax.core.Tracer):
        raise DeclarationError("a model is read, and so preflighted, planned and run, outside of jax.jit.")
    public, model = dict(model_args or {}), with_indexed_arguments(model)
    if rows.unit is None:
        found = _of_rows(model, rows, n, public)
    elif rows.unit.name in inspect.signature(model).parameters:
        found = _with_own_latents(model, rows, rows.unit, n, public)
    else:
        each = read(model, _single(rows), n=n * rows.unit.rows, model_args=public)
        found = replace(each, term=each.term.of_persons(rows), each=each)
    found = replace(found, public=public)
    with ONE_AT_A_TIME, jax.enable_x64(True), _differentiable():
        found.trace_slopes()
    return found


def _of_rows(
    model: Model, rows: Rows, n: int, public: PublicArguments, known: tuple[RowLatent, ...] = ()
) -> RowModel:
    """The reading of rows, whose own latents are summed out; those that are ``known`` are columns."""
    check_arguments(model, rows, public, n)
    with jax.enable_x64(True):
        latents = row_latents(model, functools.partial(_abstract, rows), public, COUNT)
    if not latents:
        return _of_columns(model, rows, n, public, known)
    if known:
        raise NotYetSupported(
            f"latents of rows, {[latent.site for latent in latents]}, beside latents of persons, "
            f"{[latent.site for latent in known]}: one of the two is summed out. Missing values may be left "
            "out of the likelihood, or filled with a public number."
        )
    found = _of_columns(with_columns(model, latents), columns_of(rows, latents), n, public, latents)
    summed = Summed(latents, found.program)
    losses = [_traced_once(summed_loss, one, found.row_loss) for one in (summed, replace(summed, finer=2))]
    if any(latent.numbers for latent in latents):
        refuse_coarse_sums([one.site for one in latents], "row", rows, found.dim, *losses)
    return replace(found, term=RowTerm(losses[0], rows), model=model, summed=summed, given=found)


def _traced_once(loss: Callable[..., jax.Array], *given: object) -> RowLoss:
    """The loss, of which JAX keeps the program: long ones are read, differentiated and counted."""
    return jax.jit(functools.partial(loss, *given), inline=True)


def _of_columns(
    model: Model, rows: Rows, n: int, public: PublicArguments, latents: tuple[RowLatent, ...]
) -> RowModel:
    """The reading of rows with some ``latents`` as columns, whose density is no part of a row's term."""
    hidden = [latent.site for latent in latents]
    subsampled: set[str] = set()
    with ONE_AT_A_TIME, jax.enable_x64(True), _differentiable():
        one = discover(model, _abstract(rows, 1), public)

        @functools.cache
        def traced(count: int) -> Program:
            """The model on so many rows."""
            if count > 1:
                several = discover(model, _abstract(rows, count), public)
                refuse_growing_latents(one, several)
                subsampled.update(several.subsampled)
            return _program(model, rows, public, one, hidden, count)

        # A few rows first: what they refuse (a Gaussian process) may be too large to run on all n.
        if stated := _stated(traced(1), traced(COUNT), one):
            one = replace(one, observations=[site for site in one.observations if site.name not in stated])
            hidden += stated
            traced.cache_clear()
        program, few, many = traced(1), traced(COUNT), max(n, 2)
        refuse_prior_on_data(program, one)
        refuse_coupled_rows(program, few, lambda: traced(many), many, rows, one)
        refuse_prior_on_count(program, traced(many), one, stated)
        if subsampled:
            warnings.warn(
                f"plates {sorted(subsampled)}: subsample_size is not followed, and the plates are read "
                "whole. PrivateSGLD draws the batches of a run, whose law is what is charged.",
                stacklevel=4,
            )
        observed = [site for site in one.observations if site.name not in hidden]
        # Those of which something is latent.
        factors = [name for name in stated if program.reads([program.outputs[Output("row", name)]])]
        found = RowModel(
            term=row_term(program, rows, observed, one.dim),
            prior=read_prior(program, one.latents, factors),
            sites=tuple(one.latents),
            observations=tuple(observed),
            constrain=functools.partial(_constrain, program, _data_free_outputs(program, one)),
            program=program,
            model=model,
        )
        if latents:
            density = Summed(latents, program).density
            whole = RowTerm(lambda theta, row: found.row_loss(theta, row) - density(theta, row), rows)
            replace(found, term=whole).trace_slopes()
        refuse_other_densities(found, program, [site.name for site in observed])
    return found


def _stated(program: Program, few: Program, model_sites: ModelSites) -> list[str]:
    """Observed sites and factors that read latents alone, whatever the rows and how many.

    They are terms of the prior, or constants (``handlers.condition``),
    and no term of a row, which would count them once for every row.
    """
    names = [site.name for site in model_sites.observations]
    differing = {key.site for key in differing_terms(program, few, [Output("row", name) for name in names])}
    stated = [name for name in names if name not in differing]
    if len(stated) == len(names):
        raise DoThisInstead(
            f"sites {stated} are observed, and no column of a row is in their densities: declare the "
            "observed column in Rows and pass it as `obs=`."
        )
    return stated


def _with_own_latents(model: Model, rows: Rows, unit: Unit, n: int, public: PublicArguments) -> RowModel:
    """The reading of persons whose own latents are integrated out."""
    persons = PersonsModel(model, unit.name, rows.items[0][0], n)
    with ONE_AT_A_TIME, jax.enable_x64(True):
        row = _abstract(_single(rows), 1)
        latents, plate = persons_latents(persons.of(n), row, public, unit.name, n)
    # Every row is read as that of a person with latents of its own.
    of_one = with_columns(persons.of(1, plate, None), latents)
    one = _of_rows(of_one, columns_of(_single(rows), latents), n * unit.rows, public, latents)
    with ONE_AT_A_TIME, jax.enable_x64(True):
        own = own_latents(latents, one.program, one.row_loss)
        refuse_other_persons(
            own,
            one,
            [site.name for site in one.observations],
            _single(rows),
            n,
            lambda who, data, values: log_densities(persons.of(n, plate, who), {**data, **public}, values),
        )
    loss = _traced_once(integrated_loss, own)
    if any(latent.numbers for latent in latents):
        finer = _traced_once(integrated_loss, replace(own, finer=2))
        refuse_coarse_sums(own.names, "person", rows.persons, one.dim, loss, finer)
    term = RowTerm(functools.partial(of_one_row, loss), _single(rows))
    each = replace(one, term=term, model=persons.of(1, plate), summed=own, given=one)
    with jax.enable_x64(True):
        elements = max(one.dim, own.elements(unit.rows))
    return replace(each, term=RowTerm(loss, rows.persons, unit), elements=elements, each=each, own=own)


@contextmanager
def _differentiable() -> Iterator[None]:
    """Langevin steps take gradients: a loop without a fixed end has none that JAX could compute."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if re.search("custom.[jv][vj]p", str(error), re.IGNORECASE):
            raise DoThisInstead(
                "JAX refuses a derivative rule that the model brings with it (jax.custom_vjp, which has no "
                f"jax.jvp, or jax.custom_jvp): {first_line(error)}"
            ) from error
        if "float0" in str(error):
            raise DoThisInstead(
                "JAX has no slope of a density whose parameter is a whole number (dist.Kumaraswamy(2, 3)): "
                "write numbers of distributions with a point, 2.0 for 2."
            ) from error
        if "mode differentiation" not in str(error):
            raise
        raise NotYetSupported(
            "the model has a loop whose end is not fixed (jax.lax.while_loop, or fori_loop with bounds that "
            "are computed), which has no gradient in JAX: write it as jax.lax.scan over a fixed length."
        ) from error


def _constrain(program: Program, free: tuple[Output, ...], theta: jax.Array) -> dict[str, jax.Array]:
    values = program.run([program.outputs[key] for key in free], {program.inputs["theta"]: theta})
    return {key.site: value for key, value in zip(free, values, strict=True)}


def _single(rows: Rows) -> Rows:
    """The declaration of one row by itself."""
    return Rows(**rows.columns)


def _abstract(rows: Rows, count: int) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: abstract((count, *domain.event_shape), domain.dtype) for name, domain in rows.items}


def _program(
    model: Model, rows: Rows, public: PublicArguments, model_sites: ModelSites, hidden: list[str], count: int
) -> Program:
    theta = abstract((model_sites.dim,), np.float64)
    return trace(terms(model, public, model_sites.latents, hidden), theta=theta, **_abstract(rows, count))


def _data_free_outputs(program: Program, model_sites: ModelSites) -> tuple[Output, ...]:
    values = [Output("value", site.name) for site in model_sites.latents]
    extra = [Output("deterministic", name) for name in model_sites.deterministics]
    return (*values, *(key for key in extra if program.reads([program.outputs[key]]) <= {"theta"}))
