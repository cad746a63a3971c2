"""Running a NumPyro model on abstract rows: which sites it has, and its terms as one pure function.

All use of NumPyro's handlers is here. Latents take their values from one flat unconstrained vector; the
log-Jacobians are noted apart, so that they can never be mistaken for observations.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer.util import compute_log_probs
from numpyro.primitives import _PYRO_STACK, Messenger

from private_mcmc.errors import ELSEWHERE, DoThisInstead, NotYetSupported, UnsupportedModel, places_of
from private_mcmc.model.program import Output
from private_mcmc.model.sites import (
    Message,
    ModelSites,
    describe,
    family_name,
    made_anew,
    masks,
    nearest_outcome,
    parameters,
    unwrap,
)
from private_mcmc.potential import families, prior
from private_mcmc.potential.prior import Site
from private_mcmc.records import Model, PublicArguments

_OF_TABLES = {kind for kind, _ in (*families.TABLE, *prior.TABLE)}
# NumPyro's handlers lie in one list of the process: a model that runs in another thread would be handled by
# those that are meant for this one. Held by whoever runs a user's model: ``read`` holds it as a whole.
ONE_AT_A_TIME = threading.RLock()


class Whole(Messenger):  # type: ignore[misc]
    """Reads a subsampled plate as the whole plate, whose batches the kernel draws, and possible outcomes.

    It also notes whether another thread, which does not hold the lock, runs a model of its own meanwhile.
    """

    def __init__(self, model_sites: ModelSites) -> None:
        super().__init__(None)
        self.model_sites = model_sites
        self.thread = threading.get_ident()
        self.disturbed = False
        self.quiet = warnings.catch_warnings()

    def __enter__(self) -> Any:
        # NumPyro compares a plate's own size with the one that it is given here.
        self.quiet.__enter__()
        warnings.filterwarnings("ignore", message="subsample_size does not match")
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.quiet.__exit__(*error)

    def process_message(self, msg: Message) -> None:
        """Make a plate whole, an outcome possible."""
        if threading.get_ident() != self.thread:
            self.disturbed = True
            return
        if msg["type"] == "prng_key" and any(isinstance(one, handlers.block) for one in _PYRO_STACK):
            raise DoThisInstead(
                "the model hides a random site from its reader (handlers.block): it would be read as fixed "
                "at one draw. Leave the block out, or give the site its public value by handlers.condition."
            )
        if msg["type"] == "plate":
            size, subsample = msg["args"]
            if subsample not in (None, size):
                self.model_sites.subsampled.add(msg["name"])
            self.model_sites.plates[msg["name"]] = size
            msg["args"] = (size, size)
            msg["value"] = jnp.arange(size)
        elif msg["type"] == "sample" and msg["is_observed"]:
            msg["value"] = nearest_outcome(msg["fn"], msg["value"])

    def postprocess_message(self, msg: Message) -> None:
        """Refuse a scan or cond that holds sites, once it is known."""
        if msg["type"] != "control_flow":
            return
        # Of a scan the sites lie beside the outputs of its steps.
        held = msg["value"][1]
        if (held[0] if isinstance(held, tuple) else held).trace:
            raise NotYetSupported(
                "the model has sites in numpyro.contrib.control_flow (scan or cond); "
                "write a recursion as jax.lax.scan over values sampled outside it; of discrete states, "
                "write the forward algorithm so, and pass its log likelihood to numpyro.factor in the plate "
                "of the rows."
            )


class Feasible(Messenger):  # type: ignore[misc]
    """Gives a continuous latent some value of its support, which shows its shape: no sampler is traced."""

    def process_message(self, msg: Message) -> None:
        """Set the value of a latent, where NumPyro knows a map onto its support."""
        if msg["type"] != "sample" or msg["value"] is not None:
            return
        support = unwrap(msg["fn"]).support
        if support is None or support.is_discrete:
            return
        try:
            transform = biject_to(msg["fn"].support)
        except NotImplementedError:
            return
        shape = (*msg["kwargs"].get("sample_shape", ()), *msg["fn"].shape())
        msg["value"] = transform(jnp.zeros(transform.inverse_shape(shape)))


class _Unconstrain(Messenger):  # type: ignore[misc]
    """Gives every latent its value from the flat vector and notes the log-Jacobian."""

    def __init__(self, theta: jax.Array, sites: Mapping[str, Site]) -> None:
        super().__init__(None)
        self.theta = theta
        self.sites = sites
        self.log_dets: dict[str, jax.Array] = {}

    def process_message(self, msg: Message) -> None:
        if msg["type"] != "sample" or msg["is_observed"]:
            return
        site = self.sites[msg["name"]]
        if msg["value"] is not None:
            raise DoThisInstead(
                f"site {site.name!r} is a latent whose value a handler of the model fixes (substitute); "
                "write that number in its place, or fix it by handlers.condition."
            )
        transform = biject_to(msg["fn"].support)
        free = self.theta[site.slice].reshape(site.unconstrained_shape)
        value = transform(free)
        self.log_dets[site.name] = jnp.sum(transform.log_abs_det_jacobian(free, value))
        msg["value"] = value


class _Persons(Messenger):  # type: ignore[misc]
    """Makes the plate of ``n`` persons one of ``count``."""

    def __init__(self, plate: str, n: int, count: int) -> None:
        super().__init__(None)
        self.plate, self.n, self.count = plate, n, count

    def process_message(self, msg: Message) -> None:
        if msg["type"] == "plate" and msg["name"] == self.plate:
            msg["args"], msg["value"] = (self.count, self.count), jnp.arange(self.count)
        elif any(frame.name == self.plate for frame in msg["cond_indep_stack"]) and msg["type"] == "sample":
            # The plate takes its persons for a sample of all, and weighs each of them for the others.
            scale = (msg["scale"] or 1.0) * (self.count / self.n)
            msg["scale"] = None if abs(scale - 1) < 1e-9 else scale


class _Indexed(np.ndarray[Any, Any]):
    """A public array of NumPy that rows may index, as they do where data are no tracers: ``B[group]``."""

    def __getitem__(self, at: Any) -> Any:
        places = at if isinstance(at, tuple) else (at,)
        traced = any(isinstance(place, jax.core.Tracer) for place in places)
        return jnp.asarray(self)[at] if traced else super().__getitem__(at)


def _indexed(value: object) -> object:
    if type(value) is dict:
        return {name: _indexed(entry) for name, entry in value.items()}
    return value.view(_Indexed) if type(value) is np.ndarray else value


def with_indexed_arguments(model: Model) -> Model:
    """The model, whose public arrays, alone or in dicts, rows may index."""

    @functools.wraps(model)
    def run(**arguments: object) -> object:
        return model(**{name: _indexed(value) for name, value in arguments.items()})

    return run


@dataclass(frozen=True, eq=False)
class PersonsModel:
    """A model of rows and of the ``n`` persons whom a row belongs to by its number among ``identifiers``."""

    model: Model
    identifiers: str
    column: str
    n: int

    def of(self, count: int, plate: str = "", codes: Sequence[int] | jax.Array | None = (0,)) -> Model:
        """The model of ``count`` persons in place of ``n`` in ``plate``, to whom rows belong by ``codes``.

        Without codes every row has a person of its own, and JAX gives the last one where there are fewer.
        """

        def run(**arguments: jax.Array) -> object:
            rows = jnp.arange(arguments[self.column].shape[0])
            rows = rows if codes is None else jnp.resize(jnp.asarray(codes), rows.shape)
            with _Persons(plate, self.n, count):
                return self.model(**arguments, **{self.identifiers: rows})

        return run


def discover(
    model: Model, rows: Mapping[str, jax.ShapeDtypeStruct | jax.Array], model_args: PublicArguments
) -> ModelSites:
    """The sites of the model, found on abstract rows."""
    model_sites = ModelSites()

    def run(columns: Mapping[str, jax.Array]) -> None:
        with Feasible(None):
            messages = _trace(model, columns, model_args, model_sites)
        describe(messages, model_sites, _unfit)

    jax.eval_shape(run, dict(rows))
    if not model_sites.latents:
        raise DoThisInstead(
            "the model has no latent site that rows share: there is nothing to sample. Latents inside the "
            "plate of the rows are those of single rows, and are summed out."
        )
    if not model_sites.observations:
        raise DoThisInstead(
            "the model has no observed site: declare the observed column in Rows and pass it as `obs=`."
        )
    return model_sites


def terms(
    model: Model, model_args: PublicArguments, sites: Sequence[Site], latents: Collection[str] = ()
) -> Callable[..., dict[str | Output, jax.Array]]:
    """The model as ``f(theta, **rows)``: every term by kind and name.

    Kinds of outputs: ``prior`` log density, ``jacobian`` log-Jacobian and ``value`` constrained value of a
    latent; ``row`` log density of an observed site, summed; ``density`` the same before summing; ``class``
    what a distribution of the same class and parameters has in place of ``prior`` or ``row``;
    ``observed`` its value; ``weight`` its scale and masks; ``given`` the parameters of any site;
    ``deterministic`` values. The output
    ``"loss"`` is minus the sum of the ``row`` terms, without those of ``latents`` that are read as columns.
    """
    by_name = {site.name: site for site in sites}

    def function(theta: jax.Array, **rows: jax.Array) -> dict[str | Output, jax.Array]:
        unconstrain = _Unconstrain(theta, by_name)
        with ONE_AT_A_TIME, unconstrain:
            messages = _trace(model, rows, model_args, ModelSites())
        out: dict[str | Output, jax.Array] = {}
        for name, message in messages.items():
            if message["type"] == "deterministic":
                out[Output("deterministic", name)] = jnp.asarray(message["value"])
            if message["type"] != "sample":
                continue
            try:
                # A latent lies in its support, by its transform: checks of it would hide that a prior is
                # quadratic.
                observed = message["is_observed"]
                with contextlib.nullcontext() if observed else numpyro.validation_enabled(False):
                    density = message["fn"].log_prob(message["value"])
                    usual = density
                    if family_name(unwrap(message["fn"])) in _OF_TABLES:
                        usual = made_anew(message["fn"]).log_prob(message["value"])
            except NotImplementedError as error:
                raise NotYetSupported(
                    f"site {name!r}: NumPyro has no log density of this distribution "
                    f"({type(message['fn']).__name__}, a transform that is not one to one?)."
                ) from error
            except (TypeError, ValueError) as error:
                raise _unfit(name, error) from error
            if message["scale"] is not None:
                density, usual = message["scale"] * density, message["scale"] * usual
            out[Output("class", name)] = jnp.sum(usual)
            if message["is_observed"]:
                out[Output("row", name)] = jnp.sum(density)
                out[Output("density", name)] = density
                out[Output("observed", name)] = jnp.asarray(message["value"])
            else:
                out[Output("prior", name)] = jnp.sum(density)
                out[Output("jacobian", name)] = unconstrain.log_dets[name]
                out[Output("value", name)] = message["value"]
            for parameter, value in parameters(unwrap(message["fn"])).items():
                out[Output("given", name, parameter)] = jnp.asarray(value)
            if message["is_observed"] and message["scale"] is not None:
                out[Output("weight", name, "scale")] = jnp.asarray(message["scale"])
            for index, mask in enumerate(masks(message["fn"])):
                out[Output("weight", name, f"mask{index}")] = jnp.asarray(mask)
        losses = (value for key, value in out.items() if key[0] == "row" and key[1] not in latents)
        out["loss"] = jnp.negative(sum(losses, jnp.zeros(())))
        return out

    return function


def _unfit(name: str, error: Exception) -> DoThisInstead:
    return DoThisInstead(
        f"site {name!r}: its value and its distribution have other numbers of rows ({first_line(error)}). A "
        "model is read on one row, and on a few: what has an entry for everybody (a design that it closes "
        "over, a plate of a fixed size, a matrix of all rows, as of a Gaussian process) couples them; "
        "declare it as a column in Rows, with a plate of X.shape[0], or give each row a term of its own."
    )


def log_densities(
    model: Model, given: Mapping[str, object], values: Mapping[str, jax.Array]
) -> dict[str, jax.Array]:
    """NumPyro's own log densities of all sites, not summed, at values of latents on their own supports."""
    with handlers.seed(rng_seed=0), Whole(ModelSites()):
        return dict(compute_log_probs(model, (), dict(given), dict(values), sum_log_prob=False)[0])


