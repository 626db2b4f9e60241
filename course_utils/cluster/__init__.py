"""Real clusters on this machine, from a notebook cell; and the TF_CONFIG texts that describe any cluster."""

from course_utils.cluster.config import ClusterConfig, Task, check_tf_configs
from course_utils.cluster.errors import ClusterTimeout, WorkerDied, WorkerError
from course_utils.cluster.local import LocalCluster

__all__ = [
    "ClusterConfig",
    "ClusterTimeout",
    "LocalCluster",
    "Task",
    "WorkerDied",
    "WorkerError",
    "check_tf_configs",
]
