"""Workers that are spawned, as on macOS and Windows, do the same as forked ones."""

import os
import subprocess
import sys
from pathlib import Path

import cluster_jobs as jobs
import psutil
import pytest

from course_utils.cluster import LocalCluster, WorkerDied, WorkerError, pool
from course_utils.cluster.probes import gpu_share
from course_utils.errors import ConfigError

QUIET = {"output": "quiet", "timeout": 60}


def test_spawned_workers_join_add_up_and_end():
    def work():
        return jobs.join_and_add_up(), os.getpid()

    cluster = LocalCluster(2, 2, start_method="spawn", **QUIET)
    results = cluster.run(work)
    assert [result for result, _ in results] == [("worker 0", 10.0), ("worker 1", 10.0)]
    assert not any(psutil.pid_exists(pid) for _, pid in results)
    assert [[stage for stage, _ in worker] for worker in cluster.timeline] == [
        ["start", "server up", "connected", "first step", "exit"]
    ] * 2


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        (jobs.raise_mine, WorkerError, "Worker 0 raised ValueError: my own mistake"),
        (jobs.kill_myself, WorkerDied, "Worker 0 was killed by SIGKILL"),
    ],
)
def test_a_spawned_worker_that_fails_is_told_the_same_way(how, error, words):
    with pytest.raises(error, match=words):
        LocalCluster(1, start_method="spawn", **QUIET).run(how)


def test_linux_forks_and_others_spawn(monkeypatch):
    assert pool.default_method() == ("fork" if sys.platform == "linux" else "spawn")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert LocalCluster(1).start_method == "spawn"


def test_an_unknown_start_method_is_refused():
    with pytest.raises(ConfigError, match="start_method"):
        LocalCluster(1, start_method="teleport")


def test_the_warm_process_has_no_thread_that_a_fork_would_lose_and_no_device():
    LocalCluster(1, **QUIET).warm_up()
    assert psutil.Process(pool.the_pool().process.pid).num_threads() == 1

    def devices_in_use():
        from course_utils.cluster import probes

        return probes.devices_in_use()

    assert LocalCluster(1, **QUIET).run(devices_in_use) == [False]


def test_forked_workers_draw_different_random_numbers_as_separate_programs_do():
    def draw():
        import random

        import keras
        import numpy as np
        import tensorflow as tf

        return [
            random.random(),
            np.random.rand(),
            float(tf.random.uniform([])),
            float(keras.random.uniform([1])[0]),
        ]

    cluster = LocalCluster(1, **QUIET)
    drawn = [cluster.run(draw)[0] for _ in range(2)]
    assert all(a != b for a, b in zip(*drawn, strict=True))


@pytest.mark.parametrize(
    ("gpus", "shares"), [(4, [["g0", "g1"], ["g2", "g3"]]), (3, [[], []]), (0, [[], []])]
)
def test_gpus_are_shared_out_only_where_there_are_enough_for_all(gpus, shares):
    names = [f"g{number}" for number in range(gpus)]
    assert [gpu_share(names, number, 2, 2) for number in range(2)] == shares


def test_workers_see_the_callers_environment_of_now_and_what_is_set_for_them(monkeypatch):
    def read():
        return [os.environ.get(name) for name in ("COLOUR", "SHAPE", "COURSE_WORKER")]

    cluster = LocalCluster(2, env={"COLOUR": "green"}, **QUIET).warm_up()
    monkeypatch.setenv("SHAPE", "round")
    assert cluster.run(read) == [["green", "round", "worker 0"], ["green", "round", "worker 1"]]
    monkeypatch.delenv("SHAPE")
    assert [shape for _, shape, _ in cluster.run(read)] == [None, None]
    assert "COLOUR" not in os.environ and "TF_CONFIG" not in os.environ


def test_tensorflows_own_messages_are_off_and_can_be_turned_on():
    silent = LocalCluster(1, **QUIET)
    silent.run(jobs.join_and_add_up)
    assert silent.logs == [""]
    loud = LocalCluster(1, env={"TF_CPP_MIN_LOG_LEVEL": "0"}, **QUIET)
    loud.run(jobs.join_and_add_up)
    assert "Started server with target" in loud.logs[0]


def test_a_warm_process_that_cannot_import_says_why(tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('no such library here')")
    code = "import course_utils as cu; cu.LocalCluster(1).warm_up()"
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "ClusterError" in run.stderr and "no such library here" in run.stderr
