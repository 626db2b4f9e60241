"""The exercises of lesson 08: shard by hand, the policy for one file, steps that agree."""

import itertools
import math
import tempfile
from collections import Counter

import numpy as np

from course_utils.exercises import returned
from course_utils.exercises.model import Exercise, Mistake, lazy
from course_utils.exercises.returned import Unusable

tf = lazy("tensorflow")
cluster = lazy("course_utils.cluster")
shards = lazy("course_utils.shards")

NOBODY, TWICE = "records that nobody gets", "records that come more than once"


def nobody_and_twice(shares, records) -> dict:
    """How many of the records 0, 1, … come to no worker, and how many more than once."""
    came = Counter(itertools.chain(*shares))
    return {
        NOBODY: sum(number not in came for number in range(records)),
        TWICE: sum(count > 1 for count in came.values()),
    }


def batched(value, who):
    """The answer's dataset, when its elements are batches of numbers."""
    if not isinstance(value, tf.data.Dataset):
        raise Unusable(f"{who} should return a dataset, but gave {returned.describe(value)}.")
    rank = getattr(getattr(value.element_spec, "shape", None), "rank", None)
    if rank != 1:
        kinds = {None: "something else", 0: "single records: call `.batch(…)`"}
        kind = kinds.get(rank, "batches of batches: it was batched twice")
        raise Unusable(
            f"{who} should return a dataset of batches of record numbers. Its elements are {kind}."
        )
    return value


# --- 08.my_share: shard by hand ------------------------------------------------------------------------

SHARES, BATCH = "records of each worker", "records in a whole batch"
ORDER, AGAIN = "the order of the records", "after a restart each worker has the same part again"
ENDS = "an epoch ends"
SHUFFLED, IN_ORDER = "shuffled anew in each epoch", "as they come"
WHOLE_BATCHES, SAME_ORDER = "only whole batches change places", "shuffled, the same in each epoch"
HARDLY = "no record comes more than a few places early"
SMALL_BUFFER = 4  # a shuffle of a dozen records brings some further to the front, as good as surely


def share_cases(random):
    """Workers with one replica and with two, and sizes at which dealing out whole batches is uneven."""
    return [share_case(random, *sizes) for sizes in ((2, 1, 8), (3, 1, 12), (2, 2, 8))]


def share_case(random, workers, replicas, global_batch):
    batch = global_batch // workers // replicas
    uneven = [n for n in range(36, 60) if np.ptp(dealt_out(n, batch, workers)) > 1]
    records = int(random.choice(uneven))
    return {
        "about": f"{records} records, {workers} workers with {replicas} replica{'s' * (replicas > 1)} each, "
        f"a global batch of {global_batch}",
        "records": records,
        "workers": workers,
        "replicas": workers * replicas,
        "global batch": global_batch,
    }


def dealt_out(records, batch, workers):
    """How many records each worker has when whole batches are dealt out in turn."""
    sizes = [min(batch, records - start) for start in range(0, records, batch)]
    return [sum(sizes[worker::workers]) for worker in range(workers)]


def observe_share(answer, case):
    """Two epochs of every worker's dataset, and one of a second start."""
    epochs, again = two_epochs(answer, case), two_epochs(answer, case)
    if any(epoch is None for worker in epochs for epoch in worker):
        return {ENDS: False}
    shares = [[list(itertools.chain(*epoch)) for epoch in worker] for worker in epochs]
    counts = [nobody_and_twice([worker[e] for worker in shares], case["records"]) for e in (0, 1)]
    return {
        ENDS: True,
        NOBODY: max(count[NOBODY] for count in counts),
        TWICE: max(count[TWICE] for count in counts),
        SHARES: [len(first) for first, _ in shares],
        BATCH: max((len(batch) for worker in epochs for batch in worker[0]), default=0),
        ORDER: order_of(*epochs[0]),
        AGAIN: [set(itertools.chain(*w[0])) for w in epochs] == [set(itertools.chain(*w[0])) for w in again],
    }


