"""Running a NumPyro model on abstract rows: which sites it has, and its terms as one pure function.

All use of NumPyro's handlers is here. Latents take their values from one flat unconstrained vector; the
log-Jacobians are noted apart, so that they can never be mistaken for observations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.primitives import Messenger

from private_mcmc.errors import DoThisInstead, NotYetSupported, UnsupportedModel

Model = Callable[..., Any]

_WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)


@dataclass(frozen=True)
class Site:
    """A latent site.

    Attributes:
        name: its name in the model.
        shape: shape of its value.
        unconstrained_shape: shape on the unconstrained space.
        slice: where it lies in the flat unconstrained vector.
        support: name of the support, for example ``real``, ``positive``, ``simplex``.
        constraint: NumPyro's object of the support, if its bounds are known numbers, else ``None``.
        family: name of the distribution class, without wrappers.
        plates: names of the plates around it.
        improper: its density is known not to integrate.
    """

    name: str
    shape: tuple[int, ...]
    unconstrained_shape: tuple[int, ...]
    slice: slice
    support: str
    constraint: Any
    family: str
    plates: tuple[str, ...]
    improper: bool


@dataclass(frozen=True)
class Observation:
    """An observed site.

    Attributes:
        name: its name in the model.
        family: name of the distribution class, without wrappers.
        shape: shape of its value and distribution together, in one row.
        plates: names of the plates around it.
    """

    name: str
    family: str
    shape: tuple[int, ...]
    plates: tuple[str, ...]


@dataclass
class Anatomy:
    """What one run of the model was made of."""

    latents: list[Site] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    deterministics: list[str] = field(default_factory=list)
    plates: dict[str, int] = field(default_factory=dict)

    @property
    def dim(self) -> int:
        """Length of the flat unconstrained vector."""
        return self.latents[-1].slice.stop if self.latents else 0


class _Whole(Messenger):  # type: ignore[misc]
    """Reads a subsampled plate as the whole plate: the batches of a run are drawn by its kernel."""

    def __init__(self, anatomy: Anatomy) -> None:
        super().__init__(None)
        self.anatomy = anatomy

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "plate":
            size = msg["args"][0]
            self.anatomy.plates[msg["name"]] = size
            msg["args"] = (size, size)
            msg["value"] = jnp.arange(size)
        elif msg["type"] == "control_flow":
            raise NotYetSupported(
                "the model uses numpyro.contrib.control_flow (scan or cond); "
                "write the recursion with explicit sites, or with jax.lax.scan over one vector-valued site."
            )


class _Feasible(Messenger):  # type: ignore[misc]
    """Gives a latent without a sampler some value of its support, which shows its shape."""

    def process_message(self, msg: dict[str, Any]) -> None:
        improper = msg["type"] == "sample" and isinstance(unwrap(msg["fn"]), dist.ImproperUniform)
        if improper and msg["value"] is None:
            transform = biject_to(msg["fn"].support)
            msg["value"] = transform(jnp.zeros(transform.inverse_shape(msg["fn"].shape())))


class _Unconstrain(Messenger):  # type: ignore[misc]
    """Gives every latent its value from the flat vector and notes the log-Jacobian."""

    def __init__(self, theta: jax.Array, sites: Mapping[str, Site]) -> None:
        super().__init__(None)
        self.theta = theta
        self.sites = sites
        self.log_dets: dict[str, jax.Array] = {}

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        site = self.sites[msg["name"]]
        transform = biject_to(msg["fn"].support)
        free = self.theta[site.slice].reshape(site.unconstrained_shape)
        value = transform(free)
        self.log_dets[site.name] = jnp.sum(transform.log_abs_det_jacobian(free, value))
        msg["value"] = value


def unwrap(fn: Any) -> Any:
    """The distribution under ``to_event``, ``expand`` and ``mask``."""
    while type(fn) in _WRAPPERS:
        fn = fn.base_dist
    return fn


def family_name(fn: Any) -> str:
    """Class name of NumPyro's own distributions; others keep their module, so none is mistaken for one."""
    kind = type(fn)
    if kind is dist.MixtureSameFamily and fn.component_distribution.event_dim == 0:
        return f"MixtureSameFamily({family_name(unwrap(fn.component_distribution))})"
    known = getattr(dist, kind.__name__, None) is kind
    return kind.__name__ if known else f"{kind.__module__}.{kind.__qualname__}"


