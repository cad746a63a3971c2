"""Every planted fault is caught through the driver alone; a library without faults is not spoken against.

Of a library without faults one attempt of one check is wrong with probability at most 1e-6. The default tier
tries each fault once, with the check that is cheapest for it; the long tier tries each check that is listed
for a fault 4 times, and asks for all but one; `make faults` measures powers, with 20.
"""

import pytest

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
