"""The caller's columns: bound to the declaration, checked, padded to a public number of rows, projected."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.modeling import Rows
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
    return len(next(iter(rows.validate(data, None).values())))


def checked_columns(rows: Rows, data: Mapping[str, Any], target: Target, n: int) -> Columns:
    """The columns after every check of their schema; no value is looked at.

    Raises:
        DataSchemaError: for missing columns, wrong shapes or types, or a wrong number of rows.
    """
    if target.adjacency == "replace_one":
        return rows.validate(data, n)
    columns = rows.validate(data, None)
    if len(next(iter(columns.values()))) > n:
        raise DataSchemaError(f"there are more rows than the declared n={n}.")
    return columns


def on_device(rows: Rows, columns: Columns, n: int) -> tuple[dict[str, jax.Array], jax.Array]:
    """Rows padded to ``n`` and mapped into their domains, and which of them are present, in float64."""
    count = len(next(iter(columns.values())))
    padded = {
        name: np.concatenate([value, np.zeros((n - count, *value.shape[1:]), value.dtype)])
        for name, value in columns.items()
    }
    with jax.enable_x64(True):
        return rows.project(padded), jnp.arange(n) < count
