"""`python -m tests.grading.endless_grader KIND`: a grader whose two answers never end, to be killed."""

import sys
import threading

from course_utils.grading import runner
from tests.grading.hostile_payloads import __name__ as payloads

if __name__ == "__main__":
    endless = runner.Runner(entry=f"{payloads}:prepare", kind=sys.argv[1])
    endless.preload = ["course_utils.grading.keeper"]  # no TensorFlow: it would only take time
    with endless:
        job = {"payload": "leave_a_daemon_and_loop"}
        threads = [threading.Thread(target=endless.run, args=[dict(job)], daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
