"""How values become text on a page. Much of it comes from strangers: nothing in it may disturb the page."""

import re

from course_utils.exercises.cards import words
from course_utils.exercises.model import Outcome
from course_utils.grading.model import UNGRADED

SHOWN = 20_000  # characters of one value; pages are to be read, and nobody reads more

# What has no look of its own, or changes that of its neighbours. Joiners stay: emoji are made with them.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff0-\uffff\ud800-\udfff\U000e0000-\U000e001f]"
)
_MARKS = "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_PILE = re.compile(f"({_MARKS}{{4}}){_MARKS}+")  # no script puts more than four on one letter


def visible(text: str) -> str:
    """The text with all that would act on a page unseen (control characters, changes of direction, piles of
    accents) made visible or taken out; it can be written as UTF-8."""
    return _PILE.sub(r"\1", _INVISIBLE.sub(_shown, text.replace("\r\n", "\n")))


def clipped(text: str, most: int = SHOWN) -> str:
    """The text, cut where it is too long for a page, and how much is missing."""
    left = len(text) - most
    return f"{text[:most]}\n… and {left:,} characters more" if left > 0 else text


def number(value: float) -> str:
    """A number with at most two decimals: "2", "1.5"."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def counted(amount: float, thing: str) -> str:
    """ "1 point", "2.5 points"."""
    return f"{number(amount)} {thing}{'s' * (amount != 1)}"


def duration(seconds: float) -> str:
    """Seconds in words: "0.42 s", "17 s", "3 min 5 s"."""
    if seconds < 10:
        return f"{seconds:.2g} s" if seconds >= 0.01 else "0 s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def lateness(days: float) -> str:
    """How late, in words: "5 hours", "1 day 2 hours"."""
    whole, hours = divmod(max(1, round(days * 24)), 24)
    parts = [counted(whole, "day")] * bool(whole) + [counted(hours, "hour")] * bool(hours)
    return " ".join(parts)


def size(amount: int) -> str:
    """Bytes in words: "120 MiB", "1.4 GiB"."""
    mebibytes = amount / 2**20
    return f"{mebibytes / 1024:.1f} GiB" if mebibytes >= 1000 else f"{mebibytes:.0f} MiB"


def anchor(exercise_id: str) -> str:
    """The id of an exercise's place in a student's page."""
    return "e-" + re.sub(r"[^\w-]", "-", exercise_id)


def glyph(outcome: str) -> str:
    """The sign of an outcome, as on the cards; "?" for one that is none."""
    return words.GLYPHS.get(outcome, "?")


def label(outcome: str) -> str:
    """The words for an outcome, as on the cards."""
    return words.LABELS.get(outcome, outcome[:1].upper() + outcome[1:])


def kind(outcome: str) -> str:
    """The class that gives an outcome its colour."""
    return outcome.replace(" ", "-") if outcome in KINDS[:-1] else "ungraded"


KINDS = (*map(str, Outcome), UNGRADED)


def _shown(found):
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "\ufffd" if 0xD800 <= code <= 0xDFFF or (code >= 0xFFFE and code < 0x10000) else f"[U+{code:04X}]"
