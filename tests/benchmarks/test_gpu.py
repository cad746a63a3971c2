"""The script for a GPU runs here, at sizes that say nothing of speed, and a wrong sum ends it with 1."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


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
