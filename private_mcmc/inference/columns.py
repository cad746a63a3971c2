"""The caller's columns: bound, checked, and brought to the device, or left outside to be read in blocks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from private_mcmc.data.table import is_part
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import (
    PRESENT,
    HostColumn,
    blank,
    holds_person,
    host_column,
    numeric_column,
    on_host,
    padded,
)
from private_mcmc.errors import DataSchemaError, DeclarationError, NotYetSupported
from private_mcmc.inference.decision import Declaration
from private_mcmc.kernels.devices import ONE_DEVICE, Layout
from private_mcmc.kernels.streamed_chain import Blocks
from private_mcmc.planning import Plan
from private_mcmc.records import PublicArguments
from private_mcmc.target import Target

Columns = dict[str, np.ndarray]
HostColumns = dict[str, HostColumn]

_BLOCK_BYTES = 2**26


def checked(
    declared: Declaration | Plan,
    args: tuple[object, ...],
    named: Mapping[str, object],
    present: object,
    placed: Callable[[Mapping[str, object]], dict[str, object]],
    layout: Layout = ONE_DEVICE,
) -> tuple[Columns | HostColumns, int]:
    """The columns where they are ``placed`` (all on the host, or none), checked, and their public number."""
    rows, target = declared.rows, declared.target
    data = bind_columns(declared.model, args, named, rows)
    if isinstance(declared, Declaration):
        _refuse_private_arguments(declared.kernel.model_args, data)
    if rows.unit is not None:
        return _persons(rows, data, declared.n, present is not None, placed)
    if present is not None:
        # The flags of the slots lie with the other columns.
        data[PRESENT] = present if on_host(present) else numeric_column(PRESENT, present)
    data = placed(data)
    shapes = {name: one.schema if isinstance(one, HostColumn) else one for name, one in data.items()}
    n = number_of_rows(rows, shapes, target, declared.n)
    columns = checked_columns(rows, shapes, target, n, layout)
    return (on_the_host(data) or columns), n


def _refuse_private_arguments(public: PublicArguments, data: Mapping[str, object]) -> None:
    """Of the caller's own objects; whether equal numbers are private is nothing that an error may tell."""
    for name, value in public.items():
        if private := [column for column, one in data.items() if is_part(value, one)]:
            raise DeclarationError(
                f"model_args: {name!r} is the private column {private[0]!r}, or a part of it. What the model "
                "takes besides rows is public, and nobody pays for it: declare it in Rows, or give what is "
                "published."
            )


def _persons(
    rows: Rows,
    data: Mapping[str, object],
    n: int | None,
    flags: bool,
    placed: Callable[[Mapping[str, object]], dict[str, object]],
) -> tuple[Columns, int]:
    """Rows grouped into ``n`` persons, whose number the data do not tell: one may have no rows."""
    if n is None:
        raise DeclarationError("persons with several rows: give PrivateMCMC their number, public, n=….")
    if flags:
        raise DataSchemaError(f"{PRESENT}=…: of persons with several rows, one without any row is absent.")
    unit = "" if rows.unit is None else rows.unit.name
    ours = placed({name: column for name, column in data.items() if name != unit})
    if on_the_host(ours) or jax.process_count() > 1:
        raise NotYetSupported(
            "persons with several rows are grouped over the whole data set, in one process's memory: load "
            "the columns (np.asarray), without rows_on_device=."
        )
    given = {unit: data[unit]} if unit in data else {}
    return rows.grouped({**ours, **given}, n), n


def on_the_host(columns: Mapping[str, object]) -> HostColumns:
    """The columns that stay outside the device's memory: all of them, or none."""
    return {name: column for name, column in columns.items() if isinstance(column, HostColumn)}


def loaded(columns: Columns | HostColumns) -> Columns:
    """The columns that are arrays: all of them, or none."""
    return {name: column for name, column in columns.items() if not isinstance(column, HostColumn)}


def bind_columns(
    model: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object], rows: Rows
) -> dict[str, object]:
    """Positional arguments by the model's own parameter names."""
    if args and hasattr(args[0], "keys"):
        raise DataSchemaError(
            f"run(…) takes columns, {sorted(rows.columns)}, and not a table: pass them by name. pmc.fit "
            "takes a table with words and missing cells, and a schema."
        )
    names = list(inspect.signature(model).parameters)[: len(args)]
    twice = sorted(set(names) & set(kwargs))
    if len(names) < len(args) or twice:
        raise DataSchemaError(
            f"columns {twice} are given twice, or there are more than {sorted(rows.columns)}."
        )
    return {**dict(zip(names, args, strict=True)), **kwargs}


def number_of_rows(rows: Rows, data: Mapping[str, object], target: Target, declared: int | None) -> int:
    """The public number of rows: the data's own under ``replace_one``, the declared one otherwise."""
    if declared is not None:
        return declared
    if target.adjacency == "zero_out":
        raise DeclarationError(
            "adjacency='zero_out': give PrivateMCMC the public number of slots, empty ones included, n=…."
        )
    if target.adjacency != "replace_one":
        raise DeclarationError(
            f"adjacency={target.adjacency!r} hides how many rows there are: give PrivateMCMC a public "
            "n=... that no data set of yours exceeds."
        )
    if jax.process_count() > 1:
        raise DeclarationError("several processes: give PrivateMCMC the number of rows of all of them, n=...")
    return len(next(iter(rows.validate(data, None).values())))


