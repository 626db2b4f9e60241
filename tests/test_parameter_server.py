"""What lesson 15 says of a parameter server: who holds the variables, how stale, who may die.

The clusters are real; each test runs one, or shares the one of `slow_second`.
"""

import os
import signal

import numpy as np
import pytest

import course_utils as cu
from course_utils import training

BATCH, STEPS = 16, 12
PAUSE = 0.3


def on_task(program, *arguments):
    """What `program(coordinator, …)` returns on the chief; the workers and the ps serve it."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        with open(f"{arguments[-1]}/{resolver.task_type} {resolver.task_id}", "w") as file:
            file.write(str(os.getpid()))
        task = {"job_name": resolver.task_type, "task_index": resolver.task_id}
        tf.distribute.Server(resolver.cluster_spec(), protocol="grpc", **task).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return program(tf.distribute.coordinator.ClusterCoordinator(strategy), *arguments[:-1], arguments[-1])


def one_weight(coordinator, slow, victim, folder):
    """[(worker, pulled, pushed) of each step], the weight, where it is held; a kill half way."""
    import tensorflow as tf

    strategy = coordinator.strategy
    with strategy.scope():
        weight, version = tf.Variable(1.0), tf.Variable(0, dtype=tf.int64)

    @tf.function
    def step():
        me = tf.distribute.coordinator.experimental_get_current_worker_index()
        pulled = version.read_value()
        with tf.control_dependencies([pulled]):
            gradient = 0.1 * weight
        (gradient,) = training.later([gradient], tf.where(me == 1, slow, 0.0))
        with tf.control_dependencies([gradient]):
            weight.assign_sub(gradient)
            return me, pulled, tf.identity(version.assign_add(1))

    promises = []
    for number in range(STEPS):
        promises.append(coordinator.schedule(step))
        if victim and number == STEPS // 2:
            coordinator.join()
            with open(f"{folder}/{victim}") as file:
                os.kill(int(file.read()), signal.SIGKILL)
    try:
        coordinator.join()
    except tf.errors.UnavailableError as error:
        return type(error).__name__
    log = [[int(number) for number in promise.fetch()] for promise in promises]
    return log, float(weight.numpy()), cu.devices.places(strategy, weight)


def cluster(workers):
    return cu.LocalCluster(workers=workers, chief=True, ps=1, timeout=60, output="quiet")


@pytest.fixture(scope="module")
def slow_second(tmp_path_factory):
    """Two workers, of which worker 1 takes 0.3 s longer over a step."""
    return cluster(2).run(on_task, one_weight, PAUSE, None, str(tmp_path_factory.mktemp("pids")))[0]


def test_a_slow_worker_does_less_and_pushes_older_gradients(slow_second):
    log, _, _ = slow_second
    stale = {i: [pushed - 1 - pulled for worker, pulled, pushed in log if worker == i] for i in (0, 1)}
    assert len(stale[0]) > len(stale[1]) > 0 and len(log) == STEPS
    assert np.mean(stale[1]) > np.mean(stale[0])


def test_stale_gradients_make_another_weight_than_fresh_ones(slow_second):
    _, weight, _ = slow_second
    assert abs(weight - 0.9**STEPS) > 1e-3


def test_the_parameter_server_holds_the_variables_and_nobody_else(slow_second):
    assert slow_second[2] == {"ps 0, CPU:0": (True, False)}


def test_one_worker_is_never_stale_and_equals_one_device(tmp_path):
    log, weight, _ = cluster(1).run(on_task, one_weight, 0.0, None, str(tmp_path))[0]
    assert [(pulled, pushed) for _, pulled, pushed in log] == [(k, k + 1) for k in range(STEPS)]
    assert weight == pytest.approx(0.9**STEPS, abs=1e-6)


def test_the_job_survives_a_killed_worker(tmp_path):
    outcomes = cluster(2).outcomes(on_task, one_weight, 0.0, "worker 1", str(tmp_path))
    ended = {outcome.task: outcome for outcome in outcomes}
    assert ended["worker 1"].status == "killed" and ended["chief"].status == "returned"
    log = ended["chief"].value[0]
    assert len(log) == STEPS and {worker for worker, *_ in log[STEPS // 2 + 1 :]} == {0}


def test_the_job_does_not_survive_its_parameter_server(tmp_path):
    outcomes = cluster(2).outcomes(on_task, one_weight, 0.0, "ps 0", str(tmp_path))
    assert {o.task: o.value for o in outcomes}["chief"] == "UnavailableError"


def fit(coordinator, folder):
    import keras
    import tensorflow as tf

    with coordinator.strategy.scope():
        model = cu.models.linear(seed=0)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = np.zeros((32, 28, 28, 1), "uint8"), np.zeros(32, "int64")
    try:
        model.fit(tf.data.Dataset.from_tensor_slices(data).batch(BATCH), verbose=0)
    except ValueError as error:
        return str(error)


def test_fit_of_keras_3_refuses_a_parameter_server(tmp_path):
    assert "create_per_worker_dataset" in cluster(1).run(on_task, fit, str(tmp_path))[0]
