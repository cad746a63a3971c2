"""What leaves a command, besides what its mechanisms release, is the same whoever is in the table.

Mechanisms are shown public rows in place of the private ones, and all randomness is fixed. Whatever differs
then between two tables went past them: a word, an exit code, a file, the size of one.
"""

import datetime
import json
import secrets
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from private_mcmc.cli import main
from private_mcmc.errors import NotYetSupported
from private_mcmc.inference import execute_plan, fitting, last_run, question
from private_mcmc.kernels.partitions import Resident
from private_mcmc.planning import Plan, Prediction
from private_mcmc.release import ledger, ledger_file, noise

SCHEMA = """fields:
- {name: died, type: boolean, private_mcmc: {missing: %s, otherwise: missing}}
- {name: age, type: number, constraints: {minimum: 0, maximum: 100}, missingValues: ['', '-9'],
   private_mcmc: {missing: indicator, otherwise: missing, outside: nearest%s}}
- {name: region, type: string, constraints: {enum: [n, s, é]},
   private_mcmc: {missing: indicator, otherwise: other}}
- {name: id, type: string, private_mcmc: {role: %s}}
%s
"""
QUESTION = ("--schema", "schema.yaml", "--formula", "died ~ age + region")
ROWS = [f"{k % 2},{20 + k},{'ns'[k % 3 // 2]},p{k // 2}" for k in range(48)]
OF_ONE = {
    "extreme": "1,1e308,é,x",
    "no number": "nan,inf,\x00,x",
    "code": "0,-9.0,,x",
    "words": "maybe,old,zzz," + "x" * 10_000,
    "accents": "1,٣٣,e\u0301,x",
    "quoted": '"1"," 50 ","n\ns","x"',
    "long": "1," + "9" * 6_000 + "," + "e\u0301" * 200_000 + ",x",
    "other width": "1,2,3,4,5,6,7",
}
PERSON = "private_mcmc: {person: {field: id, at_most: 3}}"
OTHERS = [row for row in ROWS if not row.endswith("p7")]
OF_A_PERSON = {
    "who did not come": OTHERS,
    "of many rows": [*OTHERS, *["1,50,n,p7"] * 40],
    "without an identifier": [*OTHERS, "1,50,n,", "0,50,s, "],
    "spelt oddly": [*OTHERS, "1,50,n,\u200bP７.0", "1,50,n," + "7" * 5_000],
    "in another order": OTHERS[::-1],
    "nobody": [],
}
IN_PLACE = {name: [*ROWS[1:], row] for name, row in OF_ONE.items()}
# What is asked, of whom, and who else may be there: a schema, options, a public size and tables.
CASES = {
    "rows": (SCHEMA % ("'false'", "", "ignored", ""), (), len(ROWS), IN_PLACE),
    "persons": (SCHEMA % ("'false'", "", "person", PERSON), ("--adjacency", "add_remove"), 30, OF_A_PERSON),
    "holes": (
        SCHEMA % ("drop", "", "ignored", ""),
        ("--adjacency", "zero_out"),
        len(ROWS),
        {**IN_PLACE, "no outcome": [*ROWS[1:], ",50,n,x"], "nothing": [*ROWS[1:], ",,,"]},
    ),
    "bounds": (
        SCHEMA % ("'false'", ", bounds: private", "ignored", ""),
        ("--adjacency", "add_remove"),
        60,
        {**{name: [*ROWS, row] for name, row in OF_ONE.items()}, "one less": ROWS[1:], "nobody": []},
    ),
}


