"""The exercises of lesson 15: how stale a gradient is, the loop of a coordinator, and which strategy."""

import tempfile

import numpy as np

from course_utils import cluster
from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy

tf = lazy("tensorflow")

# --- 15.mean_staleness: from the log of a parameter server --------------------------------------------

STALENESS = "mean staleness (updates)"


def logs(random):
    """One worker alone, two in turn, and workers that differ in speed."""
    return [
        {"about": "one worker", "log": turns(random, [1.0], 4)},
        {"about": "two workers, one after the other", "log": [*one_turn(0), *one_turn(1), *one_turn(0)]},
        {"about": "a slow worker and a fast one", "log": turns(random, [5.0, 1.0], 9)},
        {"about": "three workers, 17 pushes", "log": turns(random, [1.0, 2.0, 6.0], 17)},
    ]


def one_turn(worker):
    return [("pull", worker), ("push", worker)]


def turns(random, seconds, pushes):
    """What a parameter server notes of workers that take about so many seconds for a step."""
    events, ends = [("pull", i) for i in range(len(seconds))], np.array(seconds) * random.uniform(0.6, 1.0)
    for _ in range(pushes):
        worker = int(ends.argmin())
        events += [("push", worker), ("pull", worker)]
        ends[worker] += seconds[worker] * random.uniform(0.7, 1.3)
    return events  # the last pulls are never pushed


def observe_staleness(answer, case):
    value = answer([tuple(event) for event in case["log"]])
    return {STALENESS: returned.number(value, "mean_staleness")}


def expected_staleness(case):
    """By the law: all pushes between a worker's pull and its push, which hold none of its own."""
    found = []
    for at, (kind, worker) in enumerate(case["log"]):
        if kind == "push":
            pull = max(i for i in range(at) if tuple(case["log"][i]) == ("pull", worker))
            found.append(sum(kind == "push" for kind, _ in case["log"][pull:at]))
    return {STALENESS: float(np.mean(found))}


def staleness_with(between=lambda kind: kind == "push", own=0, over=None):
    """The mean of what lies between pull and push, `own` added, divided by what `over` says of the log."""

    def mean_staleness(log):
        pulled, total, pushes = {}, 0, 0
        for at, (kind, worker) in enumerate(log):
            if kind == "pull":
                pulled[worker] = at
            else:
                total += sum(between(kind) for kind, _ in log[pulled[worker] + 1 : at]) + own
                pushes += 1
        return total / (over(log) if over else pushes)

    return mean_staleness


def since_its_last_push(log):
    """From push to push: the time before the pull is counted too."""
    last, found, version = {}, [], 0
    for kind, worker in log:
        if kind == "push":
            found.append(version - last.get(worker, 0))
            version += 1
            last[worker] = version
    return sum(found) / len(found)


def sum_only(log):
    pushes = sum(kind == "push" for kind, _ in log)
    return staleness_with()(log) * pushes


def greatest(log):
    seen, found, version = {}, [], 0
    for kind, worker in log:
        if kind == "pull":
            seen[worker] = version
        else:
            found.append(version - seen[worker])
            version += 1
    return max(found)


def by_versions(log):
    """A counter, as in the lesson."""
    version, seen, total = 0, {}, 0
    for kind, worker in log:
        if kind == "pull":
            seen[worker] = version
        else:
            total += version - seen[worker]
            version += 1
    return total / version


def mean_of_workers(log):
    """The mean of each worker's mean: the slow one counts as much as the fast one."""
    names = {worker for _, worker in log}
    version, seen, found = 0, {}, {name: [] for name in names}
    for kind, worker in log:
        if kind == "pull":
            seen[worker] = version
        else:
            found[worker].append(version - seen[worker])
            version += 1
    means = [sum(own) / len(own) for own in found.values() if own]
    return sum(means) / len(means)


