"""Runs that are killed and taken up again."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax

import private_mcmc as pmc
from private_mcmc.inference.checkpoint import Saver


class Killed(BaseException):
    pass


@contextlib.contextmanager
def killed_after(steps: int) -> Iterator[None]:
    """The process dies once so many steps are saved."""
    save = Saver.save

    def saved(saver: Saver, state: Any) -> None:
        save(saver, state)
        if state.done >= steps:
            raise Killed

    Saver.save = saved
    try:
        yield
    except Killed:
        pass
    finally:
        Saver.save = save


class Resumed:
    """One driver, compiled once, whose runs are killed and then taken up again."""

    def __init__(self, make: Callable[[Any], pmc.PrivateMCMC]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name) / "run"
        self._mcmc = make(pmc.Checkpoint(self._path, seconds=0.0))

    def run(self, data: Any, key: jax.Array, after: int) -> pmc.PrivateMCMC:
        """A run that was killed after so many steps; what it released was taken up again."""
        self._path.unlink(missing_ok=True)
        with killed_after(after):
            self._mcmc.run(rng_key=key, **data)
        self._mcmc.resume(**data)
        return self._mcmc
