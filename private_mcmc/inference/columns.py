"""The caller's columns: bound, checked, and brought to the device, or left outside to be read in blocks."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from private_mcmc.data.readers import is_part
from private_mcmc.domains import Rows
from private_mcmc.domains.columns import (
    PRESENT,
    HostColumn,
    Spool,
    SpooledColumn,
    blank,
    holds_person,
    host_column,
    numeric_column,
    on_host,
    padded,
)
from private_mcmc.domains.persons import Numbers, Slots
from private_mcmc.errors import DataSchemaError, DeclarationError
from private_mcmc.inference.decision import Declaration
from private_mcmc.kernels.partitions import Blocks, Engine, Partition, row_slots
from private_mcmc.planning import Plan
from private_mcmc.records import PublicArguments
from private_mcmc.target import Adjacency, Target, Unit

Columns = dict[str, np.ndarray]
HostColumns = dict[str, HostColumn]

_BLOCK_BYTES = 2**26
# Rows of a table that are in memory at a time, where not all are.
BLOCK = 2**17
# Rows of a copy that are in memory at a time.
_COPIED = 2**19


@dataclass(frozen=True)
class Place:
    """Where a run wants its rows: on the devices of ``mesh``, in blocks of so many, or at an engine.

    ``whole``: those of files are read into memory, unless blocks or an engine are asked for, or a copy of
    them in other slots.
    """

    mesh: Mesh | None = None
    rows_on_device: int | None = None
    engine: Engine | None = None
    whole: bool = False

    def put(self, data: Mapping[str, object]) -> dict[str, object]:
        """The columns as they came, or all of them on the host where one of them asks to stay there."""
        asked = self.rows_on_device is not None or self.engine is not None
        asked |= any(isinstance(one, HostColumn) and one.ordered_by_cells for one in data.values())
        if self.whole and not asked:
            return {
                name: host_column(name, column).loaded() if on_host(column) else column
                for name, column in data.items()
            }
        if not asked and not any(on_host(column) for column in data.values()):
            return dict(data)
        if self.mesh is not None:
            raise DeclarationError(
                "devices=: rows are shared by devices, streamed to one, or held by an engine: load the "
                "columns (np.asarray) for the first."
            )
        return {name: host_column(name, column) for name, column in data.items()}


def checked(
    declared: Declaration | Plan,
    args: tuple[object, ...],
    named: Mapping[str, object],
    present: object,
    place: Place,
) -> tuple[Columns | HostColumns, int]:
    """The columns at their place (all on the host, or none), checked, and their public number."""
    rows, target = declared.rows, declared.target
    data = bind_columns(declared.model, args, named, rows)
    if isinstance(declared, Declaration):
        _refuse_private_arguments(declared.kernel.model_args, data)
    if rows.unit is not None:
        return _persons(rows, data, declared.n, present is not None, place)
    if present is not None:
        # The flags of the slots lie with the other columns.
        data[PRESENT] = present if on_host(present) else numeric_column(PRESENT, present)
    data = place.put(data)
    shapes = without_rows(data)
    n = number_of_rows(rows, shapes, target, declared.n)
    columns = checked_columns(rows, shapes, target, n)
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
    place: Place,
) -> tuple[Columns | HostColumns, int]:
    """Rows grouped into ``n`` persons, whose number the data do not tell: one may have no rows."""
    if n is None:
        raise DeclarationError("persons with several rows: give PrivateMCMC their number, public, n=….")
    if flags:
        raise DataSchemaError(f"{PRESENT}=…: of persons with several rows, one without any row is absent.")
    unit = "" if rows.unit is None else rows.unit.name
    ours = place.put({name: column for name, column in data.items() if name != unit})
    given = {unit: data[unit]} if unit in data else {}
    host = on_the_host(ours)
    if not host:
        return rows.grouped({**ours, **given}, n), n
    _, who = rows.numbered({**without_rows(host), **given}, n)
    return host | {unit: host_column(unit, who)}, n


def without_rows(data: Mapping[str, object]) -> dict[str, object]:
    """The columns, of those outside memory their shapes and types alone: enough for checks of the schema."""
    return {name: one.schema if isinstance(one, HostColumn) else one for name, one in data.items()}


def on_the_host(columns: Mapping[str, object]) -> HostColumns:
    """The columns that stay outside the device's memory: all of them, or none."""
    return {name: column for name, column in columns.items() if isinstance(column, HostColumn)}


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
    return len(next(iter(rows.validate(data, None).values())))


def checked_columns(rows: Rows, data: Mapping[str, object], target: Target, n: int) -> Columns:
    """The columns after every check of their schema; no value is looked at.

    ``data`` may hold a column of presence, which is checked and kept.
    """
    adjacency = target.adjacency
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


