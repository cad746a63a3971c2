"""What is installed is the whole package and nothing else."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

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
