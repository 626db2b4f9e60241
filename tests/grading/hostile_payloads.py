"""Answers that attack the machine, each with a cap of its own: for inside the sandbox only."""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

FORKS = 300  # at most, whatever happens
BLOCK = 64 << 20


def prepare(job):
    """The payload that the job names, with its arguments."""
    function = globals()[job["payload"]]
    return lambda: json.dumps(function(*job.get("arguments", ())))


def add(a, b):
    return a + b


def loop():
    while True:
        pass


def loop_in_c():
    return sum(range(10**15))


def ignore_everything_and_loop():
    for number in range(1, 65):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    loop()


def bomb():
    for _ in range(FORKS):
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
    time.sleep(60)


def bomb_of_bombs(left=FORKS):
    """Each child forks too, out of its parent's session; at most `left` in all."""
    while left > 0:
        if os.fork() == 0:
            os.setsid()
            left //= 2
        else:
            left -= left // 2 + 1
    time.sleep(60)


def exit_at_once():
    os._exit(0)


def leave():
    sys.exit("I leave")


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def segmentation_fault():
    return ctypes.string_at(0).decode()


def allocate(size):
    return len(bytearray(size))


def touch_memory(processes):
    """More and more memory in several processes, each under what one may have."""
    for _ in range(processes - 1):
        if os.fork() == 0:
            break
    held = []
    for _ in range(24):
        held.append(b"x" * BLOCK)
    time.sleep(60)


def recurse():
    sys.setrecursionlimit(10**9)

    class Deep:
        def __getattr__(self, name):
            return getattr(self, name + "x")

    return Deep().a


