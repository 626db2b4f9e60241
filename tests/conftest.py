"""For all tests: logs of failed runs go to a temporary folder, and nothing of ours outlives the session."""

import os
import tempfile
from pathlib import Path

import psutil
import pytest


@pytest.fixture(scope="session", autouse=True)
def nothing_stays_behind(tmp_path_factory):
    """No worker, warm process or listening port of this session remains once its pool is closed."""
    from course_utils.cluster import folders, pool

    folders.RUNS = tmp_path_factory.mktemp("runs")
    before = set(run_folders())
    yield
    pool.close_the_pool()
    assert not our_processes()
    assert not (set(run_folders()) - before)


def our_processes() -> list[str]:
    """Cluster processes that this session started: its descendants, and those that lost their parent."""
    return [f"{p.pid} {' '.join(p.cmdline())[:80]}" for p in psutil.process_iter() if is_ours(p)]


def is_ours(process: psutil.Process) -> bool:
    try:
        environment = process.environ()
    except psutil.Error:
        return False
    return environment.get(MARK) == os.environ[MARK] and process.pid != os.getpid() and is_cluster(process)


def is_cluster(process: psutil.Process) -> bool:
    try:
        return "course_utils.cluster" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def run_folders():
    return Path(tempfile.gettempdir()).glob(f"course-run-{os.getpid()}-*")


# Inherited by all that this session starts, so that it can be told from what others run on this machine.
MARK = "COURSE_TEST_SESSION"
os.environ[MARK] = str(os.getpid())
