"""Ways to sum gradients: right sums, as few bytes as promised, and updates that do not sum again."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import compression, devices, wire
from course_utils.cluster import LocalCluster
from course_utils.errors import CourseError
from course_utils.upstream import devices_per_worker

WAYS = {
    "float32": lambda: compression.Cast("float32"),
    "float16": lambda: compression.Cast("float16"),
    "bfloat16": lambda: compression.Cast("bfloat16"),
    "top 1 %": lambda: compression.TopK(0.01),
    "top 1 %, forgetful": lambda: compression.TopK(0.01, error_feedback=False),
    "all numbers": lambda: compression.TopK(1.0),
    "two levels": compression.TwoLevels,
}
devices.simulate(2)  # before any test starts TensorFlow: pytest imports all modules first
ON_FOUR = ["float32", "float16", "top 1 %", "two levels"]  # of these also with two replicas a worker
SHAPES = [(300, 100), (100,), (100, 7)]
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)
STEPS = 3


def gradients_of(replica):
    random = np.random.default_rng(replica)
    return [random.normal(size=shape).astype("float32") for shape in SHAPES]


def sums_and_bytes(names, several_devices=False):
    """On a worker: each named way's sums of constant gradients after STEPS steps, and bytes sent a step."""
    if several_devices:  # importing this module in a worker gives it two, which are not to count otherwise
        devices_per_worker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    found = {}
    for name in names:
        way = WAYS[name]()
        with strategy.scope():
            way.build([tf.zeros(shape) for shape in SHAPES])
        step = step_function(strategy, way)
        meet = meeting(strategy)
        step(), meet()  # the first call also traces and connects
        before = wire.bytes_sent()
        for _ in range(STEPS - 1):
            total = step()
        meet()  # a worker may be done while its neighbour still reads from it
        sent = (wire.bytes_sent() - before) / (STEPS - 1)
        left = getattr(way, "left", None)
        left = left if left is None else [v.numpy() for v in strategy.experimental_local_results(left)]
        found[name] = ([strategy.experimental_local_results(t)[0].numpy() for t in total], sent, left)
    return found


def meeting(strategy):
    one = tf.ones([1])

    def on_a_replica():
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(one))

    return tf.function(lambda: strategy.run(on_a_replica))


def step_function(strategy, way):
    everyone = [[tf.constant(g) for g in gradients_of(r)] for r in range(strategy.num_replicas_in_sync)]

    @tf.function
    def step():
        def on_a_replica():
            me = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = [tf.gather(tf.stack(each), me, batch_dims=0) for each in zip(*everyone, strict=True)]
            return way(mine)

        return strategy.run(on_a_replica)

    return step


@pytest.fixture(scope="module")
def two_workers():
    return LocalCluster(2, output="quiet", timeout=60).run(sums_and_bytes, list(WAYS))


@pytest.fixture(scope="module")
def two_by_two():
    return LocalCluster(2, 2, output="quiet", timeout=60).run(sums_and_bytes, ON_FOUR, several_devices=True)


def whole_sum(replicas):
    return [np.sum(each, axis=0) for each in zip(*map(gradients_of, range(replicas)), strict=True)]


def flat(arrays):
    return np.concatenate([np.ravel(array) for array in arrays])


@pytest.mark.parametrize(
    "name, error",
    [("float32", 1e-6), ("all numbers", 1e-6), ("two levels", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)],
)
def test_dense_ways_give_the_sum_as_precisely_as_their_type_allows(two_workers, two_by_two, name, error):
    for results, replicas in ((two_workers, 2), (two_by_two, 4)):
        wanted = whole_sum(replicas)
        for found, *_ in (worker[name] for worker in results if name in worker):
            assert [f.shape for f in found] == SHAPES
            np.testing.assert_allclose(flat(found), flat(wanted), atol=error * np.abs(flat(wanted)).max())


def test_half_the_bits_are_less_precise(two_workers):
    distance = {
        name: np.abs(flat(two_workers[0][name][0]) - flat(whole_sum(2))).max()
        for name in ("float32", "float16", "bfloat16")
    }
    assert distance["float32"] < distance["float16"] / 100 and distance["float16"] < distance["bfloat16"]