class Now(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime(2026, 1, 1, tzinfo=tz)


@pytest.fixture
def fixed(monkeypatch):
    """All randomness and times fixed, from the start when called; mechanisms see rows of zeros, all there."""
    state = SimpleNamespace(random=np.random.RandomState(7))

    def again():
        state.random = np.random.RandomState(7)

    def placed(*given):
        (held,) = shown(*given)
        if not isinstance(held, Resident):
            return (held,)
        with jax.enable_x64(True):
            public = {name: jnp.zeros(column.shape, column.dtype) for name, column in held.columns.items()}
            return (Resident(public, jnp.ones_like(held.present)),)

    def drawn(self, values):
        return np.asarray(values, float).reshape(-1) + self.sd * state.random.normal(size=self.size)

    def no_posterior(*_):
        raise NotYetSupported("only what the path says, which is quicker")

    shown, sums, seeded = execute_plan.placed, question.row_sums, np.random.default_rng
    monkeypatch.setattr(question, "row_sums", lambda *given: np.ones_like(sums(*given)))
    monkeypatch.setattr(execute_plan, "placed", placed)
    monkeypatch.setattr(noise._Noise, "drawn", drawn)
    monkeypatch.setattr(last_run, "posterior_of", no_posterior)
    monkeypatch.setattr(secrets, "token_bytes", lambda size=32: state.random.bytes(size))
    monkeypatch.setattr(execute_plan, "run_name", lambda: state.random.bytes(8).hex())
    monkeypatch.setattr(ledger.uuid, "uuid4", lambda: SimpleNamespace(hex=state.random.bytes(8).hex()))
    monkeypatch.setattr(np.random, "default_rng", lambda *seed: seeded(*seed) if seed else seeded(7))
    monkeypatch.setattr(last_run, "datetime", Now)
    monkeypatch.setattr(ledger_file, "datetime", Now)
    return again


def call(*line):
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr(sys, "argv", ["private-mcmc", *line])
        main()
    return ended.value.code


def leaving(place, schema, rows, options, about, again, capfd):
    """Codes, words, warnings, files and the ledger's charges of a fit to these rows."""
    again()
    place.mkdir()
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(place)
        (place / "schema.yaml").write_text(schema, encoding="utf-8")
        (place / "people.csv").write_text("\n".join(["died,age,region,id", *rows]) + "\n", encoding="utf-8")
        unit = ("--unit", "id") if "at_most" in schema else ()
        budget = ("--dataset", "people", "--epsilon", "3", "--delta", "1e-6")
        codes = [call("ledger", "init", "books.db", *budget, *about, *unit)]
        charged = ("--ledger", "books.db", "--dataset", "people")
        codes += [call("fit", "people.csv", *QUESTION, *options, "--yes", "--out", "study", *charged)]
        codes += [call("ledger", "history", "books.db", "--json"), call("verify", "study", *charged[:2])]
    files = {path.name: path.read_bytes() for path in sorted((place / "study").glob("*"))}
    return codes, *capfd.readouterr(), files, (place / "books.db").stat().st_size


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_only_mechanisms_tell_who_is_in_a_table(tmp_path, fixed, capfd, recwarn, monkeypatch, case):
    schema, about, size, tables = CASES[case]
    (tmp_path / "schema.yaml").write_text(schema, encoding="utf-8")
    asked = ("--epsilon", "2", *about, "--n", str(size))
    # It is given no rows, and takes most of the time.
    monkeypatch.setattr(Plan, "predict", lambda *_: Prediction(0.5, 0.3, 0.4, 0.1))
    monkeypatch.setattr(Plan, "pace", lambda *_: 0.0)

    def seen(name, rows):
        recwarn.clear()
        found = leaving(tmp_path / name, schema, rows, asked, about, fixed, capfd)
        return *found, [str(one.message) for one in recwarn]

    seen("once", ROWS)
    expected = seen("base", ROWS)
    assert expected[0] == [0, 0, 0, 0] and len(expected[3]) > 4, expected[2]
    record = json.loads(expected[3]["study.json"])
    assert record["draws"] and record["ledger"]
    for name, rows in tables.items():
        assert seen(name, rows) == expected, name
    # The planted fault: a remark that looks at the columns.
    remarks = fitting.Planned.warnings

    def told(self, books):
        there = self.columns["age"].sum() > 0
        return (*remarks(self, books), f"Some are older than others: {there}.")

    monkeypatch.setattr(fitting.Planned, "warnings", told)
    assert seen("told", ROWS) != seen(
        "told of others", ["1,0,n,p1"] * (3 if case == "persons" else len(ROWS))
    )
