"""Fits of one shape share their compiled programs, and a process of many fits stays bounded."""

import os

import jax
import numpy as np
import pytest

import private_mcmc as pmc
from benchmarks.programs import compiled
from private_mcmc import system
from private_mcmc.cli import keep_programs
from tests.data.fields import flag, levels, number, schema

SCHEMA = schema(number("age", 0, 120), flag("died"), levels("region", "n", "s", "e"))


def table(seed):
    rng = np.random.default_rng(seed)
    who = rng.choice(["n", "s", "e"], 500)
    return {"age": rng.uniform(20, 90, 500), "died": rng.random(500) < 0.3, "region": who}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
def test_a_fit_compiles_few_programs_and_another_of_its_shape_none_whatever_its_rows_are():
    jax.clear_caches()
    found = []
    for seed in range(3):
        with compiled() as programs:
            pmc.fit(table(seed), SCHEMA, "died ~ age + region", epsilon=3.0, progress_bar=False)
        found.append(programs.names)
    assert 30 < len(found[0]) <= 80, found[0]
    assert found[1:] == [[], []]


def test_programs_are_forgotten_where_there_are_many(monkeypatch, tmp_path):
    cleared, maps = [], tmp_path / "maps"
    monkeypatch.setattr(system, "_MAPS", maps)
    monkeypatch.setattr("jax.clear_caches", lambda: cleared.append(True))
    for lines, times in ((10, 0), (20_000, 1)):
        maps.write_text("\n" * lines)
        system.make_room()
        assert len(cleared) == times


def test_commands_keep_programs_in_a_folder_that_is_their_users_alone(tmp_path, monkeypatch):
    """They hold no rows: see above, a fit of other rows needs no other program."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "private-mcmc" / "programs"
    keep_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(place) and place.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    keep_programs()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"
    # What others may write there would be run.
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    place.chmod(0o777)
    keep_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
