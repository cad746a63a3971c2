"""What a NumPyro model is made of: its sites, described from the messages of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.typing import ArrayLike
from numpyro.distributions import biject_to, constraints

from private_mcmc.errors import DoThisInstead, NotYetSupported, UnsupportedModel
from private_mcmc.potential.prior import Site
from private_mcmc.records import Record

# What NumPyro's handlers are given of one site.
Message: TypeAlias = Record

_TRUNCATED = (
    dist.LeftTruncatedDistribution,
    dist.RightTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
)
_CENSORED = (dist.LeftCensoredDistribution, dist.RightCensoredDistribution, dist.IntervalCensoredDistribution)
_INFLATED = (dist.ZeroInflatedProbs, dist.ZeroInflatedLogits)
_OF_A_BASE = (*_TRUNCATED, *_CENSORED, *_INFLATED, dist.TransformedDistribution)
_WITHOUT_PARAMETERS = (dist.transforms.ExpTransform, dist.transforms.OrderedTransform)
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
# Densities that are continuous at 0, where NumPyro's supports are open.
_FROM_ZERO = (dist.Exponential, dist.FoldedDistribution, dist.HalfCauchy, dist.HalfNormal)


@dataclass(frozen=True)
class Latent(Site):
    """A latent site, as it was written.

    Attributes:
        shape: shape of its value.
        support: name of the support, for example ``real``, ``positive``, ``simplex``.
        family: name of the distribution class, without wrappers.
        plates: names of the plates around it.
        improper: its density is known not to integrate.
    """

    shape: tuple[int, ...]
    support: str
    family: str
    plates: tuple[str, ...]
    improper: bool

    @property
    def coordinates(self) -> list[str]:
        """A name for every unconstrained coordinate, as ``w[2]``."""
        places = np.ndindex(self.unconstrained_shape)
        return [f"{self.name}[{','.join(map(str, place))}]" if place else self.name for place in places]


@dataclass(frozen=True)
class Observation:
    """An observed site.

    Attributes:
        name: its name in the model.
        family: name of the distribution class, without wrappers.
        shape: shape of its value and distribution together, in one row.
        plates: names of the plates around it.
        whole: its values are whole numbers.
    """

    name: str
    family: str
    shape: tuple[int, ...]
    plates: tuple[str, ...]
    whole: bool


@dataclass
class ModelSites:
    """What one run of the model was made of."""

    latents: list[Latent] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    deterministics: list[str] = field(default_factory=list)
    plates: dict[str, int] = field(default_factory=dict)
    subsampled: set[str] = field(default_factory=set)

    @property
    def dim(self) -> int:
        """Length of the flat unconstrained vector."""
        return self.latents[-1].slice.stop if self.latents else 0


def unwrap(fn: dist.Distribution) -> dist.Distribution:
    """The distribution under ``to_event``, ``expand`` and ``mask``."""
    while type(fn) in _WRAPPERS:
        fn = fn.base_dist
    return fn


def made_anew(fn: dist.Distribution) -> dist.Distribution:
    """A distribution of the same class and parameters: what else was changed of it is left behind."""
    made: dist.Distribution = jax.tree.map(lambda leaf: leaf, fn)
    _check_as(made, fn)
    return made


def _check_as(made: dist.Distribution, fn: dist.Distribution) -> None:
    made._validate_args = fn._validate_args
    for name, part in vars(fn).items():
        if isinstance(part, dist.Distribution):
            _check_as(getattr(made, name), part)


def nearest_outcome(fn: dist.Distribution, value: jax.Array) -> jax.Array:
    """An outcome, 0 moved into an open support that begins there, and at most its own row's trials.

    Columns are declared one by one: one of trials says nothing of that of outcomes. What else is impossible
    stays so.
    """
    base = unwrap(fn)
    if type(base) in _FROM_ZERO:
        return jnp.where(value == 0, np.finfo(np.float64).tiny, value)
    most = getattr(base.support, "upper_bound", None)
    if type(base.support) is type(constraints.integer_interval(0, 1)) and isinstance(most, jax.core.Tracer):
        return jnp.minimum(value, most)
    return value


def family_name(fn: dist.Distribution) -> str:
    """Class name of NumPyro's own distributions; others keep their module, so none is mistaken for one."""
    kind = type(fn)
    if kind in _OF_A_BASE:
        return f"{kind.__name__}({family_name(unwrap(fn.base_dist))})"
    known = getattr(dist, kind.__name__, None) is kind
    return kind.__name__ if known else f"{kind.__module__}.{kind.__qualname__}"


def parameters(fn: dist.Distribution) -> dict[str, ArrayLike]:
    """The array parameters that an unwrapped distribution, and its base, hold, by name."""
    names = {name for kind in type(fn).__mro__ for name in getattr(kind, "arg_constraints", {})}
    held = {name: fn.__dict__[name] for name in sorted(names) if name in fn.__dict__}
    found: dict[str, ArrayLike] = {
        k: v for k, v in held.items() if isinstance(v, jax.Array | np.ndarray | float | int)
    }
    if type(fn) in _OF_A_BASE:
        found |= {f"base.{name}": value for name, value in parameters(unwrap(fn.base_dist)).items()}
    return found


