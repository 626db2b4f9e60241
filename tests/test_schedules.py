"""The schedules: the curve at its corners, in every form that Keras asks for, and through every save."""

import math
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import devices, models, schedules
from course_utils.errors import ScheduleError
from course_utils.schedules import WarmupCosine, linear_scaling

devices.simulate(4)  # before any test starts TensorFlow: pytest imports all modules first

CURVES = [
    WarmupCosine(0.1, 5, 20),
    WarmupCosine(0.3, 7, 31, start=0.07, end=0.013),
    WarmupCosine(1.7, 0, 9, end=0.1),
    WarmupCosine(0.01, 1, 2),
    WarmupCosine(0.21, 4, 12, end=0.016),  # 0.016 + (0.21 - 0.016) is not 0.21
]
every_curve = pytest.mark.parametrize("schedule", CURVES, ids=repr)


def in_graph(schedule):
    """The schedule as an optimizer's tf.function asks it: with a tensor."""
    return tf.function(lambda step: schedule(step))


@every_curve
def test_the_corners_are_exact(schedule):
    ask = in_graph(schedule)
    first = schedule.start if schedule.warmup_steps else schedule.peak
    corners = {0: first, schedule.warmup_steps: schedule.peak, schedule.total_steps: schedule.end}
    for step, rate in corners.items():
        assert schedule(step) == rate
        assert float(ask(tf.constant(step))) == np.float32(rate)
    assert schedule(schedule.total_steps + 1000) == schedule.end == schedule(10**9)


@every_curve
def test_the_warm_up_rises_by_equal_increments_and_the_cosine_only_falls(schedule):
    rates = np.array([schedule(step) for step in range(schedule.total_steps + 1)])
    rise, fall = rates[: schedule.warmup_steps + 1], rates[schedule.warmup_steps :]
    increment = (schedule.peak - schedule.start) / max(schedule.warmup_steps, 1)
    np.testing.assert_allclose(np.diff(rise), increment, rtol=1e-12)
    assert (np.diff(fall) < 0).all()


def test_half_way_down_the_cosine_is_half_way_between_peak_and_end():
    assert WarmupCosine(0.5, 10, 30, end=0.1)(20) == pytest.approx(0.3, abs=1e-15)
    assert WarmupCosine(1.0, 0, 3)(1) == pytest.approx(0.75, abs=1e-15)  # cos(60°) = 1/2


@every_curve
def test_a_tensor_gives_the_same_rate_as_a_number(schedule):
    ask = in_graph(schedule)
    for step in range(schedule.total_steps + 3):
        for asked in (
            ask(tf.constant(step, tf.int64)),
            schedule(tf.Variable(step)),
            schedule(tf.constant(float(step))),
        ):
            assert asked.dtype == tf.float32 and asked.shape == ()
            assert float(asked) == pytest.approx(schedule(step), rel=1e-6, abs=2e-7 * schedule.peak)


@every_curve
def test_the_curve_is_the_one_of_keras(schedule):
    warm = {"warmup_target": schedule.peak, "warmup_steps": schedule.warmup_steps}
    theirs = keras.optimizers.schedules.CosineDecay(
        schedule.start if schedule.warmup_steps else schedule.peak,
        schedule.total_steps - schedule.warmup_steps,  # theirs counts from the end of the warm-up
        alpha=schedule.end / schedule.peak,
        **(warm if schedule.warmup_steps else {}),
    )
    for step in range(schedule.total_steps + 3):
        assert schedule(step) == pytest.approx(float(theirs(step)), rel=1e-5, abs=1e-6 * schedule.peak)


