"""An error leads to no private cell: not through its frames, its cause or its context."""

import sys
import traceback
from pathlib import Path

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.errors import PrivateMCMCError, Unforeseen, clean_errors
from tests.data.fields import flag, number, schema
from tests.examples_of_models import declared, normal_mean

PACKAGE = Path(pmc.__file__).parent
# As a cell, as a number of a column, and as an identifier.
SENTINEL, NUMBER = "Rosalind73501", 73501.8125
SCHEMA = schema(number("age", 0, 120), flag("died"))
ROWS = pmc.Rows(y=pmc.Box(-1, 1))
TARGET = pmc.Target(1.0, 1e-6)


def driver(num_rows):
    kernel = pmc.PrivateULA(normal_mean, step_size=1e-3, clip=0.1)
    return declared(kernel, ROWS, target=TARGET, num_steps=2, n=num_rows)


def text_in(folder, content):
    place = folder / "file"
    place.write_text(content)
    return place


def ledger(folder):
    made = pmc.Ledger.create(folder / "books.db")
    made.declare("a", TARGET)
    made.reserve("a", PRICE, purpose="", data={"y": COLUMN})
    return made


PRICE = pmc.accounting.gaussian(adjacency="replace_one", sensitivity=0.1, scale=1.0)
COLUMN = np.full(5, NUMBER)
TABLE = {"age": [SENTINEL] * 5, "died": [SENTINEL] * 5}
PEOPLE = f"age,died\n{SENTINEL},{SENTINEL}\n" * 3
ENTRIES = {
    "fit": lambda folder: pmc.fit(TABLE, SCHEMA, "died ~ age", epsilon=1.0),
    "fit of a file": lambda folder: pmc.fit(text_in(folder, PEOPLE), SCHEMA, "died ~ age", epsilon=1.0),
    "fit with a table for a schema": lambda folder: pmc.fit(TABLE, TABLE, "died ~ age", epsilon=1.0),
    "fit with an unknown argument": lambda folder: pmc.fit(
        TABLE, SCHEMA, "died ~ age", epsilon=1.0, data=TABLE
    ),
    "run": lambda folder: driver(4).run(y=COLUMN),
    "run of words": lambda folder: driver(5).run(y=np.array([SENTINEL] * 5)),
    "run of an object": lambda folder: driver(5).run(y=Broken()),
    "run without its column": lambda folder: driver(5).run(z=COLUMN),
    "resume": lambda folder: driver(5).resume(y=COLUMN),
    "validate": lambda folder: ROWS.validate({"y": COLUMN}, n=4),
    "validate of words": lambda folder: ROWS.validate({"y": np.array([SENTINEL] * 4)}, n=4),
    "project": lambda folder: ROWS.project({"z": COLUMN}),
    "a charge of an object": lambda folder: ledger(folder).charge(
        "a", PRICE, purpose="", data={"y": Broken()}
    ),
    "a charge": lambda folder: ledger(folder).charge("a", PRICE, purpose="", data={"z": COLUMN}),
    "a table for a schema": lambda folder: pmc.Schema.load(text_in(folder, PEOPLE + "[")),
}


class Broken:
    """A column whose library fails in its own way, quoting it."""

    shape, cells = (5,), COLUMN

    def __array__(self, *_, **__):
        raise RuntimeError(f"cannot hold {SENTINEL}")

    def __repr__(self):
        return SENTINEL


def shown(error):
    """What a logger with locals prints of frames of the package, of an error and all that it came from."""
    waiting, seen, lines = [error], set(), []
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += [one.__cause__, one.__context__]
        lines.append(str(one))
        found = traceback.TracebackException.from_exception(one, capture_locals=True)
        for frame in found.stack:
            if Path(frame.filename).is_relative_to(PACKAGE) or "site-packages" in frame.filename:
                lines += [f"{name} = {value}" for name, value in (frame.locals or {}).items()]
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_frames_of_an_error_hold_no_cell(name, tmp_path):
    """`rich` with locals, Sentry and `capture_locals` printed the rows of a refused fit."""
    with pytest.raises(Exception) as raised:
        ENTRIES[name](tmp_path)
    assert isinstance(raised.value, PrivateMCMCError)
    said = shown(raised.value)
    assert SENTINEL not in said and str(NUMBER) not in said and "73501" not in said


def test_the_check_above_sees_what_a_frame_holds():
    def refuse(column):
        raise pmc.DataSchemaError("no")

    namespace = {"refuse": refuse}
    exec(compile("def entry(column):\n    refuse(column)", str(PACKAGE / "x.py"), "exec"), namespace)
    for function, holds in ((namespace["entry"], True), (clean_errors(namespace["entry"]), False)):
        try:
            function([SENTINEL])
        except pmc.DataSchemaError as error:
            assert (SENTINEL in shown(error)) == holds


def test_an_unforeseen_error_is_told_by_type_and_place_and_ours_as_they_are():
    @clean_errors
    def entry(cell):
        if cell is None:
            raise KeyboardInterrupt(SENTINEL)  # as a panic of Rust does, which is no Exception either
        if cell == "ours":
            raise pmc.NotPrivate("ours", report=3)
        return float(cell)

    with pytest.raises(Unforeseen, match=r"ValueError at .*test_clean_errors\.py") as raised:
        entry(SENTINEL)
    assert SENTINEL not in str(raised.value) and raised.value.__context__ is None
    with pytest.raises(pmc.NotPrivate, match="ours") as raised:
        entry("ours")
    assert raised.value.report == 3 and raised.value.places[-1].endswith("in entry")
    with pytest.raises(KeyboardInterrupt) as stopped:
        entry(None)
    assert len(traceback.extract_tb(stopped.value.__traceback__)) == 2 and not stopped.value.args
    with pytest.raises(TypeError, match="missing 1 required"):
        entry()
    assert entry("1.5") == 1.5 and sys.exc_info() == (None, None, None)


class Elsewhere(OSError):
    """Of another library, with arguments of its own."""

    def __init__(self, cell):
        super().__init__(2, cell)


class Places(ValueError):
    """Of another library, with a name that ours have too."""

    places = 3


def noted(cell):
    error = pmc.DataSchemaError("no")
    error.add_note(cell)
    return error


OTHERS = {
    "a warning as an error": RuntimeWarning,
    "a group of what stops a process": lambda cell: BaseExceptionGroup("", [KeyboardInterrupt(cell)]),
    "the system's error": Elsewhere,
    "a name of ours": Places,
    "a note": noted,
}


@pytest.mark.parametrize("name", OTHERS)
def test_no_part_of_an_error_of_another_library_is_shown(name):
    @clean_errors
    def entry(cell):
        raise OTHERS[name](cell)

    with pytest.raises(Exception) as raised:
        entry(SENTINEL)
    error = raised.value
    assert isinstance(error, PrivateMCMCError | OSError) and error.__context__ is None
    assert SENTINEL not in "".join(traceback.format_exception(error, limit=0)) + repr(vars(error))
