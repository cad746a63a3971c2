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


def resumed(make: Callable[[Any], pmc.PrivateMCMC], data: Any, key: jax.Array, after: int) -> pmc.PrivateMCMC:
    """A driver whose run was killed after so many steps and then taken up again."""
    with tempfile.TemporaryDirectory() as folder:
        mcmc = make(pmc.Checkpoint(Path(folder) / "run", seconds=0.0))
        with killed_after(after):
            mcmc.run(rng_key=key, **data)
        mcmc.resume(**data)
        return mcmc
