"""How verdicts, hints, solutions and progress look: a small HTML card in a notebook, plain text elsewhere."""

from dataclasses import dataclass

from course_utils.exercises.cards import html, text


@dataclass(frozen=True)
class Card:
    """Something to show: IPython takes the HTML, everything else the text."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def hint_card(exercise, number: int, note: str = "") -> Card:
    """One graded hint, and what comes after it. `note` tells of trouble in saving."""
    if number < len(exercise.hints):
        after = f'Not enough? `cu.hint("{exercise.id}")` again gives the next one.'
    else:
        after = f'That was the last one. `cu.solution("{exercise.id}")` shows our answer.'
    return Card(text.hint(exercise, number, after, note), html.hint(exercise, number, after, note))


def solution_card(exercise, source: str, attempted: bool) -> Card:
    """Our answer; with a word to try first, and folded up, if none was checked yet."""
    return Card(text.solution(exercise, source, attempted), html.solution(exercise, source, attempted))


def no_solution_card(exercise) -> Card:
    """What a release says, which comes without solutions."""
    said = (
        "This copy of the course comes without solutions. "
        f'`cu.hint("{exercise.id}")` helps a little at a time; your instructor has the solutions.'
    )
    return Card(text.plain_card(exercise, "Solution", said), html.plain_card(exercise, "Solution", said))


def progress_card(exercises, progress) -> Card:
    """All exercises by lesson, with outcome and points as `progress` (a `Progress`) has them."""
    rows = [(exercise, progress.outcome(exercise.id), progress.hints(exercise.id)) for exercise in exercises]
    return Card(text.progress(rows, progress.trouble), html.progress(rows, progress.trouble))
