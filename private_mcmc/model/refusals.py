"""Arguments that do not fit, latents and priors that follow rows or other persons: refused by name."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.domain import Domain
from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DeclarationError, DoThisInstead, NotYetSupported
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.program import Kind, Output, Program, work_of
from private_mcmc.model.row_latents import OF_A_PERSON, OF_A_ROW, Row, RowLoss
from private_mcmc.model.sites import ModelSites, Observation
from private_mcmc.potential.families import UNKNOWN
from private_mcmc.potential.potential import Potential
from private_mcmc.potential.rowwise import EXACT
from private_mcmc.records import Model, PublicArguments
from private_mcmc.system import RUN_ONCE

Data: TypeAlias = Mapping[str, np.ndarray]

COUNT = 7
_DATA_SETS = 8
_SCALES = np.array([[0.0], [0.3], [1.0], [3.0]])
# With more numbers in all rows than this the whole model is not evaluated on them.
MOST_NUMBERS = 500_000
# Numbers that a row's term computes, above which rows are dear, and the most of all rows together.
_DEAR, _MOST_WORK = 2**16, 2**26
_TOLERANCE = 1e-7


def refuse_coupled_rows(
    one: Program, many: Program, at_n: Callable[[], Program], n: int, rows: Rows, model_sites: ModelSites
) -> None:
    """Compare, at random parameters and synthetic rows, each observed site with its rows' own terms.

    ``many`` is the program of the model on ``COUNT`` rows, ``at_n`` gives that on ``n``, which may be large:
    it is asked for once the few agree. Of several data sets none has all rows masked, or a symmetry that
    hides their order.
    """
    for site in model_sites.observations:
        if site.family == "Unit" and not site.plates:
            raise DoThisInstead(
                f"site {site.name!r} is a numpyro.factor outside every plate: it may hold any function of "
                "all rows, so that no row has a term of its own; put each row's term in the plate of the "
                "rows, and what reads latents alone, a part of their prior, in a factor of its own."
            )
    keys = [Output("row", site.name) for site in model_sites.observations]
    thetas = np.random.default_rng(0).normal(size=(len(_SCALES), model_sites.dim)) * _SCALES
    work = work_of(one.equations)
    # With a latent that says what a row answers, many rows are impossible, and data sets of none are few.
    several = _DATA_SETS * (16 if any(name.endswith(_LATENTS) for name in rows.columns) else 1)
    sets = [rows_at_ends(rows, COUNT, seed) for seed in range(several if work < _DEAR else 1)]
    data = {name: np.stack([each[name] for each in sets]) for name in sets[0]}

    def summed(program: Program, theta: jax.Array, columns: Mapping[str, jax.Array]) -> jax.Array:
        given = {program.inputs[name]: value for name, value in {"theta": theta, **columns}.items()}
        return jnp.stack([jnp.sum(x) for x in program.run([program.outputs[key] for key in keys], given)])

    def at(theta: jax.Array, columns: Mapping[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        each = jax.tree.map(lambda column: column[:, None], columns)
        return summed(many, theta, columns), jax.vmap(functools.partial(summed, one, theta))(each)

    every = jax.jit(jax.vmap(jax.vmap(at, (0, None)), (None, 0)), compiler_options=RUN_ONCE)
    # (data sets, points, sites), and (data sets, points, rows, sites)
    whole, alone = map(np.asarray, every(thetas, data))

    for place in np.flatnonzero(np.any(_differ(whole, alone), axis=(0, 1))).tolist():
        raise DoThisInstead(_mismatch(model_sites.observations[place], rows, model_sites))
    numbers = n * sum(column[0, 0].size for column in data.values())
    if n != COUNT and numbers <= MOST_NUMBERS and n * work <= _MOST_WORK:
        which, point = np.arange(n) % COUNT, len(thetas) - 2
        repeated = {name: column[0, which] for name, column in data.items()}
        found = np.stack([np.sum(x) for x in at_n().evaluate(keys, theta=thetas[point], **repeated)])
        for index in np.flatnonzero(_differ(found, alone[0, point, which])):
            raise DoThisInstead(_mismatch(model_sites.observations[index], rows, model_sites))

    for place, site in enumerate(model_sites.observations):
        finite = np.isfinite(alone[..., place])
        if not np.any(np.all(finite, axis=2)):
            worst = np.unravel_index(np.argmin(finite.sum(axis=1)), finite[:, 0].shape)
            row = {name: column[worst] for name, column in data.items() if not name.endswith(_LATENTS)}
            words = (f"{name} = {np.array2string(row[name], precision=4, threshold=6)}" for name in row)
            raise DoThisInstead(
                f"site {site.name!r}: its log density is not finite on rows of the declared domain, such as "
                f"{', '.join(words)}; declare the domains of its columns so that every row is possible: "
                f"{_possible(site)}."
            )


def _differ(whole: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """Where the whole differs from the sum of its rows, which are the last axis but one of ``alone``."""
    summed = alone.sum(axis=-2)
    with np.errstate(invalid="ignore"):
        same = np.abs(whole - summed) <= _TOLERANCE * (1 + np.abs(alone).sum(axis=-2))
    # Both may overflow together (an unbounded column under exp); never one alone.
    finite = np.isfinite(whole), np.isfinite(summed)
    return np.asarray(np.where(finite[0] & finite[1], ~same, finite[0] != finite[1]))


def _possible(site: Observation) -> str:
    """How outcomes of this family are declared."""
    if not site.whole:
        return (
            "a Box may not reach an end that is not possible (a positive outcome: Box(0.001, …), a "
            "proportion: Box(0.001, 0.999)); an interval: its lower end, and its width, above 0"
        )
    said = [
        f"an outcome of {site.family} is a whole number, no Box: Binary(), Categories(k) or Counts(max); "
        "several outcomes of a row: one column for each, joined by jnp.stack([…], -1), or "
        "obs=jnp.round(…) of a Box"
    ]
    if "Multinomial" in site.family:
        said.append(
            "counts add up to their total: compute it in the model, total_count=counts.sum(-1) with a public "
            "total_count_max="
        )
    elif "Binomial" in site.family and not site.family.startswith("Negative"):
        said.append("no outcome is above its number of trials (total_count, 1 by default): Counts(trials)")
    return "; ".join(said)


def _mismatch(site: Observation, rows: Rows, model_sites: ModelSites) -> str:
    fixed = sorted(plate for plate, size in model_sites.plates.items() if plate in site.plates and size > 1)
    causes = {
        f"its rows are not inside a plate ({site.name!r} has none)": not site.plates,
        f"plate {', '.join(fixed)} has a size that does not follow the number of rows": fixed,
        "it reads more than its own person's latents, u[person]: identifiers index latents, and no more": any(
            column.endswith(OF_A_PERSON) for column in rows.columns
        ),
        "the model mixes rows (centring, sorting, a lag)": True,
        "its term depends on the number of rows (pass a public n through model_args)": True,
    }
    return (
        f"site {site.name!r}: the sum of the rows' own log densities differs from that of the whole model. "
        f"Likely: {'; '.join(cause for cause, seen in causes.items() if seen)}. Every row needs a term of "
        "its own: compute such columns beforehand from public facts, and put observed sites inside "
        "`numpyro.plate(…, X.shape[0])`."
    )


# In place of the ends of columns that have none, and of latents' on the unconstrained space.
_FAR, _FAR_OF_LATENTS = 10.0, 3.0
_LATENTS = (OF_A_ROW, OF_A_PERSON)


def rows_at_ends(rows: Rows, count: int, seed: int = 0) -> dict[str, np.ndarray]:
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
    values: np.ndarray = np.clip(low + (high - low) * turns, low, high)
    if np.issubdtype(domain.dtype, np.integer):
        return np.asarray(np.rint(values), domain.dtype)
    lengths = np.linalg.norm(values.reshape(count, -1), axis=1)
    largest = domain.norm_bound
    shrink, longer = np.ones(count), lengths > largest
    shrink[longer] = largest * (1 - 1e-15) / lengths[longer]
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


_STEPS = np.array([-3.0, -1.0, -0.1, 0.1, 1.0, 3.0])


def refuse_other_densities(found: Potential, program: Program, observed: Sequence[str]) -> None:
    """Compare what runs in place of NumPyro's log densities with these, at synthetic rows, up to constants.

    The tables' forms are those of classes of distributions with the parameters that they hold. Predictors are
    moderate, where no density clamps.
    """
    several = found.term.predictors
    data = rows_at_ends(found.term.rows, _ROWS)
    turns = np.cos(np.outer(0.7 + 0.37 * np.arange(_ROWS), np.arange(1.0, found.dim + 1)))
    reach = several.radius if several is not None and several.radius < math.inf else 1.0
    forms = {part.site.name: part.potential for part in found.prior.own}
    lines = turns / (np.linalg.norm(turns, axis=1, keepdims=True) * max(reach, 1.0))

    def at(theta: jax.Array, row: Row) -> dict[str, jax.Array]:
        given = {program.inputs[name]: value for name, value in {"theta": theta, **row}.items()}
        out = {}
        for site in found.sites:
            keys = [program.outputs[Output(kind, site.name)] for kind in ("prior", "jacobian")]
            form = forms.get(site.name)
            if form is not None:
                own = sum(program.run(keys, given))
                out[site.name] = jnp.stack([form(theta[site.slice]), own])
        if several is not None and several.family.name != UNKNOWN.name:
            keys = [program.outputs[Output("row", name)] for name in observed]
            out[", ".join(observed)] = jnp.stack([found.term.loss(theta, row), sum(program.run(keys, given))])
        return out

    every = jax.jit(jax.vmap(jax.vmap(at, (0, None))), compiler_options=RUN_ONCE)
    known = every(_STEPS[:, None] * lines[:, None], data)
    for name, values in known.items():
        both = np.where(np.isfinite(values).all(axis=-1, keepdims=True), values, np.nan)
        gaps, sizes = both.sum(axis=-1), 1 + np.abs(both).sum(axis=-1)
        with np.errstate(invalid="ignore"):
            same = np.abs(gaps - np.nanmedian(gaps, axis=1, keepdims=True)) <= 1e-5 * sizes
        if not np.all(same | np.isnan(gaps)):
            raise DoThisInstead(
                f"site {name!r}: its log density is not that of its class with the parameters that it holds "
                "(an attribute, a method or a transform was changed, or its base is masked): make the "
                "distribution anew, with the parameters that you mean, or write the row's term as a "
                "numpyro.factor in the plate of the rows."
            )


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


def differing_terms(one: Program, many: Program, keys: Sequence[Output]) -> list[Output]:
    """Which of these, of latents alone, follow the rows, or have other values on one row than on many."""
    free = [
        key for key in keys if (one.reads([one.outputs[key]]) | many.reads([many.outputs[key]])) <= {"theta"}
    ]
    made = {key: one.operations(one.outputs[key]) for key in free}
    alike = {key for key in free if made[key] and made[key] == many.operations(many.outputs[key])}
    free = [key for key in free if key not in alike]
    if not free:
        return [key for key in keys if key not in alike]
    thetas = np.random.default_rng(0).normal(size=(3, *one.shape(one.inputs["theta"])))
    values = (program.evaluate(free, True, theta=thetas) for program in (one, many))
    same = {
        key
        for key, first, second in zip(free, *values, strict=True)
        if np.allclose(first, second, rtol=1e-9, atol=1e-12, equal_nan=True)
    }
    return [key for key in keys if key not in same | alike]


def refuse_prior_on_count(one: Program, many: Program, model_sites: ModelSites, stated: list[str]) -> None:
    """The prior is the same for one row and for many, and so are sites with ``stated`` values."""
    kinds: tuple[Kind, ...] = ("value", "jacobian", "prior")
    keys = [Output(kind, site.name) for site in model_sites.latents for kind in kinds]
    for key in differing_terms(one, many, [*keys, *(Output("row", name) for name in stated)]):
        raise DoThisInstead(
            f"the prior of site {key.site!r} depends on the number of rows of the data; "
            "pass a public number through model_args instead."
        )


def refuse_other_persons(
    own: OwnLatents,
    one: Potential,
    observed: Sequence[str],
    rows: Rows,
    n: int,
    densities: Callable[[jax.Array, Data, Mapping[str, jax.Array]], Mapping[str, jax.Array]],
) -> None:
    """Compare NumPyro's own densities of the rows of ``n`` persons with those of each person by herself.

    ``densities`` are those of all sites, not summed, of rows whose persons have these numbers, at values of
    the latents; ``one`` is the reading of a row, with sites ``observed``. Only differences between
    points count.
    """
    random = np.random.default_rng(0)
    numbers = sum(math.prod(domain.event_shape) for _, domain in rows.items)
    data = rows_at_ends(rows, max(3, min(n, MOST_NUMBERS // numbers)))
    count = len(next(iter(data.values())))
    whose, theta = random.permutation(n)[np.arange(count) % n], random.normal(size=one.dim)
    drawn = {
        latent.column: np.arange(n) % latent.values
        if latent.values
        else random.normal(size=(n, *latent.domain.event_shape))
        for latent in own.latents
    }

    def gaps(scale: jax.Array, who: jax.Array, columns: Row) -> tuple[jax.Array, jax.Array]:
        columns, at = dict(columns), scale * theta
        for latent in own.latents:
            moved = columns[latent.column] * (1 if latent.values else scale)
            columns[latent.column] = moved.astype(latent.domain.dtype)
        values = {site.name: one.constrain(at)[site.name] for site in one.sites}
        values |= {latent.site: latent.transform(columns[latent.column]) for latent in own.latents}
        found = densities(who, data, values)
        of_persons = sum(found[latent.site].reshape(n, -1).sum(axis=1) for latent in own.latents)
        of_rows = sum(jnp.reshape(found[name], (count, -1)).sum(axis=1) for name in observed)
        mine = jax.tree.map(lambda column: column[who], columns)
        losses = jax.vmap(functools.partial(own.term, at))(mine, jax.tree.map(jnp.asarray, data))
        return of_persons - jax.vmap(functools.partial(own.density, at))(columns), of_rows + losses

    every = jax.jit(jax.vmap(gaps, (0, None, None)), compiler_options=RUN_ONCE)
    persons, of_rows = map(np.asarray, every(jnp.array([0.0, 0.5, 1.5]), whose, drawn))
    scale = 1e-6 * (1 + np.abs(of_rows[0]).max())
    if np.any(np.abs(of_rows - of_rows[0]) > scale):
        raise DoThisInstead(
            f"site {', '.join(map(repr, observed))}: a row's term is no function of its own person's latents "
            "and of those that all share. Index the latents of persons by the identifiers, as in u[person], "
            "and by nothing else."
        )
    if np.any(np.abs(persons) > scale):
        raise DoThisInstead(
            f"site {', '.join(map(repr, own.names))}: its density is another one for a person with another "
            "number. Numbers are those of identifiers in some order: what is known of a person is a column "
            "of the rows."
        )


# Of a row's, or a person's, log likelihood.
_ACCURATE, _ROWS, _SIZES = 1e-3, 6, np.array([0.0, 0.5, -0.7, 1.0])


def refuse_coarse_sums(
    sites: Sequence[str], whose: str, rows: Rows, dim: int, loss: RowLoss, finer: RowLoss
) -> None:
    """Compare sums over what latents may be with those over many more points, at moderate parameters.

    ``NotYetSupported``, by name, where they are too far off at synthetic rows.
    """

    def gap(pair: tuple[jax.Array, Row]) -> jax.Array:
        return finer(*pair) - loss(*pair)

    with jax.enable_x64(True), jax.default_matmul_precision(EXACT):
        # One by one: a program of many rows takes longer to be traced and compiled than to run.
        which = np.indices((len(_SIZES), _ROWS)).reshape(2, -1)
        data = {name: column[which[1]] for name, column in rows_at_ends(rows, _ROWS).items()}
        thetas = _SIZES[which[0], None] * np.cos(np.arange(dim))
        every = jax.jit(functools.partial(jax.lax.map, gap), compiler_options=RUN_ONCE)
        gaps = np.asarray(every((thetas, data)))
    worst = float(np.max(np.abs(gaps), initial=0.0, where=np.isfinite(gaps)))
    if worst > _ACCURATE:
        raise NotYetSupported(
            f"latents {list(sites)} of each {whose}: the sum over their values is off by {worst:.2g} of a "
            f"log likelihood at ends of the declared domain (at most {_ACCURATE} is taken): it is too narrow "
            "there, or has several peaks. Narrow the domain (of a standard error, of numbers of trials), "
            "measure the column of a slope in larger units (from 0 to 2, not to 100), or integrate them out "
            "by hand, as a numpyro.factor in the plate of the rows."
        )
