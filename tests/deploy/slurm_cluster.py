"""A Slurm of the tests' own: a controller and two nodes, each a machine of `machines`.

Everything it writes lies in one folder; its keys, sockets and ports are its own. Two partitions share the
nodes: a job in "urgent" takes them from one in "normal", which is told so by SIGTERM `GRACE` seconds before,
and goes back into the queue.
"""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import machines

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
PACKAGES = ("slurm-wlm", "munge")
NODES = ("node01", "node02")
GRACE = 60  # seconds between being told and being stopped, when another job takes the nodes
INSTALLING = 240  # seconds that may take

_CONFIGURATION = """
ClusterName=course
SlurmctldHost={switch}
AuthType=auth/munge
# A job that goes back into the queue waits there until its old credential has expired: 2 minutes by default.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=normal Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace} State=UP
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF State=UP
"""


def missing() -> str | None:
    """Why there can be no Slurm here; None where there can. Installs Debian's packages where it may."""
    if reason := machines.missing():
        return reason
    if not _absent():
        return None
    if not shutil.which("apt-get"):
        return f"{', '.join(_absent())} not installed, and there is no apt-get"
    problem = _install()
    return f"apt-get could not install {' and '.join(PACKAGES)}: {problem}" if _absent() else None


class Slurm:
    """Starts on entering, and leaves nothing but its folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.machines = machines.Machines(list(NODES), folder)
        self.environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> "Slurm":
        self._write()
        self.machines.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.machines.close()

    def call(self, *command: str, check: bool = True, **options) -> str:
        """What a command of Slurm's writes, given on the controller's machine."""
        environment = self.environment | options.pop("env", {})
        process = self.machines.start(
            machines.SWITCH,
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,
        )
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0 or not check, f"{command}: {output}\n{self.logs()}"
        return output.strip()

    def submit(self, script: Path | str, *options: str, **how) -> str:
        """The number of the job that was submitted."""
        return self.call("sbatch", "--parsable", *options, str(script), **how)

    def job(self, number: str) -> dict[str, str]:
        """What the controller says about a job: "JobState", "Restarts", "ExitCode", …"""
        words = self.call("scontrol", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, until: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait for something; AssertionError with the logs when it has not come in time."""
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, f"{what} has not come in {seconds} s\n{self.logs()}"
            time.sleep(0.3)

    def logs(self) -> str:
        """The end of each log, of the daemons and of the jobs."""
        files = sorted(self.folder.rglob("*.log"))
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    def _write(self) -> None:
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(secrets.token_bytes(128))
        addresses = self.machines.addresses
        nodes = [
            f"NodeName={name} NodeAddr={addresses[name]} CPUs=2 CoresPerSocket=2 State=UNKNOWN"
            for name in NODES
        ]
        switch = f"{machines.SWITCH}({addresses[machines.SWITCH]})"
        text = _CONFIGURATION.format(switch=switch, folder=self.folder, nodes="\n".join(nodes), grace=GRACE)
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "state").mkdir()

    def _start(self) -> None:
        own = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid"}
        own |= {"seed-file": "munge.seed", "log-file": "munged.log"}
        files = [f"--{option}={self.folder / name}" for option, name in own.items()]
        self._daemon(machines.SWITCH, "munged", "munged", "--foreground", "--force", *files)
        self.wait((self.folder / "munge.socket").exists, "munged's socket", 20)
        self._daemon(machines.SWITCH, "slurmctld", "slurmctld", "-D")
        for name in NODES:
            (self.folder / f"spool-{name}").mkdir()
            self._daemon(name, f"slurmd-{name}", "slurmd", "-D", "-N", name)
        self.wait(self._all_idle, "two idle nodes", 60)

    def _daemon(self, machine: str, log: str, *command: str) -> None:
        with open(self.folder / f"{log}.log", "ab") as file:
            self.machines.start(machine, command, env=self.environment, stdout=file, stderr=file)

    def _all_idle(self) -> bool:
        return (
            self.call("sinfo", "--noheader", "--format=%T %D", "--partition=normal", check=False) == "idle 2"
        )


def _absent() -> list[str]:
    return [program for program in PROGRAMS if not shutil.which(program)]


def _install() -> str:
    """What went wrong, at last; empty when nothing did."""
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in ("update -qq", f"install -y -qq --no-install-recommends {' '.join(PACKAGES)}"):
        try:
            done = subprocess.run(
                ["apt-get", *words.split()], env=quiet, capture_output=True, text=True, timeout=INSTALLING
            )
        except subprocess.TimeoutExpired:
            return f"{words.split()[0]} took more than {INSTALLING} s"
    return (done.stderr or done.stdout).strip()[-300:] if done.returncode else ""
