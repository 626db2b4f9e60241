"""Collecting: whose a file is, however it comes; no file stops the class, nothing is unpacked or followed."""

import io
import os
import random
import re
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from course_utils.errors import GradingError
from course_utils.grading import reading, walking
from course_utils.grading.collecting import collect
from tests.grading.handed_in import (
    LOSS,
    OTHER,
    RIGHT,
    encrypted,
    link_in_zip,
    text,
    write,
    zipped,
)

NAME = "04_loss_scaling.ipynb"
DUE = datetime(2026, 11, 29, 12)


@pytest.fixture(scope="module", autouse=True)
def read_once():
    """The same few notebooks come again and again here; how they are read is the matter of test_reading."""
    known, read = {}, reading.read

    def remembering(data, name):
        if data not in known:
            known[data] = read(data, name)
        return replace(known[data], name=reading.clean(name))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "read", remembering)
        yield


@pytest.fixture
def gather(tmp_path):
    """`collect` over a folder with these files, or the folder `below` it."""

    def gather(files, below="", **told):
        return collect(write(tmp_path / "class", files) / below, **told)

    return gather


@pytest.fixture
def gather_zip(tmp_path):
    """`collect` over a zip with these files."""

    def gather(files, **told):
        return collect(write(tmp_path, {"all.zip": zipped(files)}) / "all.zip", **told)

    return gather


def students(submissions):
    return [submission.student for submission in submissions]


def names(submission):
    return [notebook.name for notebook in submission.notebooks]


def error(submission):
    (notebook,) = submission.notebooks
    return notebook.error


# --- layouts


def test_a_folder_is_a_student(gather):
    anna, ben, carl = gather({f"anna/{NAME}": None, f"ben/deep/er/{NAME}": None, "carl/": None})
    assert (anna.student, anna.key, anna.ids, anna.notes) == ("anna", "anna", {}, ())
    assert (names(anna), names(ben)) == ([NAME], [f"deep/er/{NAME}"])
    assert anna.notebooks[0].lesson == "04" and len(anna.notebooks[0].answers) == 3
    assert carl.notebooks == () and carl.notes == ("There is no file in what was handed in.",)


def test_a_flat_file_is_a_student_whose_name_is_what_is_not_the_lessons(gather):
    found = gather({"anna.ipynb": None, f"ben_{NAME}": None, "04_loss_scaling - carl.ipynb": None})
    assert students(found) == ["anna", "ben", "carl"]


def test_a_zip_is_a_student_and_zips_in_it_are_opened(gather):
    inner = zipped({NAME: None, "data.csv": b"1,2"})
    anna, ben = gather({"anna.zip": zipped({f"hw/{NAME}": None}), "ben.zip": zipped({"more/all.zip": inner})})
    assert (names(anna), names(ben)) == ([f"hw/{NAME}"], [f"more/all.zip/{NAME}"])


def test_one_notebook_is_one_submission(gather):
    (only,) = gather({"mine.ipynb": None}, "mine.ipynb")
    assert (only.student, names(only)) == ("mine", ["mine.ipynb"])


@pytest.mark.parametrize("around", ["", "submissions/", "download/submissions/", "hw 3/"])
def test_the_zip_of_a_class_is_read_whatever_folders_are_around_it(gather_zip, around):
    assert students(gather_zip({f"{around}{who}/{NAME}": None for who in ("anna", "ben")})) == ["anna", "ben"]


def test_a_lone_student_with_folders_of_lessons_stays_one(gather):
    (only,) = gather({f"anna/04_loss_scaling/{NAME}": None, "anna/05_custom_training_loop/x.ipynb": None})
    assert only.student == "anna"


def test_canvas(gather):
    found = gather(
        {
            "smithanna_12345_678901_04.ipynb": text(compute_loss=OTHER),
            "smithanna_LATE_12345_678999_04-1.ipynb": text(compute_loss=RIGHT),
            "smithben_777_678902_homework.zip": zipped({NAME: None}),
        }
    )
    anna, ben = found
    assert (anna.student, anna.key, anna.ids) == ("smithanna", "smithanna-12345", {"canvas": "12345"})
    assert (names(ben), ben.key) == ([f"homework/{NAME}"], "smithben-777")
    assert (anna.days_late, ben.days_late) == (1.0, 0.0)
    assert "Canvas marks it as late, without saying how late: counted as one day." in anna.notes


