"""`course grade` as an instructor runs it, on submissions made from the real notebook, in real sandboxes."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from xml.etree import ElementTree

import psutil
import pytest
from click.testing import CliRunner

from course_utils.cli import main
from tests.grading import notebooks
from tests.grading.notebooks import EXPECTED, L2, LOSS, RIGHT, UNEVEN

HOW = ("--seed", "7", "--jobs", "2", "--timeout", "15")
LONGEST = 240  # seconds, on a machine that does much else


def command(*words):
    return [sys.executable, "-m", "course_utils.cli", "grade", *map(str, words)]


def grade(*words):
    done = subprocess.run(
        command(*words), capture_output=True, text=True, timeout=LONGEST, env={**os.environ, "COLUMNS": "100"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def points(out):
    with open(out / "gradebook.csv", encoding="utf-8-sig", newline="") as file:
        return {
            row["key"]: [float(row[e]) if row[e] else None for e in (LOSS, L2, UNEVEN)]
            for row in csv.DictReader(file)
        }


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A dozen submissions, graded once; the folder, and what was printed."""
    folder = tmp_path_factory.mktemp("graded")
    notebooks.write_all(folder / "submissions")
    done = grade(
        folder / "submissions", "--out", folder / "out", *HOW, "--junit", folder / "ci" / "junit.xml"
    )
    return folder, done


def test_right_answers_get_full_points_and_nothing_else_gets_any(graded):
    folder, _ = graded
    assert points(folder / "out") == EXPECTED


def test_the_last_line_says_where_the_pages_are_and_which_sandbox_it_was(graded):
    folder, done = graded
    last = done.stdout.splitlines()[-1]
    assert str(folder / "out" / "index.html") in last and "sandbox: " in last and "seed 7" in last
    assert "12 students × 3 exercises: 6 passed" in last
    assert "Nothing could be read from: no-notebook." in done.stdout
    assert "Traceback" not in done.stderr and "WARNING" not in done.stderr


def test_each_mistake_reaches_the_student(graded):
    folder, _ = graded

    def told(student):
        results = json.loads((folder / "out" / "results" / f"{student}.json").read_text())
        return next(test["output"] for test in results["tests"] if test["number"] == LOSS)

    assert "ZeroDivisionError" in told("raises") and "Python cannot read the answer cell" in told("syntax")
    assert "ended Python itself" in told("exits")
    assert "not come to its end after 30 seconds" in told("endless")
    assert "mean" in (folder / "out" / "feedback" / "mean.html").read_text()


def test_junit_is_written_where_it_was_asked_for(graded):
    folder, _ = graded
    suites = ElementTree.parse(folder / "ci" / "junit.xml").getroot()
    assert [suite.get("name") for suite in suites] == [*points(folder / "out")]


def test_nothing_was_at_fault_and_no_process_is_left(graded):
    folder, _ = graded
    assert not (folder / "out" / "faults.txt").exists()
    mine = [
        p.pid for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or ())
    ]
    assert not mine


def test_a_second_run_examines_only_what_is_new(graded):
    folder, _ = graded
    out, kept = folder / "out", folder / "out" / ".work" / "answers"
    before = {path: path.stat().st_mtime_ns for path in kept.rglob("*.json")}
    (folder / "submissions" / "mean" / notebooks.NOTEBOOK.name).unlink()
    (folder / "submissions" / "mean").rmdir()
    notebooks.write(folder / "submissions", "mean", {L2: RIGHT[L2]})
    gradebook = (out / "gradebook.csv").read_text().splitlines()
    grade(folder / "submissions", "--out", out, *HOW)
    after = {path: path.stat().st_mtime_ns for path in kept.rglob("*.json")}
    assert {path: after[path] for path in before} == before
    changed = [line for line in (out / "gradebook.csv").read_text().splitlines() if line not in gradebook]
    assert len(changed) == 1 and changed[0].startswith("mean,") and points(out)["mean"] == [0, 2, 0]


def test_ctrl_c_ends_all_processes_keeps_what_is_done_and_says_how_to_go_on(tmp_path):
    notebooks.write(tmp_path / "submissions", "right", {L2: RIGHT[L2]})
    notebooks.write(tmp_path / "submissions", "endless", {LOSS: notebooks.ANSWERS["endless"]})
    how = ("--only", LOSS, "--jobs", "2", "--timeout", "200", "--seed", "7")
    words = command(tmp_path / "submissions", "--out", tmp_path / "out", *how)
    # As from a terminal: a shell's background jobs, and what they start, ignore the interrupt.
    grader = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        kept = tmp_path / "out" / ".work" / "answers"
        ends = time.monotonic() + LONGEST
        while not [*kept.rglob("*.json")] and grader.poll() is None and time.monotonic() < ends:
            time.sleep(0.05)
        family = psutil.Process(grader.pid).children(recursive=True)
        grader.send_signal(signal.SIGINT)
        told, _ = grader.communicate(timeout=60)
    finally:
        grader.kill()
    assert grader.returncode == 130, told
    assert "1 of 2 answers are graded, and kept. To go on, run the same command again." in " ".join(
        told.split()
    )
    assert family and not psutil.wait_procs(family, timeout=10)[1]
    assert [*kept.rglob("*.json")] and not (tmp_path / "out" / "gradebook.csv").exists()


@pytest.mark.parametrize(
    "words, told",
    [
        (["--late-policy", "a bit"], "The late policy cannot be read at 'a bit'"),
        (["--only", "04.nothing"], "There is no exercise '04.nothing'"),
        (["--lessons", "77"], "There is no lesson '77'"),
        (["--memory", "lots"], "'lots' is no amount of memory"),
        (["--seed", "0"], "0 is not in the range"),
        (["--timeout", "inf"], "a number of seconds is needed"),
        (["more"], "'more' is one word too many"),
        (["--overrides", "nowhere.csv"], "nowhere.csv, which should hold points by hand, is not there"),
    ],
    ids=str,
)
def test_a_wrong_word_is_refused_in_a_sentence(words, told, tmp_path):
    notebooks.write(tmp_path / "submissions", "right", {})
    done = CliRunner().invoke(
        main, ["grade", str(tmp_path / "submissions"), "--out", str(tmp_path / "o"), *words]
    )
    assert done.exit_code in (1, 2) and told in " ".join(done.output.split())
    assert not (tmp_path / "o" / "gradebook.csv").exists()


def test_lessons_may_be_told_one_after_the_other(tmp_path, monkeypatch):
    from course_utils.grading import report

    heard = []
    monkeypatch.setattr(report, "grade", lambda submissions, out, options: heard.append(options) or 0)
    words = [
        "grade",
        str(tmp_path),
        "--out",
        str(tmp_path),
        "--lessons",
        "04",
        "05",
        "--only",
        "04.l2_loss,05",
    ]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert heard[0].lessons == ("04", "05") and heard[0].only == ("04.l2_loss", "05")
    assert heard[0].memory == 2 * 1024**3 and heard[0].jobs >= 1
