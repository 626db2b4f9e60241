"""An iterator of a distributed dataset ends at once when the cure is on. Measured as a ratio, in one process."""

import pytest
from upstream_matrix import alone

from course_utils.upstream import epoch_end_stall

# The thread that nobody wakes sleeps for 10 ms x 2^k: at these ages most of a sleep is still to come.
AGES = (0.35, 0.7, 0.36, 0.72, 0.35)


def stalls_for(ages):
    """{cure on: for each age of an iterator, how long it took to end, over that age}."""
    import threading
    import time

    import tensorflow as tf

    from course_utils.upstream import epoch_end_stall

    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(64).batch(4))

    def stall(age):
        iterator = iter(data)
        next(iterator)
        threading.Event().wait(age)
        start = time.perf_counter()
        del iterator
        return (time.perf_counter() - start) / age

    seen = {True: [], False: []}
    for age in ages:
        for on in (True, False):
            (epoch_end_stall.enable if on else epoch_end_stall.disable)()
            seen[on].append(stall(age))
    return seen


def test_the_cure_takes_the_stall_away():
    """The median of five, both ways in turn: one slow moment of the machine decides nothing."""
    seen = alone(stalls_for, AGES, devices=2)
    cured, stalled = (sorted(seen[on])[len(AGES) // 2] for on in (True, False))
    assert cured < stalled / 4, seen


def mended():
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    before = module._create_device_dataset
    epoch_end_stall.enable()
    once = module._create_device_dataset
    epoch_end_stall.enable()
    again = module._create_device_dataset
    epoch_end_stall.disable()
    epoch_end_stall.disable()
    return {
        "changes": once is not before,
        "twice is once": again is once,
        "disable restores": module._create_device_dataset is before,
    }


@pytest.mark.parametrize("what", ["changes", "twice is once", "disable restores"])
def test_enable_and_disable_may_be_repeated(what):
    assert mended()[what]
