"""One machine, N devices: virtual CPUs, or the GPUs that are there.

TensorFlow can cut the one CPU of a machine into any number of *virtual devices*. Each is a device in its own
right, with its own copy of every mirrored variable, so what runs on four of them runs on four GPUs too. They
share the cores, so they do not make anything faster.

Source: https://www.tensorflow.org/guide/gpu (logical devices), tf.distribute.MirroredStrategy.
"""

from __future__ import annotations

import logging
import operator

import tensorflow as tf

from course_utils.errors import DeviceError

MOST_DEVICES = 64  # each virtual device costs memory and threads; no lesson needs more than 8


def simulate(n: int) -> list[str]:
    """The names of `n` devices for a MirroredStrategy, such as `["CPU:0", "CPU:1"]`.

    GPUs where the machine has at least `n`, else virtual CPU devices. Call it before TensorFlow does its
    first work; after that, calling it again for the same number or fewer is fine (a cell that runs twice).

    Raises DeviceError when `n` is not a whole number from 1 to 64, or when TensorFlow has already started
    with fewer devices.
    """
    n = _checked(n)
    if len(tf.config.list_physical_devices("GPU")) >= n:
        return [f"GPU:{i}" for i in range(n)]
    if n > _cpu_devices():
        _configure(n)
    return [f"CPU:{i}" for i in range(n)]


def mirrored(n: int) -> tf.distribute.MirroredStrategy:
    """A MirroredStrategy over the first `n` devices; strategies of different sizes may share one process.

    Ask for the largest number first: `simulate(4)`, then `mirrored(1)`, `mirrored(2)`, `mirrored(4)`.
    Raises DeviceError as `simulate` does.
    """
    devices = simulate(n)
    logger = tf.get_logger()  # else it says where it reduces, in three lines a strategy
    logger.setLevel(max(logger.level, logging.WARNING))
    # MirroredStrategy's own collectives remember the first group size of a process and die at the second:
    # "joining a group with size 4, but that group has size 2" (tensorflow/tensorflow#61314).
    on_gpu = devices[0].startswith("GPU")
    reduction = tf.distribute.NcclAllReduce() if on_gpu else tf.distribute.ReductionToOneDevice()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=reduction)


def places(strategy: tf.distribute.Strategy, variable) -> dict[str, tuple[bool, bool]]:
    """{device: (holds a copy of the variable, computes)} as this process sees it, such as "worker 0, CPU:0".

    `variable` is Keras' or TensorFlow's, made in the strategy's scope. A coordinator of parameter servers
    does not know who will compute: there, only the devices that hold it are named.
    """
    variable = variable if isinstance(variable, tf.Variable) else variable.value  # Keras wraps it
    copies = strategy.experimental_local_results(variable)
    holding = {_short(copy.device) for copy in copies}
    remote = isinstance(strategy, tf.distribute.ParameterServerStrategy)
    computing = set() if remote else {_short(device) for device in strategy.extended.worker_devices}
    return {name: (name in holding, name in computing) for name in sorted(holding | computing)}


def _short(device):
    spec = tf.DeviceSpec.from_string(device)
    task = f"{spec.job} {spec.task}, " if spec.job not in (None, "localhost") else ""
    return f"{task}{spec.device_type}:{spec.device_index}"


def _checked(n) -> int:
    try:
        number = operator.index(n)
    except TypeError:
        number = 0
    if isinstance(n, bool) or not 1 <= number <= MOST_DEVICES:
        raise DeviceError(
            f"{n!r} devices were asked for.",
            expected=f"a whole number from 1 to {MOST_DEVICES}.",
            cure="Say how many replicas you want, for example simulate(4).",
        )
    return number


def _cpu_devices() -> int:
    """How many CPU devices this process has, or will have once TensorFlow starts."""
    configured = tf.config.get_logical_device_configuration(_cpu())
    return len(configured) if configured else 1


def _configure(n):
    had = _cpu_devices()
    try:
        tf.config.set_logical_device_configuration(_cpu(), [tf.config.LogicalDeviceConfiguration()] * n)
    except RuntimeError as error:
        raise DeviceError(
            f"This process has {had} device{'s' * (had > 1)} and can get no more, {n} were asked for.",
            cause="TensorFlow had already started: a tensor, a model or a strategy starts it.",
            cure=f"Restart the kernel, and ask for {n} before anything else: devices.simulate({n}).",
        ) from error


def _cpu():
    cpus = tf.config.list_physical_devices("CPU")
    if not cpus:
        raise DeviceError(
            "TensorFlow shows no CPU in this process.",
            cause="tf.config.set_visible_devices hid it.",
            cure="Restart the kernel and leave the CPU visible.",
        )
    return cpus[0]
