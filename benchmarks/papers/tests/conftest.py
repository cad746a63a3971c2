"""Fixtures and tiers are those of the tests of the package."""

import pytest

from tests.conftest import digits, mark_cases, rng

__all__ = ["digits", "rng"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    mark_cases([item for item in items if item.nodeid.startswith("benchmarks/")])
