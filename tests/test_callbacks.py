"""Callbacks on real workers: what each measures is its own, and all stop at one step."""

import math

import numpy as np
import pytest

from course_utils import callbacks, models
from course_utils.cluster import LocalCluster
from course_utils.errors import ClusterError, CourseError

BATCH = 8  # of each worker


def make_model(strategy):
    import keras

    with strategy.scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
    return model


def endless(strategy, late_on=None, delay=0.1):
    """Batches of 8 on worker 0, of 4 on the others; each comes `delay` seconds late on one worker."""
    import time

    import numpy as np
    import tensorflow as tf

    me = strategy.cluster_resolver.task_id if strategy.cluster_resolver else 0
    random = np.random.default_rng(me)
    size = BATCH if me == 0 else BATCH // 2
    x, y = random.random((64, 8), "f4"), (np.arange(64) % 2).astype("i4")

    def late(batch):
        time.sleep(delay)
        return batch

    def make(context):
        data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(size, drop_remainder=True)
        if me == late_on:
            data = data.map(
                lambda x, y: (tf.ensure_shape(tf.numpy_function(late, [x], tf.float32), [size, 8]), y)
            )
        return data

    return strategy.distribute_datasets_from_function(make)


def fit_and_measure(late_on=None, only_on=None, twice=False):
    import tensorflow as tf

    import course_utils as cu

    cu.keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    model, metrics = make_model(strategy), cu.callbacks.WorkerMetrics()
    mine = only_on is None or strategy.cluster_resolver.task_id == only_on
    history = model.fit(
        endless(strategy, late_on),
        steps_per_epoch=5,
        epochs=2,
        verbose=0,
        shuffle=False,
        callbacks=[metrics] * mine,
    )
    after = [metric.name for metric in model.metrics], "train_step" in vars(model)
    return metrics.steps, history.history["loss"], after


@pytest.fixture(scope="module")
def late_data():
    """The two workers' records, worker 1 with an input that comes 100 ms late."""
    return LocalCluster(2, output="quiet", timeout=60).run(fit_and_measure, late_on=1)


def test_each_worker_counts_its_own_examples(late_data):
    for (steps, *_), size in zip(late_data, (BATCH, BATCH // 2), strict=True):
        assert len(steps) == 10 and {step.examples for step in steps} == {size}
        assert [step.number for step in steps] == list(range(10))


def test_the_step_in_which_the_graph_was_traced_is_marked_and_no_other(late_data):
    for steps, *_ in late_data:
        assert [step.traced for step in steps] == [True] + [False] * 9


def test_who_has_late_data_is_seen_waiting_for_it_and_the_other_is_not(late_data):
    on_0, on_1 = ([step.waiting for step in steps[1:]] for steps, *_ in late_data)
    steps = zip(*(records[1:] for records, *_ in late_data), strict=True)
    # Not told by absolute seconds: worker 1 waits for most of its step, and worker 0, which then waits for
    # worker 1, does not wait for data.
    share_0, share_1 = (sum(w.waiting / w.seconds for w in s) for s in zip(*steps, strict=True))
    assert share_1 > 2 * share_0 and sum(on_1) > sum(on_0)


def test_the_moments_of_a_step_are_in_order(late_data):
    for steps, *_ in late_data:
        for step in steps:
            assert step.begin <= step.ready <= step.end and step.computed is None
            assert step.rate == pytest.approx(step.examples / step.seconds)


def test_the_loss_is_that_of_the_workers_own_examples_and_their_mean_is_the_logged_one(late_data):
    (on_0, logged, _), (on_1, same, _) = late_data
    assert logged == same
    for epoch in (0, 1):
        of_0, of_1 = (sum(s.loss for s in steps[5 * epoch : 5 * epoch + 5]) / 5 for steps in (on_0, on_1))
        assert of_0 != pytest.approx(of_1, abs=1e-3)
        assert (2 * of_0 + of_1) / 3 == pytest.approx(logged[epoch], rel=1e-5)  # 8 examples and 4


def test_the_model_is_as_before_when_training_is_over(late_data):
    assert all(after == (["loss"], False) for *_, after in late_data)


def test_metrics_on_one_worker_alone_make_nobody_wait():
    (steps, _, _), (none, _, _) = LocalCluster(2, output="quiet", timeout=60).run(fit_and_measure, only_on=0)
    assert len(steps) == 10 and none == []


def test_several_steps_in_one_call_are_refused():
    import keras
    import numpy as np

    from course_utils.callbacks import WorkerMetrics

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2)
    with pytest.raises(CourseError, match="2 run in one call here"):
        model.fit(np.ones((8, 8)), np.ones(8), 2, verbose=0, callbacks=[WorkerMetrics()])


def test_without_a_strategy_the_loss_of_the_steps_is_the_logged_one():
    import keras
    import numpy as np

    from course_utils.callbacks import WorkerMetrics

    model, metrics = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)]), WorkerMetrics()
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).random((20, 8), "f4")
    logged = model.fit(x, x[:, 0], 8, shuffle=False, verbose=0, callbacks=[metrics]).history["loss"][0]
    assert [step.examples for step in metrics.steps] == [8, 8, 4]
    assert sum(s.loss * s.examples for s in metrics.steps) / 20 == pytest.approx(logged, rel=1e-5)


