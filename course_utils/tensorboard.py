"""TensorBoard for a notebook: on a free port of this machine, embedded, and gone when the kernel is.

    board = cu.tensorboard.TensorBoard("logs")
    board.show()

It runs in a process of its own that ends with this one, however this one ends. It listens to this machine
only. Where the browser is on another machine, forward the port of `board.url` to it.
"""

import atexit
import contextlib
import gzip
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

from course_utils.cluster import LocalCluster, WorkerDied
from course_utils.errors import CourseError

START_DEADLINE = 120  # seconds: a process that imports much, on a busy machine
READ_DEADLINE = 60  # seconds until it has read what is in the folder


class TensorBoard:
    """The TensorBoard of the logs in a folder. It starts in the background; whoever asks it waits for it."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder).resolve()
        self._url: str | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        # A session of its own: an interrupt of the notebook must not reach it. The pipe to its standard input
        # is its lifeline: it breaks when this process ends, even by SIGKILL.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
        )
        atexit.register(self.stop)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it answers, such as "http://127.0.0.1:43121/", once it does."""
        if self._url is None:
            line = self._process.stdout.readline() if self._process.poll() is None else b""
            if not line.startswith(b"http"):
                raise self._failed()
            self._url = line.decode().strip()
        return self._url

    def runs(self) -> list[str]:
        """The names of the runs that it has found so far: folders with scalars in them."""
        return self._get("data/runs")

    def wait_for(self, *runs: str) -> "TensorBoard":
        """This TensorBoard, once it has found these runs; CourseError after a minute without them."""
        end = time.monotonic() + READ_DEADLINE
        while missing := set(runs) - set(self.runs()):
            if time.monotonic() > end:
                raise CourseError(
                    f"TensorBoard does not find {', '.join(sorted(missing))} in {self.folder.name}.",
                    cause="nothing was logged there, or the folder is another one.",
                )
            time.sleep(0.2)
        return self

    def scalars(self) -> dict[str, dict[str, list[tuple[int, float]]]]:
        """run → name of the scalar → (step, value) in order."""
        return {
            run: {tag: self._scalar(run, tag) for tag in tags}
            for run, tags in self._get("data/plugin/scalars/tags").items()
        }

    def profiles(self) -> list[str]:
        """The names of the profiles that it has found: run and moment."""
        return self._get("data/plugin/profile/runs")

    def trace(self, profile: str) -> list[dict]:
        """The events of a profile, as the trace viewer gets them: name, thread, `ts` and `dur` in µs."""
        (host, *_) = self._get("data/plugin/profile/hosts", run=profile, tag="trace_viewer")
        name = host["hostname"] if isinstance(host, dict) else host
        answer = self._get("data/plugin/profile/data", run=profile, tag="trace_viewer", host=name)
        return answer["traceEvents"]

    def steps(self, profile: str) -> list[dict[str, float]]:
        """For each step of a profile of `fit`: seconds in all, in collectives, and waiting for data."""
        return steps_in(self.trace(profile))

    def show(self, height: int = 700) -> None:
        """None; shows it embedded, until the kernel ends. Where nobody looks, it stops."""
        from IPython.display import HTML, display

        if not _in_a_browser():
            self.stop()
            print("In JupyterLab, TensorBoard is shown here.")
            return
        url, style = html.escape(self.url), "border:1px solid #D9D9D9"
        link = f'<p>TensorBoard: <a href="{url}" target="_blank">{url}</a>, until the kernel ends.</p>'
        display(HTML(f'{link}<iframe src="{url}" width="100%" height="{height}" style="{style}"></iframe>'))

    def stop(self) -> None:
        """None; it is ended. Safe to call again."""
        atexit.unregister(self.stop)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                stream.close()

    def _scalar(self, run: str, tag: str) -> list[tuple[int, float]]:
        points = self._get("data/plugin/scalars/scalars", run=run, tag=tag)
        return [(step, value) for _, step, value in points]

    def _get(self, path: str, **query):
        address = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(address, timeout=READ_DEADLINE) as answer:
                data = answer.read()
        except urllib.error.URLError as error:
            raise CourseError(f"TensorBoard does not answer to {path}: {error}.") from None
        return json.loads(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)

    def _failed(self) -> CourseError:
        cause = self._said()
        self.stop()
        return CourseError("TensorBoard did not start.", cause=cause, cure="Run `course doctor`.")

    def _said(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it was stopped."


def run_profiled(
    cluster: LocalCluster, fn: Callable, folder: str | os.PathLike, *args, attempts: int = 6, **kwargs
) -> list:
    """What `cluster.run(fn, folder, *args)` returns, for a function that profiles; again where that crashed.

    When the profiler of TensorFlow 2.21 stops, it merges events that began on one thread and ended on
    another, and may write to memory that is no longer theirs (`SplitEventTracker::FindStartAndMerge` in its
    native stack). Every worker but the first has such events in each all-reduce, and about one profile in ten
    kills its process there. We know of no report, and of no cure but to run again, with an empty folder.
    Whatever else goes wrong is raised at once.
    """
    for attempt in range(1, attempts + 1):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return cluster.run(fn, str(folder), *args, **kwargs)
        except WorkerDied:
            if attempt == attempts or not any(map(_died_in_profiler, cluster.logs)):
                raise
            _clear_output()


def _clear_output() -> None:
    """None; what the cell has shown of the attempt that is lost goes, when the next one shows something."""
    if "IPython" in sys.modules:
        from IPython.display import clear_output

        clear_output(wait=True)


def _died_in_profiler(log: str) -> bool:
    """Whether the traceback that a crash in native code leaves in the log begins where a profile stops."""
    crash = re.search(r"Fatal Python error: .*", log, re.DOTALL)
    innermost = re.search(r"Current thread.*\n  File \"[^\n]*", crash[0]) if crash else None
    return bool(innermost) and "profiler_v2.py" in innermost[0] and " in stop" in innermost[0]


# How a trace calls them: a step of `fit`; an all-reduce, from its call to its result; the wait for a batch.
STEP, COLLECTIVE, NEXT_BATCH = "Profiled batch", "CollectiveReduceV2", "IteratorGetNextOp::DoCompute"


def steps_in(trace: list[dict]) -> list[dict[str, float]]:
    """For each step in the events of a trace: seconds from beginning to end, in collectives, and for data.

    Events that overlap, such as two all-reduces at a time, count once. "collectives" holds waiting for others
    too: one worker's trace cannot tell.
    """
    spans = {name: _spans(trace, name) for name in (STEP, COLLECTIVE, NEXT_BATCH)}
    return [
        {
            "all": (end - start) / 1e6,
            "collectives": _covered(spans[COLLECTIVE], start, end) / 1e6,
            "data": _covered(spans[NEXT_BATCH], start, end) / 1e6,
        }
        for start, end in spans[STEP]
    ]


def _spans(trace, name) -> list[tuple[float, float]]:
    found = (event for event in trace if event.get("ph") == "X" and event.get("name") == name)
    return sorted((event["ts"], event["ts"] + event["dur"]) for event in found)


def _covered(spans, start, end) -> float:
    """How much of start…end lies in any of the sorted spans."""
    total, reached = 0.0, start
    for first, last in spans:
        first, last = max(first, reached), min(last, end)
        if last > first:
            total, reached = total + last - first, last
    return total


def _in_a_browser() -> bool:
    """Whether a person's JupyterLab or editor has started this kernel; they tell it by these variables."""
    return not {"JPY_SESSION_NAME", "VSCODE_PID"}.isdisjoint(os.environ)


def _serve(folder: str) -> None:
    """Be TensorBoard until the standard input ends; never returns."""
    import types

    # Neither TensorBoard nor its Profile tab needs TensorFlow to read logs, yet both would import it.
    sys.modules["tensorflow"] = None
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    from tensorboard import default, program

    board = program.TensorBoard(plugins=default.get_plugins())
    options = ["--logdir", folder, "--host", "127.0.0.1", "--port", "0", "--reload_interval", "1"]
    # In this process: a data server of its own would be one more to end.
    board.configure(argv=["tensorboard", *options, "--load_fast", "false"])
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what it prints itself
    print(board.launch(), file=out)
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1])
