"""Cards: well-formed HTML that shows all that the text says, escaped, the same each time."""

import html.parser
import re

import numpy as np
import pytest
import tensorflow as tf

import course_utils as cu
from course_utils.exercises import cards
from course_utils.exercises.cards.style import STYLE
from course_utils.exercises.judging import judge
from course_utils.exercises.observing import observe
from course_utils.exercises.side_by_side import beside

VOID = {"br", "img"}


class Reader(html.parser.HTMLParser):
    """The visible text of some HTML; fails on a tag that is not closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.seen.append(data)


def visible(card):
    reader = Reader()
    reader.feed(card._repr_html_())
    reader.close()
    assert not reader.open
    return "".join(reader.seen)


ANSWERS = {
    "Passed": lambda x: 2 * x,
    "Not right yet": lambda x: x * x,
    "Raised an error": lambda x: x / 0,
    "Not attempted": None,
    "Timed out": lambda x: [None for _ in iter(int, 1)],
}


@pytest.mark.parametrize("label", ANSWERS)
def test_each_outcome_is_told_in_words_in_the_notebook_and_outside(make_exercise, label):
    exercise = make_exercise(time_limit=0.1)
    verdict = judge(exercise, observe(exercise, ANSWERS[label]))
    for told in (visible(verdict), repr(verdict)):
        assert label in told and "99.double" in told
        assert f"{verdict.points} of 3 points" in told
        assert re.sub(r"[`\s]", "", verdict.message) in re.sub(r"\s", "", told)


def test_what_a_learner_wrote_is_escaped(make_exercise):
    exercise = make_exercise(mistakes=[])
    for answer in (lambda x: "<script>alert(1)</script>", lambda x: {}["<img src=x>"]):
        page = judge(exercise, observe(exercise, answer))._repr_html_()
        assert "<script" not in page and "<img" not in page and "&lt;" in page


def test_code_and_emphasis_of_the_texts_are_shown_as_such(make_exercise):
    exercise = make_exercise(hints=["Use `a*b*c`, the *global* one, **once**: 2 * 3 * 4 < 25.", "b"])
    page = cards.hint_card(exercise, 1).html
    assert "<code>a*b*c</code>, the <em>global</em> one, <strong>once</strong>: 2 * 3 * 4 &lt; 25." in page


def test_a_card_is_the_same_each_time():
    pages = [cu.check("04.compute_loss", lambda a, b: tf.reduce_mean(a))._repr_html_() for _ in range(2)]
    assert pages[0] == pages[1] and "0x" not in pages[0]


def test_every_class_of_the_cards_has_a_style():
    shown = [
        cu.check("04.compute_loss", lambda a, b: tf.reduce_mean(a)),
        cu.check("04.compute_loss", lambda a, b: a.nothing),
        cu.check("04.compute_loss", None),
        cu.hint("04.compute_loss"),
        cu.solution("04.compute_loss"),
        cu.progress(),
    ]
    used = {
        name
        for card in shown
        for names in re.findall(r'class="([^"]+)"', card._repr_html_())
        for name in names.split()
    }
    bare = {"cu-equal", "cu-none"}  # they need no look of their own
    assert {name for name in used - bare if f".{name}" not in STYLE} == set()


def test_the_solution_is_coloured_without_losing_a_character():
    source = cu.exercises.reference_source("04.l2_loss")
    assert source.strip() in visible(cu.solution("04.l2_loss"))
    assert '<span class="cu-k">def</span>' in cu.solution("04.l2_loss")._repr_html_()


def lines(yours, expected):
    (line,) = beside(yours, expected, 1e-9)
    return line.texts()


def test_short_lists_stand_entry_under_entry():
    assert lines([1, 200, 3], [1, 2, 3]) == ("[1, 200, 3]", "[1,   2, 3]")
    assert lines(np.array([[1.5, 2], [3, 4]]), np.array([[1.5, 20], [3, 4]])) == (
        "[1.5,  2]\n[3, 4]",
        "[1.5, 20]\n[3, 4]",
    )


def test_of_long_lists_the_part_around_the_first_difference_is_shown():
    yours = np.arange(40)
    yours[20] = -1
    mine, theirs = lines(yours, np.arange(40))
    assert mine == "[… 17 more, 17, 18, 19, -1, 21, 22, 23, 24, 25, 26, … 13 more]"
    assert theirs == "[… 17 more, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, … 13 more]"


def test_lists_of_unequal_length_are_shown_whole():
    assert lines([1, 2], [1, 2, 3]) == ("[1, 2]", "[1, 2, 3]")
    assert lines([], [1]) == ("[]", "[1]")
    assert lines([[1, 2]], [[1, 2], [3, 4]]) == ("[1, 2]", "[1, 2]\n[3, 4]")


def test_numbers_get_as_many_digits_as_the_difference_needs():
    assert lines(1.23456789, 1.23456999) == ("1.23456789", "1.23456999")
    assert lines(0.1 + 0.2, 0.4) == ("0.3", "0.4")
    assert lines(1048576, 2) == ("1,048,576", "2")


def test_a_key_that_is_missing_or_too_much_is_shown_as_such():
    found = beside({"a": 1, "c": 3}, {"a": 1, "b": 2}, 1e-5)
    assert [(line.label, *line.texts(), line.equal) for line in found] == [
        ("a", "1", "1", True),
        ("b", "(missing)", "2", False),
        ("c", "3", "(missing)", False),
    ]


def test_of_very_many_lines_some_are_counted_instead_of_shown(make_exercise):
    exercise = make_exercise(
        observe=lambda answer, case: {f"line {i}": i for i in range(30)},
        expected=lambda case: {f"line {i}": i if i < 28 else -1 for i in range(30)},
        mistakes=[],
    )
    told = visible(judge(exercise, observe(exercise, lambda x: x)))
    assert "line 11" in told and "line 12" not in told and "18 lines more, 2 of them wrong" in told