def checked_columns(
    rows: Rows, data: Mapping[str, object], target: Target, n: int, layout: Layout = ONE_DEVICE
) -> Columns:
    """The columns after every check of their schema; no value is looked at.

    ``data`` may hold a column of presence, which is checked and kept.
    """
    adjacency, here = target.adjacency, layout.local_rows(n)
    wanted = here.stop - here.start
    given = {name: column for name, column in data.items() if name != PRESENT}
    if PRESENT in data and adjacency != "zero_out":
        instead = "no row is absent" if adjacency == "replace_one" else "pass the rows there are"
        raise DataSchemaError(
            f"{PRESENT}=…: slots may be empty under adjacency='zero_out' only; under {adjacency!r} {instead}."
        )
    if adjacency == "replace_one":
        return rows.validate(given, wanted)
    columns = rows.validate(given, None)
    count = len(next(iter(columns.values())))
    if adjacency == "zero_out" and count != wanted:
        raise DataSchemaError(
            f"adjacency='zero_out' has n={n} public slots ({wanted} here), and the columns another number of "
            f"rows. Give every slot a row, whoever is absent, and {PRESENT}=…, false where a slot is empty: "
            "what such a row holds is ignored. Leaving rows out would move the others to other slots."
        )
    if count > wanted:
        raise DataSchemaError(f"there are more rows than the declared n={n} leaves room for ({wanted}).")
    if PRESENT in data:
        columns[PRESENT] = _checked_presence(data[PRESENT], count)
    return columns


def _checked_presence(present: object, count: int) -> np.ndarray:
    flags = numeric_column(PRESENT, present)
    if flags.shape != (count,):
        raise DataSchemaError(f"{PRESENT}=…: shape {flags.shape}; one flag for every slot, ({count},).")
    return flags


def on_device(
    rows: Rows, columns: Columns, n: int, layout: Layout = ONE_DEVICE
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Rows padded to ``layout.slots(n)`` and mapped into their domains, and which are present.

    Without a column of presence all are. Holes are zeros before anything else sees them. Over several
    devices each gets its share, and no device ever holds all rows.
    """
    count = len(next(iter(columns.values())))
    slots = layout.slots(n) // (1 if layout.mesh is None else jax.process_count())
    flags = columns.get(PRESENT, np.ones(count, dtype=bool))
    filled = {name: padded(blank(value, flags), slots) for name, value in columns.items() if name != PRESENT}
    there = padded(holds_person(flags), slots)
    project = _projection(rows)
    with jax.enable_x64(True):
        if layout.mesh is None:
            whole = {name: jnp.asarray(value) for name, value in filled.items()}
            return project(whole), jnp.asarray(there)
        sharding = NamedSharding(layout.mesh, PartitionSpec("rows"))  # type: ignore[no-untyped-call]

        def spread(local: np.ndarray) -> jax.Array:
            make: Callable[..., jax.Array] = jax.make_array_from_process_local_data
            whole: jax.Array = make(sharding, local)
            return whole

        present = spread(there)
        return project({name: spread(local) for name, local in filled.items()}), present


def placed(
    key: jax.Array,
    declared: Declaration | Plan,
    layout: Layout,
    rows: dict[str, jax.Array],
    present: jax.Array,
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Under ``add_remove``, and persons, on one device: in slots drawn at random, empty ones among them.

    **Guarantee**: a row's term is computed in the same slot whoever else is there, so that its own rounding,
    which may follow the slot, is not changed by another row. For every placement the two data sets differ in
    one slot alone; placements have the same law for both, once slots are renamed, and ``δ(ε)`` is jointly
    convex. Rows in the order they came in move up behind an absent one, and persons in that of identifiers.
    """
    moves = declared.target.adjacency == "add_remove" or declared.rows.unit is not None
    if not moves or layout.mesh is not None:
        return rows, present
    with jax.enable_x64(True):
        found: tuple[dict[str, jax.Array], jax.Array] = _permuted(key, rows, present)
        return found


@jax.jit
def _permuted(
    key: jax.Array, rows: dict[str, jax.Array], present: jax.Array
) -> tuple[dict[str, jax.Array], jax.Array]:
    order = jax.random.permutation(key, present.shape[0])
    return {name: column[order] for name, column in rows.items()}, present[order]


@lru_cache(maxsize=8)
def _projection(rows: Rows) -> Callable[[Mapping[str, jax.Array]], dict[str, jax.Array]]:
    """``rows.project`` in one pass over the rows, compiled once for runs of equal shape."""
    compiled: Callable[..., dict[str, jax.Array]] = jax.jit(rows.project)
    return compiled


def streamed(data: Mapping[str, object], rows_on_device: int | None, layout: Layout) -> dict[str, object]:
    """The columns as they came, or all of them on the host where one of them asks to stay there."""
    if rows_on_device is None and not any(on_host(column) for column in data.values()):
        return dict(data)
    if layout.mesh is not None:
        raise DeclarationError(
            "devices=: rows are either streamed to one device or shared by several; give each process of "
            "several its own part, or load the columns (np.asarray)."
        )
    return {name: host_column(name, column) for name, column in data.items()}


def in_memory(data: Mapping[str, object]) -> dict[str, object]:
    """The columns, those of files read whole: for runs that need all rows at once."""
    return {
        name: host_column(name, column).loaded() if on_host(column) else column
        for name, column in data.items()
    }


def blocks_of(columns: HostColumns, rows_on_device: int | None, n: int) -> Blocks:
    """Blocks of at most ``n`` rows, by default some tens of megabytes each; a function of public sizes."""
    if rows_on_device is not None:
        size = rows_on_device
    else:
        width = sum(column.schema[:1].size * 8 for column in columns.values())
        size = _BLOCK_BYTES // max(width, 1)
    number = len(next(iter(columns.values())).schema)
    readers = {name: column.blocks for name, column in columns.items()}
    return Blocks(readers, number, max(1, min(size, n)), readers.pop(PRESENT, None))
