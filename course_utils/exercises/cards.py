"""How verdicts, hints, solutions and progress look: a small HTML card in a notebook, plain text elsewhere."""

from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Card:
    """Something to show: IPython takes the HTML, everything else the text."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def verdict_text(verdict) -> str:
    """The verdict as plain text."""
    parts = [
        f"{verdict.exercise.id}: {verdict.outcome}",
        verdict.mistake or "",
        verdict.message,
        verdict.about,
    ]
    parts += [f"  {x.label}: yours {x.yours}, expected {x.expected}" for x in verdict.lines]
    parts += [verdict.where, verdict.try_this, verdict.note]
    return "\n".join(part for part in parts if part)


def verdict_html(verdict) -> str:
    return f"<pre>{escape(verdict_text(verdict))}</pre>"


def _card(text):
    return Card(text, f"<pre>{escape(text)}</pre>")


def hint_card(exercise, number, note) -> Card:
    return _card(
        f"Hint {number} of {len(exercise.hints)} for {exercise.id}: {exercise.hints[number - 1]}\n{note}"
    )


def no_solution_card(exercise) -> Card:
    return _card(f"This copy of the course holds no solution for {exercise.id}.")


def solution_card(exercise, source, attempted) -> Card:
    return _card(("" if attempted else f"Try it first: {exercise.call}\n\n") + source)


def progress_card(exercises, progress) -> Card:
    return _card("\n".join(f"{e.id}: {progress.outcome(e.id)}" for e in exercises))
