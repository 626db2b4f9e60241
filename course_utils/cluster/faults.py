"""Faults on purpose: this worker, at this step, is killed, stopped or terminated, raises or exits early.

A training loop calls `step(k)` once a step, `fit` takes `callback()`. Where nobody planned a fault that is
all they do: a few microseconds. The plan is a text in the environment, `COURSE_FAULTS`, such as
"kill worker:1@step:40". `LocalCluster(faults=…)` and `course launch --fail …` set it for their workers.

What a step leaves behind lies in two places that outlive a killed process: the file in COURSE_STEPS holds
the last step and its moment, and in the folder COURSE_FAULTS_FIRED lies a file for each fault that fired, so
that none fires again in the next attempt.
"""

import atexit
import contextlib
import mmap
import os
import re
import signal
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_utils.cluster.config import Task, task_of
from course_utils.errors import ConfigError, CourseError

PLAN, FIRED, PROGRESS = "COURSE_FAULTS", "COURSE_FAULTS_FIRED", "COURSE_STEPS"

_EXAMPLE = "kill worker:1@step:40"
_FORM = re.compile(
    r"(?:(?P<kind>[a-z]+)(?:=(?P<code>\d{1,3}))?\s+)?"
    r"(?P<task>[a-z]+)(?::(?P<index>\d+))?\s*@\s*step:(?P<step>\d+)(?:\+(?P<delay>\d+(?:\.\d+)?)s)?"
)


class InjectedFault(CourseError):
    """What a worker raises for a fault of the kind "exception"."""


@dataclass(frozen=True)
class Fault:
    """One fault: what happens to which task when it has done so many steps.

    `kind`: "kill" (SIGKILL), "stop" (SIGSTOP), "terminate" (SIGTERM), "exception", or "exit" (the process
    ends at once with `code`). `delay`: seconds between the step and the fault, which then strikes whatever
    the worker does at that moment, also while it writes a checkpoint.
    """

    kind: str
    task: str
    index: int
    step: int
    delay: float = 0.0
    code: int = 0

    @classmethod
    def parse(cls, text: str) -> "Fault":
        """The fault that a text describes: "kill worker:1@step:40", or "worker:1@step:40", a kill too.

        "exit=3 chief@step:2" ends with exit code 3; "kill worker:0@step:7+0.25s" strikes a quarter of a
        second after step 7. Raises ConfigError that says what cannot be read.
        """
        if not isinstance(text, str) or not (match := _FORM.fullmatch(text.strip().lower())):
            raise _unreadable(f"{text!r} does not describe a fault.")
        kind, task = match["kind"] or "kill", match["task"]
        if kind not in KINDS:
            raise _unreadable(f"{text!r}: there is no fault of the kind {kind!r}.")
        if task not in ("chief", "worker", "ps", "evaluator"):
            raise _unreadable(f"{text!r}: there is no task of the type {task!r}.")
        if match["index"] is None and task != "chief":
            raise _unreadable(f"{text!r} does not say which {task}.")
        if match["code"] and kind != "exit":
            raise _unreadable(f"{text!r}: only an exit has a code.")
        if int(match["code"] or 0) > 255:
            raise _unreadable(f"{text!r}: a process cannot end with a code above 255.")
        index, delay = int(match["index"] or 0), float(match["delay"] or 0)
        if delay and kind == "exception":
            raise _unreadable(f"{text!r}: an exception strikes at the step itself, not after it.")
        return cls(kind, task, index, int(match["step"]), delay, int(match["code"] or 0))

    @property
    def name(self) -> str:
        """The task's name, as everywhere else: "worker 1"."""
        return str(Task(self.task, self.index))

    def __str__(self) -> str:
        kind = f"{self.kind}={self.code}" if self.code else self.kind
        delay = f"+{self.delay:g}s" if self.delay else ""
        return f"{kind} {self.task}:{self.index}@step:{self.step}{delay}"

    def inject(self) -> None:
        """None, if the process lives on; the fault strikes this very process, at once."""
        KINDS[self.kind](self)


def parse_all(text: str) -> list[Fault]:
    """The faults of a text, separated by commas or semicolons; none in an empty one. Raises ConfigError."""
    if not isinstance(text, str):
        raise _unreadable(f"{text!r} does not describe faults.")
    return [Fault.parse(part) for part in re.split("[,;]", text) if part.strip()]


def step(done: int) -> None:
    """None; say that `done` steps are done. Call it once a step, everywhere in the loop alike.

    Tells whoever started this process, and injects the fault that is planned for this task and step, once
    over all attempts (once a process where nobody keeps count). Raises InjectedFault if that is its kind,
    ConfigError when COURSE_FAULTS or `done` cannot be read. Without a plan and a parent it does nothing.
    """
    global _here
    setting = tuple(map(os.environ.get, (PROGRESS, PLAN, FIRED, "TF_CONFIG")))
    if _here is None or _here.setting != setting:
        _here = _Here(setting)
    try:
        done = int(done)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{done!r} is no number of steps.", expected="how many are done.") from None
    _here.step(done)


