"""The caller's columns: bound, checked, and brought to the device, or left outside to be read in blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import jax
import numpy as np

from private_mcmc.domains import Rows
from private_mcmc.domains.cells import is_part
from private_mcmc.domains.columns import (
    PRESENT,
    HostColumn,
    Spool,
    check_unmasked,
    host_column,
    numeric_column,
    on_host,
)
from private_mcmc.domains.persons import Numbers, Slots
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.inference.declared import Declaration, Devices, Execution, Ray, devices_of, names_of
from private_mcmc.inference.ray_engine import partitions_at
from private_mcmc.kernels import Streams
from private_mcmc.kernels.partitions import Blocks, Partition, on_devices
from private_mcmc.planning import Plan
from private_mcmc.records import Fields, PublicArguments
from private_mcmc.target import Adjacency, Target, Unit

Columns = dict[str, np.ndarray]
HostColumns = dict[str, HostColumn]

_BLOCK_BYTES = 2**26  # of a block where nothing is said
# Rows in memory at a time: of a table, where not all are; of a copy.
BLOCK, _COPIED = 2**17, 2**19


def _put(data: Mapping[str, object], where: Execution, whole: bool) -> dict[str, object]:
    """The columns as they came, or all of them on the host where one of them asks to stay there."""
    asked = where.rows_on_device is not None or isinstance(where.engine, Ray)
    asked |= any(isinstance(one, HostColumn) and one.ordered_by_cells for one in data.values())
    if whole and not asked:
        return {name: host_column(name, one).loaded() if on_host(one) else one for name, one in data.items()}
    if not asked and not any(on_host(column) for column in data.values()):
        return dict(data)
    return {name: _held(name, one) for name, one in data.items()}


def _held(name: str, column: object) -> HostColumn:
    """A column that is read again at every step: one in memory, which its owner may change, is copied."""
    filed = isinstance(column, np.memmap) and column.mode in ("r", "r+", "w+")
    if filed or not isinstance(column, np.ndarray):
        return host_column(name, column)
    check_unmasked(name, column)
    return host_column(name, np.array(column))  # NumPy's own copy, not that of a subclass


def checked(
    declared: Declaration | Plan,
    args: tuple[object, ...],
    named: Mapping[str, object],
    present: object,
    where: Execution,
) -> tuple[Columns | HostColumns, int]:
    """The caller's columns as :func:`checked_at`, bound to the model's arguments."""
    for first in args[:1]:
        _refuse_no_columns(first, declared.rows)
    names = names_of(declared.model, len(args), set(named), declared.rows)
    data, whole = {**dict(zip(names, args, strict=True)), **named}, isinstance(declared, Plan)
    if isinstance(declared, Declaration):
        _refuse_private_arguments(declared.kernel.model_args, data)
    if present is not None:
        # The flags of the slots lie with the other columns.
        data[PRESENT] = present if on_host(present) else numeric_column(PRESENT, present)
    return checked_at(where, data, declared.rows, declared.target, declared.n, whole)


def checked_at(
    where: Execution, data: Mapping[str, object], rows: Rows, target: Target, n: int | None, whole: bool
) -> tuple[Columns | HostColumns, int]:
    """The columns at their place (all on the host, or none), checked, and their public number.

    ``whole``: those of files are read into memory, unless blocks, an engine that reads them, or a copy of
    them in other slots is asked for.
    """
    if rows.unit is not None:
        return _persons(rows, rows.unit.name, data, n, where, whole)
    if n is None and target.adjacency != "replace_one":
        which = "slots, empty ones included" if target.adjacency == "zero_out" else "rows, or a bound of it"
        raise DeclarationError(
            f"adjacency={target.adjacency!r} hides how many rows there are: give PrivateMCMC the public "
            f"number of {which}, n=…."
        )
    data = _put(data, where, whole)
    shapes = without_rows(data)
    n = len(next(iter(rows.validate(shapes, None).values()))) if n is None else n
    columns = checked_columns(rows, shapes, target.adjacency, n)
    return (on_the_host(data) or columns), n


def _refuse_no_columns(first: object, rows: Rows) -> None:
    """A key, as NumPyro's drivers take, is no column, and a table is none."""
    shape, kind = getattr(first, "shape", None), getattr(first, "dtype", None)
    if isinstance(first, int) or shape == () or (shape == (2,) and kind == np.uint32):
        raise DeclarationError(
            "run(…) takes the private columns, and no random key: its keys come from the operating system. A "
            "key of your own is rng_key=…, which makes a run reproducible and not private. (A column of two "
            "uint32 rows is passed by its name.)"
        )
    if hasattr(first, "keys"):
        raise DataSchemaError(
            f"run(…) takes columns, {sorted(rows.columns)}, and not a table: pass them by name. pmc.fit "
            "takes a table with words and missing cells, and a schema."
        )


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
    rows: Rows, unit: str, data: Mapping[str, object], n: int | None, where: Execution, whole: bool
) -> tuple[Columns | HostColumns, int]:
    """Rows of ``n`` persons, whose numbers lie under ``unit``; of how many, the data do not tell.

    Wherever the rows lie, a ledger is shown the same columns.
    """
    if n is None:
        raise DeclarationError("persons with several rows: give PrivateMCMC their number, public, n=….")
    if PRESENT in data:
        raise DataSchemaError(f"{PRESENT}=…: of persons with several rows, one without any row is absent.")
    ours = _put({name: column for name, column in data.items() if name != unit}, where, whole)
    given = {unit: data[unit]} if unit in data else {}
    columns, who = rows.numbered({**without_rows(ours), **given}, n)
    host = on_the_host(ours)
    return (host | {unit: host_column(unit, who)} if host else columns | {unit: who}), n


