"""TF_CONFIG for one task of a Slurm job, out of what Slurm tells each task.

    srun bash -c 'TF_CONFIG=$(python -m course_utils.cluster.slurm) exec python train.py'

`course deploy slurm` writes that line. TensorFlow's own SlurmClusterResolver does the same where each task
has GPUs and the host names are in the order of their letters; it sorts them (n10 before n9) while Slurm
counts, so elsewhere it would give a task another's address. `tf_config` is right in both cases; what it gives
is checked, and `agrees_with_tensorflow` says which case this is.
"""

import os
import re
from collections.abc import Mapping

from course_utils.cluster.config import ClusterConfig, check_tf_configs
from course_utils.errors import ConfigError

PORTS = range(20_000, 30_000)  # below those that Linux gives to outgoing connections


def tf_config(environment: Mapping[str, str] = os.environ, port: int | None = None) -> str:
    """The TF_CONFIG text of the task in whose `environment` this is.

    Worker i is the task with SLURM_PROCID i, on the node on which Slurm started it (block distribution, which
    is srun's default). port: that of the first task of each node, the next ones have the next; None: one
    that follows from the job's number, so that two jobs on one node do not meet.

    Raises ConfigError for a variable that is missing, or that contradicts another.
    Source: the section OUTPUT ENVIRONMENT VARIABLES of srun(1).
    """
    hosts = expand_hosts(_either(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
    counts = tasks_per_node(_either(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    index = _number(environment, "SLURM_PROCID")
    _check_counts(hosts, counts, index)
    first = port if port is not None else _port(_number(environment, "SLURM_JOB_ID"))
    addresses = [
        f"{host}:{first + local}" for host, count in zip(hosts, counts, strict=True) for local in range(count)
    ]
    config = ClusterConfig(worker=addresses)
    check_tf_configs(config.tf_configs())
    _check_place(environment, addresses, index, first)
    return config.tf_config("worker", index)


def agrees_with_tensorflow(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether SlurmClusterResolver would give each task its own address: Slurm counts names as letters go."""
    hosts = expand_hosts(_either(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
    return hosts == sorted(hosts)


def by_tensorflow(environment: Mapping[str, str] = os.environ, port: int | None = None) -> str:
    """The same text made by TensorFlow's SlurmClusterResolver, which reads the process's own environment.

    Source: tf.distribute.cluster_resolver.SlurmClusterResolver in TensorFlow's API documentation.
    """
    import tensorflow as tf

    counts = tasks_per_node(_either(environment, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        port_base=port if port is not None else _port(_number(environment, "SLURM_JOB_ID")),
        # One "GPU" a task is how it counts tasks, GPUs or not; which ones a task may use is Slurm's to say.
        gpus_per_node=max(counts),
        gpus_per_task=1,
        auto_set_gpu=False,
    )
    cluster = resolver.cluster_spec().as_dict()
    return ClusterConfig(**cluster).tf_config(resolver.task_type, resolver.task_id)


def expand_hosts(text: str) -> list[str]:
    """The names in Slurm's short form, in its order: "n[08-10],gpu1" → n08, n09, n10, gpu1."""
    parts = re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", text)
    if ",".join(parts) != text or not text:
        raise ConfigError(f"{text!r} is no list of hosts.", expected='one such as "n[01-04],gpu7".')
    return [name for part in parts for name in _expand(part, text)]


def tasks_per_node(text: str) -> list[int]:
    """How many tasks each node has, from Slurm's short form: "2(x3),1" → 2, 2, 2, 1."""
    counts = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if not match:
            raise ConfigError(f"{text!r} does not say how many tasks each node has.", expected='"2(x3),1".')
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def main() -> None:
    """Print this task's TF_CONFIG, by TensorFlow's resolver where that is right."""
    from course_utils.errors import CourseError

    has_gpus = any(
        os.environ.get(name) for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE")
    )
    try:
        text = tf_config()
        if has_gpus and agrees_with_tensorflow():
            text = by_tensorflow()
    except CourseError as error:
        raise SystemExit(f"No TF_CONFIG: {error}") from None
    print(text)


def _expand(part: str, text: str) -> list[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\](.*)", part)
    if not match:
        return [part]
    before, inside, after = match.groups()
    return [
        f"{before}{number}{rest}"
        for number in _numbers(inside, text)
        for rest in (_expand(after, text) if after else [""])
    ]


def _numbers(inside: str, text: str) -> list[str]:
    found = []
    for entry in inside.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", entry)
        if not match:
            raise ConfigError(
                f"{entry!r} in {text!r} is no number and no range.", expected='"07" or "01-04".'
            )
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise ConfigError(f"{entry!r} in {text!r} counts downwards.", expected="the lower number first.")
        found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return found


def _either(environment: Mapping[str, str], *names: str) -> str:
    for name in names:
        if environment.get(name):
            return environment[name]
    raise ConfigError(
        f"{names[0]} is not set.",
        cause="this process was not started by srun.",
        cure="Start it with srun in a job of sbatch or salloc; on one machine use `course launch`.",
    )


def _number(environment: Mapping[str, str], name: str) -> int:
    text = _either(environment, name)
    if not text.isdecimal():
        raise ConfigError(f"{name} is {text!r}.", expected="a whole number.")
    return int(text)


def _port(job: int) -> int:
    return PORTS.start + 16 * job % len(PORTS)  # room for 16 tasks of a job on each node


def _check_counts(hosts: list[str], counts: list[int], index: int) -> None:
    if len(hosts) != len(counts):
        raise ConfigError(
            f"Slurm names {len(hosts)} nodes and says for {len(counts)} how many tasks they have.",
            cause="one variable is the job's and the other the step's.",
            cure="Let srun start as many tasks as the job has: no --nodes or --ntasks of its own.",
        )
    if index >= sum(counts):
        raise ConfigError(
            f"SLURM_PROCID is {index}, of {sum(counts)} tasks.", expected="one from 0, below that."
        )


def _check_place(environment: Mapping[str, str], addresses: list[str], index: int, first: int) -> None:
    """The address must be on the node where this task really is, which another distribution would break."""
    if not {"SLURM_NODEID", "SLURM_LOCALID"} <= set(environment):
        return
    node, local = _number(environment, "SLURM_NODEID"), _number(environment, "SLURM_LOCALID")
    hosts = expand_hosts(_either(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
    if node >= len(hosts):
        raise ConfigError(
            f"SLURM_NODEID is {node}, of {len(hosts)} nodes.", expected="one from 0, below that."
        )
    here = f"{hosts[node]}:{first + local}"
    if here != addresses[index]:
        raise ConfigError(
            f"Task {index} runs at {here}, and its turn in the list is {addresses[index]}.",
            cause="srun deals the tasks out in another way.",
            cure="Use --distribution=block, which is the default.",
        )


if __name__ == "__main__":
    main()
