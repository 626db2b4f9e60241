"""A small `python -m tests.benchmarks.kill_points`: two random kills, and what it takes for one to fail."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests.benchmarks is run from the repository's root

from course_utils.cluster import LocalCluster, faults
from course_utils.cluster.ports import HeldPort
from tests.benchmarks import kill_points


@pytest.mark.parametrize(("job", "moment", "index"), [("loop", "write", 0), ("fit, backup", "step", 1)])
def test_a_worker_killed_at_random_costs_nothing(job, moment, index, tmp_path):
    quiet = {job: kill_points.undisturbed(job, tmp_path)}
    point = next(
        point
        for seed in range(100)
        for point in kill_points.points(20, dict.fromkeys(kill_points.JOBS, quiet[job]), seed)
        if (point.job, point.moment, point.fault.index) == (job, moment, index)
    )
    found = kill_points.strike(point, quiet[job], tmp_path)
    assert found.wrong == "" and found.apart <= 1e-6, kill_points.row(1, found)
    assert found.attempts[0].ending.culprit == f"worker {index}"
    assert "passed" in kill_points.row(1, found)


def test_points_come_from_the_seed_and_meet_every_job_moment_and_worker():
    quiet = dict.fromkeys(kill_points.JOBS, kill_points.Undisturbed([], start=1.0, write=0.02))
    twenty = kill_points.points(20, quiet, seed=3)
    assert twenty == kill_points.points(20, quiet, seed=3) != kill_points.points(20, quiet, seed=4)
    kinds = {(job, moment) for job, (_, moments) in kill_points.JOBS.items() for moment in moments}
    assert {(point.job, point.moment) for point in twenty} == kinds
    assert {point.fault.index for point in twenty} == {0, 1}
    assert all(faults.Fault.parse(str(point.fault)) == point.fault for point in twenty)


@pytest.mark.parametrize(
    ("apart", "hows", "found"),
    [
        (0.0, ["crashed", "finished"], []),
        (2e-6, ["crashed", "finished"], ["2.0e-06 apart"]),
        (float("nan"), ["crashed", "finished"], ["nan apart"]),
        (0.0, ["hung", "finished"], ["it hung"]),
        (0.0, ["finished"], ["it was not killed"]),
    ],
)
def test_what_makes_a_point_fail(apart, hows, found):
    assert kill_points.problems(apart, hows) == found


def test_an_orphan_and_its_port_make_a_point_fail():
    config = LocalCluster(1)._config
    held = HeldPort()
    try:
        free = config(["127.0.0.1:1"]).tf_configs()[0]
        assert kill_points.left_behind({2**22 + 1}, free) == []
        held._socket.listen()
        taken = config([held.address]).tf_configs()[0]
        assert kill_points.left_behind({os.getpid()}, taken) == [
            f"process {os.getpid()} is still there",
            f"{held.address} is taken",
        ]
    finally:
        held.release()
