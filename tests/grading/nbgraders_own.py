"""The real nbgrader, in a virtual environment of its own, its kernels those of the course's Python.

The environment is made once, in the course's folder for what is built, and kept there.
"""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.9.6"
# What pip says when it reaches no index, or one that does not have it.
UNREACHABLE = re.compile(
    r"No matching distribution found|ConnectionError|Failed to establish|Temporary failure"
)

GRADES = """
import json
from nbgrader.api import Gradebook

with Gradebook("sqlite:///gradebook.db") as book:
    told = {}
    for submission in book.assignment_submissions(book.assignments[0].name):
        scores = {grade.name: grade.score for notebook in submission.notebooks for grade in notebook.grades}
        told[submission.student.id] = scores
print(json.dumps(told))
"""


class Unreachable(Exception):
    """No index offers nbgrader here."""


@dataclass(frozen=True)
class Nbgrader:
    """nbgrader on its course folder `folder`."""

    python: Path
    folder: Path

    def start(self, *words: str) -> subprocess.Popen:
        """A command of nbgrader's, begun."""
        return subprocess.Popen(
            [self.python, "-m", "nbgrader", *words],
            cwd=self.folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, limit: float = 300) -> str:
        """What a command said; raises RuntimeError, with that, where it failed."""
        return said_by(self.start(*words), f"nbgrader {' '.join(words)}", limit)

    def grades(self) -> dict[str, dict[str, float]]:
        """Student → id of the check cell → points, from its gradebook."""
        command = [self.python, "-c", GRADES]
        done = subprocess.run(
            command, cwd=self.folder, env=self._environment(), capture_output=True, text=True, timeout=60
        )
        return json.loads(done.stdout)

    def _environment(self):
        """Nothing of the caller's Jupyter; "python3" is the kernel of the Python that runs this."""
        own = self.folder.parent / f"{self.folder.name}-jupyter"
        kernel = own / "kernels" / "python3" / "kernel.json"
        kernel.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel.write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
        folders = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "HOME")
        unwanted = {"PYTEST_CURRENT_TEST", "TF_CONFIG"}
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        # It calls programs of its environment by their bare names.
        kept["PATH"] = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        return kept | {"JUPYTER_PATH": str(own)} | {name: str(own / name.lower()) for name in folders}


def said_by(process: subprocess.Popen, name: str, limit: float) -> str:
    """What a command said until it ended; raises RuntimeError, with that and its `name`, where it failed."""
    try:
        said, _ = process.communicate(timeout=limit)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        raise RuntimeError(f"{name} failed:\n{said}")
    return said


def install() -> Path:
    """The Python of the environment that has nbgrader. Raises Unreachable, or CalledProcessError."""
    folder = ROOT / "build" / f"nbgrader-{VERSION}-py{sys.version_info[0]}{sys.version_info[1]}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    folder.parent.mkdir(exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
            _pip(python, f"nbgrader=={VERSION}", "--constraint", str(ROOT / "requirements.lock"))
            ready.touch()
    return python


def _pip(python, *words):
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-compile",
        "--retries=1",
    ]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, timeout=600)
    if done.returncode and UNREACHABLE.search(done.stderr):
        raise Unreachable(done.stderr.strip().splitlines()[-1])
    done.check_returncode()
