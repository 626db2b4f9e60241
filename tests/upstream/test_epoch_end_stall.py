"""An iterator of a distributed dataset ends at once when the cure is on: a ratio, in one process."""

from upstream_matrix import alone

SEEN_ENOUGH = 1.0  # seconds of stall without the cure, before both ways are compared
MOST_PAIRS = 60


def test_the_cure_takes_the_stall_away():
    """Pairs, with and without, until the stall has shown itself; then the sums are compared.

    A stall is a matter of chance for each iterator, so a fixed number of them could see none. A busy machine
    delays both sides alike.
    """
    cured, stalled = alone(waits_at_the_end, SEEN_ENOUGH, MOST_PAIRS, devices=2)
    assert stalled > SEEN_ENOUGH, "The stall did not occur without the cure: is it still needed?"
    assert cured < stalled / 3


def waits_at_the_end(enough, most):
    """Seconds that iterators took to end: (with the cure, without it), summed over as many of each."""
    import threading
    import time

    import tensorflow as tf

    from course_utils.upstream import epoch_end_stall

    one_device = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=one_device)
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(6400).batch(4))

    def wait_at_the_end(age):
        iterator = iter(data)
        next(iterator)
        threading.Event().wait(age)  # the thread that nobody wakes sleeps longer with every time it slept
        start = time.perf_counter()
        del iterator
        return time.perf_counter() - start

    wait_at_the_end(0.1)  # the first iterator of a process also waits for what is made only once
    waited = {True: 0.0, False: 0.0}
    for pair in range(most):
        for cure in (True, False) if pair % 2 else (False, True):
            (epoch_end_stall.enable if cure else epoch_end_stall.disable)()
            waited[cure] += wait_at_the_end((0.1, 0.2, 0.35, 0.5, 0.7)[pair % 5])
        if waited[False] > enough and pair >= 4:
            break
    return waited[True], waited[False]


def test_enable_and_disable_may_be_repeated():
    seen = alone(repeated)
    assert seen == {"changes": True, "twice is once": True, "disable restores": True}


def repeated():
    from tensorflow.python.data.ops import multi_device_iterator_ops as module

    from course_utils.upstream import epoch_end_stall

    states = [module._create_device_dataset]
    for turn in (epoch_end_stall.enable,) * 2 + (epoch_end_stall.disable,) * 2:
        turn()
        states.append(module._create_device_dataset)
    own, once, twice, _, restored = states
    return {"changes": once is not own, "twice is once": twice is once, "disable restores": restored is own}
