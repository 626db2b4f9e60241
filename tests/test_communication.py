"""All-reduce in NumPy: the right sum on every rank, and exactly the messages and bytes of the laws."""

import numpy as np
import pytest

from course_utils import communication
from course_utils.communication import Network, gather_and_broadcast, hierarchical_all_reduce, ring_all_reduce


def arrays(n, shape=(12, 10), dtype=np.float32):
    """Whole numbers, so that sums are exact in any order."""
    random = np.random.default_rng(n)
    return [random.integers(-9, 9, shape).astype(dtype) for _ in range(n)]


WAYS = {
    "ring": ring_all_reduce,
    "gather": gather_and_broadcast,
    "hierarchical": lambda held: hierarchical_all_reduce(held, 2 if len(held) % 2 == 0 else 1),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("shape", [(12, 10), (7,), (1,), ()])
def test_every_rank_ends_with_the_sum_and_keeps_its_input(way, n, shape):
    held = arrays(n, shape)
    before = [array.copy() for array in held]
    result, _ = WAYS[way](held)
    assert len(result) == n
    for mine, kept, given in zip(result, held, before, strict=True):
        assert mine.shape == shape and mine.dtype == np.float32
        np.testing.assert_array_equal(mine, np.sum(before, axis=0))
        np.testing.assert_array_equal(kept, given)


def test_ranks_do_not_share_one_array():
    for way in WAYS.values():
        result, _ = way(arrays(4))
        result[0][...] = 0
        assert result[1].any()


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_the_ring_sends_2_n_minus_1_messages_and_2_n_minus_1_over_n_of_the_array(n):
    held = arrays(n, (n * 30,))
    _, traffic = ring_all_reduce(held)
    size = held[0].nbytes
    assert traffic.messages == [2 * (n - 1)] * n
    assert traffic.bytes_sent == traffic.bytes_received == [2 * (n - 1) * size // n] * n
    assert traffic.total_bytes == 2 * (n - 1) * size
    neighbours = {(a, (a + 1) % n) for a in range(n)}
    assert set(zip(*map(list, np.nonzero(traffic.messages_between)), strict=True)) == neighbours


@pytest.mark.parametrize("n", [2, 5])
def test_gather_and_broadcast_makes_one_rank_the_bottleneck(n):
    held = arrays(n)
    _, traffic = gather_and_broadcast(held)
    size = held[0].nbytes
    assert traffic.bytes_sent == [(n - 1) * size] + [size] * (n - 1)
    assert traffic.messages == [n - 1] + [1] * (n - 1)
    assert traffic.busiest == (n - 1) * size


@pytest.mark.parametrize(("n", "group"), [(4, 2), (8, 2), (8, 4), (6, 3), (4, 4), (4, 1)])
def test_hierarchical_sends_less_between_groups(n, group):
    held = arrays(n, (240,))
    _, traffic = hierarchical_all_reduce(held, group)
    groups, size = n // group, held[0].nbytes
    assert traffic.bytes_across(group) == 2 * (groups - 1) * size
    if 1 < group < n:
        assert traffic.bytes_across(group) < ring_all_reduce(held)[1].bytes_across(group)


def test_float16_halves_the_bytes():
    single, half = (ring_all_reduce(arrays(4, (16,), dtype))[1] for dtype in (np.float32, np.float16))
    assert half.total_bytes * 2 == single.total_bytes


@pytest.mark.parametrize("wrong", [[np.zeros(2), np.zeros(3)], [np.zeros(2), np.zeros(2, np.float32)], []])
def test_arrays_that_do_not_fit_are_refused(wrong):
    for way in WAYS.values():
        with pytest.raises(ValueError, match="one array a rank"):
            way(wrong)


@pytest.mark.parametrize("group", [0, 3, 5, -1])
def test_groups_must_divide_the_ranks(group):
    with pytest.raises(ValueError, match="groups of"):
        hierarchical_all_reduce(arrays(4), group)


def test_a_message_is_a_copy_delivered_in_order_and_counted():
    network = Network(2)
    held = np.ones(3, np.float32)
    network.send(0, 1, held)
    held[:] = 7
    network.send(0, 1, held)
    assert network.undelivered() == 2
    assert network.receive(1, 0).tolist() == [1, 1, 1]
    assert network.receive(1, 0).tolist() == [7, 7, 7]
    assert network.undelivered() == 0
    assert network.traffic().messages == [2, 0] and network.traffic().bytes_sent == [24, 0]


def test_waiting_for_what_was_never_sent_is_called_a_dead_lock():
    with pytest.raises(ValueError, match=r"rank 1 waits for rank 0.*dead-lock"):
        Network(2).receive(1, 0)


@pytest.mark.parametrize(("source", "target"), [(0, 0), (0, 2), (-1, 1)])
def test_a_message_needs_two_ranks_that_exist(source, target):
    with pytest.raises(ValueError, match="rank"):
        communication.Network(2).send(source, target, np.ones(1))
