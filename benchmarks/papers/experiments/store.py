"""Results of a long experiment on disk, a chunk of models at a time, so that it can be taken up again."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DeclarationError, OutputError
from private_mcmc.system import write_whole

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ChunkStore:
    """``experiment.json`` and ``chunk-0000.npz``, …, each written whole or not at all.

    Raises:
        DeclarationError: if the folder holds another experiment, or files that are damaged.
        OutputError: if the folder or a file in it cannot be written.
    """

    folder: Path
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{self.folder}: this folder cannot be made ({error.strerror}).") from error
        path = self.folder / "experiment.json"
        wanted = json.loads(json.dumps(dict(self.settings)))
        if not path.exists():
            write_whole(path, json.dumps(wanted, indent=2))
        elif _record(path) != wanted:
            raise DeclarationError(
                f"{self.folder}: holds an experiment with other settings ({path.name}); give another folder."
            )

    def load(self, index: int) -> Arrays | None:
        """A finished chunk, or ``None``."""
        path = self._path(index)
        if not path.exists():
            return None
        try:
            with np.load(path) as found:
                arrays = {name: found[name] for name in found.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            arrays = {}
        # NumPy gives what is no array in such a file as bytes.
        if not arrays or not all(isinstance(array, np.ndarray) for array in arrays.values()):
            raise DeclarationError(f"{path}: damaged; without it its networks are trained anew.")
        return arrays

    def save(self, index: int, arrays: Arrays) -> None:
        """Keep a finished chunk."""
        content = io.BytesIO()
        np.savez_compressed(content, allow_pickle=False, **arrays)
        write_whole(self._path(index), content.getvalue())

    def _path(self, index: int) -> Path:
        return self.folder / f"chunk-{index:04d}.npz"


def _record(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DeclarationError(f"{path}: not the settings of an experiment; give another folder.") from error
