"""What a recorded all-reduce shows: its rounds, and whose numbers each rank holds on the way."""

import numpy as np
import pytest

from course_utils import communication
from course_utils.communication import Recorder


def rounds(all_reduce, n):
    network = Recorder(n)
    all_reduce([np.ones(2 * n) for _ in range(n)], network)
    return network.rounds


@pytest.mark.parametrize("n", [2, 3, 8])
def test_ring_and_star_take_the_same_number_of_rounds(n):
    assert rounds(communication.ring_all_reduce, n) == 2 * (n - 1)
    assert rounds(communication.gather_and_broadcast, n) == 2 * (n - 1)


def test_hierarchy_takes_fewer_rounds_since_groups_work_at_the_same_time():
    assert rounds(lambda arrays, network: communication.hierarchical_all_reduce(arrays, 4, network), 16) == 12


def test_a_message_can_not_leave_before_what_it_passes_on_has_come():
    network = Recorder(3)
    network.send(0, 1, np.ones(1))
    network.send(1, 2, network.receive(1, 0))
    assert [message.round for message in network.messages] == [1, 2]


def test_messages_of_different_ranks_share_a_round():
    network = Recorder(4)
    network.send(0, 1, np.ones(1))
    network.send(2, 3, np.ones(1))
    assert network.rounds == 1


def test_each_ring_round_brings_one_more_rank_into_one_chunk_of_each_rank():
    frames = communication.holdings(communication.ring_all_reduce, 4)
    most = [[max(len(held) for held in mine) for mine in frame] for frame in frames]
    assert most == [[1] * 4, [2] * 4, [3] * 4, [4] * 4, [4] * 4, [4] * 4, [4] * 4]
    assert all(held == {0, 1, 2, 3} for mine in frames[-1] for held in mine)


def test_through_rank_0_everything_is_there_first():
    frames = communication.holdings(communication.gather_and_broadcast, 4)
    complete = [[all(len(held) == 4 for held in mine) for mine in frame] for frame in frames]
    assert [sum(frame) for frame in complete] == [0, 0, 0, 1, 2, 3, 4]
