"""Nested models for free: released draws projected onto a model without a term, for public people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions.distribution import validation_enabled

from private_mcmc.data.comparisons import Comparisons, People, read_people
from private_mcmc.data.design import INTERCEPT, Design
from private_mcmc.data.effects import Array, Effect
from private_mcmc.errors import DeclarationError, NotYetSupported
from private_mcmc.records import Record

if TYPE_CHECKING:
    import pandas

# Their log densities are linear in a statistic, so that at its mean they differ by their divergence.
FAMILIES = (
    *("bernoulli", "binomial", "poisson", "negativebinomial"),
    *("gaussian", "lognormal", "gamma", "exponential"),
)
_DRAWS, _STEPS, _SMALL = 100, 12, 1e-9


def nested(answers: Comparisons, people: People, weights: Sequence[float] = ()) -> pandas.DataFrame:
    """What is lost without each term, and those that contain it: nats of log density per person.

    Of the model without them each draw takes the parameters that lose least for the stated people,
    ``min_β Σ w_i KL(p(y | η_i) ‖ p(y | x_iᵀβ)) / Σ w_i``, found by Newton's method from the nearest
    predictor. Nothing is fitted to the rows. Terms with a field that nobody states, whose values would all be
    the same, are left out. Columns: ``term``, ``estimate``, ``conf_low``, ``conf_high``.
    Source: Goutis, Robert 1998; Piironen, Paasiniemi, Vehtari 2020.

    Raises:
        DeclarationError: for one person, or those of whom no term is told.
        NotYetSupported: for outcomes of which a mean does not tell the density.
    """
    made, family = answers.design, answers.design.family
    if family.name not in FAMILIES or made.formula.event:
        raise NotYetSupported(
            f"family {family.name!r}: terms are left out of {', '.join(FAMILIES)}; private-mcmc compare says "
            "which of any two studies predicts better."
        )
    named = {name for profile in read_people(people) for name in profile}
    ((_, everyone),) = answers.at_levels(people, (), weights)
    shares = np.array([weight for _, weight in everyone])
    shares, stated = shares / shares.sum(), set.intersection(*(set(codes) for codes, _ in everyone))
    rows = {name: np.array([codes[name] for codes, _ in everyone]) for name in stated}
    effects = [one for one in made.shared if not one.term.group or one.term.group in stated]
    told = [one for one in effects if named.issuperset(one.term.fields)]
    if len(everyone) < 2 or not told:
        raise DeclarationError("nested: of several people, such as those of a table that describe wrote.")
    step = -(-len(next(iter(answers.draws.values()))) // _DRAWS)
    draws = {name: values[::step] for name, values in answers.draws.items()}
    # A mean is no count: that densities are asked for it is no mistake.
    with jax.enable_x64(True), validation_enabled(False):
        eta = np.asarray(jax.vmap(lambda row: made.predictor(draws, row, jnp), out_axes=1)(rows))
        sites, columns, offset = _columns(made, rows, effects)
        own = {name: np.broadcast_to(one, len(eta)) for name, one in made.values(draws).items()}
        public = {"dist": dist, "jnp": jnp, "jax": jax, "trials": 1}

        @jax.jit
        def lost(kept: jax.Array, eta: jax.Array, own: Record, mean: jax.Array) -> Any:
            X, small = columns * kept, _SMALL * jnp.eye(len(sites))

            def loss(eta: Any) -> Any:
                law = eval(family.likelihood, {**public, **own, "eta": eta, "mu": eta})
                return -shares @ law.log_prob(mean)

            def at(beta: Any) -> Any:
                return loss(X @ beta + offset)

            def newton(_: int, beta: Any) -> Any:
                return beta - jnp.linalg.solve(jax.hessian(at)(beta) + small, jax.grad(at)(beta))

            start = jnp.linalg.solve(X.T @ X + small, X.T @ (eta - offset))
            return at(jax.lax.fori_loop(0, _STEPS, newton, start)) - loss(eta)

        means = np.asarray(family.inverse_link(eta))

        def without(term: Effect, _: str) -> Array:
            gone = {one.name for one in effects if _factors(term) <= _factors(one)}
            kept = np.array([name not in gone for name in sites], float)
            found = np.asarray(jax.vmap(lost, (None, 0, 0, 0))(kept, eta, own, means))
            return np.where(found > _SMALL, found, 0.0)  # not what rounding leaves of nothing

        return answers.frame((({"term": one.name}, partial(without, one)) for one in told), ("",))


def _factors(effect: Effect) -> set[str]:
    return {number.text for number in effect.term.numbers} | {name for name, _ in effect.term.categories}


def _columns(
    made: Design, rows: Mapping[str, Array], effects: Sequence[Effect]
) -> tuple[list[str], Array, Array]:
    """The site of each of the predictor's coordinates, its columns ``(people, coordinates)``, its offset."""
    shapes: dict[str, tuple[int, ...]] = {INTERCEPT: ()} if made.intercept is not None else {}
    shapes |= {one.name: one.shape for one in effects}
    sizes = [math.prod(shape) for shape in shapes.values()]
    units = np.vstack([np.zeros(sum(sizes)), np.eye(sum(sizes))])
    parts = np.split(units, np.cumsum(sizes)[:-1], axis=1)
    draws = {
        name: part.reshape(-1, *shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }
    draws |= {one.spread_name: np.ones(len(units)) for one in effects if one.spread}
    draws |= {name: np.full(len(units), 0.5) for name in made.correlations}
    found = np.asarray(jax.vmap(lambda row: made.predictor(draws, row, jnp))(rows))
    sites = [name for name, size in zip(shapes, sizes, strict=True) for _ in range(size)]
    return sites, found[:, 1:] - found[:, :1], found[:, 0]
