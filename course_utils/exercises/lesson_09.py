"""The exercises of lesson 09: what it takes for two processes to stay one model."""

import contextlib
import io
import random as python_random

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

STEPS, REPLICAS = 4, 4
DISTINCT = f"different masks among {STEPS * REPLICAS} (4 steps x 4 replicas)"
OWN = "replicas of one step have different masks"
NEW = "the steps of one replica have different masks"
AGAIN = "the same call gives the same mask again"


def seeds(random):
    return [
        {"about": f"seed {seed}", "seed": int(seed)}
        for seed in random.choice(np.arange(3, 90), 2, replace=False)
    ]


def observe_mask_seed(answer, case):
    grid = [[mask_of(answer, case["seed"], s, r) for r in range(REPLICAS)] for s in range(STEPS)]
    again = [[mask_of(answer, case["seed"], s, r) for r in range(REPLICAS)] for s in range(STEPS)]
    return {
        OWN: all(len(set(row)) == REPLICAS for row in grid),
        NEW: all(len(set(column)) == STEPS for column in zip(*grid, strict=True)),
        AGAIN: grid == again,
        DISTINCT: len({mask for row in grid for mask in row})
        if grid == again
        else "another number each time",
    }


def mask_of(answer, seed, step, replica):
    """Which of 64 units are kept, as bytes."""
    pair = returned.array(answer(seed, step, replica), "mask_seed", shape=(2,), wanted="two whole numbers")
    if pair.dtype.kind not in "iu":
        raise returned.Unusable(f"mask_seed should give two whole numbers, but gave {pair.tolist()}.")
    pair = pair.astype(np.int64) % (2**31 - 1)
    return (tf.random.stateless_uniform([64], seed=tf.constant(pair)).numpy() < 0.5).tobytes()


def expected_mask_seed(case):
    return {OWN: True, NEW: True, AGAIN: True, DISTINCT: STEPS * REPLICAS}


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
            "one mask for everything",
            lambda seed, step, replica: [seed, 0],
            went_wrong="All replicas drop the same units in all steps: those units are simply gone.",
            try_this="Both the step and the replica belong into the seed.",
        ),
    ],
    also_right=[
        lambda seed, step, replica: [seed + 1000 * replica, step],
        lambda seed, step, replica: tf.random.experimental.stateless_fold_in([seed, step], replica),
        lambda seed, step, replica: (seed, step * REPLICAS + replica),
    ],
)


# --- 09.run_epoch: print on one worker only -----------------------------------------------------------

TAKEN = "steps, by worker"
READ = "readings of the metric, by worker"
LINES = "lines printed, by worker"
SHOWN = "the line has the accuracy"
WORKERS = 3


def epochs(random):
    return [
        {"about": f"{n} batches on {WORKERS} workers", "batches": int(n), "accuracy": accuracy}
        for n, accuracy in zip(random.choice(np.arange(2, 9), 2, replace=False), (0.75, 0.25), strict=True)
    ]


class Metric:
    """A distributed metric as one worker sees it: reading is a meeting of all workers, so it is counted."""

    def __init__(self, value):
        self.value, self.readings = value, 0

    def result(self):
        self.readings += 1
        return np.float32(self.value)


def observe_run_epoch(answer, case):
    """The answer on each worker in turn, with what a real cluster would count: steps, readings, lines."""
    workers = [one_worker(answer, case, is_chief=index == 0) for index in range(WORKERS)]
    steps, readings, texts = zip(*workers, strict=True)
    percent = str(round(100 * case["accuracy"]))
    return {
        TAKEN: list(steps),
        READ: "equally many" if len(set(readings)) == 1 and readings[0] else list(readings),
        LINES: [len(text.split("\n")) if text else 0 for text in texts],
        SHOWN: any(percent in text for text in texts),
    }


def one_worker(answer, case, is_chief):
    """(steps, readings, what was printed) of one worker."""
    taken, metric, printed = [], Metric(case["accuracy"]), io.StringIO()
    with contextlib.redirect_stdout(printed):
        answer(list(range(case["batches"])), taken.append, metric, is_chief)
    return len(taken), metric.readings, printed.getvalue().strip()


def expected_run_epoch(case):
    return {TAKEN: [case["batches"]] * WORKERS, READ: "equally many", LINES: [1, 0, 0], SHOWN: True}


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


def in_percent(batches, step, accuracy, is_chief):
    list(map(step, batches))
    text = f"accuracy {float(accuracy.result()):.0%}"
    is_chief and print(text)


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
    also_right=[in_percent],
)

EXERCISES = [BATCH_NORM, MASK_SEED, RUN_EPOCH]
