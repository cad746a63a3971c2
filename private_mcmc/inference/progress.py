"""A progress bar that knows step numbers and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(what: str, num_steps: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to be told how many steps are done; it draws a bar if ``shown``."""
    if not shown:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, transient=False) as bar:
        task = bar.add_task(what, total=num_steps)
        yield lambda done: bar.update(task, completed=done)
