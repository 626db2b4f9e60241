"""An outer limit on a family of processes: kills it when it grows beyond what a sandbox may let through.

python outer_limit.py PID: until PID has ended; exit code 3 when it had to act.
"""

import contextlib
import sys
import time

import psutil

PROCESSES, MEMORY, SECONDS = 400, 8 << 30, 300
SHARED = 700 << 20  # what each shares with the warm process
TICK = 0.05


def main(pid: int) -> int:
    family, end = psutil.Process(pid), time.monotonic() + SECONDS
    with contextlib.suppress(psutil.NoSuchProcess):
        while family.is_running() and family.status() != psutil.STATUS_ZOMBIE:
            members = family.children(recursive=True)
            if len(members) > PROCESSES or memory(members) > MEMORY or time.monotonic() > end:
                for process in [family, *members, *family.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                return 3
            time.sleep(TICK)
    return 0


def memory(members: list[psutil.Process]) -> int:
    total = 0
    for process in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += max(0, process.memory_info().rss - SHARED)
    return total


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
