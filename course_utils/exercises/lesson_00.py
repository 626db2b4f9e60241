"""The exercises of lesson 00: replica, worker and global batch by counting; what a replica holds."""

import contextlib
import functools
import multiprocessing
import os
from unittest import mock

import numpy as np
import psutil

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy

tf = lazy("tensorflow")
devices = lazy("course_utils.devices")

DEVICES = 4  # what the lesson's set-up cell asks for

# The larger machine: a different number of everything that might be taken for the replicas.
MANY_CORES = 96
MANY_DEVICES = {"CPU": 16, "GPU": 8}
OTHER_STRATEGY = 12  # replicas of every strategy but the one that is passed


# --- count_replicas

HERE = "replicas"
ELSEWHERE = "replicas, on a larger machine"


def count_cases(random):
    devices.simulate(DEVICES)
    return [
        {"about": f"a MirroredStrategy over {n} of {DEVICES} devices", "replicas": n}
        # All devices last: the cards speak of the first wrong case, where devices are left over.
        for n in [*random.permutation([1, 2, 3]).tolist(), DEVICES]
    ]


def observe_count(answer, case):
    strategy = devices.mirrored(case["replicas"])
    here = returned.number(answer(strategy), "count_replicas")
    with a_larger_machine(), another_size_of_other_strategies(strategy):
        elsewhere = returned.number(answer(strategy), "count_replicas")
    return {HERE: here, ELSEWHERE: elsewhere}


@contextlib.contextmanager
def a_larger_machine():
    """In here, whoever asks for the cores or the devices gets those of a larger machine."""
    asked = [(os, "cpu_count"), (os, "process_cpu_count"), (psutil, "cpu_count")]
    with contextlib.ExitStack() as stack:

        def answers(module, name, answer):
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, answer))

        for module, name in asked:
            answers(module, name, lambda *_, **__: MANY_CORES)
        answers(os, "sched_getaffinity", lambda _: set(range(MANY_CORES)))
        for module in (tf.config, tf.config.experimental):
            answers(module, "list_logical_devices", devices_of(tf.config.LogicalDevice, MANY_DEVICES))
            answers(module, "list_physical_devices", devices_of(tf.config.PhysicalDevice, ONE_CPU))
        yield


ONE_CPU = {**MANY_DEVICES, "CPU": 1}  # logical CPU devices are parts of one physical


def devices_of(kind_of_device, counts):
    """A function that lists made-up devices, as `tf.config.list_logical_devices` does."""

    def listed(device_type=None):
        kinds = [device_type] if device_type else list(counts)
        return [
            kind_of_device(f"/device:{kind}:{number}", kind)
            for kind in kinds
            for number in range(counts.get(kind, 0))
        ]

    return listed


@contextlib.contextmanager
def another_size_of_other_strategies(strategy):
    """In here, every strategy but this one says that it has `OTHER_STRATEGY` replicas."""
    name = "num_replicas_in_sync"
    owner = next(kind for kind in type(strategy).__mro__ if name in vars(kind))
    true = vars(owner)[name]
    told = property(lambda self: true.fget(self) if self is strategy else OTHER_STRATEGY)
    with mock.patch.object(owner, name, told):
        yield


def expected_count(case):
    return {HERE: case["replicas"], ELSEWHERE: case["replicas"]}


def follows_the_cores(cases, seen, expected):
    return all(one[ELSEWHERE] == MANY_CORES for one in seen)


def never_changes(cases, seen, expected):
    return len({value for one in seen for value in one.values()}) == 1


def devices_of_this_process(strategy):
    return len(tf.config.list_logical_devices("CPU"))


@functools.cache
def strategy_of_the_notebook():
    return devices.mirrored(DEVICES)


def ask_another_strategy(strategy):
    return strategy_of_the_notebook().num_replicas_in_sync


