"""What the exercises of several lessons need to run an answer on replicas."""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

from course_utils.exercises.model import lazy

tf = lazy("tensorflow")
devices = lazy("course_utils.devices")


@functools.cache
def strategy_of(replicas: int) -> Any:
    """One strategy for each number of replicas: making one costs more than a step."""
    devices.simulate(4)  # the most of all cases: a strategy of fewer starts TensorFlow with fewer
    return devices.mirrored(replicas)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """A context without TensorFlow's warnings, which speak of how the check works, not of the answer."""
    logger = tf.get_logger()
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
