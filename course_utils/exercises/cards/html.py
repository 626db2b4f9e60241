"""The cards as HTML for a notebook: plain elements that read well even where the style is taken away."""

import re
from html import escape

from course_utils.exercises.cards import words
from course_utils.exercises.cards.style import STYLE
from course_utils.exercises.model import Outcome


def verdict(found) -> str:
    """A verdict: outcome and points, the mistake, what went wrong, yours beside expected, what to try."""
    exercise, outcome = found.exercise, found.outcome
    badge = _badge(outcome)
    return _card(
        _kind(outcome),
        _head(badge, exercise, words.points(exercise, outcome)),
        f'<p class="cu-mistake">Recognised: <strong>{rich(found.mistake)}</strong></p>'
        if found.mistake
        else "",
        _paragraph(found.message),
        f'<pre class="cu-where">{escape(found.where)}</pre>' if found.where else "",
        _table(found),
        _paragraph(found.try_this, "cu-try", words.advice(found)),
        _paragraph(found.note, "cu-note", "Note"),
    )


def hint(exercise, number, after, note) -> str:
    """A hint."""
    title = f'<span class="cu-badge">Hint {number} of {len(exercise.hints)}</span>'
    return _card(
        "cu-hint",
        _head(title, exercise),
        _paragraph(exercise.hints[number - 1]),
        _paragraph(after, "cu-after"),
        _paragraph(note, "cu-note", "Note"),
    )


def solution(exercise, source, attempted) -> str:
    """The source of our answer, folded up if nothing was checked yet."""
    code = f'<pre class="cu-code"><code>{highlighted(source.rstrip())}</code></pre>'
    if not attempted:
        first = f"Try it first: nothing was checked yet. `{exercise.call}`"
        code = f"{_paragraph(first)}<details><summary>Show our answer anyway</summary>{code}</details>"
    return _card("cu-hint", _head('<span class="cu-badge">Our answer</span>', exercise), code)


def plain_card(exercise, title, *paragraphs) -> str:
    """A head with paragraphs under it."""
    head = _head(f'<span class="cu-badge">{escape(title)}</span>', exercise)
    return _card("cu-none", head, *map(_paragraph, paragraphs))


def progress(rows, note) -> str:
    """The table of all exercises, a bar on top."""
    earned, possible = words.total(rows)
    groups = "".join(_lesson_rows(*group) for group in words.by_lesson(rows))
    return _card(
        "cu-progress",
        f'<div class="cu-head"><strong>Your progress</strong><span class="cu-points">{earned} of '
        f"{words.counted(possible, 'point')}</span></div>",
        _bar(round(100 * earned / possible) if possible else 0),
        _paragraph(note, "cu-note", "Note"),
        f'<table class="cu-list">{groups}</table>',
    )


def rich(text: str) -> str:
    """Escaped text in which `code`, **strong** and *emphasis* of Markdown mean what they say."""
    parts = re.split(r"`([^`\n]+)`", text)  # every second part stood between backticks
    return "".join(f"<code>{escape(p)}</code>" if i % 2 else _emphasis(p) for i, p in enumerate(parts))


def highlighted(source: str) -> str:
    """Python source with the colours of the notebook's own editor."""
    from pygments.lexers import PythonLexer

    return "".join(_token(kind, text) for kind, text in PythonLexer(stripnl=False).get_tokens(source))


def _kind(outcome):
    return f"cu-{str(outcome).replace(' ', '-')}"


def _badge(outcome):
    glyph = f'<span aria-hidden="true">{words.GLYPHS[outcome]}</span>'
    return f'<span class="cu-badge">{glyph} {words.LABELS[outcome]}</span>'


def _card(kind, *parts):
    return f'<div class="cu-card {kind}"><style>{STYLE}</style>{"".join(parts)}</div>'


def _head(badge, exercise, points=""):
    right = f'<span class="cu-points">{points}</span>' if points else ""
    title = f'<span class="cu-title"><code>{exercise.id}</code> {rich(exercise.title)}</span>'
    return f'<div class="cu-head">{badge} {title} {right}</div>'


def _paragraph(text, kind="", label=""):
    if not text:
        return ""
    before = f"<strong>{label}:</strong> " if label else ""
    return f"<p{f' class={kind!r}' * bool(kind)}>{before}{rich(text)}</p>"


def _emphasis(text):
    text = re.sub(r"\*\*(\S(?:.*?\S)?)\*\*", r"<strong>\1</strong>", escape(text, quote=False))
    return re.sub(r"(?<![\w*])\*([^\s*](?:[^*]*[^\s*])?)\*(?![\w*])", r"<em>\1</em>", text)


def _table(found):
    if not found.lines:
        return _paragraph(found.about, "cu-about", "Case")
    lines, more = words.shown(found.lines)
    caption = f"<caption>{rich(found.about)}</caption>" if found.about else ""
    head = '<tr><td></td><td></td><th scope="col">yours</th><th scope="col">expected</th></tr>'
    rest = f'<p class="cu-after">{escape(more)}</p>' if more else ""
    table = f'<table class="cu-beside">{caption}{head}{"".join(map(_line, lines))}</table>'
    return f'<div class="cu-wide">{table}</div>{rest}'


def _line(line):
    yours, expected = line.texts()
    kind, glyph, word = ("cu-equal", "✓", "equal") if line.equal else ("cu-differs", "✗", "different")
    label = f'<th scope="row">{rich(line.label)}</th>'
    mark = f'<td class="cu-mark"><span aria-hidden="true">{glyph}</span> {word}</td>'
    if max(len(yours), len(expected)) <= 36 and "\n" not in yours + expected:
        cells = f"<td><code>{escape(yours)}</code></td><td><code>{escape(expected)}</code></td>"
    else:
        both = f"{_named('yours', yours)}\n{_named('expected', expected)}"
        cells = f'<td colspan="2"><pre>{escape(both)}</pre></td>'
    return f'<tr class="{kind}">{label}{mark}{cells}</tr>'


def _named(name, text):
    """A value under which its partner's entries come to stand in the same columns."""
    return f"{name:<10}" + text.replace("\n", "\n" + " " * 10)


def _bar(percent):
    inner = f'<div style="width:{percent}%"></div>'
    return f'<div class="cu-bar" role="img" aria-label="{percent} percent of the points">{inner}</div>'


def _lesson_rows(lesson, rows):
    earned, possible = words.total(rows)
    head = (
        f'<tr class="cu-lesson"><th scope="rowgroup" colspan="3">Lesson {lesson}</th>'
        f"<td>{earned} of {words.counted(possible, 'point')}</td></tr>"
    )
    return head + "".join(_exercise_row(*row) for row in rows)


def _exercise_row(exercise, outcome, hints):
    told = f" <small>{words.counted(hints, 'hint')}</small>" if hints else ""
    earned = exercise.points if outcome is Outcome.PASSED else 0
    return (
        f'<tr class="{_kind(outcome)}"><td>{_badge(outcome)}{told}</td><td><code>{exercise.id}</code></td>'
        f"<td>{rich(exercise.title)}</td><td>{earned} of {exercise.points}</td></tr>"
    )


def _token(kind, text):
    from pygments.token import Comment, Keyword, Name, Number, Operator, String

    classes = [
        (Comment, "cu-c"),
        (Keyword, "cu-k"),
        (String, "cu-s"),
        (Number, "cu-n"),
        (Operator.Word, "cu-k"),
        (Name.Function, "cu-d"),
        (Name.Class, "cu-d"),
    ]
    found = next((name for family, name in classes if kind in family), "")
    return f'<span class="{found}">{escape(text)}</span>' if found else escape(text)