def parameters(fn: Any) -> dict[str, Any]:
    """The array parameters that an unwrapped distribution holds, by name."""
    if type(fn) is dist.MixtureSameFamily:
        inner = (
            parameters(unwrap(fn.component_distribution)) if fn.component_distribution.event_dim == 0 else {}
        )
        weights = fn.mixing_distribution.probs
        return {"weights": weights, **{f"component.{name}": value for name, value in inner.items()}}
    names = {name for kind in type(fn).__mro__ for name in getattr(kind, "arg_constraints", {})}
    held = {name: fn.__dict__[name] for name in sorted(names) if name in fn.__dict__}
    return {k: v for k, v in held.items() if isinstance(v, jax.Array | np.ndarray | float | int)}


def masks(fn: Any) -> list[Any]:
    """The masks laid over a distribution, outermost first."""
    found = []
    while type(fn) in _WRAPPERS:
        if isinstance(fn, dist.MaskedDistribution):
            found.append(fn._mask)
        fn = fn.base_dist
    return found


def discover(model: Model, rows: Mapping[str, Any], model_args: Mapping[str, Any]) -> Anatomy:
    """The sites of the model, found on abstract rows.

    Raises:
        UnsupportedModel: for what cannot be read (a factor, a discrete latent, a parameter, …), by name.
    """
    anatomy = Anatomy()

    def run(columns: Mapping[str, jax.Array]) -> None:
        with _Feasible(None):
            messages = _trace(model, columns, model_args, anatomy)
        _describe(messages, anatomy)

    jax.eval_shape(run, dict(rows))
    if not anatomy.latents:
        raise DoThisInstead("the model has no latent site: there is nothing to sample.")
    if not anatomy.observations:
        raise DoThisInstead(
            "the model has no observed site: declare the observed column in Rows and pass it as `obs=`."
        )
    return anatomy


def terms(model: Model, model_args: Mapping[str, Any], sites: list[Site]) -> Callable[..., dict[str, Any]]:
    """The model as ``f(theta, **rows)``: every term by kind and name.

    Keys: ``prior:`` log density, ``jacobian:`` log-Jacobian and ``value:`` constrained value of a latent;
    ``row:`` log density of an observed site, summed; ``density:`` the same before summing;
    ``observed:`` its value; ``weight:SITE:…`` its scale and masks; ``given:SITE:PARAMETER`` of any site;
    ``deterministic:`` values; ``loss`` minus the sum of the ``row:`` terms.
    """
    by_name = {site.name: site for site in sites}

    def function(theta: jax.Array, **rows: jax.Array) -> dict[str, Any]:
        unconstrain = _Unconstrain(theta, by_name)
        with unconstrain:
            messages = _trace(model, rows, model_args, Anatomy())
        out: dict[str, Any] = {}
        for name, message in messages.items():
            if message["type"] == "deterministic":
                out[f"deterministic:{name}"] = jnp.asarray(message["value"])
            if message["type"] != "sample":
                continue
            density = message["fn"].log_prob(message["value"])
            density = density if message["scale"] is None else message["scale"] * density
            if message["is_observed"]:
                out[f"row:{name}"] = jnp.sum(density)
                out[f"density:{name}"] = density
                out[f"observed:{name}"] = jnp.asarray(message["value"])
            else:
                out[f"prior:{name}"] = jnp.sum(density)
                out[f"jacobian:{name}"] = unconstrain.log_dets[name]
                out[f"value:{name}"] = message["value"]
            for parameter, value in parameters(unwrap(message["fn"])).items():
                out[f"given:{name}:{parameter}"] = jnp.asarray(value)
            if message["is_observed"] and message["scale"] is not None:
                out[f"weight:{name}:scale"] = jnp.asarray(message["scale"])
            for index, mask in enumerate(masks(message["fn"])):
                out[f"weight:{name}:mask{index}"] = jnp.asarray(mask)
        out["loss"] = -sum(value for key, value in out.items() if key.startswith("row:"))
        return out

    return function


