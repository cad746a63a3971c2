"""Cutting a run into calls of one compiled program, by the schedule alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from private_mcmc.accounting.langevin.sensitivity import rows_summed
from private_mcmc.kernels.randomness.batches import drawn_size
from private_mcmc.schedule import Average, Schedule

_BUFFER_ELEMENTS = 2**22
_FEWEST = 64
_MOST = 1024
# A call that does about this many multiplications takes about a tenth of a second on a few cores.
_WORK = 2**28
# What a call draws ahead for its steps: a few megabytes.
_DRAWN_ELEMENTS = 2**19
# What a step costs besides its rows, in multiplications.
_STEP_WORK = 2**14


class Segment(NamedTuple):
    """One call: steps ``first + 1, …``, in pieces of ``gaps`` steps; whether the end of a piece is kept."""

    first: int
    gaps: npt.NDArray[np.int64]
    keep: npt.NDArray[np.bool_]

    @property
    def last(self) -> int:
        """Steps done when it ends."""
        return self.first + int(self.gaps.sum())


def stops(schedule: Schedule) -> npt.NDArray[np.int64]:
    """The steps whose states are kept, in order; for an average the last step, whose state is not."""
    if schedule.release == "path":
        return np.arange(1, schedule.num_steps + 1)
    if isinstance(schedule.release, tuple):
        return np.asarray(schedule.release, dtype=np.int64)
    return np.asarray([schedule.num_steps])


def buffer_size(schedule: Schedule) -> int:
    """States that one call gives back at most: memory is bounded whatever the number of steps."""
    return max(1, min(len(stops(schedule)), longest(schedule), _BUFFER_ELEMENTS // _state_size(schedule)))


def longest(schedule: Schedule) -> int:
    """Steps of one call: some ten calls a second, neither a few dozen nor thousands in all.

    There are more calls where that many steps would draw too many numbers at once.
    """
    work = rows_summed(schedule) * _state_size(schedule) + _STEP_WORK
    calls = min(_MOST, max(_FEWEST, schedule.num_steps * work // _WORK))
    drawn = schedule.num_chains * (schedule.dim + drawn_size(schedule))
    return max(1, min(-(-schedule.num_steps // calls), _DRAWN_ELEMENTS // drawn))


def segments(schedule: Schedule, done: int = 0) -> Iterator[Segment]:
    """The calls of a run, or of what is left of it after ``done`` steps."""
    wanted, most = stops(schedule), longest(schedule)
    edges = np.union1d(wanted, np.arange(most, wanted[-1], most))
    keep = np.isin(edges, wanted) & (not isinstance(schedule.release, Average))
    gaps = np.diff(edges, prepend=0)
    call = (edges - 1) // most
    begin = int(np.searchsorted(edges, done, side="right"))
    size = buffer_size(schedule)
    while begin < len(edges):
        end = min(begin + size, int(np.searchsorted(call, call[begin], side="right")))
        first = int(edges[begin] - gaps[begin])
        yield Segment(first, gaps[begin:end], keep[begin:end])
        begin = end


def _state_size(schedule: Schedule) -> int:
    return schedule.num_chains * schedule.dim
