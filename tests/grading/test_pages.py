"""The pages for students and class: what they say, what hostile text cannot do, and who can read them."""

import dataclasses
import itertools
import random
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from course_utils.exercises.model import Outcome
from course_utils.grading import pages
from course_utils.grading.model import UNGRADED, Batch, BatchInfo, Graded, Line, Result
from course_utils.grading.pages import analysis, text
from tests.lab import seat

INFO = BatchInfo("Lesson 04", "30 November 2026, 21:34", "20 s and 2 GiB an answer", 130.0, 3 * 2**30, "r17")
EXERCISES = {"04.compute_loss": 2.0, "04.l2_loss": 2.0, "04.uneven_batch": 3.0}
HOSTILE = (
    "</code></pre></details></article><script>document.title='broken'</script><img src=x onerror=alert(1)>"
    "<!-- --><![CDATA[ ]]></style></title><base href='//x'>\"'&lt;&#x3c; {{ 7 * 7 }} {% raw %} ${x} "
    "javascript:x "
    "\u202egnp.exe\u2066\u2069 \x00\x07\x1b[31m\x85\u2028\ufeff\ud800\udfff\uffff a"
    + "\u0310" * 500
    + " 👩‍👩‍👧‍👦 "
)


def result(exercise_id="04.l2_loss", outcome="failed", **parts):
    possible = EXERCISES[exercise_id]
    points = possible if outcome == "passed" else 0.0
    given = {"title": f"Title of {exercise_id}", "points": points, "possible": possible, **parts}
    return Result(exercise_id=exercise_id, outcome=outcome, **given)


def graded(*results, key="ada", student="Ada Lovelace", status="graded", **parts):
    return Graded(key, student, status, results or (result(),), **parts)


def batch(*students, **parts):
    return Batch(tuple(students), tuple(EXERCISES), **{"seed": 4711, "means": "namespaces", **parts})


def a_class(size, seed=0):
    """Students of random skill: who knows more passes more."""
    chance = random.Random(seed)
    return [
        graded(
            *(
                result(
                    exercise_id,
                    "passed"
                    if chance.random() < skill
                    else chance.choice(["failed", "raised", "timed out", "not attempted"]),
                    seconds=chance.random(),
                )
                for exercise_id in EXERCISES
            ),
            key=f"s{number:03}",
            student=f"Student {number:03}",
            seconds=chance.random() * 9,
        )
        for number in range(size)
        for skill in [chance.random()]
    ]