# Stopping ---------------------------------------------------------------------------------------------

# The means are 9, 5, 4.5, 4.95, 5.4: with a patience of two, the fifth look ends the training.
VALUES = [[9, 8, 6, 5.9, 5.8, 5.7, 6, 6, 6, 6], [9, 2, 3, 4, 5, 6, 7, 8, 9, 9]]


def stop(every, together=True):
    import keras
    import tensorflow as tf

    import course_utils as cu

    cu.keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    model = make_model(strategy)
    values = iter(VALUES[strategy.cluster_resolver.task_id])
    steps = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: steps.append(batch))

    class StopAlone(keras.callbacks.Callback):
        best = math.inf

        def on_train_batch_end(self, batch, logs=None):
            value = next(values)
            self.model.stop_training = value > self.best
            self.best = min(value, self.best)

    stopping = cu.callbacks.StopTogether(lambda logs: next(values), patience=2, every=every)
    callbacks = [count, stopping if together else StopAlone()]
    model.fit(endless(strategy), steps_per_epoch=5, epochs=10, verbose=0, shuffle=False, callbacks=callbacks)
    return len(steps), stopping.stopped_at, stopping.means, model.get_weights()


@pytest.mark.parametrize(("every", "at", "steps"), [(1, 4, 5), (2, 9, 10), (None, 4, 25)])
def test_all_workers_stop_at_the_step_that_the_mean_decides(every, at, steps):
    on_0, on_1 = LocalCluster(2, output="quiet", timeout=60).run(stop, every)
    assert on_0[:2] == on_1[:2] == (steps, at)
    assert on_0[2] == on_1[2] == pytest.approx([9, 5, 4.5, 4.95, 5.4])
    assert all((a == b).all() for a, b in zip(on_0[3], on_1[3], strict=True))


def test_a_worker_that_stops_by_its_own_value_ends_the_run_in_an_error():
    # Worker 1 goes on to what comes after the training, and meets worker 0 in another collective.
    with pytest.raises(ClusterError, match=r"Shape mismatch in the collective|did not finish|waits"):
        LocalCluster(2, output="quiet", timeout=6).run(stop, 1, together=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"every": 0},
        {"every": -1},
        {"every": 2.5},
        {"patience": -1},
        {"patience": 1.5},
        {"patience": True},
        {"min_delta": -0.1},
        {"min_delta": math.nan},
        {"min_delta": "0.1"},
        {"mode": "least"},
    ],
)
def test_settings_with_which_nobody_would_ever_stop_are_refused(settings):
    with pytest.raises(CourseError, match="cannot be"):
        callbacks.StopTogether("loss", **settings)


@pytest.mark.parametrize("value", [5, None, ["loss"]])
def test_what_names_no_value_is_refused(value):
    with pytest.raises(CourseError, match=r"StopTogether\(.*cannot be"):
        callbacks.StopTogether(value)


def test_an_entry_that_the_logs_do_not_have_is_told_with_those_that_they_have():
    model = models.linear(seed=0)
    model.compile("sgd", "mse", metrics=["mae"])
    images, targets = np.zeros([4, 28, 28, 1], np.uint8), np.zeros([4, 10], np.float32)
    with pytest.raises(CourseError, match=r"no 'val_loss' in the logs.*(loss, mae|mae, loss)"):
        model.fit(images, targets, verbose=0, callbacks=[callbacks.StopTogether("val_loss")])
