"""ImageNet (ILSVRC 2012) through TFDS: from JPEG files to batches that a network can be trained on.

    COURSE_IMAGENET   the TFDS data folder that holds `imagenet2012/`: the one setting for the real thing

Nobody may hand the pictures on, so you get them yourself: register at https://image-net.org, download
ILSVRC2012_img_train.tar (138 GiB) and ILSVRC2012_img_val.tar (6.3 GiB), and let TFDS prepare them, once:

    from course_utils import imagenet
    imagenet.prepare("/where/the/two/files/are", to="/where/imagenet/shall/live")

TFDS keeps the JPEG files as they are, so it needs as much disk again: about 290 GiB until the two archives
are deleted. `stand_in` takes the place of all this where there is no ImageNet: the same code, on made-up
pictures.

What a training pipeline does, in this order: read → keep in memory (if asked) → shuffle → decode a random
crop → flip → batch → prefetch. Shuffling *before* decoding keeps JPEG files in the buffer, not pixels. The
pixels stay bytes: the networks of `course_utils.models` normalise them.

Sources: https://www.tensorflow.org/datasets/catalog/imagenet2012; Szegedy et al., arXiv:1409.4842, section 6
(the random crop); https://www.tensorflow.org/datasets/performances (decoding last).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from course_utils.checks import whole
from course_utils.errors import DataError

NAME = "imagenet2012"
TRAIN, VALIDATION, CLASSES, SIZE = 1_281_167, 50_000, 1000, 224
ARCHIVES = {"ILSVRC2012_img_train.tar": "train", "ILSVRC2012_img_val.tar": "validation"}
SHUFFLE_BUFFER = 16_384  # JPEG files: 1.8 GB
PADDING = -1  # the label of what fills up the last batches of an evaluation: nothing of it counts

AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of the random crop: share of the picture, width by height
CENTRE = 224 / 256  # of the picture's shorter side: what an evaluation looks at

_stand_in: int | None = None  # how many made-up pictures there are instead


def folder() -> Path | None:
    """The folder that COURSE_IMAGENET names; None where it is not set."""
    named = os.environ.get("COURSE_IMAGENET")
    return Path(named).expanduser().resolve() if named else None


def verify(where: str | os.PathLike | None = None) -> Path:
    """The prepared data set's own folder, when all its files are there.

    `where` is the TFDS data folder; None means COURSE_IMAGENET. Raises DataError that says what is missing.
    """
    root = Path(where).expanduser().resolve() if where else folder()
    if root is None:
        raise DataError(
            "COURSE_IMAGENET is not set, so there is no ImageNet to read.",
            cure="Set it to the TFDS data folder that holds imagenet2012/. How to get one: "
            "the first lines of course_utils/imagenet.py.",
        )
    versions = sorted((root / NAME).glob("5.*/dataset_info.json"))
    if not versions:
        raise _nothing_there(root)
    prepared = versions[-1].parent
    for split in ("train", "validation"):
        _verify_split(prepared, split)
    return prepared


def prepare(archives: str | os.PathLike, to: str | os.PathLike | None = None) -> Path:
    """The data set's own folder, after TFDS has prepared it from the two archives: once, and it takes hours.

    `archives` is the folder that holds them; `to` the TFDS data folder, None means COURSE_IMAGENET. Raises
    DataError when an archive is missing, or when the disk is too small.
    """
    import tensorflow_datasets as tfds

    archives = Path(archives).expanduser().resolve()
    target = Path(to).expanduser().resolve() if to else folder()
    if target is None:
        raise DataError("No folder to put ImageNet into.", cure="Give `to`, or set COURSE_IMAGENET.")
    _check_archives(archives, target)
    builder = tfds.builder(NAME, data_dir=target)
    builder.download_and_prepare(download_config=tfds.download.DownloadConfig(manual_dir=archives))
    return verify(target)


def train_data(
    batch_size: int,
    *,
    size: int = SIZE,
    seed: int = 0,
    context: tf.distribute.InputContext | None = None,
    keep_in_memory: bool = False,
    shuffle_buffer: int = SHUFFLE_BUFFER,
) -> tf.data.Dataset:
    """An endless dataset of (images, labels): uint8 (batch, size, size, 3) and int64 (batch,).

    `batch_size` is what one pipeline delivers at a time. With `context`, that of
    `strategy.distribute_datasets_from_function`, each worker reads its own files: give the per-replica size,
    `context.get_per_replica_batch_size(global_batch)`. Each pass holds every picture once, cropped and
    flipped anew; the same `seed` gives the same crops. `keep_in_memory` keeps the JPEG files (138 GiB in all,
    divided by the workers), never what is made of them: a cached crop would be the same in every epoch.
    Raises DataError where a size is none, or where there is no ImageNet.
    """
    _check_sizes(batch_size, size)
    shuffle_buffer = whole("shuffle_buffer", shuffle_buffer, error=DataError)
    data, _ = _encoded("train", context, shuffle_seed=seed)
    if keep_in_memory:
        data = data.cache()
    data = data.shuffle(shuffle_buffer, seed=seed).repeat()
    own = seed + 1000 * (context.input_pipeline_id if context else 0)

    def augmented(number, example):
        jpeg, label = example
        seeds = tf.stack([tf.constant(own, tf.int64), number])
        return random_flip(random_crop(jpeg, size, seeds), seeds), label

    data = data.enumerate().map(augmented, num_parallel_calls=tf.data.AUTOTUNE)
    return data.batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE).with_options(_options())


def evaluation_data(
    batch_size: int,
    *,
    size: int = SIZE,
    context: tf.distribute.InputContext | None = None,
    keep_in_memory: bool = False,
) -> tf.data.Dataset:
    """An endless dataset of (images, labels) of the validation pictures, `evaluation_steps` batches a pass.

    `batch_size` and `context` as in `train_data`; each worker looks at every n-th picture. All have equally
    many batches of full size: the last are filled up with black pictures of label PADDING, which must not be
    counted. Raises DataError as `train_data`.
    """
    _check_sizes(batch_size, size)
    data, count = _encoded("validation", None)
    context = context or tf.distribute.InputContext()
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    data = data.map(
        lambda jpeg, label: (central_crop(jpeg, size), label), num_parallel_calls=tf.data.AUTOTUNE
    )
    if keep_in_memory:
        data = data.cache()  # what an evaluation sees is the same every time: here the pixels may be kept
    blank = tf.data.Dataset.from_tensors(
        (tf.zeros([size, size, 3], tf.uint8), tf.constant(PADDING, tf.int64))
    )
    replicas = context.num_replicas_in_sync
    whole = (
        replicas // context.num_input_pipelines * batch_size * evaluation_steps(batch_size * replicas, count)
    )
    data = data.concatenate(blank.repeat(whole)).take(whole).repeat().batch(batch_size, drop_remainder=True)
    return data.prefetch(tf.data.AUTOTUNE).with_options(_options())


def evaluation_steps(global_batch: int, examples: int = VALIDATION) -> int:
    """Batches in one pass of `evaluation_data`, when all replicas together take `global_batch` a step.

    Raises DataError where that is not above 0.
    """
    return -(-examples // whole("global_batch", global_batch, error=DataError))


def distributed(
    strategy: tf.distribute.Strategy, global_batch: int, size: int = SIZE, seed: int = 0
) -> tuple[tf.distribute.DistributedDataset, tf.distribute.DistributedDataset, int]:
    """(training batches, evaluation batches, how many of these are one evaluation), shared out to replicas.

    `global_batch` is what all replicas take together; it must be a multiple of their number.
    """

    def spread(make, **how):
        def on_worker(context):
            each = context.get_per_replica_batch_size(global_batch)
            return make(each, size=size, context=context, **how)

        return strategy.distribute_datasets_from_function(on_worker)

    examples = _stand_in or VALIDATION
    return spread(train_data, seed=seed), spread(evaluation_data), evaluation_steps(global_batch, examples)


def random_crop(jpeg: tf.Tensor, size: int, seeds: tf.Tensor) -> tf.Tensor:
    """A random part of a JPEG file as uint8 (size, size, 3): 8 to 100 % of its area, at most 4:3 or 3:4.

    Only that part is decoded. The same two numbers in `seeds` give the same part.
    """
    shape = tf.io.extract_jpeg_shape(jpeg)
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        shape,
        whole,
        seeds,
        min_object_covered=0.0,
        aspect_ratio_range=RATIO,
        area_range=AREA,
        max_attempts=10,
    )
    return _decoded(jpeg, begin[0], begin[1], extent[0], extent[1], size)


def random_flip(image: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """The image or, for half of all seeds, its mirror image."""
    return tf.image.stateless_random_flip_left_right(image, seeds)


def central_crop(jpeg: tf.Tensor, size: int) -> tf.Tensor:
    """The middle square of a JPEG file, 7/8 of the shorter side, as uint8 (size, size, 3).

    The same pixels as resizing the shorter side to 256 and cutting 224 out of the middle.
    """
    shape = tf.io.extract_jpeg_shape(jpeg)
    side = tf.cast(tf.round(CENTRE * tf.cast(tf.minimum(shape[0], shape[1]), tf.float32)), tf.int32)
    side = tf.maximum(side, 1)
    return _decoded(jpeg, (shape[0] - side) // 2, (shape[1] - side) // 2, side, side, size)


@contextlib.contextmanager
def stand_in(examples: int = 8) -> Iterator[None]:
    """A context in which ImageNet is `examples` small made-up pictures, the same in both splits.

    `tfds.load("imagenet2012")` runs as for the real thing, mocked by `tfds.testing.mock_data`. Raises
    DataError for fewer than one.
    """
    global _stand_in
    examples = whole("stand_in(examples)", examples, error=DataError)
    import tensorflow_datasets as tfds
    from absl import logging

    before, loudness = _stand_in, logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # TFDS warns of what it does not find, and of its own functions
    with tfds.testing.mock_data(num_examples=examples):
        _stand_in = examples
        try:
            yield
        finally:
            _stand_in = before
            logging.set_verbosity(loudness)


def _check_sizes(batch_size, size):
    whole("batch_size", batch_size, error=DataError, cure="Give the examples of a batch; 1 is the fewest.")
    whole("size", size, error=DataError, cure="Give the pixels of a side, such as 224.")


def _encoded(split, context, shuffle_seed=None) -> tuple[tf.data.Dataset, int]:
    """(JPEG bytes, label) of a split and how many there are; with a context, this worker's files only."""
    import tensorflow_datasets as tfds

    where = None if _stand_in else verify().parents[1]
    several = context if context and context.num_input_pipelines > 1 else None
    data, info = tfds.load(
        NAME,
        split=split,
        data_dir=where,
        download=False,
        as_supervised=True,
        with_info=True,
        decoders={"image": tfds.decode.SkipDecoding()},
        shuffle_files=shuffle_seed is not None,
        read_config=tfds.ReadConfig(shuffle_seed=shuffle_seed, input_context=several, try_autocache=False),
    )
    return data, _stand_in or info.splits[split].num_examples


