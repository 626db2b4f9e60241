"""From what came out of the sandbox to a verdict: judged here, in the grader's own process, as plain data.

Nothing of an answer is imported or unpickled. What came back is text of limited size: the token of the job,
then JSON, which `observing.from_text` validates anew.
"""

import json
import re
from typing import Any

from course_utils.exercises import judging, observing
from course_utils.exercises.model import Exercise, Outcome
from course_utils.exercises.plain import NotPlain
from course_utils.grading import control
from course_utils.grading.model import UNGRADED, Answer, Ended, Line, Raw, Result

UNREADABLE = ("SyntaxError", "IndentationError", "TabError")
MAX_RETURNED = 2_000_000  # characters
TAMPERED = "It changed how answers are looked at, or wrote its own result: see what it does."


def not_attempted(exercise: Exercise, notes: tuple[str, ...] = ()) -> Result:
    """The result where nothing was handed in."""
    verdict = judging.judge(exercise, [observing.NOT_ATTEMPTED])
    return _result(exercise, verdict.outcome, message=verdict.message, try_this=verdict.try_this, notes=notes)


def verdict(exercise: Exercise, answer: Answer, raw: Raw, seed: int, token: str = "", missing=()) -> Result:
    """The result of an answer, from what its process gave back.

    `token` is what the text must begin with; `missing` are names that the answer uses and nothing defines.
    Never raises for anything in `raw`: that is what a hostile process may have written.
    """
    measured = {"printed": raw.printed, "source": answer.source, "notes": answer.notes}
    measured |= {"seconds": raw.seconds, "memory": raw.memory}
    if raw.ended is not Ended.FINISHED:
        return _ended(exercise, raw, measured)
    try:
        records, idle, echo = _read(raw.text, token)
        _check(exercise, records, idle, echo, seed, token)
    except NotPlain as error:
        return _forged(exercise, str(error), measured)
    return _judged(exercise, records, seed, missing, measured)


def _read(text: str, token: str) -> tuple[list[dict], dict | None, dict | None]:
    """The records and those of the controls, from the text of `examining`; raises NotPlain for others."""
    first, _, rest = text.partition("\n")
    if first != token:
        raise NotPlain("What came back does not begin as it must.")
    if len(rest) > MAX_RETURNED:
        raise NotPlain("Too much came back.")
    try:
        parts = json.loads(rest)
    except (ValueError, RecursionError):
        raise NotPlain("What came back is damaged.") from None
    if not isinstance(parts, dict) or parts.keys() != {"records", "idle", "echo"}:
        raise NotPlain("What came back is no list of records.")
    idle, echo = (_record(parts[name]) if parts[name] else None for name in ("idle", "echo"))
    return observing.from_text(json.dumps(parts["records"])), idle, echo


def _record(parsed):
    return observing.from_text(json.dumps([parsed]))[0]


def _check(exercise, records, idle, echo, seed, token) -> None:
    """None; raises NotPlain where what came back shows that it was not only the answer that was seen."""
    if len(records) > len(observing.cases_of(exercise, seed)):
        raise NotPlain("There are more results than cases.")
    if any(record["kind"] != "value" for record in records):
        return
    if not control.came_back(echo, token) or (idle is None and exercise.is_function):
        raise NotPlain("After it ran, a number of ours was not seen as what it is.")
    if idle and control.is_wrongly_right(exercise, idle, seed):
        raise NotPlain("After it ran, a function that does nothing counted as right.")


def _judged(exercise, records, seed, missing, measured) -> Result:
    found = judging.judge(exercise, records, seed)
    message, try_this = found.message, found.try_this
    if found.outcome is Outcome.RAISED and not found.mistake:
        told = next(record for record in records if record["kind"] == "raised")
        message, try_this = _after_error(told, missing) or (message, try_this)
    return _result(
        exercise,
        found.outcome,
        points=float(found.points),
        mistake=found.mistake,
        message=message,
        try_this=try_this,
        about="" if _is_undefined(exercise, records, seed) else found.about,
        lines=tuple(Line(line.label, *line.texts(), line.equal) for line in found.lines),
        where=found.where,
        **measured,
    )


