"""One warm process for all tests that examine answers in the real sandbox."""

import pytest

from course_utils.grading.runner import Runner


@pytest.fixture(scope="session")
def runner():
    with Runner(jobs=2) as runner:
        yield runner
