"""The exercises of lesson 11: restart a job, tell a hang from a crash, and save often enough."""

import math

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake

# --- 11.supervise: a job that records what was started ----------------------------------------------

RETURNED = "restarts that supervise returned"
ENDED = "how it ended"
STARTED = "workers started in each attempt"
ATTEMPTS_LIMIT = 60  # starts after which nobody believes any more that it will stop
WELL, GAVE_UP = "it returned", "RuntimeError"
KEEPS_THE_PORT = "a worker could not start: its port is taken by the process that it had before"
WAITS_FOR_EVER = "it waits for ever"
WAITS_AGAIN = "it waits once more for the same processes: nothing was started anew"
FOR_EVER = "it starts workers again and again, without end"


class Process:
    """A worker that does not exist: exit code None while it runs."""

    def __init__(self, worker):
        self.worker, self.exit_code = worker, None

    def __repr__(self):
        return f"<process of worker {self.worker}>"


class NoEnd(BaseException):
    """The answer would go on for ever; no `except Exception` of it may swallow that."""


class Job:
    """What the learner gets: a job whose attempts end as the script says, and which notes what was started.

    `script`: for each attempt the exit codes of its workers, None for those that wait in vain when another
    has failed. After the last entry it is repeated.
    """

    def __init__(self, script, workers):
        self._script, self._attempt = script, -1
        self._processes, self._starts, self._fresh = {}, [], set()
        self.workers = workers

    def start(self, i):
        if type(i) is not int or not 0 <= i < self.workers:
            raise returned.Unusable(f"There is no worker {i!r}: they are 0 to {self.workers - 1}.")
        if sum(map(len, self._starts)) > ATTEMPTS_LIMIT * self.workers:
            raise NoEnd(FOR_EVER)
        if self._runs(i):
            raise NoEnd(KEEPS_THE_PORT)
        if not self._fresh:
            self._attempt += 1
            self._starts.append([])
        self._starts[-1].append(i)
        self._fresh.add(i)
        self._processes[i] = Process(i)
        return self._processes[i]

    def wait(self, processes):
        processes = list(processes)
        if not all(isinstance(process, Process) for process in processes):
            raise returned.Unusable("job.wait needs a list of what job.start gave.")
        if not self._starts:
            raise returned.Unusable("job.wait was called before any worker was started.")
        if not self._fresh:
            raise NoEnd(WAITS_AGAIN)
        if self._fresh != set(range(self.workers)):  # somebody is missing: no collective can be completed
            raise NoEnd(WAITS_FOR_EVER)
        codes = self._script[min(self._attempt, len(self._script) - 1)]
        for i, code in enumerate(codes):
            self._processes[i].exit_code = code
        self._fresh = set()
        return [process.exit_code for process in processes]

    def kill(self, process):
        if not isinstance(process, Process):
            raise returned.Unusable("job.kill needs one process, as job.start gave it.")
        if process.exit_code is None:
            process.exit_code = -9

    def _runs(self, i):
        return i in self._processes and self._processes[i].exit_code is None


def scripts(random):
    """Jobs that finish at once, after a few failures, at the very limit, and never."""
    failure = int(random.integers(1, 100))
    killed, raised = [None, -9, None], [1, None, failure]
    first_done = [0, -9, None]
    well = [0, 0, 0]
    return [
        {"about": "a job that finishes at once", "script": [well], "limit": 2},
        {
            "about": "a job that fails twice, max_restarts=3",
            "script": [killed, raised, well],
            "limit": 3,
        },
        {
            "about": "a job that finishes in the last attempt it may have, max_restarts=2",
            "script": [raised, first_done, well],
            "limit": 2,
        },
        {"about": "a job that always fails, max_restarts=2", "script": [killed], "limit": 2},
        {"about": "a job that fails, max_restarts=0", "script": [first_done, well], "limit": 0},
    ]


def observe_supervise(answer, case):
    """What was started, and how the answer ended."""
    job = Job(case["script"], workers=3)
    value = None
    try:
        value = answer(job, case["limit"])
        ended = WELL
    except RuntimeError:
        ended = GAVE_UP
    except NoEnd as error:
        ended = str(error)
    if ended == WELL and value is not None:
        value = returned.number(value, "supervise")
    starts = [sorted(starts) for starts in job._starts]
    shown = starts if len(starts) <= 6 else [*starts[:4], "…"]
    return {ENDED: ended, RETURNED: value, STARTED: shown}


