"""Which system calls an answer may not make: a filter in the kernel (seccomp), inherited by all it starts.

Namespaces and missing capabilities refuse most of these anyway. The filter is for what they leave open:
memory that belongs to no process and so escapes the keeper (memfd, System V), new namespaces with
capabilities in them, sockets that know no network namespace (vsock), and parts of the kernel that an exercise
never needs.
"""

import ctypes
import errno
import os
import struct

from course_utils.grading.linux import prctl

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, MACHINE, FIRST_ARGUMENT = 0, 4, 16  # where they are in what the filter sees
NEW_NAMESPACES = 0x7E020000  # flags of clone
SOCKETS = (1, 2, 10, 16)  # local, IPv4, IPv6, netlink (to ask for the names of interfaces)
X32 = 0x40000000  # x86-64's second table of system calls begins here

# By name, their numbers on x86-64 and on 64-bit ARM.
REFUSED = {
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "fanotify_init": (300, 262),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
}
CLONE, CLONE3, SOCKET, KILL = (56, 220), (435, 435), (41, 198), (62, 129)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def refuse() -> bool:
    """Whether this process (of one thread) is now held to the filter; some machines have none."""
    machine = os.uname().machine
    if machine not in MACHINES:
        return False
    program = b"".join(struct.pack("HBBI", *step) for step in _filter(*MACHINES[machine]))
    buffer = ctypes.create_string_buffer(program)
    whole = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    try:
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, whole)
    except OSError:
        return False
    return True


def _filter(column: int, machine: int) -> list[tuple[int, int, int, int]]:
    """The steps of the filter: code, steps to skip if so, if not, number."""
    no, nosys = _fail(errno.EPERM), _fail(errno.ENOSYS)
    steps = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, machine), no, (LOAD, 0, 0, NUMBER)]
    steps += [(AT_LEAST, 0, 1, X32), nosys]
    for numbers in REFUSED.values():
        steps += [(EQUAL, 0, 1, numbers[column]), no]
    # Its flags are in memory, where a filter cannot look; who is told that there is none uses clone.
    steps += [(EQUAL, 0, 1, CLONE3[column]), nosys]
    steps += _if(CLONE[column], [(ANY_BIT, 0, 1, NEW_NAMESPACES), no])
    # To everybody at once: without a namespace that would be all that the instructor runs.
    steps += _if(KILL[column], [(EQUAL, 0, 1, 0xFFFFFFFF), no])
    allowed = [(EQUAL, len(SOCKETS) - i, 0, kind) for i, kind in enumerate(SOCKETS)]
    steps += _if(SOCKET[column], [*allowed, _fail(errno.EAFNOSUPPORT)])
    return [*steps, (RETURN, 0, 0, ALLOW)]


def _if(number: int, tests: list) -> list:
    """The tests of the first argument, for one system call; the number is loaded before and after."""
    inner = [(LOAD, 0, 0, FIRST_ARGUMENT), *tests, (LOAD, 0, 0, NUMBER)]
    return [(EQUAL, 0, len(inner), number), *inner]


def _fail(error: int) -> tuple[int, int, int, int]:
    return RETURN, 0, 0, REFUSE | error
