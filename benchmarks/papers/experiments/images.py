"""Images of ten classes: MNIST-like idx files from a folder, or scikit-learn's digits without any file."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from private_mcmc.errors import DataSchemaError, DeclarationError

FloatImages = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]

CLASSES = 10
_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
_TEST_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class Images:
    """Grey images in ``[0, 1]``, shape ``(n, s, s)``, and their classes ``0 … 9``, shape ``(n,)``."""

    pixels: FloatImages
    labels: Labels

    @property
    def size(self) -> int:
        """``s``."""
        return int(self.pixels.shape[1])

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, first: int, count: int) -> Images:
        """``count`` images from number ``first`` on.

        Raises:
            DeclarationError: if there are not so many.
        """
        if not (first >= 0 and count >= 1 and first + count <= len(self)):
            raise DeclarationError(
                f"images {first} to {first + count} were asked for; there are {len(self)}."
            )
        return Images(self.pixels[first : first + count], self.labels[first : first + count])


def load_images(folder: str | Path | None = None, seed: int = 0) -> tuple[Images, Images]:
    """Training and test images in an order drawn from ``seed``.

    ``folder`` holds ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte`` and the two ``t10k-…`` files,
    plain or ``.gz``. Without one: the 1,797 digits of 8 × 8 pixels that come with scikit-learn.

    Raises:
        DataSchemaError: for files that are missing or not in idx format.
        DeclarationError: without a folder, if scikit-learn is not installed.
    """
    rng = np.random.default_rng(seed)
    if folder is None:
        everything = _shuffled(_digits(), rng)
        held_out = int(_TEST_SHARE * len(everything))
        return everything.part(held_out, len(everything) - held_out), everything.part(0, held_out)
    train, test = (_named(Path(folder), name) for name in ("train", "t10k"))
    return _shuffled(train, rng), _shuffled(test, rng)


def read_idx(path: Path) -> npt.NDArray[np.generic]:
    """The array in an idx file, plain or gzipped: a magic number, the lengths of the axes, the numbers.

    Raises:
        DataSchemaError: for a file that is cut short or of another format.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read()
    except (OSError, EOFError, zlib.error) as error:  # the last two: a compressed file that is cut short
        raise DataSchemaError(f"{path}: cannot be read ({type(error).__name__}).") from error
    kind, axes = (content[2], content[3]) if len(content) >= 4 else (0, 0)
    start = 4 + 4 * axes
    if content[:2] != b"\0\0" or kind not in _TYPES or len(content) < start:
        raise DataSchemaError(f"{path}: not an idx file.")
    shape = np.frombuffer(content, ">u4", axes, 4).astype(int)
    dtype = np.dtype(_TYPES[kind])
    if len(content) != start + int(shape.prod()) * dtype.itemsize:
        raise DataSchemaError(f"{path}: its length does not go with the {axes} axes it announces.")
    return np.frombuffer(content, dtype, offset=start).reshape(shape)


def _named(folder: Path, name: str) -> Images:
    pixels, labels = (
        read_idx(_existing(folder, f"{name}-{what}-ubyte")) for what in ("images-idx3", "labels-idx1")
    )
    if pixels.ndim != 3 or pixels.shape[1] != pixels.shape[2] or labels.shape != pixels.shape[:1]:
        raise DataSchemaError(f"{folder}: {name} images of shape {pixels.shape}, labels {labels.shape}.")
    return Images(pixels.astype(np.float32) / np.float32(255), labels.astype(np.int32))


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataSchemaError(f"{folder}: neither {name} nor {name}.gz is there.")


def _digits() -> Images:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DeclarationError(
            "the small images come with scikit-learn: install it, or give a folder of idx files."
        ) from error
    found = load_digits()
    return Images((found.images / 16.0).astype(np.float32), found.target.astype(np.int32))


def _shuffled(images: Images, rng: np.random.Generator) -> Images:
    order = rng.permutation(len(images))
    return Images(images.pixels[order], images.labels[order])
