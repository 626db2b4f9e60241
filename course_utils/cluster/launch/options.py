"""What `course launch` is told."""

from dataclasses import dataclass
from pathlib import Path

from course_utils.cluster.config import ClusterConfig, Task


@dataclass(frozen=True)
class Launch:
    """A job: which script, on which tasks, and what happens when it fails.

    workers, chief, ps, evaluator: the tasks. devices: replicas in each. max_restarts: how often a job that
    failed starts again, after `backoff` seconds, doubled every time. log_dir: where each worker's output is
    written; else it is kept only of jobs that failed. pool=False: each worker is a new Python. timeout:
    seconds for an attempt. heartbeat: seconds without a sign of life, after which a job counts as hung.
    grace: seconds between SIGTERM and SIGKILL. port: that of the first task, the others take the next ones;
    None: free ones. faults: what is to go wrong on purpose, once over all attempts.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    workers: int = 2
    chief: bool = False
    ps: int = 0
    evaluator: bool = False
    devices: int = 1
    max_restarts: int = 0
    backoff: float = 1.0
    log_dir: Path | None = None
    pool: bool = True
    timeout: float | None = None
    heartbeat: float = 300
    grace: float = 30
    port: int | None = None
    faults: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many processes there are."""
        return self.workers + self.chief + self.ps + self.evaluator

    @property
    def tasks(self) -> list[Task]:
        """Every task, chief first."""
        return self.config([f"x:{number + 1}" for number in range(self.size)]).tasks

    def config(self, addresses: list[str]) -> ClusterConfig:
        """The cluster on these addresses, one for each task."""
        counts = {"chief": self.chief, "worker": self.workers, "ps": self.ps, "evaluator": self.evaluator}
        left = iter(addresses)
        return ClusterConfig(**{kind: [next(left) for _ in range(n)] for kind, n in counts.items()})
