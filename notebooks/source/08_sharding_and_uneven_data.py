# %% [markdown]
# # 08 · Which examples does each worker see?
#
# Two workers run the same program over the same folder of data. Does each of them read all of it, or half? Which half? And what if the folder holds a single file, or one worker's half is longer than the other's?
#
# **After this lesson** you can say which record goes to which worker under every policy, shard by hand, keep workers in step when their shares differ, and hand data out on demand.
#
# *40 minutes · builds on lessons 02 (where a batch goes) and 07 (TF_CONFIG)*

# %%
import itertools
import tempfile
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import numpy as np
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## Files, and a number on every record
#
# Data for many machines lies in many files. TensorFlow's own kind is the **TFRecord** file, records one after the other; each file is a *shard* of the data set. We cut 24 images of Fashion-MNIST into four shards. Every record also holds its number, so that we can tell later who received what. Here is the third shard, read back:

# %%
cu.plots.style()
data = cu.datasets.fashion_mnist()
place = tempfile.TemporaryDirectory()


def write_shards(name, sizes):
    images, labels = data.train_images[: sum(sizes)], data.train_labels[: sum(sizes)]
    return cu.shards.write(Path(place.name, name), images, labels, sizes)


four = write_shards("four files", [6, 6, 6, 6])
third = list(cu.shards.read(four[2:3]))
names = [f"{one['id']}: {cu.datasets.CLASS_NAMES[one['label']]}" for one in third]
cu.plots.show(
    cu.plots.examples(np.stack([one["image"] for one in third]), names),
    alt="The six pictures in the third shard, records 12 to 17, with their labels.",
)

# %% [markdown]
# ## Two workers, one pipeline
#
# The pipeline is the one you would write for a single device, with the *global* batch. `experimental_distribute_dataset` rewrites it on each worker, so that the worker gets its part. How, is the **auto-shard policy**, an option of the dataset.


# %%
numbers = cu.shards.numbers  # a dataset of the record numbers in some files


