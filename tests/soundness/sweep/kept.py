"""What a sweep has found so far, in a folder: one file for each setting, of one state of the code."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from private_mcmc.files import write_whole

if TYPE_CHECKING:
    from tests.soundness.sweep.settings import Setting
    from tests.soundness.sweep.sweep import Swept

_ROOT = Path(__file__).parents[3]
# What a sweep runs, and what draws its numbers.
_CODE = ("private_mcmc", "tests/soundness/sweep", "benchmarks/papers")
_LIBRARIES = ("jax", "jaxlib", "numpyro", "numpy", "scipy", "opendp", "dp_accounting")


@dataclass(frozen=True)
class Kept:
    """A folder, and a mark of all that decides what is found: results of another mark are not seen."""

    folder: Path
    mark: str

    @classmethod
    def of(cls, folder: Path, *numbers: float) -> Kept:
        """The results in ``folder`` of this code and of these numbers of the sweep."""
        whole = hashlib.sha256(json.dumps([numbers, [version(name) for name in _LIBRARIES]]).encode())
        for path in sorted(_sources()):
            whole.update(f"\n{path.relative_to(_ROOT)}\n".encode() + path.read_bytes())
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder, whole.hexdigest()[:16])

    def has(self, setting: Setting) -> bool:
        """Whether this setting was audited."""
        return self._place(setting).is_file()

    def load(self, setting: Setting) -> list[Swept]:
        """What was found of it; the folder is the caller's own."""
        found: list[Swept] = pickle.loads(self._place(setting).read_bytes())
        return found

    def save(self, setting: Setting, swept: list[Swept]) -> None:
        """Keep it, whole or not at all."""
        write_whole(self._place(setting), pickle.dumps(swept))

    def _place(self, setting: Setting) -> Path:
        name = hashlib.sha256(setting.name.encode()).hexdigest()[:16]
        return self.folder / f"{self.mark}-{name}.pickle"


def _sources() -> Iterator[Path]:
    for name in _CODE:
        yield from (_ROOT / name).rglob("*.py")