def expected_supervise(case):
    """By hand: everybody, once more than there were failures, within the limit."""
    everybody, well = [0, 1, 2], [0, 0, 0]
    needed = case["script"].index(well) if well in case["script"] else math.inf
    restarts = min(needed, case["limit"])
    finished = needed <= case["limit"]
    return {
        ENDED: WELL if finished else GAVE_UP,
        RETURNED: restarts if finished else None,
        STARTED: [everybody] * (restarts + 1),
    }


def _everybody(job):
    return [job.start(i) for i in range(job.workers)]


def waits_again(job, max_restarts):
    running = _everybody(job)
    for restarts in range(max_restarts + 1):
        if not any(job.wait(running)):
            return restarts
    raise RuntimeError


def restarts_only_the_dead(job, max_restarts):
    running = _everybody(job)
    for restarts in range(max_restarts + 1):
        codes = job.wait(running)
        if all(code == 0 for code in codes):
            return restarts
        for i, code in enumerate(codes):
            if code is not None:
                running[i] = job.start(i)
    raise RuntimeError


def restarts_only_failed_ones(job, max_restarts):
    running, restarts = _everybody(job), 0
    while True:
        codes = job.wait(running)
        failed = [i for i, code in enumerate(codes) if code not in (0, None)]
        if not failed:
            return restarts
        if restarts == max_restarts:
            raise RuntimeError
        restarts += 1
        for i in failed:
            running[i] = job.start(i)


def keeps_orphans(job, max_restarts):
    for restarts in range(max_restarts + 1):
        if all(code == 0 for code in job.wait(_everybody(job))):
            return restarts
    raise RuntimeError


def kills_only_the_dead(job, max_restarts):
    for restarts in range(max_restarts + 1):
        running = _everybody(job)
        codes = job.wait(running)
        if all(code == 0 for code in codes):
            return restarts
        for process, code in zip(running, codes, strict=True):
            if code is not None:
                job.kill(process)
    raise RuntimeError


def _supervisor(attempts_allowed, finished, counts=lambda restarts: restarts, at_the_end=None):
    """A supervisor with one part made wrong."""

    def supervise(job, max_restarts):
        restarts = 0
        while restarts < attempts_allowed(max_restarts):
            running = _everybody(job)
            codes = job.wait(running)
            for process in running:
                job.kill(process)
            if finished(codes):
                return counts(restarts)
            restarts += 1
        if at_the_end:
            return at_the_end(max_restarts)
        raise RuntimeError

    return supervise


def _all_well(codes):
    return all(code == 0 for code in codes)


for_ever = _supervisor(lambda limit: math.inf, _all_well)
one_too_few = _supervisor(lambda limit: limit, _all_well)
one_too_many = _supervisor(lambda limit: limit + 2, _all_well)
counts_attempts = _supervisor(lambda limit: limit + 1, _all_well, counts=lambda restarts: restarts + 1)
gives_up_silently = _supervisor(lambda limit: limit + 1, _all_well, at_the_end=lambda limit: None)
gives_the_limit = _supervisor(lambda limit: limit + 1, _all_well, at_the_end=lambda limit: limit)
one_is_enough = _supervisor(lambda limit: limit + 1, lambda codes: 0 in codes)
who_runs_is_well = _supervisor(lambda limit: limit + 1, lambda codes: not any(codes))
one_attempt = _supervisor(lambda limit: 1, _all_well)


def forgets_to_return(job, max_restarts):
    for _ in range(max_restarts + 1):
        running = _everybody(job)
        codes = job.wait(running)
        for process in running:
            job.kill(process)
        if all(code == 0 for code in codes):
            return
    raise RuntimeError


def recursive(job, max_restarts):
    running = _everybody(job)
    if set(job.wait(running)) == {0}:
        return 0
    if max_restarts == 0:
        raise RuntimeError("too many restarts")
    for process in running:
        job.kill(process)
    return 1 + recursive(job, max_restarts - 1)


def kills_the_survivors_only(job, max_restarts):
    restarts = 0
    while True:
        running = [job.start(worker) for worker in reversed(range(job.workers))]
        codes = job.wait(running)
        if not any(code != 0 for code in codes):
            return restarts
        for process, code in zip(running, codes, strict=True):
            if code is None:
                job.kill(process)
        if restarts >= max_restarts:
            raise RuntimeError(f"given up after {restarts} restarts")
        restarts += 1


