"""A grader that is killed and run again: the small version of `python -m tests.benchmarks.grade_kills`."""

import random
import sys

import psutil

from tests.benchmarks import grade_kills
from tests.benchmarks.grade_kills import MOMENTS, Kill, Place


def slow_grader(out):
    return [sys.executable, "-m", "tests.grading.slow_grader", str(out)]


def test_killed_at_random_moments_and_run_again_it_writes_the_same_gradebook(tmp_path):
    quiet = grade_kills.undisturbed(Place(tmp_path / "undisturbed", slow_grader))
    rng = random.Random()
    kills = [Kill(moment, rng.randrange(1, quiet.answers), rng.uniform(0, 0.05)) for moment in MOMENTS]
    assert quiet.gradebooks[0].count(b"\n") == 13
    wrong = grade_kills.strike(Place(tmp_path / "killed", slow_grader), kills, quiet)
    assert not wrong, (wrong, kills)


def test_the_benchmark_sees_another_gradebook_what_is_missing_and_what_is_left(tmp_path):
    place = Place(tmp_path, lambda out: [sys.executable, "-c", ""])
    (tmp_path / "tmp" / "left").write_text("")
    place.out.mkdir()
    (place.out / "stray").write_text("")
    quiet = grade_kills.Undisturbed([b"1", b"2", b"3"], {"gone.csv"}, 1.0, 5)
    assert grade_kills.strike(place, [], quiet) == [
        "another gradebook",
        "stray is left",
        "gone.csv is missing",
        "tmp/left is left",
    ]


def test_the_benchmark_sees_a_process_that_outlives_its_parent(tmp_path, monkeypatch):
    monkeypatch.setattr(grade_kills, "GONE_WITHIN", 0.5)
    orphan = "import time; time.sleep(60)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {orphan!r}])"
    place = Place(tmp_path, lambda out: [sys.executable, "-c", code])
    monkeypatch.setattr(grade_kills, "_reached", lambda place, *_: bool(grade_kills._family(place.pid)))
    start = Place.start

    def noted(place):
        grader = start(place)
        place.pid = grader.pid
        return grader

    monkeypatch.setattr(Place, "start", noted)
    (told,) = grade_kills._killed(place, Kill("start", 1, 0.0))
    pid = int(told.split()[1])
    psutil.Process(pid).kill()
    assert told == f"process {pid} is left"