MEAN_STALENESS = Exercise(
    id="15.mean_staleness",
    title="How stale is a gradient?",
    points=2,
    length="about 8 lines",
    signature="mean_staleness(log)",
    hints=[
        "Count the pushes as you go: that number is the version of the weights.",
        "At a pull, remember the version for that worker. At its push, compare.",
        "staleness = version now − version that this worker pulled; then the version grows by one.",
    ],
    cases=logs,
    observe=observe_staleness,
    expected=expected_staleness,
    mistakes=[
        Mistake(
            "own push counted",
            staleness_with(own=1),
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[STALENESS]:g}, one more than {expected[STALENESS]:g}. The push itself is "
                "counted: a worker that is alone would already be 1 update late."
            ),
            try_this="Look at the version *before* this push is added.",
        ),
        Mistake(
            "pulls counted too",
            staleness_with(between=lambda kind: True),
            went_wrong="You count every line between pull and push. A pull of another worker changes no "
            "weights, and makes nothing stale.",
            try_this="Count only the pushes in between.",
            variants=[staleness_with(between=lambda kind: kind == "pull")],
        ),
        Mistake(
            "divided by all lines of the log",
            staleness_with(over=len),
            went_wrong="The sum is right, but it is divided by all lines. The mean is over the pushes.",
            try_this="Count the pushes, and divide by them.",
            variants=[staleness_with(over=lambda log: sum(kind == "pull" for kind, _ in log))],
        ),
        Mistake(
            "divided by the workers",
            staleness_with(over=lambda log: len({worker for _, worker in log})),
            went_wrong="The sum is divided by the number of workers. The mean is over the pushes.",
            try_this="Count the pushes, and divide by them.",
        ),
        Mistake(
            "not divided",
            sum_only,
            went_wrong="That is the sum over all pushes; it grows with the length of the log.",
            try_this="Divide by the number of pushes.",
        ),
        Mistake(
            "mean of the workers' means",
            mean_of_workers,
            went_wrong="You take the mean of each worker, then the mean of those. So the few pushes of a "
            "slow worker count as much as the many of a fast one.",
            try_this="One sum over all pushes, one division.",
        ),
        Mistake(
            "the greatest instead of the mean",
            greatest,
            went_wrong="That is the stalest of all gradients, not the mean.",
            try_this="Add them all up and divide by the number of pushes.",
        ),
        Mistake(
            "since its last push",
            since_its_last_push,
            went_wrong="You count from this worker's last *push*. What came between that and its pull it has "
            "seen: those updates are in the weights that it pulled.",
            try_this="Remember the version at the pull.",
        ),
    ],
    also_right=[by_versions],
)

# --- 15.run_steps: on a real cluster ------------------------------------------------------------------

HANDED, BEFORE, DONE, RETURNED = (
    "steps handed to the workers",
    "handed out before the first wait",
    "updates made",
    "what came back",
)
PROMISES, NOTHING = "promises, not numbers", "nothing"


def batch_sets(random):
    """Batches whose losses are all different and not in order."""
    numbers = random.permutation(np.arange(3, 30))[:7]
    return [{"about": "7 batches, a chief, 2 workers, 1 ps", "batches": [[float(n), 1.0] for n in numbers]}]


class Promise:
    """What `schedule` returned, telling when somebody waits for it."""

    def __init__(self, real, notes):
        self.real, self._notes = real, notes

    def fetch(self):
        self._notes.waited()
        return self.real.fetch()

    def get(self):
        self._notes.waited()
        return self.real.get()


class Noting:
    """A ClusterCoordinator that notes what is asked of it."""

    def __init__(self, coordinator):
        self._real, self.strategy = coordinator, coordinator.strategy
        self.handed, self.before = 0, None

    def waited(self):
        self.before = self.handed if self.before is None else self.before

    def schedule(self, fn, args=None, kwargs=None):
        promise = Promise(self._real.schedule(fn, args, kwargs), self)
        self.handed += 1
        return promise

    def join(self):
        self.waited()
        self._real.join()

    def done(self):
        return self._real.done()

    def fetch(self, promises):
        self.waited()
        return self._real.fetch(tf.nest.map_structure(lambda promise: promise.real, promises))


