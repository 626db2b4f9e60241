"""Is an exercise itself right? Run its right answers, its wrong answers and its stub, and list what does "
"not hold."""

import inspect
from collections.abc import Iterator
from typing import Any

from course_utils.errors import ExerciseError
from course_utils.exercises import attempt
from course_utils.exercises.judging import ODD_FORM, expected_of, judge, known_wrong_record
from course_utils.exercises.model import Exercise, Outcome
from course_utils.exercises.observing import LEARNER_SEED, NOT_ATTEMPTED, cases_of, observe
from course_utils.exercises.plain import same

# How many wrong answers the exercises of a lesson must recognise, at least.
FEWEST_MISTAKES = {"00": 2, "01": 3, "03": 3}
USUAL_FEWEST_MISTAKES = 4
TODO = "TODO"


def fewest_mistakes(lesson: str) -> int:
    """How many mistakes each exercise of a lesson must recognise."""
    return FEWEST_MISTAKES.get(lesson, USUAL_FEWEST_MISTAKES)


def still_to_do(exercise: Exercise) -> list[str]:
    """What of an exercise is not written yet, a sentence each; empty for one that can be proved."""
    return [
        *_of_words_left(exercise),
        *_of_functions_left(exercise),
        *_of_the_reference_left(exercise),
        *_of_answers_left(exercise),
    ]


def problems(exercise: Exercise, seed: int = LEARNER_SEED) -> list[str]:
    """What is wrong with an exercise on the cases of a seed, a sentence each; empty when all is well.

    The reference and `also_right` must pass; each mistake and variant must fail under its own name; the stub
    must be "not attempted".
    """
    return [*_of_right_answers(exercise, seed), *_of_mistakes(exercise, seed), *_of_the_stub(exercise, seed)]


def _of_words_left(exercise) -> Iterator[str]:
    hints = [(f"hint {number}", hint) for number, hint in enumerate(exercise.hints, 1)]
    for what, text in [("title", exercise.title), ("length", exercise.length), *hints]:
        if TODO in text:
            yield f"{exercise.id}: its {what} is still to be written."


def _of_functions_left(exercise) -> Iterator[str]:
    asked = {
        "cases": "two to four cases that tell the mistakes apart",
        "observe": "what to look at, under keys written for the learner",
        "expected": "the right result, computed another way than the reference does",
    }
    for part, what in asked.items():
        if TODO in _source(getattr(exercise, part)):
            yield f"{exercise.id}: its {part} is still to be written: {what}."
    if TODO not in _source(exercise.cases) and not _has_cases(exercise):
        yield f"{exercise.id}: it has no case, so every answer would pass. Give it {asked['cases']}."


def _has_cases(exercise):
    try:
        return bool(cases_of(exercise))
    except ExerciseError:
        return False


def _of_the_reference_left(exercise) -> Iterator[str]:
    where = f"course_utils/solutions/lesson_{exercise.lesson}.py"
    try:
        reference = exercise.reference
    except ExerciseError as error:
        yield str(error)
        return
    if attempt.is_untouched(exercise, reference) or TODO in _source(reference):
        yield f"{exercise.id}: its reference, {exercise.name} in {where}, is still to be written."


def _of_answers_left(exercise) -> Iterator[str]:
    written = [mistake for mistake in exercise.mistakes if TODO not in _words(mistake)]
    fewest = fewest_mistakes(exercise.lesson)
    if len(written) < len(exercise.mistakes) or len(written) < fewest:
        yield (
            f"{exercise.id}: {len(written)} of its mistakes are written, and at least {fewest} are asked "
            "for: each a wrong answer that learners really give, as code, with its name, what went wrong and "
            "what to try."
        )
    if exercise.is_function and not exercise.also_right:
        yield (
            f"{exercise.id}: it has no second right answer (also_right), computed another way than the "
            "reference. Without one, a test could not tell a right answer from a copy of ours."
        )


def _words(mistake):
    told = mistake.went_wrong
    return "\n".join([mistake.name, mistake.try_this, _source(told) if callable(told) else told])


def _source(thing):
    """The source of a function; empty where there is none to read, as of a value."""
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""


def _of_right_answers(exercise, seed) -> Iterator[str]:
    right = [("the reference", exercise.reference)]
    right += [(f"also_right[{i}]", answer) for i, answer in enumerate(exercise.also_right)]
    for name, answer in right:
        verdict = judge(exercise, observe(exercise, answer, seed), seed)
        if not verdict.passed:
            yield f"{exercise.id}, seed {seed}: {name} does not pass.\n{verdict!r}"


def _of_mistakes(exercise, seed) -> Iterator[str]:
    cases = cases_of(exercise, seed)
    for mistake in exercise.mistakes:
        for variant in range(len(mistake.answers)):
            records = [known_wrong_record(exercise, mistake, variant, seed, i) for i in range(len(cases))]
            verdict = judge(exercise, records, seed)
            who = f"{exercise.id}, seed {seed}: the mistake {mistake.name!r} (answer {variant})"
            if verdict.passed or verdict.mistake != mistake.name or NOT_ATTEMPTED in records:
                yield f"{who} should fail as itself.\n{verdict!r}"
            yield from (f"{who} {fault}" for fault in _faults_of_words(exercise, mistake, seed, records))


def _faults_of_words(exercise, mistake, seed, records):
    """The explanation has to work for every case that the mistake gets wrong: any may be the first."""
    cases = cases_of(exercise, seed)
    for case, record, expected in zip(cases, records, expected_of(exercise, seed), strict=True):
        if record["kind"] == "value" and not same(record["value"], expected, exercise.tolerance):
            try:
                mistake.explained(case, record["value"], expected)
            except ODD_FORM as error:
                yield f"cannot be explained for the case {case.get('about', '')!r}: {error!r}."


def _of_the_stub(exercise, seed) -> Iterator[str]:
    verdict = judge(exercise, observe(exercise, stub(exercise), seed), seed)
    if verdict.outcome is not Outcome.NOT_ATTEMPTED:
        yield f"{exercise.id}, seed {seed}: the stub should count as not attempted.\n{verdict!r}"


def stub(exercise: Exercise) -> Any:
    """What the unsolved notebook defines: an empty function, or None; or what `exercise.stub` says."""
    if not exercise.is_function:
        return None
    space: dict = {}
    exec(exercise.stub or f"def {exercise.signature}:\n    ...", space)
    return space[exercise.name]
