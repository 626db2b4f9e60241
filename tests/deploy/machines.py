"""Machines on this machine, for the tests: each a network namespace with an address and a table of names.

They are joined by a switch, which is a machine too. A program that is started on one sees its network and its
host name, and, in a private mount namespace, a hosts file in which all machines stand: nothing outside is
changed, and what was mounted goes with the program. Takes root and Linux; `missing` says what is not there.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

TOOLS = ("ip", "nsenter", "unshare", "mount", "chroot", "hostname")
PATIENCE = 10  # seconds from being told to end to being killed
SWITCH = "switch"


def missing() -> str | None:
    """Why there can be no such machines here; None where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces take Linux and root"
    if absent := [tool for tool in TOOLS if not shutil.which(tool)]:
        return f"network namespaces take {', '.join(absent)}"
    probe = subprocess.run(["unshare", "--net", "--mount", "--uts", "true"], capture_output=True, text=True)
    return f"no network namespaces: {probe.stderr.strip()}" if probe.returncode else None


class Machines:
    """Machines with these names, which resolve on all of them, and on the switch. A context manager."""

    def __init__(self, names: list[str], folder: Path, subnet: str = "10.213.8"):
        self.addresses = {SWITCH: f"{subnet}.254"}
        self.addresses |= {name: f"{subnet}.{number}" for number, name in enumerate(names, 1)}
        self.hosts = folder / "hosts"
        lines = [f"{address} {name}\n" for name, address in self.addresses.items()]
        self.hosts.write_text("127.0.0.1 localhost\n" + "".join(lines))
        self.started: list[subprocess.Popen] = []

    def __enter__(self) -> "Machines":
        try:
            self._plug_together()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def start(self, name: str, command: list, before: str = "", **options) -> subprocess.Popen:
        """The process of `command` on that machine. before: shell lines run as root there, ahead of it."""
        host_name = name.partition(".")[0]
        lines = ["set -e", f"hostname {host_name}", f"mount --bind '{self.hosts}' /etc/hosts", before]
        script = "\n".join([*lines, 'exec "$@"'])
        inside = ["unshare", "--mount", "--uts", "sh", "-c", script, "sh", *map(str, command)]
        process = subprocess.Popen(
            ["nsenter", f"--net={_file(name)}", *inside], stdin=subprocess.DEVNULL, **options
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End whatever runs on the machines, also what has lost its parent, and take them away."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            end = time.monotonic() + PATIENCE
            while self._signal(number) and time.monotonic() < end:
                time.sleep(0.1)
        for process in self.started:
            process.wait(PATIENCE)
        for name in self.addresses:
            subprocess.run(["ip", "netns", "del", _namespace(name)], capture_output=True)

    def running(self) -> set[int]:
        """The processes on all machines."""
        return {pid for name in self.addresses for pid in _processes(name)}

    def _signal(self, number: int) -> bool:
        """Whether there was anybody to signal. Also who has not come to his machine yet."""
        pids = {process.pid for process in self.started if process.poll() is None} | self.running()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)  # one that is stopped would not notice
                os.kill(pid, number)
        return bool(pids)

    def _plug_together(self) -> None:
        for name in self.addresses:
            _ip("netns add", _namespace(name))
            _ip(f"-n {_namespace(name)} link set lo up")
        switch = _namespace(SWITCH)
        _ip(f"-n {switch} link add br0 type bridge")
        _ip(f"-n {switch} addr add {self.addresses[SWITCH]}/24 dev br0")
        _ip(f"-n {switch} link set br0 up")
        for number, (name, address) in enumerate(self.addresses.items()):
            if name != SWITCH:
                host = _namespace(name)
                _ip(f"-n {switch} link add port{number} type veth peer name eth0 netns {host}")
                _ip(f"-n {switch} link set port{number} master br0 up")
                _ip(f"-n {host} addr add {address}/24 dev eth0")
                _ip(f"-n {host} link set eth0 up")


def _namespace(name: str) -> str:
    return f"course-{os.getpid()}-{name}"


def _file(name: str) -> str:
    return f"/run/netns/{_namespace(name)}"


def _processes(name: str) -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", _namespace(name)], capture_output=True, text=True)
    return [int(line) for line in listed.stdout.split()]


def _ip(*words: str) -> None:
    done = subprocess.run(f"ip {' '.join(words)}".split(), capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
