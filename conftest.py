"""Settings of the whole test run: how notebooks are executed, with nothing of the caller's shell."""

import os
import tempfile
import time
from pathlib import Path

from course_utils.notebooks.execute import KERNEL_ENVIRONMENT, UNWANTED

ROOT = Path(__file__).parent
# Seconds that `_pace` took on the machine of 2 cores for which this course states times. Others are slower: a
# virtual machine on a busy host may need four times as long for all, and the reader of a record shall see it.
REFERENCE_PACE = 0.15


def pytest_configure(config):
    # The learner's notebooks in notebooks/ are run by nbval: all cells must run, those tagged `stable` must
    # show what the notebook shows.
    config.option.nbval_lax = True
    config.option.nbval_current_env = True
    config.option.nbval_sanitize_with = str(ROOT / "tests" / "notebooks" / "sanitize.cfg")
    config.option.nbval_cell_timeout = 240
    config.stash_folder = tempfile.TemporaryDirectory(prefix="course-tests-")
    os.environ.update(
        KERNEL_ENVIRONMENT, COURSE_PROGRESS=str(Path(config.stash_folder.name) / "progress.json")
    )
    for name in UNWANTED:
        os.environ.pop(name, None)


def pytest_unconfigure(config):
    config.stash_folder.cleanup()


def pytest_terminal_summary(terminalreporter):
    times = _pace() / REFERENCE_PACE
    terminalreporter.write_line(
        f"A loop in Python takes {times:.1f} times as long here as where the course's times were measured."
    )


def _pace() -> float:
    """Seconds for 2 million additions to a global name; the shortest of five attempts."""
    program = compile("x = 0\nfor i in range(2_000_000): x += i", "pace", "exec")

    def once():
        start = time.perf_counter()
        exec(program, {})
        return time.perf_counter() - start

    return min(once() for _ in range(5))
