"""Is an exercise itself right? Run its right answers, its wrong answers and its stub, and list what does "
"not hold."""

from collections.abc import Iterator
from typing import Any

from course_utils.exercises.judging import judge, known_wrong_records
from course_utils.exercises.model import Exercise, Outcome
from course_utils.exercises.observing import LEARNER_SEED, observe


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
    for mistake in exercise.mistakes:
        for variant in range(len(mistake.answers)):
            verdict = judge(exercise, known_wrong_records(exercise, mistake, variant, seed), seed)
            if verdict.passed or verdict.outcome is Outcome.NOT_ATTEMPTED or verdict.mistake != mistake.name:
                yield (
                    f"{exercise.id}, seed {seed}: the mistake {mistake.name!r} (answer {variant}) should "
                    "fail as "
                    f"itself.\n{verdict!r}"
                )


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
