"""Change one field of any statement of any rule: it is not verified, or it is still true."""

import contextlib
import copy
import json
import math
import subprocess
import sys
from typing import Any

import pytest

from private_mcmc import accounting as acc
from private_mcmc.accounting.langevin import COUPLING
from private_mcmc.accounting.statement import RELATION, RULES
from private_mcmc.errors import DeclarationError
from tests.accounting.every_statement import BOUNDS, average, schedule, statements
from tests.accounting.record_changes import changes, why_true

ALL = {name: json.loads(json.dumps(item.to_dict())) for name, item in statements().items()}
# One of every rule, of every bound of a run and of every scheme; the others, and all changes of these, are
# for the long tier.
SHORT = (
    "path", "path, box", "states", "states, varying", "last, add remove", "average, kept in a box",
    "poisson path, varying", "poisson last, replaced", "laplace", "gaussian", "posterior, concave, zero_out",
    "posterior, gradient, zero out", "Beta-Binomial", "Dirichlet-categorical", "Gamma-Poisson",
    "average, Poisson", "average, kept in a range", "composition", "stages", "a budget without stages yet",
    "path of persons", "average of persons", "composition of persons", "stages of persons",
)  # fmt: skip


def parts_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [record] + [inner for part in record["parts"] for inner in parts_of(part)]


def test_there_is_an_example_of_every_rule_every_bound_and_every_adjacency():
    found = [part for name in SHORT for part in parts_of(ALL[name])]
    assert {part["argument"]["rule"] for part in found} == set(RULES)
    said = " ".join(part["argument"]["theorem"] for part in found)
    assert all(bound in said for bound in BOUNDS)
    assert {part["adjacency"] for part in found} == set(RELATION)


def test_every_rule_is_known_to_a_process_that_verifies_and_does_nothing_else():
    code = "import private_mcmc as pmc; pmc.Statement; from private_mcmc.accounting.statement import RULES"
    found = subprocess.run([sys.executable, "-c", f"{code}; print(*RULES)"], capture_output=True, check=True)
    assert set(found.stdout.decode().split()) == {record["argument"]["rule"] for record in ALL.values()}


def accepted(name: str, every: int = 1) -> list[str]:
    """Changes of this record that are verified though nothing says why the statement is still true.

    One of ``every`` so many is tried, others for other records.
    """
    record = ALL[name]
    wrong, seen = [], 0
    for seen, change in enumerate(changes(record), 1):
        if (seen + len(name)) % every:
            continue
        with contextlib.suppress(DeclarationError):
            acc.Statement.from_dict(change.record)
        if acc.verify(change.record) and why_true(record, change) is None:
            wrong.append(str(change))
    assert seen > 150
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_changed_field_is_found_or_the_statement_is_still_true(name):
    assert accepted(name, every=3) == []


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ALL)
def test_each_changed_field_of_any_statement_is_found_or_the_statement_is_still_true(name):
    assert accepted(name) == []


@pytest.mark.parametrize("name", ALL)
def test_the_whole_record_under_another_adjacency_is_found(name):
    for adjacency in RELATION:
        other = copy.deepcopy(ALL[name])
        if other["adjacency"] == adjacency:
            continue
        for part in parts_of(other):
            part["adjacency"] = adjacency
            if "adjacency" in part["argument"]["constants"]:
                part["argument"]["constants"]["adjacency"] = adjacency
        assert not acc.verify(other)


@pytest.mark.parametrize("change", [{"parts": [ALL["laplace"]]}, {"curves": []}], ids=["parts", "curves"])
def test_a_mechanism_of_its_own_has_no_parts_and_claims_something(change):
    found = acc.verify(ALL["path"] | change)
    assert not found and ("parts" not in change or "parts" in found.reason)


@pytest.mark.parametrize("name", ["num_chains", "num_steps", "clip", "step_size"])
def test_a_run_of_nothing_proves_nothing(name):
    record = copy.deepcopy(ALL["last"])
    record["argument"]["constants"][name] = 0
    assert not acc.verify(record | {"curves": [{"kind": "gaussian", "m": 0.0}]})


@pytest.mark.parametrize("name", ALL)
def test_every_word_of_a_statement_follows_from_its_constants(name):
    """A theorem and sentences beside those needed were taken as they came: and were verified."""
    for part in range(len(parts_of(ALL[name]))):
        for more in (", and the rows are safe for ever", "nobody is in the data", COUPLING):
            record = copy.deepcopy(ALL[name])
            argument = parts_of(record)[part]["argument"]
            if more.startswith(","):
                argument["theorem"] += more
            else:
                argument["assumptions"] += [more]
            found = acc.verify(record)
            assert not found and "cannot be verified" in found.reason


def test_a_path_rests_on_no_constant_of_the_potential_and_its_record_has_none():
    for field, value in {"strong_convexity": 0.5, "smoothness": 2.0, "prior_smoothness": 3.0}.items():
        record = copy.deepcopy(ALL["path"])
        record["argument"]["constants"][field] = value
        assert not acc.verify(record)
    assert acc.langevin_statement(schedule(), acc.Curvature(strong_convexity=1.0, smoothness=2.0)) == (
        acc.langevin_statement(schedule())
    )


def test_one_run_is_not_composed_with_itself():
    path = acc.langevin_statement(schedule()).of("a run")
    other = acc.gaussian(adjacency="replace_one", sensitivity=1.0, scale=3.0).of("a run")
    record = acc.compose(path.of("first"), other.of("second")).to_dict()
    assert acc.verify(record)
    for part in record["parts"]:
        part["mechanism"] = "a run"
    found = acc.verify(record)
    assert not found and "twice" in found.reason


@pytest.mark.parametrize("name", ["path, zero out", "laplace"])
def test_records_that_do_not_say_which_adjacency_their_numbers_are_for_cannot_be_verified(name):
    record = copy.deepcopy(ALL[name])
    quoted = record["argument"]["assumptions"]
    record["argument"]["assumptions"] = [line for line in quoted if line not in RELATION.values()]
    assert len(record["argument"]["assumptions"]) == len(quoted) - 1
    found = acc.verify(record)
    assert not found and "cannot be verified" in found.reason


MALFORMED = (None, 3, "text", [], {}, {"adjacency": "replace_one"}, {"argument": None}, [[]])


@pytest.mark.parametrize("record", MALFORMED)
def test_what_is_no_record_is_our_own_error_and_not_verified(record):
    assert not acc.verify(record)
    with pytest.raises(DeclarationError, match="record of a statement"):
        acc.Statement.from_dict(record)


def test_records_nested_without_end_are_our_own_error_and_not_verified():
    record = copy.deepcopy(ALL["laplace"])
    for _ in range(3000):
        record = ALL["composition"] | {"parts": [record]}
    assert "too deeply" in acc.verify(record).reason
    with pytest.raises(DeclarationError, match="too deeply"):
        acc.Statement.from_dict(record)


def coupled(wrong: float) -> dict[str, Any]:
    """An average whose coupling distance, and units are ``wrong`` times the true ones."""
    record = copy.deepcopy(ALL["average, Laplace"])
    constants = record["argument"]["constants"]
    constants["distance"] *= wrong
    constants["values"] = [[slope, limit, u * wrong] for slope, limit, u in constants["values"]]
    return record


def test_an_average_with_too_small_a_coupling_distance_or_noise_is_found():
    assert acc.verify(coupled(1.0)) and acc.verify(coupled(1.5))
    found = acc.verify(coupled(0.999))
    assert not found and "not fit" in found.reason
    with pytest.raises(DeclarationError, match="not fit"):
        average(values=((1.0, math.inf, 1e-9),))
