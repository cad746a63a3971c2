"""Fits of one shape share their compiled programs, and a process of many fits stays bounded."""

import logging
import os

import numpy as np
import pytest

import private_mcmc as pmc
from private_mcmc.cli import keep_programs
from private_mcmc.planning import policy

SCHEMA = pmc.Schema.from_dict(
    {
        "fields": [
            {"name": "age", "type": "number", "constraints": {"minimum": "0", "maximum": "120"}},
            {"name": "died", "type": "boolean"},
        ]
    }
)


def table(seed):
    rng = np.random.default_rng(seed)
    return {"age": rng.uniform(20, 90, 500), "died": rng.random(500) < 0.3}


class Compiled(logging.Handler):
    """Counts what XLA compiles or reads from a folder of compiled programs."""

    def __init__(self):
        super().__init__()
        self.names = []

    def emit(self, record):
        said = record.getMessage()
        if said.startswith("Finished XLA compilation of"):
            self.names.append(said.split()[4])


@pytest.fixture
def compiled():
    handler, logger = Compiled(), logging.getLogger("jax._src.dispatch")
    level, goes_up = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = goes_up


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.slow
def test_another_fit_of_the_same_shape_compiles_nothing_whatever_its_rows_are(compiled):
    counts = []
    for seed in range(2):
        compiled.names.clear()
        pmc.fit(table(seed), SCHEMA, "died ~ age", epsilon=3.0, progress_bar=False)
        counts.append(len(compiled.names))
    # The number of steps of a path is released, and shapes of what is computed from it differ.
    assert counts[0] > 30
    assert counts[1] <= 10, counts


def test_programs_are_forgotten_where_there_are_many(monkeypatch, tmp_path):
    cleared, maps = [], tmp_path / "maps"
    monkeypatch.setattr(policy, "_MAPS", maps)
    monkeypatch.setattr("jax.clear_caches", lambda: cleared.append(True))
    for lines, times in ((10, 0), (20_000, 1)):
        maps.write_text("\n" * lines)
        policy.make_room()
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
