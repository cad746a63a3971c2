"""A statement's numbers follow from its constants; a changed number is found out."""

from __future__ import annotations

import copy
import json

import pytest

from private_mcmc import accounting as acc
from private_mcmc.schedule import Schedule
from tests.accounting.every_statement import statements

ALL = statements()


def leaves(node, path=()):
    if isinstance(node, dict):
        for key, value in node.items():
            yield from leaves(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from leaves(value, (*path, index))
    elif isinstance(node, (int, float)) and not isinstance(node, bool):
        yield path


def changed(record, path, factor):
    other = copy.deepcopy(record)
    node = other
    for key in path[:-1]:
        node = node[key]
    value = node[path[-1]]
    node[path[-1]] = value * factor if isinstance(value, float) else max(1, int(value * factor))
    return other, node[path[-1]] != value


@pytest.mark.some(5)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("factor", [0.5, 1 - 1e-6, 1 + 1e-6, 2.0])
def test_a_tampered_curve_fails(name, factor):
    record = json.loads(json.dumps(ALL[name].to_dict()))
    for path in leaves(record["curves"]):
        other, differs = changed(record, ("curves", *path), factor)
        assert not differs or not acc.verify(other)


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("path", ["hidden"]), ("last", ["path", "path"]), ("last", ["sampled path"]), ("last", ["box path"])],
)
def test_a_bound_that_the_run_has_not_fails(name, bounds):
    record = json.loads(json.dumps(ALL[name].to_dict()))
    record["argument"]["constants"]["bounds"] = bounds
    assert not acc.verify(record)


def test_constants_that_contradict_each_other_fail():
    record = json.loads(json.dumps(ALL["last"].to_dict()))
    for key, value in (("strong_convexity", 60.0), ("smoothness", 0.5), ("strong_convexity", "nan")):
        other = copy.deepcopy(record)
        other["argument"]["constants"][key] = value
        assert not acc.verify(other)


def test_a_tampered_part_fails_the_whole():
    record = json.loads(json.dumps(ALL["nested composition"].to_dict()))
    record["parts"][0]["parts"][1]["curves"][0]["level"] *= 0.9
    found = acc.verify(record)
    assert not found and "part 0" in found.reason


def test_a_part_of_another_adjacency_fails():
    record = json.loads(json.dumps(ALL["composition"].to_dict()))
    record["parts"][0] = json.loads(json.dumps(ALL["path, zero out"].to_dict()))
    assert not acc.verify(record)


@pytest.mark.parametrize("name", ["num_chains", "num_steps", "clip", "step_size"])
def test_a_run_of_nothing_proves_nothing(name):
    schedule = Schedule(
        adjacency="replace_one", num_rows=9, dim=2, step_size=0.01, num_steps=5, clip=1.0, release="last"
    )
    record = acc.langevin_statement(schedule).to_dict()
    record["argument"]["constants"][name] = 0
    record["curves"] = [{"kind": "gaussian", "m": 0.0}]
    assert not acc.Statement.from_dict(record).verify()
