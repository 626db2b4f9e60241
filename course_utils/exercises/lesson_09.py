"""The exercises of lesson 09: what it takes for two processes to stay one model."""

import contextlib
import functools
import io
import itertools
import operator
import random as python_random
import re
from unittest import mock

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy

tf = lazy("tensorflow")
keras = lazy("keras")
devices = lazy("course_utils.devices")


# --- 09.batch_norm: statistics that agree -------------------------------------------------------------

MEANS = "moving means of the two replicas"
MOVED = "the moving mean moved towards the batch's mean"
OUTPUT = "output"
SAME, HALF, UNCHANGED = "as on one device", "as if each half were the whole batch", "the input, unchanged"


def batches(random):
    """Eight examples whose halves have different means: statistics of one half are wrong for the other."""
    halves = [random.normal(size=(4, 3)), random.normal(size=(4, 3)) + 4]
    return [{"about": "8 examples of 3 features on two replicas", "x": np.concatenate(halves).astype("f4")}]


def observe_batch_norm(answer, case):
    """One training step of the answer's layer on two replicas, a half of the batch each."""
    if isinstance(answer, keras.layers.Layer):  # it can be called too, but with a batch
        raise returned.Unusable(
            "You gave the layer itself. The check needs the function batch_norm, without brackets, so that "
            "each case can make a layer of its own."
        )
    strategy = devices.mirrored(2)
    with strategy.scope():
        layer = answer()
        if not isinstance(layer, keras.layers.Layer):
            raise returned.Unusable(f"batch_norm should give a layer, but gave {returned.describe(layer)}.")
        layer.build((None, 3))
    halves = np.split(case["x"], 2)

    def take_half(context):
        return tf.constant(halves[context.replica_id_in_sync_group])

    outputs = strategy.run(
        tf.function(lambda x: layer(x, training=True)),
        args=(strategy.experimental_distribute_values_from_function(take_half),),
    )
    output = np.concatenate([part.numpy() for part in strategy.experimental_local_results(outputs)])
    means = moving_means(strategy, layer)
    return {MEANS: how_equal(means), MOVED: moved(means), OUTPUT: like_what(output, case["x"])}


def moving_means(strategy, layer):
    """Each replica's copy of the layer's moving mean; none where it keeps no such thing."""
    mean = getattr(layer, "moving_mean", None)
    if mean is None:
        return []
    return [copy.numpy() for copy in strategy.experimental_local_results(mean.value)]


def how_equal(means):
    if not means:
        return "there are none"
    return "equal" if np.allclose(means[0], means[1], atol=1e-6) else "different"


def moved(means):
    return bool(means) and all(bool(np.abs(mean).max() > 1e-6) for mean in means)


def like_what(output, x):
    halves = np.concatenate([normalised(half) for half in np.split(x, 2)])
    for name, wanted in ((SAME, normalised(x)), (HALF, halves), (UNCHANGED, x)):
        if output.shape == wanted.shape and np.abs(output - wanted).max() < 0.05:
            return name
    return "something else"


def normalised(x):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-3)


def expected_batch_norm(case):
    return {MEANS: "equal", MOVED: True, OUTPUT: SAME}


def averaged_afterwards():
    class Averaged(keras.layers.BatchNormalization):
        def call(self, inputs, training=None):
            outputs = super().call(inputs, training=training)
            replica = tf.distribute.get_replica_context()
            for statistic in (self.moving_mean, self.moving_variance):
                statistic.assign(replica.all_reduce("MEAN", statistic.value))
            return outputs

    return Averaged()


def synchronised_by_hand():
    class Synchronised(keras.layers.BatchNormalization):
        def _moments(self, inputs, mask):
            replica = tf.distribute.get_replica_context()
            mean = replica.all_reduce("MEAN", tf.reduce_mean(inputs, axis=0))
            square = replica.all_reduce("MEAN", tf.reduce_mean(inputs**2, axis=0))
            return mean, square - mean**2

    return Synchronised()


