"""Slices of the long tier are a partition of it; the shapes in kernels' types are checked while tests run."""

import importlib.util
from types import SimpleNamespace

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from private_mcmc.kernels.gradient import clipped_sum
from tests.conftest import mark_cases, part
from tests.shapes import CHECKED


class Item(SimpleNamespace):
    def get_closest_marker(self, name):
        return SimpleNamespace(args=(self.k,)) if name == "some" else None

    def add_marker(self, name):
        self.tier = name


def cases(file, n, k=None):
    return [Item(nodeid=f"{file}::test_it[{j}]", location=(file, 0, ""), k=k) for j in range(n)]


@pytest.mark.parametrize("turn", [0, 5, 491_023])
def test_every_test_is_in_one_of_the_parts_whatever_else_is_collected(turn):
    items = cases("a.py", 40) + cases("b.py", 40)
    parts = [part(items, turn + k, 7) for k in range(7)]
    assert sorted(item.nodeid for kept in parts for item in kept) == sorted(item.nodeid for item in items)
    one = part(items[:30], turn, 7)
    assert {item.nodeid for item in one} <= {item.nodeid for item in parts[0]}
    files = [item.location[0] for item in parts[0]]
    assert files in (sorted(files), sorted(files, reverse=True)), "the fixtures of a file are made once"


@pytest.mark.parametrize(("n", "k"), [(10, 3), (3, 3), (1, 1), (2, 5), (7, 1)])
def test_some_cases_are_slow_and_the_rest_long(n, k):
    items = cases("a.py", n, k)
    mark_cases(items)
    assert [item.tier for item in items].count("slow") == min(n, k)
    assert {item.tier for item in items} <= {"slow", "long"}


def test_the_modules_whose_shapes_are_checked_are_there_and_are_the_kernels():
    assert all(importlib.util.find_spec(name) is not None for name in CHECKED)
    parts = {name.removeprefix("private_mcmc.kernels.") for name in CHECKED}
    assert {"step", "chain", "gradient"} <= parts


def test_a_wrong_shape_in_a_kernel_is_refused():
    present = jnp.ones(3, bool)
    for gradients in (jnp.ones((3, 2, 2)), jnp.ones((4, 2))):
        with pytest.raises(TypeCheckError):
            clipped_sum(gradients, present, 1.0)
