"""`python -m tests.grading.slow_grader OUT`: a batch with a desk that needs no sandbox, to be killed."""

import sys
import time
from pathlib import Path

from course_utils.grading import batch
from course_utils.grading.options import Options
from tests.grading.desks import FakeDesk, handed_in

ANSWERS = ("right", "wrong", "", "other")


def main(out: Path) -> None:
    """Grade 12 students, each answer in some milliseconds."""
    desk = FakeDesk()
    desk.before = lambda exercise_id, source: time.sleep(0.02)  # work, of which there is none here
    submissions = [
        handed_in(
            f"s{number:02}",
            {"04.compute_loss": ANSWERS[number % 4], "04.l2_loss": f"{number}", "04.uneven_batch": "right"},
        )
        for number in range(12)
    ]
    batch.grade_submissions(submissions, out, Options(seed=7), desk.open)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
