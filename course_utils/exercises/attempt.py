"""Look at an answer before it is run: was it attempted, is it the right kind of thing, can it be called?"""

import dis
import inspect
from types import CodeType
from typing import Any

from course_utils.exercises.model import Exercise
from course_utils.exercises.returned import describe


def is_untouched(exercise: Exercise, answer: Any) -> bool:
    """Whether the answer is still the stub: empty, None, `...`, or what `exercise.stub` compiles to."""
    if _is_blank(answer):
        return True
    code = code_of(answer)
    if code is not None:
        return _is_empty(code) or _meaning(code) == _meaning(_stub_code(exercise))
    if inspect.isclass(answer):
        return not any(callable(member) for member in vars(answer).values())
    return False


def complaint(exercise: Exercise, answer: Any) -> str:
    """Why the answer cannot be run at all, as sentences for the learner; empty if it can."""
    if not exercise.is_function:
        return _complaint_about_value(exercise, answer)
    if not callable(answer):
        return (
            f"You gave {describe(answer)}. The check needs the function {exercise.name} itself, "
            f"without brackets, so that it can call it: `{exercise.call}`."
        )
    return _complaint_about_signature(exercise, answer)


def code_of(answer: Any) -> CodeType | None:
    """The code of the learner's own function, also under `tf.function` and decorators; None if there is "
    "none."""
    try:
        answer = getattr(answer, "python_function", answer)  # a tf.function wraps the learner's own
        code = getattr(inspect.unwrap(answer), "__code__", None)
    except Exception:  # wrapped in itself, or an object that raises whatever it is asked
        return None
    return code if isinstance(code, CodeType) else None


def _complaint_about_value(exercise, answer):
    if inspect.isroutine(answer):
        return f"{exercise.name} should be a value, but is {describe(answer)}."
    return ""


def _complaint_about_signature(exercise, answer):
    try:
        theirs = inspect.signature(answer)
    except (TypeError, ValueError):  # built-in functions may not tell
        return ""
    wanted = exercise.parameters.parameters.values()
    positional = [p.name for p in wanted if p.kind is not p.KEYWORD_ONLY]
    keywords = {p.name: None for p in wanted if p.kind is p.KEYWORD_ONLY}
    try:
        theirs.bind(*positional, **keywords)
    except TypeError as error:
        return (
            f"Your {exercise.name} is written as {exercise.name}{theirs}, but the exercise calls "
            f"{exercise.signature}: {error}."
        )
    return ""


def _is_blank(answer):
    if answer is None or answer is ...:
        return True
    if isinstance(answer, str):
        return answer.strip(" .…?_") == ""
    if isinstance(answer, dict):
        return bool(answer) and all(_is_blank(item) for item in answer.values())
    if isinstance(answer, list | tuple):
        return bool(answer) and all(_is_blank(item) for item in answer)
    return False


def _is_empty(code):
    """Nothing but a docstring, `...`, `pass`, `return None` or `raise NotImplementedError`."""
    steps = [step for step, _ in _meaning(code)]
    loaded = [value for step, value in _meaning(code) if value is not None]
    if "RAISE_VARARGS" in steps:
        return "NotImplementedError" in code.co_names and len(steps) <= 6
    return set(steps) <= {"LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"} and all(
        v == "Ellipsis" for v in loaded
    )


def _meaning(code):
    """What a function does, step by step, without line numbers, names of files or docstrings."""
    if code is None:
        return None
    skipped = {"RESUME", "NOP", "CACHE", "COPY_FREE_VARS", "MAKE_CELL"}
    return [(s.opname, _argument(s.argval)) for s in dis.get_instructions(code) if s.opname not in skipped]


def _argument(value):
    if isinstance(value, CodeType):
        return _meaning(value)
    return None if value is None else str(value)


def _stub_code(exercise):
    if not exercise.stub:
        return None
    module = compile(exercise.stub, "<stub>", "exec")
    found = [c for c in module.co_consts if isinstance(c, CodeType) and c.co_name == exercise.name]
    return found[0] if found else None