COUNT_REPLICAS = Exercise(
    id="00.count_replicas",
    title="How many replicas?",
    points=1,
    length="about 1 line",
    signature="count_replicas(strategy)",
    hints=[
        "Neither the machine nor the process decides it. Who does?",
        "You used it above: the strategy knows how many of its replicas are kept in step with each other.",
        "`strategy.num_replicas_in_sync`",
    ],
    cases=count_cases,
    observe=observe_count,
    expected=expected_count,
    mistakes=[
        Mistake(
            "replicas = cores",
            lambda strategy: os.cpu_count(),
            went_wrong=lambda case, seen, expected: (
                f"On a machine with {MANY_CORES} cores you find {seen[ELSEWHERE]} replicas, and yet the "
                f"strategy still has {case['replicas']}. You counted processor cores. A replica is a copy "
                "of the model on one *device*, and a device may be part of a core or hundreds of them."
            ),
            try_this="Ask the strategy. It alone knows how many copies it keeps in step.",
            variants=[
                lambda strategy: multiprocessing.cpu_count(),
                lambda strategy: psutil.cpu_count(logical=False),
            ],
            recognises=follows_the_cores,
        ),
        Mistake(
            "every device of the process",
            devices_of_this_process,
            went_wrong=lambda case, seen, expected: (
                f"You find {seen[HERE]:g}: all devices that this process has. This strategy was given "
                f"{case['replicas']} of them: {count(case['replicas'], 'replica')}. Devices that no strategy "
                "was given are idle."
            ),
            try_this="Ask the strategy that was passed to you, not TensorFlow as a whole.",
            variants=[lambda strategy: len(tf.config.list_logical_devices())],
        ),
        Mistake(
            "another strategy was asked",
            ask_another_strategy,
            went_wrong=lambda case, seen, expected: (
                f"You find {count(seen[HERE], 'replica')}, whatever strategy is passed; this one has "
                f"{case['replicas']}. You asked another strategy: one made earlier in the notebook, or the "
                "default one that `tf.distribute.get_strategy()` gives outside a scope. That is right only "
                "as long as both happen to agree."
            ),
            try_this="Ask the strategy that was passed, by its name in the `def` line.",
            variants=[lambda strategy: tf.distribute.get_strategy().num_replicas_in_sync],
        ),
        Mistake(
            "a process is a replica",
            lambda strategy: 1,
            went_wrong=lambda case, seen, expected: (
                "You find 1 every time. That is how many *workers* (processes) there are, or how many "
                "processors. One worker may hold many replicas, one on each of its devices; this one holds "
                f"{case['replicas']}."
            ),
            try_this="Count copies of the model, not processes: the strategy knows.",
            variants=[lambda strategy: len(tf.config.list_physical_devices("CPU"))],
        ),
        Mistake(
            "GPUs counted",
            lambda strategy: len(tf.config.list_physical_devices("GPU")),
            went_wrong=lambda case, seen, expected: (
                f"You counted this machine's GPUs and found {seen[HERE]:g}. A replica lives on any device "
                "that the strategy was given, and virtual CPU devices are devices too."
            ),
            try_this="Ask the strategy itself: it knows its devices, of whatever kind.",
            variants=[lambda strategy: len(tf.config.list_logical_devices("GPU"))],
        ),
        Mistake(
            "the largest replica id",
            lambda strategy: strategy.num_replicas_in_sync - 1,
            went_wrong=lambda case, seen, expected: (
                f"You are one short: {seen[HERE]:g} instead of {case['replicas']}. Replicas are numbered "
                "from 0, so the last one's number is not how many there are."
            ),
            try_this="Return the count, not the largest id.",
        ),
        Mistake(
            "the devices themselves",
            lambda strategy: strategy.extended.worker_devices,
            went_wrong="You returned the devices, one by one. The question is how many replicas there are: "
            "one number.",
            try_this="Return a number. `len(...)` of that would do in one process; with several workers "
            "each would only count its own. Does the strategy have the total?",
        ),
        Mistake(
            "a fixed number",
            lambda strategy: 2,
            went_wrong=lambda case, seen, expected: (
                f"You find {seen[HERE]:g} whatever strategy is passed; this one has {case['replicas']}. The "
                "number is written in, or comes from something made earlier in the notebook: it is wrong on "
                "the next machine, without any error."
            ),
            try_this="Read it from the argument `strategy`.",
            variants=[lambda strategy: 8, lambda strategy: DEVICES, lambda strategy: 0],
            recognises=never_changes,
        ),
    ],
    also_right=[
        lambda strategy: len(strategy.extended.worker_devices),
        lambda strategy: strategy.reduce("SUM", strategy.run(lambda: tf.constant(1)), axis=None),
        lambda strategy: len(strategy.experimental_local_results(strategy.run(lambda: tf.constant(0)))),
    ],
)


