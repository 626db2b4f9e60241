"""The launcher is told to stop, or killed: its workers get time for a checkpoint, and none survives it."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

DEADLINE = 120  # seconds for the import of TensorFlow on a busy machine; then for everything to be gone

# Says that it is up, saves when it is told to stop, and would never end by itself.
SAVES = """
import json, os, signal, sys, threading
from pathlib import Path
me = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

def save(number, frame):
    Path(f"saved-{me}").touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
Path(f"up-{me}").write_text(str(os.getpid()))
threading.Event().wait()
"""
IGNORES = SAVES.replace("sys.exit(143)", "return")


@pytest.fixture
def start(tmp_path):
    """Start `course launch` as a program of its own; returns it with the processes of its workers, all up."""
    started = []

    def start(lines, *options):
        script = tmp_path / "job.py"
        script.write_text(textwrap.dedent(lines))
        command = [
            sys.executable,
            "-m",
            "course_utils.cli",
            "launch",
            "--workers",
            "2",
            *options,
            str(script),
        ]
        launcher = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=os.environ | {"TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(launcher)
        wait_for(lambda: all(up(tmp_path, index) for index in (0, 1)) or launcher.poll() is not None)
        assert launcher.poll() is None, launcher.stdout.read()
        family = psutil.Process(launcher.pid).children(recursive=True)
        assert {int(up(tmp_path, index)) for index in (0, 1)} <= {process.pid for process in family}
        started.extend(family)
        return launcher, family

    yield start
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):  # as it should be
            process.kill()
    for launcher in [each for each in started if isinstance(each, subprocess.Popen)]:
        launcher.communicate(timeout=DEADLINE)


def up(folder, index):
    file = folder / f"up-{index}"
    return file.read_text() if file.exists() else ""


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def assert_gone(family, folder):
    _, alive = psutil.wait_procs(family, timeout=DEADLINE)
    assert not alive
    assert not list(folder.glob("course-run-*"))


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_workers_get_time_to_save_and_the_job_does_not_start_again(start, tmp_path, number, code):
    launcher, family = start(SAVES, "--no-pool", "--max-restarts", "3")
    launcher.send_signal(number)
    said, _ = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == code
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]
    assert f"Stopped by {number.name}." in said and "Restart" not in said and "was killed" not in said
    assert_gone(family, tmp_path)


def test_workers_that_do_not_stop_are_killed_after_their_time(start, tmp_path):
    launcher, family = start(IGNORES, "--no-pool", "--grace", "0.5")
    launcher.terminate()
    said, _ = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 143
    assert "worker 0 and worker 1 did not end within 0.5 s, and had to be killed." in said
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]
    assert_gone(family, tmp_path)


def test_a_second_signal_ends_them_at_once(start, tmp_path):
    launcher, family = start(IGNORES, "--no-pool", "--grace", "100000")
    launcher.send_signal(signal.SIGINT)
    wait_for(lambda: len(list(tmp_path.glob("saved-*"))) == 2)
    launcher.send_signal(signal.SIGINT)
    said, _ = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 130 and "as a second signal demanded" in said
    assert_gone(family, tmp_path)


def test_a_signal_between_two_attempts_ends_the_job(start, tmp_path):
    launcher, family = start(
        SAVES.replace("threading.Event().wait()", "threading.Event().wait(1); sys.exit(me)"),
        *("--no-pool", "--max-restarts", "1", "--backoff", "100000"),
    )
    psutil.wait_procs(family, timeout=DEADLINE)
    launcher.terminate()
    said, _ = launcher.communicate(timeout=DEADLINE)
    assert launcher.returncode == 143 and "Restart 1 of 1" in said
    assert_gone(family, tmp_path)


@pytest.mark.parametrize("way", ["pool", "no-pool"])
def test_workers_and_their_children_do_not_survive_a_killed_launcher(start, tmp_path, way):
    child = "import subprocess\nsubprocess.Popen(['sleep', '777'])\n"
    launcher, family = start(child + IGNORES, *(["--no-pool"] if way == "no-pool" else []))
    assert sum(process.name() == "sleep" for process in family) == 2
    psutil.Process(int(up(tmp_path, 1))).suspend()
    launcher.kill()
    _, alive = psutil.wait_procs(family, timeout=DEADLINE)
    assert not alive
