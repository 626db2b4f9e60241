"""Sentences about workers that died, wait or were left: who, where in the code, and for whom."""

import os
import re
import signal
import sysconfig
import time

from course_utils.cluster import cells
from course_utils.cluster.words import shortened

LONGEST_HEADLINE = 400  # characters of an exception's message in a sentence; the traceback has it whole

_LIBRARIES = tuple(
    {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OWN = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# An eager collective waits below TensorFlow in one of these: one thread a device.
_WAITING = tuple(
    os.path.join(os.path.realpath(sysconfig.get_path("stdlib")), name)
    for name in ("threading.py", "queue.py", "multiprocessing", "concurrent")
)
EVERYONE_MEETS = (
    "Every worker must take part in each collective, equally often and in the same order: steps, reduce, and "
    "reading a metric."
)


def death(worker) -> str:
    """How a worker process ended that gave no result."""
    code, name = worker.process.exit_code, worker.name.capitalize()
    when = "" if "start" in worker.stages else " before its function began"
    if code < 0:
        return f"{name} was killed by {signal_name(-code)}{when}."
    return f"{name} ended with exit code {code}{when or ' before its function returned'}."


def likely_cause_of_death(worker) -> str:
    """Why the system or native code ends a process, for the signals that have a usual reason."""
    return {
        -9: "it was killed on purpose, or the machine ran out of memory.",
        -11: "a crash in native code; its output has the trace.",
        -6: "native code gave up; its output says why.",
    }.get(worker.process.exit_code, "")


def likely_cause_of_error(message: str) -> str:
    """What an exception comes from that does not say so itself, and what helps; empty where that is open."""
    if "Attempt to convert a value (PerReplica" in message:
        return (
            "Keras 3 as it comes cannot `fit` on several workers (keras-team/keras#20585); call "
            "course_utils.keras_multiworker.enable() first, in each worker."
        )
    return ""


def what_it_raised(worker) -> str:
    """The exception of a worker in one line."""
    kind = worker.error.kind
    message = shortened(_headline(worker.error.message), LONGEST_HEADLINE)
    if kind == "SystemExit":
        return f"{worker.name.capitalize()} called {message}."
    return f"{worker.name.capitalize()} raised {kind}{': ' if message else ''}{message}."


def _headline(message: str) -> str:
    """The first line that says something; TensorFlow puts where a node was made before it."""
    lines = message.strip().splitlines()
    if lines and lines[0].startswith("Graph execution error"):
        frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
        lines = [line for line in lines[frames[-1] + 1 if frames else 1 :] if line.strip()] or lines
    if lines and lines[0].rstrip().endswith(("{", "(", "[")):  # it goes on, and says what is wrong at its end
        lines = [" ".join(line.strip() for line in lines)]
    return _NODE.sub("", lines[0]).strip().rstrip(".") if lines else ""


_NODE = re.compile(r"^\{\{function_node [^}]*\}\} ")


def signal_name(number: int) -> str:
    """The name of a signal, such as SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def who_left(workers) -> str:
    """Who of the others is not there, the likely cause of an error that tells of somebody missing."""
    parts = [f"{w.name} had returned already" for w in workers if w.finished]
    parts += [f"{w.name} is stopped" for w in workers if not w.finished and is_stopped(w)]
    return f"{' and '.join(parts)}, so nobody answered." if parts else ""


def left_behind(left, running) -> str:
    """The beginning of a sentence on workers that wait for one that has returned."""
    who = " and ".join(f"{w.name} ended after {w.stages['exit']:.1f} s" for w in left)
    return f"{who[0].upper()}{who[1:]}, and the others still wait for it: "


def waits(workers) -> str:
    """Who waits where, one part a worker."""
    return "; ".join(_state(worker, workers) for worker in workers) + "."


def _state(worker, workers) -> str:
    if worker.finished:
        return f"{worker.name} has finished"
    if is_stopped(worker):
        return f"{worker.name} is stopped (SIGSTOP)"
    if worker.connecting:
        missing = [w.name for w in workers if w is not worker and not w.making_strategy]
        return f"{worker.name} waits for {' and '.join(missing) or 'the others'} to join"
    where = place(worker.stack)
    if worker.job.alone_is_wrong and not worker.making_strategy:
        return f"{worker.name} has not made its strategy and is {where}"
    return f"{worker.name} {'waits' if in_tensorflow(worker.stack) else 'is'} {where}"


def place(stack) -> str:
    """Where a stack stands in the user's own code: "in step, Cell In[3] line 7 (`strategy.run(…)`)"."""
    if not stack:
        return "busy and does not say where"
    own = [frame for frame in stack if not _is_library(frame[0])]
    if not own:
        return f"in {stack[-1][2]}"
    file, number, function, line = own[-1]
    source = cells.label(file) or os.path.basename(file)
    text = f" (`{line.strip()}`)" if line.strip() else ""
    return f"in {function}, {source} line {number}{text}"


def _is_library(file: str) -> bool:
    real = os.path.realpath(file)
    return (
        file.startswith(("<frozen", "<string>"))
        or "__autograph_generated" in file
        or real.startswith((*_LIBRARIES, _OWN))
    )


def in_tensorflow(stack) -> bool:
    """Whether the innermost Python frame is TensorFlow's, apart from what Python itself waits with."""
    files = [frame[0] for frame in reversed(stack or [])]
    inner = next((file for file in files if not os.path.realpath(file).startswith(_WAITING)), "")
    return f"{os.sep}tensorflow{os.sep}" in inner


def own_stack_text(stack) -> str:
    """The frames of a stack that are the user's own, as Python prints them; all where there are none."""
    own = [frame for frame in stack if not _is_library(frame[0])]
    return stack_text(own or stack)


def stack_text(stack) -> str:
    """A stack as Python prints it."""
    return "".join(
        f'  File "{file}", line {number}, in {name}\n    {line.strip()}\n'
        for file, number, name, line in stack
    )


def is_stopped(worker) -> bool:
    """Whether the process is halted by a signal."""
    import psutil

    try:
        return psutil.Process(worker.process.pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False


class Idle:
    """Tells for how long a process has used next to no processor time."""

    SHARE, EVERY = 0.02, 1.0  # below 2 % of one core counts as idle; looked at every second

    def __init__(self):
        self.since = self.looked = None
        self.used = 0.0

    def seconds(self, pid: int) -> float:
        now = time.monotonic()
        if self.looked is None or now - self.looked >= self.EVERY:
            self._look(pid, now)
        return now - self.since

    def _look(self, pid: int, now: float) -> None:
        import psutil

        try:
            used = sum(psutil.Process(pid).cpu_times()[:2])
        except psutil.Error:
            used = self.used
        if self.looked is None or used - self.used > self.SHARE * (now - self.looked):
            self.since = now
        self.looked, self.used = now, used
