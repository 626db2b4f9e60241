"""TensorBoard for a notebook: what it shows is there, and it is gone when it should be."""

import os
import signal
import socket
import subprocess
import sys
import urllib.parse

import psutil
import pytest

from course_utils import tensorboard
from course_utils.cluster import WorkerDied
from course_utils.errors import CourseError
from course_utils.tensorboard import TensorBoard, run_profiled, steps_in

LOSSES = [0.5, 0.25, 0.125]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Scalars of two workers, and a profile of one."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("logs")
    for worker in (0, 1):
        with tf.summary.create_file_writer(str(folder / f"worker-{worker}")).as_default():
            for step, loss in enumerate(LOSSES):
                tf.summary.scalar("loss", loss + worker, step)
    tf.profiler.experimental.start(str(folder / "worker-1"))
    for step in range(3):
        with tf.profiler.experimental.Trace(tensorboard.STEP, step_num=step):
            tf.matmul(tf.ones([50, 50]), tf.ones([50, 50]))
    tf.profiler.experimental.stop()
    return folder


@pytest.fixture(scope="module")
def board(logs):
    with TensorBoard(logs) as board:
        yield board.wait_for("worker-0", "worker-1")


def test_scalars_of_all_workers_are_there(board):
    assert sorted(board.runs()) == ["worker-0", "worker-1"]
    for worker in (0, 1):
        assert board.scalars()[f"worker-{worker}"]["loss"] == [
            (step, loss + worker) for step, loss in enumerate(LOSSES)
        ]


def test_the_profile_is_there_and_its_steps_are_in_the_trace(board):
    (profile,) = board.profiles()
    assert profile.startswith("worker-1/")
    steps = board.steps(profile)
    assert len(steps) == 3 and all(step["all"] > 0 and step["collectives"] == 0 for step in steps)


def test_nobody_on_another_machine_can_ask_it(board):
    listening = [c for c in psutil.Process(board._process.pid).net_connections() if c.status == "LISTEN"]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}


def test_a_run_that_is_not_there_is_named_after_a_while(board, monkeypatch):
    monkeypatch.setattr(tensorboard, "READ_DEADLINE", 0.1)
    with pytest.raises(CourseError, match="does not find worker-7"):
        board.wait_for("worker-0", "worker-7")


def test_in_jupyterlab_it_is_embedded_and_stays(board, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    monkeypatch.setenv("JPY_SESSION_NAME", "14.ipynb")
    board.show()
    assert f'<iframe src="{board.url}"' in shown[0].data and board.runs()


def test_where_nobody_looks_it_is_stopped(tmp_path, monkeypatch, capsys):
    for name in ("JPY_SESSION_NAME", "VSCODE_PID"):
        monkeypatch.delenv(name, raising=False)
    board = TensorBoard(tmp_path)
    port = urllib.parse.urlsplit(board.url).port
    board.show()
    assert "In JupyterLab" in capsys.readouterr().out
    assert_gone(board._process.pid, port)
    board.stop()  # once more is no error


KERNEL = """
import sys
from course_utils.tensorboard import TensorBoard
board = TensorBoard(sys.argv[1])
print(board._process.pid, board.url, flush=True)
sys.stdin.read()
"""


def test_it_ends_with_the_kernel_however_that_ends(tmp_path):
    kernel = subprocess.Popen(
        [sys.executable, "-c", KERNEL, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with kernel:
        pid, url = kernel.stdout.readline().split()
        os.kill(kernel.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(int(pid))] if psutil.pid_exists(int(pid)) else [], timeout=20)
    assert_gone(int(pid), urllib.parse.urlsplit(url).port)


def assert_gone(pid, port):
    assert not psutil.pid_exists(pid)
    with socket.socket() as asking:
        assert asking.connect_ex(("127.0.0.1", port)) != 0


def test_why_it_did_not_start_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "__name__", "course_utils.no_such_module")
    with pytest.raises(CourseError, match="did not start") as caught:
        TensorBoard(tmp_path).url  # noqa: B018
    assert "no_such_module" in caught.value.cause


# Traces -----------------------------------------------------------------------------------------------


def event(name, start, duration):
    return {"ph": "X", "name": name, "ts": start, "dur": duration, "pid": 1, "tid": 1}


def test_time_in_collectives_that_overlap_counts_once_and_only_within_the_step():
    trace = [
        {"ph": "M", "name": "process_name"},
        event(tensorboard.STEP, 1000, 1000),
        event(tensorboard.COLLECTIVE, 900, 300),  # 200 of it in the step
        event(tensorboard.COLLECTIVE, 1100, 200),  # 100 more
        event(tensorboard.COLLECTIVE, 1150, 20),  # nothing more
        event(tensorboard.COLLECTIVE, 1900, 400),  # 100 of it in the step
        event(tensorboard.NEXT_BATCH, 1400, 50),
        event("matmul", 1500, 100),
        event(tensorboard.STEP, 3000, 10),
    ]
    first, second = steps_in(trace)
    assert {name: round(1e6 * seconds) for name, seconds in first.items()} == {
        "all": 1000,
        "collectives": 400,
        "data": 50,
    }
    assert second["collectives"] == 0


# A profile that crashes -------------------------------------------------------------------------------

IN_PROFILER = """free(): invalid size
Fatal Python error: Aborted

Thread 0x00007f1a44fb16c0 (most recent call first):
  File "threading.py", line 1002 in _bootstrap

Current thread 0x00007f1b07e14b80 (most recent call first):
  File "site-packages/tensorflow/python/profiler/profiler_v2.py", line 149 in stop
  File "site-packages/keras/src/callbacks/tensorboard.py", line 651 in _stop_profiler
"""
ELSEWHERE = IN_PROFILER.replace("Current thread 0x00007f1b07e14b80", "Thread 0x1").replace(
    "149 in stop", "9 in f"
)


class Cluster:
    """Dies so many times with that log, then returns what it was given."""

    def __init__(self, deaths, log):
        self.deaths, self.logs, self.runs, self.found = deaths, ["", log], 0, []

    def run(self, fn, folder, *args, **kwargs):
        self.runs += 1
        self.found.append(os.path.exists(folder))
        os.makedirs(folder)
        if self.runs <= self.deaths:
            raise WorkerDied("Worker 1 was killed by SIGABRT.")
        return fn(folder, *args, **kwargs)


def test_a_job_whose_profile_crashed_runs_again_in_an_empty_folder(tmp_path):
    cluster = Cluster(2, IN_PROFILER)
    result = run_profiled(cluster, lambda folder, x, y: (folder, x, y), tmp_path / "logs", 1, y=2)
    assert result == (str(tmp_path / "logs"), 1, 2)
    assert cluster.runs == 3 and cluster.found == [False, False, False]


def test_another_death_is_raised_at_once(tmp_path):
    cluster = Cluster(9, ELSEWHERE)
    with pytest.raises(WorkerDied):
        run_profiled(cluster, print, tmp_path / "logs")
    assert cluster.runs == 1


def test_a_profile_that_crashes_every_time_is_raised_in_the_end(tmp_path):
    cluster = Cluster(9, IN_PROFILER)
    with pytest.raises(WorkerDied):
        run_profiled(cluster, print, tmp_path / "logs", attempts=4)
    assert cluster.runs == 4