def on_task(answer, batches):
    """The chief's observations; the others serve."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        task = {"job_name": resolver.task_type, "task_index": resolver.task_id}
        tf.distribute.Server(resolver.cluster_spec(), protocol="grpc", **task).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        updates = tf.Variable(0, dtype=tf.int64)

    @tf.function(input_signature=[tf.TensorSpec([2])])
    def step(batch):
        updates.assign_add(1)
        return tf.reduce_sum(batch)

    noting = Noting(coordinator)
    value = answer(noting, step, [tf.constant(batch) for batch in batches])
    came_back = in_words(value)
    coordinator.join()
    return {
        HANDED: noting.handed,
        BEFORE: noting.handed if noting.before is None else noting.before,
        DONE: int(updates.numpy()),
        RETURNED: came_back,
    }


def in_words(value):
    """Numbers as they are, everything else in a word."""
    if value is None:
        return NOTHING
    try:
        entries = list(value)
    except TypeError:
        return f"no list, but {returned.describe(value)}"
    if any(isinstance(entry, Promise) for entry in entries):
        return PROMISES
    return [float(entry) for entry in entries]


def observe_run_steps(answer, case):
    """What the answer did on a chief with two workers and a parameter server."""
    with tempfile.TemporaryDirectory() as folder:
        shape = {"workers": 2, "chief": True, "ps": 1}
        tasks = cluster.LocalCluster(**shape, output="quiet", timeout=40, log_dir=folder)
        try:
            return tasks.run(on_task, answer, case["batches"])[0]
        except cluster.WorkerError as error:
            raise error.original or error from None


def expected_run_steps(case):
    count = len(case["batches"])
    return {HANDED: count, BEFORE: count, DONE: count, RETURNED: [sum(batch) for batch in case["batches"]]}


def fetches_each_at_once(coordinator, step, batches):
    return [coordinator.schedule(step, args=(batch,)).fetch() for batch in batches]


def joins_after_each(coordinator, step, batches):
    losses = []
    for batch in batches:
        promise = coordinator.schedule(step, args=(batch,))
        coordinator.join()
        losses.append(promise.fetch())
    return losses


def returns_promises(coordinator, step, batches):
    promises = [coordinator.schedule(step, args=(batch,)) for batch in batches]
    coordinator.join()
    return promises


def trains_on_the_chief(coordinator, step, batches):
    return [float(step(batch)) for batch in batches]


def first_batch_only(coordinator, step, batches):
    promises = [coordinator.schedule(step, args=(batches[0],)) for _ in batches]
    coordinator.join()
    return [promise.fetch() for promise in promises]


def last_loss_only(coordinator, step, batches):
    for batch in batches:
        promise = coordinator.schedule(step, args=(batch,))
    coordinator.join()
    return [promise.fetch()]


def returns_nothing(coordinator, step, batches):
    for batch in batches:
        coordinator.schedule(step, args=(batch,))
    coordinator.join()


def in_falling_order(coordinator, step, batches):
    promises = [coordinator.schedule(step, args=(batch,)) for batch in batches]
    return sorted((float(promise.fetch()) for promise in promises), reverse=True)


def fetched_by_the_coordinator(coordinator, step, batches):
    promises = [coordinator.schedule(step, (batch,)) for batch in batches]
    return [float(loss) for loss in coordinator.fetch(promises)]


RUN_STEPS = Exercise(
    id="15.run_steps",
    title="The loop of a coordinator",
    points=2,
    length="about 3 lines",
    signature="run_steps(coordinator, step, batches)",
    hints=[
        "`coordinator.schedule(step, args=(batch,))` hands one step out and returns a promise at once.",
        "Hand out all of them before you wait for the first.",
        "Then `coordinator.join()`, and `.fetch()` on each promise, in their order.",
    ],
    cases=batch_sets,
    observe=observe_run_steps,
    expected=expected_run_steps,
    time_limit=60,
    slow=True,
    mistakes=[
        Mistake(
            "waits after every step",
            fetches_each_at_once,
            went_wrong=lambda case, seen, expected: (
                f"When you first wait, {seen[BEFORE]} step is handed out. So one worker works, the other has "
                "nothing to do, and nothing is asynchronous any more."
            ),
            try_this="One loop that schedules all, then one `join`, then one loop that fetches.",
            variants=[joins_after_each],
        ),
        Mistake(
            "promises instead of numbers",
            returns_promises,
            went_wrong="What `schedule` returned are promises (RemoteValue): they stand for numbers that are "
            "on a worker.",
            try_this="`promise.fetch()` brings the number here.",
        ),
        Mistake(
            "the chief trains by itself",
            trains_on_the_chief,
            went_wrong="All updates were made, but no step was handed to a worker: you called `step` "
            "yourself, and so it ran on the chief while the workers waited.",
            try_this="`coordinator.schedule(step, args=(batch,))` in place of `step(batch)`.",
        ),
        Mistake(
            "one batch again and again",
            first_batch_only,
            went_wrong="As many steps as there are batches, and all have the same loss: each got the same "
            "batch.",
            try_this="`args=(batch,)` with the batch of the loop.",
        ),
        Mistake(
            "the last loss only",
            last_loss_only,
            went_wrong="All steps are done, but only the last promise was kept.",
            try_this="Keep the promises in a list.",
        ),
        Mistake(
            "nothing returned",
            returns_nothing,
            went_wrong="All steps are done, and nothing comes back.",
            try_this="Keep the promises in a list, fetch each after the join, and return that.",
        ),
        Mistake(
            "not in the order of the batches",
            in_falling_order,
            went_wrong="The losses are all there, in another order than the batches. Workers finish in any "
            "order; the promises stay in yours.",
            try_this="Fetch the promises in the order in which you got them.",
            recognises=lambda cases, seen, expected: all(
                one[RETURNED] != e[RETURNED] and sorted(one[RETURNED]) == sorted(e[RETURNED])
                for one, e in zip(seen, expected, strict=True)
            ),
        ),
    ],
    also_right=[fetched_by_the_coordinator],
)

# --- 15.my_choice: five situations ----------------------------------------------------------------------

MIRRORED, WORKERS, SERVER, CENTRAL = (
    "MirroredStrategy",
    "MultiWorkerMirroredStrategy",
    "ParameterServerStrategy",
    "CentralStorageStrategy",
)
SITUATIONS = "ABCDE"
STRATEGIES = (MIRRORED, WORKERS, SERVER, CENTRAL, "OneDeviceStrategy", "TPUStrategy")
RIGHT = {"A": (MIRRORED, 3), "B": (WORKERS, 1), "C": (SERVER, 2), "D": (CENTRAL, 4), "E": (WORKERS, 5)}


def observe_choice(answer, case):
    """A line for each situation's strategy, and one for its reason."""
    chosen = returned.mapping(answer, "my_choice")
    if sorted(map(str, chosen)) != list(SITUATIONS):
        raise returned.Unusable('my_choice should have one entry for each of "A", "B", "C", "D", "E".')
    seen = {}
    for situation in SITUATIONS:
        name, reason = returned.items(chosen[situation], f'my_choice["{situation}"]', 2)
        seen[situation] = strategy_named(name, situation)
        seen[f"{situation}, why"] = int(returned.number(reason, f'the reason in my_choice["{situation}"]'))
    return seen


