"""The controls of an examination: what we know, seen after the answer by the same eyes.

An idle function is wrong: where it counts as right after an answer has run, but not in a process of ours,
that answer has changed how answers are looked at. So it has where a number of ours does not come back as it
was.

Both find what changes everything alike. Code that shares a process with its observer and goes about it with
care cannot be found out from inside: `looking.look` names the means that it needs, for a person to read.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable
from typing import Any

from course_utils.exercises import observing
from course_utils.exercises.model import Exercise
from course_utils.exercises.plain import plain, same


def idle(exercise: Exercise, seed: int = observing.LEARNER_SEED) -> dict:
    """What is seen of an idle function on the first case of a seed."""
    return observing.observe(exercise, _idle(exercise), seed, only=0)[0]


def number(token: str) -> dict:
    """A number that goes with the job's token, as a case: to be made before an answer is there to see it."""
    return {"number": int(hashlib.sha256(token.encode()).hexdigest()[:12], 16)}


def echo(exercise: Exercise, known: dict) -> dict:
    """What is seen of a number that is `known`, on its way through observing."""
    echoes = dataclasses.replace(exercise, cases=lambda random: [known], observe=lambda _, case: case)
    return observing.observe(echoes, _idle(exercise) if exercise.is_function else 1)[0]


def came_back(seen: dict | None, token: str) -> bool:
    """Whether the echo is the number that went in."""
    return seen == {"kind": "value", "value": number(token)}


def is_wrongly_right(exercise: Exercise, seen: dict, seed: int) -> bool:
    """Whether the idle function counted as right in the answer's process, and should not."""
    return _is_right(exercise, seen, seed) and not _may_be_right(exercise, seed)


@functools.lru_cache(maxsize=1024)
def _may_be_right(exercise, seed):
    """Whether doing nothing is right on the first case: none of many workers is enough, say."""
    return _is_right(exercise, idle(exercise, seed), seed)


def _is_right(exercise, seen, seed):
    expected = plain(exercise.expected(observing.cases_of(exercise, seed)[0]))
    return seen["kind"] == "value" and same(seen["value"], expected, exercise.tolerance)


def _idle(exercise) -> Callable:
    """A function of the exercise's signature that gives None, and yet is no stub."""
    space: dict[str, Any] = {}
    exec(f"def {exercise.signature}:\n    return [][:0] or None", space)
    return space[exercise.name]