def _like(cases, seen, expected, ended):
    """Whether what is wrong ended that way, or by giving up before it came to that."""
    wrong = [one[ENDED] for one, right in zip(seen, expected, strict=True) if one != right]
    return ended in wrong and set(wrong) <= {ended, GAVE_UP}


SUPERVISE = Exercise(
    id="11.supervise",
    title="Your own supervisor",
    points=3,
    length="about 8 lines",
    signature="supervise(job, max_restarts)",
    hints=[
        "One attempt: start every worker, wait, look at the exit codes. How often may there be one?",
        "Who still runs when another has failed? They hold their ports until somebody ends them.",
        "`for restarts in range(max_restarts + 1):` — inside it return if all codes are 0, else kill all.",
    ],
    cases=scripts,
    observe=observe_supervise,
    expected=expected_supervise,
    mistakes=[
        Mistake(
            "restart only the dead one",
            restarts_only_the_dead,
            went_wrong="Only the worker that had failed was started again. The others still belong to the "
            "old cluster, and wait in a step that cannot be completed any more: the job stands still.",
            try_this="End all, then start all.",
            variants=[restarts_only_failed_ones],
            recognises=lambda cases, seen, expected: _like(cases, seen, expected, WAITS_FOR_EVER),
        ),
        Mistake(
            "nothing is started anew",
            waits_again,
            went_wrong="After a failure you wait once more for the same processes. Waiting brings nobody "
            "back: an exit code does not change.",
            try_this="End all, then start all, and wait for the new processes.",
            recognises=lambda cases, seen, expected: _like(cases, seen, expected, WAITS_AGAIN),
        ),
        Mistake(
            "an orphan keeps the port",
            keeps_orphans,
            went_wrong="All workers are started again, but the survivors of the last attempt were not ended. "
            "Such an orphan still listens on its port, so the new worker cannot have it.",
            try_this="Call `job.kill` for every process of a failed attempt before the next one begins.",
            variants=[kills_only_the_dead],
            recognises=lambda cases, seen, expected: _like(cases, seen, expected, KEEPS_THE_PORT),
        ),
        Mistake(
            "retry for ever",
            for_ever,
            went_wrong=lambda case, seen, expected: (
                f"A job that always fails was started more than {ATTEMPTS_LIMIT} times, though "
                f"max_restarts is {case['limit']}. It would go on over the weekend."
            ),
            try_this="Count the restarts and raise RuntimeError when there are too many.",
        ),
        Mistake(
            "one attempt too few",
            one_too_few,
            went_wrong="Your loop has as many attempts as restarts are allowed. But the first attempt is no "
            "restart.",
            try_this="`range(max_restarts + 1)`",
        ),
        Mistake(
            "one attempt too many",
            one_too_many,
            went_wrong=lambda case, seen, expected: (
                f"With max_restarts={case['limit']}, {len(seen[STARTED])} attempts were made. The first is "
                f"no restart, so {len(expected[STARTED])} are right."
            ),
            try_this="Look at the limit *before* you start the next attempt.",
        ),
        Mistake(
            "never restarted",
            one_attempt,
            went_wrong="The job was started once and given up after its first failure.",
            try_this="Put starting and waiting into a loop.",
        ),
        Mistake(
            "attempts counted, not restarts",
            counts_attempts,
            went_wrong="What you return counts the first start as well. A job that finishes at once has had "
            "no restart.",
            try_this="Count from 0.",
        ),
        Mistake(
            "nothing returned",
            forgets_to_return,
            went_wrong="The job was run and restarted as it should, but supervise returned nothing when it "
            "had finished.",
            try_this="Return the number of restarts.",
        ),
        Mistake(
            "gives up in silence",
            gives_up_silently,
            went_wrong="A job that never finished looks like one that did: supervise returned, and nobody "
            "knows that the training is not there.",
            try_this="`raise RuntimeError(…)` after the last attempt.",
            variants=[gives_the_limit],
            recognises=lambda cases, seen, expected: all(
                one == right
                or (right[ENDED] == GAVE_UP and {**one, RETURNED: None} == {**right, ENDED: WELL})
                for one, right in zip(seen, expected, strict=True)
            ),
        ),
        Mistake(
            "one worker is enough",
            one_is_enough,
            went_wrong="One worker had ended with 0, another had failed, and you took the job for finished.",
            try_this="`all(code == 0 for code in codes)`",
        ),
        Mistake(
            "who still runs has failed",
            _supervisor(lambda limit: limit + 1, lambda codes: False),
            went_wrong="Even a job whose workers all ended with 0 was started again.",
            try_this="Exit code 0 means that a worker has ended well; look for it with `code == 0`.",
        ),
    ],
    also_right=[recursive, kills_the_survivors_only],
)


