"""What benchmarks take from the package is there, also in those that no other test runs."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]


def taken():
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("private_mcmc"):
                yield from ((path.name, node.module, one.name) for one in node.names)


def is_there(module, name):
    held = importlib.import_module(module)
    return hasattr(held, name) or (hasattr(held, "__path__") and find_spec(f"{module}.{name}") is not None)


def test_every_name_that_a_benchmark_takes_is_there():
    names = list(taken())
    assert len(names) > 200
    assert [one for one in names if not is_there(*one[1:])] == []
