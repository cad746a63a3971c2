"""What is installed is the whole package and nothing else."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_wheel_holds_every_folder_of_the_package_and_no_other():
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    code = f"from setuptools import find_packages; print(*find_packages(**{included!r}))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    installed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "private_mcmc").rglob("__init__.py")}
    folders.add(Path("private_mcmc/models"))
    assert set(installed) == {".".join(folder.parts) for folder in folders}


def test_the_lock_names_a_version_of_whatever_the_package_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = (ROOT / "requirements.lock").read_text().lower().replace("_", "-")
    locked = dict(line.split("==") for line in lock.split())
    for text in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        need = Requirement(text)
        assert need.specifier.contains(locked[need.name]), text