BATCH_NORM = Exercise(
    id="09.batch_norm",
    title="Statistics that agree",
    points=2,
    length="about 1 line",
    signature="batch_norm()",
    hints=[
        "What does each replica know when it normalises? What would it have to ask the others?",
        "Look at the arguments of `keras.layers.BatchNormalization`.",
        "One of them is called `synchronized`.",
    ],
    cases=batches,
    observe=observe_batch_norm,
    expected=expected_batch_norm,
    mistakes=[
        Mistake(
            "same weights, same model",
            lambda: keras.layers.BatchNormalization(),
            went_wrong="Weights are equal on all replicas because their gradients are all-reduced. Moving "
            "means have no gradient: each replica keeps what it saw of its own half, and normalised by it.",
            try_this="Let the layer ask all replicas for their sums before it normalises.",
            variants=[lambda: keras.layers.BatchNormalization(momentum=0.5)],
        ),
        Mistake(
            "averaged afterwards",
            averaged_afterwards,
            went_wrong="The moving statistics agree now, but in training each replica still normalised its "
            "half by that half's own mean and variance: not what one device does with the whole batch.",
            try_this="The sums must meet *before* the layer normalises, not after.",
        ),
        Mistake(
            "frozen",
            lambda: keras.layers.BatchNormalization(trainable=False),
            went_wrong="A frozen layer agrees with everybody because it never learns: its moving mean stays "
            "0, and the examples pass through as they came.",
            try_this="Keep the layer trainable and make it look at all replicas' examples.",
        ),
        Mistake(
            "another layer",
            lambda: keras.layers.LayerNormalization(),
            went_wrong="This layer normalises each example by itself. It has no statistics that could "
            "disagree, but it is not batch normalisation, and trains another model.",
            try_this="It is still a `BatchNormalization` that is wanted, with one more argument.",
            variants=[lambda: keras.layers.GroupNormalization(groups=1)],
        ),
        Mistake(
            "never forgets its first guess",
            lambda: keras.layers.BatchNormalization(synchronized=True, momentum=1.0),
            went_wrong="Training is right, but with momentum 1 the moving mean never moves: in evaluation "
            "the layer would still subtract 0.",
            try_this="Leave the momentum as it is (0.99), or choose one below 1.",
        ),
    ],
    also_right=[
        synchronised_by_hand,
        lambda: keras.layers.BatchNormalization(momentum=0.9, synchronized=True),
    ],
)


# --- 09.mask_seed: a mask of its own for each replica -------------------------------------------------

STEPS, REPLICAS = 13, 12  # beyond 11, where written digits and small factors begin to collide
DISTINCT = f"different masks among {STEPS * REPLICAS} ({STEPS} steps x {REPLICAS} replicas)"
OWN = "replicas of one step have different masks"
NEW = "the steps of one replica have different masks"
AGAIN = "the same call gives the same mask again"
OTHER = "another seed gives other masks"


def seeds(random):
    return [
        {"about": f"seed {seed}", "seed": int(seed)}
        for seed in random.choice(np.arange(3, 90), 2, replace=False)
    ]


def observe_mask_seed(answer, case):
    masks, again = (masks_of(answer, case["seed"]) for _ in range(2))
    other = masks_of(answer, case["seed"] + 1)
    return {
        OWN: all(len(set(masks[step::STEPS])) == REPLICAS for step in range(STEPS)),
        NEW: all(len(set(masks[i * STEPS : (i + 1) * STEPS])) == STEPS for i in range(REPLICAS)),
        AGAIN: masks == again,
        OTHER: not any(map(operator.eq, masks, other)),
        DISTINCT: len(set(masks)) if masks == again else "another number each time",
    }


def masks_of(answer, seed):
    """The masks of all steps of replica 0, then of replica 1, …"""
    return [mask_of(answer(seed, step, replica)) for replica in range(REPLICAS) for step in range(STEPS)]


def mask_of(pair):
    """Which of 64 units are kept, as bytes."""
    pair = returned.array(pair, "mask_seed", shape=(2,), wanted="two whole numbers")
    if pair.dtype.kind not in "iu":
        raise returned.Unusable(f"mask_seed should give two whole numbers, but gave {pair.tolist()}.")
    return mask_from(*(int(number) % 2**63 for number in pair))


@functools.lru_cache(maxsize=65536)
def mask_from(first, second):
    seed = tf.constant([first, second], tf.int64)
    return (tf.random.stateless_uniform([64], seed=seed).numpy() < 0.5).tobytes()


def expected_mask_seed(case):
    return {OWN: True, NEW: True, AGAIN: True, OTHER: True, DISTINCT: STEPS * REPLICAS}


