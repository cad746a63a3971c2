"""Arguments that do not fit, latents and priors that follow rows or other persons: refused by name."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DeclarationError, DoThisInstead, NotYetSupported
from private_mcmc.model.flatten import abstract, row_shapes, trace
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.program import Kind, Output, Program
from private_mcmc.model.row_latents import OF_A_PERSON, OF_A_ROW, Row, RowLoss
from private_mcmc.model.sites import ModelSites, Observation, Site
from private_mcmc.records import RUN_ONCE, Model, PublicArguments

Data: TypeAlias = Mapping[str, np.ndarray]

COUNT = 7
# Of the rows, so many must move with the parameters: masks and weights may switch rows off.
_ACTIVE, _ATTEMPTS = 3, 12
_SCALES = np.array([[0.0], [0.3], [1.0], [3.0]])
# One data set may have a symmetry that hides the order of its rows: so many others are looked at, too.
_OTHERS = 4
# With more numbers in all rows than this the whole model is not evaluated on them.
MOST_NUMBERS = 500_000
_SUM_TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class _Programs:
    """The model on one row and on several: ``θ`` is ``(points, p)``, data ``(points, rows, …)``."""

    one: Program
    many: Program
    at_n: Callable[[], Program]
    n: int

    def alone(self, key: Output, theta: np.ndarray, data: Data) -> np.ndarray:
        """Every row's own term, ``(points, rows)``."""
        rows = {name: column.reshape(-1, 1, *column.shape[2:]) for name, column in data.items()}
        repeated = np.repeat(theta, COUNT, axis=0)
        return _summed(self.one, key, repeated, rows).reshape(len(theta), COUNT)

    def differ(
        self, key: Output, theta: np.ndarray, data: Data, alone: np.ndarray | None = None
    ) -> np.ndarray:
        """At which points the whole differs from the sum of its rows."""
        alone = self.alone(key, theta, data) if alone is None else alone
        return _differ(_summed(self.many, key, theta, data), alone)

    def differ_at_n(self, key: Output, theta: np.ndarray, data: Data) -> bool:
        """On the public number of rows, the same few again and again, at the first point."""
        which = np.arange(self.n) % COUNT
        alone = self.alone(key, theta, data)[:1]
        repeated = {name: column[:1, which] for name, column in data.items()}
        return bool(_differ(_summed(self.at_n(), key, theta[:1], repeated), alone[:, which])[0])


def _summed(program: Program, key: Output, theta: np.ndarray, data: Data) -> np.ndarray:
    value = program.evaluate_each([key], theta=theta, **data)[0]
    return np.asarray(value.reshape(len(theta), -1).sum(axis=1))


def _differ(whole: np.ndarray, alone: np.ndarray) -> np.ndarray:
    summed = alone.sum(axis=1)
    with np.errstate(invalid="ignore"):
        same = np.abs(whole - summed) <= _SUM_TOLERANCE * (1 + np.abs(alone).sum(axis=1))
    # Both may overflow together (an unbounded column under exp); never one alone.
    finite = np.isfinite(whole), np.isfinite(summed)
    return np.asarray(np.where(finite[0] & finite[1], ~same, finite[0] != finite[1]))


def refuse_coupled_rows(
    one: Program, many: Program, at_n: Callable[[], Program], n: int, rows: Rows, model_sites: ModelSites
) -> None:
    """Compare, at random parameters and synthetic rows, each observed site with its rows' own terms.

    ``many`` is the program of the model on ``COUNT`` rows, ``at_n`` gives that on ``n``, which may be large:
    it is asked for once the few agree.
    """
    programs = _Programs(one, many, at_n, n)
    _refuse_priors_that_are_observed(one, model_sites)
    thetas = np.random.default_rng(0).normal(size=(len(_SCALES), model_sites.dim)) * _SCALES
    others = _data_sets(rows, range(_ATTEMPTS, _ATTEMPTS + _OTHERS))
    for site in model_sites.observations:
        key, finite = Output("row", site.name), False
        moves = "theta" in one.reads([one.outputs[key]])
        for attempt in range(_ATTEMPTS):
            data = _data_sets(rows, [attempt] * len(thetas))
            alone = programs.alone(key, thetas, data)
            if np.any(programs.differ(key, thetas, data, alone)):
                raise DoThisInstead(
                    _mismatch(site.name, _coupling(programs, key, thetas, data), rows, model_sites)
                )
            finite |= bool(np.any(np.all(np.isfinite(alone), axis=1)))
            if not moves or np.sum(np.any(alone != alone[0], axis=0)) >= _ACTIVE:
                break
        same = np.repeat(thetas[-2:-1], _OTHERS, axis=0)
        if np.any(programs.differ(key, same, others)):
            raise DoThisInstead(
                _mismatch(site.name, _coupling(programs, key, same, others), rows, model_sites)
            )
        few = n * sum(column[0, 0].size for column in data.values()) <= MOST_NUMBERS
        if few and n != COUNT and programs.differ_at_n(key, same, others):
            raise DoThisInstead(_mismatch(site.name, [], rows, model_sites))
        if not finite:
            raise DoThisInstead(
                f"site {site.name!r}: its log density is not finite on rows of the declared domain; declare "
                "the domains of its columns so that every row is possible under the model "
                f"({_possible(site, rows)})."
            )