def _decoded(jpeg, top, left, height, width, size):
    crop = tf.stack([top, left, height, width])
    image = tf.io.decode_and_crop_jpeg(jpeg, crop, channels=3)
    image = tf.image.resize(image, [size, size], antialias=False)
    return tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)


@functools.cache
def _options():
    options = tf.data.Options()
    # The pipelines above share the files out themselves; TensorFlow must not do it again.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def _verify_split(prepared, split):
    parts = json.loads((prepared / "dataset_info.json").read_text())["splits"]
    lengths = next((part["shardLengths"] for part in parts if part["name"] == split), None)
    if lengths is None:
        raise DataError(
            f"ImageNet in {prepared} has no {split!r} pictures.",
            cause="their archive was not there when TFDS prepared it.",
            cure="Remove that folder and prepare it again, from both archives.",
        )
    names = [f"{NAME}-{split}.tfrecord-{i:05d}-of-{len(lengths):05d}" for i in range(len(lengths))]
    missing = [name for name in names if not (prepared / name).is_file()]
    if missing:
        raise DataError(
            f"ImageNet in {prepared} is incomplete: {len(missing)} of {len(names)} {split} files are gone.",
            expected=f"also {missing[0]}.",
            cause="a copy that was interrupted, or a full disk.",
            cure="Copy the missing files, or remove that folder and prepare it again.",
        )


