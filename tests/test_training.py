"""The custom loop: equal to one device, complete in what it counts, and honest when it restores."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import datasets, devices, models, training
from course_utils.errors import DataError, UpstreamError
from course_utils.upstream import epoch_end_stall

devices.simulate(4)  # before any test starts TensorFlow: pytest imports all modules first


@pytest.fixture(scope="module")
def data():
    return datasets.fashion_mnist().first(train=640, test=100)


@pytest.fixture(scope="module")
def train(data):
    return data.train_images, data.train_labels


@pytest.fixture(scope="module")
def test(data):
    return data.test_images, data.test_labels


def fitted(replicas, train, test=None, make=models.small_cnn, epochs=2, **how):
    """A model after training on so many replicas, its optimizer and its history."""
    strategy = devices.mirrored(replicas)
    with strategy.scope():
        model, optimizer = make(seed=0), keras.optimizers.SGD(0.05)
    how = {"global_batch_size": 64} | how
    return (
        model,
        optimizer,
        training.fit_epochs(strategy, model, optimizer, train, test, epochs=epochs, **how),
    )


@pytest.fixture(scope="module")
def one_device(train, test):
    return fitted(1, train, test)


@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_train_the_model_of_one_device(replicas, one_device, train, test):
    model, optimizer, history = fitted(replicas, train, test)
    expected, _, reference = one_device
    assert int(optimizer.iterations.numpy()) == 20
    assert training.largest_difference(model, expected) < 1e-5
    assert training.largest_difference(model, models.small_cnn(seed=0)) > 1e-3  # it did train
    for seen, wanted in zip(history, reference, strict=True):
        assert seen.train_loss == pytest.approx(wanted.train_loss, abs=1e-5)
        assert seen.test_loss == pytest.approx(wanted.test_loss, abs=1e-5)
        assert (seen.train_accuracy, seen.test_accuracy) == (wanted.train_accuracy, wanted.test_accuracy)


def test_the_history_tells_what_a_plain_evaluation_finds(one_device, test):
    model, _, history = one_device
    loss, accuracy = training.evaluate(model, test, batch_size=33)
    assert history[-1].test_loss == pytest.approx(loss, abs=1e-5)
    assert history[-1].test_accuracy == pytest.approx(accuracy)
    assert history[-1].train_loss < history[0].train_loss
    assert [epoch.number for epoch in history] == [1, 2] and history[0].images == 640


def test_metrics_start_anew_each_epoch_and_count_every_test_example_once(train, test):
    # 100 test images in batches of 64 on 3 replicas: the last batch is short and uneven.
    seen = []
    _, _, history = fitted(3, train, test, models.linear, epochs=2, on_epoch=seen.append)
    assert seen == history
    for epoch in history:
        assert epoch.test_accuracy * 100 == pytest.approx(round(epoch.test_accuracy * 100), abs=1e-4)


def test_iterators_are_made_to_end_at_once_and_tensorflow_is_itself_again(train, monkeypatch):
    made = []
    make = tf.distribute.MirroredStrategy.experimental_distribute_dataset

    def watched(*args):
        made.append(epoch_end_stall.enabled())
        return make(*args)

    monkeypatch.setattr(tf.distribute.MirroredStrategy, "experimental_distribute_dataset", watched)
    epoch_end_stall.disable()
    fitted(2, train, train, models.linear, epochs=1)
    assert made == [True, True] and not epoch_end_stall.enabled()


# In a process of its own: MirroredStrategy's own collectives allow one group size a process.
WITH_ITS_OWN_COLLECTIVES = """
from course_utils import devices, models, training
import keras, numpy as np, tensorflow as tf
strategy = tf.distribute.MirroredStrategy(devices.simulate(2))
with strategy.scope():
    model, optimizer = models.linear(seed=0), keras.optimizers.Adam()