def without_rows(data: Mapping[str, object]) -> dict[str, object]:
    """The columns, of those outside memory their shapes and types alone: enough for checks of the schema."""
    return {name: one.schema if isinstance(one, HostColumn) else one for name, one in data.items()}


def on_the_host(columns: Mapping[str, object]) -> HostColumns:
    """The columns that stay outside the device's memory: all of them, or none."""
    return {name: column for name, column in columns.items() if isinstance(column, HostColumn)}


def checked_columns(rows: Rows, data: Mapping[str, object], adjacency: Adjacency, n: int) -> Columns:
    """The columns after every check of their schema; no value is looked at.

    ``data`` may hold a column of presence, which is checked and kept.
    """
    given = {name: column for name, column in data.items() if name != PRESENT}
    if PRESENT in data and adjacency != "zero_out":
        instead = "no row is absent" if adjacency == "replace_one" else "pass the rows there are"
        raise DataSchemaError(
            f"{PRESENT}=…: slots may be empty under adjacency='zero_out' only; under {adjacency!r} {instead}."
        )
    if adjacency == "replace_one":
        return rows.validate(given, n)
    columns = rows.validate(given, None)
    count = len(next(iter(columns.values())))
    if adjacency == "zero_out" and count != n:
        raise DataSchemaError(
            f"adjacency='zero_out' has n={n} public slots, and the columns another number of rows. "
            f" Give every slot a row, whoever is absent, and {PRESENT}=…, false where a slot is empty: "
            "what such a row holds is ignored. Leaving rows out would move the others to other slots."
        )
    if count > n:
        raise DataSchemaError(f"there are more rows than the declared n={n} leaves room for.")
    if PRESENT in data:
        columns[PRESENT] = flags = numeric_column(PRESENT, data[PRESENT])
        if flags.shape != (count,):
            raise DataSchemaError(f"{PRESENT}=…: shape {flags.shape}; one flag for every slot, ({count},).")
    return columns


def moves(adjacency: Adjacency, rows: Rows, columns: HostColumns) -> bool:
    """Whether another row may change the order of the rows, so that they lie in slots drawn at random.

    **Guarantee** of such slots: a row's term is computed in the same slot whoever else is there, so that its
    own rounding, which may follow the slot, is not changed by another row. For every placement the two data
    sets differ in one slot alone; placements have the same law for both, once slots are renamed, and ``δ(ε)``
    is jointly convex. In the order they came in rows move up behind an absent one, persons in that of
    identifiers, and all between two files behind a row whose cell names another folder.
    """
    ordered = any(one.ordered_by_cells for one in columns.values())
    return adjacency == "add_remove" or rows.unit is not None or ordered


def partitions_of(
    columns: Fields, n: int, where: Execution, unit: Unit | None = None, order: Numbers | None = None
) -> tuple[Partition, ...]:
    """All rows where a run wants them, in ``n`` slots, as they are outside; holes are zeros.

    At an engine, in blocks of what stays on the host, or on the default device. Of persons their numbers lie
    under ``unit``. Where ``order`` is given, slot ``s`` has the row ``order[s]``.
    """
    outside, slots = bool(on_the_host(columns)), None
    host = {name: host_column(name, one) for name, one in columns.items()}
    count = next(iter(host.values())).shape[0]
    if order is None and (unit is not None or count < n):
        order = np.arange(n)
    if order is not None:
        who = np.arange(count) if unit is None else host.pop(unit.name).loaded()
        slots = Slots.of(who, order, 0 if unit is None else unit.rows)
    if isinstance(engine := where.engine, Ray):
        return partitions_at(engine, host, slots)
    if outside and engine is None:
        host = host if slots is None else in_slots(slots, host)
        width = sum(column.schema[:1].size * 8 for column in host.values())
        size = where.rows_on_device or _BLOCK_BYTES // max(width, 1)
        return (Blocks(host, max(1, min(size, n))),)
    if not isinstance(engine, Devices | None):
        return engine.partitions(host, slots)
    return on_devices(host, slots, devices_of(engine or Devices()))


def placed(
    columns: Fields, n: int, where: Execution, rows: Rows, adjacency: Adjacency, streams: Streams
) -> tuple[Partition, ...]:
    """The partitions of a run, whose rows lie in slots drawn at random where that must be: see ``moves``."""
    order = None
    if streams.slots is not None and moves(adjacency, rows, on_the_host(columns)):
        order = np.asarray(jax.random.permutation(streams.slots, n))
    return partitions_of(columns, n, where, rows.unit, order)


def in_slots(slots: Slots, columns: HostColumns) -> HostColumns:
    """A copy of the columns in these slots: in files without a name, or in memory if they are few."""
    size = max(1, _COPIED // max(slots.at_most, 1))
    spools: defaultdict[str, Spool] = defaultdict(Spool)
    for first in range(0, slots.size, size):
        part = slots.part(first, min(first + size, slots.size)).filled(columns)
        if slots.size <= size:
            return {name: host_column(name, values) for name, values in part.items()}
        for name, values in part.items():
            spools[name].append(values)
    return {name: spool.column() for name, spool in spools.items()}
