"""The diffs of CONTRIBUTING.md apply to this tree, and what they add is as the page says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
DIFFS = re.findall(r"^```diff\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
ADDED = """
import private_mcmc as pmc
from private_mcmc.kernels import PrivateDecreasingULA
from tests.examples_of_models import linear
from tests.golden.cases import LINEAR_ROWS, TARGET, built
from tests.golden.test_golden import differences, stored
from tests.soundness.attacks import tightness
from tests.soundness.sweep.settings import settings
from tests.soundness.sweep.sweep import sweep

kernel = PrivateDecreasingULA(linear, step_size=1e-3, clip=1.0)
for release in ("path", "last"):
    asked = {"release": release, "num_steps": 8, "guarantee": "run"}
    decision = pmc.PrivateMCMC(kernel, rows=LINEAR_ROWS, target=TARGET, **asked).decide(100)
    assert decision.schedule.step_size[7] == 1e-3 / 2 and pmc.accounting.verify(decision.statement.to_dict())
new = list(differences(stored("releases"), built("releases")))
assert new == [f": 'total, {one}' is new" for one in ("replace_one", "add_remove", "zero_out")]
attacked = [one for _, one in sweep([one for one in settings() if one.release == "total"], num_runs=400)]
assert len(attacked) == 3 and all(one.sound and tightness(one) > 0.2 for one in attacked), attacked
"""


def apply(folder, *options):
    return subprocess.run(
        ["git", "apply", *options, "-"], cwd=folder, input="".join(DIFFS), text=True, capture_output=True
    )


def python(folder, *words):
    done = subprocess.run([sys.executable, *words], cwd=folder, text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_kernel_a_likelihood_and_a_release_are_diffs_of_this_tree():
    assert len(DIFFS) == 3 and apply(ROOT, "--check").stderr == ""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_what_the_diffs_add_is_planned_proved_and_verified(tmp_path):
    for folder in ("private_mcmc", "models", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert apply(tmp_path).stderr == ""
    python(tmp_path, "-c", ADDED)
    gompertz = ("tests/model/test_families.py", "-k", "gompertz", "-p", "no:cacheprovider")
    assert "3 passed" in python(tmp_path, "-m", "pytest", *gompertz)
