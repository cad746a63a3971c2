"""Arguments that do not fit, latents and priors that follow rows or other persons: refused by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from private_mcmc.domains.rows import Rows
from private_mcmc.errors import DeclarationError, DoThisInstead
from private_mcmc.model.integrated import OwnLatents
from private_mcmc.model.ir.evaluate import evaluate, evaluate_each
from private_mcmc.model.ir.flatten import abstract, has_own_derivatives, trace
from private_mcmc.model.ir.program import Kind, Output, Program, Vector
from private_mcmc.model.row_sum import MOST_NUMBERS, synthetic_rows
from private_mcmc.model.sites import ModelSites, Site
from private_mcmc.records import Model, PublicArguments


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
    program: Program,
    rows: Rows,
    row_loss: Callable[[jax.Array, Mapping[str, jax.Array]], jax.Array],
    neg_log_prior: Callable[[jax.Array], jax.Array],
) -> None:
    """Trace the gradients that run: a derivative that a function brings with it is in no program of values.

    ``UnsupportedModel``: as ``trace`` does, for what such a derivative prints, calls or mixes.
    """
    if not has_own_derivatives(program):
        return

    def slopes(theta: jax.Array, **row: jax.Array) -> dict[str, jax.Array]:
        return {"row": jax.grad(row_loss)(theta, row), "prior": jax.grad(neg_log_prior)(theta)}

    shapes = {name: abstract(domain.event_shape, domain.dtype) for name, domain in rows.items}
    trace(slopes, theta=abstract(program.shape(program.inputs["theta"]), np.float64), **shapes)


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


def refuse_prior_on_count(one: Program, many: Program, model_sites: ModelSites) -> None:
    """The prior is the same program for one row and for many."""
    for site in model_sites.latents:
        for kind in ("value", "jacobian", "prior"):
            key = Output(kind, site.name)
            if one.text([one.outputs[key]]) != many.text([many.outputs[key]]):
                raise DoThisInstead(
                    f"the prior of site {site.name!r} depends on the number of rows of the data; "
                    "pass a public number through model_args instead."
                )


SEVERAL = 3
_TOLERANCE = 1e-6


def refuse_other_persons(
    own: OwnLatents,
    sites: Sequence[Site],
    constrain: Callable[[Vector], Mapping[str, jax.Array]],
    rows: Mapping[str, np.ndarray],
    joint: Callable[[Mapping[str, jax.Array]], Mapping[str, jax.Array]],
) -> None:
    """Compare NumPyro's own density of several persons' rows with that of each person by herself.

    ``joint`` has the log densities of the model of ``SEVERAL`` persons at values of all its latents, with
    row ``i`` of ``rows`` that of person ``i`` modulo ``SEVERAL``. Only differences between points count.
    """

    def terms(theta: jax.Array, own_values: jax.Array) -> dict[str, jax.Array]:
        vectors = [own.embed(theta, each) for each in own_values]
        each = [constrain(vector) for vector in vectors]
        kinds = [
            {one.column: jnp.asarray(index % one.values, one.domain.dtype) for one in own.classes}
            for index in range(SEVERAL)
        ]
        values = {
            site.name: jnp.concatenate([value[site.name] for value in each])
            if site in own.sites
            else each[0][site.name]
            for site in sites
        } | {one.site: jnp.stack([kind[one.column] for kind in kinds]) for one in own.classes}
        parts = [
            -own.term(
                theta,
                own_values[index % SEVERAL],
                kinds[index % SEVERAL],
                {name: jnp.asarray(column[index]) for name, column in rows.items()},
            )
            for index in range(len(next(iter(rows.values()))))
        ]
        parts += [
            jnp.sum(
                own.program.run(
                    [own.program.outputs[Output("prior", site.name)]], {own.program.inputs["theta"]: vector}
                )[0]
            )
            for site in sites
            for vector in (vectors if site in own.sites else vectors[:1])
        ]
        parts += [own.of_classes(theta, *pair) for pair in zip(own_values, kinds, strict=True)]
        return {
            "whole": jnp.stack([jnp.sum(density) for density in joint(values).values()]),
            "parts": jnp.stack(parts),
        }

    # Traced once and evaluated in NumPy: operation by operation JAX would compile each of them.
    program = trace(
        terms,
        theta=abstract((len(own.shared),), np.float64),
        own_values=abstract((SEVERAL, len(own.own)), np.float64),
    )
    points = np.random.default_rng(0).normal(size=len(own.shared) + SEVERAL * len(own.own))
    points = np.multiply.outer([0.0, 0.5, 1.5], points)
    whole, parts = evaluate_each(
        program,
        ["whole", "parts"],
        theta=points[:, : len(own.shared)],
        own_values=points[:, len(own.shared) :].reshape(3, SEVERAL, len(own.own)),
    )
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
    constrain: Callable[[Vector], Mapping[str, jax.Array]],
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
    theta, drawn = 0.5 * random.normal(size=len(own.shared)), random.normal(size=(_KINDS, len(own.own)))
    constrained = trace(
        lambda drawn: dict(constrain(own.embed(jnp.asarray(theta), drawn))),
        drawn=abstract((len(own.own),), np.float64),
    )
    names = [site.name for site in sites]
    some = dict(zip(names, evaluate_each(constrained, names, drawn=drawn), strict=True))
    kind = random.integers(0, _KINDS, n)
    mine = {site.name: some[site.name].reshape(_KINDS, *site.shape[1:])[kind] for site in own.sites} | {
        one.site: (kind % one.values).astype(one.domain.dtype) for one in own.classes
    }
    shared = {site.name: jnp.asarray(some[site.name][0]) for site in sites if site not in own.sites}
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
        return dict(
            zip(program.outputs, evaluate(program, [*program.outputs], who=who, **given), strict=True)
        )

    before, after = at(who, np.arange(n)), at(moved[who], back)
    for name, density in before.items():
        same = after[name][moved] if name in mine else after[name]
        if not np.allclose(density, same, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
            raise DoThisInstead(
                f"site {name!r}: its density is another one for a person with another number. Numbers are "
                "those of identifiers in some order: what is known of a person is a column of the rows."
            )