class Parts(HTMLParser):
    """The elements of a page, its text, and what its attributes point at."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.points_at, self.words = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if not str(named.get("class")).startswith("cu-"):  # colours of source code
            self.elements.append((tag, tuple(name for name, _ in attributes), named.get("class")))
        self.points_at += [value for name, value in attributes if name in ("href", "src", "action", "data")]

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def everything(said):
    """A student with every part of a page filled, all with the same words."""
    lines = (Line(said, said, said, False), Line(said, "1", "2", True))
    parts = {name: said for name in ("message", "try_this", "about", "where", "printed", "source", "comment")}
    full = result(mistake=said, title=said, lines=lines, notes=(said, said), look=(said,), **parts)
    return graded(
        full,
        result("04.uneven_batch", "raised"),
        student=said,
        notes=(said, said),
        comment=said,
        days_late=1.0,
        penalty=0.5,
    )


# --- a student's page


def test_a_student_reads_outcome_mistake_advice_comparison_line_and_answer():
    one = graded(
        result("04.compute_loss", "passed", message="Right, in all 4 cases."),
        result(
            "04.l2_loss",
            mistake="L2 not divided",
            message="The term is there `2` times.",
            try_this="Divide it.",
            about="2 replicas",
            lines=(Line("loss", "21.435", "20.711", False),),
            notes=("A magic was left out.",),
            printed="tracing\n",
            source="def loss_with_l2():\n    return 1",
            comment="Nearly!",
        ),
        result("04.uneven_batch", "raised", message="KeyError: 'x'", where="line 3: return x"),
        days_late=1.25,
        penalty=0.5,
        comment="See me.",
    )
    page = Parts(pages.student(one, INFO)).text
    for said in (
        *(
            "Ada Lovelace",
            "1.5 of 7 points",
            "1 of 3 exercises passed",
            "Handed in 1 day 6 hours late",
            "0.5 taken off",
        ),
        *("Recognised: L2 not divided", "The term is there 2 times.", "Try this: Divide it.", "2 replicas"),
        *("loss ✗ different 21.435 20.711", "Note: A magic was left out.", "tracing", "Nearly!", "See me."),
        *("line 3: return x", "KeyError: 'x'", "loss_with_l2", "30 November 2026, 21:34"),
    ):
        assert said in page, said


@pytest.mark.parametrize("outcome", [*map(str, Outcome), UNGRADED])
def test_an_outcome_is_told_by_a_sign_and_by_words_not_by_colour_alone(outcome):
    page = Parts(pages.student(graded(result(outcome=outcome)), INFO)).text
    assert f"{text.glyph(outcome)} {text.label(outcome)}" in page


def test_what_an_instructor_should_look_at_and_the_seed_are_kept_from_students():
    page = pages.student(graded(result(look=("It looks at the call stack.",))), INFO)
    assert "call stack" not in page and "4711" not in page


def test_points_by_hand_are_told_as_such():
    assert (
        "1.5 of 2 points, by hand"
        in Parts(pages.student(graded(result(points=1.5, by_hand=True)), INFO)).text
    )
    assert "set the total by hand" in Parts(pages.student(graded(total=6.0), INFO)).text


@pytest.mark.parametrize(
    "status, said",
    [("unreadable", "could not be read"), ("nothing handed in", "No notebook of yours was found")],
)
def test_who_handed_in_nothing_readable_is_told_what_to_do_and_nothing_of_exercises(status, said):
    one = graded(
        result(outcome="not attempted", message="Nothing to check yet."), status=status, notes=("A PDF.",)
    )
    page = Parts(pages.student(one, INFO)).text
    assert said in page and "A PDF." in page and "0 of 2 points" in page
    assert "Nothing to check yet" not in page


def test_many_lines_of_a_comparison_are_cut_and_counted_as_on_the_cards():
    lines = tuple(Line(f"entry {i}", "1", "2", i % 2 == 0) for i in range(20))
    page = Parts(pages.student(graded(result(lines=lines)), INFO)).text
    assert "entry 11" in page and "entry 12" not in page
    assert "… and 8 lines more, 4 of them wrong" in page


# --- text of strangers


def test_hostile_text_is_text_wherever_it_stands():
    for make in (
        lambda said: pages.student(everything(said), INFO),
        lambda said: pages.class_page(
            batch(
                everything(said),
                dataclasses.replace(everything(said), status="unreadable"),
                means=said,
                notes=(said,),
            ),
            INFO,
        ),
    ):
        harmless, hostile = Parts(make("harmless words " * 5)), Parts(make(HOSTILE))
        assert hostile.elements == harmless.elements
        assert hostile.points_at == harmless.points_at
        assert "<script>document.title='broken'</script>" in hostile.text


def test_a_key_cannot_lead_a_link_astray():
    page = pages.class_page(batch(graded(result(look=("odd",)), key='a/../"><b> ü')), INFO)
    links = [link for link in Parts(page).points_at if "feedback" in link]
    assert links and all(link.startswith("feedback/a/..%2F") or "%22%3E%3Cb%3E" in link for link in links)
    assert '"><b>' not in page


def test_what_acts_unseen_is_shown_and_pages_can_be_written_as_utf_8():
    page = pages.student(everything(HOSTILE), INFO)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202a-\u202e\u2066-\u2069\ufeff]", page)
    assert "[U+202E]gnp.exe" in page and "␛[31m" in page
    page.encode("utf-8")


def test_accents_are_not_piled_up_over_other_lines_and_scripts_and_emoji_stay_whole():
    assert text.visible("a" + "\u0310" * 500) == "a" + "\u0310" * 4
    for said in ("👩‍👩‍👧‍👦", "Zoë", "नमस्ते", "שָׁלוֹם", "Nguyễn", "می‌خواهم", "tab\there\nand a line"):
        assert text.visible(said) == said


def test_long_values_are_cut_and_say_by_how_much():
    page = pages.student(everything("x" * 200_000), INFO)
    assert len(page) < 150_000
    assert "… and 180,000 characters more" in page


# --- what a page may load


def test_pages_name_nothing_outside_themselves_and_forbid_the_browser_the_rest():
    for page in (pages.student(everything("words"), INFO), pages.class_page(batch(*a_class(3)), INFO)):
        parts = Parts(page)
        assert all(re.match(r"#[\w-]+$|feedback/[\w%.]+\.html(#[\w-]+)?$", link) for link in parts.points_at)
        assert "default-src 'none'" in page
        assert not re.search(r"url\(|@import|https?:", page)
    assert "<script" not in pages.student(everything("words"), INFO)


def test_every_template_is_among_the_files_that_an_installation_takes_along():
    root = Path(__file__).resolve().parents[2]
    named = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    taken = {
        file
        for package, globs in named.items()
        for pattern in globs
        for file in root.joinpath(*package.split(".")).glob(pattern)
    }
    there = {
        file for file in Path(pages.__file__).parent.rglob("*") if file.suffix in (".html", ".css", ".js")
    }
    assert there and there <= taken


# --- the class


def test_totals_are_all_counted_once_in_the_column_where_they_belong():
    totals = [0, 0, 1.5, 2, 7, 7, 7]
    students = [graded(*(result(e) for e in EXERCISES), key=str(i), total=t) for i, t in enumerate(totals)]
    found = analysis.columns(students)
    assert [(c.label, c.count) for c in found if c.count] == [("0", 2), ("1", 1), ("2", 1), ("7", 3)]
    assert [c.label for c in found] == [*"01234567"]


@pytest.mark.parametrize("possible", [12, 13, 34, 119, 1000])
def test_more_points_are_counted_in_about_ten_ranges_without_a_gap(possible):
    students = [
        graded(result(possible=float(possible)), key=str(i), total=float(i)) for i in range(possible + 1)
    ]
    found = analysis.columns(students)
    assert sum(c.count for c in found) == possible + 1
    assert len(found) <= 13
    ends = [[int(part) for part in column.label.split("–")] for column in found]
    assert [ends[0][0], ends[-1][-1]] == [0, possible]
    assert all(after[0] == before[-1] + 1 for before, after in itertools.pairwise(ends))


def test_an_item_counts_outcomes_and_its_discrimination_is_the_point_biserial_correlation():
    students = a_class(60)
    for item in analysis.items(students):
        mine = [next(r for r in one.results if r.exercise_id == item.exercise_id) for one in students]
        for outcome, count in item.outcomes.items():
            assert count == sum(r.outcome == outcome for r in mine)
        assert item.students == 60
        passed = np.array([r.outcome == "passed" for r in mine])
        rest = np.array([one.earned - r.points for one, r in zip(students, mine, strict=True)])
        share = passed.mean()
        expected = (rest[passed].mean() - rest[~passed].mean()) / rest.std() * np.sqrt(share * (1 - share))
        assert item.discrimination == pytest.approx(expected)
        assert item.mean == pytest.approx(np.mean([r.points for r in mine]))


def test_no_discrimination_is_told_of_few_students_or_where_all_have_the_same():
    assert analysis.discrimination([0, 1] * 4, [1, 2] * 4) is None
    assert analysis.discrimination([1] * 20, [1, 2] * 10) is None
    assert analysis.discrimination([0, 1] * 10, [3] * 20) is None
    assert analysis.discrimination([0, 1] * 10, [1, 0] * 10) == pytest.approx(-1)


def test_mistakes_are_counted_the_most_frequent_first_with_links_to_who_made_them():
    made = ["mean per replica"] * 2 + ["not divided"] * 5 + [None]
    students = [graded(result(mistake=name), key=f"k{i}", student=f"S{i}") for i, name in enumerate(made)]
    students.append(graded(result(outcome="passed"), key="right"))
    (item,) = analysis.items(students)
    assert [(m.name, len(m.students)) for m in item.mistakes] == [
        ("not divided", 5),
        ("mean per replica", 2),
        ("", 1),
    ]
    page = pages.class_page(batch(*students), INFO)
    section = page[page.index('id="mistakes"') : page.index('id="look"')]
    linked = re.findall(r'feedback/(\w+)\.html#e-04-l2_loss"', section)
    assert linked == ["k2", "k3", "k4", "k5", "k6", "k0", "k1", "k7"]
    assert "wrong in a way that is not known" in section


def test_links_lead_to_a_place_that_the_students_page_has():
    one = graded(*(result(e, look=("odd",)) for e in EXERCISES), key="ü 1")
    for link in Parts(pages.class_page(batch(one), INFO)).points_at:
        if link.startswith("feedback/"):
            file, _, place = unquote(link).partition("#")
            assert file == "feedback/ü 1.html"
            assert not place or f'id="{place}"' in pages.student(one, INFO)


def test_what_to_look_at_by_hand_is_flagged_answers_lost_ones_and_unreadable_files_alone():
    looked = [
        graded(result(look=("Line 2 ends Python (_exit).",)), key="flagged", student="A"),
        graded(
            result(outcome=UNGRADED, message="No sandbox."), key="lost", student="B", status="not all graded"
        ),
        graded(
            result(outcome="not attempted"), key="file", student="C", status="unreadable", notes=("A PDF.",)
        ),
    ]
    fine = graded(result(outcome="raised"), key="fine", student="D")
    found = analysis.to_look_at([*looked, fine])
    assert [(look.student.key, [reasons for _, reasons in look.reasons]) for look in found] == [
        ("flagged", [("Line 2 ends Python (_exit).",)]),
        ("lost", [("No sandbox.",)]),
        ("file", [("A PDF.",)]),
    ]
    assert "To look at by hand 3 students" in Parts(pages.class_page(batch(*looked, fine), INFO)).text


def test_figures_of_the_class_leave_out_whose_work_was_not_seen():
    seen = [graded(result(outcome="passed"), key="one")]
    unseen = [
        graded(result(outcome="not attempted"), key=s, status=s) for s in ("unreadable", "nothing handed in")
    ]
    page = Parts(pages.class_page(batch(*seen, *unseen), INFO)).text
    assert "1 of 3 submissions graded · 1 could not be read · 1 handed in nothing" in page
    assert "100 %" in page


def test_the_class_page_says_how_it_was_graded():
    page = Parts(
        pages.class_page(
            batch(*a_class(2), late_policy="10% per day", notes=("One file is nobody's.",)), INFO
        )
    ).text
    for said in (
        "namespaces",
        "20 s and 2 GiB an answer",
        "4711",
        "10% per day",
        "r17",
        "2 min 10 s",
        "3.0 GiB",
    ):
        assert said in page, said
    assert "One file is nobody's." in page


def test_students_of_one_name_can_be_told_apart():
    page = Parts(
        pages.class_page(batch(graded(key="ada_1"), graded(key="ada_2"), graded(key="x", student="X")), INFO)
    ).text
    assert "(ada_1)" in page and "(ada_2)" in page and "(x)" not in page


@pytest.mark.parametrize("size", [0, 1, 500])
def test_a_class_of_any_size_has_a_page(size):
    page = Parts(pages.class_page(batch(*a_class(size)), INFO)).text
    assert f"{size} of {size} submission" in page
    assert ("nothing to grade" in page) == (size == 0)
    assert all(f"Student {i:03}" in page for i in range(size))


# --- in a browser

CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8")


def shown_pages():
    """Pages of every kind, the hostile ones included."""
    unlike = [everything(HOSTILE + "x" * 20_000), graded(status="unreadable", notes=("A PDF.",), key="pdf")]
    lost = graded(result(outcome=UNGRADED, message="No sandbox."), key="lost", status="not all graded")
    every = graded(
        *(result(e, o) for e, o in zip(EXERCISES, ("passed", "timed out", "not attempted"), strict=True))
    )
    for name, one in {
        "words": everything("some words"),
        "hostile": unlike[0],
        "unreadable": unlike[1],
        "all": every,
    }.items():
        yield f"student-{name}.html", pages.student(one, INFO)
    for size in (0, 1, 40):
        yield f"class-{size}.html", pages.class_page(batch(*a_class(size)), INFO)
    yield "class-hostile.html", pages.class_page(batch(*a_class(20), *unlike, lost, means=HOSTILE), INFO)
    many = [dataclasses.replace(one, results=one.results * 17) for one in a_class(5)]
    yield "class-wide.html", pages.class_page(Batch(tuple(many), tuple(EXERCISES) * 17, 1), INFO)


@pytest.fixture(scope="module")
def browser():
    if not seat.CHROMIUM:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with seat.browser_page() as page:
        yield page.context.browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_the_screen_can_be_read_and_load_nothing(browser, tmp_path, width, scheme):
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme) as context:
        page, asked, told = context.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: told.append(message.text))
        for name, source in shown_pages():
            path = tmp_path / name
            path.write_text(source, encoding="utf-8")
            page.goto(path.as_uri())
            page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.evaluate(CONTRAST) == [], name
            assert page.title() != "broken"
        assert len(asked) == len(list(tmp_path.iterdir())) and told == []


def test_the_table_of_students_sorts_by_a_click_and_is_whole_without_a_script(browser, tmp_path):
    path, students = tmp_path / "index.html", a_class(30)
    path.write_text(pages.class_page(batch(*students), INFO), encoding="utf-8")
    for script in (True, False):
        with browser.new_context(java_script_enabled=script) as context:
            page = context.new_page()
            page.goto(path.as_uri())
            rows = page.locator("table.students tbody tr")
            assert rows.count() == 30
            assert page.get_by_text("A click on a heading sorts").is_visible() == script
            if script:
                page.get_by_role("button", name="total").click()
                totals = [float(told) for told in rows.locator("td:nth-child(2)").all_inner_texts()]
                assert totals == sorted(one.earned for one in students)
                page.get_by_role("button", name="total").click()
                assert rows.locator("td:nth-child(2)").first.inner_text() == text.number(max(totals))
