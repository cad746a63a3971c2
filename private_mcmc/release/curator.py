"""What only the curator may look at: as private as the rows, and made awkward to let slip.

Raw chains, diagnostics of unreleased states, how many rows were moved into their domain: none of it is
covered by a statement. It lives in objects that show no value, cannot be pickled, copied, converted to an
array, iterated or plotted, and give their value only to who asks for it by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NoReturn, TypeVar

import jax
import numpy as np
import numpy.typing as npt

from private_mcmc.domains import Rows
from private_mcmc.domains.columns import PRESENT, holds_person
from private_mcmc.errors import ReleaseError
from private_mcmc.release.noise import FloatArray

T = TypeVar("T")


class CuratorOnly(Generic[T]):
    """A value without a privacy statement. ``unsafe_value()`` is the only way to it."""

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: T) -> None:
        self._name = name
        self._value = value

    def unsafe_value(self) -> T:
        """The value itself. Whatever is derived from it is as private as the rows."""
        return self._value

    def __repr__(self) -> str:
        return f"<{self._name}: curator only, no privacy statement; .unsafe_value() shows it>"

    def __format__(self, _: str) -> str:
        return repr(self)

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise ReleaseError(
            f"{self._name} is for the curator only: it has no privacy statement and is not saved, copied, "
            "plotted or converted. Ask for .unsafe_value() if it stays with who may see the rows."
        )

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse
    __array__ = __jax_array__ = __float__ = __int__ = __index__ = __bool__ = _refuse
    __iter__ = __len__ = __getitem__ = __contains__ = _refuse
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __hash__ = object.__hash__


class Curator:
    """The curator's side of one run: ``mcmc.curator.states`` and the like, each a :class:`CuratorOnly`."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = {name: CuratorOnly(name, value) for name, value in values.items()}

    def __getattr__(self, name: str) -> CuratorOnly[Any]:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(
                f"the curator's side of this run holds {sorted(self._values)}, not {name!r}."
            )
        return self._values[name]

    def __dir__(self) -> list[str]:
        return sorted(self._values)

    def __repr__(self) -> str:
        return f"<curator's side: {', '.join(sorted(self._values)) or 'nothing'}; no privacy statement>"

    def _refuse(self, *_: object) -> NoReturn:
        raise ReleaseError("the curator's side of a run is never pickled, copied or saved with a release.")

    __reduce__ = __reduce_ex__ = __getstate__ = __copy__ = __deepcopy__ = _refuse


_FEWEST_DRAWS = 4


def curator_side(
    rows: Rows,
    columns: Mapping[str, npt.NDArray[np.generic]],
    states: FloatArray | None,
    averages: FloatArray | None,
    clipped_shares: FloatArray | None = None,
) -> Curator:
    """What the curator may look at after a run.

    ``moved_rows``: number of present rows that the domains changed. ``states``: unconstrained states before
    rounding, ``(chains, kept, p)``, and their ``effective_sample_size``; ``averages``: without noise, in
    units of their sensitivity; ``clipped_shares``: of the rows at every chain's last state. What the run did
    not keep is left out.
    """
    values: dict[str, object] = {"moved_rows": _moved_rows(rows, columns)}
    if averages is not None:
        values["averages"] = averages
    if clipped_shares is not None:
        values["clipped_shares"] = clipped_shares
    if states is not None:
        values["states"] = states
        if states.shape[1] >= _FEWEST_DRAWS:
            from numpyro.diagnostics import effective_sample_size

            with np.errstate(all="ignore"):
                values["effective_sample_size"] = np.asarray(effective_sample_size(states))
    return Curator(values)


def _moved_rows(rows: Rows, columns: Mapping[str, npt.NDArray[np.generic]]) -> int:
    with jax.enable_x64(True):
        projected = {name: np.asarray(column) for name, column in rows.project(columns).items()}
    moved = np.zeros(len(next(iter(columns.values()))), dtype=bool)
    for name in projected:
        same = projected[name] == np.asarray(columns[name])
        moved |= ~same.reshape(len(same), -1).all(axis=1)
    if PRESENT in columns:
        moved &= holds_person(columns[PRESENT])
    return int(moved.sum())
