"""Tables into the columns that a question reads: private ones, checked and read once, and described ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from private_mcmc.analysis import Description
from private_mcmc.arguments import small_delta
from private_mcmc.data.fields import Field, identifier
from private_mcmc.data.readers import source_of
from private_mcmc.data.schema import Schema
from private_mcmc.data.table import (
    coded_table,
    data_marks,
    encoded,
    read_identifiers,
    read_table,
    refuse_changed,
    spooled_table,
)
from private_mcmc.domains.cells import Marks
from private_mcmc.domains.columns import PRESENT, PickedColumn, host_column, on_host
from private_mcmc.domains.persons import Numbers, Slots, numbered, one_row_each
from private_mcmc.dossier.folder import Query
from private_mcmc.dossier.record import ReleaseRecord
from private_mcmc.errors import DataSchemaError, DeclarationError, NotYetSupported
from private_mcmc.inference.columns import checked_columns, in_slots, without_rows
from private_mcmc.inference.declared import Engine, Ray
from private_mcmc.inference.question import Question
from private_mcmc.planning.facts import SYNTHETIC_ROWS
from private_mcmc.records import Fields, Record
from private_mcmc.target import Adjacency, Target, check_count

# No column of a table has this name.
_WHO = "\nwho is who"


def read_for(
    table: object,
    asked: Question,
    epsilon: float,
    delta: float | None,
    adjacency: Adjacency,
    n: int | None,
    engine: Engine | None = None,
) -> tuple[Fields, Marks, int, Target]:
    """The columns, curator-side, with their marks, the public number of rows, and the target."""
    if n is not None:
        check_count("n", n)
    target = Target(epsilon, small_delta(1) if delta is None else delta, adjacency)
    if target.adjacency == "add_remove" and n is None:
        raise DeclarationError("adjacency='add_remove' hides the number of rows: give a public bound, n=….")
    if asked.rows.unit is not None and n is None:
        raise DeclarationError(
            f"persons by {asked.schema.person!r}: give their number, n=…. It is public, and the table "
            "does not tell it: whoever takes a person's place may have no rows in it."
        )
    columns, marks = read_once(table, asked, target.adjacency, n, engine)
    here = int(next(iter(columns.values())).shape[0])
    rows = here if n is None else n
    if n is not None and asked.rows.unit is None:
        if target.adjacency == "replace_one" and n != here:
            raise DataSchemaError(
                f"n={n}: the table has {here} rows, which replace_one makes public: leave n=… out."
            )
        # Before minutes of planning.
        checked_columns(asked.rows, without_rows(columns), target.adjacency, n)
    if delta is None:
        target = replace(target, delta=small_delta(rows))
    return columns, marks, rows, target


def read_once(
    table: object, asked: Question, adjacency: Adjacency, n: int | None = None, engine: Engine | None = None
) -> tuple[Fields, Marks]:
    """The columns, and the marks of the very table that they were read from."""
    _check_rows(asked, adjacency)
    source = source_of(table, asked.schema.encoding)  # what is no table is refused in its own words
    marks = data_marks(table)
    if asked.schema.person:
        # A ledger adds up charges for one unit: who counts as one person, however the column is read.
        codes = numbered(read_identifiers(table, asked.schema))
        marks = replace(marks, known_by={**marks.known_by, _WHO: codes})
        _check_persons(asked, codes, n, adjacency)
    columns = read_columns(table, asked.schema, asked, adjacency, engine)
    empty = not next(iter(columns.values())).shape[0]
    if empty and adjacency == "replace_one" and asked.rows.unit is None:
        raise DataSchemaError(f"{source.where}: has a header and no rows.")
    if isinstance(table, str | Path):
        refuse_changed(table, marks)
    return columns, marks


def _check_rows(asked: Question, adjacency: Adjacency) -> None:
    """Refuse rows of which a table does not tell, or tells too much, who counts for nothing."""
    person = "" if asked.rows.unit is not None else asked.schema.person
    if adjacency == "zero_out" and person:
        raise NotYetSupported(
            f"adjacency='zero_out' with one row of each {person!r}: the table does not tell "
            "which slot is empty. Take replace_one, or add_remove with a public bound n=…."
        )
    dropped = [name for name in asked.fields if asked.schema[name].missing == "drop"]
    if dropped and person:
        raise NotYetSupported(
            f"fields {dropped}: missing: drop is not for one row of each person. If every row is another "
            f"person's, give {person!r} role: ignored and leave person out; if persons may have "
            "several, say how many (at_most)."
        )
    if dropped and asked.rows.unit is None and adjacency != "zero_out":
        raise DeclarationError(
            f"fields {dropped}: missing: drop lets rows count for nothing, and which ones do is private: "
            "adjacency='zero_out' protects that. Or take missing: indicator, middle or a value."
        )


def _check_persons(asked: Question, codes: Numbers, n: int | None, adjacency: Adjacency) -> None:
    """Refuse tables with more persons than are declared, or whose number of persons tells of one of them.

    More count whether or not rows of theirs are left: that is private. Where each has one row their number is
    public under ``replace_one``, and whether somebody counts is private.
    """
    unit = asked.rows.unit
    if unit is not None and n is not None and codes.max(initial=-1) >= n:
        raise DataSchemaError(f"column {unit.name!r}: more identifiers than the declared n={n} persons.")
    if unit is None and adjacency == "replace_one" and (codes < 0).any():
        raise DataSchemaError(
            f"column {asked.schema.person!r}: has rows without an identifier, which count for nothing. How "
            "many persons there are is public under replace_one, and who has no identifier is not: give such "
            "rows identifiers of their own, take add_remove with a public bound n=…, or leave person out if "
            "no person has two rows."
        )


def read_columns(
    table: object, schema: Schema, asked: Question, adjacency: Adjacency, engine: Engine | None = None
) -> Fields:
    """What the model reads, and who each row is about where that is declared.

    Where a person has one row, that is enforced: of those with one identifier one is kept, by its contents.
    Rows of several files stay outside memory; those that an engine reads are read by its workers.
    """
    elsewhere = isinstance(engine, Ray)
    several = isinstance(table, str | Path) and not Path(table).is_file()
    read = coded_table if elsewhere else spooled_table if several else read_table
    columns: Record = dict(read(table, schema, asked.fields))
    if not schema.person:
        return columns
    codes = numbered(read_identifiers(table, schema))
    if asked.rows.unit is not None:
        present = columns.pop(PRESENT, np.ones(len(codes)))
        there = np.asarray(present.loaded() if on_host(present) else present) > 0
        # How many rows a person has is private in any case: those that drop out are none of them.
        return columns | {asked.rows.unit.name: np.where(there & (codes >= 0), codes, np.nan)}
    # In slots drawn at random: in those of identifiers others would move up for one person who is replaced.
    order = np.random.default_rng().permutation(int(codes.max(initial=-1)) + 1)
    if elsewhere:
        kept = one_row_each(columns, codes)[order]
        return {name: PickedColumn.of(one, kept) for name, one in columns.items()}
    slots = Slots.of(codes, order)
    held = {name: host_column(name, one) for name, one in columns.items()}
    found = in_slots(slots, held) if several else slots.filled(held)
    return {name: found[name] for name in columns}


def schema_of(given: object) -> Schema:
    """A schema or the path of its file; raises ``DeclarationError`` for anything else."""
    if isinstance(given, Schema):
        return given
    if isinstance(given, Path) or (isinstance(given, str) and "~" not in given):
        return Schema.load(given)
    raise DeclarationError(
        f"fit(table, schema, formula, epsilon=…): as schema a {type(given).__name__} was given. Declare what "
        "the table's cells may be: `private-mcmc init` writes schema.yaml, pmc.Schema.load reads it."
    )


def described_people(asked: Question, described: ReleaseRecord) -> Fields | None:
    """Columns of people like those of a released table, as the model reads them."""
    if not isinstance(described, Query) or not isinstance(described.analysis, Description):
        raise DeclarationError("described: a table that describe released.")
    if described.seeded:
        raise DeclarationError("described: a table whose noise was chosen is not private.")
    if asked.rows.unit is not None:
        raise NotYetSupported("described: for tables of one row a person; leave it out of this fit.")
    people = described.analysis.people(described.found, asked.fields, SYNTHETIC_ROWS)
    found: dict[str, Any] = {}
    for name in people[0]:
        if all(name in one for one in people):
            then = described.analysis.schema[name]
            found |= _read_again(then, asked.schema[name], [one[name] for one in people])
    return found


def _read_again(then: Field, now: Field, words: Sequence[str]) -> Fields:
    """What was described of a field, as the model reads it; ranges, titles, fates may have changed."""
    was, now_is = (
        "levels" if one.is_category else "dates" if one.type == "date" else "numbers" for one in (then, now)
    )
    places = {level.value: place for place, level in enumerate(now.all_levels)} if now.is_category else {}
    gone = [level.label for level in then.all_levels if level.value not in places] if then.is_category else []
    in_units = bool(then.unit and now.unit) and then.unit != now.unit
    changed = f"had {was}, not {now_is}" if was != now_is else f"had the levels {gone}" if gone else ""
    if changed := changed or f"was in {then.unit}, not {now.unit}" * in_units:
        remedy = "describe again with today's schema, or leave described=… out"
        raise DeclarationError(f"described: by another schema, where {now.name!r} {changed}: {remedy}.")
    if places:
        codes = {level.label: places[level.value] for level in then.all_levels}
        return {identifier(now.name): np.array([codes[word] for word in words])}
    plain: Record = {"outside": "nearest", "missing_values": (), "decimal": "."}
    return encoded(replace(now, **plain), words)[0]