@pytest.mark.parametrize(
    "in_order",
    [
        (
            "a_123_67890_04.ipynb",
            "a_123_67891_04-1.ipynb",
            "a_123_67892_04-2.ipynb",
            "a_123_67893_04-10.ipynb",
        ),
        ("a_123_9999_04.ipynb", "a_123_10001_04.ipynb"),
        ("a/04.ipynb", "a/04 (1).ipynb", "a/04 (2).ipynb"),
        ("a/04.ipynb", "a/04-Copy1.ipynb"),
        ("a/hw2.ipynb", "a/hw10.ipynb"),
    ],
    ids=lambda names: names[-1],
)
def test_what_was_handed_in_again_comes_last_with_a_note(gather, in_order):
    (only,) = gather({name: text(compute_loss=f"{RIGHT}  # {i}") for i, name in enumerate(in_order)})
    told = [notebook.answers[LOSS].source[-1] for notebook in only.notebooks]
    assert told == [str(i) for i in range(len(in_order))]
    assert "Lesson 04 was handed in more than once; the latest answer counts. Latest last: " in only.notes[0]


@pytest.mark.parametrize("name", ["anna_2026_11_30_hw.ipynb", "anna_04_05.ipynb", "my_1_2_x.ipynb"])
def test_numbers_in_a_name_do_not_make_it_one_of_canvas(gather, name):
    assert gather({name: None})[0].ids == {}


def test_moodle_with_folders_and_flat(gather):
    ada, anna, zoe = gather(
        {
            f"Anna Smith_1234567_assignsubmission_file/{NAME}": None,
            f"Ada de la_Cruz_76_assignsubmission_file_{NAME}": None,
            f"Zoë O'Neil_77_assignsubmission_file_/{NAME}": None,
            "Anna Smith_1234567_assignsubmission_onlinetext/onlinetext.html": b"<p>see file",
        }
    )
    assert (anna.student, anna.key, anna.ids) == ("Anna Smith", "anna-smith-1234567", {"moodle": "1234567"})
    assert (ada.student, zoe.student, zoe.key) == ("Ada de la_Cruz", "Zoë O'Neil", "zoe-o-neil-77")
    assert names(anna) == names(ada) == names(zoe) == [NAME]


NBGRADER = {
    f"submitted/anna/hw1/{NAME}": None,
    "submitted/anna/hw1/timestamp.txt": "2026-11-30 18:00:00.123456 UTC\n",
    f"submitted/ben/hw1/{NAME}": None,
    f"autograded/anna/hw1/{NAME}": None,
    f"source/hw1/{NAME}": None,
    f"release/hw1/{NAME}": None,
}


@pytest.mark.parametrize("below", ["", "submitted"])
def test_nbgrader(gather, below):
    anna, ben = gather(NBGRADER, below, due=datetime(2026, 11, 30, 12, tzinfo=UTC))
    assert (anna.student, anna.ids, names(anna)) == ("anna", {"nbgrader": "anna"}, [f"hw1/{NAME}"])
    assert (anna.days_late, anna.notes) == (0.25, ("Handed in 6 hours late.",))
    assert (ben.days_late, ben.notes) == (0.0, ("When it was handed in is not known: counted as in time.",))


def test_a_lone_student_of_nbgrader(gather):
    files = {f"submitted/anna/hw1/{NAME}": None, "submitted/anna/hw1/timestamp.txt": "2026-11-30 18:00 UTC"}
    assert students(gather(files)) == ["anna"]


GRADESCOPE = """
submission_12:
  :submitters:
  - :name: Anna S
    :sid: '7'
    :email: anna@school.example
  - :name: Ben
    :email: ben@school.example
  :created_at: 2026-11-30 12:00:00.000000000 Z
submission_13: oops
"""


