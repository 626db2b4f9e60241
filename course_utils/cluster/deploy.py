"""The same job for real clusters: a batch script for Slurm, manifests for Kubernetes.

Nothing of the course stands between the script and TensorFlow: each process gets a TF_CONFIG, and
TensorFlow's own collectives do the rest. What is written here can be read, changed and kept; it is a starting
point for the people who run the cluster, with the parts in it that distributed training needs and first
tries lack.

Sources: sbatch(1) and srun(1); the Kubernetes documentation of Job (completionMode Indexed, podFailurePolicy)
and headless Service; jobset.sigs.k8s.io; the Kubeflow documentation of TFJob.
"""

import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from course_utils.cluster.config import ClusterConfig
from course_utils.costmodel import seconds
from course_utils.errors import ConfigError

PORT = 2222
GRACE = 120  # seconds between being told to stop and being stopped: time to write a checkpoint
LONGEST_VARIABLE = 130_000  # characters, with its name: MAX_ARG_STRLEN of Linux is 131072 bytes
SHARED = "/shared"  # where the pods find the storage that all of them see
FLAVOURS = ("job", "jobset", "tfjob")
_NAME = "at most 40 small letters, digits and -, a letter first: pods and their service are called after it."


@dataclass(frozen=True)
class Plan:
    """What is to run, and on how much.

    script, arguments: what each worker runs. workers: processes; gpus: for each. time: at most so long, such
    as "2h". image: the container image (under Slurm it takes the pyxis plugin). claim: the
    PersistentVolumeClaim of the shared storage. cpus, memory: for each worker. max_restarts: how often the
    job may start again. name: of the job; else made from the script's. per_node: workers on one machine
    (Slurm). partition: Slurm's; None: its default.
    """

    script: str
    arguments: tuple[str, ...] = ()
    workers: int = 2
    gpus: int = 0
    time: str = "1h"
    image: str | None = None
    claim: str = "training"
    cpus: int = 4
    memory: str = "16Gi"
    max_restarts: int = 3
    name: str | None = None
    per_node: int = 1
    partition: str | None = None

    def __post_init__(self):
        for what, value, least, most in (
            ("workers", self.workers, 1, 10_000),  # each has the addresses of all in its environment
            ("gpus", self.gpus, 0, 1000),
            ("cpus", self.cpus, 1, 1000),
            ("max-restarts", self.max_restarts, 0, 1000),
            ("per-node", self.per_node, 1, 1000),
        ):
            if not least <= value <= most:
                expected = f"a whole number from {least} to {most}."
                raise ConfigError(f"--{what} {value} cannot be.", expected=expected)
        if self.seconds <= 2 * GRACE:
            raise ConfigError(
                f"--time {self.time} leaves no time to work.",
                expected=f"more than {2 * GRACE} s: workers are told {GRACE} s before the end.",
            )
        if self.workers % self.per_node:
            raise ConfigError(f"{self.workers} workers cannot be put {self.per_node} on each machine.")
        if not self.script:
            raise ConfigError("There is no script without a name.", cure="Give the path of a .py file.")
        self._check_words()

    def _check_words(self) -> None:
        """ConfigError for what would stand as it is in a line of a script or manifest, and cannot."""
        for what, value, form, expected in (
            ("name", self.job, r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", _NAME),
            ("partition", self.partition, r"[\w.-]+(,[\w.-]+)*", "names of partitions, such as gpu,big."),
            ("memory", self.memory, r"0*[1-9]\d*([KMGTP]i|[kMGTP])", "a number and its unit, such as 16Gi."),
            ("claim", self.claim, r"[a-z0-9]([-.a-z0-9]{0,250}[a-z0-9])?", "small letters, digits, - and ."),
            ("image", self.image, r"\w[\w./:@-]*", "such as registry.example/train:1."),
        ):
            if value is not None and not re.fullmatch(form, value, re.ASCII):
                raise ConfigError(f"--{what} {value!r} cannot be.", expected=expected)

    @property
    def job(self) -> str:
        """The job's name."""
        if self.name is not None:
            return self.name
        stem = re.sub(r"[^a-z0-9]+", "-", Path(self.script).stem.lower()).strip("-")
        return stem if stem[:1].isalpha() else f"job-{stem}".strip("-")

    @property
    def seconds(self) -> int:
        """The time limit."""
        return math.ceil(seconds(self.time))


def slurm(plan: Plan) -> str:
    """The text of a script for `sbatch`.

    Slurm ends a job at its time limit, and may take its nodes for another one. In both cases each worker
    gets SIGTERM first, writes a checkpoint and ends with the code 143, and the job goes back into the queue.
    A worker that fails ends the step, and the step starts again, at most `max_restarts` times; then the job
    fails with the code 254. A worker that cannot tell its TF_CONFIG ends the job at once, with 255.
    """
    hours, rest = divmod(plan.seconds, 3600)
    options = {
        "job-name": plan.job,
        "partition": plan.partition,
        "nodes": plan.workers // plan.per_node,
        "ntasks": plan.workers,
        "ntasks-per-node": plan.per_node,
        "cpus-per-task": plan.cpus,
        "gpus-per-task": plan.gpus or None,
        "time": f"{hours:02}:{rest // 60:02}:{rest % 60:02}",
        "signal": f"TERM@{GRACE}",
        "requeue": "",
        "open-mode": "append",
        "output": "%x-%j.log",
    }
    lines = [
        f"#SBATCH --{name}" + (f"={value}" if value != "" else "")
        for name, value in options.items()
        if value is not None
    ]
    return _SBATCH.format(
        options="\n".join(lines),
        command=shlex.join(["python", "-u", plan.script, *plan.arguments]),
        restarts=plan.max_restarts,
        cpus=plan.cpus,
        container=f" --container-image={plan.image}" if plan.image else "",
    )


def kubernetes(plan: Plan, flavour: str = "job") -> str:
    """The text of the manifests for `kubectl apply -f`, in YAML.

    flavour "job": an indexed Job and a headless Service: Kubernetes alone. "jobset": a JobSet, on
    which Kubeflow Trainer v2 stands; it starts *all* workers again when one fails. "tfjob": for clusters that
    still have the first Kubeflow training operator, which is legacy; it writes TF_CONFIG by itself.
    """
    import yaml

    if not plan.image:
        raise ConfigError("A pod needs an image.", cure="Name one that holds the script with --image.")
    if flavour not in FLAVOURS:
        raise ConfigError(f"There is no --with {flavour}.", expected=f"one of {', '.join(FLAVOURS)}.")
    documents = {"job": _job_and_service, "jobset": _jobset, "tfjob": _tfjob}[flavour](plan)
    return _YAML_HEAD[flavour] + yaml.safe_dump_all(documents, sort_keys=False, width=10_000)


def write(text: str, file: Path | None) -> None:
    """None; the text is in the file, or on the screen where there is none.

    ConfigError, and nothing is written, where the file holds something else than an earlier text of this
    kind: it may be the script itself, or its weights.
    """
    if file is None:
        print(text, end="")
        return
    if file.exists() and _MARK not in file.read_bytes()[:400].decode(errors="replace"):
        raise ConfigError(
            f"{file} exists, and was not written by this command: it is left as it is.",
            cure="Choose another --out, or remove that file.",
        )
    file.write_text(text, encoding="utf-8")


def tf_config_template(hosts: list[str]) -> str:
    """A TF_CONFIG text in which Kubernetes puts the pod's index for $(TASK_INDEX)."""
    text = ClusterConfig(worker=[f"{host}:{PORT}" for host in hosts]).tf_config("worker", 0)
    if len(text) > LONGEST_VARIABLE:
        raise ConfigError(
            f"The TF_CONFIG of {len(hosts)} workers has {len(text)} characters, and Linux takes no "
            f"variable of more than {LONGEST_VARIABLE}.",
            cure="Take fewer workers, or a shorter --name, which stands in each address.",
        )
    return re.sub(r'"index": 0\b', '"index": $(TASK_INDEX)', text)


def _job_and_service(plan: Plan) -> list[dict]:
    hosts = [f"{plan.job}-{index}.{plan.job}" for index in range(plan.workers)]
    job = _indexed_job(plan, hosts)
    # Workers that lost a peer end too, each with an error of its own: as many failures a restart as workers.
    job["backoffLimit"] = plan.workers * plan.max_restarts
    job["podFailurePolicy"] = {  # a pod that a node's drain took away was not the script's fault
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
    }
    job["template"]["spec"]["subdomain"] = plan.job
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": plan.job},
            "spec": {
                "clusterIP": "None",
                "selector": {"job-name": plan.job},
                # Workers look for each other before any of them is ready.
                "publishNotReadyAddresses": True,
                "ports": [{"name": "grpc", "port": PORT}],
            },
        },
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": plan.job}, "spec": job},
    ]