def test_a_number_gives_a_float_of_pythons_own():
    schedule = WarmupCosine(1, 2, 4)
    assert [type(schedule(step)) for step in (0, 1, 2.5, np.int64(3), np.float32(4))] == [float] * 5


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_optimizer_moves_by_the_rate_of_each_step(replicas):
    schedule = WarmupCosine(0.3, 3, 8, start=0.03)
    strategy = devices.mirrored(replicas)
    with strategy.scope():
        weight = tf.Variable(0.0)
        optimizer = keras.optimizers.SGD(schedule)
        optimizer.build([weight])

    def on_a_replica():
        with tf.GradientTape() as tape:
            loss = -weight / replicas  # summed over the replicas: a gradient of -1
        optimizer.apply([tape.gradient(loss, weight)], [weight])

    @tf.function
    def step():
        strategy.run(on_a_replica)

    seen = [0.0]
    for _ in range(9):
        step()
        seen.append(float(weight.numpy()))
    np.testing.assert_allclose(np.diff(seen), [schedule(i) for i in range(9)], atol=3e-7)


def fitted(optimizer, epochs=4, callbacks=()):
    model = models.linear(seed=0)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images = np.zeros((8, 28, 28, 1), np.uint8)
    history = model.fit(images, np.zeros(8), 4, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return model, history.history


def test_as_a_callback_it_counts_in_epochs():
    schedule = WarmupCosine(0.2, 2, 4, start=0.05)
    _, history = fitted(
        keras.optimizers.SGD(1.0), callbacks=[keras.callbacks.LearningRateScheduler(schedule)]
    )
    np.testing.assert_allclose(history["learning_rate"], [schedule(epoch) for epoch in range(4)], rtol=1e-6)


@pytest.mark.parametrize("scaled", [False, True])
def test_it_is_saved_and_loaded_with_a_model(tmp_path, scaled):
    optimizer = keras.optimizers.SGD(WarmupCosine(0.2, 2, 20, end=0.01))
    model, _ = fitted(keras.optimizers.LossScaleOptimizer(optimizer) if scaled else optimizer, epochs=1)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert float(again.optimizer.learning_rate) == float(model.optimizer.learning_rate) == np.float32(0.2)


@every_curve
def test_it_travels_to_a_worker_and_through_keras_own_words(schedule):
    again = [
        pickle.loads(pickle.dumps(schedule)),
        keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule)),
        WarmupCosine.from_config(schedule.get_config()),
        eval(repr(schedule)),
    ]
    for other in again:
        assert [other(s) for s in range(40)] == [schedule(s) for s in range(40)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((0.1, 10, 10), "10 of 10"),
        ((0.1, 20, 10), "20 of 10"),
        ((0.1, -1, 10), "-1 of 10"),
        ((0.1, 0, 0), "0 of 0"),
        ((0.1, 2.5, 10), "warmup_steps is 2.5"),
        ((0.1, 2, 10.0), "total_steps is 10.0"),
        ((0.1, True, 10), "warmup_steps is True"),
        ((-0.1, 2, 10), "peak is -0.1"),
        ((math.nan, 2, 10), "peak is nan"),
        (("0.1", 2, 10), "peak is '0.1'"),
        ((0.1, 2, 10, -1.0), "start is -1.0"),
        ((0.1, 2, 10, 0.0, math.inf), "end is inf"),
    ],
)
def test_numbers_that_make_no_schedule_are_refused_by_name(arguments, told):
    with pytest.raises(ScheduleError, match=told):
        WarmupCosine(*arguments)


def test_the_rate_grows_with_the_global_batch():
    assert linear_scaling(0.1, 256) == 0.1
    assert linear_scaling(0.1, 8192) == pytest.approx(3.2)  # the figures of Goyal et al.
    assert linear_scaling(0.04, 64, base_batch=32) == pytest.approx(0.08)
    assert type(linear_scaling(1, 256)) is float


@pytest.mark.parametrize("arguments", [(0, 256), (0.1, 0), (0.1, -8), (0.1, 8, 0), (0.1, None), (True, 8)])
def test_a_rate_for_no_batch_is_refused(arguments):
    with pytest.raises(ScheduleError, match="is "):
        schedules.linear_scaling(*arguments)
