"""A progress bar that knows step numbers and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# What drawing on a closed output raises; rich exits the process for a broken pipe.
_CLOSED = OSError, ValueError, SystemExit


@contextmanager
def progress(what: str, num_steps: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to be told how many steps are done; it draws a bar if ``shown``.

    A bar that cannot be drawn (standard output is closed) ends no run.
    """
    if not shown:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # A console of its own: one that a bar could not be drawn on stays taken for all later bars.
    bar = Progress(*columns, console=Console(), transient=False)
    task = bar.add_task(what, total=num_steps)

    drawn = False
    with suppress(*_CLOSED):
        bar.start()
        drawn = True
    try:
        yield lambda done: bar.update(task, completed=done)
    finally:
        with suppress(*_CLOSED):
            if drawn:
                bar.stop()