def test_every_worker_gets_the_same_bits(two_workers, two_by_two):
    for first, second in (two_workers, two_by_two):
        for name in first:
            np.testing.assert_array_equal(flat(first[name][0]), flat(second[name][0]), err_msg=name)


def test_without_error_feedback_top_k_sums_the_largest_numbers_of_each(two_workers):
    wanted = np.zeros(SIZE, "float32")
    for replica in range(2):
        mine = flat(gradients_of(replica))
        places = np.argsort(-np.abs(mine))[: round(0.01 * SIZE)]
        wanted[places] += mine[places]
    np.testing.assert_allclose(flat(two_workers[0]["top 1 %, forgetful"][0]), wanted, atol=1e-6)


def test_with_error_feedback_nothing_is_lost(two_workers):
    """What was sent in all steps and what is left add up to all gradients of all steps."""
    sent = STEPS * flat(whole_sum(2)) - sum(worker["top 1 %"][2][0] for worker in two_workers)
    assert np.count_nonzero(np.abs(sent) > 1e-4) <= 2 * STEPS * round(0.01 * SIZE)
    last = flat(two_workers[0]["top 1 %"][0])
    places = np.flatnonzero(last)
    assert 0 < len(places) <= 2 * round(0.01 * SIZE)
    assert not np.allclose(last, flat(two_workers[0]["top 1 %, forgetful"][0]))


@pytest.mark.parametrize(
    "name, bytes_a_number",
    [("float32", 4), ("two levels", 4), ("float16", 2), ("bfloat16", 2), ("top 1 %", 0.08)],
)
def test_two_workers_send_the_bytes_that_are_promised(two_workers, name, bytes_a_number):
    for worker in two_workers:
        sent = worker[name][1]
        assert np.isnan(sent) or sent == pytest.approx(bytes_a_number * SIZE, rel=0.03, abs=1500)


def test_four_replicas_on_two_workers_send_half_as_much_again_unless_they_meet_in_two_levels(two_by_two):
    for worker in two_by_two:
        flat_way, two_levels = worker["float32"][1], worker["two levels"][1]
        if not np.isnan(flat_way):
            assert flat_way == pytest.approx(1.5 * 4 * SIZE, rel=0.03)
            assert two_levels == pytest.approx(4 * SIZE, rel=0.03)


@pytest.mark.parametrize("dtype", ["int8", "bool", "foo"])
def test_gradients_are_not_summed_in_what_is_no_floating_type(dtype):
    with pytest.raises(CourseError, match="cannot be summed"):
        compression.Cast(dtype)


@pytest.mark.parametrize("fraction", [0, -1, 2, float("nan"), "x", None])
def test_what_is_no_fraction_is_refused(fraction):
    with pytest.raises(CourseError, match="above 0 and at most 1"):
        compression.TopK(fraction)


# Updates ----------------------------------------------------------------------------------------------


def trained(strategy, optimizer, apply, steps=4):
    """A weight after a few steps, each replica with a gradient of its own."""
    with strategy.scope():
        weight = keras.Variable([1.0, -2.0, 3.0])
        optimizer = optimizer()
        optimizer.build([weight])

    @tf.function
    def step():
        def on_a_replica():
            me = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = (tf.cast(me, tf.float32) + 1.0) * tf.identity(weight.value) / 10.0
            apply(optimizer, mine, weight)

        strategy.run(on_a_replica)

    for _ in range(steps):
        step()
    copies = [copy.numpy() for copy in strategy.experimental_local_results(weight.value)]
    return copies, int(optimizer.iterations.numpy())


def by_keras(optimizer, gradient, weight):
    optimizer.apply([gradient], [weight])


def by_ourselves(optimizer, gradient, weight):
    compression.apply_sums(optimizer, compression.Cast()([gradient]), [weight])


def decayed():
    return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.3, 1, 0.5))


OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.1),
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.1),
    "schedule": decayed,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_apply_sums_does_what_the_optimizer_does_and_sums_once(name):
    strategy = devices.mirrored(2)
    theirs, steps = trained(strategy, OPTIMIZERS[name], by_keras)
    ours, our_steps = trained(strategy, OPTIMIZERS[name], by_ourselves)
    assert steps == our_steps == 4
    for copy in ours:
        np.testing.assert_allclose(copy, theirs[0], rtol=1e-6)


def test_handing_sums_to_the_optimizer_itself_counts_every_replica_again():
    def twice(optimizer, gradient, weight):
        optimizer.apply(compression.Cast()([gradient]), [weight])

    right, _ = trained(devices.mirrored(2), OPTIMIZERS["sgd"], by_keras, steps=1)
    wrong, _ = trained(devices.mirrored(2), OPTIMIZERS["sgd"], twice, steps=1)
    start = np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(start - wrong[0], 2 * (start - right[0]), rtol=1e-5)


@pytest.mark.parametrize("extra", [{"clipnorm": 1.0}, {"weight_decay": 0.1}, {"use_ema": True}])
def test_what_apply_sums_would_leave_out_is_refused(extra):
    with pytest.raises(ValueError, match=next(iter(extra))):
        compression.apply_sums(keras.optimizers.SGD(0.1, **extra), [], [])


# On workers: the whole training -----------------------------------------------------------------------


def first_steps(make):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    way = make()
    with strategy.scope():
        way.build([tf.zeros(3)])
    return trained(
        strategy,
        OPTIMIZERS["momentum"],
        lambda optimizer, gradient, weight: compression.apply_sums(optimizer, way([gradient]), [weight]),
    )[0][0]


def test_two_workers_with_momentum_are_one_model_and_equal_two_replicas():
    wanted, _ = trained(devices.mirrored(2), OPTIMIZERS["momentum"], by_keras)
    for weight in LocalCluster(2, output="quiet", timeout=60).run(first_steps, compression.Cast):
        np.testing.assert_allclose(weight, wanted[0], rtol=1e-6)


def test_on_one_worker_two_levels_need_no_network():
    def in_two_levels(optimizer, gradient, weight):
        compression.apply_sums(optimizer, compression.TwoLevels()([gradient]), [weight])

    wanted, _ = trained(devices.mirrored(2), OPTIMIZERS["sgd"], by_keras)
    found, _ = trained(devices.mirrored(2), OPTIMIZERS["sgd"], in_two_levels)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)


# Comparing ways ---------------------------------------------------------------------------------------


def test_compared_trainers_take_turns_and_the_step_that_traces_does_not_count(monkeypatch):
    turns, clock, sent = [], iter(range(1000)), iter(range(0, 10**9, 1000))
    monkeypatch.setattr(compression.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(compression.wire, "bytes_sent", lambda: next(sent))
    trainers = {name: lambda name=name: turns.append(name) or len(turns) for name in "ab"}
    costs = compression.compare(devices.mirrored(2), trainers, steps=2)
    assert turns == ["a", "b"] * 3
    assert costs["a"].losses == [1, 3, 5] and costs["b"].losses == [2, 4, 6]
    assert costs["a"].seconds == 1.0 and costs["a"].megabytes == 0.001


def count_what_a_trainer_sends():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    numbers, one = tf.ones([SIZE]), tf.ones([1])

    def trainer(array):
        step = tf.function(lambda: strategy.run(lambda: compression.Cast()([array])[0][0]))
        return lambda: strategy.experimental_local_results(step())[0]

    return compression.compare(strategy, {"many": trainer(numbers), "one": trainer(one)}, steps=3)


def test_each_trainers_bytes_are_counted_apart():
    for costs in LocalCluster(2, output="quiet", timeout=60).run(count_what_a_trainer_sends):
        assert costs["many"].losses == [2.0] * 4
        assert np.isnan(costs["many"].megabytes) or costs["many"].megabytes * 1e6 == pytest.approx(
            4 * SIZE, rel=0.03, abs=1500
        )
        assert np.isnan(costs["one"].megabytes) or costs["one"].megabytes * 1e6 < 3000
