"""An iterator of a distributed dataset ends at once when the cure is on: a ratio, in one process."""

from upstream_matrix import alone

A_STALL = 0.15  # seconds; without a stall an iterator ends in a few milliseconds
ENOUGH, MOST = 12, 100  # stalls to be seen without the cure; pairs at most


def test_the_cure_takes_the_stall_away():
    """Pairs of iterators, with and without the cure, until twelve of those without have stalled.

    Whether an iterator stalls is a matter of chance, so a fixed number of them could show anything. A busy
    machine may hold up one of either kind now and then, hence one in three. Were the cure none, as many
    would stall with it as without.
    """
    cured, stalled = alone(count_stalls, A_STALL, ENOUGH, MOST, devices=2)
    assert stalled == ENOUGH, "The stall did not occur without the cure: is it still needed?"
    assert cured <= stalled / 3


def count_stalls(a_stall, enough, most):
    """How many iterators stalled at their end, of equally many: (with the cure, without it)."""
    import threading
    import time

    import tensorflow as tf

    from course_utils.upstream import epoch_end_stall

    one_device = tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=one_device)
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.range(16).batch(4))

    def started(cure):
        (epoch_end_stall.enable if cure else epoch_end_stall.disable)()
        iterator = iter(data)
        for _ in range(4):
            next(iterator)
        return iterator

    def seconds_to_end(iterators):
        start = time.perf_counter()
        for _ in iterators[0]:
            pass
        iterators.clear()
        return time.perf_counter() - start

    stalls = {True: 0, False: 0}
    for pair in range(most):
        running = [(cure, [started(cure)]) for cure in ((True, False) if pair % 2 else (False, True))]
        threading.Event().wait(
            0.35
        )  # the thread that nobody wakes sleeps longer the longer it has been there
        for cure, iterator in running:
            stalls[cure] += seconds_to_end(iterator) > a_stall
        if stalls[False] == enough:
            break
    return stalls[True], stalls[False]


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
