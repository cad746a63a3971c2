"""The caller's columns: bound to the declaration, checked, padded to a public number of rows, projected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.sharding import NamedSharding, PartitionSpec

from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.kernels.devices import ONE_DEVICE, Layout
from private_mcmc.modeling import Rows
from private_mcmc.schedule import Storage
from private_mcmc.target import Target

Columns = dict[str, npt.NDArray[Any]]


def bind_columns(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], rows: Rows
) -> dict[str, Any]:
    """Positional arguments by the model's own parameter names.

    Raises:
        DataSchemaError: for more arguments than the model takes, or one given twice.
    """
    names = list(inspect.signature(model).parameters)[: len(args)]
    twice = sorted(set(names) & set(kwargs))
    if len(names) < len(args) or twice:
        raise DataSchemaError(
            f"columns {twice} are given twice, or there are more than {sorted(rows.columns)}."
        )
    return {**dict(zip(names, args, strict=True)), **kwargs}


def number_of_rows(rows: Rows, data: Mapping[str, Any], target: Target, declared: int | None) -> int:
    """The public number of rows: the data's own under ``replace_one``, the declared one otherwise.

    Raises:
        DeclarationError: if the adjacency hides the number of rows and none was declared.
    """
    if declared is not None:
        return declared
    if target.adjacency != "replace_one":
        raise DeclarationError(
            f"adjacency={target.adjacency!r} hides how many rows there are: give PrivateMCMC a public "
            "n=... that no data set of yours exceeds."
        )
    if jax.process_count() > 1:
        raise DeclarationError("several processes: give PrivateMCMC the number of rows of all of them, n=...")
    return len(next(iter(rows.validate(data, None).values())))


def checked_columns(
    rows: Rows, data: Mapping[str, Any], target: Target, n: int, layout: Layout = ONE_DEVICE
) -> Columns:
    """The columns after every check of their schema; no value is looked at.

    Raises:
        DataSchemaError: for missing columns, wrong shapes or types, or a wrong number of rows.
    """
    here = layout.local_rows(n)
    wanted = here.stop - here.start
    if target.adjacency == "replace_one":
        return rows.validate(data, wanted)
    columns = rows.validate(data, None)
    if len(next(iter(columns.values()))) > wanted:
        raise DataSchemaError(f"there are more rows than the declared n={n} leaves room for ({wanted}).")
    return columns


def on_device(
    rows: Rows, columns: Columns, n: int, layout: Layout = ONE_DEVICE, storage: Storage = "float64"
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Rows padded to ``layout.slots(n)`` and mapped into their domains, and which are present.

    Over several devices each gets its share, and no device ever holds all rows.
    """
    count = len(next(iter(columns.values())))
    slots = layout.slots(n) // (1 if layout.mesh is None else jax.process_count())
    padded = {name: _padded(value, slots) for name, value in columns.items()}
    project = _projection(rows, storage)
    with jax.enable_x64(True):
        if layout.mesh is None:
            whole = {name: jnp.asarray(value) for name, value in padded.items()}
            return project(whole), jnp.arange(slots) < count
        sharding = NamedSharding(layout.mesh, PartitionSpec("rows"))  # type: ignore[no-untyped-call]

        def spread(local: npt.NDArray[Any]) -> jax.Array:
            make: Any = jax.make_array_from_process_local_data
            whole: jax.Array = make(sharding, local)
            return whole

        present = spread(np.arange(slots) < count)
        return project({name: spread(local) for name, local in padded.items()}), present


@lru_cache(maxsize=8)
def _projection(rows: Rows, storage: Storage) -> Callable[[Mapping[str, jax.Array]], dict[str, jax.Array]]:
    """``rows.project`` in one pass over the rows, compiled once for runs of equal shape."""
    compiled: Callable[..., dict[str, jax.Array]] = jax.jit(partial(rows.project, dtype=storage))
    return compiled


def _padded(values: npt.NDArray[Any], slots: int) -> npt.NDArray[Any]:
    missing = slots - len(values)
    if missing == 0:
        return values
    return np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])
