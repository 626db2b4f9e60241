"""The half of a check that touches the learner's code: run the answer on each case, write down what came out.

All that leaves here is a list of records, plain data, one for each case:

    {"kind": "value", "value": …}                    what `observe` returned
    {"kind": "unusable", "message": …}               it returned something that cannot be looked at
    {"kind": "raised", "type": …, "message": …, "where": …}
    {"kind": "timed out", "seconds": …}              and no record for the cases after it
    {"kind": "not attempted"}                        then it is the only one
"""

import importlib
import linecache
import sys
import time
import traceback
import zlib
from typing import Any

import numpy as np

from course_utils.errors import DeviceError
from course_utils.exercises import attempt
from course_utils.exercises.model import Exercise, lazy
from course_utils.exercises.plain import NotPlain, plain
from course_utils.exercises.returned import Unusable
from course_utils.exercises.timelimit import TimeUp, time_limit

LEARNER_SEED = 0


def cases_of(exercise: Exercise, seed: int = LEARNER_SEED) -> list[dict]:
    """The cases for a seed: the same for the same exercise and seed, on every machine."""
    return exercise.cases(np.random.default_rng([seed, zlib.crc32(exercise.id.encode())]))


def observe(exercise: Exercise, answer: Any, seed: int = LEARNER_SEED) -> list[dict]:
    """The records of the answer over all cases; never raises for anything that the answer does."""
    if attempt.is_untouched(exercise, answer):
        return [{"kind": "not attempted"}]
    message = attempt.complaint(exercise, answer)
    if message:
        return [{"kind": "unusable", "message": message}]
    _load_lazy_modules(exercise)
    records: list[dict] = []
    ends = time.monotonic() + exercise.time_limit
    for case in cases_of(exercise, seed):
        records.append(_observe_case(exercise, answer, case, ends - time.monotonic()))
        if records[-1]["kind"] == "timed out":
            break
    return records


def _observe_case(exercise, answer, case, seconds_left):
    try:
        with time_limit(max(seconds_left, 0.01)):
            seen = exercise.observe(answer, case)
        return {"kind": "value", "value": plain(seen)}
    except TimeUp:
        return {"kind": "timed out", "seconds": exercise.time_limit}
    except (Unusable, NotPlain) as error:
        return {"kind": "unusable", "message": str(error)}
    except DeviceError:
        raise  # this machine's fault, or the order of the notebook's cells; not the answer's
    except (Exception, SystemExit) as error:
        return _raised(exercise, answer, error)


def _raised(exercise, answer, error):
    return {
        "kind": "raised",
        "type": type(error).__name__,
        "message": _shortened(str(error)),
        "where": _place(exercise, answer, error),
    }


def _shortened(message):
    """The sentence that matters: of TensorFlow's long reports, the last paragraph before its call stack."""
    lines = [line.strip() for line in message.split("\n\nCall arguments received")[0].splitlines()]
    lines = [line for line in lines if line]
    if lines and lines[0].startswith("in user code"):
        lines = lines[-1:]
    return " ".join(lines)[:400]


def _place(exercise, answer, error):
    """The learner's line that raised, as text: "line 2: return total / replicas"; empty if none of theirs."""
    code = attempt._code_of(answer)
    if code is None:
        return ""
    frames = [
        f for f, _ in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == code.co_filename
    ]
    numbers = [
        n for f, n in traceback.walk_tb(error.__traceback__) if f.f_code.co_filename == code.co_filename
    ]
    if not frames or code.co_filename == sys.modules[__name__].__file__:
        return ""
    inside = frames[-1].f_code
    line = linecache.getline(inside.co_filename, numbers[-1]).strip()
    return f"{inside.co_name}, line {numbers[-1] - inside.co_firstlineno + 1}" + (f": {line}" if line else "")


def _load_lazy_modules(exercise):
    """Import what the lesson's exercises use before the clock starts."""
    space = vars(importlib.import_module(exercise.observe.__module__))
    for value in list(space.values()):
        if isinstance(value, lazy):
            value.load()
