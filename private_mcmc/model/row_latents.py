"""Latents of single rows and of persons: missing values, the parts of a mixture, effects.

A latent in the plate of the rows, or of the persons, is read as one more column of the row, so that all that
is asked of a row's term is asked of it as well; then it is summed out (``integrated``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to

from private_mcmc.domains import Binary, Categories, Domain, Real, Rows
from private_mcmc.errors import DoThisInstead, NotYetSupported
from private_mcmc.model.sites import Message, ModelSites, family_name, is_improper, masks, unwrap
from private_mcmc.model.tracing import ONE_AT_A_TIME, Feasible, Whole, discover
from private_mcmc.records import Fields, Model, PublicArguments

Row = Mapping[str, jax.Array]
RowLoss = Callable[[jax.Array, Row], jax.Array]
# Points of a grid for all that a latent may be, one or two of them Normal, or of another family.
POINTS, PLAIN_POINTS = {1: 37, 2: 21}, 65
_MOST_POINTS, _MOST_CLASSES, _MOST_NUMBERS = 1024, 64, 2
_ON_A_LINE = {"Normal": dist.transforms.IdentityTransform(), "LogNormal": dist.transforms.ExpTransform()}


_BY_HAND = (
    "Of a discrete one, the outcome's probabilities are those that it chooses between, each times its own, "
    "added up; along a series, the forward algorithm by jax.lax.scan, in a numpyro.factor of the row."
)
# How the columns of latents are called; no argument of a model has such a name.
OF_A_ROW, OF_A_PERSON = " of the row", " of the person"


@dataclass(frozen=True, eq=False)
class RowLatent:
    """What a row, or its person, has that is no data: a number, a few of them, or one of several values.

    Attributes:
        site: its name in the model.
        values: how many it may have, ``0`` for real numbers.
        transform: from the real line onto its support, the identity for a discrete one.
        line: whether its distribution is a Normal, or the exponential of one.
        of: the end of its column's name: a row's, or a person's.
        dim: how many numbers it is on the unconstrained space; ``None`` for a single one.
    """

    site: str
    values: int
    transform: dist.transforms.Transform
    line: bool
    of: str = OF_A_ROW
    dim: int | None = None

    @property
    def column(self) -> str:
        """Under which it is read as a column: of its unconstrained value."""
        return self.site + self.of

    @property
    def domain(self) -> Domain:
        """What the column may be."""
        if not self.values:
            return Real(self.dim)
        return Binary() if self.values == 2 else Categories(self.values)

    @property
    def numbers(self) -> int:
        """How many real numbers it is."""
        return 0 if self.values else 1 if self.dim is None else self.dim


def with_columns(model: Model, latents: tuple[RowLatent, ...]) -> Model:
    """The model with the latents of rows as columns."""

    def run(**arguments: jax.Array) -> object:
        given = {latent.site: latent.transform(arguments.pop(latent.column)) for latent in latents}
        with handlers.condition(data=given):
            return model(**arguments)

    return run


def row_latents(
    model: Model, rows: Callable[[int], Fields], public: PublicArguments, count: int
) -> tuple[RowLatent, ...]:
    """The latents whose plate has as many elements as there are rows: 1, and ``count``.

    ``DoThisInstead`` where they are all that is said of rows; ``NotYetSupported`` for those that are not
    summed out, by name.
    """
    one = _sites(model, rows(1), public)
    single = [
        name for name, message in one.items() if not message["is_observed"] and 1 in _plates(message).values()
    ]
    # A model without such latents, as most are, is not run again.
    many = _sites(model, rows(count), public) if single else {}
    found = []
    for name in single:
        later = _plates(many.get(name, one[name]))
        if any(size == 1 and later.get(plate) == count for plate, size in _plates(one[name]).items()):
            _refuse_weights(name, one)
            found.append(_latent(name, one[name]))
    if found and not any(message["is_observed"] for message in one.values()):
        raise DoThisInstead(
            f"nothing is observed: sites {[latent.site for latent in found]} of every row are latents here. "
            "Declare the observed column in Rows and pass it as `obs=`."
        )
    if math.prod(_points(latent, found) for latent in found) > _MOST_POINTS:
        raise NotYetSupported(
            f"latents {[latent.site for latent in found]} of each row take too many values together "
            f"(at most {_MOST_POINTS} are summed over, and two real numbers). {_BY_HAND}"
        )
    return tuple(found)


def persons_latents(
    model: Model, rows: Fields, public: PublicArguments, identifiers: str, persons: int
) -> tuple[tuple[RowLatent, ...], str]:
    """The latents of each of so many persons, and the name of the plate that they are in.

    ``DoThisInstead`` without such a plate; ``NotYetSupported`` for what is not summed out, by name.
    """
    sites = _sites(model, rows, public)
    if not sites:
        discover(model, rows, public)  # says why the model cannot be run
    found, plates = [], set[str]()
    for name, message in sites.items():
        own = {plate for plate, size in _plates(message).items() if size == persons}
        if own and not message["is_observed"]:
            if len(_plates(message)) > 1:
                raise NotYetSupported(
                    f"site {name!r} lies in plates {tuple(_plates(message))}; of persons' latents only one."
                )
            _refuse_weights(name, sites)
            found.append(_latent(name, message, persons, OF_A_PERSON))
            plates |= own
    if len(plates) != 1:
        unread = " Without such latents leave the argument out: whose rows are whose is known without it."
        raise DoThisInstead(
            f"the model takes the identifiers {identifiers!r}: put the latents of persons into "
            f"one plate of the public number of persons, n={persons} (of {len(plates)} such plates)."
            f"{'' if plates else unread}"
        )
    names = [latent.site for latent in found]
    numbers = sum(latent.numbers for latent in found)
    if numbers > _MOST_NUMBERS:
        raise NotYetSupported(
            f"plate {min(plates)!r}: each person has {numbers} latent numbers ({names}), and at most "
            f"{_MOST_NUMBERS} are integrated out; share some among persons."
        )
    if math.prod(latent.values or 1 for latent in found) > _MOST_CLASSES:
        raise NotYetSupported(f"discrete latents of a person, of {names}: more than {_MOST_CLASSES} values.")
    return tuple(found), min(plates)


def _plates(message: Message) -> dict[str, int]:
    return {frame.name: frame.size for frame in message["cond_indep_stack"]}


def _sites(model: Model, rows: Fields, public: PublicArguments) -> dict[str, Message]:
    """Sites of one run on abstract rows; a model that cannot be run is refused where it is read."""
    found: dict[str, Message] = {}

    def run(columns: Mapping[str, jax.Array]) -> None:
        with handlers.trace() as messages, handlers.seed(rng_seed=0), Feasible(), Whole(ModelSites()):
            model(**columns, **public)
        for name, message in messages.items():
            if message["type"] == "sample":
                found[name] = message

    with ONE_AT_A_TIME:
        try:
            jax.eval_shape(run, dict(rows))
        except Exception:
            return {}
    return found


def _refuse_weights(name: str, messages: Mapping[str, Message]) -> None:
    """Under a scale or a mask its density does not integrate to 1, by which the grid's weights are divided.

    Of ``obs_mask`` NumPyro makes a mask itself: where it holds the outcome does not read the latent.
    """
    site, message = name.removesuffix("_unobserved"), messages[name]
    missing = site != name and f"{site}_observed" in messages
    if message["scale"] is not None or len(masks(message["fn"])) > missing:
        raise NotYetSupported(
            f"site {name!r} is a latent of every row under handlers.scale or mask; put the handler around "
            "the observed sites alone, and give missing values an obs_mask= of their own site."
        )


def _latent(name: str, message: Message, count: int = 1, of: str = OF_A_ROW) -> RowLatent:
    whose = of.split()[-1]
    fn, shape = unwrap(message["fn"]), jnp.shape(message["value"])
    if math.prod(shape) == count and shape != (count,):
        raise DoThisInstead(
            f"site {name!r} has one number for every {whose}, in shape {shape}: latents are summed out where "
            "their plate is the last dimension. Put that plate at dim=-1, and repeated outcomes of a "
            f"{whose} into sites of their own or into one with to_event(1)."
        )
    if shape[:1] != (count,) or (of == OF_A_ROW and shape != (count,)):
        raise DoThisInstead(
            f"site {name!r} has {math.prod(shape) // count} numbers for every {whose}: single numbers are "
            f"summed out. Write them as sites of their own, or integrate them out. {_BY_HAND}"
        )
    if is_improper(fn):
        raise DoThisInstead(
            f"site {name!r} is a latent of every {whose}, and its density does not integrate to 1 "
            "(ImproperUniform): summing it out has no meaning. Give it a proper distribution."
        )
    identity = dist.transforms.IdentityTransform()
    kind = type(fn).__name__
    if shape == (count,) and kind.startswith("Bernoulli"):
        return RowLatent(name, 2, identity, False, of)
    if shape == (count,) and kind.startswith("Categorical"):
        logits = fn.logits if kind == "CategoricalLogits" else fn.probs
        return RowLatent(name, int(jnp.shape(logits)[-1]), identity, False, of)
    if fn.support is None or fn.support.is_discrete:
        raise DoThisInstead(
            f"site {name!r} is a discrete latent of every {whose} ({kind}): Bernoulli and Categorical ones "
            "are summed out. Write it as one of these, or sum it out with MixtureSameFamily."
        )
    line = family_name(fn) in _ON_A_LINE
    if not line and any(isinstance(part, jax.core.Tracer) for part in jax.tree.leaves(fn.support)):
        raise NotYetSupported(f"site {name!r}: the support of a {whose}'s own latent follows other values.")
    transform = _ON_A_LINE[kind] if line else biject_to(message["fn"].support)
    free = transform.inverse_shape(shape)[1:]
    if len(free) > 1:
        raise NotYetSupported(f"site {name!r}: a {whose}'s own latents are numbers or vectors of numbers.")
    return RowLatent(name, 0, transform, line, of, free[0] if free else None)


def _points(latent: RowLatent, latents: list[RowLatent]) -> int:
    if latent.values:
        return latent.values
    numbers = sum(each.numbers for each in latents)
    return _MOST_POINTS + 1 if numbers > _MOST_NUMBERS else POINTS[numbers] if latent.line else PLAIN_POINTS


def columns_of(rows: Rows, latents: tuple[RowLatent, ...]) -> Rows:
    """The declaration with the latents' columns."""
    return Rows(**rows.columns, **{latent.column: latent.domain for latent in latents})
