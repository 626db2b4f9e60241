"""Imported once by the warm process: all that is slow and that a worker needs, nothing that uses a device."""

import cloudpickle  # noqa: F401
import keras  # noqa: F401
import psutil  # noqa: F401
import tensorflow  # noqa: F401

from course_utils.cluster import worker  # noqa: F401