def with_policy(dataset, name):
    options = tf.data.Options()
    policy = tf.data.experimental.AutoShardPolicy[name]
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def distribute(jobs, batch):
    """For each job, a policy and a dataset: the record numbers that this worker got."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    found = {}
    for title, (policy, make_dataset) in jobs.items():
        dataset = with_policy(make_dataset().batch(batch), policy)
        distributed = strategy.experimental_distribute_dataset(dataset)
        found[title] = cu.shards.received(strategy, distributed)
    return found


def by_job(workers):
    """What came back from the workers, job by job: a list of workers for each."""
    return {job: [worker[job] for worker in workers] for job in workers[0]}


# %% [markdown]
# ### Predict
#
# Four files of six records, two workers, a global batch of 8: so each worker gets 4 records in a step. Which records does worker 0 get in step 0 under `FILE`, under `DATA` and under `OFF`? And how many steps is an epoch?

# %% tags=["predict"]
my_guess = {"FILE": None, "DATA": None, "OFF": None}

# %%
POLICIES = ("FILE", "DATA", "OFF", "AUTO")
JOBS = {name: (name, lambda: numbers(four)) for name in POLICIES}
JOBS["AUTO, data in memory"] = "AUTO", lambda: tf.data.Dataset.range(24)
two = cu.LocalCluster(workers=2, output="quiet")
policies = by_job(two.run(distribute, JOBS, batch=8))
one_device = [batch.numpy().tolist() for batch in numbers(four).batch(8)]
panels = policies | {"no strategy": {"one device": one_device}}
from_files = {title: [6, 6, 6, 6] for title in panels if "memory" not in title}
cu.plots.show(
    cu.plots.record_grid(panels, 24, files=from_files),
    alt="Under FILE worker 0 gets files 0 and 2, worker 1 files 1 and 3. Under DATA "
    "each batch of one device is halved. Under OFF both workers get all records. AUTO "
    "is FILE for files, DATA for data in memory.",
)

# %% [markdown]
# This is not what rules say, but what each worker *brought back*. A healthy epoch is grey from end to end in the last row.
#
# - **FILE**: every second file is yours. Nobody opens the others'.
# - **DATA**: every batch is halved. Step 0 is what one device would see, cut in two.
# - **OFF**: everybody gets everything. An epoch is twice as long and each record counts **twice**: it is the sharding that is off, not the duplicates.
# - **AUTO**, the default: FILE where the pipeline begins with files, DATA where it does not.
#
# ## What DATA costs
#
# DATA keeps the batches of one device. What must it read for that?


# %%
def reads_and_keeps(files, policy):
    read = []
    kept = distribute({"it": (policy, lambda: numbers(files, read))}, batch=8)
    return len(read), sum(map(len, kept["it"]))


cost = {name: two.run(reads_and_keeps, four, name) for name in ("FILE", "DATA")}
cost  # for each worker: records read, records kept

# %% [markdown]
# **Under DATA each worker reads and decodes everything and throws away what is not its own.** With a hundred workers, each reads a hundred times what it keeps. That is why large data sets come in many files.
#
# ## First shuffle, then shard?
#
# Data has to be shuffled. Each worker shuffles for itself, from a seed of its own unless you give one. With `.shuffle(24)` before the batch: does each record still come exactly once? Think before you run.


# %%
def shuffled(seed=None):
    return numbers(four).shuffle(24, seed)


def made_at_random():
    return tf.data.Dataset.from_tensor_slices(np.random.default_rng().permutation(24))


SHUFFLED = {
    "DATA, unseeded": ("DATA", shuffled),
    "DATA, one seed for all": ("DATA", lambda: shuffled(7)),
    "FILE, unseeded": ("FILE", shuffled),
    "DATA, made at random on each worker": ("DATA", made_at_random),
}
shuffles = by_job(two.run(distribute, SHUFFLED, batch=8))
cu.plots.show(
    cu.plots.record_grid(shuffles, 24, files=[6, 6, 6, 6]),
    alt="DATA after an unseeded shuffle: some records come to both workers and others "
    "to nobody. So it is with data made at random on each worker. With one "
    "seed, or with FILE, each record comes once.",
)

# %% [markdown]
# **DATA deals out places in line, not records.** Worker 0 takes the first four of its own line, worker 1 the second four of *another* line. Some records come twice, some never, and nothing reports it. So it is with data that each worker makes for itself: random data is not sharded data.
#
# With one seed for all, the lines are equal. Under FILE the files are dealt out *before* anything is shuffled.
#
# ## By hand: the InputContext
#
# With `distribute_datasets_from_function` nothing is rewritten (lesson 02): you shard, and you batch per replica. Your function is told which worker it is on: `input_pipeline_id` of `num_input_pipelines`. Here are four ways for worker `i` of `n`, with three files:

# %%
three_files = write_shards("three files", [6, 6, 6])
WAYS = {
    "files[i::n], then shuffle": lambda n, i: numbers(three_files[i::n]).shuffle(18),
    "shard, then shuffle": lambda n, i: numbers(three_files).shard(n, i).shuffle(18),
    "shuffle, then shard": lambda n, i: numbers(three_files).shuffle(18).shard(n, i),
    "batch, then shard": lambda n, i: (
        numbers(three_files).batch(4).shard(n, i).unbatch()
    ),
}


def by_hand(ways):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def received(way):
        def mine(context):  # distributed: called on each worker
            dataset = way(context.num_input_pipelines, context.input_pipeline_id)
            return dataset.batch(context.get_per_replica_batch_size(8))

        distributed = strategy.distribute_datasets_from_function(mine)
        return cu.shards.received(strategy, distributed)

    return {name: received(way) for name, way in ways.items()}


hand = by_job(two.run(by_hand, WAYS))
cu.plots.show(
    cu.plots.record_grid(hand, 18, files=[6, 6, 6]),
    alt="By files: 12 and 6 records. Shard, then shuffle: 9 and 9. Shuffle, then "
    "shard: holes and duplicates. Batch, then shard: 10 and 8, by whole batches.",
)

# %% [markdown]
# **By files** reads least, and is as uneven as the files: 12 and 6. **By records** is as even as can be, 9 and 9, and reads all. **After the shuffle** has holes. **After the batch** deals out whole batches: 10 and 8.
#
# The rule: *shard first, then shuffle, then batch.*
#
# ## Fewer files than workers
#
# Three workers, two files, FILE.
#
# ### Predict
#
# Who gets an error: the worker without a file, the two that have one, or all? What do the others do?

# %% tags=["predict"]
my_guess = {"worker 0": None, "worker 1": None, "worker 2": None}

# %%
two_files = write_shards("two files", [12, 12])
impatient = cu.LocalCluster(workers=3, output="quiet", timeout=10)
job = {"FILE": ("FILE", lambda: numbers(two_files))}
said = []
for outcome in impatient.outcomes(distribute, job, batch=6):  # how it ends on each
    error = outcome.error.original if outcome.status == "raised" else None
    reason = error.message.partition("}} ")[2].splitlines()[0] if error else ""
    said.append(f"{type(error).__name__}: {reason}" if error else "still waits")
    print(f"{outcome.task}: {said[-1].split(', which')[0]}")

# %% [markdown]
# The two that *have* a file stop with an error that names the cause. (Worker 0 says that there is only one file: it stopped counting early.) The one that has *none* sees nothing wrong. It waits for the others in its first all-reduce, until TensorFlow or the time limit ends it. **Read the logs of all workers, not of the last to die.**
#
# AUTO does the same: it *is* FILE here. The cure is more files, or DATA.
#
# ## Shares of different sizes
#
# Now four files on three workers under FILE, and the two files under DATA.

# %%
JOBS = {
    "FILE, four files": ("FILE", lambda: numbers(four)),
    "DATA, two files": ("DATA", lambda: numbers(two_files)),
}
three = cu.LocalCluster(workers=3, output="quiet")
uneven = by_job(three.run(distribute, JOBS, batch=6))
cu.plots.show(
    cu.plots.record_grid(uneven, 24),
    alt="FILE: worker 0 gets 12 records in six steps, the others 6 in three. DATA: "
    "eight records each in four steps.",
)
[[len(ids) for ids in worker] for worker in uneven["FILE, four files"]]  # step by step

# %% [markdown]
# Worker 0 has two of the four files and takes six steps. The others are through after three, and still take six: **with empty batches**. Before each step the workers ask each other whether anybody has something left. So a `for` loop over a distributed dataset is safe, if your step survives an empty share (lessons 02 and 04).
#
# ## How long is it?
#
# Often one wants the number of steps beforehand. `cardinality()` tells, when it can:

# %% tags=["stable"]
LENGTHS = {
    "in memory, batches of 5": tf.data.Dataset.range(24).batch(5),
    "from files": numbers(four),
    "counted": numbers(four).apply(tf.data.experimental.assert_cardinality(24)),
    "filtered": tf.data.Dataset.range(24).filter(lambda number: number > 3),
    "repeated": tf.data.Dataset.range(24).repeat(),
}
LENGTHS = {name: int(dataset.cardinality()) for name, dataset in LENGTHS.items()}
LENGTHS

# %% [markdown]
# A file does not say how many records it holds, and a filter cannot know: −2 means *unknown*, −1 *infinite*. Never compute with them. Count once (`cu.shards.sizes` reads only headers), and keep the counts beside the files.
#
# ## The trap: everyone counts for itself
#
# A careful worker counts *its own* records and repeats its data, so that it never runs dry. Each step ends in an all-reduce, as in every training.
#
# ### Predict
#
# Worker 0 has 12 records, workers 1 and 2 have 6 each. In batches of 2 they count 6, 3 and 3 steps. What happens?

# %% tags=["predict"]
my_guess = None


# %%
def train(files, batch, choose_steps):
    """The record numbers of each step on this worker; every step is a meeting."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    n, i = strategy.num_replicas_in_sync, strategy.cluster_resolver.task_id
    my_steps = -(-sum(cu.shards.sizes(files[i::n])) // batch)
    steps = choose_steps(strategy, my_steps)
    endless = numbers(files[i::n]).repeat().batch(batch)
    seen = []
    for ids in itertools.islice(endless, steps):
        strategy.reduce("SUM", len(ids), axis=None)  # distributed: all meet here
        seen.append(ids.numpy().tolist())
    print(f"done after {steps} steps")
    return seen


try:
    in_lines = cu.LocalCluster(workers=3)
    in_lines.run(train, four, 2, lambda strategy, my_steps: my_steps)
    hangs = None
except cu.errors.ClusterError as error:
    hangs = error.seen
print(hangs)

# %% [markdown]
# Workers 1 and 2 are done and content. **Worker 0 waits in its fourth step for gradients that nobody sends.** It is the one with *more* data that hangs. (The course's cluster saw that it waits in vain, and ended it.)
#
# ## The cure: agree before you start
#
# The step count is a fact about all workers, so let them meet once to find it. `strategy.gather` gives everybody's number to everyone.


# %%
def agree(choose):
    return lambda strategy, my_steps: choose(
        strategy.gather(tf.constant([my_steps]), axis=0).numpy().tolist()
    )


agreed = {
    "the most steps": three.run(train, four, 2, agree(max)),
    "the fewest steps": three.run(train, four, 2, agree(min)),
}
cu.plots.show(
    cu.plots.record_grid(agreed, 24, files=[6, 6, 6, 6]),
    alt="With the most steps every record comes, those of workers 1 and 2 twice. With "
    "the fewest no record comes twice, and half of worker 0's never.",
)

# %% [markdown]
# Both end. **The most** sees everything, and the small shares twice. **The fewest** sees nothing twice and leaves records out. With a *full* batch for everybody in every step there is no third way. So cut data into *many* files of *equal* size.
#
# ## On demand: the tf.data service
#
# Or nobody owns a share. A **dispatcher** knows the files, **tf.data workers** read and prepare them, trainers (*consumers*) ask for the next batch. Here are all five processes, the servers as `ps` tasks; consumer 1 is slow.
#
# ### Predict
#
# In `distributed_epoch` the dispatcher gives each file to one tf.data worker, in `parallel_epochs` to all. How often does each record come? And if one restarts in the middle?

# %% tags=["predict"]
my_guess = {"distributed_epoch": None, "parallel_epochs": None, "restart": None}


# %% lint_allows="no_sleep"
def prepare(record):  # on a tf.data worker, which leaves its number
    large = tf.image.resize(record["image"], (224, 224))
    return record["id"], cu.data_service.server_number(), tf.reduce_mean(large)


def consume(jobs, files, folder):
    """For each job: (record numbers, servers) of each batch that this consumer got."""
    import time

    me = tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id
    found = {}
    for job, mode in jobs.items():
        address = cu.data_service.join(folder, job)  # on a ps: serves until the end
        take_part = tf.data.experimental.service.distribute(
            mode, address, job_name=job, max_outstanding_requests=1
        )
        dataset = cu.shards.read(files).map(prepare).batch(4).apply(take_part)
        found[job] = []
        for ids, servers, _ in dataset:
            found[job].append((ids.numpy().tolist(), servers.numpy().tolist()))
            cu.data_service.meet(folder, f"{job} has begun")  # a fair start
            if me == 1:
                time.sleep(0.1)  # the slow one
            if me == 0 and job == "restart" and len(found[job]) == 1:
                cu.data_service.restart_once(folder, int(servers[0]))  # amid its work
    return found


# %%
JOBS = {name: name for name in ("distributed_epoch", "parallel_epochs")}
JOBS["restart"] = "distributed_epoch"
twelve = write_shards("twelve files", [8] * 12)
service = cu.LocalCluster(workers=2, ps=3, output="quiet")
served = by_job(service.run(consume, JOBS, twelve, place.name)[:2])
panels = {}
for job, consumers in served.items():
    batches = [batch for consumer in consumers for batch in consumer]
    prepared = {"tf.data worker 1": [], "tf.data worker 2": []}
    for ids, servers in batches:
        for number, server in zip(ids, servers, strict=True):
            prepared[f"tf.data worker {server}"].append([number])
    taken = [[ids for ids, _ in consumer] for consumer in consumers]
    fast_and_slow = dict(zip(("consumer 0", "consumer 1, slow"), taken, strict=True))
    panels |= {f"{job}: received": fast_and_slow, f"{job}: prepared": prepared}
cu.plots.show(
    cu.plots.record_grid(panels, 96, files=[8] * 12),
    alt="distributed_epoch: each record once, most of them taken by the fast consumer. "
    "parallel_epochs: every record twice, once from each tf.data worker. With a "
    "restart in distributed_epoch some records never come, and none twice.",
)

# %% [markdown]
# The picture shows what [TensorFlow's documentation](https://www.tensorflow.org/api_docs/python/tf/data/experimental/service) promises. (The last case, which is not in it, is in the course's tests.)
#
# | mode | all goes well | a tf.data worker restarts |
# |---|---|---|
# | `distributed_epoch` (`DYNAMIC`) | **exactly once** | **at most once**: what it had in hand is lost, nothing doubled |
# | `parallel_epochs` (`OFF`) | once *from each* tf.data worker | it begins anew: more duplicates |
#
# In `distributed_epoch` whichever tf.data worker is ready takes the next file: with files as small as these, one may prepare nearly all. A dispatcher that restarts forgets the job, unless it has `fault_tolerant_mode=True` and a `work_dir`.
#
# The slow consumer took what it could, and held up nobody. *Synchronous* training cannot profit: all take equally many steps. Lesson 13 gives slow workers smaller batches instead.

# %% [markdown]
# ## Exercise 08.1 · Shard by hand
#
# Write the function for `distribute_datasets_from_function`. `records` is a dataset of single records, equal on all workers; `global_batch` counts for all replicas of all workers. Return this worker's part: all workers together get each record exactly once, nobody gets more than one record more than another (the first workers do), well shuffled and anew in every epoch (records, not batches), in batches for one replica. About 3 lines.


# %% tags=["exercise"] exercise_id="08.my_share"
def my_share(records, context, global_batch):
    """A dataset of batches: this worker's part of one epoch."""
    ...


# %%
cu.check("08.my_share", my_share)

# %% [markdown]
# ## Exercise 08.2 · One file, two workers
#
# A colleague sends a single large file. Return the dataset with what it takes for `experimental_distribute_dataset` on two workers, so that each record comes to exactly one of them and every batch is the one that a single device would see, halved. Checked on a real cluster. About 3 lines.


# %% tags=["exercise"] exercise_id="08.one_file"
def one_file(dataset):
    """The dataset (already batched), ready to be distributed."""
    ...


# %%
cu.check("08.one_file", one_file)

# %% [markdown]
# ## Exercise 08.3 · Steps that agree
#
# Every worker repeats its share for ever and calls this function once to learn how many steps an epoch has. `my_records` is the size of its own share, `batch` the size of its batches; `gather(number)` is a meeting that returns everybody's number as a list. No worker may wait for another for ever, every record must be seen in the epoch, and there must be no more steps than that takes. About 2 lines.


# %% tags=["exercise"] exercise_id="08.steps_per_epoch"
def steps_per_epoch(my_records, batch, gather):
    """The number of steps, the same on every worker."""
    ...


# %%
cu.check("08.steps_per_epoch", steps_per_epoch)

# %% [markdown]
# ## What must be true now


# %%
def times(workers, records=24):
    return set(cu.shards.times_received(workers, records).tolist())


expected = {"FILE": {1}, "DATA": {1}, "OFF": {2}, "AUTO": {1}}
assert {name: times(policies[name]) for name in expected} == expected
assert policies["AUTO"] == policies["FILE"]
assert policies["AUTO, data in memory"] == policies["DATA"]
halves = zip(*policies["DATA"], strict=True)
assert [first + second for first, second in halves] == one_device
assert cost == {"FILE": [(12, 12)] * 2, "DATA": [(24, 12)] * 2}
for name in ("DATA, unseeded", "DATA, made at random on each worker"):
    assert times(shuffles[name]) == {0, 1, 2}
assert times(shuffles["DATA, one seed for all"]) == {1}
assert times(shuffles["FILE, unseeded"]) == {1}

kept = [[sum(map(len, steps)) for steps in workers] for workers in hand.values()]
assert kept == [[12, 6], [9, 9], [9, 9], [10, 8]]
assert 0 in times(hand["shuffle, then shard"], 18)
assert "only has 1 file(s)" in said[0] and "only has 2 file(s)" in said[1]
assert "sharding" not in said[2]  # it has no file, and no idea

assert [len(ids) for ids in uneven["FILE, four files"][1]] == [2, 2, 2, 0, 0, 0]
assert list(LENGTHS.values()) == [5, -2, 24, -2, -1]
assert "worker 0 waits" in hangs and "worker 1 has finished" in hangs
assert times(agreed["the most steps"]) == {1, 2}
assert times(agreed["the fewest steps"]) == {0, 1}

taken = {job: panels[f"{job}: received"].values() for job in JOBS}
assert times(taken["distributed_epoch"], 96) == {1}  # nothing lost, nothing doubled
assert times(taken["parallel_epochs"], 96) == {2}
assert times(taken["restart"], 96) == {0, 1}  # some lost, none doubled
fast, slow = taken["distributed_epoch"]
assert len(fast) > len(slow) > 0

# %% [markdown]
# > **Take away.** Shard first, then shuffle, then batch. Know who owns what: bring the numbers back and count. And whatever decides how often the workers meet, they must decide together.
#
# Next: [09 · Do two processes stay one model?](09_multi_worker_training.ipynb)