def _trace(
    model: Model, rows: Mapping[str, jax.Array], model_args: PublicArguments, model_sites: ModelSites
) -> dict[str, Message]:
    count, whole = next(iter(rows.values())).shape[0], Whole(model_sites)
    try:
        with handlers.trace() as messages, handlers.seed(rng_seed=0), whole:
            model(**rows, **model_args)
        _check_undisturbed(whole)
    except UnsupportedModel:
        raise
    except jax.errors.ConcretizationTypeError as error:
        raise DoThisInstead(
            "the model looks at the values of its rows or latents in Python (an `if`, `float(…)`, …); "
            "write it with jnp.where or jax.lax.cond. A number of groups or levels is public: an argument of "
            f"the model, passed by model_args. JAX said: {first_line(error)}"
        ) from error
    except Exception as error:
        _check_undisturbed(whole)
        fixed = {name: size for name, size in model_sites.plates.items() if size != count}
        hint = f" Plates whose size is not the number of rows: {fixed}; use X.shape[0]." if fixed else ""
        raise DoThisInstead(
            f"the model cannot be run on {count} row(s): {type(error).__name__}: {first_line(error)}{hint}"
            f"{_remedy(error)}"
        ) from error
    return dict(messages)


def _remedy(error: Exception) -> str:
    """What to write instead, after a habit that arrays of JAX, one row at a time, do not serve."""
    said = str(error)
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            ". A function of NumPy, or an array of it, B[group], is given rows or latents: write it with "
            "jax.numpy, jnp.asarray(B)[group]. What it learns from all rows (levels, a number of groups, "
            "ends) is public: an argument, passed by model_args."
        )
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError):
        return ". A choice of rows by their values: write both cases, with jnp.where(y > 0, …, …)."
    if "unhashable type" in said and "Tracer" in said:
        return ". What a set is made of (levels, a number of groups) is public: an argument, by model_args."
    if "string indexing" in said or (isinstance(error, AttributeError) and "Tracer has no attribute" in said):
        return (
            ". A column is an array of JAX, no data frame or dict of columns: give the model an argument for "
            "each column, def model(x, y=None), and declare it by that name, Rows(x=…, y=…)."
        )
    if "size of plate should be positive" in said:
        return (
            ". Every row has a term of its own, and is read alone: lags and differences between rows are "
            "columns of their own, computed beforehand, or the row is a whole series, a Box of its length."
        )
    if isinstance(error, AssertionError):
        return ". A model is read on one row: leave checks of the number of rows out."
    return ""


def _check_undisturbed(whole: Whole) -> None:
    if whole.disturbed:
        raise DoThisInstead(
            "another thread ran a NumPyro model while this one was read, and NumPyro's handlers are the "
            "process's: read, run or plan while no other thread samples with NumPyro."
        )


def first_line(error: Exception) -> str:
    """What an error says first, after the last line of the user's own code that it came through."""
    places = (place for place in places_of(error) if not place.startswith("private_mcmc"))
    own = [f"{Path(place).name}: " for place in places if not ELSEWHERE.search(place)]
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A line that ends in a colon introduces what is wrong.
    return "".join([*own[-1:], " ".join(said[: 2 if said and said[0].endswith(":") else 1])])
