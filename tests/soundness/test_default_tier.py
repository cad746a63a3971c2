"""Every planted fault is caught by a test of the default tier, or named: no change of tiers loses a catch."""

import pytest

from tests.auditing import mutants, release_mutants, test_mutants, test_release_mutants
from tests.soundness import test_faults, test_planted_faults
from tests.soundness.planted import FAULTS

CATCHES = {
    test_faults.test_the_fault_is_caught: {fault.name for fault in FAULTS},
    test_mutants.test_the_mutant_is_caught: set(test_mutants.SCENARIOS),
    test_release_mutants.test_the_mutant_is_caught: set(release_mutants.SCENARIOS),
    test_planted_faults.test_a_model_that_is_read_as_another_is_found: set(test_planted_faults.MISREAD),
}
# Those that the long tier catches (some by `make faults` too), each with its reason where it is named.
LONG = test_release_mutants.LONG | test_mutants.LONG | test_faults.LONG


@pytest.mark.parametrize("test", CATCHES, ids=lambda test: test.__module__)
def test_every_planted_fault_is_caught_every_day(test):
    marks = {mark.name: mark for mark in test.pytestmark}
    assert marks.keys().isdisjoint({"long", "some", "skip", "skipif", "xfail"})
    daily = {name for name in marks["parametrize"].args[1] if isinstance(name, str)}
    for case in marks["parametrize"].args[1]:
        if not isinstance(case, str) and "long" not in {mark.name for mark in case.marks}:
            daily |= set(case.values)
    assert CATCHES[test] - daily <= LONG and daily <= CATCHES[test]


def test_every_mutant_of_a_kernel_is_planted_somewhere():
    planted = {change for scenario in test_mutants.SCENARIOS.values() for change in scenario.changes}
    for value in vars(mutants).values():
        changes = value if isinstance(value, tuple) else (value,)
        assert {change for change in changes if isinstance(change, mutants.Change)} <= planted
