"""Real clusters on this machine, from a notebook cell; and the TF_CONFIG texts that describe any cluster."""

import importlib

from course_utils.cluster.config import ClusterConfig, Task, check_tf_configs
from course_utils.cluster.errors import ClusterTimeout, WorkerDied, WorkerError
from course_utils.cluster.links import Link
from course_utils.cluster.local import LocalCluster
from course_utils.cluster.outcomes import Outcome
from course_utils.cluster.pool import warm_up
from course_utils.cluster.ports import free_addresses
from course_utils.cluster.reports import report
from course_utils.cluster.supervise import GaveUp, Supervisor

__all__ = [
    "ClusterConfig",
    "ClusterTimeout",
    "GaveUp",
    "Link",
    "LocalCluster",
    "Outcome",
    "Supervisor",
    "Task",
    "WorkerDied",
    "WorkerError",
    "check_tf_configs",
    "free_addresses",
    "report",
    "slurm",
    "warm_up",
]


def __getattr__(name):
    """`slurm` is loaded when it is used: it is a program too, and would be loaded twice."""
    if name == "slurm":
        return importlib.import_module("course_utils.cluster.slurm")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
