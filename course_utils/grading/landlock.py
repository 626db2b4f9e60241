"""Which files an answer may use where it has no file system of its own: a rule in the kernel (Landlock).

Linux 5.13 and later; the process needs no privilege for it, and loses what it does not name for good. From
6.12 on it also keeps an answer from sending signals to anybody outside.
"""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

CREATE, ADD, RESTRICT = 444, 445, 446  # numbers of the system calls, the same on all machines
VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_FOLDER = 1, 2, 4, 8
REFER, TRUNCATE, DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
LOOK = EXECUTE | READ_FILE | READ_FOLDER
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | DEVICE_CONTROL
ALL_SCOPES = 3  # sockets without a file, signals


def confine(look: Iterable[str], change: Iterable[str]) -> bool:
    """Whether this process can now read only what is below `look`, and read and write below `change`.

    False where the kernel does not offer it. Needs no_new_privs; holds for all that the process starts.
    """
    version = _call(CREATE, None, 0, VERSION)
    if version < 1:
        return False
    everything = _rights_of(version)
    scopes = ALL_SCOPES if version >= 6 else 0
    attributes = struct.pack("QQQ", everything, 0, scopes)[: 24 if version >= 6 else 8]
    rules = _call(CREATE, attributes, len(attributes), 0)
    if rules < 0:
        return False
    for path in look:
        _allow(rules, path, LOOK)
    for path in change:
        _allow(rules, path, everything)
    done = _call(RESTRICT, rules, 0) == 0
    os.close(rules)
    return done


def _rights_of(version: int) -> int:
    """All that this version of Landlock can refuse, so that what it does not name is refused."""
    rights = REFER - 1
    for since, right in ((2, REFER), (3, TRUNCATE), (5, DEVICE_CONTROL)):
        rights |= right if version >= since else 0
    return rights


def _allow(rules: int, path: str, rights: int) -> None:
    with contextlib.suppress(OSError):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rights &= -1 if os.path.isdir(path) else OF_FILES
        _call(ADD, rules, PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
        os.close(place)


def _call(number: int, *arguments) -> int:
    whole = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return ctypes.CDLL(None).syscall(ctypes.c_long(number), *whole)