def _is_undefined(exercise, records, seed) -> bool:
    """Whether an error came before there was an answer to run: it has nothing to do with any case."""
    if len(records) < len(observing.cases_of(exercise, seed)):
        return True
    return records[0]["kind"] == "raised" and records[0]["type"] in UNREADABLE


def _after_error(record, missing) -> tuple[str, str] | None:
    """Words for errors that come from how answers are taken out of a notebook; None for all others."""
    if record["type"] in UNREADABLE:
        return (
            f"Python cannot read the answer cell. {record['type']}: {record['message']}",
            "Run the cell in the notebook, mend the line that Python points at, and hand in again.",
        )
    name = re.match(r"name '(\w+)' is not defined", record["message"])
    if record["type"] == "NameError" and name and name[1] in missing:
        return (
            f"Your answer uses `{name[1]}`, which its cell does not define, nor does the lesson. Only the "
            "answer cells and import statements of a notebook are graded.",
            f"If `{name[1]}` is yours, move it into the answer cell. Else look for a slip of the pen.",
        )
    if record["type"] in ("ModuleNotFoundError", "ImportError"):
        return (
            f"An import of your notebook failed where it was graded. {record['type']}: {record['message']}",
            "Keep to the packages that the course brings, or leave the import out if the answer does not "
            "need it.",
        )
    return None


def _forged(exercise, why, measured) -> Result:
    return _result(
        exercise,
        Outcome.FAILED,
        message=f"No result of your answer could be used: it changed how answers are looked at. {why}",
        try_this="Let the answer return its result, and change nothing of the course, NumPy or TensorFlow.",
        look=(TAMPERED,),
        **measured,
    )


def _ended(exercise, raw, measured) -> Result:
    outcome, message, try_this = _WORDS[raw.ended]
    told = {"code": raw.code, "signal": -(raw.code or 0), "seconds": raw.seconds, "means": raw.means}
    told["memory"] = f"{raw.memory / 2**30:.1f} GiB"
    look = (f"It was not graded: {raw.text or raw.printed or 'no reason is known'}"[:400],)
    return _result(
        exercise,
        outcome,
        message=message.format_map(told),
        try_this=try_this,
        look=look if outcome == UNGRADED else (),
        **measured,
    )


def _result(exercise, outcome, **parts: Any) -> Result:
    given = {"points": 0.0, "possible": float(exercise.points), **parts}
    return Result(exercise_id=exercise.id, title=exercise.title, outcome=str(outcome), **given)


_WORDS = {
    Ended.EXITED: (
        Outcome.RAISED,
        "Your answer ended Python itself, with exit code {code}, before its result could be looked at.",
        "Take out `sys.exit()`, `exit()`, `quit()` and `os._exit()`: a function ends with `return`.",
    ),
    Ended.CRASHED: (
        Outcome.RAISED,
        "Your answer made Python itself crash (signal {signal}): no error could be shown any more.",
        "Look for recursion without an end, for `ctypes`, and for a process that kills itself.",
    ),
    Ended.TIME: (
        Outcome.TIMED_OUT,
        "Your answer had not come to its end after {seconds:.0f} seconds and was stopped.",
        "Look for a loop whose condition never changes, or a wait for something that never comes.",
    ),
    Ended.MEMORY: (
        Outcome.RAISED,
        "Your answer was stopped when it had taken {memory} of memory, more than this exercise can need.",
        "Look for a list or an array that grows without end, or one that is far larger than the case.",
    ),
    Ended.PROCESSES: (
        Outcome.RAISED,
        "Your answer was stopped when it had started more processes or threads than it may.",
        "No exercise asks you to start processes yourself: take out `os.fork`, `subprocess` and the like.",
    ),
    Ended.DISK: (
        Outcome.RAISED,
        "Your answer was stopped when it had written more to disk than this exercise can need.",
        "Look for a loop that writes without end; leave out what is written to disk if no one asks for it.",
    ),
    Ended.OUTPUT: (
        Outcome.FAILED,
        "Your answer was stopped because far more came back from it than this exercise can need.",
        "Return what the exercise asks for, and write to nothing but the screen.",
    ),
    Ended.BROKEN: (
        UNGRADED,
        "Your answer could not be examined. This is no fault of yours: your instructor will see to it.",
        "Nothing for now.",
    ),
}
