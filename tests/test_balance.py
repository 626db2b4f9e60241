"""Shares by speed: in proportion, complete, and with a gradient that is still that of the whole batch."""

import time

import numpy as np
import pytest

from course_utils import balance


@pytest.mark.parametrize(
    "speeds, batch, wanted",
    [
        ([1, 1], 64, [32, 32]),
        ([3, 1], 64, [48, 16]),
        ([300.0, 100.0, 200.0], 60, [30, 10, 20]),
        ([1, 1, 1], 64, [22, 21, 21]),
        ([9, 1], 10, [9, 1]),
        ([1000, 1], 8, [7, 1]),
        ([1], 5, [5]),
    ],
)
def test_shares_are_in_proportion_to_the_speeds(speeds, batch, wanted):
    assert balance.shares(speeds, batch) == wanted


def test_no_example_is_lost_and_everybody_gets_one():
    random = np.random.default_rng(0)
    for _ in range(300):
        speeds = random.uniform(0.01, 10, random.integers(1, 9))
        batch = int(random.integers(len(speeds), 200))
        found = np.array(balance.shares(speeds, batch))
        assert found.sum() == batch and found.min() >= 1
        exact = speeds / speeds.sum() * batch
        assert np.all(found[exact >= len(speeds)] > exact[exact >= len(speeds)] - len(speeds))
        assert np.all(found < exact + 1 + 1e-9)


@pytest.mark.parametrize("speeds", [[], [0, 1], [-1, 1], [float("nan"), 1], [float("inf"), 1], [[1], [2]]])
def test_what_is_no_speed_is_refused(speeds):
    with pytest.raises(ValueError, match="above 0"):
        balance.shares(speeds, 10)
    with pytest.raises(ValueError, match="above 0"):
        balance.step_seconds([1] * len(speeds), speeds)


def test_what_is_no_speed_or_no_batch_is_refused_everywhere():
    with pytest.raises(ValueError, match="above 0"), balance.at_speed(5, 0):
        pass
    with pytest.raises(ValueError, match="whole number of examples"):
        balance.shares([1, 2], 10.5)


def test_a_batch_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="2 examples are not enough for 3 workers"):
        balance.shares([1, 1, 1], 2)


def test_with_shares_by_speed_nobody_waits_and_the_step_is_shorter():
    speeds = [300, 100]
    equal, by_speed = [32, 32], balance.shares(speeds, 64)
    assert balance.step_seconds(equal, speeds) == 0.32 and balance.step_seconds(by_speed, speeds) == 0.16
    assert balance.waiting(equal, speeds) == pytest.approx([2 / 3, 0])
    assert balance.waiting(by_speed, speeds) == pytest.approx([0, 0])


def test_at_speed_lasts_as_long_as_the_slow_machine_would_need():
    start = time.perf_counter()
    with balance.at_speed(examples=30, speed=600):
        pass
    assert time.perf_counter() - start >= 0.05  # a busy machine only adds to it


def test_at_speed_does_not_wait_for_what_took_longer_anyway(monkeypatch):
    slept = []
    monkeypatch.setattr(balance.time, "sleep", slept.append)
    with balance.at_speed(examples=1, speed=1e9):
        sum(range(1000))
    assert slept == [0.0]
