"""What a learner does and sees: run a lesson, fail, read why, ask for a hint, get it right."""

import pytest

from tests.lab import seat

LESSON = "04_loss_scaling"
HEAD = "def compute_loss(per_example_loss, global_batch_size):\n    return "
WRONG = HEAD + "tf.reduce_mean(per_example_loss)"
RIGHT = HEAD + "tf.reduce_sum(per_example_loss) / global_batch_size"

pytestmark = [
    pytest.mark.skipif(not seat.CHROMIUM, reason="Chromium is not installed: apt-get install chromium"),
    pytest.mark.timeout(600),
]


def test_a_learner_runs_a_lesson_fails_reads_why_and_passes(tmp_path):
    with seat.jupyterlab(tmp_path) as address, seat.browser_page() as page:
        try:
            _learn(seat.Seat.at(page, address, LESSON))
        except BaseException:
            page.screenshot(path=tmp_path / "failed.png", timeout=10_000)
            raise


def _learn(learner):
    learner.run_all()
    answer, check = learner.cell("def compute_loss"), learner.cell('cu.check("04.compute_loss"')
    learner.sees(check, "Not attempted")
    before = _ask(learner, check, "cu.progress()", "04")

    _answer(learner, answer, WRONG)
    _ask(learner, check, 'cu.check("04.compute_loss", compute_loss)', "mean per replica")
    _ask(learner, check, 'cu.hint("04.compute_loss")', "hint 1")

    _answer(learner, answer, RIGHT)
    _ask(learner, check, 'cu.check("04.compute_loss", compute_loss)', "passed")
    after = _ask(learner, check, "cu.progress()", "04")
    assert "✓" in after and "✓" not in before


def _answer(learner, cell, text):
    learner.write(cell, text)
    learner.run(cell)


def _ask(learner, cell, call, shown):
    learner.write(cell, call)
    learner.run(cell)
    return learner.sees(cell, shown)