# --- 11.diagnose: hang or crash ------------------------------------------------------------------------

VERDICT = "verdict"


def observations(random):
    """Clusters of three at one moment: alive, done, dead, silent, and all that is easily mixed up."""
    now = float(random.integers(1000, 2000))

    def case(about, codes, ages, patience=30.0):
        workers = [{"exit_code": code, "last_step": now - age} for code, age in zip(codes, ages, strict=True)]
        return {"about": about, "workers": workers, "now": now, "patience": patience}

    young = float(random.integers(1, 5))
    return [
        case("all of them step", [None] * 3, [young, young + 1, young]),
        case("all ended with 0, a while ago", [0, 0, 0], [100.0, 101.0, 100.0]),
        case("one was killed a moment ago", [None, -9, None], [young, young + 1, young]),
        case("one was killed, and for a minute the others wait", [None, -9, None], [60.0, 61.0, 60.0]),
        case("one raised, the others ended with 0", [0, 0, 1], [young, young, young + 2]),
        case("all alive, and nobody steps", [None] * 3, [40.0, 41.0, 40.0]),
        case("one still writes a checkpoint, the others step", [None] * 3, [35.0, young, young]),
        case("one has done its part long ago, the others step", [0, None, None], [90.0, young, young]),
        case(
            "one has ended with 0 a moment ago, the others stand still", [0, None, None], [young, 50.0, 51.0]
        ),
        case("slow, but patience is long", [None] * 3, [40.0, 41.0, 40.0], patience=120.0),
        case("silent for exactly as long as patience lasts", [None] * 3, [30.0, 30.0, 31.0]),
    ]


def observe_diagnose(answer, case):
    verdict = answer([dict(worker) for worker in case["workers"]], case["now"], case["patience"])
    return {VERDICT: returned.text(verdict, "diagnose")}


def expected_diagnose(case):
    codes = [worker["exit_code"] for worker in case["workers"]]
    if set(codes) - {0, None}:
        return {VERDICT: "crashed"}
    if None not in codes:
        return {VERDICT: "finished"}
    newest = max(w["last_step"] for w in case["workers"] if w["exit_code"] is None)
    return {VERDICT: "hung" if case["now"] - newest > case["patience"] else "running"}


def _diagnosis(order=("finished", "crashed", "hung"), **tests):
    """A diagnosis that asks in this order, some of its questions put wrongly."""
    questions = {"finished": _finished, "crashed": _crashed, "hung": _silent} | tests

    def diagnose(workers, now, patience):
        for verdict in order:
            if questions[verdict](workers, now, patience):
                return verdict
        return "running"

    return diagnose


def _finished(workers, now, patience):
    return all(worker["exit_code"] == 0 for worker in workers)


def _crashed(workers, now, patience):
    return any(worker["exit_code"] not in (0, None) for worker in workers)


def _silent(workers, now, patience):
    running = [worker["last_step"] for worker in workers if worker["exit_code"] is None]
    return bool(running) and now - max(running) > patience


def _one_silent(workers, now, patience):
    return any(w["exit_code"] is None and now - w["last_step"] > patience for w in workers)


def _oldest_of_all(workers, now, patience):
    return now - min(worker["last_step"] for worker in workers) > patience


def _newest_of_all(workers, now, patience):
    return now - max(worker["last_step"] for worker in workers) > patience


def by_sets(workers, now, patience):
    codes = {worker["exit_code"] for worker in workers}
    if codes == {0}:
        return "finished"
    if codes <= {0, None}:
        ages = [now - w["last_step"] for w in workers if w["exit_code"] is None]
        return "running" if min(ages) <= patience else "hung"
    return "crashed"


