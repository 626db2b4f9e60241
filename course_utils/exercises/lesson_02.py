"""The exercises of lesson 02: keep the global batch, predict the split, pick the dataset function."""

import functools
import itertools
import math

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy
from course_utils.exercises.returned import Unusable

tf = lazy("tensorflow")
devices = lazy("course_utils.devices")
epoch_end_stall = lazy("course_utils.upstream.epoch_end_stall")

FIRST, SECOND, STEP = "step 0", "step 1", "examples in a step"
WHOLE = "different examples in all steps"


# What the replicas receive


def received(strategy, distributed) -> list:
    """For each step, a list of ids for each replica."""
    steps = []
    for batch in itertools.islice(iter(distributed), 64):
        shares = strategy.experimental_local_results(batch)
        if len(shares) != strategy.num_replicas_in_sync:  # a plain dataset: run() hands it to everyone
            shares = [shares[0]] * strategy.num_replicas_in_sync
        steps.append([_ids(share) for share in shares])
    return steps


def _ids(share):
    ids = np.asarray(share)
    if ids.ndim > 1:
        raise Unusable(
            f"A replica gets a tensor of shape {returned.shape_text(ids.shape)}: batches of batches. "
            "The dataset was batched twice."
        )
    return ids.ravel().tolist()


def facts(steps) -> dict:
    """The lines of the card: who gets what in the first two steps, how many, and whether all of it comes."""
    steps = steps or [[]]
    seen = {example for step in steps for share in step for example in share}
    return {
        FIRST: _drawn(steps[0]),
        SECOND: _drawn(steps[1]) if len(steps) > 1 else "no such step",
        STEP: sum(map(len, steps[0])),
        WHOLE: len(seen),
    }


def _drawn(step):
    """Such as "0–3 | 4–7 | none"."""
    return " | ".join(_run(ids) for ids in step)


def _run(ids):
    if not ids:
        return "none"
    if len(ids) > 1 and ids == list(range(ids[0], ids[-1] + 1)):
        return f"{ids[0]}–{ids[-1]}"
    return " ".join(map(str, ids))


def _whole_batches(case):
    """The facts of the right distribution: each replica takes its share of one step after the other."""
    n, share = case["replicas"], case["global batch"] // case["replicas"]
    ids = np.arange(case["examples"]).reshape(-1, n, share)
    return facts(ids.tolist())


# 02.1 Keep the global batch


def batch_cases(random):
    """Two that divide, on different numbers of replicas; one that does not."""
    a, b = (int(share) for share in random.permutation([3, 4, 5, 6])[:2])
    return [
        _batch_case(4, 4 * a),
        _batch_case(3, 3 * b),
        _batch_case(4, 4 * a + int(random.integers(1, 4))),
    ]


def _batch_case(replicas, global_batch):
    # Enough for one whole step if every replica takes a whole global batch.
    return {
        "about": f"a global batch of {global_batch} on {replicas} replicas",
        "replicas": replicas,
        "global batch": global_batch,
        "examples": global_batch * replicas,
    }


def observe_batch(answer, case):
    epoch_end_stall.enable()
    strategy = devices.mirrored(case["replicas"])
    refused = []

    def dataset_function(context):
        try:
            dataset = answer(context, tf.data.Dataset.range(case["examples"]), case["global batch"])
        except ValueError:
            refused.append(True)
            return tf.data.Dataset.range(0).batch(1)
        return _dataset(dataset, "keep_the_global_batch")

    distributed = strategy.distribute_datasets_from_function(dataset_function)
    if refused:
        return {STEP: "refused with a ValueError"}
    return facts(received(strategy, distributed))


def _dataset(value, who):
    if not isinstance(value, tf.data.Dataset):
        raise Unusable(f"{who} should return a dataset, but gave {returned.describe(value)}.")
    if tuple(value.element_spec.shape) == ():
        raise Unusable(f"{who} returned a dataset that is not batched: call `.batch(…)` on it.")
    return value


def expected_batch(case):
    if case["global batch"] % case["replicas"]:
        return {STEP: "refused with a ValueError"}
    return _whole_batches(case)


def _batching(size):
    """An answer that batches with what `size(global_batch, replicas)` says."""
    return lambda context, dataset, global_batch: dataset.batch(
        max(size(global_batch, context.num_replicas_in_sync), 1)
    )


def _sharded_by_replica(context, dataset, global_batch):
    per_replica = context.get_per_replica_batch_size(global_batch)
    return dataset.shard(context.num_replicas_in_sync, context.input_pipeline_id).batch(per_replica)


def _sharded_and_global(context, dataset, global_batch):
    if global_batch % context.num_replicas_in_sync:
        raise ValueError
    return dataset.shard(context.num_replicas_in_sync, 0).batch(global_batch)


