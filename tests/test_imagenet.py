"""The ImageNet pipeline: what is decoded, what each worker gets, and clear errors where the data are not."""

import io
import json
import tarfile

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from course_utils import devices, imagenet
from course_utils.errors import DataError

devices.simulate(4)
TRAIN, VALIDATION, FILES = 24, 7, 4


@pytest.fixture(autouse=True)
def no_setting(monkeypatch):
    monkeypatch.delenv("COURSE_IMAGENET", raising=False)


def jpeg(picture):
    return tf.io.encode_jpeg(tf.constant(picture, tf.uint8), quality=100).numpy()


@pytest.fixture(scope="module")
def slope():
    """A JPEG file whose red is its row and whose green is its column, 120 × 200."""
    rows, columns = np.mgrid[:120, :200]
    return jpeg(np.stack([rows, columns, 0 * rows], axis=-1))


def archive(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """ImageNet's two archives with a few pictures, each of one grey: its number times 8."""
    folder = tmp_path_factory.mktemp("archives")
    files = [jpeg(np.full((40, 50, 3), 8 * number)) for number in range(TRAIN)]
    classes = {}
    for label, of_one_class in (("n01440764", files[::2]), ("n01443537", files[1::2])):
        inner = folder / f"{label}.tar"
        archive(inner, {f"{label}_{i}.JPEG": content for i, content in enumerate(of_one_class)})
        classes[inner.name] = inner.read_bytes()
        inner.unlink()
    archive(folder / "ILSVRC2012_img_train.tar", classes)
    names = {f"ILSVRC2012_val_{i:08d}.JPEG": files[i] for i in range(VALIDATION)}
    archive(folder / "ILSVRC2012_img_val.tar", names)
    return folder


@pytest.fixture(scope="module")
def prepared(archives, tmp_path_factory):
    """The TFDS data folder made from them, each split in four files."""
    folder = tmp_path_factory.mktemp("imagenet")
    config = tfds.download.DownloadConfig(manual_dir=archives, num_shards=FILES)
    tfds.builder(imagenet.NAME, data_dir=folder).download_and_prepare(download_config=config)
    return folder


@pytest.fixture
def here(prepared, monkeypatch):
    monkeypatch.setenv("COURSE_IMAGENET", str(prepared))
    return prepared


def worker(index, workers, replicas=None):
    return tf.distribute.InputContext(workers, index, replicas or workers)


def greys(images):
    """The numbers of the pictures in a batch."""
    return np.rint(images.numpy()[:, 4, 4, 0] / 8).astype(int).tolist()


def test_a_random_crop_is_a_part_of_the_picture_of_the_size_that_was_asked_for(slope):
    for number in range(30):
        crop = imagenet.random_crop(slope, 64, tf.constant([3, number], tf.int64))
        assert crop.shape == (64, 64, 3) and crop.dtype == tf.uint8
        height, width = (float(np.ptp(crop.numpy()[..., c].astype(int))) for c in (0, 1))
        assert 0.06 < height * width / (120 * 200) <= 1.0  # 8 % and up, less the rim that resizing loses
        assert 0.65 < width / height < 1.5


def test_the_same_seed_gives_the_same_crop_and_another_one_another(slope):
    first, again, other = (
        imagenet.random_crop(slope, 32, tf.constant([0, n], tf.int64)).numpy() for n in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first.astype(int) - other).max() > 10


def test_the_central_crop_is_the_middle_of_the_whole_picture(slope):
    whole = tf.io.decode_jpeg(slope).numpy()
    # Not to the last bit: at its rim a part is decoded without the colours of its neighbours.
    middle = imagenet.central_crop(slope, 105).numpy().astype(int)
    np.testing.assert_allclose(middle, whole[7:112, 47:152], atol=3)
    assert imagenet.central_crop(slope, 224).shape == (224, 224, 3)


def test_only_the_crop_is_decoded_and_after_the_shuffle():
    """Before the shuffle there are only files: scalars of type string."""
    shuffled = []
    original = tf.data.Dataset.shuffle
    with pytest.MonkeyPatch.context() as patch, imagenet.stand_in():
        patch.setattr(
            tf.data.Dataset,
            "shuffle",
            lambda data, *a, **k: shuffled.append(data.element_spec) or original(data, *a, **k),
        )
        imagenet.train_data(2)
    assert [spec[0] for spec in shuffled] == [tf.TensorSpec((), tf.string)]


def test_the_stand_in_runs_the_pipeline_without_imagenet():
    with imagenet.stand_in(examples=5):
        images, labels = next(iter(imagenet.train_data(4, size=96, shuffle_buffer=4)))
    assert images.shape == (4, 96, 96, 3) and images.dtype == tf.uint8
    assert labels.dtype == tf.int64 and 0 <= labels.numpy().min() <= labels.numpy().max() < 1000
    with pytest.raises(DataError, match="not set"):
        imagenet.train_data(4)


def test_a_pass_holds_every_picture_once_in_another_order_each_time(here):
    batches = iter(imagenet.train_data(TRAIN, size=8))
    first, second = (greys(next(batches)[0]) for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(TRAIN))
    assert first != second and first != sorted(first)


def test_labels_stay_with_their_pictures(here):
    images, labels = next(iter(imagenet.train_data(TRAIN, size=8)))
    assert [number % 2 for number in greys(images)] == labels.numpy().tolist()


def test_crops_are_new_in_each_pass_also_when_the_files_are_kept_in_memory():
    with imagenet.stand_in(examples=1):
        batches = iter(imagenet.train_data(1, size=16, keep_in_memory=True))
        first, second = (next(batches)[0].numpy().astype(int) for _ in range(2))
        again = next(iter(imagenet.train_data(1, size=16)))[0].numpy()
    assert np.abs(first - second).max() > 0
    np.testing.assert_array_equal(first, again)  # the same seed: the same crops


def test_each_worker_trains_on_files_of_its_own(here):
    of_worker = [
        set(greys(next(iter(imagenet.train_data(TRAIN // 2, size=8, context=worker(i, 2))))[0]))
        for i in (0, 1)
    ]
    assert of_worker[0] | of_worker[1] == set(range(TRAIN)) and not of_worker[0] & of_worker[1]


@pytest.mark.parametrize(("workers", "replicas", "each"), [(1, 1, 4), (2, 2, 2), (3, 3, 1), (2, 4, 1)])
def test_an_evaluation_looks_at_every_picture_once_in_equally_many_steps(here, workers, replicas, each):
    steps = imagenet.evaluation_steps(each * replicas, VALIDATION)
    seen = []
    for index in range(workers):
        data = imagenet.evaluation_data(each, size=8, context=worker(index, workers, replicas))
        for images, labels in data.take(steps * replicas // workers):
            assert len(labels) == each
            seen += [n for n, label in zip(greys(images), labels, strict=True) if label != imagenet.PADDING]
    assert sorted(seen) == list(range(VALIDATION))


def test_an_evaluation_can_be_repeated(here):
    steps = imagenet.evaluation_steps(4, VALIDATION)
    twice = [labels.numpy().tolist() for _, labels in imagenet.evaluation_data(4, size=8).take(2 * steps)]
    assert twice[:steps] == twice[steps:]


def test_prepare_makes_what_verify_accepts(archives, tmp_path):
    assert imagenet.prepare(archives, to=tmp_path) == imagenet.verify(tmp_path)


def test_prepare_says_which_archive_is_missing(archives, tmp_path):
    (tmp_path / "ILSVRC2012_img_train.tar").touch()
    with pytest.raises(DataError, match=r"does not hold ILSVRC2012_img_val\.tar") as caught:
        imagenet.prepare(tmp_path, to=tmp_path / "there")
    assert "image-net.org" in caught.value.cure


def test_prepare_refuses_a_disk_that_is_too_small(archives, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda place: type("Usage", (), {"free": 1000})())
    with pytest.raises(DataError, match="GiB left"):
        imagenet.prepare(archives, to=tmp_path / "there")


def test_what_is_missing_is_named(prepared, archives, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="not set"):
        imagenet.verify()
    for folder, words in (
        (tmp_path / "no", "does not exist"),
        (tmp_path, "no ImageNet in"),
        (archives, "not yet"),
    ):
        monkeypatch.setenv("COURSE_IMAGENET", str(folder))
        with pytest.raises(DataError, match=words):
            imagenet.train_data(4)


@pytest.fixture
def copy(prepared, tmp_path):
    """A copy that may be damaged, of names only: nothing is read."""
    original = imagenet.verify(prepared)
    folder = tmp_path / imagenet.NAME / original.name
    folder.mkdir(parents=True)
    for file in original.iterdir():
        (folder / file.name).write_bytes(file.read_bytes() if file.suffix == ".json" else b"")
    return folder


def test_an_incomplete_copy_is_an_error_that_names_a_file(copy):
    assert imagenet.verify(copy.parents[1]) == copy
    gone = copy / f"imagenet2012-train.tfrecord-00002-of-{FILES:05d}"
    gone.unlink()
    with pytest.raises(DataError, match=f"1 of {FILES} train files are gone") as caught:
        imagenet.verify(copy.parents[1])
    assert gone.name in caught.value.expected


def test_a_set_that_was_prepared_from_one_archive_only_is_an_error(copy):
    info = json.loads((copy / "dataset_info.json").read_text())
    info["splits"] = [split for split in info["splits"] if split["name"] == "train"]
    (copy / "dataset_info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match="no 'validation' pictures"):
        imagenet.verify(copy.parents[1])


@pytest.mark.parametrize("size", [0, -3, 2.5, True, "64"])
def test_sizes_that_are_none_are_refused_in_a_sentence(size):
    with pytest.raises(DataError, match="global_batch cannot be"):
        imagenet.evaluation_steps(size)
    with pytest.raises(DataError, match=r"stand_in\(examples\) cannot be"), imagenet.stand_in(size):
        pass
    with imagenet.stand_in(4):
        for make in (imagenet.train_data, imagenet.evaluation_data):
            with pytest.raises(DataError, match="batch_size cannot be"):
                make(size)
            with pytest.raises(DataError, match="size cannot be"):
                make(2, size=size)
        with pytest.raises(DataError, match="shuffle_buffer cannot be"):
            imagenet.train_data(2, shuffle_buffer=size)