def _trace(
    model: Model, rows: Mapping[str, Any], model_args: Mapping[str, Any], anatomy: Anatomy
) -> dict[str, dict[str, Any]]:
    count = next(iter(rows.values())).shape[0]
    try:
        with handlers.trace() as messages, handlers.seed(rng_seed=0), _Whole(anatomy):
            model(**rows, **model_args)
    except UnsupportedModel:
        raise
    except jax.errors.ConcretizationTypeError as error:
        raise DoThisInstead(
            "the model looks at the values of its rows or latents in Python (an `if`, `float(…)`, …); "
            f"write it with jnp.where or jax.lax.cond. JAX said: {_first_line(error)}"
        ) from error
    except Exception as error:
        fixed = {name: size for name, size in anatomy.plates.items() if size != count}
        hint = f" Plates whose size is not the number of rows: {fixed}; use X.shape[0]." if fixed else ""
        raise DoThisInstead(
            f"the model cannot be run on {count} row(s): {type(error).__name__}: {_first_line(error)}{hint}"
        ) from error
    return dict(messages)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def _describe(messages: Mapping[str, dict[str, Any]], anatomy: Anatomy) -> None:
    start = 0
    for name, message in messages.items():
        kind = message["type"]
        if kind == "deterministic":
            anatomy.deterministics.append(name)
        elif kind == "sample" and message["is_observed"]:
            anatomy.observations.append(_observation(name, message))
        elif kind == "sample":
            site = _latent(name, message, start)
            start = site.slice.stop
            anatomy.latents.append(site)
        elif kind not in ("plate", "prng_key"):
            raise NotYetSupported(
                f"site {name!r} is a numpyro.{kind}; only sample and deterministic sites are read."
            )


def _plates(message: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(frame.name for frame in message["cond_indep_stack"])


def _observation(name: str, message: Mapping[str, Any]) -> Observation:
    if message["infer"].get("is_auxiliary", False):
        raise DoThisInstead(
            f"site {name!r} is a numpyro.factor: it can hold any function of all rows, so no row has a term "
            "of its own; write it as an observed site inside the plate, or as a prior."
        )
    fn = unwrap(message["fn"])
    return Observation(
        name=name,
        family=family_name(fn),
        shape=tuple(np.broadcast_shapes(message["fn"].shape(), jnp.shape(message["value"]))),
        plates=_plates(message),
    )


def _latent(name: str, message: Mapping[str, Any], start: int) -> Site:
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
    shape = tuple(message["value"].shape)
    free = tuple(transform.inverse_shape(shape))
    return Site(
        name=name,
        shape=shape,
        unconstrained_shape=free,
        slice=slice(start, start + int(np.prod(free, dtype=np.int64))),
        support=_support_name(fn.support),
        constraint=None if _has_tracers(fn.support) else fn.support,
        family=family_name(unwrap(fn)),
        plates=_plates(message),
        improper=_is_improper(fn),
    )


def _has_tracers(support: Any) -> bool:
    parts = list(vars(support).values()) if hasattr(support, "__dict__") else []
    inner = [part for part in parts if isinstance(part, constraints.Constraint)]
    return any(isinstance(part, jax.core.Tracer) for part in parts) or any(map(_has_tracers, inner))


def _is_improper(fn: Any) -> bool:
    parts = [part for name, part in vars(fn).items() if name in ("base_dist", "_component_distribution")]
    return isinstance(fn, dist.ImproperUniform) or any(_is_improper(part) for part in parts)


def _support_name(support: Any) -> str:
    while type(support) is type(constraints.independent(constraints.real, 1)):
        support = support.base_constraint
    return type(support).__name__.strip("_").lower()
