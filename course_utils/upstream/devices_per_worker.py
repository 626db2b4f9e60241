"""Several CPU devices on one worker of `MultiWorkerMirroredStrategy`.

Fault: without a GPU the strategy uses one replica a worker, however many virtual CPU devices the worker has,
    and says nothing: `num_replicas_in_sync` is the number of workers. `CollectiveAllReduceExtended` counts
    the worker's GPUs and writes 1 where there are none, though the collectives run on any device.
Reported: not as a fault; the 1 is a constant in `_initialize_local_devices`. Who simulates a machine with
    several devices meets it; https://github.com/tensorflow/tensorflow/issues/61314 is about such replicas.
Tested with: TensorFlow 2.21.0.
Cure: where the original answers "CPU", answer with all CPU devices of this worker. Machines with GPUs or TPUs
    see no change.
"""

import functools

from course_utils.upstream import _guard

_MEND = "devices_per_worker"
_TESTED = {"tensorflow": ("2.21.0",)}
_METHOD = "_initialize_local_devices"
_DIGEST = "7bdb3c57969022f8"


def enable() -> None:
    """None; from now on a strategy made in this process has a replica for each CPU device of the worker.

    Call it before `MultiWorkerMirroredStrategy()`, after the virtual devices were set. Safe to call again.
    Raises UpstreamError on a version that was not tested.
    """
    from tensorflow.python.distribute import collective_all_reduce_strategy as strategy_module

    extended = strategy_module.CollectiveAllReduceExtended
    if not _guard.is_mended(extended, _METHOD):
        _guard.check_versions(_MEND, _TESTED)
        _guard.check_sources(_MEND, {(extended, _METHOD): _DIGEST})
    _guard.replace(_MEND, extended, _METHOD, _with_all_cpus)


def _with_all_cpus(original):
    @functools.wraps(original)
    def initialize_local_devices(self, cluster_resolver, worker_device):
        devices, kind = original(self, cluster_resolver, worker_device)
        if kind == "CPU":
            devices = tuple(f"{worker_device}/device:CPU:{i}" for i in range(_local_cpus()))
        return devices, kind

    return initialize_local_devices


def _local_cpus() -> int:
    import tensorflow as tf

    # In a cluster the list may also name devices of other workers; only this task's are ours to use.
    devices = [tf.DeviceSpec.from_string(device.name) for device in tf.config.list_logical_devices("CPU")]
    here = tf.DeviceSpec.from_string(tf.constant(0).device)
    return sum((device.job, device.task) == (here.job, here.task) for device in devices)
