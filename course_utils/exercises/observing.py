"""The half of a check that touches the learner's code: run the answer on each case, write down what came out.

All that leaves here is a list of records, plain data, one for each case:

    {"kind": "value", "value": …}                    what `observe` returned
    {"kind": "unusable", "message": …}               it returned something that cannot be looked at
    {"kind": "raised", "type": …, "message": …, "where": …}
    {"kind": "timed out", "seconds": …}              also for the cases after it, which are not run
    {"kind": "not attempted"}                        the only record then
"""

import re
import time
import traceback
import zlib
from typing import Any

import numpy as np

from course_utils.errors import DeviceError, ExerciseError
from course_utils.exercises import attempt
from course_utils.exercises.model import Exercise, lazy
from course_utils.exercises.plain import NotPlain, decode, encode, plain
from course_utils.exercises.returned import Unusable
from course_utils.exercises.timelimit import TimeUp, stop_threads_inside, time_limit

LEARNER_SEED = 0
FIELDS = {
    "value": {"value": object},
    "unusable": {"message": str},
    "raised": {"type": str, "message": str, "where": str},
    "timed out": {"seconds": float},
    "not attempted": {},
}


NOT_ATTEMPTED = {"kind": "not attempted"}


def cases_of(exercise: Exercise, seed: int = LEARNER_SEED) -> list[dict]:
    """The cases for a seed: the same for the same exercise and seed, on every machine.

    For any seed but the learners' in another order too: an answer that gives one result after the other, all
    learned by heart, shall not pass.

    Raises ExerciseError where there is none, as in an exercise that is only begun: every answer would pass.
    """
    random = np.random.default_rng([seed, zlib.crc32(exercise.id.encode())])
    cases = exercise.cases(random)
    if not cases:
        raise ExerciseError(
            f"The exercise {exercise.id!r} has no cases yet, so it cannot be checked.",
            cause="It is begun, and not written to its end.",
            cure="Its author finds what is left to do in the output of tests/exercises.",
        )
    return cases if seed == LEARNER_SEED else [cases[i] for i in random.permutation(len(cases))]


def observe(exercise: Exercise, answer: Any, seed: int = LEARNER_SEED, only: int | None = None) -> list[dict]:
    """The records of the answer over all cases, or `only` the one of that index.

    Never raises for anything that the answer does; DeviceError where this process lacks devices, and
    KeyboardInterrupt where the learner stops it.
    """
    at_first_sight = _looked_at(exercise, answer)
    if at_first_sight is NOT_ATTEMPTED:
        return [NOT_ATTEMPTED]
    cases = cases_of(exercise, seed)
    cases = cases if only is None else [cases[only]]
    if at_first_sight:
        return [at_first_sight] * len(cases)
    _load_lazy_modules(exercise)
    look = exercise.observe  # taken now: an answer that gives the exercise another one changes nothing
    records: list[dict] = []
    ends = time.monotonic() + exercise.time_limit
    for case in cases:
        hung = bool(records) and records[-1]["kind"] == "timed out"
        left = ends - time.monotonic()
        records.append(records[-1] if hung else _observe_case(exercise, look, answer, case, left))
    return records


def to_text(records: list[dict]) -> str:
    """The records as JSON text, to be judged in another process."""
    return encode(records)


def from_text(text: str) -> list[dict]:
    """The records in a text that may come from a hostile process; raises NotPlain for anything else."""
    records = decode(text)
    if not isinstance(records, list) or not records or not all(map(_is_record, records)):
        raise NotPlain("What came back is not a list of records.")
    return records


def _is_record(record):
    kind = record.get("kind") if isinstance(record, dict) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        return False
    fields = FIELDS[kind]
    return record.keys() == {"kind", *fields} and all(isinstance(record[k], t) for k, t in fields.items())


def _looked_at(exercise, answer):
    """The record of an answer that need not, or cannot, be run; None of one that can."""
    try:
        if attempt.is_untouched(exercise, answer):
            return NOT_ATTEMPTED
        complaint = attempt.complaint(exercise, answer)
    except Exception as error:  # an object that raises whatever it is asked
        return _raised(answer, error)
    return {"kind": "unusable", "message": complaint} if complaint else None


def _observe_case(exercise, look, answer, case, seconds_left):
    try:
        with time_limit(max(seconds_left, 0.01)):
            seen = look(answer, case)
        return {"kind": "value", "value": plain(seen)}
    except TimeUp:
        stop_threads_inside(attempt.code_of(answer))
        return {"kind": "timed out", "seconds": float(exercise.time_limit)}
    except (Unusable, NotPlain) as error:
        return {"kind": "unusable", "message": str(error)}
    except DeviceError:
        raise  # this machine's fault, or the order of the notebook's cells; not the answer's
    except KeyboardInterrupt:
        raise  # the learner's own wish
    except BaseException as error:
        return _raised(answer, error)


def _raised(answer, error):
    return {
        "kind": "raised",
        "type": type(error).__name__,
        "message": _sentence(_words(error)),
        "where": _place(answer, error),
    }


def _words(error):
    """Its text; none of an error that raises another one when it is asked."""
    try:
        return str(error)
    except Exception:
        return ""


def _sentence(message):
    """What matters of a message: of TensorFlow's long reports, the line before its call stack."""
    lines = [line.strip() for line in message.split("\n\nCall arguments received")[0].splitlines()]
    lines = [line for line in lines if line]
    if lines and lines[0].startswith("in user code"):
        lines = [lines[-1].partition(": ")[2] or lines[-1]]
    return " ".join(lines)[:400]


def _place(answer, error):
    """The learner's line that raised, as text: "line 2: return total / replicas"; empty if none of theirs "
    "did."""
    code = attempt.code_of(answer)
    if code is None:
        return ""
    steps = traceback.extract_tb(error.__traceback__)
    theirs = [(step.lineno, step.line) for step in steps if step.filename == code.co_filename]
    theirs = theirs or _steps_told(_words(error), code.co_filename)
    if not theirs:
        return ""
    number, line = theirs[-1]
    return f"line {number}" + (f": {line.strip()[:120]}" if line else "")


def _steps_told(message, filename):
    """The steps that AutoGraph, which runs a rewritten copy of the function, tells in its message instead."""
    return re.findall(rf'File "{re.escape(filename)}", line (\d+), in [^\n]*\n\s*([^\n]*)', message)


def _load_lazy_modules(exercise):
    """Import what the lesson's exercises use before the clock starts."""
    for value in list(getattr(exercise.observe, "__globals__", {}).values()):
        if isinstance(value, lazy):
            value.load()