def collides(seen, expected):
    """Different masks wherever two differ in the step alone or in the replica alone, yet some come twice."""
    return seen[DISTINCT] != expected[DISTINCT] and {**seen, DISTINCT: expected[DISTINCT]} == expected


def other_on_each_worker(seed, step, replica):
    return [python_random.randrange(2**31), step]


MASK_SEED = Exercise(
    id="09.mask_seed",
    title="A mask of its own for each replica",
    points=2,
    length="about 1 line",
    signature="mask_seed(seed, step, replica)",
    hints=[
        "Two masks are different when the two numbers of their seeds are. Which pairs of (step, replica) "
        "must therefore not meet?",
        "With at most a million replicas, `step * 1_000_000 + replica` is another number for every pair.",
    ],
    cases=seeds,
    observe=observe_mask_seed,
    expected=expected_mask_seed,
    mistakes=[
        Mistake(
            "one mask for all replicas",
            lambda seed, step, replica: [seed, step],
            went_wrong="Every replica switches off the same units in a step. This is what Keras' layer does "
            "by itself: its counter is mirrored.",
            try_this="Let the replica's number into the seed as well.",
        ),
        Mistake(
            "the same mask in every step",
            lambda seed, step, replica: [seed, replica],
            went_wrong="Each replica has a mask of its own, but keeps it for ever: the units that it dropped "
            "in step 0 never see its examples.",
            try_this="Let the step into the seed as well.",
        ),
        Mistake(
            "added up",
            lambda seed, step, replica: [seed, step + replica],
            went_wrong=f"Step 1 on replica 0 and step 0 on replica 1 add up to the same: of "
            f"{STEPS * REPLICAS} masks only {STEPS + REPLICAS - 1} are different, and each wanders from "
            "replica to replica.",
            try_this="Leave room between the steps: more than there can be replicas.",
            variants=[lambda seed, step, replica: [seed + step + replica, 0]],
        ),
        Mistake(
            "multiplied",
            lambda seed, step, replica: [seed, step * replica],
            went_wrong="0 times anything is 0: in step 0 all replicas have one mask, and replica 0 has it in "
            "every step.",
            try_this="Do not multiply the two; leave room between the steps and add the replica.",
        ),
        Mistake(
            "another seed on each worker",
            other_on_each_worker,
            went_wrong="The masks are different, but nobody can have them again: after a restart, or on the "
            "other workers, the same step draws others. A training like this cannot be compared.",
            try_this="Use nothing but the three arguments.",
            recognises=lambda cases, seen, expected: all(not one[AGAIN] for one in seen),
        ),
        Mistake(
            "different pairs, one mask",
            lambda seed, step, replica: [seed, step * 4 + replica],
            went_wrong=lambda case, seen, expected: (
                "Each step of one replica has a mask of its own, and each replica of one step. But of "
                f"{STEPS * REPLICAS} masks only {seen[DISTINCT]} are different: a step of one replica gets "
                "the numbers that another step of another replica had."
            ),
            try_this="Leave more room between the steps than there can be replicas. (Digits written side by "
            "side leave none: 1 and 11, 11 and 1.)",
            variants=[
                lambda seed, step, replica: [seed, int(f"{step}{replica}")],
                lambda seed, step, replica: [seed, step * 10 + replica],
                lambda seed, step, replica: [seed, replica * 10 + step],
                lambda seed, step, replica: [seed, step ^ replica],
            ],
            recognises=lambda cases, seen, expected: all(map(collides, seen, expected)),
        ),
        Mistake(
            "the seed is not used",
            lambda seed, step, replica: [step, replica],
            went_wrong="With another `seed` the masks are the same. Then a training cannot be repeated with "
            "other masks, and two layers that get two seeds drop the same units.",
            try_this="Use all three arguments.",
            variants=[
                lambda seed, step, replica: [0, step * 4 + replica],
                lambda seed, step, replica: [42, step * 1_000_000 + replica],
                lambda seed, step, replica: [0, 0],
            ],
            recognises=lambda cases, seen, expected: all(one[AGAIN] and not one[OTHER] for one in seen),
        ),
        Mistake(
            "one mask for everything",
            lambda seed, step, replica: [seed, 0],
            went_wrong="All replicas drop the same units in all steps: those units are simply gone.",
            try_this="Both the step and the replica belong into the seed.",
        ),
    ],
    also_right=[
        lambda seed, step, replica: [seed + 1000 * replica, step],
        lambda seed, step, replica: tf.random.experimental.stateless_fold_in([seed, step], replica),
        lambda seed, step, replica: (seed, step * 4096 + replica),
        lambda seed, step, replica: [step, replica * 2**40 + seed],
    ],
)


