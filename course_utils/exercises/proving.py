"""Is an exercise itself right? Run its right answers, its wrong answers and its stub, and list what does "
"not hold."""

from collections.abc import Iterator
from typing import Any

from course_utils.exercises.judging import ODD_FORM, judge, known_wrong_record
from course_utils.exercises.model import Exercise, Outcome
from course_utils.exercises.observing import LEARNER_SEED, NOT_ATTEMPTED, cases_of, observe
from course_utils.exercises.plain import plain, same


def problems(exercise: Exercise, seed: int = LEARNER_SEED) -> list[str]:
    """What is wrong with an exercise on the cases of a seed, a sentence each; empty when all is well.

    The reference and `also_right` must pass; each mistake and variant must fail under its own name; the stub
    must be "not attempted".
    """
    return [*_of_right_answers(exercise, seed), *_of_mistakes(exercise, seed), *_of_the_stub(exercise, seed)]


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
            yield from (f"{who} {fault}" for fault in _faults_of_words(exercise, mistake, cases, records))


def _faults_of_words(exercise, mistake, cases, records):
    """The explanation has to work for every case that the mistake gets wrong: any may be the first."""
    for case, record in zip(cases, records, strict=True):
        expected = plain(exercise.expected(case))
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
