"""Every planted fault is caught through the driver alone; a library without faults is not spoken against.

Of a library without faults one attempt of one check is wrong with probability at most 1e-6. The default tier
tries each fault once, with the check that is cheapest for it; the long tier tries each check that is listed
for a fault 4 times, and asks for all but one; `make faults` measures powers, with 20.
Every planted fault, here and elsewhere, is caught by a test of the default tier, or named.
"""

import pytest

from tests.auditing import mutants, release_mutants, test_mutants, test_release_mutants
from tests.soundness import test_planted_faults
from tests.soundness.faults import CAUGHT_BY, caught
from tests.soundness.front_door import CHECKS
from tests.soundness.planted import FAULTS, UNBROKEN

BY_NAME = {fault.name: fault for fault in FAULTS}
CHECK = {check.name: check for check in CHECKS}

FIRST = {fault: checks[0] for fault, checks in CAUGHT_BY.items()}
EVERY = [(fault, check) for fault, checks in CAUGHT_BY.items() for check in checks]


def test_every_fault_has_a_check():
    assert set(CAUGHT_BY) == set(BY_NAME)


# What the order of identifiers gives away, audited in many runs.
LONG = {"person: cap by global order"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else pytest.mark.slow) for name in FIRST],
)
def test_the_fault_is_caught(name):
    assert caught(BY_NAME[name], CHECK[FIRST[name]], range(1)) == 1


@pytest.mark.slow
def test_a_library_without_faults_passes():
    assert caught(UNBROKEN, CHECK["replay: resumed"], range(1)) == 0


@pytest.mark.long
@pytest.mark.parametrize(("name", "check"), EVERY)
def test_the_fault_is_caught_in_three_of_four_attempts(name, check):
    assert caught(BY_NAME[name], CHECK[check], range(100, 104)) >= 0.75


@pytest.mark.long
@pytest.mark.parametrize("name", CHECK)
def test_a_library_without_faults_passes_four_times(name):
    """One of all these attempts is wrong with probability at most 1e-4."""
    assert caught(UNBROKEN, CHECK[name], range(100, 104)) == 0


CATCHES = {
    test_the_fault_is_caught: {fault.name for fault in FAULTS},
    test_mutants.test_the_mutant_is_caught: set(test_mutants.SCENARIOS),
    test_release_mutants.test_the_mutant_is_caught: set(release_mutants.SCENARIOS),
    test_planted_faults.test_a_model_that_is_read_as_another_is_found: set(test_planted_faults.MISREAD),
}
# Those that the long tier catches (some by `make faults` too), each with its reason where it is named.
LATER = test_release_mutants.LONG | test_mutants.LONG | LONG


@pytest.mark.parametrize("test", CATCHES, ids=lambda test: test.__module__)
def test_every_planted_fault_is_caught_every_day(test):
    marks = {mark.name: mark for mark in test.pytestmark}
    assert marks.keys().isdisjoint({"long", "some", "skip", "skipif", "xfail"})
    daily = {name for name in marks["parametrize"].args[1] if isinstance(name, str)}
    for case in marks["parametrize"].args[1]:
        if not isinstance(case, str) and "long" not in {mark.name for mark in case.marks}:
            daily |= set(case.values)
    assert CATCHES[test] - daily <= LATER and daily <= CATCHES[test]


def test_every_mutant_of_a_kernel_is_planted_somewhere():
    planted = {change for scenario in test_mutants.SCENARIOS.values() for change in scenario.changes}
    for value in vars(mutants).values():
        changes = value if isinstance(value, tuple) else (value,)
        assert {change for change in changes if isinstance(change, mutants.Change)} <= planted