def strategy_named(name, situation):
    """The name as TensorFlow writes it; a class will do, and so will "tf.distribute.…"."""
    text = returned.text(getattr(name, "__name__", name), f'the strategy in my_choice["{situation}"]')
    found = [known for known in STRATEGIES if text.split(".")[-1].lower().startswith(known.lower())]
    if not found:
        raise returned.Unusable(f"{text!r} is none of {', '.join(STRATEGIES)}.")
    return found[0]


def expected_choice(case):
    return {
        line: value for s, (name, why) in RIGHT.items() for line, value in ((s, name), (f"{s}, why", why))
    }


def but(**others):
    return {**RIGHT, **others}


def chosen(situation, strategies, name, went_wrong, try_this, **others):
    """The mistake of choosing one of the `strategies`, whatever the reason and the other choices."""
    right = RIGHT[situation][1]
    first, *rest = [but(**{situation: (strategy, right)}) for strategy in strategies]
    return Mistake(
        name,
        first,
        went_wrong=went_wrong,
        try_this=try_this,
        variants=[*rest, but(**{situation: (strategies[0], 1 + right % 5)}, **others)],
        recognises=lambda cases, seen, expected: seen[0][situation] in strategies,
    )


def reason_differs(cases, seen, expected):
    """Every strategy is right, a reason is not."""
    names = all(seen[0][s] == expected[0][s] for s in SITUATIONS)
    return names and seen[0] != expected[0]