examples = np.zeros((64, 28, 28, 1), np.uint8), np.zeros(64, np.int64)
training.fit_epochs(strategy, model, optimizer, examples, epochs=1, global_batch_size=32)
"""


def test_adam_is_built_before_it_is_needed():
    program = [sys.executable, "-c", WITH_ITS_OWN_COLLECTIVES]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_cure_that_was_on_stays_on():
    epoch_end_stall.enable()
    try:
        with training.iterators_end_at_once():
            assert epoch_end_stall.enabled()
        assert epoch_end_stall.enabled()
    finally:
        epoch_end_stall.disable()


def test_an_untested_version_trains_without_the_cure(monkeypatch):
    def refuse():
        raise UpstreamError("untested version")

    epoch_end_stall.disable()
    monkeypatch.setattr(epoch_end_stall, "enable", refuse)
    with training.iterators_end_at_once():
        assert not epoch_end_stall.enabled()


def test_no_pipeline_has_a_thread_that_tunes(train):
    for data in (training.training_data(train, 64), training.evaluation_data(train, 64)):
        assert data.options().autotune.enabled is False


def test_in_float64_replicas_agree_to_the_last_digits(train):
    def weights(replicas):
        strategy = devices.mirrored(replicas)
        with strategy.scope():
            model, optimizer = models.small_cnn(seed=0, dtype="float64"), keras.optimizers.SGD(0.1)
        training.fit_epochs(strategy, model, optimizer, train, epochs=1, global_batch_size=64)
        return model.get_weights()

    alone, together = weights(1), weights(4)
    assert alone[0].dtype == np.float64
    assert training.largest_difference(alone, together) < 1e-14


def test_training_needs_no_test_data(train):
    *_, history = fitted(2, train, None, models.linear, epochs=1)
    assert np.isnan(history[0].test_loss) and np.isnan(history[0].test_accuracy)
    assert history[0].train_loss > 0


def test_an_epoch_is_traced_once_for_all_epochs(train, test, monkeypatch):
    traced = []
    make = training.train_step

    def counted(*args):
        step = make(*args)
        return lambda *batch: traced.append(1) or step(*batch)

    monkeypatch.setattr(training, "train_step", counted)
    fitted(2, train, test, models.linear, epochs=1)
    once = len(traced)
    traced.clear()
    fitted(2, train, test, models.linear, epochs=3)
    assert len(traced) == once


def test_a_pass_of_training_data_holds_every_example_once(train):
    numbered = (train[0][:50], np.arange(50))
    batches = list(training.training_data(numbered, 20, seed=1).take(5).as_numpy_iterator())
    assert [len(labels) for _, labels in batches] == [20] * 5  # two passes, no short batch
    ids = np.concatenate([labels for _, labels in batches])
    assert sorted(ids[:50]) == sorted(ids[50:]) == list(range(50))
    assert ids[:50].tolist() != ids[50:].tolist()  # in another order
    np.testing.assert_array_equal(batches[0][0], train[0][batches[0][1]])  # images stay with their labels
    again = next(training.training_data(numbered, 20, seed=1).as_numpy_iterator())[1]
    np.testing.assert_array_equal(again, ids[:20])


def test_batches_come_in_order_cut_over_the_replicas_and_never_end(train):
    strategy, few = devices.mirrored(2), tuple(array[:6] for array in train)
    batches = training.batches(strategy, few, 4)
    seen = []
    for _ in range(4):
        _, labels = next(batches)
        seen.append([part.numpy().tolist() for part in strategy.experimental_local_results(labels)])
    expected = few[1].tolist()
    assert seen[0] == [expected[:2], expected[2:4]] and seen[1] == [expected[4:5], expected[5:6]]
    assert seen[2:] == seen[:2]


def test_steps_see_every_example():
    for n, batch, steps in ((60000, 128, 469), (100, 50, 2), (101, 50, 3), (1, 64, 1)):
        assert training.steps_for((None, np.zeros(n)), batch) == steps


def test_average_loss_is_a_share_of_the_global_mean():
    losses = tf.constant([1.0, 2.0, 3.0, 6.0])
    shares = [training.average_loss(part, 4) for part in (losses[:3], losses[3:], losses[:0])]
    assert [float(share) for share in shares] == [1.5, 1.5, 0.0]  # an empty replica adds nothing, not NaN


def test_per_example_loss_is_cross_entropy_in_float32():
    logits = tf.cast([[0.0, 0.0], [0.0, 3.0]], tf.bfloat16)
    losses = training.per_example_loss(tf.constant([0, 1]), logits)
    assert losses.dtype == tf.float32
    np.testing.assert_allclose(losses, [np.log(2), np.log(1 + np.exp(-3))], rtol=1e-6)


def test_a_plain_model_restores_from_a_mirrored_one(tmp_path, train, test):
    model, optimizer, history = fitted(2, train, test, epochs=1)
    tf.train.Checkpoint(model=model, optimizer=optimizer).save(tmp_path / "ckpt")
    plain = models.small_cnn(seed=99)
    path = training.restore(plain, tmp_path)
    assert path == str(tmp_path / "ckpt-1")
    assert training.largest_difference(plain, model) == 0
    assert training.evaluate(plain, test)[1] == pytest.approx(history[-1].test_accuracy)


def test_restore_takes_the_newest_checkpoint(tmp_path):
    model = models.linear(seed=1)
    checkpoint = tf.train.Checkpoint(model=model)
    checkpoint.save(tmp_path / "ckpt")
    model.set_weights([w + 1 for w in model.get_weights()])
    checkpoint.save(tmp_path / "ckpt")
    plain = models.linear(seed=2)
    assert training.restore(plain, tmp_path).endswith("ckpt-2")
    assert training.largest_difference(plain, model) == 0


def test_restoring_nothing_is_an_error(tmp_path):
    with pytest.raises(DataError, match="There is no checkpoint"):
        training.restore(models.linear(), tmp_path)
    tf.train.Checkpoint(model=models.linear()).save(tmp_path / "ckpt")
    with pytest.raises(DataError, match="no variables yet"):
        training.restore(keras.Sequential([keras.layers.Dense(10)]), tmp_path)
    for other in (models.mlp(), models.small_cnn()):
        with pytest.raises(DataError, match="does not fit this model"):
            training.restore(other, tmp_path)


def test_a_checkpoint_of_something_else_is_an_error(tmp_path):
    tf.train.Checkpoint(network=models.linear()).save(tmp_path / "ckpt")
    with pytest.raises(DataError, match="does not fit this model"):
        training.restore(models.linear(), tmp_path)


def test_largest_difference_sees_one_weight():
    model, other = models.linear(seed=0), models.linear(seed=0)
    assert training.largest_difference(model, other) == 0
    weights = other.get_weights()
    weights[1][7] -= 0.5
    assert training.largest_difference(model, weights) == 0.5
    with pytest.raises(ValueError, match="shapes"):
        training.largest_difference([np.zeros((2, 2))], [np.zeros(2)])


def test_the_epoch_line_reads_well():
    line = str(training.Epoch(3, 0.51234, 0.8123, 0.6, 0.79, 12.34, 640))
    assert (
        line == "epoch  3 · train loss 0.5123, accuracy 81.23% · test loss 0.6000, accuracy 79.00% · 12.3 s"
    )


def test_shares_of_a_short_batch_add_up_to_its_mean_also_where_a_replica_has_none():
    losses = np.array([3.0, 5.0, 10.0], np.float32)
    cut = [losses[:1], losses[1:2], losses[2:], losses[3:]]
    strategy = devices.mirrored(4)
    given = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(cut[context.replica_id_in_sync_group])
    )
    shares = strategy.run(training.average_loss_over_present, args=(given,))
    assert float(strategy.reduce("SUM", shares, axis=None)) == pytest.approx(6.0)


def test_tensors_come_later_unchanged_and_not_before_the_wait_is_over():
    @tf.function
    def slow(tensors):
        before = tf.timestamp()
        tensors = training.later(tensors, 0.2)
        with tf.control_dependencies(tensors):
            return tensors, tf.timestamp() - before

    (one, two), seconds = slow([tf.constant([1.0, 2.0]), tf.constant(3)])
    assert one.numpy().tolist() == [1.0, 2.0] and int(two) == 3
    assert float(seconds) > 0.19
