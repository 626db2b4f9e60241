"""Workers of unequal speed: how many examples of each batch to give to whom.

Synchronous training waits for the slowest in every step. With equal shares a worker at half the speed makes
all others idle half the time; with shares by speed all finish together. The gradient stays that of the whole
batch if each example counts once: divide by the global batch, not by the share (`training.average_loss`).
"""

import contextlib
import time
from collections.abc import Iterator, Sequence

import numpy as np


def shares(speeds: Sequence[float], global_batch_size: int) -> list[int]:
    """How many examples of a batch each worker gets: whole numbers in proportion to `speeds`, none lost.

    speeds: examples a second, or anything in proportion to that; all above 0. Each gets at least one example,
    since a replica without any can turn means into NaN. Raises ValueError where that cannot be.
    """
    speeds = _checked(speeds)
    if global_batch_size != int(global_batch_size):
        raise ValueError(f"a batch is a whole number of examples, got {global_batch_size}")
    if global_batch_size < len(speeds):
        raise ValueError(f"{global_batch_size} examples are not enough for {len(speeds)} workers")
    exact = speeds / speeds.sum() * global_batch_size
    whole = np.floor(exact).astype(int)
    by_remainder = np.argsort(whole - exact, kind="stable")
    whole[by_remainder[: int(global_batch_size) - whole.sum()]] += 1
    while not whole.all():
        whole[whole.argmin()] += 1
        whole[whole.argmax()] -= 1
    return whole.tolist()


def step_seconds(shares: Sequence[int], speeds: Sequence[float]) -> float:
    """Seconds of computing in one step: those of the worker that finishes last. Raises as `shares` does."""
    speeds = _checked(speeds)
    return max(share / speed for share, speed in zip(shares, speeds, strict=True))


def waiting(shares: Sequence[int], speeds: Sequence[float]) -> list[float]:
    """The part of each step, from 0 to 1, in which each worker waits for the slowest."""
    last = step_seconds(shares, speeds)
    return [1 - share / speed / last for share, speed in zip(shares, speeds, strict=True)]


@contextlib.contextmanager
def at_speed(examples: int, speed: float) -> Iterator[None]:
    """A context that lasts as long as a machine needs that computes `speed` examples a second.

    To imitate slow machines on a fast one: what is done in it must take less, and the rest is slept through.
    """
    (speed,) = _checked([speed])
    end = time.perf_counter() + examples / speed
    yield
    time.sleep(max(0.0, end - time.perf_counter()))


def _checked(speeds) -> np.ndarray:
    speeds = np.asarray(speeds, float)
    if speeds.ndim != 1 or not len(speeds) or not (np.isfinite(speeds).all() and (speeds > 0).all()):
        raise ValueError(f"speeds must be finite numbers above 0, got {speeds.tolist()}")
    return speeds