def _refuse_priors_that_are_observed(one: Program, model_sites: ModelSites) -> None:
    """Observed sites outside every plate with no column of a row in their densities."""
    for site in model_sites.observations:
        if not site.plates and one.reads([one.outputs[Output("row", site.name)]]) == {"theta"}:
            raise DoThisInstead(
                f"site {site.name!r} is observed, and no column of a row is in its density: that is a part "
                "of the latents' prior. Write it as their distribution. Where a handler fixes the site "
                "(condition), fix what its own prior depends on as well. If it is an outcome, declare its "
                "column in Rows and pass it as `obs=`."
            )


def _possible(site: Observation, rows: Rows) -> str:
    """How outcomes of this family are declared."""
    reals = [name for name, domain in rows.items if np.issubdtype(domain.dtype, np.floating)]
    said = []
    if site.whole and reals:
        said.append(
            f"an outcome of {site.family} is a whole number, and columns {', '.join(reals)} hold any number "
            "between their ends: declare Binary(), Categories(k) or Counts(max); several outcomes of a row: "
            "one column for each, joined by jnp.stack([…], -1), or a Box that the model rounds, "
            "obs=jnp.round(…)"
        )
    if "Multinomial" in site.family:
        said.append(
            "counts add up to their total: compute it in the model, total_count=counts.sum(-1) with a public "
            "total_count_max="
        )
    elif "Binomial" in site.family and not site.family.startswith("Negative"):
        said.append(
            "no outcome is above its number of trials: obs=jnp.minimum(y, trials) says so and changes no row "
            "that is possible"
        )
    if site.family.startswith("Beta") and not site.whole:
        said.append("an outcome between 0 and 1: a Box inside, as Box(0.001, 0.999)")
    return "; ".join(said) or (
        "an outcome that must be positive: a Box that begins above 0; an interval: its lower end, and its "
        "width, above 0; a truncated one: a Box whose ends lie inside the truncation"
    )


def _data_sets(rows: Rows, seeds: Iterable[int]) -> dict[str, np.ndarray]:
    found = [synthetic_rows(rows, COUNT, seed) for seed in seeds]
    return {name: np.stack([data[name] for data in found]) for name in found[0]}


def _coupling(programs: _Programs, key: Output, theta: np.ndarray, data: Data) -> list[str]:
    """Columns that couple rows even when all other columns are the same in every row.

    Without one, those without which the coupling of several ends: a lag of a covariate couples nothing
    where outcomes are the same.
    """
    level = {name: np.broadcast_to(column[:, :1], column.shape) for name, column in data.items()}
    alone = [
        column
        for column, values in data.items()
        if np.any(programs.differ(key, theta, {**level, column: values}))
    ]
    if alone:
        return alone
    return [
        column for column in data if not np.any(programs.differ(key, theta, {**data, column: level[column]}))
    ]


def _mismatch(name: str, columns: list[str], rows: Rows, model_sites: ModelSites) -> str:
    site = next(site for site in model_sites.observations if site.name == name)
    fixed = sorted(plate for plate, size in model_sites.plates.items() if plate in site.plates and size > 1)
    causes = [
        f"its rows are not inside a plate ({name!r} has none)" if not site.plates else "",
        f"plate {', '.join(fixed)} has a size that does not follow the number of rows" if fixed else "",
        f"the model mixes rows of column {', '.join(columns)} (centring, sorting, a lag)" if columns else "",
        "it reads more than its own person's latents, u[person]: identifiers index latents, and no more"
        if any(column.endswith(OF_A_PERSON) for column in rows.columns)
        else "",
        "its term depends on the number of rows (pass a public n through model_args)",
    ]
    return (
        f"site {name!r}: the sum of the rows' own log densities differs from that of the whole model. "
        f"Likely: {'; '.join(cause for cause in causes if cause)}. Every row needs a term of its own: "
        "compute such columns beforehand from public facts, and put observed sites inside "
        "`numpyro.plate(…, X.shape[0])`."
    )


