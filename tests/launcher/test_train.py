"""examples/train.py: the same file everywhere, and the same weights after whatever happens to it."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from course_utils.cluster.launcher import Launch, launch

SCRIPT = Path(__file__).parents[2] / "examples" / "train.py"
STEPS = 30
DEADLINE = 120  # seconds for one run, on a busy machine


@pytest.fixture
def train(tmp_path, capfd):
    """Launch it; returns its exit code, the weights that it wrote and what was said."""

    def train(*arguments, **options):
        arguments = arguments_for(tmp_path, *arguments)
        code = launch(Launch(SCRIPT, arguments, timeout=DEADLINE, backoff=0, **options))
        shown = capfd.readouterr()
        out = tmp_path / "out.npz"
        return code, weights(out) if out.exists() else None, shown.out + shown.err

    return train


def arguments_for(folder, *arguments):
    places = ["--checkpoints", folder / "checkpoints", "--out", folder / "out.npz"]
    return tuple(map(str, ["--steps", STEPS, "--save-every", 10, *places, *arguments]))


def weights(file):
    with np.load(file) as stored:
        return [stored[name] for name in stored.files]


def difference(these, those):
    return max(float(np.abs(a - b).max()) for a, b in zip(these, those, strict=True))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The weights of `python train.py`, without any launcher."""
    folder = tmp_path_factory.mktemp("alone")
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    command = [sys.executable, SCRIPT, *arguments_for(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=DEADLINE)
    assert done.returncode == 0 and "1 replicas, from step 0" in done.stdout, done.stderr
    return weights(folder / "out.npz")


@pytest.mark.parametrize(
    ("options", "replicas"),
    [({"devices": 2}, 4), ({"pool": False}, 2)],
    ids=["pool, two devices each", "new Python"],
)
def test_two_workers_train_what_one_process_does(train, alone, options, replicas):
    code, trained, said = train(workers=2, **options)
    assert code == 0 and f"{replicas} replicas, from step 0" in said
    assert difference(trained, alone) < 1e-5  # sums in another order round differently
    digest = hashlib.sha256(b"".join(array.tobytes() for array in trained)).hexdigest()
    assert f"weights {digest[:16]}" in said


def test_one_worker_told_to_stop_makes_all_save_at_one_step(train, alone):
    code, trained, said = train(workers=2, max_restarts=1, faults=("terminate worker:1@step:14",))
    assert code == 0
    (stopped,) = re.findall(r"Worker \d has left as it was told to, with exit code 143 at step (\d+)", said)
    assert f"from step {stopped} to {STEPS}" in said and int(stopped) in (15, 16)
    assert difference(trained, alone) < 1e-5


def test_a_job_stopped_by_a_signal_goes_on_and_once_finished_trains_no_further(tmp_path, train):
    def stop_when_saved():
        end = time.monotonic() + DEADLINE
        log = tmp_path / "logs" / "attempt-1" / "worker-0.log"
        while not (log.exists() and "saved" in log.read_text()) and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_saved, daemon=True).start()
    code, trained, said = train("--steps", "1000000", workers=2, log_dir=tmp_path / "logs")
    assert (code, trained) == (143, None)
    (step,) = re.findall(r"Stopped by SIGTERM at step (\d+)\.", said)

    last = str(int(step) + 5)
    code, trained, said = train("--steps", last, workers=2)
    assert code == 0 and f"from step {step} to {last}" in said
    code, again, said = train("--steps", last, workers=2)
    assert code == 0 and f"from step {last} to {last}" in said
    assert difference(trained, again) == 0