def wrong_reasons(seen, expected):
    return " and ".join(s for s in SITUATIONS if seen[f"{s}, why"] != expected[f"{s}, why"])


MY_CHOICE = Exercise(
    id="15.my_choice",
    title="Which one, and why?",
    points=2,
    length="5 lines",
    signature="my_choice",
    hints=[
        "First ask whether the machines are equal and stay. Only if not, think of doing without the meeting.",
        "Then: one process or several? Does a copy of all variables fit into every device?",
        "Each of the five reasons belongs to one situation; two situations have the same strategy.",
    ],
    observe=observe_choice,
    expected=expected_choice,
    shows_expected=False,
    mistakes=[
        chosen(
            "E",
            [SERVER],
            "async = same result",
            "For E you chose a parameter server. Its weights differ from run to run, with all seeds fixed: "
            "which gradient meets which weights depends on who was faster. The auditor would find another "
            "model.",
            "Look at the right-hand picture again: the same job, run twice.",
            B=(SERVER, 2),
        ),
        chosen(
            "B",
            [SERVER],
            "parameter server is the faster one",
            "For B you chose a parameter server. With 8 equal machines nobody waits long for anybody, and in "
            "a round 16 S pass the ps, but only 3.5 S each worker of an all-reduce.",
            "Compare the busiest machines in the picture for 8 workers.",
        ),
        chosen(
            "C",
            [WORKERS, MIRRORED],
            "everybody must meet, whoever comes",
            "For C you chose a strategy that meets in every step: all 30 go at the pace of the slowest, and "
            "each machine that leaves ends the job for all.",
            "Which strategy survived the killed worker?",
        ),
        Mistake(
            "one process for several machines",
            but(B=(MIRRORED, 3)),
            went_wrong="MirroredStrategy lives in one process, and a process in one machine. It cannot reach "
            "the GPUs of the other 7.",
            try_this="B and E have several machines, and they meet: which strategy does that?",
            variants=[but(E=(MIRRORED, 3)), but(B=(MIRRORED, 1), E=(MIRRORED, 5))],
            recognises=lambda cases, seen, expected: MIRRORED in (seen[0]["B"], seen[0]["E"]),
        ),
        chosen(
            "D",
            [MIRRORED, WORKERS, "OneDeviceStrategy"],
            "a copy where no copy fits",
            "For D you chose a strategy that needs the whole table on a GPU. It does not fit into one.",
            "Where can the table be, once?",
        ),
        chosen(
            "D",
            [SERVER],
            "servers where there is one machine",
            "For D you chose a parameter server: processes of their own, and gradients that come late, on "
            "one machine. One process reaches both GPUs and the host, where the table fits.",
            "One process: where in it can the table be, once?",
        ),
        chosen(
            "A",
            [WORKERS, SERVER, CENTRAL],
            "more machinery than one machine needs",
            "One process reaches all 4 GPUs of A. Several processes, servers or variables on the host add "
            "ways to fail and bytes to move, and nothing else.",
            "What is the simplest strategy that uses all four?",
        ),
        chosen(
            "A",
            ["OneDeviceStrategy"],
            "devices left idle",
            "OneDeviceStrategy uses one of the 4 equal GPUs of A; three do nothing.",
            "Which strategy uses all devices of one process?",
        ),
        Mistake(
            "the right strategy for another reason",
            but(B=(WORKERS, 5), E=(WORKERS, 1)),
            went_wrong=lambda case, seen, expected: (
                f"The strategies are right. The reason is not the one that decides for "
                f"{wrong_reasons(seen, expected)}."
            ),
            try_this="Read what the situation asks for: speed, the same weights again, room, or nobody lost?",
            variants=[but(A=(MIRRORED, 1)), but(C=(SERVER, 5))],
            recognises=reason_differs,
        ),
    ],
)

EXERCISES = [MEAN_STALENESS, RUN_STEPS, MY_CHOICE]
