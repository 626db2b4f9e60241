"""Fashion-MNIST: whole and as published, the same from each source, and clear errors for damage."""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from course_utils import datasets
from course_utils.errors import DataError

DATA = Path(__file__).parents[1] / "data" / "fashion_mnist"
IMAGES = "t10k-images-idx3-ubyte.gz"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    monkeypatch.delenv("COURSE_DATA_SOURCE", raising=False)
    monkeypatch.delenv("COURSE_DATA_DIR", raising=False)


@pytest.fixture
def copy(tmp_path):
    """The published files in a folder of their own, free to damage."""
    return Path(shutil.copytree(DATA, tmp_path / "fashion_mnist"))


def test_the_data_are_whole():
    data = datasets.fashion_mnist()
    assert (data.train_images.shape, data.train_images.dtype) == ((60000, 28, 28, 1), np.uint8)
    assert (data.test_images.shape, data.test_images.dtype) == ((10000, 28, 28, 1), np.uint8)
    assert (data.train_labels.shape, data.train_labels.dtype) == ((60000,), np.int64)
    assert (data.test_labels.shape, data.test_labels.dtype) == ((10000,), np.int64)
    assert np.bincount(data.train_labels).tolist() == [6000] * 10  # as the paper says: balanced
    assert np.bincount(data.test_labels).tolist() == [1000] * 10
    assert len(datasets.CLASS_NAMES) == 10
    assert datasets.CLASS_NAMES[data.train_labels[0]] == "Ankle boot"


def test_the_arrays_are_the_bytes_of_the_files():
    data = datasets.fashion_mnist()
    for array, name in ((data.train_images, "train-images-idx3"), (data.train_labels, "train-labels-idx1")):
        content = gzip.decompress((DATA / f"{name}-ubyte.gz").read_bytes())
        assert content.endswith(array.astype(np.uint8).tobytes())


def test_the_sums_in_the_code_are_those_beside_the_data():
    beside = dict(reversed(line.split()) for line in (DATA / "SHA256SUMS").read_text().splitlines())
    assert beside == {name: checksum for name, (_, checksum) in datasets.PUBLISHED.items()}


def test_the_files_are_those_that_zalando_published():
    for line in (DATA / "README.md").read_text().splitlines():
        if ".gz` |" in line:
            name, _, md5 = (part.strip(" `") for part in line.strip("|").split("|"))
            assert hashlib.md5((DATA / name).read_bytes()).hexdigest() == md5
            assert md5 in PUBLISHED_MD5


# From the README of github.com/zalandoresearch/fashion-mnist.
PUBLISHED_MD5 = {
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
}


def test_a_second_call_gives_the_same_arrays_and_nobody_can_change_them():
    data = datasets.fashion_mnist()
    assert datasets.fashion_mnist() is data
    for array in vars(data).values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_first_takes_the_first_examples():
    few = datasets.fashion_mnist().first(train=5, test=3)
    assert few.train_labels.tolist() == [9, 0, 0, 3, 0]
    assert (len(few.train_images), len(few.test_images), len(few.test_labels)) == (5, 3, 3)
    assert len(datasets.fashion_mnist().first(test=3).train_images) == 60000


def test_a_folder_can_be_given_or_set(copy, monkeypatch):
    assert np.array_equal(
        datasets.fashion_mnist(folder=copy).test_images, datasets.fashion_mnist().test_images
    )
    monkeypatch.setenv("COURSE_DATA_DIR", str(copy.parent))
    (copy / IMAGES).unlink()
    with pytest.raises(DataError):
        datasets.verify()


@pytest.mark.parametrize("name", datasets.PUBLISHED)
def test_a_missing_file_is_named_with_its_checksum_and_the_cure(copy, name):
    (copy / name).unlink()
    with pytest.raises(DataError) as caught:
        datasets.verify(copy)
    assert str(copy / name) in caught.value.seen and "is missing" in caught.value.seen
    assert datasets.PUBLISHED[name][1] in caught.value.expected
    assert "git checkout" in caught.value.cure and "COURSE_DATA_DIR" in caught.value.cure


