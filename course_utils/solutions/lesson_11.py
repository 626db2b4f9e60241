"""Reference answers of lesson 11."""

import math


def supervise(job, max_restarts):
    for restarts in range(max_restarts + 1):
        running = [job.start(i) for i in range(job.workers)]
        codes = job.wait(running)
        if all(code == 0 for code in codes):
            return restarts
        for process in running:  # the survivors too: they hold their ports
            job.kill(process)
    raise RuntimeError(f"the job failed {max_restarts + 1} times")


def diagnose(workers, now, patience):
    codes = [worker["exit_code"] for worker in workers]
    if any(code not in (0, None) for code in codes):
        return "crashed"
    if all(code == 0 for code in codes):
        return "finished"
    newest = max(worker["last_step"] for worker in workers if worker["exit_code"] is None)
    return "hung" if now - newest > patience else "running"


def checkpoint_interval(write_seconds, machine_hours, machines):
    between_failures = 3600 * machine_hours / machines  # of any of them
    return math.sqrt(2 * write_seconds * between_failures)
