"""What benchmarks take from the package is there; the script for a GPU runs, and sees a wrong sum."""

import ast
import importlib
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.long
def test_the_script_for_a_gpu_runs_and_a_wrong_sum_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import gpu

    given = ["--tiny", "--repeats", "1", "--out", str(tmp_path / "gpu.json")]
    assert gpu.main(given) == 0
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert set(found["differences"]) == {"sum, affine", "sum, network", "path"}
    assert found["numbers"]["2,000 × 5"]["share of the memory bandwidth"] > 0
    assert found["numbers"]["fit"]["largest error of a fit, sds"] < 6
    # Another device's sums, of which one term is a millionth too large.
    monkeypatch.setattr(gpu, "planned", lambda *_: {})
    monkeypatch.setattr(gpu, "fitted", lambda *_: {})
    exact = gpu.on_cpu
    monkeypatch.setattr(gpu, "on_cpu", lambda compute: exact(compute) + 1e-6 * gpu.CLIP * np.eye(1)[0])
    assert gpu.main(given) == 1