def _checked_by_hand(context, dataset, global_batch):
    share, rest = divmod(global_batch, context.num_replicas_in_sync)
    if rest:
        raise ValueError(f"{global_batch} examples cannot be cut into {context.num_replicas_in_sync} parts")
    return dataset.batch(share)


def _cut_from_whole_batches(context, dataset, global_batch):
    per_replica = context.get_per_replica_batch_size(global_batch)
    return dataset.batch(global_batch).unbatch().batch(per_replica)


def _all_but_refusing(size):
    def answer(context, dataset, global_batch):
        context.get_per_replica_batch_size(global_batch)
        return _batching(size)(context, dataset, global_batch)

    return answer


def _only_the_order_differs(cases, seen, expected):
    """As many examples in a step, as many in all, and refused where it should be."""
    keys = (STEP, WHOLE)
    return all(s.get(key) == e.get(key) for s, e in zip(seen, expected, strict=True) for key in keys)


def _how_many_times(case, seen):
    return f"{seen[STEP]} instead of {case['global batch']} examples"


KEEP_THE_GLOBAL_BATCH = Exercise(
    id="02.keep_the_global_batch",
    title="Keep the global batch",
    points=2,
    length="about 1 line",
    signature="keep_the_global_batch(context, dataset, global_batch)",
    slow=True,
    hints=[
        "Each replica takes a whole batch of your dataset in each step. How large must that be, so that "
        "all of them together take the global batch?",
        "`context.num_replicas_in_sync` is the number of replicas. And there is a method of the context that "
        "divides by it *and* refuses what does not divide.",
        "The lesson's `dataset_function` uses that method with a global batch of 16.",
    ],
    cases=batch_cases,
    observe=observe_batch,
    expected=expected_batch,
    mistakes=[
        Mistake(
            "batch is per replica",
            _batching(lambda batch, n: batch),
            went_wrong=lambda case, seen, expected: (
                f"One step takes {_how_many_times(case, seen)}: every replica takes a whole batch of your "
                "dataset, and nobody cuts it. The size that you batch with here is that of *one* replica."
            ),
            try_this="Divide the global batch by the number of replicas first.",
            variants=[_all_but_refusing(lambda batch, n: batch)],
        ),
        Mistake(
            "divided twice",
            _batching(lambda batch, n: batch // n // n),
            went_wrong=lambda case, seen, expected: (
                f"One step takes {_how_many_times(case, seen)}. The global batch was divided by the replicas "
                "more than once."
            ),
            try_this="Nothing is cut after your function. Divide once.",
            variants=[_all_but_refusing(lambda batch, n: math.ceil(batch / n / n))],
        ),
        Mistake(
            "always divides",
            _batching(lambda batch, n: batch // n),
            went_wrong=lambda case, seen, expected: (
                f"Where the batch divides, all is right. But {case['global batch']} on {case['replicas']} "
                f"replicas does not, and a step silently takes {seen[STEP]}: another batch size than was "
                "asked for."
            ),
            try_this="Refuse it: `raise ValueError(…)`, or use the method of the context that does.",
            variants=[_batching(lambda batch, n: math.ceil(batch / n))],
        ),
        Mistake(
            "examples divided too",
            _sharded_by_replica,
            went_wrong=lambda case, seen, expected: (
                f"Only {seen[WHOLE]} of {case['examples']} examples are ever seen. One pipeline feeds all "
                "replicas; you kept the part of one of them and threw the rest away."
            ),
            try_this="Shard by pipelines (workers), never by replicas. Here is one pipeline: do not shard.",
            variants=[_sharded_and_global],
        ),
        Mistake(
            "another order",
            lambda context, dataset, global_batch: dataset.shuffle(10).batch(
                context.get_per_replica_batch_size(global_batch)
            ),
            went_wrong="The batch size is right, and no example is lost. But the examples do not come in the "
            "order of the dataset, and only the batch was asked for.",
            try_this="Leave the order as it is: nothing but `.batch(…)`.",
            variants=[
                lambda context, dataset, global_batch: dataset.shuffle(99, seed=1).batch(
                    context.get_per_replica_batch_size(global_batch)
                )
            ],
            recognises=_only_the_order_differs,
        ),
        Mistake(
            "batch size hard-coded",
            lambda context, dataset, global_batch: dataset.batch(4),
            went_wrong=lambda case, seen, expected: (
                f"{case['about'].capitalize()}: a step takes {seen[STEP]}. Your batch size does not follow "
                "from what the function is given."
            ),
            try_this="Use `global_batch` and the context, no number of your own.",
            variants=[
                lambda context, dataset, global_batch: dataset.batch(16),
                _batching(lambda batch, n: batch // 4),
            ],
        ),
    ],
    also_right=[_checked_by_hand, _cut_from_whole_batches],
)


# 02.2 Predict the split

SPLIT = "examples of each replica"


def split_cases(random):
    """Batches that divide, that leave a rest, that leave replicas empty, and smaller ones than replicas."""
    return [
        {"about": f"a batch of {size} on {n} replicas", "size": size, "replicas": n}
        for size, n in (
            (4 * int(random.integers(2, 6)), 4),
            (4 * int(random.integers(3, 6)) + 2, 4),
            (3 * int(random.integers(2, 6)) + 1, 3),
            (int(random.choice([5, 6, 9])), 4),
            (int(random.integers(1, 3)), 4),
        )
    ]


def observe_split(answer, case):
    given = returned.items(answer(case["size"], case["replicas"]), "shares")
    if not all(isinstance(_whole(item), int) for item in given):
        raise Unusable("shares should be whole numbers: an example is not cut in two.")
    return {SPLIT: [_whole(item) for item in given]}


def _whole(item):
    """7 for 7.0 or NumPy's 7; anything else as it is."""
    try:
        return int(item) if int(item) == item else item
    except (TypeError, ValueError):
        return item


def expected_split(case):
    return {SPLIT: _cut_by_tensorflow(case["size"], case["replicas"])}


@functools.cache
def _cut_by_tensorflow(size, replicas):
    epoch_end_stall.enable()
    strategy = devices.mirrored(replicas)
    batches = tf.data.Dataset.range(size).batch(size)
    step = received(strategy, strategy.experimental_distribute_dataset(batches))[0]
    return [len(ids) for ids in step]


def _ceil_shares(size, n):
    """By handing out one share after the other."""
    share, given = -(-size // n), []
    while len(given) < n:
        given.append(min(share, size - sum(given)))
    return given


def _by_cutting_a_list(size, n):
    share = math.ceil(size / n)
    return [len(range(size)[replica * share : (replica + 1) * share]) for replica in range(n)]


def _with_the_rest_last(size, n):
    return [size // n] * (n - 1) + [size - size // n * (n - 1)]


SHARES = Exercise(
    id="02.shares",
    title="Predict the split",
    points=2,
    length="about 3 lines",
    signature="shares(batch_size, replicas)",
    hints=[
        "Look at the picture of 18 and 6. What does everybody take, as long as there is something left?",
        "The share is `math.ceil(batch_size / replicas)`. Replica r begins at `r * share`; how much is "
        "left there?",
        "`batch_size - r * share` is left for replica r: at most a share of it is taken, and never less "
        "than 0.",
    ],
    cases=split_cases,
    observe=observe_split,
    expected=expected_split,
    mistakes=[
        Mistake(
            "batch is per replica",
            lambda size, n: [size] * n,
            went_wrong=lambda case, seen, expected: (
                f"You give every replica the whole batch of {case['size']}, "
                f"{case['size'] * case['replicas']} examples in all. `experimental_distribute_dataset` "
                "takes the batch for the global one, and cuts it."
            ),
            try_this="The shares must add up to the batch.",
        ),
        Mistake(
            "always divides",
            lambda size, n: [size // n] * n,
            went_wrong=lambda case, seen, expected: (
                f"You round down: {case['size']} examples become {sum(seen[SPLIT])}. No example of a batch "
                "is dropped."
            ),
            try_this="Which way is the division rounded, so that nothing is left over?",
        ),
        Mistake(
            "every share full",
            lambda size, n: [math.ceil(size / n)] * n,
            went_wrong=lambda case, seen, expected: (
                f"You round up, which is right, but hand out {sum(seen[SPLIT])} examples, of {case['size']} "
                "that there are. The last replicas get what is left."
            ),
            try_this="How many examples are left when replica r takes its share?",
        ),
        Mistake(
            "empty replica forgotten",
            lambda size, n: [share for share in _ceil_shares(size, n) if share],
            went_wrong=lambda case, seen, expected: (
                f"The shares are right, but there are {len(seen[SPLIT])} of them for {case['replicas']} "
                "replicas. A replica for which nothing is left still takes part in the step, with 0 "
                "examples."
            ),
            try_this="Return one number for each replica, 0 included.",
        ),
        Mistake(
            "nobody goes empty",
            lambda size, n: [max(share, 1) for share in _ceil_shares(size, n)],
            went_wrong="You give every replica at least one example, more than there are.",
            try_this="What is left for a replica can be 0.",
        ),
        Mistake(
            "fair shares",
            lambda size, n: [len(part) for part in np.array_split(range(size), n)],
            went_wrong=lambda case, seen, expected: (
                f"{seen[SPLIT]} would be the fairest way to cut {case['size']}. TensorFlow does not level "
                "out: it hands out full shares, rounded up, until nothing is left."
            ),
            try_this="Compare with the picture of 18: 5, 5, 5, 3.",
        ),
        Mistake(
            "rest to the last",
            _with_the_rest_last,
            went_wrong="You round down and give all that is left over to the last replica. It is the other "
            "way round: the first replicas take more, the last ones less.",
            try_this="Round the share up.",
        ),
        Mistake(
            "less than nothing",
            lambda size, n: [min(math.ceil(size / n), size - math.ceil(size / n) * r) for r in range(n)],
            went_wrong="Where nothing is left, you give a negative number of examples.",
            try_this="`max(…, 0)`.",
        ),
    ],
    also_right=[_ceil_shares, _by_cutting_a_list],
)


# 02.3 Pick the right function

ALL, ONE = "all replicas", "one replica"


def pick_cases(random):
    """Both kinds on 4 replicas, and both on 2."""
    share = int(random.integers(3, 6))
    return [
        {
            "about": f"batches of {share * n if meant == ALL else share}, meant for {meant}; {n} replicas",
            "replicas": n,
            "batched for": meant,
            "global batch": share * n,
            "examples": n * share * n,
        }
        for n in (4, 2)
        for meant in (ALL, ONE)
    ]


def observe_pick(answer, case):
    epoch_end_stall.enable()
    strategy = devices.mirrored(case["replicas"])
    size = case["global batch"] // (1 if case["batched for"] == ALL else case["replicas"])
    dataset = tf.data.Dataset.range(case["examples"]).batch(size)
    distributed = answer(strategy, dataset, case["batched for"])
    if not hasattr(distributed, "__iter__"):
        raise Unusable(
            "pick_the_function should return a distributed dataset, but gave "
            f"{returned.describe(distributed)}."
        )
    return facts(received(strategy, distributed))


def _cut(strategy, dataset, batched_for):
    return strategy.experimental_distribute_dataset(dataset)


def _as_it_is(strategy, dataset, batched_for):
    return strategy.distribute_datasets_from_function(lambda context: dataset)


def _swapped(strategy, dataset, batched_for):
    return (_as_it_is if batched_for == ALL else _cut)(strategy, dataset, batched_for)


def _not_distributed(strategy, dataset, batched_for):
    return dataset


def _one_not_distributed(strategy, dataset, batched_for):
    return _cut(strategy, dataset, batched_for) if batched_for == ALL else dataset


def _always_cut_globally(strategy, dataset, batched_for):
    if batched_for == ONE:
        size = next(iter(dataset)).shape[0] * strategy.num_replicas_in_sync
        dataset = dataset.unbatch().batch(size)
    return strategy.experimental_distribute_dataset(dataset)


def _always_from_function(strategy, dataset, batched_for):
    def dataset_function(context):
        if batched_for == ONE:
            return dataset
        size = next(iter(dataset)).shape[0]
        return dataset.unbatch().batch(context.get_per_replica_batch_size(size))

    return strategy.distribute_datasets_from_function(dataset_function)


PICK_THE_FUNCTION = Exercise(
    id="02.pick_the_function",
    title="Pick the right function",
    points=2,
    length="about 3 lines",
    signature="pick_the_function(strategy, dataset, batched_for)",
    slow=True,
    hints=[
        "Which of the two functions cuts each batch, and which hands it over as it is?",
        "A global batch must be cut. A batch that was made for one replica must not be: return the dataset "
        "from a function, `lambda context: dataset`.",
    ],
    cases=pick_cases,
    observe=observe_pick,
    expected=_whole_batches,
    mistakes=[
        Mistake(
            "divided twice",
            _cut,
            went_wrong=lambda case, seen, expected: (
                f"In a step the replicas get {seen[FIRST]}: {seen[STEP]} examples in all, where "
                f"{case['global batch']} were meant. These batches had been made for one replica, and "
                "`experimental_distribute_dataset` has cut them once more."
            ),
            try_this="For batches of one replica, take the function that cuts nothing.",
        ),
        Mistake(
            "batch is per replica",
            _as_it_is,
            went_wrong=lambda case, seen, expected: (
                f"One step takes {seen[STEP]} examples, where {case['global batch']} were meant: every "
                "replica takes a whole global batch, because nobody cuts what comes from a dataset "
                "function."
            ),
            try_this="For batches of all replicas, take the function that cuts.",
        ),
        Mistake(
            "the two swapped",
            _swapped,
            went_wrong="You have the two the wrong way round: global batches are handed over whole, and "
            "batches for one replica are cut.",
            try_this='Look at the table: "you batch for".',
        ),
        Mistake(
            "everyone gets the same",
            _not_distributed,
            went_wrong="This is the plain dataset. `strategy.run` then hands the same batch to every "
            "replica: each example is computed on all of them, and none is gained.",
            try_this="One of the strategy's two functions must be called in either case.",
            variants=[_one_not_distributed],
        ),
    ],
    also_right=[_always_cut_globally, _always_from_function],
)

EXERCISES = [KEEP_THE_GLOBAL_BATCH, SHARES, PICK_THE_FUNCTION]
