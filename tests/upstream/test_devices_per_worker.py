"""A worker with several CPU devices has as many replicas, when asked for."""

import pytest
from upstream_matrix import cluster


@pytest.mark.parametrize(("mend", "replicas"), [(False, 2), (True, 6)])
def test_two_workers_with_three_devices(mend, replicas):
    """Without the mend TensorFlow takes one device a worker and says nothing: the fault is still there."""
    assert cluster(2, 3).run(count_replicas, mend) == [(replicas, replicas)] * 2


def count_replicas(mend):
    """(replicas, what an all-reduce of ones over them gives)."""
    import tensorflow as tf
    from tensorflow.python.distribute import collective_all_reduce_strategy

    from course_utils.upstream import _guard, devices_per_worker

    devices_per_worker.enable()
    devices_per_worker.enable()
    if not mend:  # a cluster of the course enables it where it is needed
        _guard.restore(
            collective_all_reduce_strategy.CollectiveAllReduceExtended, "_initialize_local_devices"
        )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    ones = strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
    return strategy.num_replicas_in_sync, float(strategy.experimental_local_results(ones)[0])
