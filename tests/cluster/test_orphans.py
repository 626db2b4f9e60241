"""However a cluster ends: no process and no port stays behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from course_utils.cluster.ports import holder

SCRIPT = Path(__file__).with_name("endless_script.py")
DEADLINE = 120  # seconds for the import of TensorFlow on a busy machine; then for everything to be gone


@pytest.fixture
def start(tmp_path):
    """Start the script; returns it with all its processes and ports, once both workers are up."""
    scripts, families = [], []

    def start(method="fork"):
        script = subprocess.Popen(
            [sys.executable, SCRIPT, tmp_path, method],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(tmp_path)},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        scripts.append(script)
        wait_for(lambda: len(list(tmp_path.glob("*.up"))) == 2 or script.poll() is not None)
        assert script.poll() is None, script.stderr.read()
        families.append(Family(script, tmp_path))
        return families[-1]

    yield start
    for script in scripts:
        script.kill()
        script.wait()
        script.stderr.close()
    for process in [process for family in families for process in family.all]:
        with contextlib.suppress(psutil.NoSuchProcess):  # as it should be
            process.kill()


class Family:
    def __init__(self, script, folder):
        said = [json.loads(file.read_text()) for file in sorted(folder.glob("*.up"))]
        self.script = script
        self.workers = [psutil.Process(worker["pid"]) for worker in said]
        self.warm = self.workers[0].parent()
        self.all = psutil.Process(script.pid).children(recursive=True)
        cluster = json.loads(said[0]["config"])["cluster"]["worker"]
        self.ports = [int(address.split(":")[1]) for address in cluster]

    def assert_nothing_remains(self):
        assert set(self.workers) <= set(self.all)
        _, alive = psutil.wait_procs(self.all, timeout=DEADLINE)
        assert not alive
        assert [holder(port) for port in self.ports] == [None, None]


def wait_for(condition):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def test_killing_the_script_kills_its_cluster(start, tmp_path):
    family = start()
    assert list(tmp_path.glob("course-run-*"))
    family.script.kill()
    family.assert_nothing_remains()
    assert not list(tmp_path.glob("course-run-*"))
    assert (tmp_path / "script.runs").read_text() == "once\n"


def test_a_stopped_worker_does_not_survive_the_script(start):
    family = start()
    family.workers[0].suspend()
    family.script.kill()
    family.assert_nothing_remains()


def test_an_interrupt_ends_the_cluster_and_reaches_the_script(start):
    family = start()
    family.script.send_signal(signal.SIGINT)
    _, errors = family.script.communicate(timeout=DEADLINE)
    assert "KeyboardInterrupt" in errors
    family.assert_nothing_remains()


def test_a_terminated_script_leaves_nothing(start):
    family = start()
    family.script.terminate()
    family.assert_nothing_remains()


def test_killing_the_warm_process_ends_its_workers_and_tells_the_script(start):
    family = start()
    family.warm.kill()
    _, errors = family.script.communicate(timeout=DEADLINE)
    assert "WorkerDied" in errors
    family.assert_nothing_remains()


def test_script_and_warm_process_killed_together_leave_nothing(start):
    family = start()
    for process in (family.warm, family.workers[0]):
        process.suspend()
    family.script.kill()
    family.warm.kill()
    family.assert_nothing_remains()


def test_spawned_workers_end_with_a_killed_script_and_do_not_run_it_again(start, tmp_path):
    family = start("spawn")
    assert family.warm.pid == family.script.pid
    family.workers[0].suspend()
    family.script.kill()
    family.assert_nothing_remains()
    assert (tmp_path / "script.runs").read_text() == "once\n"