# --- 09.run_epoch: print on one worker only -----------------------------------------------------------

TAKEN = "steps, by worker"
GIVEN = "what the steps got, by worker"
MEETINGS = "steps and readings, in their order"
LINES = "lines printed, by worker"
SHOWN = "the accuracy in the line"
EACH_ONCE, ALIKE, AT_THE_END, NO_VALUE = (
    "each batch once",
    "the same on all workers",
    "after all steps",
    "none",
)
WORKERS = 3


def epochs(random):
    """Accuracies rise from step to step; the last differs from all others even when rounded to 0.1."""
    counts = random.choice(np.arange(3, 9), 2, replace=False)
    return [
        {
            "about": f"{n} batches on {WORKERS} workers",
            "batches": random.choice(np.arange(100, 1000), n, replace=False).tolist(),
            "accuracies": [
                0,
                *sorted(random.choice(np.arange(11, 55), n - 1, replace=False) / 100),
                last / 100,
            ],
        }
        for n, last in zip(counts, (random.integers(61, 75), random.integers(81, 95)), strict=True)
    ]


class Worker:
    """One worker: what it does that all must do together, in its order, and what it prints."""

    def __init__(self, case):
        self.case, self.events, self.printed = case, [], io.StringIO()

    @property
    def given(self):
        return [event for event in self.events if event is not READING]

    def step(self, batch):
        self.events.append(int(batch) if np.ndim(batch) == 0 and batch in self.case["batches"] else -1)

    def result(self):
        """The metric, after the steps so far: reading it is a meeting of all workers."""
        self.events.append(READING)
        accuracies = self.case["accuracies"]
        return tf.constant(accuracies[min(len(self.given), len(accuracies) - 1)], tf.float32)

    def print(self, *values, sep=" ", end="\n", **_):
        """In the place of `tf.print`, which writes past Python's own streams."""
        values = [value.numpy() if hasattr(value, "numpy") else value for value in values]
        print(*values, sep=sep, end=end, file=self.printed)


READING = "reading"


def observe_run_epoch(answer, case):
    """The answer on each worker in turn, with what a real cluster would notice."""
    workers = [one_worker(answer, case, is_chief=index == 0) for index in range(WORKERS)]
    texts = [worker.printed.getvalue().strip() for worker in workers]
    orders = [in_words(worker.events) for worker in workers]
    alike = all(worker.events.count(READING) for worker in workers) and len(set(orders)) == 1
    return {
        TAKEN: [len(worker.given) for worker in workers],
        GIVEN: [what_was_given(worker.given, case["batches"]) for worker in workers],
        MEETINGS: ALIKE if alike else orders,
        LINES: [len(text.split("\n")) if text else 0 for text in texts],
        SHOWN: when_read("\n".join(texts), case["accuracies"]),
    }


def one_worker(answer, case, is_chief):
    worker = Worker(case)
    with contextlib.redirect_stdout(worker.printed), mock.patch("tensorflow.print", worker.print):
        answer(list(case["batches"]), worker.step, worker, is_chief)
    return worker


def in_words(events):
    """Such as "5 steps, reading"."""
    runs = [(kind, len(list(run))) for kind, run in itertools.groupby(e is READING for e in events)]
    words = [
        (READING if n == 1 else f"{n} readings") if reads else f"{n} step{'s' * (n > 1)}" for reads, n in runs
    ]
    return ", ".join(words) or "nothing"


def what_was_given(given, batches):
    if sorted(given) == sorted(batches):
        return EACH_ONCE
    if -1 in given:
        return "something that is no batch"
    if len(given) > 1 and len(set(given)) == 1:
        return f"{len(given)} times batch {batches.index(given[0])}"
    return "some batches more than once" if len(set(given)) < len(given) else "not all batches"


def when_read(text, accuracies):
    """After how many steps the metric had the value that is printed, as a fraction or in per cent."""
    numbers = [(float(found[0]), len(found[1] or "")) for found in NUMBER.finditer(text)]
    for steps in reversed(range(len(accuracies))):
        if any(is_rounded(accuracies[steps], *number) for number in numbers):
            return AT_THE_END if steps == len(accuracies) - 1 else f"after {steps} steps"
    return NO_VALUE


