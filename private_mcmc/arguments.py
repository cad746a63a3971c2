"""Arguments that do not fit, refused in words: what is taken, and what was perhaps meant."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Iterable
from typing import Literal, ParamSpec, TypeVar, get_args

from private_mcmc.errors import DeclarationError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def check_kind(name: str, value: object, kind: type) -> None:
    """Raise ``DeclarationError`` unless the argument ``name`` is a ``kind``."""
    if not isinstance(value, kind):
        raise DeclarationError(f"{name}: a {type(value).__name__} was given; give a {kind.__name__}.")


# What other programs call for, and why it is not there, where no argument of the name is taken.
_HABITS = {
    ("num_samples", "num_warmup", "draws", "tune", "iter", "warmup", "chains", "num_chains"): (
        "how many draws there are follows from the plan"
    ),
    ("thinning",): "release=(100, 200, …) declares the steps that are released",
    ("extra_fields", "collect_fields"): "what was not declared for release stays hidden",
    ("rng_key", "seed", "random_seed", "random_state"): "random keys come from the operating system",
    ("data", "df"): "the table is the first argument",
    ("prior",): "priors=['age ~ normal(0, 0.1)', …]",
    ("init_strategy",): "a chain starts at a public point, zero or Execution(init_params=…)",
    ("eps",): "epsilon=",
    ("link",): "every family has one link; write a model for another one",
    ("devices",): "engine=Devices(…); of a driver, execution=Execution(engine=Devices(…))",
    ("engine", "rows_on_device", "generator", "unsafe_seed", "init_params"): (
        "execution=Execution(…) has it"
    ),
    ("ledger", "dataset", "purpose", "checkpoint"): "bookkeeping=Bookkeeping(…) has it",
    ("model_args",): "the kernel takes it, as in PrivateULA(model, …, model_args=…)",
    ("weights",): "beside the outcome of a formula, as 'y | weights(w) ~ age'",
}
_INSTEAD = {"Real": "; a number within known bounds is Box(lo, hi)"}


def habit(name: str) -> str:
    """What is there instead of an argument of other programs; empty for any other name."""
    return next((words for names, words in _HABITS.items() if name in names), "")


def unknown_arguments(names: Iterable[str], known: Iterable[str]) -> DeclarationError:
    """Says which arguments are not taken, and which one of ``known`` was perhaps meant."""
    choices, said = list(known), []
    for name in sorted(names):
        near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
        hint = habit(name) or (f"did you mean {near[0]}=?" if near else "")
        said.append(f"{name}=" + (f" ({hint})" if hint else ""))
    return DeclarationError(f"unknown argument {', '.join(said)}; there are {', '.join(choices)}.")


def construction_checked(kind: type[Result]) -> type[Result]:
    """A class decorator: arguments that do not fit are refused by ``DeclarationError``."""
    kind.__init__ = arguments_checked(kind.__init__)  # type: ignore[misc, method-assign]
    return kind


def arguments_checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``function``, which refuses arguments that do not fit its signature by ``DeclarationError``."""
    signature = inspect.signature(function)
    names = [
        name
        for name, one in signature.parameters.items()
        if name not in ("self", "cls") and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    takes_any = any(one.kind == one.VAR_KEYWORD for one in signature.parameters.values())
    called = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            unknown = [] if takes_any else sorted(set(kwargs) - set(names))
            if unknown:
                raise unknown_arguments(unknown, names) from None
            known = [*names, *(["name=…"] if takes_any else [])]
            takes = ", ".join(known) or "none"
            raise DeclarationError(
                f"{called}: {error}; it takes {takes}{_INSTEAD.get(called, '')}."
            ) from None
        return function(*args, **kwargs)

    return checked


def small_delta(n: int) -> float:
    """The default of δ: a power of ten of at most ``1e-6`` and a tenth of ``1/n``."""
    return float(10.0 ** min(-6, -math.ceil(math.log10(10 * n))))


def remarks_on_delta(delta: float, n: int) -> tuple[str, ...]:
    """What to know of a δ that is not below ``1/n``; nothing where it is."""
    if not delta * n >= 1:
        return ()
    return (
        f"δ = {delta} is not below 1/n, n = {n:,}: publishing one whole row at random would meet such a "
        f"target. Choose δ of at most {small_delta(n)}.",
    )


Guarantee = Literal["posterior", "run"]

# The defaults that are not numbers of one function, stated here alone. `PrivateMCMC` and `plan` refuse unless
# the posterior itself is certified: that is what they are for. `fit` and the commands that read a table take
# what the run's own noise promises, and say what is known of the posterior.
OF_PLANS: Guarantee = "posterior"
OF_FITS: Guarantee = "run"


def checked_guarantee(guarantee: str) -> Guarantee:
    """Return ``guarantee`` if it is one of the two; raise ``DeclarationError`` otherwise."""
    if guarantee not in get_args(Guarantee):
        raise DeclarationError(f"guarantee={guarantee!r}: 'posterior' or 'run'.")
    return guarantee  # type: ignore[return-value]