# In place of the ends of columns that have none, and of latents' on the unconstrained space.
_FAR, _FAR_OF_LATENTS = 10.0, 3.0
_LATENTS = (OF_A_ROW, OF_A_PERSON)


def synthetic_rows(rows: Rows, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """``count ≥ 3`` rows, the same at every call: every other one has each number at an end of its interval.

    Each number is at either end in one of them.
    """
    random = np.random.default_rng(seed)
    return {
        name: _column(domain, count, random, _FAR_OF_LATENTS if name.endswith(_LATENTS) else _FAR)
        for name, domain in rows.items
    }


def _column(domain: Domain, count: int, random: np.random.Generator, far: float) -> np.ndarray:
    low, high = (np.clip(end, -far, far) if np.any(np.isinf(end)) else end for end in domain.interval())
    turns = random.random((count, *domain.event_shape))
    turns[::2] = np.round(turns[::2])
    turns[2::4] = 1.0 - turns[:-2:4]
    values: np.ndarray = low + (high - low) * turns
    if np.issubdtype(domain.dtype, np.integer):
        return np.asarray(np.rint(values), domain.dtype)
    lengths = np.linalg.norm(values.reshape(count, -1), axis=1)
    largest = domain.norm_bound
    shrink = np.where(lengths > largest, largest * (1 - 1e-15) / np.maximum(lengths, 1e-300), 1.0)
    shrink = shrink.reshape((count, *(1,) * len(domain.event_shape)))
    return np.asarray(values * shrink)


def check_arguments(model: Model, rows: Rows, public: PublicArguments, n: int) -> None:
    """The declared columns and public arguments fit the model's signature."""
    if not n >= 1:
        raise DeclarationError(f"n={n}: the number of rows is at least 1.")
    if "theta" in rows.columns or "theta" in public:
        raise DeclarationError("a column or argument may not be called 'theta'; rename it.")
    both = sorted(rows.columns.keys() & public.keys())
    if both:
        raise DeclarationError(f"{both}: both in Rows and in model_args; a name is one or the other.")
    try:
        inspect.signature(model).bind(**dict.fromkeys([*rows.columns, *public]))
    except TypeError as error:
        raise DeclarationError(
            f"the model does not take the columns {sorted(rows.columns)} and the "
            f"model_args {sorted(public)}: {error}."
        ) from error


def refuse_unknown_slopes(
    dim: int,
    rows: Rows,
    row_loss: Callable[[jax.Array, Mapping[str, jax.Array]], jax.Array],
    neg_log_prior: Callable[[jax.Array], jax.Array],
) -> None:
    """Trace the gradients that run: a derivative that a function brings with it is in no program of values,
    and a loop without a fixed end has none.

    ``UnsupportedModel``: as ``trace`` does, for what such a derivative prints, calls or mixes.
    """

    def slopes(theta: jax.Array, **row: jax.Array) -> dict[str, jax.Array]:
        return {"row": jax.grad(row_loss)(theta, row), "prior": jax.grad(neg_log_prior)(theta)}

    trace(slopes, theta=abstract((dim,), np.float64), **row_shapes(rows))


def refuse_growing_latents(one: ModelSites, many: ModelSites) -> None:
    """No latent is repeated for every row."""
    before = {site.name: site.shape for site in one.latents}
    for site in many.latents:
        if before.get(site.name) != site.shape:
            where = f" (inside plate {site.plates[-1]!r})" if site.plates else ""
            raise DoThisInstead(
                f"site {site.name!r} is a latent whose shape follows the number of rows{where}: each row "
                "would have parameters of its own. If it is data, declare its column in Rows; otherwise "
                "integrate it out or give it a public shape."
            )


def refuse_prior_on_data(program: Program, model_sites: ModelSites) -> None:
    """Supports, transforms and priors read no column: proved from the program."""
    names: dict[Kind, str] = {"value": "support", "jacobian": "support", "prior": "prior"}
    for site in model_sites.latents:
        for kind, what in names.items():
            read = program.reads([program.outputs[Output(kind, site.name)]]) - {"theta"}
            if read:
                raise DoThisInstead(
                    f"the {what} of site {site.name!r} depends on the rows ({', '.join(sorted(read))}): "
                    "data may reach the potential through the rows' own terms only. Use a public constant, "
                    "passed through model_args."
                )


def same_program(one: Program, many: Program, key: Output) -> bool:
    """Whether a term is computed alike on one row and on many."""
    return one.text([one.outputs[key]]) == many.text([many.outputs[key]])


def refuse_prior_on_count(one: Program, many: Program, model_sites: ModelSites, stated: list[str]) -> None:
    """The prior is the same program for one row and for many, and so are sites with ``stated`` values."""
    kinds: tuple[Kind, ...] = ("value", "jacobian", "prior")
    keys = [Output(kind, site.name) for site in model_sites.latents for kind in kinds]
    for key in [*keys, *(Output("row", name) for name in stated)]:
        if not same_program(one, many, key):
            raise DoThisInstead(
                f"the prior of site {key.site!r} depends on the number of rows of the data; "
                "pass a public number through model_args instead."
            )


SEVERAL = 3
_TOLERANCE = 1e-6


def refuse_other_persons(
    own: OwnLatents,
    sites: Sequence[Site],
    constrain: Callable[[jax.Array], Mapping[str, jax.Array]],
    rows: Mapping[str, np.ndarray],
    joint: Callable[[Mapping[str, jax.Array]], Mapping[str, jax.Array]],
) -> None:
    """Compare NumPyro's own density of several persons' rows with that of each person by herself.

    ``joint`` has the log densities of the model of ``SEVERAL`` persons at values of all its latents, with
    row ``i`` of ``rows`` that of person ``i`` modulo ``SEVERAL``. Only differences between points count.
    """

    which = np.arange(len(next(iter(rows.values())))) % SEVERAL
    priors = [Output("prior", site.name) for site in sites]
    numbers = [latent for latent in own.latents if not latent.values]
    kinds = {
        one.column: jnp.asarray(np.arange(SEVERAL) % one.values, one.domain.dtype)
        for one in own.latents
        if one.values
    }

    def terms(theta: jax.Array, **drawn: jax.Array) -> dict[str, jax.Array]:
        columns, shared = drawn | kinds, constrain(theta)
        values = {site.name: shared[site.name] for site in sites}
        values |= {one.site: one.transform(columns[one.column]) for one in own.latents}
        mine = {name: column[which] for name, column in columns.items()}
        of_rows = jax.vmap(functools.partial(own.term, theta))(mine, jax.tree.map(jnp.asarray, dict(rows)))
        of_persons = jax.vmap(functools.partial(own.density, theta))(columns)
        of_sites = [jnp.sum(value) for value in own.run(priors, theta, {})]
        return {
            "whole": jnp.stack([jnp.sum(density) for density in joint(values).values()]),
            "parts": jnp.concatenate([-of_rows, of_persons, jnp.stack(of_sites)]),
        }

    # Traced once and evaluated in NumPy: operation by operation JAX would compile each of them.
    shapes = {"theta": own.program.shape(own.program.inputs["theta"])}
    shapes |= {one.column: (SEVERAL, *one.domain.event_shape) for one in numbers}
    program = trace(terms, **{name: abstract(shape, np.float64) for name, shape in shapes.items()})
    random = np.random.default_rng(0)
    drawn = {name: random.normal(size=shape) for name, shape in shapes.items()}
    points = {name: np.multiply.outer([0.0, 0.5, 1.5], value) for name, value in drawn.items()}
    whole, parts = program.evaluate_each(["whole", "parts"], **points)
    gaps = [math.fsum(each) - math.fsum(own_parts) for each, own_parts in zip(whole, parts, strict=True)]
    sizes = 1 + np.sum(np.abs(parts), axis=1)
    if not np.all(np.abs(np.subtract(gaps, gaps[0])) <= _TOLERANCE * np.add(sizes, sizes[0])):
        names = ", ".join(repr(name) for name in own.names)
        raise DoThisInstead(
            f"site {names}: a row's term is no function of its own person's latents and of those that "
            "all share. Index the latents of persons by the identifiers, "
            "as in u[person], and by nothing else."
        )


# Of so many persons' values those of all are made.
_KINDS = 64


def refuse_numbered_persons(
    own: OwnLatents,
    sites: Sequence[Site],
    constrain: Callable[[jax.Array], Mapping[str, jax.Array]],
    rows: Rows,
    n: int,
    densities: Callable[
        [jax.Array, Mapping[str, jax.Array], Mapping[str, np.ndarray]], Mapping[str, jax.Array]
    ],
) -> None:
    """Give every one of ``n`` persons another's number: NumPyro's own densities go with the person.

    Numbers go round in one cycle of all of them, so that a prior that is not everybody's is another one for
    somebody. ``densities`` are those of all sites, not summed, of rows whose persons have these numbers.
    """
    random = np.random.default_rng(0)
    order = random.permutation(n)
    moved, back = np.empty_like(order), np.empty_like(order)
    moved[order], back[np.roll(order, -1)] = np.roll(order, -1), order
    data = synthetic_rows(
        rows, max(3, min(n, MOST_NUMBERS // sum(math.prod(one.event_shape) for _, one in rows.items)))
    )
    who = order[np.arange(len(next(iter(data.values())))) % n]
    shape = own.program.shape(own.program.inputs["theta"])
    constrained = trace(lambda theta: dict(constrain(theta)), theta=abstract(shape, np.float64))
    theta, names = 0.5 * random.normal(size=shape), [site.name for site in sites]
    shared = {
        name: jnp.asarray(value)
        for name, value in zip(names, constrained.evaluate(names, theta=theta), strict=True)
    }
    kind = random.integers(0, _KINDS, n)
    mine = {}
    for one in own.latents:
        drawn = random.normal(size=(_KINDS, *one.domain.event_shape))
        some = np.arange(_KINDS) % one.values if one.values else np.asarray(one.transform(drawn))
        mine[one.site] = some.astype(one.domain.dtype)[kind]
    label = {name: f"of {name}" for name in mine}
    program = trace(
        lambda who, **given: dict(
            densities(who, {**shared, **{name: given[label[name]] for name in mine}}, data)
        ),
        who=abstract(who.shape, who.dtype),
        **{label[name]: abstract(value.shape, value.dtype) for name, value in mine.items()},
    )

    def at(who: np.ndarray, persons: np.ndarray) -> dict[Hashable, np.ndarray]:
        given = {label[name]: value[persons] for name, value in mine.items()}
        return dict(zip(program.outputs, program.evaluate([*program.outputs], who=who, **given), strict=True))

    before, after = at(who, np.arange(n)), at(moved[who], back)
    for name, density in before.items():
        same = after[name][moved] if name in mine else after[name]
        if not np.allclose(density, same, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            raise DoThisInstead(
                f"site {name!r}: its density is another one for a person with another number. Numbers are "
                "those of identifiers in some order: what is known of a person is a column of the rows."
            )


# Of a row's, or a person's, log likelihood.
_ACCURATE, _ROWS, _SIZES = 1e-3, 6, np.array([0.0, 0.5, -0.7, 1.0])


def sum_error(rows: Rows, dim: int, loss: RowLoss, finer: RowLoss) -> float:
    """How far sums over points are from those over many more, at synthetic rows and moderate parameters."""

    def gap(theta: jax.Array, row: Row) -> jax.Array:
        return finer(theta, row) - loss(theta, row)

    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, synthetic_rows(rows, _ROWS))
        thetas = jnp.asarray(_SIZES[:, None] * np.cos(np.arange(dim)))
        every = jax.jit(jax.vmap(jax.vmap(gap, (None, 0)), (0, None)), compiler_options=RUN_ONCE)
        gaps = np.asarray(every(thetas, data))
    return float(np.max(np.abs(gaps), initial=0.0, where=np.isfinite(gaps)))


def is_accurate(error: float) -> bool:
    """Whether a sum over what latents may be is taken for the integral."""
    return error <= _ACCURATE


def refuse_coarse_sums(sites: Sequence[str], whose: str, worst: float) -> None:
    """``NotYetSupported``, by name, where sums over what latents may be are too far off."""
    if not is_accurate(worst):
        raise NotYetSupported(
            f"latents {list(sites)} of each {whose}: the sum over their values is off by {worst:.2g} of a "
            f"log likelihood at ends of the declared domain (at most {_ACCURATE} is taken): it is too narrow "
            "there, or has several peaks. Narrow the domain (of a standard error, of numbers of trials), or "
            "integrate them out by hand, as a numpyro.factor in the plate of the rows."
        )