DIAGNOSE = Exercise(
    id="11.diagnose",
    title="Hang or crash?",
    points=2,
    length="about 7 lines",
    signature="diagnose(workers, now, patience)",
    hints=[
        "A crash can be seen from exit codes alone, a hang cannot. Which question comes first?",
        "Some workers may have ended with 0 already. Whose last step tells you whether anything moves?",
        'Of those that run, the *newest* step counts: `max(w["last_step"] for w in workers if …)`.',
    ],
    cases=observations,
    observe=observe_diagnose,
    expected=expected_diagnose,
    mistakes=[
        Mistake(
            "exit codes only",
            _diagnosis(order=("finished", "crashed")),
            went_wrong="You look at exit codes only. A worker that hangs has none: this job would stand "
            "still until somebody looks.",
            try_this="If nobody has crashed, compare `now` with the last steps.",
        ),
        Mistake(
            "crash taken for a hang",
            _diagnosis(order=("finished", "hung", "crashed")),
            went_wrong="One worker was killed, and the others wait for it. You call that a hang, and would "
            "look for the cause in those who wait.",
            try_this="Look at the exit codes first; only if none is bad, at the steps.",
        ),
        Mistake(
            "one slow worker is a hang",
            _diagnosis(hung=_one_silent),
            went_wrong="One worker has not stepped for a while, but the others have: the job moves. It would "
            "have been ended in the middle of a checkpoint.",
            try_this="Take the *newest* step of all that run, not the oldest.",
            variants=[_diagnosis(hung=_oldest_of_all)],
        ),
        Mistake(
            "who has ended counts as alive",
            _diagnosis(hung=_newest_of_all),
            went_wrong="A worker that has ended did its last step a moment ago, and so the job looks alive. "
            "But those who still run stand still.",
            try_this="Look only at the steps of workers whose exit code is None.",
        ),
        Mistake(
            "every end is a crash",
            _diagnosis(
                order=("crashed", "hung"),
                crashed=lambda workers, now, patience: any(w["exit_code"] is not None for w in workers),
            ),
            went_wrong="A worker that ends with exit code 0 has done its part. You call that a crash.",
            try_this="A crash is an exit code that is neither None nor 0.",
            variants=[
                _diagnosis(
                    crashed=lambda workers, now, patience: any(w["exit_code"] is not None for w in workers)
                )
            ],
        ),
        Mistake(
            "one end is the end",
            _diagnosis(
                finished=lambda workers, now, patience: any(w["exit_code"] == 0 for w in workers),
            ),
            went_wrong="One worker has ended with 0, and you take the job for finished. Others still run, or "
            "have crashed.",
            try_this="Finished means that *all* have ended with 0.",
            variants=[
                _diagnosis(
                    order=("crashed", "finished", "hung"),
                    finished=lambda workers, now, patience: any(w["exit_code"] == 0 for w in workers),
                )
            ],
        ),
        Mistake(
            "None taken for 0",
            _diagnosis(finished=lambda workers, now, patience: not any(w["exit_code"] for w in workers)),
            went_wrong="Nobody has a bad exit code, and so you say finished. But `None` means that a process "
            "still runs; in an `if`, it looks like 0.",
            try_this='`worker["exit_code"] == 0`, not `not worker["exit_code"]`.',
        ),
        Mistake(
            "only signals are crashes",
            _diagnosis(
                crashed=lambda workers, now, patience: any(
                    w["exit_code"] is not None and w["exit_code"] < 0 for w in workers
                )
            ),
            went_wrong="You know a crash by a negative exit code, that is, by a signal. A worker that raises "
            "ends with 1.",
            try_this="Everything but 0 and None is a crash.",
        ),
        Mistake(
            "not patient enough by a hair",
            _diagnosis(
                hung=lambda workers, now, patience: (
                    any(w["exit_code"] is None for w in workers)
                    and now - max(w["last_step"] for w in workers if w["exit_code"] is None) >= patience
                )
            ),
            went_wrong="Silent for exactly `patience` seconds is not *more than* `patience`.",
            try_this="`>` instead of `>=`.",
        ),
    ],
    also_right=[by_sets, _diagnosis(order=("crashed", "finished", "hung"))],
)


# --- 11.checkpoint_interval: Young's formula -----------------------------------------------------------

INTERVAL = "seconds between two checkpoints"


def jobs_to_save(random):
    """One machine, ten and a thousand; and one that tells a factor from an accident."""
    write = float(random.integers(5, 60))
    hours = float(random.integers(500, 5000))
    return [
        {"about": "one machine", "write": write, "hours": hours, "machines": 1},
        {"about": "16 machines", "write": write, "hours": hours, "machines": 16},
        {"about": "1000 machines, a large model", "write": 4 * write, "hours": hours, "machines": 1000},
    ]


