"""The job that all ways of starting it are compared by: the same script, the same arguments."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "examples/train.py"  # seen from ROOT: the same file, and so the same bytes, wherever it is started
STEPS = 8
LIMIT = 240  # seconds for what takes 15 where nothing else runs
# First on the PATH of whoever starts the script: the Python that has TensorFlow.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def arguments(folder: str | Path) -> list[str]:
    """The script's arguments, for a folder that all workers see. A checkpoint every second step."""
    options = {
        "--steps": STEPS,
        "--global-batch": 32,
        "--save-every": 2,
        "--checkpoints": f"{folder}/checkpoints",
        "--out": f"{folder}/weights.npz",
    }
    return [str(word) for option in options.items() for word in option]


def weights(folder: Path) -> list[np.ndarray]:
    """The final weights that the script wrote."""
    with np.load(folder / "weights.npz") as file:
        return [file[name] for name in file.files]


def assert_equal(ours: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    """They are as many, and equal to 1e-6."""
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


def course(*words: str) -> str:
    """What the command `course` writes."""
    command = [sys.executable, "-m", "course_utils.cli", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
