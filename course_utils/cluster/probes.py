"""Inside a worker: devices and threads, set before TensorFlow starts; hooks that tell how far it has got."""

import functools
import os

from course_utils.errors import ConfigError


def share_out(number: int, workers: int, devices: int, threads: int) -> None:
    """Give worker `number` of `workers` its devices and threads. Before any operation of TensorFlow."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, threads, devices))
    gpus = tf.config.list_physical_devices("GPU")
    mine = gpu_share(gpus, number, workers, devices)
    if gpus:
        tf.config.set_visible_devices(mine, "GPU")
    if devices > 1 and not mine:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
        from course_utils.upstream import devices_per_worker

        devices_per_worker.enable()


def gpu_share(gpus: list, number: int, workers: int, devices: int) -> list:
    """The GPUs of worker `number`: none unless there are enough for all, so that all train alike."""
    return gpus[number * devices : (number + 1) * devices] if len(gpus) >= workers * devices else []


def install(job, caller) -> None:
    """Report to `caller` when a strategy is made and when the first step is done; check what it sees."""
    _watch_strategy(job, caller)
    _watch_first_step(caller)


def check_untouched(task: str, function) -> None:
    """ConfigError if bringing the function here has used TensorFlow: no cluster could be joined any more."""
    if not devices_in_use():
        return
    name = getattr(function, "__name__", "the function")
    raise ConfigError(
        f"{name} brings tensors, variables or a model of the notebook along, so TensorFlow was in use in "
        f"{task} before the strategy could be made.",
        cure=f"Pass NumPy arrays, and make models inside {name}, under the strategy's scope.",
    )


def devices_in_use() -> bool:
    """Whether TensorFlow has started its devices, after which no cluster can be joined any more."""
    import tensorflow as tf

    now = tf.config.threading.get_inter_op_parallelism_threads()
    try:  # the one public thing that is refused from then on; changed there and back
        tf.config.threading.set_inter_op_parallelism_threads(now + 1)
        tf.config.threading.set_inter_op_parallelism_threads(now)
    except RuntimeError:
        return True
    return False


def _watch_strategy(job, caller) -> None:
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy
    original = strategy.__init__
    connected = []

    @functools.wraps(original)
    def watched(self, *args, **kwargs):
        if not connected and job.alone_is_wrong:
            if not _resolver(args, kwargs):
                _check_can_join(job)
            caller.send("strategy", None if _resolver(args, kwargs) else os.environ["TF_CONFIG"])
        original(self, *args, **kwargs)
        if not connected:
            connected.append(True)
            caller.stage("connected")

    strategy.__init__ = watched


def _resolver(args, kwargs):
    return kwargs.get("cluster_resolver", args[0] if args else None)


def _check_can_join(job) -> None:
    task = job.task[0].upper() + job.task[1:]
    if not os.environ.get("TF_CONFIG"):
        raise ConfigError(
            f"{task} made its strategy without TF_CONFIG: it would train alone, and the others would wait "
            "for it for ever.",
            cause="TF_CONFIG is set after the strategy is made, or was removed.",
            cure='Set os.environ["TF_CONFIG"] before MultiWorkerMirroredStrategy() is called.',
        )
    if devices_in_use():
        raise ConfigError(
            f"{task} used TensorFlow before it made its strategy: its devices are started, and it cannot "
            "join a cluster any more.",
            cause="a tensor, a variable, a dataset or a model was made first.",
            cure="Make MultiWorkerMirroredStrategy() the first TensorFlow call of the function.",
        )


def _watch_first_step(caller) -> None:
    """The first call of a tf.function, of strategy.run or strategy.reduce that comes to an end."""
    import tensorflow as tf

    targets = [(type(tf.function(lambda: None)), "__call__")]
    targets += [(tf.distribute.Strategy, name) for name in ("run", "reduce")]
    originals = [(kind, name, getattr(kind, name)) for kind, name in targets]

    reported = []

    def first_step_done():
        if not reported:
            reported.append(True)
            for kind, name, original in originals:
                setattr(kind, name, original)
            caller.stage("first step")

    for kind, name, original in originals:
        setattr(kind, name, _reporting(original, first_step_done))


def _reporting(original, done):
    @functools.wraps(original)
    def call(*args, **kwargs):
        result = original(*args, **kwargs)
        import tensorflow as tf

        if tf.executing_eagerly():
            done()
        return result

    return call
