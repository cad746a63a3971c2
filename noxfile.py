"""What a user installs, in empty environments: ``nox -s wheel``, ``nox -s tests-3.12``, ``nox -s oldest``.

Interpreters that are not on this machine are skipped.
"""

import glob
import os

import nox

nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["wheel"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
# Imports, a plan, a run, a dossier and its check: outside of the checkout, on what was installed.
SMOKE = os.path.join("tests", "house", "smoke.py")
FAST = ["-m", "not slow and not long", "-x", "-n", "2"]


def built(session: nox.Session, kind: str) -> str:
    """The wheel or the source distribution, made in this session."""
    out = session.create_tmp()
    session.install("build")
    session.run("python", "-m", "build", "--quiet", f"--{kind}", "--outdir", out)
    return max(glob.glob(os.path.join(out, "*.whl" if kind == "wheel" else "*.tar.gz")))


@nox.session(python=PYTHONS)
@nox.parametrize("kind", ["wheel", "sdist"])
def wheel(session: nox.Session, kind: str) -> None:
    """Build, install, and use it from another folder."""
    session.install(built(session, kind))
    smoke = os.path.abspath(SMOKE)
    session.chdir(session.create_tmp())
    session.run("python", smoke)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The fast tests."""
    session.install(".[test]")
    session.run("pytest", *(session.posargs or FAST))


@nox.session(python="3.11")
def oldest(session: nox.Session) -> None:
    """The fast tests on the oldest versions that pyproject.toml promises."""
    floors = nox.project.load_toml("pyproject.toml")["project"]["dependencies"]
    session.install(".[test]", *(one.replace(">=", "==") for one in floors), "pandas==2.2.3", "arviz==0.23.4")
    session.run("pip", "freeze")
    session.run("pytest", *(session.posargs or FAST))


@nox.session(python="3.12")
def mixed(session: nox.Session) -> None:
    """The fast tests with ArviZ 1 beside pandas 2."""
    session.install(".[test]", "pandas<3", "arviz>=1")
    session.run("pip", "freeze")
    session.run("pytest", *(session.posargs or FAST))


@nox.session(python="3.11")
def marginaleffects(session: nox.Session) -> None:
    """Comparisons beside those of marginaleffects, which needs a Polars below 2."""
    session.install(".[test]", "polars<2", "marginaleffects>=0.6")
    session.run("pytest", "tests/data/test_comparisons.py", "-k", "marginaleffects")


@nox.session(python="3.13")
def newest(session: nox.Session) -> None:
    """The fast tests on whatever is newest, unfinished releases of JAX and NumPyro included."""
    session.install(".[test]")
    session.install("--upgrade", "--pre", "jax", "numpyro", "numpy", "pandas", "arviz")
    session.run("pip", "freeze")
    session.run("pytest", *(session.posargs or FAST))
