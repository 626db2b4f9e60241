"""The cards as plain text, for a terminal."""

import textwrap

from course_utils.exercises.cards import words

WIDTH = 88


def verdict(found) -> str:
    """A verdict: outcome and points, the mistake, what went wrong, yours beside expected, what to try."""
    exercise, outcome = found.exercise, found.outcome
    parts = [
        _head(words.GLYPHS[outcome], exercise, words.LABELS[outcome], words.points(exercise, outcome)),
        _wrapped(f"Recognised: {found.mistake}") if found.mistake else "",
        _wrapped(found.message),
        f"  {found.where}" if found.where else "",
        _table(found.about, found.lines) if found.lines else _wrapped(found.about and f"Case: {found.about}"),
        _wrapped(found.try_this and f"{words.advice(found)}: {found.try_this}"),
        _wrapped(found.note and f"Note: {found.note}"),
    ]
    return "\n".join(part for part in parts if part)


def hint(exercise, number, after, note) -> str:
    """A hint."""
    title = f"Hint {number} of {len(exercise.hints)}"
    return plain_card(exercise, title, exercise.hints[number - 1], after, note and f"Note: {note}")


def solution(exercise, source, attempted) -> str:
    """The source of our answer."""
    first = "" if attempted else f"Try it first, nothing was checked yet: {exercise.call}"
    return f"{plain_card(exercise, 'Our answer', first)}\n\n{source.rstrip()}"


def plain_card(exercise, title, *paragraphs) -> str:
    """A head with paragraphs under it."""
    return "\n".join([f"{title} · {exercise.id} · {exercise.title}", *(_wrapped(p) for p in paragraphs if p)])


def progress(rows, note) -> str:
    """The table of all exercises."""
    earned, possible = words.total(rows)
    lines = [
        f"{earned} of {words.counted(possible, 'point')}",
        *([_wrapped(f"Note: {note}")] if note else []),
    ]
    width = max((len(exercise.id) for exercise, *_ in rows), default=0)
    for lesson, group in words.by_lesson(rows):
        lines.append(f"Lesson {lesson}")
        for exercise, outcome, hints in group:
            told = f" · {words.counted(hints, 'hint')}" if hints else ""
            lines.append(
                f"  {words.GLYPHS[outcome]} {exercise.id:<{width}}  "
                f"{words.points(exercise, outcome)} · {words.LABELS[outcome]}{told}"
            )
    return "\n".join(lines)


def _head(glyph, exercise, label, points):
    return f"{glyph} {label} · {exercise.id} · {points}"


def _wrapped(text):
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ") if text else ""


def _table(about, lines):
    lines, more = words.shown(lines)
    out = ["", f"  Case: {about}"] if about else [""]
    for line in lines:
        yours, expected = line.texts()
        out.append(f"    {line.label}: {'equal' if line.equal else 'different'}")
        out += _side("yours", yours) + (_side("expected", expected) if not line.equal else [])
    return "\n".join([*out, *([f"    {more}"] if more else []), ""])


def _side(name, text):
    first, *rest = text.splitlines() or [""]
    return [f"      {name:<8}  {first}", *(f"      {'':<8}  {line}" for line in rest)]