def _nothing_there(root):
    if not root.is_dir():
        seen, cause = f"The folder {root} does not exist.", "a disk that is not mounted, or a typing error."
    elif any((root / name).is_file() for name in ARCHIVES):
        seen, cause = f"{root} holds ImageNet's archives, not yet prepared.", ""
    else:
        seen, cause = (
            f"There is no ImageNet in {root}.",
            "COURSE_IMAGENET names the folder *above* imagenet2012/.",
        )
    return DataError(
        seen,
        expected=f"{NAME}/5.1.0/dataset_info.json in it.",
        cause=cause,
        cure="Set COURSE_IMAGENET to the TFDS data folder, or prepare one: course_utils.imagenet.prepare.",
    )


def _check_archives(archives, target):
    missing = [name for name in ARCHIVES if not (archives / name).is_file()]
    if missing:
        raise DataError(
            f"{archives} does not hold {' and '.join(missing)}.",
            cure="Register at https://image-net.org/download-images and download both there.",
        )
    needed = sum((archives / name).stat().st_size for name in ARCHIVES)
    nearest = next(place for place in (target, *target.parents) if place.is_dir())
    free = shutil.disk_usage(nearest).free
    if free < needed:
        raise DataError(
            f"{nearest} has {free / 2**30:.0f} GiB left, and ImageNet takes {needed / 2**30:.0f}.",
            cure="Choose a folder on a larger disk.",
        )