def test_gradescope_with_its_list_of_names_and_a_group(gather):
    files = {f"assignment_1_export/submission_{number}/{NAME}": None for number in (12, 13)}
    files["assignment_1_export/submission_metadata.yml"] = GRADESCOPE
    anna, ben, other = gather(files, due=datetime(2026, 11, 30, tzinfo=UTC))
    assert (anna.student, anna.ids, anna.days_late) == ("Anna S", {"gradescope": "7"}, 0.5)
    assert "Handed in as a group, with Ben." in anna.notes and "with Anna S." in ben.notes[0]
    assert names(anna) == names(ben) == [NAME]
    assert (other.student, other.ids) == ("submission_13", {"gradescope": "13"})


def test_all_ways_side_by_side(gather):
    found = gather(
        {
            f"anna/{NAME}": None,
            "ben.zip": zipped({NAME: None}),
            "carl.ipynb": None,
            "dora_123_4567_04.ipynb": None,
            f"Eve E_5_assignsubmission_file_/{NAME}": None,
            "grades.csv": b"a,b",
            "README.txt": b"our class",
        }
    )
    assert students(found) == ["anna", "ben", "carl", "dora", "Eve E"]
    assert not any(notebook.error for submission in found for notebook in submission.notebooks)


def test_what_systems_and_editors_leave_is_passed_over(gather):
    found = gather(
        {
            f"anna/{NAME}": None,
            "anna/.ipynb_checkpoints/04-checkpoint.ipynb": None,
            "anna/.DS_Store": b"x",
            "__MACOSX/anna/._04.ipynb": b"x",
            ".git/config": b"x",
            "ben.zip": zipped({NAME: None, "__MACOSX/._04.ipynb": b"x", ".venv/x.ipynb": None}),
        }
    )
    assert [names(submission) for submission in found] == [[NAME], [NAME]]


# --- who is who


def test_namesakes_are_kept_apart_by_the_platforms_number(gather):
    one, two = gather({f"Anna Smith_{i}_assignsubmission_file_/{NAME}": None for i in (11, 12)})
    assert (one.key, two.key) == ("anna-smith-11", "anna-smith-12")
    assert one.notes == ("There is another student of this name; this is anna-smith-11.",)


def test_namesakes_are_kept_apart_by_where_they_are(gather, tmp_path):
    files = {f"{place}/{who}/{NAME}": None for place in ("mon", "tue") for who in ("Anna", "Ben")}
    found = gather(files)
    assert students(found) == ["Anna", "Anna", "Ben", "Ben"]
    assert len({submission.key for submission in found}) == 4
    again = collect(write(tmp_path / "elsewhere", files))
    assert [submission.key for submission in again] == [submission.key for submission in found]


def test_one_student_in_several_places_is_one(gather):
    (only,) = gather({f"anna/{NAME}": None, "anna.zip": zipped({NAME: None}), "anna.ipynb": None})
    assert names(only) == [f"anna/{NAME}", f"anna.zip/{NAME}", "anna.ipynb"]
    assert "handed in more than once" in only.notes[0]


ODD = [
    *(
        "Anna",
        "anna",
        "ANNA",
        'O\'Brien "Bob"',
        "😀",
        "🎉",
        "李明",
        "王芳",
        "...",
        "-",
        "a b",
        "a_b",
        "con",
        "NUL",
    ),
    *("com1", "x\ny", "x" * 200, "x" * 199 + "y", "José", "<b>", "$(reboot)", "a;b", "%2e%2e", "student"),
]


def test_keys_are_safe_unique_and_the_same_in_every_run(gather, tmp_path):
    files = {f"{name}/{NAME}": None for name in ODD}
    found = gather(files)
    keys = [submission.key for submission in found]
    assert len(found) == len(ODD) and len({key.lower() for key in keys}) == len(keys)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9-]{0,80}", key) for key in keys)
    assert not {"con", "nul", "com1"} & set(keys)
    again = collect(write(tmp_path / "again", dict(reversed(files.items()))))
    assert [submission.key for submission in again] == keys
    assert all(name.isprintable() for name in students(found))


