"""What runs in the sandbox: load the exercise without its right results, define the answer, observe it.

`prepare` runs before the process is locked in: it reads our own files and forgets what must not be known.
What it returns runs afterwards, and is the only thing here that touches the learner's code. The result is
text, to be judged in another process: a line with the job's token, then the records as JSON.
"""

import functools
import gc
import importlib.util
import linecache
import os
import sys
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from course_utils.exercises import observing
from course_utils.exercises.model import Exercise
from course_utils.exercises.plain import array_as_json, plain
from course_utils.exercises.timelimit import TimeUp, time_limit
from course_utils.grading import control
from course_utils.grading.stripping import stripped

DEVICES = 4  # the most that any lesson simulates
VERBS = ("check", "hint", "solution", "progress")
SECRETIVE = ("course_utils.exercises", "course_utils.solutions", "course_utils.grading")


def prepare(job: dict[str, Any]) -> Callable[[], str]:
    """What defines and observes the answer of a job when it is called, and returns the records as text.

    The job holds "exercise" (its id), "seed", "token" and "program" (`answers.Program` as plain data); with
    "seconds", that is the time limit in place of the exercise's own.
    """
    os.environ.setdefault("MPLBACKEND", "Agg")
    exercise = stripped(job["exercise"], job["seed"])
    seconds = float(job.get("seconds") or exercise.time_limit)
    from course_utils import devices  # noqa: F401 (read now: it is needed inside)

    # An iterator, so that no frame on the stack holds the exercise while the learner's cell runs.
    given = iter([(exercise, _writer(job["token"]), control.number(job["token"]))])
    asked = _Asked(exercise.id, exercise.name, exercise.signature, exercise.is_function)
    examine = functools.partial(_examine, given, asked, dict(job["program"]), seconds)
    job.clear()  # whoever looks about in this process shall not find the seed
    gc.collect()
    return examine


def _simulate_devices():
    """As a notebook's first cell does. Not in `prepare`: a cluster's workers, which are forked from this
    process as it is before the answer, count their own devices."""
    from course_utils import devices

    devices.simulate(DEVICES)


def _hide():
    """Nothing of how answers are judged can be imported any more, and the learner's verbs do nothing."""
    import course_utils

    for name in [name for name in sys.modules if name.startswith(SECRETIVE)]:
        del sys.modules[name]
    quiet = types.ModuleType("course_utils.exercises")
    for place in (course_utils, quiet):
        vars(place).update(dict.fromkeys(VERBS, _does_nothing))
    for name in ("solutions", "grading"):
        vars(course_utils).pop(name, None)
    course_utils.exercises = sys.modules["course_utils.exercises"] = quiet


def _does_nothing(*arguments, **named):
    """In place of `cu.check` and its like, for those who call it inside an answer cell."""
    return _Nothing()


class _Nothing:
    """A card that shows nothing and is not passed."""

    passed, outcome, mistake, points, message = False, None, None, 0, ""

    def __bool__(self):
        return False

    def __repr__(self):
        return ""


class _Asked(NamedTuple):
    """What must be known of an exercise to define an answer to it."""

    id: str
    name: str
    signature: str
    is_function: bool


def _examine(given, asked, program, seconds) -> str:
    _hide()
    _simulate_devices()
    started = time.monotonic()
    answer, records = _defined(asked, program, seconds)
    exercise, write, number = next(given)
    if records:
        return write(records)()
    return _observed(exercise, answer, seconds, write, number, time.monotonic() - started)


def observed(exercise: Exercise, answer: Any, seconds: float, token: str, spent: float = 0) -> str:
    """The text that says what was seen of an answer, which took `spent` of its seconds to be defined."""
    return _observed(exercise, answer, seconds, _writer(token), control.number(token), spent)


def _observed(exercise, answer, seconds, write, number, spent):
    exercise = replace(exercise, time_limit=max(seconds - spent, 0.01))
    try:
        records = observing.observe(exercise, answer)
    except BaseException as error:  # of an interrupt, or of devices, that the answer made itself
        records = [_raised(error, "")]
    records = [{**r, "seconds": seconds} if r["kind"] == "timed out" else r for r in records]
    written = write(records)  # text by now: nothing that the controls set off changes it
    return written(**_controls(exercise, records, number))


def _controls(exercise, records, number):
    """What `control` sees, where the answer may be right."""
    if any(record["kind"] != "value" for record in records):
        return {}
    idle = control.idle(exercise) if exercise.is_function else None
    return {"idle": idle, "echo": control.echo(exercise, number)}


def _writer(token: str) -> Callable:
    """What makes text of records, and gives what puts the controls' records behind them.

    Made before there is an answer, of a JSON encoder that nobody else can lay hands on by an import. Records
    and controls go through it alike, one at a time.
    """
    encoder = _private("json.encoder").JSONEncoder(default=array_as_json)

    def as_text(record: dict | None) -> str:
        return encoder.encode(plain(record))

    def write(records: list[dict]) -> Callable[..., str]:
        start = f'{token}\n{{"records": [{", ".join([as_text(record) for record in records])}]'

        def whole(idle: dict | None = None, echo: dict | None = None) -> str:
            return f'{start}, "idle": {as_text(idle)}, "echo": {as_text(echo)}}}'

        return whole

    return write


def _private(name: str) -> types.ModuleType:
    """A copy of a module, apart from the one that an import gives."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- the answer, defined


def _defined(asked: _Asked, program, seconds) -> tuple[Any, list]:
    """The answer and no records; or nothing, and the records of an answer that could not be defined."""
    module = types.ModuleType("__main__")
    module.display = print  # what a notebook has besides Python's own
    sys.modules["__main__"] = module
    file = f"your answer to {asked.id}"
    error: BaseException | None = None
    try:
        with time_limit(seconds):
            _run(program["before"], "the released lesson", module)
            _run(program["source"], file, module)
    except TimeUp:
        return None, [{"kind": "timed out", "seconds": seconds}]
    except BaseException as raised:
        error = raised
    if asked.name in vars(module):
        # A line after the definition failed, such as a try-out: the definition stands, as in a notebook.
        return vars(module)[asked.name], []
    if error is not None:
        return None, [_raised(error, _place(error, file))]
    return None, [{"kind": "unusable", "message": _nothing_defined(asked)}]


def _run(source, file, module):
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)  # AutoGraph and tracebacks read them there
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)


def _nothing_defined(asked):
    what = "function" if asked.is_function else "value"
    start = f"def {asked.signature}:" if asked.is_function else f"{asked.name} = …"
    return f"The answer cell defines no {what} {asked.name}. It should hold `{start}`, spelt like this."


def _raised(error, where):
    return {**observing._raised(None, error), "where": where}


def _place(error, file):
    """The line of the answer where it went wrong: "line 2: total = x / 0"."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return _line(error.lineno or 1, error.text or "")
    steps = [step for step in traceback.extract_tb(error.__traceback__) if step.filename == file]
    return _line(steps[-1].lineno, steps[-1].line or "") if steps else ""


def _line(number, text):
    return f"line {number}" + (f": {text.strip()[:120]}" if text.strip() else "")
