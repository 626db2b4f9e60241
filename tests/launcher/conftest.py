"""What the tests of the launcher share: a way to launch a few lines in this process."""

import textwrap
from dataclasses import dataclass

import pytest

from course_utils.cluster.launcher import Launch, launch

# Lines before a job's own: `me`, its index; `step()`, a meeting of all workers.
TOGETHER = """
import json, os, signal, sys, time
import course_utils
import tensorflow as tf
from course_utils.cluster import faults

me = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()

@tf.function
def step():
    return strategy.reduce("SUM", strategy.run(lambda: tf.ones(())), axis=None)

"""


@dataclass(frozen=True)
class Ended:
    """The exit code of a job, its workers' lines, and the launcher's own."""

    code: int
    out: list[str]
    said: str

    def lines_of(self, name):
        prefix = f"[{name}] "
        return [line.removeprefix(prefix) for line in self.out if line.startswith(prefix)]


@pytest.fixture
def job(tmp_path, monkeypatch, capfd):
    """Launch a script of these lines; says how it ended."""
    monkeypatch.chdir(tmp_path)

    def run(lines, *arguments, timeout=60, backoff=0, **options):
        script = tmp_path / "job.py"
        script.write_text(textwrap.dedent(lines))
        code = launch(Launch(script, arguments, timeout=timeout, backoff=backoff, **options))
        out, said = capfd.readouterr()
        return Ended(code, out.splitlines(), said)

    return run


@pytest.fixture
def together(job):
    """The same for workers that meet: the lines follow TOGETHER."""
    return lambda lines, *arguments, **options: job(TOGETHER + textwrap.dedent(lines), *arguments, **options)
