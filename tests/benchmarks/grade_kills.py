"""`python -m tests.benchmarks.grade_kills 20 [--seed 11]`: kill the grader (SIGKILL) at random moments.

Each point is a `course grade` of a dozen submissions that is killed once or twice, while it starts, after so
many answers, or while it writes, and is then run again to its end. It passes if that gives the gradebooks of
a run that nobody disturbed, byte for byte, if no process of the killed ones is left, and if no file is: not
in the output folder, not in its working, home or temporary folder, not among the submissions. Exit code 0 if
all pass.
"""

import argparse
import contextlib
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
GRADEBOOKS = ("gradebook.csv", "canvas.csv", "moodle.csv")
MOMENTS = ("start", "answers", "write")
LONGEST = 600.0  # seconds for one run
GONE_WITHIN = 20.0

Command = Callable[[Path], Sequence[str]]


@dataclass(frozen=True)
class Kill:
    """A moment: `delay` seconds after the start, or after so many answers, or into the writing."""

    moment: str
    answers: int
    delay: float


@dataclass(frozen=True)
class Undisturbed:
    """A run to its end: its gradebooks, its files, seconds until the first answer, how many those were."""

    gradebooks: list[bytes]
    files: set[str]
    first: float
    answers: int


class Place:
    """A folder to grade in, with a working, a home and a temporary folder of the grader's own."""

    def __init__(self, folder: Path, command: Command):
        self.folder, self.out, self.command = folder, folder / "out", command
        for name in ("cwd", "home", "tmp"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def start(self) -> subprocess.Popen:
        """The grader, as the leader of a process group and session."""
        home, tmp = self.folder / "home", self.folder / "tmp"
        environment = {**os.environ, "HOME": str(home), "TMPDIR": str(tmp), "PYTHONPATH": str(ROOT)}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"}
        # Keras and Matplotlib write settings and a list of fonts wherever they are imported first.
        environment |= {
            "KERAS_HOME": str(self.folder / "caches"),
            "MPLCONFIGDIR": str(self.folder / "caches"),
        }
        with open(self.folder / "log", "ab") as log:
            return subprocess.Popen(
                self.command(self.out),
                cwd=self.folder / "cwd",
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def answers(self) -> int:
        """How many results are kept."""
        return sum(1 for _ in (self.out / ".work" / "answers").rglob("*.json"))

    def writing(self) -> bool:
        """Whether the grader has begun to write gradebooks and pages, as far as can be seen."""
        return any((self.out / name).exists() for name in GRADEBOOKS)

    def gradebooks(self) -> list[bytes]:
        """The bytes of the gradebooks; empty for one that is not there."""
        paths = [self.out / name for name in GRADEBOOKS]
        return [path.read_bytes() if path.exists() else b"" for path in paths]

    def files(self) -> set[str]:
        """All files in the output folder, results kept for the next run left out."""
        return {name for name in _files(self.out) if not name.startswith(".work/answers/")}

    def outside(self) -> list[str]:
        """What stands where nothing should."""
        return [f"{name}/{file}" for name in ("cwd", "home", "tmp") for file in _files(self.folder / name)]


def undisturbed(place: Place) -> Undisturbed:
    """One run to its end."""
    began, first, grader = time.monotonic(), 0.0, place.start()
    while grader.poll() is None:
        _check(time.monotonic() - began < LONGEST, "The undisturbed run did not end.")
        first = first or (time.monotonic() - began if place.answers() else 0.0)
        time.sleep(0.005)
    _check(grader.returncode == 0, (place.folder / "log").read_text(errors="replace")[-2000:])
    return Undisturbed(place.gradebooks(), place.files(), first, place.answers())


def kills(quiet: Undisturbed, count: int, rng: random.Random) -> list[list[Kill]]:
    """For each point, one or two moments; kinds in turn, so that all are met; the rest is chance."""
    return [
        [_kill(MOMENTS[(point + i) % 3], quiet, rng) for i in range(1 + rng.randrange(2))]
        for point in range(count)
    ]


def _kill(moment: str, quiet: Undisturbed, rng: random.Random) -> Kill:
    longest = {"start": quiet.first, "answers": 0.3, "write": 0.05}[moment]
    return Kill(moment, rng.randrange(1, quiet.answers), rng.uniform(0, longest))


def strike(place: Place, moments: Sequence[Kill], quiet: Undisturbed) -> list[str]:
    """Kill at each of the moments, then run to the end; what is wrong with what it left."""
    wrong = []
    for kill in moments:
        wrong += _killed(place, kill)
    undisturbed(place)
    if place.gradebooks() != quiet.gradebooks:
        wrong.append("another gradebook")
    wrong += [f"{name} is left" for name in sorted(place.files() - quiet.files)]
    wrong += [f"{name} is missing" for name in sorted(quiet.files - place.files())]
    return wrong + [f"{name} is left" for name in place.outside()]


def _killed(place: Place, kill: Kill) -> list[str]:
    """Kill one run, by its process id; the processes that outlive it."""
    for name in GRADEBOOKS if kill.moment == "write" else ():
        (place.out / name).unlink(missing_ok=True)  # of a run before, so that the writing can be seen
    began, grader = time.monotonic(), place.start()
    before = place.answers()
    while grader.poll() is None and not _reached(place, kill, before, time.monotonic() - began):
        _check(time.monotonic() - began < LONGEST, f"{kill} was not reached.")
        time.sleep(0.002)
    if kill.moment != "start":
        time.sleep(kill.delay)
    family = _family(grader.pid)
    grader.kill()
    grader.wait(GONE_WITHIN)
    return [f"process {process.pid} is left" for process in _survivors(family)]


def _reached(place, kill, before, seconds):
    if kill.moment == "start":
        return seconds >= kill.delay
    if kill.moment == "write":
        return place.writing()
    return place.answers() >= max(kill.answers, before)


def _family(pid: int) -> set[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return {*psutil.Process(pid).children(recursive=True)}
    return set()


def _survivors(family: set[psutil.Process]) -> set[psutil.Process]:
    """Those that are still there after a while; what they start meanwhile counts too."""
    ends = time.monotonic() + GONE_WITHIN
    while family and time.monotonic() < ends:
        family = {
            process for member in family for process in {member, *_family(member.pid)} if _lives(process)
        }
        time.sleep(0.02)
    return family


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def _digest(folder: Path) -> str:
    told = hashlib.sha256()
    for name in _files(folder):
        told.update(name.encode() + (folder / name).read_bytes())
    return told.hexdigest()


def _check(holds, told):
    if not holds:
        raise RuntimeError(told)


def real_grader(submissions: Path) -> Command:
    """`course grade` of these submissions."""
    how = ["--seed", "7", "--jobs", "2", "--timeout", "20"]
    return lambda out: [
        *(sys.executable, "-m", "course_utils.cli", "grade", str(submissions), "--out", str(out)),
        *how,
    ]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=20)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="course-grade-kills-") as folder:
        return run(options.count, options.seed, Path(folder))


def run(count: int, seed: int, folder: Path) -> int:
    """The same, with a folder to work in."""
    from tests.grading import notebooks

    notebooks.write_all(folder / "submissions")
    given, command = _digest(folder / "submissions"), real_grader(folder / "submissions")
    quiet = undisturbed(Place(folder / "undisturbed", command))
    print(
        f"seed {seed}, {count} points; undisturbed: {quiet.answers} answers, the first at {quiet.first:.1f} s"
    )
    passed = 0
    for number, moments in enumerate(kills(quiet, count, random.Random(seed)), start=1):
        wrong = strike(Place(folder / f"point-{number}", command), moments, quiet)
        wrong += ["the submissions were changed"] if _digest(folder / "submissions") != given else []
        told = ", then ".join(f"{kill.moment:7} {kill.answers:3} {kill.delay:5.2f} s" for kill in moments)
        print(f"{number:3}  {told:48}  {', '.join(wrong) or 'passed'}", flush=True)
        passed += not wrong
    print(f"{passed} of {count} passed (seed {seed})")
    return 0 if passed == count else 1


if __name__ == "__main__":
    sys.exit(main())
