"""One notebook in one kernel: what fails is named by cell, time is limited, nothing stays behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import nbformat
import psutil
import pytest

from course_utils.notebooks import execute as module
from course_utils.notebooks import sources
from course_utils.notebooks.execute import CellFailed, execute


def run(path, **options):
    lesson = sources.read(path)
    return lesson, execute(sources.notebook(lesson), **options)


def printed(executed):
    return "".join(output.get("text", "") for cell in executed.cells for output in cell.get("outputs", ()))


def kernels():
    """Kernels that this process, or one that it started, has running."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if any("ipykernel" in part for part in child.cmdline())
    ]


def test_a_kernel_is_clean_and_leaves_nothing(write, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    monkeypatch.chdir(tmp_path)
    path = write(
        '# %% tags=["parameters"]\nprofile = "laptop"\n\n# %%\n'
        "import os, pathlib\n"
        "print(profile, [os.environ.get(n) for n in ('TF_CONFIG', 'TF_CPP_MIN_LOG_LEVEL')], end=' ')\n"
        "print('inline' in os.environ['MPLBACKEND'])\n"
        "pathlib.Path('left.txt').write_text('x')\nprint(os.getcwd(), os.environ['COURSE_PROGRESS'])\n"
    )
    before = sorted(tmp_path.rglob("*")), dict(os.environ)
    _, executed = run(path, parameters={"profile": "full"})
    first, second = printed(executed).splitlines()
    assert first == "full [None, None] True"
    assert not any(os.path.exists(place) for place in second.split())
    assert (sorted(tmp_path.rglob("*")), dict(os.environ)) == before
    assert kernels() == []


def test_a_cell_that_raises_is_named_with_its_traceback(write):
    path = write("# %% [markdown]\n# # Fine\n\n# %%\n1\n\n# %% [markdown]\n# ## Bad\n\n# %%\n\n1 / 0\n")
    with pytest.raises(CellFailed, match="ZeroDivisionError: division by zero") as caught:
        run(path)
    assert caught.value.cell_id == "bad-2"
    assert sources.read(path).place("bad-2") == "notebooks/source/90_one_and_one.py:10"
    assert "1 / 0" in caught.value.traceback
    assert "\x1b" not in caught.value.traceback


def test_what_a_failed_cell_printed_and_warned_of_stands_before_its_traceback(write):
    cell = 'import warnings\nprint("as far as this")\nwarnings.warn("not struck")\n1 / 0\n'
    path = write(f"# %% [markdown]\n# # Bad\n\n# %%\nprint('elsewhere')\n\n# %%\n{cell}")
    with pytest.raises(CellFailed) as caught:
        run(path)
    told = caught.value.traceback
    assert told.index("as far as this") < told.index("ZeroDivisionError") > told.index("not struck")
    assert "elsewhere" not in told
    assert "as far as this" in caught.value.__notes__[0] and "In cell bad-3" in caught.value.__notes__[0]


def test_a_lesson_that_takes_too_long_is_stopped_and_its_kernel_with_it(write):
    path = write("# %% [markdown]\n# # Long\n\n# %%\n1\n\n# %%\nimport threading\nthreading.Event().wait()\n")
    with pytest.raises(CellFailed, match=r"time limit of 4 s .*--time-limit") as caught:
        run(path, time_limit=4)
    assert caught.value.cell_id == "long-3"
    assert kernels() == []


def test_all_cells_share_one_time_limit(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    running = []
    left = module._Deadline(60, running.append)
    cell = nbformat.v4.new_code_cell("1")
    assert left(cell) == 60
    now[0] += 45
    assert left(cell) == 15
    now[0] += 45
    assert left(cell) == 1  # nbclient takes 0 for no limit
    assert running == [cell] * 3


def test_a_kernel_that_dies_is_reported_at_its_cell(write):
    path = write("# %% [markdown]\n# # Dies\n\n# %%\nimport ctypes\nctypes.string_at(0)\n")
    with pytest.raises(CellFailed, match="kernel died") as caught:
        run(path)
    assert caught.value.cell_id == "dies-2"


def test_a_kernel_that_does_not_start_is_reported_with_its_last_words(write, tmp_path, monkeypatch):
    (tmp_path / "ipykernel_launcher.py").write_text("raise ImportError('libzmq is missing')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(CellFailed, match="kernel did not start") as caught:
        run(write("# %%\n1\n"))
    assert "libzmq is missing" in caught.value.traceback
    assert kernels() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_kernel_stays_when_a_run_is_ended(number, write, folder, tmp_path):
    mark, temporary = tmp_path / "waiting", tmp_path / "temporary"
    temporary.mkdir()
    write(
        textwrap.dedent(f"""\
            # %%
            import pathlib, threading
            pathlib.Path({str(mark)!r}).write_text("x")
            threading.Event().wait()
            """)
    )
    command = [sys.executable, "-m", "course_utils.cli", "run", "--folder", str(folder)]
    running = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    try:
        wait_until(lambda: mark.exists() or running.poll() is not None)
        family = psutil.Process(running.pid).children(recursive=True)
        assert family
        running.send_signal(number)
        running.wait(30)
        _, alive = psutil.wait_procs(family, timeout=30)
        assert alive == []
        if number != signal.SIGKILL:  # which leaves no time to remove anything
            assert list(temporary.glob("course-*")) == []
    finally:
        running.kill()
        running.wait()


def wait_until(condition, limit=60):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)