NUMBER = re.compile(r"(?<![\w.])\d+(?:\.(\d+))?")


def is_rounded(value, number, decimals):
    close = 0.5 * 10**-decimals + 1e-5
    return (decimals > 0 and abs(number - value) < close) or abs(number - 100 * value) < close


def expected_run_epoch(case):
    return {
        TAKEN: [len(case["batches"])] * WORKERS,
        GIVEN: [EACH_ONCE] * WORKERS,
        MEETINGS: ALIKE,
        LINES: [1, 0, 0],
        SHOWN: AT_THE_END,
    }


def reads_on_the_chief(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
    if is_chief:
        print("accuracy", accuracy.result())


def others_leave_first(batches, step, accuracy, is_chief):
    if not is_chief:
        return
    reads_on_the_chief(batches, step, accuracy, is_chief)


def reports_every_step(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
        if is_chief:
            print("accuracy", accuracy.result())


def all_print(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
    print("accuracy", accuracy.result())


def one_step_more(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
    if is_chief:
        step(batches[-1])
    value = accuracy.result()
    if is_chief:
        print("accuracy", value)


def returns_it(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
    return accuracy.result()


def others_print(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
    value = accuracy.result()
    if not is_chief:
        print("accuracy", value)


def line_a_step(batches, step, accuracy, is_chief):
    for batch in batches:
        step(batch)
        value = accuracy.result()
        if is_chief:
            print("accuracy", value)


def reads_first(batches, step, accuracy, is_chief):
    value = accuracy.result()
    for batch in batches:
        step(batch)
    if is_chief:
        print("accuracy", value)


def reads_before_the_last_step(batches, step, accuracy, is_chief):
    for batch in batches:
        value = accuracy.result()
        step(batch)
    if is_chief:
        print("accuracy", value)


def others_read_first(batches, step, accuracy, is_chief):
    value = None if is_chief else accuracy.result()
    for batch in batches:
        step(batch)
    if is_chief:
        value = accuracy.result()
        print("accuracy", value)


def others_read_in_between(batches, step, accuracy, is_chief):
    for i, batch in enumerate(batches):
        step(batch)
        if i == 1 and not is_chief:
            accuracy.result()
    if is_chief:
        print("accuracy", accuracy.result())


def steps_with(batch_of, text=None):
    """Right but for what each step is given, and perhaps for what is printed."""

    def run_epoch(batches, step, accuracy, is_chief):
        for i in range(len(batches)):
            step(batch_of(batches, i))
        value = accuracy.result()
        if is_chief:
            print("accuracy", value if text is None else text)

    return run_epoch


def in_percent(batches, step, accuracy, is_chief):
    list(map(step, batches))
    text = f"accuracy {float(accuracy.result()):.0%}"
    is_chief and print(text)


def by_tensorflow(batches, step, accuracy, is_chief):
    for batch in reversed(batches):
        step(batch)
    value = accuracy.result()
    if is_chief:
        tf.print("accuracy:", value)


def rounded_to_a_tenth(batches, step, accuracy, is_chief):
    """Reads after every step: slow, yet all meet, and the last value is printed."""
    for batch in batches:
        step(batch)
        value = accuracy.result().numpy()
    if is_chief:
        print(f"after {len(batches)} batches: {value:.1f}")


def meet_in_another_order(seen):
    """As many steps and readings on every worker, with the right batches, but not in one order."""
    orders = seen[MEETINGS]
    counts = {tuple(how_many(order, what) for what in ("step", READING)) for order in orders}
    return orders != ALIKE and len(counts) == 1 and seen[GIVEN] == [EACH_ONCE] * WORKERS


def how_many(order, what):
    """Of what `in_words` wrote, how many steps or readings."""
    parts = [part for part in order.split(", ") if what in part]
    return sum(int(part.split()[0]) if part[0].isdigit() else 1 for part in parts)


RUN_EPOCH = Exercise(
    id="09.run_epoch",
    title="Print on one worker only",
    points=2,
    length="about 5 lines",
    signature="run_epoch(batches, step, accuracy, is_chief)",
    hints=[
        "Which of these are meetings of all workers: a step, reading the metric, printing?",
        "Everything that is a meeting must happen equally often, in the same order, on every worker.",
        "Read the metric on every worker, keep the value, and let only the chief print it.",
    ],
    cases=epochs,
    observe=observe_run_epoch,
    expected=expected_run_epoch,
    mistakes=[
        Mistake(
            "metric read on the chief alone",
            reads_on_the_chief,
            went_wrong="Only the chief reads the metric. Reading is an all-reduce: on a real cluster the "
            "chief waits there for the others, who never come. A dead-lock.",
            try_this="Take the reading out of the `if`; only the printing belongs inside.",
            variants=[reports_every_step],
        ),
        Mistake(
            "the others leave before the first step",
            others_leave_first,
            went_wrong="Workers 1 and 2 return at once and take no step. The chief's first step is an "
            "all-reduce, and waits for them for ever.",
            try_this="All workers train; only the printing is the chief's alone.",
        ),
        Mistake(
            "the workers meet in another order",
            others_read_first,
            went_wrong=lambda case, seen, expected: (
                f"The chief does: {seen[MEETINGS][0]}; worker 1: {seen[MEETINGS][1]}. As often, but in "
                "another order: one waits in a step while the other waits in a reading. A dead-lock."
            ),
            try_this="Let all run the very same lines; only the printing belongs inside the `if`.",
            variants=[others_read_in_between],
            recognises=lambda cases, seen, expected: all(meet_in_another_order(one) for one in seen),
        ),
        Mistake(
            "read before the last step",
            reads_first,
            went_wrong=lambda case, seen, expected: (
                f"The line has the accuracy {seen[SHOWN]}, and the epoch has {len(case['batches'])}. What "
                "was read once does not change any more."
            ),
            try_this="Call `accuracy.result()` after the loop.",
            variants=[reads_before_the_last_step],
        ),
        Mistake(
            "one batch again and again",
            steps_with(lambda batches, i: batches[0]),
            went_wrong=lambda case, seen, expected: (
                f"The steps of the chief got {seen[GIVEN][0]}: the other batches are never trained on."
            ),
            try_this="`for batch in batches: step(batch)`",
            variants=[steps_with(lambda batches, i: batches[-1])],
        ),
        Mistake(
            "a number instead of a batch",
            steps_with(lambda batches, i: i),
            went_wrong="`step` wants a batch, and got something else: the number of the batch, or all of "
            "them at once.",
            try_this="`for batch in batches: step(batch)`",
            variants=[steps_with(lambda batches, i: i + 1), steps_with(lambda batches, i: batches)],
        ),
        Mistake(
            "no accuracy in the line",
            steps_with(lambda batches, i: batches[i], text=0.99),
            went_wrong="All workers meet as they should, and the chief prints a line. But the number that "
            "`accuracy.result()` gave is not in it.",
            try_this="Keep what you read in a variable and print that.",
            variants=[
                steps_with(lambda batches, i: batches[i], text="done"),
                steps_with(lambda batches, i: batches[i], text=0.7),
            ],
            recognises=lambda cases, seen, expected: (
                all({**one, SHOWN: AT_THE_END} == e for one, e in zip(seen, expected, strict=True))
                and any(one[SHOWN] == NO_VALUE for one in seen)
            ),
        ),
        Mistake(
            "unequal steps",
            one_step_more,
            went_wrong="The chief takes one step more than the others. In that step it waits for gradients "
            "that nobody sends.",
            try_this="The same number of steps on every worker, chief or not.",
        ),
        Mistake(
            "everyone prints",
            all_print,
            went_wrong="Every worker prints the same line. With a hundred workers the log is a hundred times "
            "as long and says no more.",
            try_this="Print only `if is_chief`.",
        ),
        Mistake(
            "nobody prints",
            returns_it,
            went_wrong="Steps and readings are right, but no line appears.",
            try_this="Keep the value that you read, and print it on the chief.",
        ),
        Mistake(
            "all but the chief print",
            others_print,
            went_wrong="The condition is the wrong way round: the chief is silent and all others print.",
            try_this="Print `if is_chief`, not `if not is_chief`.",
        ),
        Mistake(
            "a line for each step",
            line_a_step,
            went_wrong="Every step ends with a reading of the metric, and so with one more all-reduce: that "
            "is what makes loops slow. One line an epoch was asked for.",
            try_this="Read and print after the loop, once.",
        ),
    ],
    also_right=[in_percent, by_tensorflow, rounded_to_a_tenth],
)

EXERCISES = [BATCH_NORM, MASK_SEED, RUN_EPOCH]