def print_much(size):
    line = b"x" * 1023 + b"\n"
    for _ in range(size // (1 << 20)):
        os.write(1, line * 1024)
    return "printed"


def give_back(size):
    return "x" * size


def leave_a_daemon(path):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(60)
            Path(path).write_text("I live")
        os._exit(0)
    return "left"


def leave_threads():
    for _ in range(50):
        threading.Thread(target=time.sleep, args=[60]).start()
    return "left"


def write(paths):
    """Which of them could be written; its own folder can."""
    written = []
    for path in paths:
        with contextlib.suppress(OSError):
            Path(path).write_text("written by an answer")
            written.append(path)
    Path("mine").write_text("mine")
    return written


def writable_mounts():
    """Where file systems are mounted that may be written to."""
    lines = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [fields[4] for fields in lines if "ro" not in fields[5].split(",")]


def delete_folder():
    shutil.rmtree(os.getcwd(), ignore_errors=True)
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
    return os.listdir(os.getcwd())


def delete(paths):
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.remove(path)
    return "tried"


def read(paths):
    """Which of them could be read."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError):
            found.append(
                os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes().decode("latin1")
            )
    return found


def read_through_proc(path):
    """Through the folders of the other processes that it can see."""
    found = []
    for process in os.listdir("/proc"):
        for way in (f"/proc/{process}/root{path}", f"/proc/{process}/cwd{path}"):
            with contextlib.suppress(OSError):
                found.append(Path(way).read_text())
    return found


def connect(address):
    try:
        with socket.create_connection(tuple(address), timeout=2):
            return "reached"
    except OSError as error:
        return type(error).__name__


def connect_by_name(name):
    """To a socket of the abstract kind, which has no file."""
    with socket.socket(socket.AF_UNIX) as wire:
        try:
            wire.connect("\0" + name)
        except OSError as error:
            return type(error).__name__
    return "reached"


def listen_to_itself():
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname(), timeout=5):
        return "reached"


def environments():
    """Its own, and what it can read of others'."""
    found = [dict(os.environ)]
    for process in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{process}/environ").read_bytes().decode("latin1"))
    return found


def fill_disk():
    written = 0
    with contextlib.suppress(OSError):
        for number in range(64):
            with open(f"file{number}", "wb") as file:
                for _ in range(16):
                    written += file.write(b"x" * (1 << 20))
    return written


def fill_disk_slowly(how):
    """A megabyte at a time, up to 100; then wait to be found."""
    Path("inside").mkdir()
    for number in range(100):
        file = open(f"inside/file{number}", "wb")  # noqa: SIM115
        file.write(b"x" * (1 << 20))
        if how == "deleted but open":
            file.flush()
            kept.append(file)
            os.remove(file.name)
        else:
            file.close()
    if how == "locked":
        Path("inside").chmod(0)
    time.sleep(60)


kept = []


def fill_with_files():
    """One file after another, in memory that belongs to no process."""
    held = 0
    with contextlib.suppress(OSError, AttributeError):
        for _ in range(32):
            fd = os.memfd_create("hidden")
            for _ in range(64):
                held += os.write(fd, b"x" * (1 << 20))
    return held


def fill_shared_memory():
    """Segments that outlive their process, of a gigabyte each; they are never touched."""
    libc, made = ctypes.CDLL(None), 0
    for _ in range(8):
        made += libc.shmget(0, ctypes.c_size_t(1 << 30), 0o1600) >= 0
    return made


def open_files():
    held = []
    with contextlib.suppress(OSError):
        for _ in range(5000):
            held.append(open(os.devnull))  # noqa: SIM115
    return len(held)


def file_descriptors():
    """What is behind each that is open, here and in a worker of a cluster."""
    from course_utils.cluster import LocalCluster

    return [_behind_each(), *LocalCluster(workers=1, output="quiet").run(_behind_each)]


def _behind_each():
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{number}")))
    return sorted(found)


def close_everything():
    os.closerange(0, 1 << 16)
    return "unheard"


def kill_everything():
    for sent in (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.kill(-1, sent)
        for pid in (0, 1, os.getppid()):
            with contextlib.suppress(OSError):
                os.kill(pid, sent) if pid else None
    for pid in range(2, 5000):
        if pid != os.getpid():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
    return "alive"


def stop_itself():
    os.kill(os.getpid(), signal.SIGSTOP)
    return "woken"


def system_calls():
    """What the kernel lets it do of what nobody needs: names of those that worked."""
    libc = ctypes.CDLL(None, use_errno=True)
    folder = os.getcwd().encode()
    attempts = {
        "unmount": lambda: libc.umount2(b"/proc", 2) == 0,
        "unmount a cover": lambda: libc.umount2(os.path.dirname(COVERED).encode(), 2) == 0,
        "remount": lambda: libc.mount(b"", b"/", None, ctypes.c_ulong(32), None) == 0,
        "remount, bound": lambda: libc.mount(b"", b"/usr", None, ctypes.c_ulong(32 | 4096), None) == 0,
        "mount": lambda: libc.mount(b"tmpfs", folder, b"tmpfs", ctypes.c_ulong(0), None) == 0,
        "new user namespace": lambda: libc.unshare(0x10000000) == 0,
        "new network": lambda: libc.unshare(0x40000000) == 0,
        "chroot": lambda: libc.chroot(folder) == 0,
        "trace the first process": lambda: libc.ptrace(16, 1, None, None) == 0,
        "be root": lambda: libc.setuid(0) == 0,
        "be another": lambda: libc.setuid(1) == 0,
        "be in root's group": lambda: libc.setgid(0) == 0,
        "change groups": lambda: libc.setgroups(0, None) == 0,
        "name the machine": lambda: libc.sethostname(b"mine", 4) == 0,
        "raise a limit": _raise_limit,
        "talk to the host of a virtual machine": lambda: bool(socket.socket(socket.AF_VSOCK)),
        "write to the first process": lambda: _opens("/proc/1/mem"),
        "change the kernel": lambda: _opens("/proc/sys/kernel/core_pattern"),
    }
    return [name for name, attempt in attempts.items() if _worked(attempt)]


COVERED = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../course_utils/solutions/x"))


def _worked(attempt):
    try:
        return attempt()
    except (OSError, ValueError):
        return False


def _opens(path):
    with open(path, "r+b"):
        return True


def _raise_limit():
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 19, 1 << 19))
    return True


def run_setuid_program():
    """Who it is to a program that belongs to root and says so."""
    found = [path for path in ("/usr/bin/su", "/usr/bin/passwd", "/usr/bin/mount") if os.path.exists(path)]
    return [subprocess.run([path, "--version"], capture_output=True).returncode for path in found]


def hide_from_the_keeper():
    """Not to be measured, then much memory."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    touch_memory(3)


def write_to_the_pipes():
    """Forge what comes back, on every file descriptor that there is, and go."""
    forged = b"forged"
    for fd in range(1, 64):
        with contextlib.suppress(OSError):
            os.write(fd, len(forged).to_bytes(8, "big") + forged)
    os._exit(0)


def leave_a_daemon_and_loop():
    leave_a_daemon("alive")
    loop()


def kill_its_parents():
    """Whoever is above it, where it can see them."""
    parent = os.getppid()
    while parent > 1:
        stat = Path(f"/proc/{parent}/stat").read_text()
        os.kill(parent, signal.SIGKILL)
        parent = int(stat.rpartition(")")[2].split()[1])
    return "killed"