def callback():
    """A Keras callback that calls `step` after each batch, with the steps of all epochs counted.

    It goes by the optimizer's counter, so that a resumed `fit` counts on from where it was.
    """
    import keras

    class Steps(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.before = int(self.model.optimizer.iterations.numpy())  # also of a mirrored one
            step(self.before)

        def on_train_batch_end(self, batch, logs=None):
            step(self.before + batch + 1)

    return Steps()


@dataclass(frozen=True)
class Progress:
    """What a worker has said: `step` steps were done at `at` (`time.monotonic`), and `first` at first.

    `left`: its Python came to its end, be it by an error; not so where it was killed or called `os._exit`.
    """

    step: int
    at: float
    first: int
    left: bool = False

    @classmethod
    def read(cls, file: str | os.PathLike) -> "Progress | None":
        """What the COURSE_STEPS file of a process says; None if the process has said nothing."""
        with contextlib.suppress(OSError, struct.error):
            step, at, first, left = _RECORD.unpack(Path(file).read_bytes())
            return cls(step, at, first, left) if at else None
        return None


def fired(folder: str | os.PathLike) -> dict[str, float]:
    """The faults that have fired, by the folder that keeps count: text -> moment of `time.monotonic`."""
    files = sorted(Path(folder).glob("fault-*"))
    lines = [file.read_text().partition(" ") for file in files]
    return {text: float(at) for at, _, text in lines if text}  # one may be just being written


def not_struck(
    plan: str, folder: str | os.PathLike, steps: Callable[[str], Sequence[int | None]]
) -> list[str]:
    """A sentence for each fault of a plan that has not struck, by the folder that keeps count.

    `steps` says what the last step was that a task reported, in each attempt; None for one without any.
    """
    left = [f for number, f in enumerate(parse_all(plan)) if not Path(folder, f"fault-{number}").exists()]
    return [
        f"The fault {str(fault)!r} has not struck: {_how_far(fault, steps(fault.name))}" for fault in left
    ]


def _how_far(fault: Fault, steps: Sequence[int | None]) -> str:
    last = max((step for step in steps if step is not None), default=None)
    if last is None:
        return f"{fault.name} has reported no step. Its program has to call faults.step(k) after each."
    if last >= fault.step:
        return f"{fault.name} has ended before {fault.delay:g} s had passed after step {fault.step}."
    return f"the last step that {fault.name} has reported is {last}."


_RECORD = struct.Struct("qdq?")
_here: "_Here | None" = None


class _Here:
    """This process: where it reports, and what is planned for it."""

    def __init__(self, setting: tuple):
        self.setting = setting
        progress, plan, self.folder, tf_config = setting
        self.record, self.first = _shared(progress) if progress else None, None
        if self.record:
            atexit.register(self.leave)
        everything = enumerate(parse_all(plan or ""))
        task = _task(tf_config)
        self.planned = [(number, fault) for number, fault in everything if (fault.task, fault.index) == task]

    def step(self, done: int) -> None:
        if self.record:
            self.first = done if self.first is None else self.first
            _RECORD.pack_into(self.record, 0, done, time.monotonic(), self.first, False)
        for number, fault in [(n, fault) for n, fault in self.planned if done >= fault.step]:
            self.planned.remove((number, fault))
            if fault.delay:
                timer = threading.Timer(fault.delay, self.strike, [number, fault])
                timer.daemon = True
                timer.start()
            else:
                self.strike(number, fault)

    def strike(self, number: int, fault: Fault) -> None:
        if self.claim(number, fault):
            fault.inject()

    def leave(self) -> None:
        self.record[-1] = True

    def claim(self, number: int, fault: Fault) -> bool:
        """Whether it is ours to fire: made known before, since afterwards may be too late."""
        if not self.folder:
            return True
        try:
            with open(Path(self.folder, f"fault-{number}"), "x") as file:
                file.write(f"{time.monotonic()} {fault}")
        except FileExistsError:
            return False
        return True


def _shared(file: str) -> mmap.mmap:
    """The file as memory: what is written there is there, even if the process is killed the moment after."""
    Path(file).write_bytes(bytes(_RECORD.size))
    with open(file, "r+b") as opened:
        return mmap.mmap(opened.fileno(), _RECORD.size)


def _task(tf_config: str | None) -> tuple[str, int]:
    task = task_of(tf_config)
    return task.type, task.index


def _signal(name: str) -> Callable[[Fault], None]:
    def send(fault: Fault) -> None:
        if not hasattr(signal, name):
            raise ConfigError(f"{fault}: this system has no {name}.", cure="Kill the worker instead.")
        os.kill(os.getpid(), getattr(signal, name))

    return send


def _raise(fault: Fault) -> None:
    raise InjectedFault(f"A fault was asked for: {fault}.")


KINDS: dict[str, Callable[[Fault], None]] = {
    "kill": _signal("SIGKILL"),
    "stop": _signal("SIGSTOP"),
    "terminate": _signal("SIGTERM"),
    "exception": _raise,
    "exit": lambda fault: os._exit(fault.code),
}


def _unreadable(seen: str) -> ConfigError:
    return ConfigError(
        seen,
        expected=f'a kind ({", ".join(KINDS)}), a task and a step, such as "{_EXAMPLE}".',
        cure=f'Write "{_EXAMPLE}", or several with commas between them.',
    )