@dataclass(frozen=True, eq=False, repr=False)
class Held:
    """All rows where a run wants them: mapped into their domains on devices, or in partitions elsewhere."""

    rows: dict[str, jax.Array] = field(default_factory=dict)
    present: jax.Array = field(default_factory=lambda: jnp.zeros(0, dtype=bool))
    partitions: tuple[Partition, ...] = ()
    outside: Outside | None = None
    mesh: Mesh | None = None

    def placed(self, key: jax.Array, declared: Declaration | Plan) -> Held:
        """Where who stands where could follow other rows: in slots drawn at random, see :func:`moves`."""
        outside = self.outside
        if not moves(declared.target.adjacency, declared.rows, outside.columns if outside else {}):
            return self
        with jax.enable_x64(True):
            if outside is not None:
                order = np.asarray(jax.random.permutation(key, outside.n))
                return replace(self, partitions=outside.partitions(order, self.partitions))
            slots = len(self.present) if declared.n is None else declared.n
            rows, present = _permuted(key, self.rows, self.present, slots)
        return replace(self, rows=rows, present=present)


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


@dataclass(frozen=True, eq=False, repr=False)
class Outside:
    """Rows that are read block by block, in ``n`` slots; of persons their numbers lie under ``unit``."""

    columns: HostColumns
    n: int
    place: Place
    unit: Unit | None = None

    def partitions(
        self, order: Numbers | None = None, before: tuple[Partition, ...] = ()
    ) -> tuple[Partition, ...]:
        """At an engine, or blocks on the host; where ``order`` is given, slot ``s`` has the row ``order[s]``.

        An engine may take the places of partitions ``before``.
        """
        slots, engine, columns = None, self.place.engine, dict(self.columns)
        who = np.arange(next(iter(columns.values())).shape[0])
        if self.unit is not None:
            who = columns.pop(self.unit.name).loaded()
        if order is not None:
            slots = Slots.of(who, order, 0 if self.unit is None else self.unit.rows)
        if engine is not None:
            return engine.partitions(columns, self.n, slots, before)
        if slots is not None:
            columns = in_slots(slots, columns)
        return (blocks_of(columns, self.place.rows_on_device, self.n),)


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
    return {name: SpooledColumn.of(spool, part[name]) for name, spool in spools.items()}


def held_rows(
    rows: Rows,
    columns: Columns | HostColumns,
    n: int,
    place: Place,
    declared: Declaration | Plan,
    key: jax.Array,
) -> Held:
    """The rows of ``columns``: at an engine, in blocks of what stays on the host, or on a mesh's devices.

    There they are padded to the mesh's slots. Without a column of presence all are present. Holes are
    zeros before anything else sees them. Rows that a run places at random are placed by ``key``, so that it
    is known to work, once.
    """
    mesh = place.mesh
    if host := on_the_host(columns):
        outside = Outside(host, n, place, declared.rows.unit)
        held = Held(outside=outside).placed(key, declared)
        return held if held.partitions else Held(partitions=outside.partitions())
    arrays = {name: column for name, column in columns.items() if not isinstance(column, HostColumn)}
    count = len(next(iter(arrays.values())))
    slots = row_slots(mesh, n)
    flags = arrays.get(PRESENT, np.ones(count, dtype=bool))
    filled = {name: padded(blank(value, flags), slots) for name, value in arrays.items() if name != PRESENT}
    there = padded(holds_person(flags), slots)
    with jax.enable_x64(True):
        if mesh is None:
            spread: Callable[[np.ndarray], jax.Array] = jnp.asarray
        else:
            by_row = NamedSharding(mesh, PartitionSpec("rows"))  # type: ignore[no-untyped-call]

            spread = partial(jax.device_put, device=by_row)

        mapped = _projection(rows)({name: spread(value) for name, value in filled.items()})
        held = Held(mapped, spread(there), mesh=mesh)
    held.placed(key, declared)
    return held


@partial(jax.jit, static_argnums=3)
def _permuted(
    key: jax.Array, rows: dict[str, jax.Array], present: jax.Array, n: int
) -> tuple[dict[str, jax.Array], jax.Array]:
    """The first ``n`` slots; those after them fill the devices up."""
    order = jnp.append(jax.random.permutation(key, n), jnp.arange(n, present.shape[0]))
    return {name: column[order] for name, column in rows.items()}, present[order]


@lru_cache(maxsize=8)
def _projection(rows: Rows) -> Callable[[Mapping[str, jax.Array]], dict[str, jax.Array]]:
    """``rows.project`` in one pass over the rows, compiled once for runs of equal shape."""
    compiled: Callable[..., dict[str, jax.Array]] = jax.jit(rows.project)
    return compiled


def blocks_of(columns: HostColumns, rows_on_device: int | None, n: int) -> Blocks:
    """Blocks of at most ``n`` rows, by default some tens of megabytes each; a function of public sizes."""
    if rows_on_device is not None:
        size = rows_on_device
    else:
        width = sum(column.schema[:1].size * 8 for column in columns.values())
        size = _BLOCK_BYTES // max(width, 1)
    data = {name: column for name, column in columns.items() if name != PRESENT}
    return Blocks(data, max(1, min(size, n)), columns.get(PRESENT))
