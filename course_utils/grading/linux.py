"""System calls of Linux that the sandbox needs and that Python 3.11 has no function for."""

import ctypes
import fcntl
import os
import socket
import struct

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
CAPABILITY_VERSION_3 = 0x20080522
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones; raises OSError where that is refused."""
    _call("unshare", flags)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Mount as mount(2) does; raises OSError."""
    texts = [text.encode() or None for text in (source, target, kind, options)]
    _call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3], about=target)


def detach(target: str) -> None:
    """Unmount with all that is below, from now on out of sight; raises OSError."""
    _call("umount2", target.encode(), MNT_DETACH, about=target)


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root folder; the old one appears at `old`. Raises OSError."""
    _call("pivot_root", new.encode(), old.encode(), about=new)


def loopback_up() -> None:
    """Switch on the loopback of this network namespace; raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP | IFF_RUNNING))


def drop_bounding_set() -> None:
    """No program that this process starts can get a capability; nothing where it has none to give up."""
    for number in range(64):
        try:
            prctl(PR_CAPBSET_DROP, number)
        except OSError:
            break  # the kernel knows no more of them, or we may drop none and so have none


def drop_capabilities() -> None:
    """Give up every capability of this process (of one thread); the ambient ones go with them."""
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    _call("capset", header, bytes(24))


def prctl(option: int, value: int, data: bytes = b"") -> None:
    """Set a property of this process; raises OSError."""
    third = data or ctypes.c_ulong(0)
    _call("prctl", option, ctypes.c_ulong(value), third, ctypes.c_ulong(0), ctypes.c_ulong(0))


def _call(name: str, *arguments, about: str = "") -> None:
    if getattr(_libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", about or None)


_libc = ctypes.CDLL(None, use_errno=True)