def observe_interval(answer, case):
    seconds = answer(case["write"], case["hours"], case["machines"])
    return {INTERVAL: returned.number(seconds, "checkpoint_interval")}


def expected_interval(case):
    failures_a_second = case["machines"] / (3600 * case["hours"])
    return {INTERVAL: (2 * case["write"] / failures_a_second) ** 0.5}


def _interval(formula, scale=1.0):
    """An answer: a formula of the seconds to write and the seconds between two failures of the job."""
    return lambda write, hours, machines: scale * formula(write, 3600 * hours / machines)


def _young(write, between):
    return math.sqrt(2 * write * between)


def one_machine(write, hours, machines):
    return _young(write, 3600 * hours)


def many_fail_less_often(write, hours, machines):
    return _young(write, 3600 * hours * machines)


def hours_for_seconds(write, hours, machines):
    return _young(write, hours / machines)


def machines_after_the_root(write, hours, machines):
    return _young(write, 3600 * hours) / machines


def by_logarithms(write, hours, machines):
    return math.exp((math.log(2 * write) + math.log(hours * 3600) - math.log(machines)) / 2)


CHECKPOINT_INTERVAL = Exercise(
    id="11.checkpoint_interval",
    title="The checkpoint interval",
    points=1,
    length="about 2 lines",
    signature="checkpoint_interval(write_seconds, machine_hours, machines)",
    hints=[
        "One machine fails every so many hours. How long is it until the first of many fails?",
        "Both times under the root must have the same unit: seconds.",
        "Young: the root of 2 × write × time between two failures *of the job*.",
    ],
    cases=jobs_to_save,
    observe=observe_interval,
    expected=expected_interval,
    mistakes=[
        Mistake(
            "only one machine fails",
            one_machine,
            went_wrong=lambda case, seen, expected: (
                f"You took the time between failures of one machine. {case['machines']} of them fail "
                f"{case['machines']} times as often, and each failure stops the whole job."
            ),
            try_this="Divide the hours by the number of machines.",
        ),
        Mistake(
            "more machines fail less often",
            many_fail_less_often,
            went_wrong="You multiplied by the number of machines. More machines fail *more* often, so the "
            "time between two failures gets shorter.",
            try_this="Divide instead.",
        ),
        Mistake(
            "hours taken for seconds",
            hours_for_seconds,
            went_wrong=lambda case, seen, expected: (
                f"You are too low by a factor of {expected[INTERVAL] / seen[INTERVAL]:.1f}: the time between "
                "failures is in hours, the time to write in seconds."
            ),
            try_this="Multiply the hours by 3600.",
            variants=[lambda write, hours, machines: _young(write, 60 * hours / machines)],
        ),
        Mistake(
            "in hours",
            _interval(_young, 1 / 3600),
            went_wrong="The number is right, but not its unit: seconds were asked for.",
            try_this="Keep everything in seconds, and convert nothing at the end.",
        ),
        Mistake(
            "the 2 forgotten",
            _interval(lambda write, between: math.sqrt(write * between)),
            went_wrong="Your interval is too short by the root of 2, so you save too often. On average "
            "*half* an interval is lost in a failure, which is where the 2 comes from.",
            try_this="√(2 · write · time between failures)",
        ),
        Mistake(
            "the 2 taken twice",
            _interval(_young, 2**0.5),
            went_wrong="Your interval is too long by the root of 2: the 2 is in it twice, so you save "
            "too seldom.",
            try_this="√(2 · write · time between failures)",
        ),
        Mistake(
            "no root",
            _interval(lambda write, between: 2 * write * between),
            went_wrong="That is the square of the interval: its unit is seconds².",
            try_this="Take the square root.",
        ),
        Mistake(
            "divided outside the root",
            machines_after_the_root,
            went_wrong="You divided the result by the number of machines. Four times as many machines save "
            "twice as often, not four times.",
            try_this="The number of machines belongs under the root.",
        ),
        Mistake(
            "as often as it fails",
            _interval(lambda write, between: between),
            went_wrong="That is the time between two failures, or half of it, whatever a save costs. A large "
            "part of what lies between two failures would be lost every time.",
            try_this="Young's formula is between the time to write and the time between failures.",
            variants=[_interval(lambda write, between: between / 2)],
        ),
    ],
    also_right=[by_logarithms],
)

EXERCISES = [SUPERVISE, DIAGNOSE, CHECKPOINT_INTERVAL]
