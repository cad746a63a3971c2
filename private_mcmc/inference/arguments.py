"""What a driver is told besides the mechanism: how it is executed, and the words for what does not fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError, construction_checked, unknown_arguments
from private_mcmc.inference.bookkeeping import Bookkeeping
from private_mcmc.kernels import Generator
from private_mcmc.kernels.devices import ChainMethod, Devices
from private_mcmc.records import Fields, Record
from private_mcmc.target import check_count

Given = TypeVar("Given", "Execution", Bookkeeping)


@construction_checked
@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where a run is executed, and with which random numbers; nothing here changes what it costs.

    Attributes:
        chain_method: ``"vectorized"``, ``"parallel"`` (chains over devices) or ``"sequential"``.
        devices: how many devices share the rows, or which; the default device if left out.
        rows_on_device: stream the rows in blocks of so many, read again at every step. Columns that are
            ``np.memmap``, or of a :class:`private_mcmc.Parquet` or :class:`private_mcmc.Arrow` file, are
            streamed in any case.
        curator: keep what only the curator may look at (``.curator``), in this process's memory.
        generator: ``"chacha20"``, or ``"threefry2x32"``, which is faster and not cryptographic.
        unsafe_seed: allow ``run(rng_key=…)``, whose result is reproducible and not private.
        init_params: public start of every chain, flat and unconstrained; zero if left out.
        progress_bar: show steps done.

    Example:
        >>> pmc.Execution(chain_method="sequential", devices=1).generator
        'chacha20'
    """

    chain_method: ChainMethod = "vectorized"
    devices: Devices = None
    rows_on_device: int | None = None
    curator: bool = False
    generator: Generator = "chacha20"
    unsafe_seed: bool = False
    init_params: npt.ArrayLike | None = field(default=None, repr=False, compare=False)
    progress_bar: bool = True

    def __post_init__(self) -> None:
        if self.rows_on_device is not None:
            check_count("rows_on_device", self.rows_on_device)
        if not (self.devices is None or isinstance(self.devices, int | Sequence)):
            raise DeclarationError("devices: a number, or a sequence of jax.devices().")


def records(
    execution: Execution | None,
    bookkeeping: Bookkeeping | None,
    others: dict[str, object],
    known: tuple[str, ...],
) -> tuple[Execution, Bookkeeping]:
    """Both records, with what the caller gave as separate arguments: ``others``, which are deprecated.

    ``progress_bar=`` is what NumPyro's drivers call it, and stays welcome.
    """
    names = {"execution": _names(Execution), "bookkeeping": _names(Bookkeeping)}
    unknown = set(others).difference(*names.values())
    if unknown:
        raise unknown_arguments(unknown, (*known, *names["execution"], *names["bookkeeping"]))
    shown = others.pop("progress_bar", None)
    run = _record("execution", Execution, execution, others)
    if shown is not None:
        run = replace(run, progress_bar=bool(shown))
    return run, _record("bookkeeping", Bookkeeping, bookkeeping, others)


# Arguments of the driver that have another place now.
_MOVED = {
    "model_args": "the kernel model_args=…, as in PrivateULA(model, …, model_args=…)",
    "curvature": "guarantee=private_mcmc.ProposedCurvature(…)",
}


def moved(others: Record) -> Record:
    """Deprecated arguments that went elsewhere, taken out of ``others``."""
    found = {name: others.pop(name) for name in _MOVED if name in others}
    for name in found:
        # Above this: the driver's constructor, what checks its arguments, the caller.
        warnings.warn(f"{name}=… is deprecated; give {_MOVED[name]}", DeprecationWarning, stacklevel=4)
    return found


def _record(argument: str, kind: type[Given], given: Given | None, others: Fields) -> Given:
    if not (given is None or isinstance(given, kind)):
        raise DeclarationError(f"{argument}=…: give a private_mcmc.{kind.__name__}(…).")
    own = {name: others[name] for name in _names(kind) if name in others}
    if not own:
        return kind() if given is None else given
    form = f"{argument}=private_mcmc.{kind.__name__}({', '.join(f'{name}=…' for name in own)})"
    if given is not None:
        raise DeclarationError(f"{', '.join(own)}: give all of them inside {form}.")
    # Above this: records, the driver's constructor, what checks its arguments, the caller.
    warnings.warn(f"deprecated arguments; in their place: {form}", DeprecationWarning, stacklevel=5)
    return kind(**own)


def _names(kind: type[Execution | Bookkeeping]) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))


def steps_of(num_steps: int | None, num_warmup: int, num_samples: int | None) -> int:
    """``num_steps``, or ``num_warmup + num_samples``."""
    if not (
        isinstance(num_warmup, (int, np.integer)) and not isinstance(num_warmup, bool) and num_warmup >= 0
    ):
        raise DeclarationError(f"num_warmup={num_warmup!r}: must be a whole number, at least 0.")
    if num_samples is not None:
        check_count("num_samples", num_samples)
        if num_steps not in (None, num_warmup + num_samples):
            raise DeclarationError(
                f"num_samples={num_samples}: num_steps={num_steps} is not num_warmup + num_samples; give "
                "one of the two."
            )
        return int(num_warmup + num_samples)
    if num_steps is None:
        raise DeclarationError("num_steps=…: the steps of every chain are needed (or num_samples=…).")
    check_count("num_steps", num_steps)
    if not num_warmup < num_steps:
        raise DeclarationError(f"num_warmup={num_warmup}: must leave some of the {num_steps} steps.")
    return int(num_steps)


def refuse_key(args: tuple[object, ...]) -> None:
    """``run(rng_key, …)`` as of NumPyro's drivers: a key or a seed where a column is expected."""
    first = args[0] if args else None
    seed = isinstance(first, (int, np.integer))
    if isinstance(first, jax.Array):
        seed = jnp.issubdtype(first.dtype, jax.dtypes.prng_key) or (
            first.dtype == np.uint32 and first.shape == (2,)
        )
    if seed:
        raise DeclarationError(
            "run(…) takes the private columns, and no random key: its keys come from the operating system. A "
            "key of your own is rng_key=…, which makes a run reproducible and not private. (A column of two "
            "uint32 rows is passed by its name.)"
        )
