"""Results of a long experiment on disk, a chunk of models at a time, so that it can be taken up again."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ChunkStore:
    """``experiment.json`` and ``chunk-0000.npz``, …, each written whole or not at all.

    Raises:
        DeclarationError: if the folder holds another experiment.
    """

    folder: Path
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "experiment.json"
        wanted = json.loads(json.dumps(dict(self.settings)))
        if not path.exists():
            _whole(path, json.dumps(wanted, indent=2).encode())
        elif json.loads(path.read_text()) != wanted:
            raise DeclarationError(
                f"{self.folder}: holds an experiment with other settings ({path.name}); give another folder."
            )

    def load(self, index: int) -> Arrays | None:
        """A finished chunk, or ``None``."""
        path = self._path(index)
        if not path.exists():
            return None
        with np.load(path) as found:
            return {name: found[name] for name in found.files}

    def save(self, index: int, arrays: Arrays) -> None:
        """Keep a finished chunk."""
        unfinished = self._path(index).with_suffix(".unfinished.npz")
        np.savez_compressed(unfinished, allow_pickle=False, **arrays)
        os.replace(unfinished, self._path(index))

    def _path(self, index: int) -> Path:
        return self.folder / f"chunk-{index:04d}.npz"


def _whole(path: Path, content: bytes) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)
