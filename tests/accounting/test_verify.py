"""A statement's numbers follow from its constants; a changed number is found out."""

from __future__ import annotations

import copy
import json

import pytest

from private_mcmc import accounting as acc
from private_mcmc.schedule import Schedule
from tests.accounting.every_statement import statements

ALL = statements()


def changed(record, path, factor):
    other = copy.deepcopy(record)
    node = other
    for key in path[:-1]:
        node = node[key]
    value = node[path[-1]]
    node[path[-1]] = value * factor if isinstance(value, float) else max(1, int(value * factor))
    return other, node[path[-1]] != value


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("path", ["hidden"]), ("last", ["path", "path"]), ("last", ["sampled path"]), ("last", ["box path"])],
)
def test_a_bound_that_the_run_has_not_fails(name, bounds):
    record = json.loads(json.dumps(ALL[name].to_dict()))
    record["argument"]["constants"]["bounds"] = bounds
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