def two_epochs(answer, case):
    """For each worker two epochs, each a list of batches; None for one without end."""
    return [[epoch(dataset, case) for _ in range(2)] for dataset in datasets(answer, case)]


def datasets(answer, case):
    for worker in range(case["workers"]):
        context = tf.distribute.InputContext(
            num_input_pipelines=case["workers"],
            input_pipeline_id=worker,
            num_replicas_in_sync=case["replicas"],
        )
        records = tf.data.Dataset.range(case["records"])
        yield batched(answer(records, context, case["global batch"]), "my_share")


def epoch(dataset, case):
    most = 2 * case["records"]
    batches = [batch.tolist() for batch in itertools.islice(dataset.as_numpy_iterator(), most)]
    return None if len(batches) == most else batches


def order_of(first, second):
    """In which order two epochs of one worker's batches come."""
    flat = list(itertools.chain(*first))
    if flat == sorted(flat):
        return IN_ORDER
    if {tuple(batch) for batch in first} == neighbours(flat, max(map(len, first))):
        return WHOLE_BATCHES
    if first == second:
        return SAME_ORDER
    return HARDLY if max(map(earliest, (first, second))) < SMALL_BUFFER else SHUFFLED


def neighbours(numbers, size):
    """The batches of these numbers in their own order."""
    line = sorted(numbers)
    return {tuple(line[start : start + size]) for start in range(0, len(line), size)}


def earliest(batches):
    """By how many places a record comes before its turn at most: a buffer of b lets it come b - 1 early."""
    flat = list(itertools.chain(*batches))
    turn = {number: place for place, number in enumerate(sorted(flat))}
    return max(turn[number] - place for place, number in enumerate(flat))


def expected_share(case):
    whole, rest = divmod(case["records"], case["workers"])
    return {
        ENDS: True,
        NOBODY: 0,
        TWICE: 0,
        SHARES: [whole + (worker < rest) for worker in range(case["workers"])],
        BATCH: case["global batch"] // case["replicas"],
        ORDER: SHUFFLED,
        AGAIN: True,
    }


def sharded(records, context):
    return records.shard(context.num_input_pipelines, context.input_pipeline_id)


def per_replica(context, global_batch):
    return context.get_per_replica_batch_size(global_batch)


def shuffle_first(seed=None):
    return lambda records, context, global_batch: sharded(records.shuffle(999, seed), context).batch(
        per_replica(context, global_batch)
    )


def batch_first(records, context, global_batch):
    return sharded(records.batch(per_replica(context, global_batch)), context)


def batch_then_shuffle(records, context, global_batch):
    return batch_first(records, context, global_batch).shuffle(999)


def shuffled_batches_dealt_out(records, context, global_batch):
    return batch_first(records.shuffle(999, seed=5), context, global_batch)


def changed(size=per_replica, shuffle=lambda dataset: dataset.shuffle(999), share=sharded, rest=False):
    """Shard, shuffle, batch, with one of the three done otherwise."""
    return lambda records, context, global_batch: shuffle(share(records, context)).batch(
        max(size(context, global_batch), 1), drop_remainder=rest
    )


