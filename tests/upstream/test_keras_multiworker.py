"""`fit`, `evaluate` and `predict` on several workers give what one device gives."""

import numpy as np
import pytest
from upstream_matrix import MATRIX, MIRRORED, MORE, SHAPES, alone, cluster, replicas_of_parts

EXACT = 1e-5
# bfloat16 keeps 8 significant bits and float16 keeps 11: every product is rounded by up to 2^-9 or 2^-12 of
# itself, and which rows meet in one product decides where. Gradients differ by that much of themselves, and
# 20 steps at a rate of 0.1 add it up to a few 1e-4 or 1e-5; a missing or doubled term would be 1e-2.
TOLERANCE = {"mixed_bfloat16": 1e-3, "mixed_float16": 1e-4, "overflow_on_one_replica": 1e-4}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MATRIX)
def test_each_shape_trains_as_one_device(shape, name, trained, one_device):
    _, workers = trained(shape)
    reference = one_device["dropout", replicas_of_parts(shape)] if name == "dropout" else one_device[name]
    for worker in workers:
        assert_same(worker[name], reference, TOLERANCE.get(name, EXACT))


@pytest.mark.parametrize(
    ("shape", "name"), [(shape, n) for shape in MORE for n in MORE[shape] if not n.startswith("local")]
)
def test_two_workers_train_as_one_device(shape, name, trained, one_device):
    for worker in trained(shape, MORE[shape])[1]:
        assert_same(worker[name], one_device[name], TOLERANCE.get(name, EXACT))


@pytest.mark.parametrize("name", MIRRORED)
def test_replicas_of_one_process_train_as_one_device(name, mirrored, one_device):
    assert_same(mirrored[name], one_device["dropout", (0, 1)] if name == "dropout" else one_device[name])


@pytest.mark.parametrize("shape", SHAPES)
def test_all_workers_end_with_the_same_bits(shape, trained):
    _, (first, *others) = trained(shape)
    for other in others:
        for name in MATRIX:
            assert all(
                np.array_equal(a, b)
                for a, b in zip(first[name]["weights"], other[name]["weights"], strict=True)
            )
            assert first[name]["history"] == other[name]["history"]


@pytest.mark.parametrize("shape", SHAPES)
def test_each_device_of_each_worker_is_a_replica(shape, trained):
    workers, devices = SHAPES[shape]
    assert trained(shape)[0] == workers * devices


def test_a_replica_without_examples_leaves_local_batch_normalisation_finite(trained):
    for worker in trained("2x2", MORE["2x2"])[1]:
        run = worker["local_batch_normalisation_without_examples"]
        assert all(np.isfinite(weights).all() for weights in run["weights"])
        assert np.isfinite(run["history"]["loss"]).all()


def test_a_resumed_training_is_the_one_that_was_never_interrupted(trained, one_device):
    for worker in trained("2x2", MORE["2x2"])[1]:
        assert_close(worker["interrupted_and_resumed"]["weights"], one_device["sequential"]["weights"], EXACT)


def test_training_stopped_early(one_device):
    """Else the comparison of `callbacks` would say nothing about EarlyStopping."""
    assert 1 < len(one_device["callbacks"]["history"]["loss"]) < 12


def test_tensorboard_wrote_its_events(one_device, trained):
    for worker in [one_device, *trained("2x1")[1]]:
        assert worker["callbacks"]["evaluated"]["event files"] == 2  # training and validation


def test_masks_of_replicas_differ(one_device):
    """Else the comparison of `dropout` would say nothing about masks of their own."""
    two, four = (one_device["dropout", n]["weights"][0] for n in ((0, 1), (0, 1, 2, 3)))
    assert np.abs(two - four).max() > 1e-3


def test_an_epoch_makes_one_iterator():
    """Keras makes a second one at its end and drops it unread."""
    assert alone(count_iterators, devices=2) == 3


def count_iterators():
    """How many iterators a `fit` of three epochs makes."""
    import keras
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.distribute import input_lib

    from course_utils.upstream import keras_multiworker

    made, own = [], input_lib.DistributedDataset.__iter__
    input_lib.DistributedDataset.__iter__ = lambda data: made.append(data) or own(data)
    keras_multiworker.enable()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((8, 1)), np.ones(8), batch_size=4, epochs=3, verbose=0)
    return len(made)


@pytest.fixture(scope="module")
def refused():
    """What two workers raise for each training that could not be right."""
    return cluster(2, 1).run(try_what_is_refused)


@pytest.mark.parametrize("what", ["jit fit", "jit evaluate", "jit predict", "loss scaling", "overwrite"])
def test_what_cannot_be_right_is_refused_on_every_worker(what, refused):
    for worker in refused:
        assert worker[what].startswith("UpstreamError") and "What to do" in worker[what]


def try_what_is_refused():
    import keras
    import numpy as np
    import tensorflow as tf

    from course_utils.upstream import keras_multiworker

    keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    x = y = np.ones((8, 1), "float32")

    def attempt(do, optimizer=None, **kwargs):
        with strategy.scope():
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile(optimizer or keras.optimizers.SGD(), "mse", **kwargs)
        try:
            do(model)
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    with strategy.scope():
        accumulating = keras.optimizers.SGD(gradient_accumulation_steps=2)
        scaling = keras.optimizers.LossScaleOptimizer(accumulating)
        overwriting = keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=2)
    return {
        "jit fit": attempt(lambda model: model.fit(x, y, verbose=0), jit_compile=True),
        "jit evaluate": attempt(lambda model: model.evaluate(x, y, verbose=0), jit_compile=True),
        "jit predict": attempt(lambda model: model.predict(x, verbose=0), jit_compile=True),
        "loss scaling": attempt(lambda model: model.fit(x, y, verbose=0), scaling),
        "overwrite": attempt(lambda model: model.fit(x, y, verbose=0), overwriting),
    }


def assert_same(seen, reference, tolerance=EXACT):
    assert_close(seen["weights"], reference["weights"], tolerance)
    assert seen["history"].keys() == reference["history"].keys()
    for key, values in reference["history"].items():
        # Scores are means of many examples: sums in another order, in float32.
        np.testing.assert_allclose(
            seen["history"][key], values, rtol=10 * tolerance, atol=tolerance, err_msg=key
        )
    for part in ("evaluated", "predicted"):
        assert_close(flat(seen[part]), flat(reference[part]), 10 * tolerance)


def assert_close(seen, reference, tolerance):
    assert len(seen) == len(reference)
    for a, b in zip(seen, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, equal_nan=False)


def flat(values):
    if isinstance(values, dict):
        return [values[key] for key in sorted(values)]
    if values is None:
        return []
    return values if isinstance(values, list) else [values]
