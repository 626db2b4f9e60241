"""Fashion-MNIST: from the files in `data/`, or through TFDS or Keras by one setting.

The files are those that were published (see `data/fashion_mnist/README.md`), and their SHA-256 sums are
checked before anything is read. Nothing here needs the network: Keras and TFDS find the same files in place
of a download.

    COURSE_DATA_SOURCE   "files" (default), "tfds" or "keras"
    COURSE_DATA_DIR      the folder that holds `fashion_mnist/`, when it is not the course's own `data/`

Source: Xiao, Rasul, Vollgraf, Fashion-MNIST, arXiv:1708.07747.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import hashlib
import io
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from course_utils.errors import DataError

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SOURCES = ("files", "tfds", "keras")

# File -> (bytes, SHA-256), as published; the same sums stand in data/fashion_mnist/SHA256SUMS and in TFDS.
PUBLISHED = {
    "train-images-idx3-ubyte.gz": (
        26_421_880,
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    ),
    "train-labels-idx1-ubyte.gz": (
        29_515,
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    ),
    "t10k-images-idx3-ubyte.gz": (
        4_422_102,
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    ),
    "t10k-labels-idx1-ubyte.gz": (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
}


@dataclass(frozen=True)
class FashionMnist:
    """The whole data set as NumPy arrays, read-only: they are shared by everything in the process.

    Images are uint8, 0 to 255, of shape (60000, 28, 28, 1) and (10000, 28, 28, 1); labels are int64, 0 to 9.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    def first(self, train: int | None = None, test: int | None = None) -> FashionMnist:
        """The same with only the first `train` and `test` examples; None keeps all."""
        return replace(
            self,
            train_images=self.train_images[:train],
            train_labels=self.train_labels[:train],
            test_images=self.test_images[:test],
            test_labels=self.test_labels[:test],
        )


def fashion_mnist(source: str | None = None, folder: str | os.PathLike | None = None) -> FashionMnist:
    """All of Fashion-MNIST, the same arrays on every call in this process.

    `source` is "files", "tfds" or "keras"; None reads COURSE_DATA_SOURCE, and that unset means "files". All
    three give the same examples; TFDS gives them in an order of its own. `folder` holds the four published
    files; None looks in COURSE_DATA_DIR, then in the course's own `data/`.

    Raises DataError for an unknown source and for a missing or damaged file.
    """
    source = source or os.environ.get("COURSE_DATA_SOURCE") or "files"
    if source not in SOURCES:
        raise DataError(
            f"There is no data source {source!r}.",
            expected=" or ".join(map(repr, SOURCES)) + ".",
            cure="Set COURSE_DATA_SOURCE to one of them, or leave it unset.",
        )
    return _load(source, _folder(folder))


def verify(folder: str | os.PathLike | None = None) -> None:
    """None when the four files are the published ones; raises DataError that names the first that is not."""
    for name in PUBLISHED:
        _verify_file(_folder(folder) / name)


def _folder(folder) -> Path:
    if folder is not None:
        return Path(folder).expanduser().resolve()
    if root := os.environ.get("COURSE_DATA_DIR"):
        return Path(root).expanduser().resolve() / "fashion_mnist"
    # An installed copy of the package has no `data/` beside it; a notebook runs inside the course's folder.
    beside_package = Path(__file__).resolve().parents[1]
    candidates = [
        place / "data" / "fashion_mnist" for place in (beside_package, Path.cwd(), *Path.cwd().parents)
    ]
    return next((place for place in candidates if place.is_dir()), candidates[0])


@functools.lru_cache(maxsize=4)
def _load(source, folder) -> FashionMnist:
    read = {"files": _from_files, "tfds": _from_tfds, "keras": _from_keras}[source]
    (train_images, train_labels), (test_images, test_labels) = read(folder)
    arrays = (
        train_images.reshape(-1, 28, 28, 1),
        train_labels.astype(np.int64),
        test_images.reshape(-1, 28, 28, 1),
        test_labels.astype(np.int64),
    )
    for array in arrays:
        array.flags.writeable = False
    return FashionMnist(*arrays)


def _from_files(folder):
    verify(folder)
    return tuple(
        (_idx(folder / f"{part}-images-idx3-ubyte.gz"), _idx(folder / f"{part}-labels-idx1-ubyte.gz"))
        for part in ("train", "t10k")
    )


def _idx(path) -> np.ndarray:
    """The array in an IDX file: two zero bytes, type, number of axes, the axes (big-endian int32), data."""
    with gzip.open(path) as file:
        content = file.read()
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _from_keras(folder):
    import keras

    # Keras has no checksums for this data set, and asks the network for what its cache lacks. get_file puts
    # the published files there first, and again where a cached one is damaged.
    for name in _present(folder):
        with contextlib.redirect_stdout(io.StringIO()):
            keras.utils.get_file(
                name,
                origin=(folder / name).as_uri(),
                cache_subdir="datasets/fashion-mnist",
                file_hash=PUBLISHED[name][1],
            )
    return keras.datasets.fashion_mnist.load_data()


def _from_tfds(folder):
    import tensorflow_datasets as tfds

    # With the files as "manual downloads", TFDS prepares its own copy (15 s, once) without the network.
    here = folder if len(_present(folder)) == len(PUBLISHED) else None
    parts = tfds.load(
        "fashion_mnist",
        split=["train", "test"],
        batch_size=-1,
        as_supervised=True,
        shuffle_files=False,
        download_and_prepare_kwargs={"download_config": tfds.download.DownloadConfig(manual_dir=here)},
    )
    return tuple((images.numpy(), labels.numpy()) for images, labels in parts)


def _present(folder) -> list[str]:
    """The names of the published files that are in `folder`; raises DataError when one of them is damaged."""
    names = [name for name in PUBLISHED if (folder / name).exists()]
    for name in names:
        _verify_file(folder / name)
    return names


def _verify_file(path):
    size, checksum = PUBLISHED[path.name]
    problem, cause = _problem(path, size, checksum)
    if problem:
        raise DataError(
            f"{path} {problem}.",
            expected=f"{size:,} bytes with SHA-256 {checksum}.",
            cause=cause,
            cure=(
                "Put the published file back: `git checkout -- data/fashion_mnist` in the course's folder. "
                "Data elsewhere? Set COURSE_DATA_DIR to the folder that holds fashion_mnist/, "
                "or COURSE_DATA_SOURCE to tfds or keras."
            ),
        )


def _problem(path, size, checksum):
    """What is wrong with a file and the likely cause, or (None, "")."""
    if not path.is_file():
        return "is missing", "the course's folder was copied in part, or the data lie elsewhere."
    seen_size = path.stat().st_size
    if seen_size < size:
        return f"is cut short: {seen_size:,} bytes", "a copy or a download that was interrupted."
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != checksum:
        return f"is damaged: {seen_size:,} bytes with SHA-256 {digest}", "it was changed or packed again."
    return None, ""