def numbered_and_filtered(records, context, global_batch):
    n, me = context.num_input_pipelines, context.input_pipeline_id
    numbered = records.enumerate().filter(lambda place, _: place % n == me)
    mine = numbered.map(lambda _, record: record)
    return mine.shuffle(100).batch(global_batch // context.num_replicas_in_sync)


def dealt_by_batches(cases, seen, expected):
    """Nothing lost or doubled, the same again, and the sizes of parts are those of whole batches."""

    def fits(case, one, wanted):
        batches = (wanted[BATCH], case["global batch"])
        by_batches = [dealt_out(case["records"], size, case["workers"]) for size in batches]
        return one[NOBODY] == one[TWICE] == 0 and one[AGAIN] and one[SHARES] in by_batches

    return all(map(fits, cases, seen, expected))


def whole_batches_only(seen, wanted):
    """What each worker should get, without what does not fill a batch."""
    size = wanted[BATCH]
    return seen[TWICE] == 0 and seen[SHARES] == [share - share % size for share in wanted[SHARES]]


MY_SHARE = Exercise(
    id="08.my_share",
    title="Shard by hand",
    points=3,
    length="about 3 lines",
    signature="my_share(records, context, global_batch)",
    hints=[
        "Three calls: `shard`, `shuffle`, `batch`. In which order?",
        "`records.shard(n, i)`: how many shards there are, and which is yours, is in the context. Workers "
        "read, not replicas.",
        "Nothing is cut after your function: `context.get_per_replica_batch_size(global_batch)`.",
    ],
    cases=share_cases,
    observe=observe_share,
    expected=expected_share,
    slow=True,
    mistakes=[
        Mistake(
            "repeated for ever",
            changed(shuffle=lambda dataset: dataset.shuffle(999).repeat()),
            went_wrong="Your dataset has no end. The exercise asks for one epoch; whoever trains decides how "
            "often it is repeated.",
            try_this="Leave `.repeat()` out.",
            recognises=lambda cases, seen, expected: all(not one[ENDS] for one in seen),
        ),
        Mistake(
            "shard after an unseeded shuffle",
            shuffle_first(),
            went_wrong=lambda case, seen, expected: (
                f"{seen[NOBODY]} records come to nobody and {seen[TWICE]} to more than one worker. Each "
                "worker shuffles in its own way and then takes its places of *its own* line: the parts do "
                "not fit together."
            ),
            try_this="Shard first, while the order is still the same everywhere. Then shuffle your own part.",
            variants=[
                lambda records, context, global_batch: sharded(
                    records.shuffle(999).batch(per_replica(context, global_batch)), context
                )
            ],
            recognises=lambda cases, seen, expected: all(
                one[NOBODY] and one[TWICE] and not one[AGAIN] for one in seen
            ),
        ),
        Mistake(
            "shard after batch",
            batch_first,
            went_wrong=lambda case, seen, expected: (
                f"The workers get {seen[SHARES]} records instead of {expected[SHARES]}: you deal out whole "
                "batches, and one batch more or less is a whole step more or less. Each worker also batches "
                "what it then throws away."
            ),
            try_this="Shard single records: `.shard(…)` before `.batch(…)`.",
            variants=[
                batch_then_shuffle,
                shuffled_batches_dealt_out,
                lambda records, context, global_batch: sharded(records.batch(global_batch), context),
            ],
            recognises=dealt_by_batches,
        ),
        Mistake(
            "everyone gets everything",
            changed(share=lambda records, context: records),
            went_wrong=lambda case, seen, expected: (
                f"All {seen[TWICE]} records come to every worker. With `distribute_datasets_from_function` "
                "nobody shards for you."
            ),
            try_this="Keep your own part with `.shard(…)`.",
        ),
        Mistake(
            "the same part for everyone",
            changed(share=lambda records, context: records.shard(context.num_input_pipelines, 0)),
            went_wrong=lambda case, seen, expected: (
                f"All workers take the same part; {seen[NOBODY]} records come to nobody."
            ),
            try_this="Which part is yours is in `context.input_pipeline_id`.",
        ),
        Mistake(
            "sharded by replicas",
            changed(
                share=lambda records, context: records.shard(
                    context.num_replicas_in_sync, context.input_pipeline_id
                )
            ),
            went_wrong=lambda case, seen, expected: (
                f"{seen[NOBODY]} records come to nobody. There are {case['workers']} workers that read, and "
                f"you cut the data into {case['replicas']} parts, one for each replica. The replicas of one "
                "worker share its part."
            ),
            try_this="`context.num_input_pipelines` is the number of workers.",
        ),
        Mistake(
            "the rest is dropped",
            changed(rest=True),
            went_wrong=lambda case, seen, expected: (
                f"{seen[NOBODY]} records come to nobody: `drop_remainder=True` throws the last, short "
                "batch of every worker away."
            ),
            try_this="Keep the short batch.",
            recognises=lambda cases, seen, expected: all(map(whole_batches_only, seen, expected)),
        ),
        Mistake(
            "batch is global",
            changed(size=lambda context, global_batch: global_batch),
            went_wrong=lambda case, seen, expected: (
                f"A batch holds {seen[BATCH]} records. Every replica takes one in a step, so that a step has "
                f"{seen[BATCH] * case['replicas']} instead of {case['global batch']}."
            ),
            try_this="Divide by the number of replicas; there is a method of the context for it.",
        ),
        Mistake(
            "divided by the workers",
            changed(size=lambda context, global_batch: global_batch // context.num_input_pipelines),
            went_wrong=lambda case, seen, expected: (
                f"A batch holds {seen[BATCH]} records. That would be right with one replica a worker; here "
                f"{case['replicas']} replicas take a batch each, {seen[BATCH] * case['replicas']} in a step."
            ),
            try_this="Shard by workers, batch by replicas.",
        ),
        Mistake(
            "not shuffled",
            changed(shuffle=lambda dataset: dataset),
            went_wrong="Each worker has its part, in batches of the right size, but in the order of the "
            "files, epoch after epoch.",
            try_this="Shuffle between sharding and batching.",
        ),
        Mistake(
            "batches are shuffled, not records",
            lambda records, context, global_batch: (
                sharded(records, context).batch(per_replica(context, global_batch)).shuffle(999)
            ),
            went_wrong="The batches change places, but each holds the same records for ever: what is "
            "shuffled after `.batch(…)` are batches.",
            try_this="Shuffle before you batch.",
        ),
        Mistake(
            "a buffer that hardly shuffles",
            changed(shuffle=lambda dataset: dataset.shuffle(2)),
            went_wrong="Your shuffle draws from a buffer of so few records that each stays near its place: a "
            "buffer of b lets none come more than b - 1 places early.",
            try_this="A buffer as large as the worker's part, or larger.",
            variants=[changed(shuffle=lambda dataset: dataset.shuffle(4))],
        ),
        Mistake(
            "number and count are swapped",
            changed(
                share=lambda records, context: records.shard(
                    context.input_pipeline_id, context.num_input_pipelines
                )
            ),
            went_wrong="You asked for part number `num_input_pipelines` of `input_pipeline_id` parts.",
            try_this="`shard(how many parts, which is mine)`.",
        ),
        Mistake(
            "the same order in every epoch",
            changed(shuffle=lambda dataset: dataset.shuffle(999, reshuffle_each_iteration=False)),
            went_wrong="Shuffled once and for all: every epoch has the same batches in the same order.",
            try_this="Let `shuffle` do it anew in each iteration, as it does by itself.",
        ),
    ],
    also_right=[numbered_and_filtered, shuffle_first(seed=3)],
)


# --- 08.one_file: the policy for one file ---------------------------------------------------------------

RECORDS, GLOBAL_BATCH = 24, 8
ENDED, FIRST = "the run on two workers", "step 0, worker 0 | worker 1"
SAME = "both workers get the same records"
THROUGH, TOO_FEW_FILES = "ends as it should", "an error: fewer files than workers"
HANGS = "does not end"


def observe_one_file(answer, case):
    """Who receives what of one file, on a cluster of two workers."""
    batched(answer(tf.data.Dataset.range(RECORDS).batch(GLOBAL_BATCH)), "one_file")
    with tempfile.TemporaryDirectory() as folder:
        nothing = np.zeros((RECORDS, 1, 1, 1), np.uint8)
        files = shards.write(folder, nothing, nothing[:, 0, 0, 0], [RECORDS])
        workers = cluster.LocalCluster(workers=2, output="quiet", timeout=40)
        try:
            steps = workers.run(receive, files, answer)
        except cluster.ClusterTimeout:
            return {ENDED: HANGS}
        except cluster.WorkerError as error:
            return {ENDED: TOO_FEW_FILES if "Could not apply FILE" in str(error) else error.seen[:200]}
    mine = [list(itertools.chain(*worker)) for worker in steps]
    first = " | ".join(" ".join(map(str, worker[0] if worker else [])) or "none" for worker in steps)
    same = sorted(mine[0]) == sorted(mine[1])
    return {ENDED: THROUGH, FIRST: first, **nobody_and_twice(mine, RECORDS), SAME: same}


def receive(files, answer):
    """On a worker: the record numbers of each step."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    numbers = shards.read(files).map(lambda record: record["id"]).batch(GLOBAL_BATCH)
    distributed = strategy.experimental_distribute_dataset(answer(numbers))
    steps = itertools.islice(distributed, 3 * RECORDS)
    return [strategy.experimental_local_results(batch)[0].numpy().tolist() for batch in steps]


def expected_one_file(case):
    half = GLOBAL_BATCH // 2
    first = " | ".join(" ".join(map(str, range(start, start + half))) for start in (0, half))
    return {ENDED: THROUGH, FIRST: first, NOBODY: 0, TWICE: 0, SAME: False}


def with_policy(name, before=lambda dataset: dataset):
    """An answer that sets the policy of that name, after something else."""

    def one_file(dataset):
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[name]
        return before(dataset).with_options(options)

    return one_file


def looking_ahead(dataset):
    """DATA by its number, and batches read ahead of time."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy(2)
    return dataset.with_options(options).prefetch(2)


def shuffled_records(dataset):
    return dataset.unbatch().shuffle(999).batch(GLOBAL_BATCH)


def the_one(test):
    """Recognises by what was seen in the single case, where the run ended as it should."""
    return lambda cases, seen, expected: seen[0][ENDED] == THROUGH and test(seen[0])


ONE_FILE = Exercise(
    id="08.one_file",
    title="One file, two workers",
    points=2,
    length="about 3 lines",
    signature="one_file(dataset)",
    hints=[
        "The dataset starts from files, so AUTO means FILE. Can two workers share one file by files?",
        "Which policy halves every batch, wherever the data comes from?",
        "`options = tf.data.Options()`, set `options.experimental_distribute.auto_shard_policy`, and return "
        "`dataset.with_options(options)`.",
    ],
    observe=observe_one_file,
    expected=expected_one_file,
    time_limit=60,
    slow=True,
    mistakes=[
        Mistake(
            "one file dealt out by files",
            lambda dataset: dataset,
            went_wrong="Worker 0 stops: FILE gives whole files to workers, and there are more workers than "
            "files. AUTO, which is what a dataset has if nothing is set, is FILE for everything that is read "
            "from files.",
            try_this="Take the policy that cuts batches instead of files, and do not forget to return the "
            "dataset that has it.",
            recognises=lambda cases, seen, expected: seen[0][ENDED] == TOO_FEW_FILES,
        ),
        Mistake(
            "OFF means no duplicates",
            with_policy("OFF"),
            went_wrong=lambda case, seen, expected: (
                f"All {seen[TWICE]} records come to both workers. OFF turns the sharding off (and HINT "
                "leaves it to you): everyone reads everything, and an epoch is two."
            ),
            try_this="Somebody has to shard. Take the policy that halves every batch.",
            recognises=the_one(lambda seen: seen[SAME] and seen[TWICE] == RECORDS and seen[NOBODY] == 0),
        ),
        Mistake(
            "repeated for ever",
            with_policy("DATA", lambda dataset: dataset.repeat()),
            went_wrong=lambda case, seen, expected: (
                f"The policy is right: step 0 has {seen[FIRST]}. But the dataset has no end, and each worker "
                "gets its half again and again."
            ),
            try_this="Leave `.repeat()` out: whoever trains decides how often.",
            recognises=the_one(lambda seen: not seen[SAME] and seen[TWICE] == RECORDS and seen[NOBODY] == 0),
        ),
        Mistake(
            "the same half for both",
            with_policy("OFF", lambda dataset: dataset.shard(2, 0)),
            went_wrong=lambda case, seen, expected: (
                f"Both workers get the same records, and {seen[NOBODY]} come to nobody: the same program "
                "runs on both, so a shard with a fixed number is the same on both."
            ),
            try_this="Leave the sharding to a policy.",
            recognises=the_one(lambda seen: seen[SAME] and seen[NOBODY]),
        ),
        Mistake(
            "sharded twice",
            with_policy("DATA", lambda dataset: dataset.shard(2, 0)),
            went_wrong=lambda case, seen, expected: (
                f"{seen[NOBODY]} records come to nobody: you keep a part, and the policy shares that part "
                "out once more."
            ),
            try_this="One of the two is enough: the policy.",
            recognises=the_one(lambda seen: seen[NOBODY] and not seen[TWICE]),
        ),
        Mistake(
            "shuffled before it is shared out",
            with_policy("DATA", shuffled_records),
            went_wrong=lambda case, seen, expected: (
                f"{seen[NOBODY]} records come to nobody and {seen[TWICE]} to both. DATA deals out places in "
                "line, and an unseeded shuffle gives each worker another line."
            ),
            try_this="Do not touch the order here; or give the shuffle a seed.",
            recognises=the_one(lambda seen: seen[NOBODY] and seen[TWICE]),
        ),
        Mistake(
            "another batch",
            with_policy("DATA", lambda dataset: dataset.unbatch().batch(GLOBAL_BATCH // 2)),
            went_wrong=lambda case, seen, expected: (
                f"Each record comes once, but step 0 has {seen[FIRST]} where one device has the records 0 to "
                f"{GLOBAL_BATCH - 1}. The dataset was batched already, for both workers together."
            ),
            try_this="Leave the batches as they are; the policy halves them.",
            recognises=the_one(lambda seen: not seen[NOBODY] and not seen[TWICE]),
        ),
    ],
    also_right=[looking_ahead],
)


# --- 08.steps_per_epoch: steps that agree ---------------------------------------------------------------

STEPS, ENDING = "steps of each worker", "how the epoch ends"
MISSED, EXTRA = "records never seen", "steps more than it takes"
ALL_THROUGH = "all workers reach the end"
MOST_MEETINGS = 8


def step_cases(random):
    """Uneven shares whose largest does not divide; even ones that do; two workers, the first with least."""
    batch = int(random.integers(3, 6))
    small = [int(n) for n in random.integers(1, batch + 1, 2)]
    return [
        step_case([small[0] + batch, 3 * batch + 1, small[1]], batch),
        step_case([2 * batch] * 3, batch),
        step_case([batch - 1, 4 * batch - 1], batch),
    ]


def step_case(shares, batch):
    told = ", ".join(map(str, shares))
    return {"about": f"shares of {told} records, batches of {batch}", "shares": shares, "batch": batch}


class Pause(BaseException):
    """Stops an answer at a meeting to which the others are still on their way."""


def observe_steps(answer, case):
    """All workers together: each answer runs until its next meeting, and again when all have come."""
    meetings: list[list] = []
    while len(meetings) < MOST_MEETINGS:
        paused, given = {}, {}
        for worker, share in enumerate(case["shares"]):
            try:
                given[worker] = answer(share, case["batch"], gather_that_replays(meetings))
            except Pause as pause:
                paused[worker] = pause.args[0]
        if given and paused:
            waiting, gone = min(paused), min(given)
            return {ENDING: f"worker {waiting} waits in a meeting, worker {gone} does not come to it"}
        if given:
            return consequences(case, [whole(value) for value in given.values()])
        meetings.append(list(paused.values()))
    return {ENDING: f"they still meet after {MOST_MEETINGS} meetings"}


def gather_that_replays(meetings):
    past = iter(meetings)

    def gather(number):
        for numbers in past:
            return list(numbers)
        raise Pause(number)

    return gather


def whole(value):
    if np.ndim(value):
        raise Unusable(
            f"steps_per_epoch gave {returned.describe(value)}, everybody's numbers? Choose one of them, the "
            "same on every worker."
        )
    number = returned.number(value, "steps_per_epoch")
    if number != int(number):
        raise Unusable(f"steps_per_epoch gave {number:g}: half a step cannot be taken.")
    return int(number)


def consequences(case, steps):
    """What an epoch of these steps does to workers and records."""
    fewest = min(steps)
    hanging = [worker for worker, count in enumerate(steps) if count > fewest]
    seen = [min(share, fewest * case["batch"]) for share in case["shares"]]  # nobody gets any further
    ending = f"worker {hanging[0]} waits for ever in its step {fewest + 1}" if hanging else ALL_THROUGH
    return {
        STEPS: steps,
        ENDING: ending,
        MISSED: sum(case["shares"]) - sum(seen),
        EXTRA: max(0, max(steps) - needed(case)),
    }


def needed(case):
    return max(len(range(0, share, case["batch"])) for share in case["shares"])


def expected_steps(case):
    return {STEPS: [needed(case)] * len(case["shares"]), ENDING: ALL_THROUGH, MISSED: 0, EXTRA: 0}


def of_all(combine):
    """An answer that combines everybody's number of records."""
    return lambda my_records, batch, gather: combine(gather(my_records), batch)


def my_own(my_records, batch, gather):
    return math.ceil(my_records / batch)


def the_fewest(my_records, batch, gather):
    return min(gather(math.ceil(my_records / batch)))


def added_up(my_records, batch, gather):
    return sum(gather(math.ceil(my_records / batch)))


def asked_by_large_shares_only(my_records, batch, gather):
    steps = math.ceil(my_records / batch)
    return max(gather(steps)) if steps != 1 else steps


def of_the_largest(my_records, batch, gather):
    return -(-max(gather(my_records)) // batch)


def by_counting(my_records, batch, gather):
    largest = sorted(gather(my_records))[-1]
    return len(range(0, largest, batch))


def count_of(number, what):
    return f"{number} {what}{'s' * (number != 1)}"


def never_seen(seen):
    return f"{count_of(seen[MISSED], 'record')} {'is' if seen[MISSED] == 1 else 'are'} never seen"


STEPS_PER_EPOCH = Exercise(
    id="08.steps_per_epoch",
    title="Steps that agree",
    points=2,
    length="about 2 lines",
    signature="steps_per_epoch(my_records, batch, gather)",
    hints=[
        "How many batches does a share of `my_records` make, the short one at the end included?",
        "Each worker knows only its own number. Let all of them tell: `gather(…)`, on every worker.",
        "The fewest leaves records out; what does the most do?",
    ],
    cases=step_cases,
    observe=observe_steps,
    expected=expected_steps,
    mistakes=[
        Mistake(
            "a meeting that not all come to",
            asked_by_large_shares_only,
            went_wrong=lambda case, seen, expected: (
                f"{seen[ENDING].capitalize()}. `gather` is a collective like any other: whoever calls it "
                "waits for all."
            ),
            try_this="Call `gather` on every worker, outside of any `if`.",
            recognises=lambda cases, seen, expected: any("meeting," in one[ENDING] for one in seen),
        ),
        Mistake(
            "unequal step counts",
            my_own,
            went_wrong=lambda case, seen, expected: (
                f"The workers take {seen[STEPS]} steps, so {seen[ENDING]}. Each counted its own records; the "
                "number of steps is a fact about all workers."
            ),
            try_this="Gather all workers' numbers and choose the same on each.",
            variants=[
                lambda my_records, batch, gather: my_records // batch,
                lambda my_records, batch, gather: my_records,
                lambda my_records, batch, gather: math.ceil(my_records / batch) if gather(my_records) else 0,
            ],
            recognises=lambda cases, seen, expected: any(
                STEPS in one and len(set(one[STEPS])) > 1 for one in seen
            ),
        ),
        Mistake(
            "the fewest steps",
            the_fewest,
            went_wrong=lambda case, seen, expected: (
                f"All workers take {count_of(seen[STEPS][0], 'step')} and reach the end together. But "
                f"{never_seen(seen)}, of the larger shares."
            ),
            try_this="The data is repeated, so nobody runs dry: let the *largest* share decide.",
            variants=[
                of_all(lambda numbers, batch: math.ceil(min(numbers) / batch)),
                of_all(lambda numbers, batch: min(numbers) // batch),
                lambda my_records, batch, gather: min(gather(my_records // batch)),
            ],
        ),
        Mistake(
            "as if the shares were even",
            of_all(lambda numbers, batch: math.ceil(sum(numbers) / (batch * len(numbers)))),
            went_wrong=lambda case, seen, expected: (
                "You divided all records by what one step takes on all workers. That holds for even shares; "
                f"the largest share needs {count_of(expected[STEPS][0], 'step')}, and {never_seen(seen)}."
            ),
            try_this="A small share cannot take over records of a large one: look at the largest.",
            variants=[
                of_all(lambda numbers, batch: sum(numbers) // (batch * len(numbers))),
                of_all(lambda numbers, batch: round(sum(numbers) / (batch * len(numbers)))),
            ],
        ),
        Mistake(
            "the short batch is forgotten",
            of_all(lambda numbers, batch: max(numbers) // batch),
            went_wrong=lambda case, seen, expected: (
                f"{never_seen(seen).capitalize()}: the largest share does not divide by the batch, and "
                "its last, short batch is a step too."
            ),
            try_this="Round up: `math.ceil(…)`.",
        ),
        Mistake(
            "rounded to the nearest",
            of_all(lambda numbers, batch: round(max(numbers) / batch)),
            went_wrong=lambda case, seen, expected: (
                f"{never_seen(seen).capitalize()}. `round` goes down as often as up; a short batch is a "
                "step, however short."
            ),
            try_this="Round up: `math.ceil(…)`.",
        ),
        Mistake(
            "always one more",
            of_all(lambda numbers, batch: max(numbers) // batch + 1),
            went_wrong="Where the largest share divides by the batch, there is one step too many.",
            try_this="Round up instead of adding one: `math.ceil(…)`.",
        ),
        Mistake(
            "records, not steps",
            of_all(lambda numbers, batch: max(numbers)),
            went_wrong=lambda case, seen, expected: (
                f"{seen[STEPS][0]} is the number of records in the largest share. A step takes "
                f"{case['batch']} of them."
            ),
            try_this="Divide by the batch, and round up.",
        ),
        Mistake(
            "steps of all workers added up",
            added_up,
            went_wrong=lambda case, seen, expected: (
                f"All steps of all workers together are {seen[STEPS][0]}. But the workers take their steps "
                f"at the same time: {expected[STEPS][0]} are enough."
            ),
            try_this="Take the largest, not the sum.",
            variants=[
                of_all(lambda numbers, batch: math.ceil(sum(numbers) / batch)),
                of_all(lambda numbers, batch: sum(numbers) // batch),
            ],
        ),
    ],
    also_right=[of_the_largest, by_counting],
)

EXERCISES = [MY_SHARE, ONE_FILE, STEPS_PER_EPOCH]
