"""What statements say is what the golden records say; any change of it is a deliberate commit.

``python -m tests.golden`` writes the records anew.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from private_mcmc.accounting.statement import RULES
from tests.accounting.every_statement import BOUNDS
from tests.golden.cases import FILES, FOLDER, READINGS, accountant, built, gridded, shown


def stored(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def differences(golden: Any, today: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    where = ".".join(path)
    if isinstance(golden, dict) and isinstance(today, dict):
        for name in [*golden, *(name for name in today if name not in golden)]:
            if name in golden and name in today:
                yield from differences(golden[name], today[name], (*path, name))
            else:
                yield f"{where}: {name!r} is {'gone' if name in golden else 'new'}"
    elif isinstance(golden, list) and isinstance(today, list) and len(golden) == len(today):
        for index, pair in enumerate(zip(golden, today, strict=True)):
            yield from differences(*pair, (*path, str(index)))
    elif isinstance(golden, list) and isinstance(today, list):
        lost, come = ([str(x)[:200] for x in a if x not in b] for a, b in ((golden, today), (today, golden)))
        yield f"{where}: {len(golden)} entries are now {len(today)}; gone are {lost}, new are {come}"
    elif isinstance(golden, float) and isinstance(today, float):
        near, apart = _near(path)
        if not math.isclose(golden, today, rel_tol=near, abs_tol=apart):
            yield f"{where}: {golden!r} is now {today!r}"
    elif type(golden) is not type(today) or golden != today:
        yield f"{where}: {golden!r} is now {today!r}"


def _near(path: tuple[str, ...]) -> tuple[float, float]:
    """Relative and absolute tolerance. Sums behind a loss distribution are of the size of 1 for any ``δ``."""
    if "shifts" in path:
        # A search among them ends where nothing more is gained.
        return 1e-6, 0.0
    return {"delta": (1e-9, 1e-13), "epsilon": (1e-9, 0.0)}.get("".join(path[1:2]), (1e-12, 0.0))


@pytest.mark.slow
def test_the_accountants_statements_are_those_of_the_golden_records_but_for_composed_losses():
    golden, today = stored("accountant"), accountant()
    left_out = {name: READINGS if gridded(statement) else frozenset() for name, statement in today.items()}
    assert 5 < sum(map(bool, left_out.values())) < len(today) / 4
    wanted = {
        name: {key: value for key, value in golden[name].items() if key not in left_out.get(name, ())}
        for name in golden
    }
    found = {name: shown(statement, left_out[name]) for name, statement in today.items()}
    assert not list(differences(wanted, json.loads(json.dumps(found))))


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("accountant", marks=pytest.mark.long), *list(FILES)[1:]])
def test_statements_say_what_the_golden_records_say(name):
    found = list(differences(stored(name), built(name)))
    assert not found, "\n".join([*found[:40], f"{len(found)} differences; see tests/golden/__main__.py"])


def test_a_changed_number_word_or_field_is_a_difference():
    golden = {"a": [1.0, "x"], "b": None, "shifts": [1.0]}
    assert not list(differences(golden, {"a": [1.0 + 1e-13, "x"], "b": None, "shifts": [1.0 + 1e-8]}))
    for other in (
        {"a": [1.0 + 1e-11, "x"], "b": None, "shifts": [1.0]},
        {"a": [1.0, "y"], "b": None, "shifts": [1.0]},
        {"a": [1, "x"], "b": None, "shifts": [1.0]},
        {"a": [1.0], "b": None, "shifts": [1.0]},
        {"a": [1.0, "x"], "shifts": [1.0]},
        {**golden, "c": 1},
    ):
        assert list(differences(golden, other))


def every(value: Any, name: str) -> Iterator[Any]:
    """The values of a field, anywhere inside."""
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        for item in value.values():
            yield from every(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from every(item, name)


def test_the_golden_records_hold_every_rule_bound_curve_and_adjacency():
    whole = {name: stored(name) for name in FILES}
    assert set(every(whole, "rule")) == set(RULES)
    assert set(every(whole, "kind")) == {"gaussian", "pure", "points", "sampled", "product"}
    said = " ".join(every(whole, "theorem"))
    assert all(bound in said for bound in BOUNDS)
    assert {"replace_one", "add_remove", "zero_out"} == set(every(whole, "adjacency"))
    assert all(every(whole, "verified"))