def masks(fn: dist.Distribution) -> list[ArrayLike]:
    """The masks laid over a distribution, outermost first."""
    found = []
    while type(fn) in _WRAPPERS:
        if isinstance(fn, dist.MaskedDistribution):
            found.append(fn._mask)
        fn = fn.base_dist
    return found


def describe(
    messages: Mapping[str, Message], model_sites: ModelSites, unfit: Callable[[str, Exception], Exception]
) -> None:
    """Note every site of a run, or refuse it by name, by ``unfit`` where shapes do not go together."""
    start = 0
    for name, message in messages.items():
        kind = message["type"]
        if kind == "deterministic":
            model_sites.deterministics.append(name)
        elif kind == "sample" and message["is_observed"]:
            try:
                model_sites.observations.append(_observation(name, message))
            except UnsupportedModel:
                raise
            except ValueError as error:
                raise unfit(name, error) from error
        elif kind == "sample":
            _refuse_missing_values(name, messages)
            site = _latent(name, message, start)
            start = site.slice.stop
            model_sites.latents.append(site)
        elif kind == "param" and not jax.tree.leaves(message["value"]):
            continue  # of random_flax_module and its like: every entry is a sample, and shapes are left
        elif kind not in ("plate", "prng_key"):
            raise NotYetSupported(
                f"site {name!r} is a numpyro.{kind}; only sample and deterministic sites are read. Give it a "
                "prior, as numpyro.sample, or a public value, as an argument passed by model_args (of "
                "LocScaleReparam: centered=0.0)."
            )


def _plates(message: Message) -> tuple[str, ...]:
    return tuple(frame.name for frame in message["cond_indep_stack"])


def _observation(name: str, message: Message) -> Observation:
    fn = unwrap(message["fn"])
    return Observation(
        name=name,
        family=family_name(fn),
        shape=tuple(np.broadcast_shapes(message["fn"].shape(), jnp.shape(message["value"]))),
        plates=_plates(message),
        whole=fn.support is not None and bool(fn.support.is_discrete),
    )


def _refuse_missing_values(name: str, messages: Mapping[str, Message]) -> None:
    site = name.removesuffix("_unobserved")
    if site != name and f"{site}_observed" in messages:
        raise DoThisInstead(
            f"site {site!r} has an obs_mask: its missing values become latents, one for every row. To leave "
            "them out of the likelihood, write the distribution as `dist.….mask(observed)` and pass `obs=`."
        )


def _latent(name: str, message: Message, start: int) -> Latent:
    fn = message["fn"]
    if fn.support is None or fn.support.is_discrete:
        raise DoThisInstead(
            f"site {name!r} is a discrete latent ({type(unwrap(fn)).__name__}). If it is observed, declare "
            "its column in Rows; otherwise sum it out, for example with MixtureSameFamily."
        )
    if isinstance(unwrap(fn), dist.Delta):
        raise DoThisInstead(f"site {name!r} is a Delta, which has no density; write the value as a constant.")
    if message["scale"] is not None or masks(fn):
        raise NotYetSupported(
            f"site {name!r} is a latent under handlers.scale or mask; write the prior you mean without them."
        )
    try:
        transform = biject_to(fn.support)
    except NotImplementedError as error:
        raise NotYetSupported(
            f"site {name!r}: its support {fn.support} has no unconstrained form."
        ) from error
    shape = tuple(jnp.shape(message["value"]))
    free = tuple(transform.inverse_shape(shape))
    return Latent(
        name=name,
        shape=shape,
        unconstrained_shape=free,
        slice=slice(start, start + int(np.prod(free, dtype=np.int64))),
        support=_support_name(fn.support),
        constraint=None if _has_tracers(fn.support) else fn.support,
        family=_prior_family(unwrap(fn), transform),
        plates=_plates(message),
        improper=is_improper(fn),
    )


def _prior_family(fn: dist.Distribution, transform: dist.transforms.Transform) -> str:
    """A transformed family keeps the name of its base only where its transform is that of its support."""
    if type(fn) is dist.TransformedDistribution:
        own = [type(part) for part in fn.transforms]
        if own != [type(transform)] or own[0] not in _WITHOUT_PARAMETERS:
            return type(fn).__name__
    return family_name(fn)


def _has_tracers(support: constraints.Constraint) -> bool:
    parts = list(vars(support).values()) if hasattr(support, "__dict__") else []
    inner = [part for part in parts if isinstance(part, constraints.Constraint)]
    return any(isinstance(part, jax.core.Tracer) for part in parts) or any(map(_has_tracers, inner))


def is_improper(fn: dist.Distribution) -> bool:
    """Whether it is, or is made of, a density that does not integrate."""
    parts = [part for name, part in vars(fn).items() if name in ("base_dist", "_component_distribution")]
    return isinstance(fn, dist.ImproperUniform) or any(is_improper(part) for part in parts)


def _support_name(support: constraints.Constraint) -> str:
    while type(support) is type(constraints.independent(constraints.real, 1)):
        support = support.base_constraint
    return type(support).__name__.strip("_").lower()
