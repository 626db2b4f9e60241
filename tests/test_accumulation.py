"""Large batches in parts, and overflow on replicas: the same update as one device, and one meeting for it."""

import math
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import LocalCluster, datasets, devices, models, training, wire

devices.simulate(4)  # before any test starts TensorFlow: pytest imports all modules first

BATCH, UPDATES = 96, 4


@pytest.fixture(scope="module")
def examples():
    data = datasets.fashion_mnist().first(train=BATCH * UPDATES)
    return data.train_images, data.train_labels


def trained(replicas, examples, make_step, make=models.small_cnn, batch=BATCH):
    """The weights after one pass in order, the loss of each batch, and how many updates there were."""
    strategy = devices.mirrored(replicas)
    with strategy.scope():
        model, optimizer = make(seed=0), keras.optimizers.SGD(0.05, momentum=0.9)
        optimizer.build(model.trainable_variables)
    on_a_replica = make_step(model, optimizer)
    step = tf.function(
        lambda batch: strategy.reduce("SUM", strategy.run(on_a_replica, args=batch), axis=None)
    )
    data = tf.data.Dataset.from_tensor_slices(examples).batch(batch)
    with training.iterators_end_at_once():
        losses = [float(step(batch)) for batch in strategy.experimental_distribute_dataset(data)]
    return model.get_weights(), losses, int(optimizer.iterations.numpy())


def at_once(model, optimizer):
    return training.train_step(model, optimizer, BATCH)


def in_parts(of):
    return lambda model, optimizer: training.accumulating_step(model, optimizer, BATCH, of)


@pytest.fixture(scope="module")
def one_device(examples):
    return trained(1, examples, at_once)


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("of", [7, 32, 200])
def test_parts_make_the_update_of_the_whole_batch(replicas, of, examples, one_device):
    weights, losses, updates = trained(replicas, examples, in_parts(of))
    assert training.largest_difference(weights, one_device[0]) < 2e-6
    assert training.largest_difference(weights, models.small_cnn(seed=0)) > 1e-2  # it did train
    np.testing.assert_allclose(losses, one_device[1], rtol=1e-5)
    assert updates == UPDATES


def test_a_replica_without_examples_takes_part_in_the_update():
    data = datasets.fashion_mnist()
    few = data.train_images[:2], data.train_labels[:2]  # two examples on three replicas
    weights, losses, updates = trained(3, few, in_parts(1))
    expected, wanted, _ = trained(1, few, at_once)
    assert training.largest_difference(weights, expected) < 1e-6
    assert losses == pytest.approx(wanted, rel=1e-5) and updates == 1


def test_no_part_is_larger_than_it_may_be(examples):
    seen = []

    def watched(seed):
        model = models.linear(seed=seed)
        call = model.call

        def remember(images, **how):
            tf.py_function(lambda n: seen.append(int(n)), [tf.shape(images)[0]], [])
            return call(images, **how)

        model.call = remember
        return model

    trained(2, examples, in_parts(20), watched)
    assert sorted(set(seen)) == [8, 20]  # a share of 48 is 20 + 20 + 8
    assert sum(seen) >= len(examples[1])


def test_accuracy_counts_the_examples_of_all_parts(examples):
    counted = []

    def counting(model, optimizer):
        accuracy = keras.metrics.SparseCategoricalAccuracy()
        counted.append(accuracy)
        return training.accumulating_step(model, optimizer, BATCH, 20, accuracy)

    trained(1, examples, counting)
    assert float(counted[0].count.numpy()) == len(examples[1])


def sent_for_each_weight(policy, parts):
    """Bytes that this worker sends for each weight and batch of 32."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model, optimizer = models.mlp([32], seed=0, dtype=policy), keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
    data = datasets.fashion_mnist().first(train=32 * parts)
    step = training.accumulating_step(model, optimizer, 32 * parts, 16)
    batches = training.training_data((data.train_images, data.train_labels), 32 * parts)
    batches = iter(strategy.experimental_distribute_dataset(batches))
    run = tf.function(lambda batch: strategy.run(step, args=batch))
    run(next(batches))  # the first call also traces and connects
    training.meet(strategy)
    before = wire.bytes_sent()
    for _ in range(3):
        run(next(batches))
    training.meet(strategy)
    return (wire.bytes_sent() - before) / (3 * parts * model.count_params())


@pytest.mark.skipif(math.isnan(wire.bytes_sent()), reason="this system does not count bytes")
def test_parts_save_traffic_and_mixed_precision_does_not():
    cluster = LocalCluster(workers=2, output="quiet")
    sent = {
        kind: cluster.run(sent_for_each_weight, *kind) for kind in (("float32", 1), ("mixed_bfloat16", 1))
    }
    assert sent["float32", 1] == pytest.approx([4, 4], rel=0.05)  # 2 (n-1)/n times 4 bytes, n = 2
    assert sent["mixed_bfloat16", 1] == pytest.approx(sent["float32", 1], rel=0.02)
    assert cluster.run(sent_for_each_weight, "float32", 4) == pytest.approx([1, 1], rel=0.05)


def test_a_meeting_waits_for_the_last_worker(tmp_path):
    def late_or_looking(folder):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        if strategy.cluster_resolver.task_id:
            time.sleep(0.5)
            (folder / "came").touch()
        training.meet(strategy)
        return (folder / "came").exists()

    assert LocalCluster(workers=2, output="quiet").run(late_or_looking, tmp_path) == [True, True]


def after_overflow_on(replica, agree):
    """Weight and loss scale after one step in which that replica alone has an infinite gradient."""
    strategy = devices.mirrored(2)
    with strategy.scope():
        weight = tf.Variable(1.0)
        optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), initial_scale=8.0)
        optimizer.build([weight])

    def on_a_replica():
        me = tf.distribute.get_replica_context().replica_id_in_sync_group
        gradients = [tf.where(tf.equal(me, -1 if replica is None else replica), np.inf, 8.0)]
        optimizer.apply(agree(gradients), [weight])

    @tf.function
    def step():
        strategy.run(on_a_replica)

    step()
    scales = strategy.experimental_local_results(optimizer.dynamic_scale.value)
    return float(weight.numpy()), [float(scale.numpy()) for scale in scales]


@pytest.mark.parametrize("replica", [0, 1])
def test_an_overflow_on_any_replica_skips_the_update_on_all(replica):
    assert after_overflow_on(replica, training.overflow_together) == (1.0, [4.0, 4.0])


def test_without_overflow_the_update_is_the_sum_of_the_replicas():
    assert after_overflow_on(None, training.overflow_together) == (0.0, [8.0, 8.0])


def test_keras_alone_asks_the_first_replica_only():
    """What makes `overflow_together` needed; when this fails, Keras has learned it."""
    assert after_overflow_on(1, list) == (-np.inf, [8.0, 8.0])