def test_a_truncated_file_is_an_error(copy):
    os.truncate(copy / IMAGES, 1000)
    with pytest.raises(DataError, match="cut short: 1,000 bytes") as caught:
        datasets.fashion_mnist(folder=copy)
    assert "4,422,102 bytes" in caught.value.expected


def test_one_changed_byte_is_an_error(copy):
    content = bytearray((copy / IMAGES).read_bytes())
    content[2_000_000] ^= 1
    (copy / IMAGES).write_bytes(content)
    with pytest.raises(DataError, match="is damaged") as caught:
        datasets.fashion_mnist(folder=copy)
    assert hashlib.sha256(content).hexdigest() in caught.value.seen
    assert datasets.PUBLISHED[IMAGES][1] in caught.value.expected


def test_a_damaged_file_is_not_handed_to_keras_or_tfds(copy):
    os.truncate(copy / IMAGES, 1000)
    for source in ("keras", "tfds"):
        with pytest.raises(DataError, match="cut short"):
            datasets.fashion_mnist(source, folder=copy)


def test_an_unknown_source_is_an_error(monkeypatch):
    with pytest.raises(DataError, match="no data source 'kaggle'"):
        datasets.fashion_mnist("kaggle")
    monkeypatch.setenv("COURSE_DATA_SOURCE", "web")
    with pytest.raises(DataError, match="no data source 'web'") as caught:
        datasets.fashion_mnist()
    assert "'tfds'" in caught.value.expected


THROUGH_KERAS = """
import numpy as np
from course_utils import datasets
files = datasets.fashion_mnist("files")
keras = datasets.fashion_mnist()
assert keras is not files
for name in vars(files):
    a, b = getattr(files, name), getattr(keras, name)
    assert a.dtype == b.dtype and np.array_equal(a, b), name
"""

THROUGH_TFDS = """
import functools
import numpy as np
import tensorflow_datasets as tfds
from course_utils import datasets
# The real loader on the real files, but only so far: all 70,000 take TFDS 15 seconds.
some = functools.partial(tfds.download.DownloadConfig, max_examples_per_split=2000)
tfds.download.DownloadConfig = some
files = datasets.fashion_mnist("files").first(2000, 2000)
tfds = datasets.fashion_mnist()
assert tfds is not files

def as_a_set(images, labels):
    rows = np.concatenate([images.reshape(len(images), -1), labels[:, None].astype(np.uint8)], axis=1)
    return sorted(map(bytes, rows))

for part in ("train", "test"):
    a, b = ([getattr(data, f"{part}_{what}") for what in ("images", "labels")] for data in (files, tfds))
    assert [x.dtype for x in a] == [x.dtype for x in b] and a[0].shape == b[0].shape
    assert as_a_set(*a) == as_a_set(*b)
"""


def offline(code, **settings):
    """Run `code` in a new process whose every connection fails, with empty caches in `settings`."""
    no_network = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise AssertionError('the network was asked')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", no_network + code],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_keras_gives_the_same_arrays_without_the_network_even_from_a_damaged_cache(tmp_path):
    cached = tmp_path / "datasets" / "fashion-mnist" / IMAGES
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"half a download")
    offline(THROUGH_KERAS, COURSE_DATA_SOURCE="keras", KERAS_HOME=str(tmp_path))
    assert {path.name for path in cached.parent.iterdir()} == set(datasets.PUBLISHED)  # Keras read its own


def test_tfds_gives_the_same_examples_without_the_network(tmp_path):
    offline(THROUGH_TFDS, COURSE_DATA_SOURCE="tfds", TFDS_DATA_DIR=str(tmp_path))
    assert (tmp_path / "fashion_mnist").is_dir()  # it was TFDS that prepared them
