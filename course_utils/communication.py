"""All-reduce in NumPy, one message at a time, with every message and byte counted.

`n` ranks hold one array each, all of one shape. After an all-reduce every rank holds the element-wise sum.
The three ways here agree in the result and differ in what each rank must send:

    gather and broadcast   rank 0 sends (n-1)·S, the others S         S = bytes of one array
    ring                   every rank sends 2·(n-1)/n·S
    hierarchical           to a leader in each group, a ring of leaders, and back: few bytes between groups

Sources: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009;
Jia et al., Highly scalable deep learning training system, arXiv:1807.11205 (hierarchical).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Traffic:
    """What was sent: `messages[a][b]` and `bytes[a][b]` count what rank a sent to rank b."""

    messages_between: np.ndarray
    bytes_between: np.ndarray

    @property
    def messages(self) -> list[int]:
        """Messages sent by each rank."""
        return self.messages_between.sum(axis=1).tolist()

    @property
    def bytes_sent(self) -> list[int]:
        """Bytes sent by each rank."""
        return self.bytes_between.sum(axis=1).tolist()

    @property
    def bytes_received(self) -> list[int]:
        """Bytes received by each rank."""
        return self.bytes_between.sum(axis=0).tolist()

    @property
    def total_bytes(self) -> int:
        """Bytes sent by all ranks together."""
        return int(self.bytes_between.sum())

    @property
    def busiest(self) -> int:
        """Bytes that the busiest rank sends or receives: with equal links, it sets the time."""
        return max(self.bytes_sent + self.bytes_received)

    def bytes_across(self, group_size: int) -> int:
        """Bytes that leave a group of `group_size` neighbouring ranks (a machine, a rack), in total."""
        group = np.arange(len(self.bytes_between)) // group_size
        return int(self.bytes_between[group[:, None] != group[None, :]].sum())


class Network:
    """A network of `n` ranks that delivers in order and counts.

    `send(source, target, array)` puts a copy on its way; `receive(target, source)` takes the oldest one out.
    Sending to oneself or receiving what was never sent raises ValueError: a real program would hang.
    """

    def __init__(self, n: int):
        self.size = n
        self._messages = np.zeros((n, n), dtype=int)
        self._bytes = np.zeros((n, n), dtype=int)
        self._on_the_way = {}

    def send(self, source: int, target: int, array: np.ndarray) -> None:
        self._check(source, target)
        array = np.array(array)  # a copy: what the sender does to its array later must not travel
        self._messages[source, target] += 1
        self._bytes[source, target] += array.nbytes
        self._on_the_way.setdefault((source, target), deque()).append(array)

    def receive(self, target: int, source: int) -> np.ndarray:
        self._check(source, target)
        waiting = self._on_the_way.get((source, target))
        if not waiting:
            raise ValueError(f"rank {target} waits for rank {source}, which has sent nothing: a dead-lock")
        return waiting.popleft()

    def undelivered(self) -> int:
        """Messages sent and never received."""
        return sum(map(len, self._on_the_way.values()))

    def traffic(self) -> Traffic:
        """What was sent so far."""
        return Traffic(self._messages.copy(), self._bytes.copy())

    def _check(self, source, target):
        for rank in (source, target):
            if not 0 <= rank < self.size:
                raise ValueError(f"there is no rank {rank}: ranks go from 0 to {self.size - 1}")
        if source == target:
            raise ValueError(f"rank {source} sends to itself: that is no message")


def ring_all_reduce(
    arrays: Sequence[np.ndarray], network: Network | None = None
) -> tuple[list[np.ndarray], Traffic]:
    """The sum on every rank, and the traffic of a ring: 2(n-1) messages a rank, each 1/n of the array.

    `arrays`: one per rank, same shape and dtype; left as they are. Raises ValueError when they differ.
    """
    arrays = _checked(arrays)
    network = network or Network(len(arrays))
    reduced = _ring(network, range(len(arrays)), [array.ravel() for array in arrays])
    return [flat.reshape(arrays[0].shape) for flat in reduced], network.traffic()


def gather_and_broadcast(
    arrays: Sequence[np.ndarray], network: Network | None = None
) -> tuple[list[np.ndarray], Traffic]:
    """The sum on every rank, and the traffic when rank 0 collects all, adds, and sends the sum back.

    `arrays`: as for `ring_all_reduce`.
    """
    arrays = _checked(arrays)
    network = network or Network(len(arrays))
    others = range(1, len(arrays))
    for rank in others:
        network.send(rank, 0, arrays[rank])
    total = arrays[0].copy()
    for rank in others:
        total += network.receive(0, rank)
    for rank in others:
        network.send(0, rank, total)
    return [total, *(network.receive(rank, 0) for rank in others)], network.traffic()


def hierarchical_all_reduce(
    arrays: Sequence[np.ndarray], group_size: int, network: Network | None = None
) -> tuple[list[np.ndarray], Traffic]:
    """The sum on every rank, and the traffic of: reduce in each group, ring of leaders, broadcast.

    A group is `group_size` neighbouring ranks, as on one machine; its first rank leads. Only leaders talk to
    other groups, so what crosses is 2(g-1)·S in all for g groups, however many ranks a group has.
    Raises ValueError when `group_size` does not divide the number of ranks.
    """
    arrays = _checked(arrays)
    n = len(arrays)
    if not 1 <= group_size <= n or n % group_size:
        raise ValueError(f"{n} ranks do not make groups of {group_size}")
    network = network or Network(n)
    leaders = range(0, n, group_size)
    sums = [_reduce_to_leader(network, arrays, leader, group_size) for leader in leaders]
    sums = _ring(network, leaders, [total.ravel() for total in sums])
    result = []
    for leader, total in zip(leaders, sums, strict=True):
        result += _broadcast(network, leader, group_size, total.reshape(arrays[0].shape))
    return result, network.traffic()


def _checked(arrays) -> list[np.ndarray]:
    arrays = [np.asarray(array) for array in arrays]
    kinds = {(array.shape, array.dtype) for array in arrays}
    if len(kinds) != 1:
        raise ValueError(
            f"an all-reduce needs one array a rank, of one shape and dtype; got {sorted(map(str, kinds))}"
        )
    return arrays


def _ring(network, ranks, flats):
    """Sums over `ranks`, each with a flat array: n-1 rounds that add, then n-1 rounds that pass on."""
    n = len(ranks)
    chunks = [[chunk.copy() for chunk in np.array_split(flat, n)] for flat in flats]

    def pass_on(chunk_of, take):
        for me in range(n):
            network.send(ranks[me], ranks[(me + 1) % n], chunks[me][chunk_of(me)])
        for me in range(n):
            before = (me - 1) % n
            take(me, chunk_of(before), network.receive(ranks[me], ranks[before]))

    def add(me, chunk, received):
        chunks[me][chunk] += received

    def replace(me, chunk, received):
        chunks[me][chunk] = received

    for turn in range(n - 1):  # reduce-scatter: rank r ends with the whole sum of chunk r+1
        pass_on(lambda me, turn=turn: (me - turn) % n, add)
    for turn in range(n - 1):  # all-gather
        pass_on(lambda me, turn=turn: (me + 1 - turn) % n, replace)
    return [np.concatenate(mine) for mine in chunks]


def _reduce_to_leader(network, arrays, leader, group_size):
    total = arrays[leader].copy()
    for rank in range(leader + 1, leader + group_size):
        network.send(rank, leader, arrays[rank])
        total += network.receive(leader, rank)
    return total


def _broadcast(network, leader, group_size, total):
    others = range(leader + 1, leader + group_size)
    for rank in others:
        network.send(leader, rank, total)
    return [total, *(network.receive(rank, leader) for rank in others)]


@dataclass(frozen=True)
class Message:
    """One array that travelled: in which round, from which rank, to which rank."""

    round: int
    source: int
    target: int
    array: np.ndarray


class Recorder(Network):
    """A network that also keeps each message and the round in which it can travel, counted from 1.

    In one round a rank sends at most one message and receives at most one, and what it passes on it must have
    received in an earlier round. So `rounds` is how many messages the slowest path takes in a row.
    """

    def __init__(self, n: int):
        super().__init__(n)
        self.messages: list[Message] = []
        self._sending, self._receiving, self._heard = [0] * n, [0] * n, [0] * n
        self._rounds_on_the_way = {}

    @property
    def rounds(self) -> int:
        """Rounds needed so far."""
        return max((message.round for message in self.messages), default=0)

    def send(self, source: int, target: int, array: np.ndarray) -> None:
        super().send(source, target, array)
        turn = 1 + max(self._sending[source], self._receiving[target], self._heard[source])
        self._sending[source] = self._receiving[target] = turn
        self._rounds_on_the_way.setdefault((source, target), deque()).append(turn)
        self.messages.append(Message(turn, source, target, np.array(array)))

    def receive(self, target: int, source: int) -> np.ndarray:
        array = super().receive(target, source)
        self._heard[target] = max(self._heard[target], self._rounds_on_the_way[source, target].popleft())
        return array


def holdings(all_reduce, n: int) -> list[list[list[set[int]]]]:
    """Whose numbers each rank holds as an all-reduce goes on: `[round][rank][chunk]` is a set of ranks.

    `all_reduce(arrays, network)` is run on arrays of `n` numbers, one a chunk, that tell who contributed: bit
    r of a sum is set when rank r is in it. Round 0 is the start. `n` is at most 7, so that the bits fit.
    """
    network = Recorder(n)
    all_reduce([np.array([1 << (n * chunk + rank) for chunk in range(n)]) for rank in range(n)], network)
    frames = [[[{rank} for _ in range(n)] for rank in range(n)]]
    for turn in range(1, network.rounds + 1):
        frame = [[set(held) for held in mine] for mine in frames[-1]]
        for message in network.messages:
            if message.round == turn:
                for chunk, ranks in _contributors(message.array, n):
                    frame[message.target][chunk] |= ranks
        frames.append(frame)
    return frames


def _contributors(array, n):
    """For each number of a message: its chunk, and the ranks whose bits are in it."""
    for number in map(int, array):
        bits = [bit for bit in range(n * n) if number >> bit & 1]
        yield bits[0] // n, {bit % n for bit in bits}
