"""Settings of the whole test run: how notebooks are executed, with nothing of the caller's shell."""

import os
import tempfile
from pathlib import Path

from course_utils.notebooks.execute import KERNEL_ENVIRONMENT, UNWANTED

ROOT = Path(__file__).parent


def pytest_configure(config):
    # The learner's notebooks in notebooks/ are run by nbval: all cells must run, those tagged `stable` must
    # show what the notebook shows.
    config.option.nbval_lax = True
    config.option.nbval_current_env = True
    config.option.nbval_sanitize_with = str(ROOT / "tests" / "notebooks" / "sanitize.cfg")
    config.option.nbval_cell_timeout = 240
    config.stash_folder = tempfile.TemporaryDirectory(prefix="course-tests-")
    os.environ.update(
        KERNEL_ENVIRONMENT, COURSE_PROGRESS=str(Path(config.stash_folder.name) / "progress.json")
    )
    for name in UNWANTED:
        os.environ.pop(name, None)


def pytest_unconfigure(config):
    config.stash_folder.cleanup()