def test_a_name_stays_readable_in_its_key(gather):
    found = gather({f"José de la Cruz/{NAME}": None, f"anna/{NAME}": None, f"O'Neil, Zoe/{NAME}": None})
    assert {submission.key for submission in found} == {"anna", "jose-de-la-cruz", "o-neil-zoe"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_name_that_is_no_text_is_a_student_too(tmp_path):
    folder = os.fsencode(tmp_path) + b"/class/Jos\xe9"
    os.makedirs(folder)
    (tmp_path / "class").joinpath(os.fsdecode(b"Jos\xe9"), NAME).write_text(text())
    (only,) = collect(tmp_path / "class")
    (only.key + only.student + names(only)[0]).encode("utf-8")
    assert names(only) == [NAME]


# --- late or not


@pytest.mark.parametrize(
    ("stamp", "days"),
    [
        ("2026-11-30 12:00:00.5 UTC", 1.0),
        ("2026-11-30T13:00:00+0100", 1.0),
        ("2026-11-30 06:00:00 -06:00", 1.0),
        ("2026-11-30 13:00:00 Europe/Berlin", 1.0),
        ("2026-11-28 12:00:00 UTC", 0.0),
        ("yesterday", 0.0),
        ("2026-99-99 99:99 UTC", 0.0),
        ("", 0.0),
    ],
)
def test_timestamps_are_read_in_every_zone(gather, stamp, days):
    files = {f"submitted/anna/hw/{NAME}": None, "submitted/anna/hw/timestamp.txt": stamp}
    (anna,) = gather(files, due=DUE.replace(tzinfo=UTC))
    assert anna.days_late == pytest.approx(days, abs=1e-4)


def test_the_time_in_the_platforms_zip_counts(gather_zip):
    (anna,) = gather_zip({f"Anna_1_assignsubmission_file_/{NAME}": None}, due=DUE)
    assert (anna.days_late, anna.notes) == (1.0, ("Handed in 1 day late.",))
    zone = timezone(timedelta(hours=14))
    (same,) = gather_zip(
        {f"Anna_1_assignsubmission_file_/{NAME}": None}, due=DUE.astimezone().astimezone(zone)
    )
    assert same.days_late == 1.0


def test_a_time_that_a_student_can_have_made_does_not_count(gather):
    long_ago = (1999, 1, 1, 0, 0, 0)
    files = {NAME: None, "timestamp.txt": b"1999-01-01 00:00:00 UTC"}
    (anna,) = gather({"anna.zip": zipped(files, long_ago)}, due=datetime(1990, 1, 1))
    assert anna.days_late == 0.0
    assert anna.notes == ("When it was handed in is not known: counted as in time.",)


def test_the_time_of_a_download_is_not_that_of_canvas_students(gather_zip):
    assert [s.days_late for s in gather_zip({"a_12_3456_x.ipynb": None}, due=DUE)] == [0.0]
    assert [s.days_late for s in gather_zip({"a_LATE_12_3456_x.ipynb": None}, due=DUE)] == [1.0]


def test_without_a_due_date_nobody_is_late(gather_zip):
    assert [(s.days_late, s.notes) for s in gather_zip({f"anna/{NAME}": None})] == [(0.0, ())]


# --- what is no notebook


def test_what_was_handed_in_instead_says_what_it_is(gather):
    found = gather(
        {
            "a/loss.pdf": b"%PDF-1.7",
            "b/loss.docx": b"PK\x03\x04.. word/document.xml",
            "c/04.html": b"<!doctype html>",
            "d/04.py": b"# In[1]:\nimport x",
            "e.pdf": b"%PDF-1.7",
            "f/04.rar": b"Rar!\x1a\x07",
        }
    )
    assert students(found) == ["a", "b", "c", "d", "e", "f"]
    kinds = ("a PDF document", "a Word document", "a web page", "a Python script", "a PDF", "a RAR archive")
    assert all(kind in error(submission) for kind, submission in zip(kinds, found, strict=True))


def test_beside_a_notebook_other_files_are_passed_over(gather):
    assert [names(s) for s in gather({f"a/{NAME}": None, "a/x.pdf": b"%PDF", "a/data.json": b"{}"})] == [
        [NAME]
    ]


@pytest.mark.parametrize("name", ["04.ipynb.txt", "04.IPYNB", "04.json", "04", "04.ipynb.json", "04.txt"])
def test_a_notebook_that_is_called_otherwise_is_read(gather, gather_zip, name):
    for found in (gather({f"anna/{name}": None}), gather_zip({f"anna/{name}": None, "ben/": None})[:1]):
        assert len(found[0].notebooks[0].answers) == 3


def test_one_bad_file_stops_nobody(gather):
    anna, ben = gather({f"anna/{NAME}": None, "ben/x.ipynb": b"{"})
    assert not anna.notebooks[0].error and "breaks off" in error(ben)


# --- zips that are no good


def bomb(size):
    """A zip whose one notebook is as large as that, and nothing but one letter."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.ipynb", "w") as file:
        for _ in range(size // 1_000_000):
            file.write(b" " * 1_000_000)
    return made.getvalue()


def with_a_false_size(data, size):
    """The zip with another size stated for what its first entry unpacks to."""
    changed = bytearray(data)
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(mark) + offset
        changed[at : at + 4] = size.to_bytes(4, "little")
    return bytes(changed)


def nested(depth):
    data = zipped({NAME: None})
    for _ in range(depth):
        data = zipped({"more.zip": data})
    return data


BROKEN = {
    "empty": (b"", "The zip is empty."),
    "no zip": (b"hello", "This is no zip, whatever its name says"),
    "cut off": (zipped({NAME: None})[:3000], "The zip is cut off or damaged"),
    "a bomb": (bomb(250_000_000), "The zip would unpack to 250 MB, which no notebooks need"),
    "a bomb in a zip": (zipped({"x.zip": bomb(250_000_000)}), "The zip would unpack to 250 MB"),
    "a bomb that says it is small": (
        with_a_false_size(bomb(250_000_000), 100),
        "It is damaged inside its zip",
    ),
    "too deep": (nested(5), "There are zips in zips in zips."),
    "too many": (zipped({f"{i}.ipynb": b"" for i in range(10_001)}), "The zip holds too many files."),
    "encrypted": (encrypted(zipped({NAME: None})), "The zip is protected by a password."),
    "a link": (link_in_zip("x.ipynb", "/etc/passwd"), "This is a link to somewhere else"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_bad_zip_is_refused_with_a_sentence_and_the_others_are_read(gather, kind):
    data, told = BROKEN[kind]
    anna, zoe = gather({f"anna/{NAME}": None, "zoe.zip": data})
    assert not anna.notebooks[0].error
    assert error(zoe).startswith(told)
    assert re.search(r"[Hh]and|Put|Make", error(zoe))


def test_a_damaged_entry_is_told_and_the_others_of_its_zip_are_read(gather):
    data = bytearray(zipped({"a.ipynb": None, NAME: None}))
    data[200:260] = bytes(60)  # within the packed bytes of the first
    (anna,) = gather({"anna.zip": bytes(data)})
    broken = {notebook.name: notebook.error for notebook in anna.notebooks}
    assert broken[NAME] == "" and broken["a.ipynb"].startswith("It is damaged inside its zip")


def test_names_that_lead_out_of_a_zip_lead_nowhere(gather, tmp_path):
    names_in = [
        "../../escaped.ipynb",
        "/absolute.ipynb",
        "C:\\windows.ipynb",
        "..\\..\\back.ipynb",
        "ok/../up.ipynb",
    ]
    before = sorted(tmp_path.rglob("*"))
    (eve,) = gather({"eve.zip": zipped(dict.fromkeys(names_in))})
    assert sorted(names(eve)) == [
        "absolute.ipynb",
        "back.ipynb",
        "escaped.ipynb",
        "up.ipynb",
        "windows.ipynb",
    ]
    assert sum("leads out of it" in note for note in eve.notes) == 5
    assert sorted(tmp_path.rglob("*")) == sorted(
        {*before, tmp_path / "class", tmp_path / "class" / "eve.zip"}
    )


@pytest.mark.parametrize(("written", "shown"), [("Zoë".encode(), "Zoë"), (b"Zo\x89.", "Zoë.")])
def test_names_in_a_zip_that_does_not_say_how_they_are_written(tmp_path, written, shown):
    data = zipped({f"Zo~~/{NAME}": None, f"ben/{NAME}": None}).replace(b"Zo~~", written)
    assert students(collect(write(tmp_path, {"all.zip": data}) / "all.zip")) == ["ben", shown]


def test_a_zip_in_a_zip_of_a_class_is_a_students(gather_zip):
    anna, ben = gather_zip({"anna.zip": zipped({NAME: None}), "ben_12_3456_x.zip": bomb(250_000_000)})
    assert names(anna) == [NAME] and "would unpack" in error(ben)


def test_a_large_environment_in_a_zip_does_not_count_against_it(gather):
    files = {f".venv/lib/{i}.py": b"" for i in range(10_001)}
    (anna,) = gather({"anna.zip": zipped({NAME: None, **files})})
    assert names(anna) == [NAME]


# --- folders that are no good


def test_links_are_not_followed(gather, tmp_path):
    write(tmp_path, {"secret/04.ipynb": None})
    folder = write(tmp_path / "class", {f"anna/{NAME}": None, "ben/": None, "carl/": None})
    (folder / "ben" / "x.ipynb").symlink_to(tmp_path / "secret" / "04.ipynb")
    (folder / "carl" / "all").symlink_to(tmp_path / "secret")
    (folder / "anna" / "round").symlink_to(folder)
    (folder / "dora").symlink_to(tmp_path / "secret")
    found = collect(folder)
    assert students(found) == ["anna", "ben", "carl", "dora"]
    for submission in found[1:]:
        assert error(submission).startswith("This is a link to somewhere else; links are not followed.")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("name", ["x.ipynb", "x.json", "x.zip"])
def test_a_named_pipe_holds_nobody_up(tmp_path, name):
    folder = write(tmp_path / "class", {f"anna/{NAME}": None, "ben/": None})
    os.mkfifo(folder / "ben" / name)
    assert "no ordinary file" in error(collect(folder)[1])


def test_folders_too_deep_and_too_many_files_are_refused(tmp_path, monkeypatch):
    deep = tmp_path / "class" / "anna" / "/".join("d" * 40)
    deep.mkdir(parents=True)
    assert "too deep" in error(collect(tmp_path / "class")[0])
    monkeypatch.setattr(walking, "MAX_FILES", 20)
    with pytest.raises(GradingError, match="more than 20 files"):
        collect(tmp_path / "class")


def test_a_file_that_is_too_large_is_refused_unread(tmp_path, monkeypatch):
    folder = write(tmp_path / "class", {"anna/": None, "ben/": None})
    for path in (folder / "anna" / "x.ipynb", folder / "ben" / "x.zip"):
        with open(path, "wb") as file:
            file.truncate(reading.MAX_BYTES + 1)
    assert all("more than 200 MB are not read" in error(submission) for submission in collect(folder))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nothing", "There is nothing at "),
        ("empty", "There is nothing in empty that was handed in."),
        ("only.csv/", "There is nothing in only.csv that was handed in."),
        ("bad.zip", "bad.zip is no zip that can be read"),
        ("pipe", "is neither a file nor a folder."),
    ],
)
def test_a_path_that_leads_to_no_submissions_is_an_error(tmp_path, name, told):
    write(tmp_path, {"empty/": None, "only.csv/grades.csv": b"a", "bad.zip": b"hello"})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(GradingError) as caught:
        collect(tmp_path / name)
    assert told in str(caught.value) and "What to do: " in str(caught.value)


# --- the class as a whole


def test_an_old_release_is_noted(gather):
    def of(release):
        return text().replace('"course": {', f'"course": {{"release": "{release}", ')

    files = {f"{who}/{NAME}": of(release) for who, release in (("a", "2"), ("b", "2"), ("c", "1"))}
    told = "This is of another release of the course (1) than that of the class (2)."
    a, b, c = gather(files)
    assert (a.notes, b.notes) == ((), ()) and c.notes[0].startswith(told)
    assert [bool(submission.notes) for submission in gather({}, release="1")] == [True, True, False]


def test_the_order_is_always_that_of_the_names(gather, tmp_path):
    files = {f"{who}/{NAME}": None for who in ("b", "A", "c", "10", "9")}
    assert students(gather(files)) == ["10", "9", "A", "b", "c"]


def test_damaged_bytes_in_zips_stop_nothing(gather):
    randomly, whole = random.Random(6), zipped({NAME: b"{}", "more.zip": zipped({"x.ipynb": b"{}"})})
    files = {}
    for number in range(60):
        data = bytearray(whole)
        for _ in range(randomly.randint(1, 12)):
            data[randomly.randrange(len(data))] = randomly.randrange(256)
        files[f"s{number:02}.zip"] = bytes(data)
    assert len(gather(files)) == 60