# --- global_batch_size

BATCH = "examples in one step"


def batch_cases(random):
    shapes = ((1, 4), (3, 1), (3, 2), (2, 5))
    return [
        {
            "about": f"{count(workers, 'worker')}, {count(replicas, 'replica')} on each, {batch} examples a "
            "replica",
            "batch": batch,
            "workers": workers,
            "replicas": replicas,
        }
        for (workers, replicas), batch in zip(
            shapes, random.choice(np.arange(16, 136, 8), len(shapes), replace=False).tolist(), strict=True
        )
    ]


def observe_batch(answer, case):
    size = answer(case["batch"], case["workers"], case["replicas"])
    return {BATCH: returned.number(size, "global_batch_size")}


def expected_batch(case):
    """Every replica's examples, counted one replica after the other."""
    return {BATCH: sum(case["batch"] for _ in range(case["workers"]) for _ in range(case["replicas"]))}


GLOBAL_BATCH = Exercise(
    id="00.global_batch_size",
    title="From the batch of a replica to the global batch",
    points=1,
    length="about 1 line",
    signature="global_batch_size(per_replica_batch, workers, replicas_per_worker)",
    hints=[
        "One step: every replica takes its own examples. How many replicas are there in the whole cluster?",
        "2 workers with 2 replicas each are 4 replicas. With 16 examples on each of them, one step sees …",
        "Multiply all three.",
    ],
    cases=batch_cases,
    observe=observe_batch,
    expected=expected_batch,
    mistakes=[
        Mistake(
            "batch = per replica",
            lambda batch, workers, replicas: batch,
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[BATCH]:g}, what *one* replica takes. In the same step the others take as "
                f"many again: together {expected[BATCH]}. The optimizer makes one update from all of them, "
                "so that is the batch that the learning rate has to fit."
            ),
            try_this="Count the replicas of the whole cluster, and multiply.",
        ),
        Mistake(
            "workers counted, not replicas",
            lambda batch, workers, replicas: batch * workers,
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[BATCH]:g}: one batch for each worker. But each worker holds "
                f"{count(case['replicas'], 'replica')}, and every one of them takes a batch of its own."
            ),
            try_this="A worker is a process, a replica is a copy of the model. Which of them takes a batch?",
        ),
        Mistake(
            "one worker's replicas only",
            lambda batch, workers, replicas: batch * replicas,
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[BATCH]:g}: what one worker takes. There are {case['workers']}, and all of "
                "them take part in the same step."
            ),
            try_this="Multiply by the number of workers as well.",
        ),
        Mistake(
            "workers and replicas added",
            lambda batch, workers, replicas: batch * (workers + replicas),
            went_wrong=lambda case, seen, expected: (
                f"{count(case['workers'], 'worker')} with {case['replicas']} replicas *each*: that makes "
                f"{case['workers'] * case['replicas']} replicas, not {case['workers'] + case['replicas']}."
            ),
            try_this="Draw the map: boxes (workers) with boxes in them (replicas). Count the inner ones.",
        ),
        Mistake(
            "divided instead of multiplied",
            lambda batch, workers, replicas: batch / (workers * replicas),
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[BATCH]:g}, less than one replica takes alone. You went the other way: from "
                "a global batch down to the share of a replica."
            ),
            try_this="Here the share is given and the whole is wanted.",
            variants=[
                lambda batch, workers, replicas: batch // (workers * replicas),
                lambda batch, workers, replicas: batch / workers,
            ],
        ),
        Mistake(
            "times the cores",
            lambda batch, workers, replicas: batch * os.cpu_count(),
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[BATCH]:g}: the batch times the processor cores of this machine. Cores are "
                "how a device computes; they do not decide how many batches are taken."
            ),
            try_this="Only the three arguments matter.",
        ),
        Mistake(
            "an array of batches",
            lambda batch, workers, replicas: [batch] * (workers * replicas),
            went_wrong="You listed the batch of every replica, which is right so far. The global batch is "
            "one number: all of them together.",
            try_this="Add them up.",
        ),
    ],
    also_right=[
        lambda batch, workers, replicas: batch * (workers * replicas),
        lambda batch, workers, replicas: sum([batch * replicas] * workers),
        lambda batch, workers, replicas: int(np.full((workers, replicas), batch).sum()),
    ],
)


