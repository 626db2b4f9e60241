"""TFRecord shards: what is read is what was written, counts without TensorFlow, and clear errors."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from course_utils import devices, shards
from course_utils.errors import DataError

devices.simulate(4)  # before any test starts TensorFlow: pytest imports all modules first
SIZES = [3, 0, 4]
IMAGES = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 2), np.uint8)
LABELS = np.array([7, 0, 3, 3, 9, 1, 2], np.int64)


@pytest.fixture
def files(tmp_path):
    return shards.write(tmp_path / "new folder", IMAGES, LABELS, SIZES)


def test_every_record_comes_back_in_order_with_its_number(files):
    records = list(shards.read(files).as_numpy_iterator())
    assert [int(record["id"]) for record in records] == list(range(7))
    np.testing.assert_array_equal([record["label"] for record in records], LABELS)
    np.testing.assert_array_equal([record["image"] for record in records], IMAGES)


def test_each_file_holds_its_share(files):
    assert [Path(path).name for path in files] == [f"part-0000{k}-of-00003.tfrecord" for k in range(3)]
    ids = [[int(number) for number in shards.numbers([path])] for path in files]
    assert ids == [[0, 1, 2], [], [3, 4, 5, 6]]


def test_counts_agree_with_what_tensorflow_reads(files):
    assert shards.sizes(files) == SIZES == [len(list(shards.read([path]))) for path in files]


def test_counting_leaves_tensorflow_alone(files):
    program = "import sys; from course_utils import shards; print(shards.sizes(sys.argv[1:]))"
    program += "; print('tensorflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, *files], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n")[:2] == [str(SIZES), "False"]


@pytest.mark.parametrize("cut", [1, 30, 100])
def test_a_file_that_ends_inside_a_record_is_refused(files, cut):
    Path(files[2]).write_bytes(Path(files[2]).read_bytes()[:-cut])
    with pytest.raises(DataError, match=r"part-00002-of-00003\.tfrecord ends inside a record"):
        shards.sizes(files)


def test_a_file_with_a_piece_of_a_header_is_refused(files):
    Path(files[1]).write_bytes(b"\0" * 5)
    with pytest.raises(DataError, match="ends inside a record, after 5 bytes"):
        shards.sizes(files)


@pytest.mark.parametrize("use", [shards.read, shards.sizes, shards.numbers])
def test_missing_files_are_named(files, use):
    Path(files[1]).unlink()
    with pytest.raises(DataError, match=r"part-00001-of-00003\.tfrecord is not there"):
        use(files)
    with pytest.raises(DataError, match="No shards are given"):
        use([])


@pytest.mark.parametrize("sizes", [[3, 3], [8], [], [-1, 8]])
def test_sizes_that_do_not_add_up_are_refused_before_anything_is_written(tmp_path, sizes):
    with pytest.raises(DataError, match="7 images and 7 labels cannot be cut"):
        shards.write(tmp_path / "shards", IMAGES, LABELS, sizes)
    assert not (tmp_path / "shards").exists()


def test_what_is_read_is_noted_also_when_it_is_thrown_away(files):
    noted = []
    kept = list(shards.numbers(files, noted).filter(lambda number: number > 4).as_numpy_iterator())
    assert (kept, noted) == ([5, 6], list(range(7)))


def test_received_puts_the_replicas_of_a_worker_together(files):
    strategy = devices.mirrored(2)
    distributed = strategy.experimental_distribute_dataset(shards.numbers(files).batch(3))
    assert shards.received(strategy, distributed) == [[0, 1, 2], [3, 4, 5], [6]]


def test_times_received_counts_over_steps_and_workers():
    workers = [[[0, 1], [1]], [[3], []]]
    assert shards.times_received(workers, 5).tolist() == [1, 2, 0, 1, 0]
    assert shards.times_received([[], []], 2).tolist() == [0, 0]


@pytest.mark.parametrize("images", [IMAGES / 255, IMAGES[..., 0]])
def test_images_of_another_type_or_shape_are_refused_before_anything_is_written(tmp_path, images):
    with pytest.raises(DataError, match="The images are of type"):
        shards.write(tmp_path / "new", images, LABELS, SIZES)
    assert not (tmp_path / "new").exists()
