"""TFRecord shards: a data set cut into files, each record with a number on its back.

`write` makes the files (in a temporary folder: shards are made, not kept), `read` is the dataset over them,
`sizes` counts their records without TensorFlow, which a worker must not use before its strategy is made.
`received` and `times_received` say who got which numbers.

Format of the files: https://www.tensorflow.org/tutorials/load_data/tfrecord
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from course_utils.errors import DataError

_HEADER = struct.Struct(
    "<QI"
)  # the length of a record and the checksum of that; a checksum follows the record
_CHECKSUM = 4


def write(
    folder: str | os.PathLike, images: np.ndarray, labels: np.ndarray, sizes: Sequence[int]
) -> list[str]:
    """The paths of new files `part-00000-of-00004.tfrecord`, …, `sizes[k]` records in file k, in order.

    `images`: uint8 of shape (n, height, width, channels). Record i holds image i, its label and its number i
    as "id". The folder is made if it is not there. Raises DataError unless `sizes` add up to n, and for
    images of another type or shape.
    """
    _check_images(images)
    _check_sizes(sizes, len(images), len(labels))
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = [str(Path(folder, f"part-{k:05}-of-{len(sizes):05}.tfrecord")) for k in range(len(sizes))]
    for path, (start, end) in zip(paths, pairwise(accumulate(sizes, initial=0)), strict=True):
        _write_file(path, images, labels, range(start, end))
    return paths


def _check_images(images):
    images = np.asarray(images)
    if images.dtype != np.uint8 or images.ndim != 4:
        raise DataError(
            f"The images are of type {images.dtype} and shape {images.shape}.",
            expected="uint8 of shape (n, height, width, channels); fractions would all become 0.",
            cure="Write pixels from 0 to 255, and add a last dimension of 1 to grey pictures.",
        )


def read(files: Sequence[str]):
    """A dataset over the records of `files`, in order: dicts of "id" and "label" (int64) and "image" (uint8).

    Its source are the files, so that TensorFlow can shard by file. Raises DataError for one that is missing.
    """
    import tensorflow as tf

    _check_there(files)
    return tf.data.TFRecordDataset(list(files)).map(parse)


def parse(record):
    """One record as a dict: "id" and "label", int64 scalars, and "image", uint8 of its own shape."""
    import tensorflow as tf

    fields = {name: tf.io.FixedLenFeature([], tf.int64) for name in ("id", "label")}
    fields |= {"image": tf.io.FixedLenFeature([], tf.string), "shape": tf.io.FixedLenFeature([3], tf.int64)}
    found = tf.io.parse_single_example(record, fields)
    image = tf.reshape(tf.io.decode_raw(found["image"], tf.uint8), found["shape"])
    return {"id": found["id"], "label": found["label"], "image": image}


def numbers(files: Sequence[str], noted: list | None = None):
    """A dataset of the record numbers in `files`; each that is read is appended to the list `noted`."""
    import tensorflow as tf

    def note(number):
        noted.append(int(number))
        return number

    dataset = read(files).map(lambda record: record["id"])
    if noted is None:
        return dataset
    return dataset.map(lambda number: tf.ensure_shape(tf.numpy_function(note, [number], tf.int64), []))


def received(strategy, distributed) -> list[list[int]]:
    """What this worker gets of a distributed dataset of record numbers: a list for each step.

    Several replicas of one worker are taken together, in their order.
    """
    steps = []
    for batch in distributed:
        shares = strategy.experimental_local_results(batch)
        steps.append([number for share in shares for number in share.numpy().tolist()])
    return steps


def times_received(workers: Sequence[Sequence[Sequence[int]]], records: int) -> np.ndarray:
    """How often each of the records 0, 1, … came, over all steps of all workers: shape (records,)."""
    came = [number for steps in workers for ids in steps for number in ids]
    return np.bincount(np.asarray(came, int), minlength=records)


def sizes(files: Sequence[str]) -> list[int]:
    """How many records each file holds, told from their headers without reading the records.

    Raises DataError for a file that is missing or ends inside a record.
    """
    _check_there(files)
    return [sum(1 for _ in _lengths(path)) for path in files]


def _check_sizes(sizes, images, labels):
    if images != labels or sum(sizes) != images or not sizes or min(sizes) < 0:
        raise DataError(
            f"{images} images and {labels} labels cannot be cut into files of {list(sizes)} records.",
            expected="as many labels as images, and sizes from 0 that add up to that number.",
        )


def _check_there(files):
    missing = [path for path in files if not os.path.isfile(path)]
    if missing or not files:
        raise DataError(
            f"The shard {missing[0]} is not there." if missing else "No shards are given: the list is empty.",
            cause="the temporary folder that it was written to is gone." if missing else "",
            cure="Write the shards anew with shards.write(…).",
        )


def _write_file(path, images, labels, numbers):
    import tensorflow as tf

    with tf.io.TFRecordWriter(path) as file:
        for i in numbers:
            file.write(_example(i, images[i], labels[i]).SerializeToString())


def _example(number, image, label):
    import tensorflow as tf

    def integers(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    content = tf.train.BytesList(value=[np.ascontiguousarray(image, np.uint8).tobytes()])
    fields = {
        "id": integers(number),
        "label": integers(int(label)),
        "shape": integers(*image.shape),
        "image": tf.train.Feature(bytes_list=content),
    }
    return tf.train.Example(features=tf.train.Features(feature=fields))


def _lengths(path) -> Iterator[int]:
    """The length of each record of a file, in bytes."""
    at, end = 0, os.path.getsize(path)
    with open(path, "rb") as file:
        while at < end:
            header = file.read(_HEADER.size)
            length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else end
            at += _HEADER.size + length + _CHECKSUM
            if at > end:
                raise DataError(
                    f"The shard {path} ends inside a record, after {end:,} bytes.",
                    cause="it was not written to the end, or is still being written.",
                    cure="Write the shards anew with shards.write(…).",
                )
            file.seek(at)
            yield length