# --- memory_per_replica

MEGABYTES = "MB on each replica"


def memory_cases(random):
    shapes = ((1, 1), (4, 1), (2, 0), (8, 2))
    cases = []
    for replicas, slots in shapes:
        weights, example = int(random.integers(40, 90)), float(random.integers(2, 7))
        batch = replicas * int(random.integers(5, 12))
        cases.append(
            {
                "about": f"{count(replicas, 'replica')}: {weights} MB of weights, "
                f"{count(slots, 'optimizer number')} a weight, {batch} examples of {example:g} MB in the "
                "global batch",
                "weights": weights,
                "slots": slots,
                "example": example,
                "batch": batch,
                "replicas": replicas,
            }
        )
    return cases


def observe_memory(answer, case):
    size = answer(
        case["weights"] * 1e6, case["slots"], case["example"] * 1e6, case["batch"], case["replicas"]
    )
    return {MEGABYTES: returned.number(size, "memory_per_replica") / 1e6}


def expected_memory(case):
    """What a replica holds, put on a pile piece by piece: copies of the weights, then its own examples."""
    pile = [case["weights"], case["weights"]]  # the weights and their gradients
    pile += [case["weights"]] * case["slots"]
    pile += [case["example"]] * (case["batch"] // case["replicas"])
    return {MEGABYTES: sum(pile)}


def all_shared_out(weights, slots, example, batch, replicas):
    return ((2 + slots) * weights + example * batch) / replicas


MEMORY = Exercise(
    id="00.memory_per_replica",
    title="Does it fit?",
    points=2,
    length="about 2 lines",
    signature="memory_per_replica(weight_bytes, slots, bytes_per_example, global_batch, replicas)",
    hints=[
        "Two kinds of things lie in a replica's memory: those that every replica holds in full, and those "
        "of which it holds a share. Which are which?",
        "In full: the weights, one gradient for each weight, and `slots` numbers of the optimizer for each "
        "weight. A share: the examples of the batch. `slots` counts numbers, not bytes: each is as large as "
        "a weight, so one slot for every weight takes `weight_bytes` once more.",
        "`(2 + slots) * weight_bytes`, plus `bytes_per_example` for each of this replica's examples.",
    ],
    cases=memory_cases,
    observe=observe_memory,
    expected=expected_memory,
    mistakes=[
        Mistake(
            "the model is shared out",
            all_shared_out,
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[MEGABYTES]:.4g} MB, as if {case['replicas']} replicas could split the model "
                f"between them. Each holds all of it: {expected[MEGABYTES]:.4g} MB. Data parallelism shares "
                "out the *data*; a model that is too large for one device stays too large on a thousand."
            ),
            try_this="Divide only what is different on every replica.",
            variants=[
                lambda weights, slots, example, batch, replicas: (
                    (2 + slots) * weights / replicas + example * batch
                ),
            ],
        ),
        Mistake(
            "the whole batch on every replica",
            lambda weights, slots, example, batch, replicas: (2 + slots) * weights + example * batch,
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[MEGABYTES]:.4g} MB: that replica would hold all {case['batch']} examples. "
                f"It holds its share, {case['batch'] // case['replicas']} of them."
            ),
            try_this="How many examples of the global batch does one replica take?",
        ),
        Mistake(
            "weights or gradients forgotten",
            lambda weights, slots, example, batch, replicas: (
                (1 + slots) * weights + example * batch / replicas
            ),
            went_wrong=lambda case, seen, expected: (
                f"{expected[MEGABYTES] - seen[MEGABYTES]:.4g} MB are missing, as much as the weights take: "
                "either the weights themselves, or their gradients. In every step each weight gets a "
                "gradient, and both lie in memory."
            ),
            try_this="Count the weights twice: once for themselves, once for their gradients.",
        ),
        Mistake(
            "optimizer forgotten",
            lambda weights, slots, example, batch, replicas: 2 * weights + example * batch / replicas,
            went_wrong=lambda case, seen, expected: (
                f"{expected[MEGABYTES] - seen[MEGABYTES]:.4g} MB are missing. This optimizer keeps "
                f"{count(case['slots'], 'number')} of its own for each weight (momentum keeps 1, Adam 2), "
                "and each replica keeps all of them. (`slots` counts those numbers: added as it is, it is a "
                "byte or two.)"
            ),
            try_this="`slots` more copies, each as large as the weights: `slots * weight_bytes`.",
            variants=[
                lambda weights, slots, example, batch, replicas: (
                    2 * weights + slots + example * batch / replicas
                ),
            ],
        ),
        Mistake(
            "weights and examples alone",
            lambda weights, slots, example, batch, replicas: weights + example * batch / replicas,
            went_wrong="That is enough to *use* the model, not to train it: gradients and the optimizer's "
            "own numbers are missing.",
            try_this="For each weight: itself, its gradient, and `slots` numbers of the optimizer.",
        ),
        Mistake(
            "neither weights nor gradients",
            lambda weights, slots, example, batch, replicas: slots * weights + example * batch / replicas,
            went_wrong=lambda case, seen, expected: (
                f"{expected[MEGABYTES] - seen[MEGABYTES]:.4g} MB are missing: the weights, and as much again "
                "for their gradients. You counted only the optimizer's numbers and the examples."
            ),
            try_this="For each weight: itself, its gradient, and `slots` numbers of the optimizer.",
        ),
        Mistake(
            "model or examples forgotten",
            lambda weights, slots, example, batch, replicas: (2 + slots) * weights,
            went_wrong=lambda case, seen, expected: (
                f"{expected[MEGABYTES] - seen[MEGABYTES]:.4g} MB are missing. A replica holds two kinds of "
                "things: the model (weights, gradients, optimizer), and its own examples with what the "
                "layers make of them. One of the two is not in your sum."
            ),
            try_this="Add both: what every replica holds in full, and its share of the batch.",
            variants=[lambda weights, slots, example, batch, replicas: example * batch / replicas],
        ),
        Mistake(
            "batch multiplied by the replicas",
            lambda weights, slots, example, batch, replicas: (
                (2 + slots) * weights + example * batch * replicas
            ),
            went_wrong=lambda case, seen, expected: (
                f"You get {seen[MEGABYTES]:.4g} MB: you multiplied {case['batch']} examples by "
                f"{case['replicas']} replicas. The *global* batch is all examples of a step already; each "
                f"replica takes {case['batch'] // case['replicas']} of them."
            ),
            try_this="From the global batch down to one replica: multiply or divide?",
        ),
        Mistake(
            "4 bytes counted twice",
            lambda weights, slots, example, batch, replicas: (
                (2 + 4 * slots) * weights + example * batch / replicas
            ),
            went_wrong=lambda case, seen, expected: (
                f"{seen[MEGABYTES] - expected[MEGABYTES]:.4g} MB too many: you multiplied by 4 bytes a "
                "number, but `weight_bytes` is in bytes already. One number for each weight takes as much "
                "as the weights."
            ),
            try_this="Leave the 4 out: `slots * weight_bytes` is in bytes.",
            variants=[
                lambda weights, slots, example, batch, replicas: (
                    4 * (2 + slots) * weights + example * batch / replicas
                ),
            ],
        ),
        Mistake(
            "all replicas together",
            lambda weights, slots, example, batch, replicas: (
                (2 + slots) * weights * replicas + example * batch
            ),
            went_wrong=lambda case, seen, expected: (
                f"{seen[MEGABYTES]:.4g} MB is what all {case['replicas']} replicas hold together. The "
                "question is whether one of them fits on its device."
            ),
            try_this="Count for a single replica.",
        ),
        Mistake(
            "the weights once for each replica",
            lambda weights, slots, example, batch, replicas: (
                (2 + slots) * weights * replicas + example * batch / replicas
            ),
            went_wrong=lambda case, seen, expected: (
                f"You counted the copies of all {case['replicas']} replicas. Each device holds one copy of "
                "the model, its own."
            ),
            try_this="Do not multiply by the number of replicas: the question is what one of them holds.",
        ),
    ],
    also_right=[
        lambda weights, slots, example, batch, replicas: sum(
            [weights, weights, slots * weights, example * (batch // replicas)]
        ),
        lambda weights, slots, example, batch, replicas: (
            ((2 + slots) * weights * replicas + example * batch) / replicas
        ),
    ],
)


def count(number, thing):
    return f"{number} {thing}{'s' * (number != 1)}"


EXERCISES = [COUNT_REPLICAS, GLOBAL_BATCH, MEMORY]