def _jobset(plan: Plan) -> list[dict]:
    hosts = [f"{plan.job}-workers-0-{index}.{plan.job}" for index in range(plan.workers)]
    job = _indexed_job(plan, hosts)
    job["backoffLimit"] = 0  # one failed pod fails the Job, and the JobSet starts all of them again
    spec = {
        "network": {"enableDNSHostnames": True, "subdomain": plan.job, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": plan.max_restarts},
        "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": job}}],
    }
    return [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": plan.job},
            "spec": spec,
        }
    ]


def _tfjob(plan: Plan) -> list[dict]:
    pod = _pod(plan, environment=[])
    pod["containers"][0] |= {
        "name": "tensorflow",  # the name that the operator looks for
        "ports": [{"name": "tfjob-port", "containerPort": PORT}],
    }
    del pod["restartPolicy"]  # the operator's to set
    worker = {"replicas": plan.workers, "restartPolicy": "OnFailure", "template": {"spec": pod}}
    policy = {
        "activeDeadlineSeconds": plan.seconds,
        "backoffLimit": plan.max_restarts,
        "cleanPodPolicy": "Running",
    }
    return [
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": plan.job},
            "spec": {"runPolicy": policy, "tfReplicaSpecs": {"Worker": worker}},
        }
    ]


def _indexed_job(plan: Plan, hosts: list[str]) -> dict:
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    environment = [
        # First the index: $(TASK_INDEX) may only stand for a variable that comes before it.
        {"name": "TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}},
        {"name": "TF_CONFIG", "value": tf_config_template(hosts)},
    ]
    return {
        "completionMode": "Indexed",
        "completions": plan.workers,
        "parallelism": plan.workers,  # all or none: fewer would wait for the rest
        "activeDeadlineSeconds": plan.seconds,
        "template": {"spec": _pod(plan, environment)},
    }


def _pod(plan: Plan, environment: list[dict]) -> dict:
    resources = {"cpu": str(plan.cpus), "memory": plan.memory}
    if plan.gpus:
        resources["nvidia.com/gpu"] = str(plan.gpus)
    container = {
        "name": "worker",
        "image": plan.image,
        # $$ is Kubernetes' way to write $, which would begin the name of a variable.
        "command": [word.replace("$", "$$") for word in ("python", "-u", plan.script, *plan.arguments)],
        "env": environment,
        "ports": [{"name": "grpc", "containerPort": PORT}],
        "resources": {"requests": resources, "limits": dict(resources)},
        "volumeMounts": [
            {"name": "shared", "mountPath": SHARED},
            {"name": "memory", "mountPath": "/dev/shm"},  # NCCL's, of which containers get 64 MB by default
        ],
    }
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE,
        "containers": [container],
        "volumes": [
            {"name": "shared", "persistentVolumeClaim": {"claimName": plan.claim}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        ],
    }


_MARK = "THIS_FILE"  # in the first lines of each of our texts

_SBATCH = r"""#!/usr/bin/env bash
# Submit with: sbatch THIS_FILE. Every worker is a task, and gets its TF_CONFIG from srun's variables.
{options}
set -uo pipefail

# srun returns the highest code of all tasks, and ends the others by SIGTERM when one fails. A failure must
# not look like being told to stop, so: 143 (128 + SIGTERM) = told, 254 = failed, 255 = no TF_CONFIG.
worker='
  trap : TERM  # the script gets it too, and says by its code what it made of it
  TF_CONFIG=$(python -m course_utils.cluster.slurm) || {{ [ $? = 143 ] && exit 143; exit 255; }}
  export TF_CONFIG
  "$@"
  code=$?
  case $code in 0 | 143) exit $code ;; esac
  echo "worker $SLURM_PROCID ended with code $code" >&2
  exit 254'

# --wait: the chief may still evaluate and write when the others are done, but not for ever.
# --cpus-per-task: since Slurm 22.05 srun does not take it from the options above.
for attempt in $(seq 0 {restarts}); do
  srun --kill-on-bad-exit=1 --wait=600 --distribution=block --cpus-per-task={cpus}{container} \
    bash -c "$worker" worker {command}
  code=$?
  case $code in
    0) exit 0 ;;
    143) scontrol requeue "$SLURM_JOB_ID" && exit 0 || exit 143 ;;
    255) exit 255 ;;
  esac
  echo "attempt $attempt ended with code $code" >&2
done
exit "$code"
"""

_YAML_HEAD = {
    "job": "# An indexed Job and its headless Service: kubectl apply -f THIS_FILE\n",
    "jobset": "# A JobSet (jobset.sigs.k8s.io must be installed): kubectl apply -f THIS_FILE\n",
    "tfjob": "# A TFJob, for the first Kubeflow training operator, which is legacy: on a new cluster use a\n"
    "# Job or a JobSet. The operator writes TF_CONFIG. kubectl apply -f THIS_FILE\n",
}
