# %% [markdown]
# # 03 · What does an all-reduce compute, and what does it cost?
#
# Every replica has a gradient of its own, made from its own examples. Before any of them may change a weight, all must agree on one gradient. What makes them agree is the **all-reduce**, and it is all the talking that data parallelism needs.
#
# **After this lesson** you can say what each worker holds before and after a collective and what it sends for that, and you have written the algorithm that keeps it cheap.
#
# *35 minutes · builds on lesson 00 (device, replica, worker)*

# %%
import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import numpy as np
import tensorflow as tf

cu.plots.style()
cu.devices.simulate(4)
# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## Four replicas, two numbers each
#
# Replica 0 holds `[1, 10]`, replica 1 holds `[2, 20]`, and so on. Three *collectives* act on them. A collective is an operation that all replicas enter, each with its own array, and none leaves before all have come.

# %%
strategy = cu.devices.mirrored(4)


@tf.function
def on_each_replica():
    me = tf.distribute.get_replica_context()
    number = tf.cast(me.replica_id_in_sync_group + 1, tf.float32)
    mine = number * [1.0, 10.0]
    return {
        "before": mine,
        "SUM": me.all_reduce("SUM", mine),
        "MEAN": me.all_reduce("MEAN", mine),
        "gather": me.all_gather(mine, axis=0),
    }


# %% [markdown]
# ### Predict
#
# Replica 3 brings `[4, 40]` to the **SUM**. What does it leave with: `[4, 40]`, `[10, 100]`, or nothing, because the result is on replica 0?

# %% tags=["predict"]
my_guess = None

# %% tags=["stable"]
held = {
    name: [array.numpy() for array in strategy.experimental_local_results(value)]
    for name, value in strategy.run(on_each_replica).items()
}
print("replica 3 leaves the SUM with", held["SUM"][3])

# %%
cu.plots.show(
    cu.plots.collectives(held),
    alt="Four replicas before and after SUM, MEAN and gather: after each of them, "
    "all four rows are the same.",
)

# %% [markdown]
# A cell has the colours of the replicas whose numbers are in it. **After each collective, all rows are equal.** No replica is special; everyone has the result.
#
# - **SUM** is what gradients need: each replica brings its part of a whole.
# - **MEAN** is SUM over the number of replicas. It is right when each part already stands for a whole *and* all shares are equally large. Lesson 04 is about that difference.
# - **gather** adds nothing up. It keeps everything, so the result grows with every replica.

# %% [markdown]
# ## The same on three real workers
#
# Replicas in one process can look into each other's memory. Workers cannot: all that one knows of another came through a connection. `LocalCluster` starts real processes that talk over TCP and runs your function on each, like a script. `wire.bytes_sent` asks the operating system what this process has sent so far.

# %%
NUMBERS = 1_000_000  # float32: an array of 4 MB


def meet(numbers):
    """What this worker holds after each collective, and how many arrays it sent."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    mine = tf.fill([numbers], strategy.cluster_resolver.task_id + 1.0)

    def measured(collective):
        def on_this_worker(array):
            return collective(tf.distribute.get_replica_context(), tf.identity(array))

        step = tf.function(lambda: strategy.run(on_this_worker, args=(mine,)))
        one = tf.ones([1])
        wait_for_all = tf.function(lambda: strategy.run(on_this_worker, args=(one,)))
        step(), wait_for_all()  # the first call also traces and connects
        before = cu.wire.bytes_sent()
        result = step().numpy()
        wait_for_all()  # a worker may be done while its neighbour still reads from it
        arrays = (cu.wire.bytes_sent() - before) / mine.numpy().nbytes
        holds = np.unique(result).tolist()
        return {"shape": result.shape, "holds": holds, "arrays sent": round(arrays, 3)}

    return {
        "SUM": measured(lambda me, array: me.all_reduce("SUM", array)),
        "MEAN": measured(lambda me, array: me.all_reduce("MEAN", array)),
        "gather": measured(lambda me, array: me.all_gather(array, axis=0)),
    }


# %% [markdown]
# ### Predict
#
# Worker 0 brings a million ones, worker 1 a million twos, worker 2 a million threes: 4 MB each. How many MB does worker 0 have to *send* until all three hold the sum?

# %% tags=["predict"]
my_guess_in_megabytes = None

# %%
with cu.LocalCluster(workers=3) as cluster:
    workers = cluster.run(meet, NUMBERS)

for name in workers[0]:
    for rank, worker in enumerate(workers):
        facts = [f"{fact} {value}" for fact, value in worker[name].items()]
        print(f"{name:6} worker {rank}:", ", ".join(facts))

# %% [markdown]
# Equal again, in processes that share nothing. Now the last number: to *gather*, a worker sends two arrays: everybody's array must reach everybody. That was to be expected. But for the **sum, each sends only 1⅓ arrays**, 5.3 MB, and still every one of them knows the whole sum. Which algorithm can do that?

# %% [markdown]
# ## Who sends how much?
#
# People number those who take part, be they replicas or workers, and call the number a **rank**. The first way that comes to mind: all send their array to rank 0, which adds them up and sends the sum back. `course_utils.communication` has it, and two others, in plain NumPy over a network that counts every message. Eight ranks:

# %%
arrays = [np.full(NUMBERS, rank + 1, np.float32) for rank in range(8)]
_, through_rank_0 = cu.communication.gather_and_broadcast(arrays)
_, ring = cu.communication.ring_all_reduce(arrays)
_, two_machines = cu.communication.hierarchical_all_reduce(arrays, group_size=4)

ways = {
    "through rank 0": through_rank_0,
    "ring": ring,
    "two machines of 4": two_machines,
}
sent = {name: np.divide(ways[name].bytes_sent, arrays[0].nbytes) for name in ways}
print("in total:", {name: float(each.sum()) for name, each in sent.items()})
cu.plots.show(
    cu.plots.sent_by_rank(sent),
    alt="Arrays sent by each of 8 ranks. Through rank 0: rank 0 sends 7, the others 1. "
    "Ring: 1.75 each. Two machines of four: the two leaders send 4, the others 1.",
)

# %% [markdown]
# Added up, all three send exactly the same, 2(n−1) arrays. **The ring does not send less; it spreads the sending.** Through rank 0 everyone waits for one link, and with every further worker that link has more to carry. On the ring all links work at once.
#
# (The virtual devices of this notebook share one memory, so there they add up on one of them. Several GPUs in one process do have links, which NCCL uses.)
#
# The third way first adds up inside each machine, then lets one leader a machine talk to the other leaders.

# %% [markdown]
# ## The ring, round by round
#
# Each rank cuts its array into n chunks, and sends one chunk a round to its right neighbour. The picture is not drawn by hand: the algorithm ran on numbers that tell whose they are, and every message was recorded.

# %%
frames = cu.communication.holdings(cu.communication.ring_all_reduce, 4)
cu.plots.show(
    cu.plots.chunk_rounds(frames),
    alt="The start and six rounds. In rounds 1 to 3 each chunk that arrives gains "
    "a colour; in rounds 4 to 6 chunks with all colours travel on to the others.",
)

# %% [markdown]
# - **Rounds 1 to n−1, *reduce-scatter*:** what arrives is *added*. After them each rank holds one chunk that is complete.
# - **Rounds n to 2(n−1), *all-gather*:** complete chunks travel on, and what arrives *replaces* what was there.
#
# So each rank sends 2(n−1) messages of 1/n array each:
#
# > **bytes sent by each worker = 2 · (n − 1) / n · bytes of the array**
#
# For 3 workers that is 1⅓ arrays: the number that the operating system counted above.

# %% [markdown]
# ## The law, counted and measured
#
# Count it for 2 to 12 ranks, and let real workers, two and four of them this time, say what they really sent.

# %%
small = np.ones(55_440)  # a length that divides by 2 … 12, and 16
counted = {"through rank 0": {}, "ring": {}}
for n in range(2, 13):
    _, through_rank_0 = cu.communication.gather_and_broadcast([small] * n)
    _, ring = cu.communication.ring_all_reduce([small] * n)
    counted["through rank 0"][n] = max(through_rank_0.bytes_sent) / small.nbytes
    counted["ring"][n] = max(ring.bytes_sent) / small.nbytes

# %%
on_the_wire = {3: [worker["SUM"]["arrays sent"] for worker in workers]}
for n in (2, 4):
    results = cu.LocalCluster(workers=n).run(meet, NUMBERS)
    on_the_wire[n] = [worker["SUM"]["arrays sent"] for worker in results]
on_the_wire

# %%
real = {n: max(sent) for n, sent in on_the_wire.items()}
laws = {"through rank 0": lambda n: n - 1, "ring": lambda n: 2 * (n - 1) / n}
figure = cu.plots.bytes_against_workers(
    {**counted, "real workers": real},
    laws,
    "sent by the busiest worker (arrays)",
    unit=1,
)
cu.plots.show(
    figure,
    alt="Arrays sent by the busiest worker against the number of workers. Through rank "
    "0: one more with each. On the ring: below two. Real workers: on the ring's line.",
)

# %% [markdown]
# **A worker on a ring never sends more than two arrays, be it one of three or one of three thousand.** That is why data parallelism scales. And the real workers lie on that line: this is what TensorFlow itself does.

# %% [markdown]
# ## What the ring pays
#
# Bytes are not everything. A message also takes its time to get there, however small it is: its *latency*. Count *rounds*: messages that must wait for each other. Sixteen ranks, on four machines of four:


# %% tags=["stable"]
def in_machines_of_4(arrays, network):
    return cu.communication.hierarchical_all_reduce(arrays, 4, network)


rounds = {}
print("                   rounds  messages  busiest rank sends  between machines")
for name, all_reduce in {
    "through rank 0": cu.communication.gather_and_broadcast,
    "ring": cu.communication.ring_all_reduce,
    "four machines of 4": in_machines_of_4,
}.items():
    network = cu.communication.Recorder(16)
    all_reduce([small] * 16, network)
    traffic, rounds[name] = network.traffic(), network.rounds
    busiest = max(traffic.bytes_sent) / small.nbytes
    between = traffic.bytes_across(4) / small.nbytes
    print(f"{name:18}{rounds[name]:7}{sum(traffic.messages):10}", end="")
    print(f"{busiest:13.2f} arrays{between:11.2f} arrays")

# %% [markdown]
# The ring takes as many rounds as the way through rank 0, and each carries a sixteenth of the bytes: unbeatable for large arrays. For small ones you pay for rounds and messages, and there the hierarchy is better: its machines add up at the same time, and fewer bytes leave a machine.
#
# So TensorFlow can pack many small gradients into one all-reduce (`CommunicationOptions(bytes_per_pack=…)`), and on GPUs leaves the choice to NCCL.

# %% [markdown]
# ## The same bits everywhere
#
# One more thing that the ring gives away for free. Rounding makes a sum depend on its order. If each rank collected all arrays and added them up by itself, starting with its own:

# %%
random = np.random.default_rng(0)
arrays = [random.normal(size=10_000).astype(np.float32) for _ in range(4)]
each_its_own = [sum(arrays[(rank + i) % 4] for i in range(4)) for rank in range(4)]
around_the_ring, _ = cu.communication.ring_all_reduce(arrays)


def differing(results):
    """How many numbers are not the same, bit by bit, on all ranks."""
    return int(np.any([result != results[0] for result in results], axis=0).sum())


print("each adds by itself:", differing(each_its_own), "of", len(arrays[0]), "differ")
print("around the ring:    ", differing(around_the_ring))

# %% [markdown]
# The differences are tiny, but they are there, and they would add up step after step: the replicas' weights would slowly drift apart, with nothing to bring them back. On the ring each chunk is summed **once**, and the result is copied. Every rank gets the same bits.

# %% [markdown]
# ## Exercise 03.1 · Write the ring
#
# `arrays[r]` is what rank r holds. `send(source, target, numbers)` carries numbers from rank to rank and returns what arrives there; it counts messages and bytes. Return a list with what each rank ends with. A rank may only use what it holds itself and what was sent to it.
#
# Checked by value, by messages *and* by bytes. About 10 lines.


# %% tags=["exercise"] exercise_id="03.ring_all_reduce"
def ring_all_reduce(arrays, send): ...


# %%
cu.check("03.ring_all_reduce", ring_all_reduce)

# %% [markdown]
# ## Exercise 03.2 · SUM or MEAN?
#
# Four replicas have tested shares of different size; one may even have none. Each knows how many examples it has `seen` and how many were `correct`. Return the accuracy over *all* examples, on every replica. `all_reduce("SUM", value)` and `all_reduce("MEAN", value)` are yours. About 1 line.


# %% tags=["exercise"] exercise_id="03.sum_or_mean"
def accuracy(correct, seen, all_reduce): ...


# %%
cu.check("03.sum_or_mean", accuracy)

# %% [markdown]
# ## Exercise 03.3 · What does one worker send?
#
# An array of `array_bytes` bytes is all-reduced over a ring of `workers` workers. Return the bytes that *one* worker sends. About 1 line.


# %% tags=["exercise"] exercise_id="03.bytes_per_worker"
def bytes_per_worker(workers, array_bytes): ...


# %%
cu.check("03.bytes_per_worker", bytes_per_worker)

# %% [markdown]
# ## What must be true now

# %%
for array in held["SUM"]:
    np.testing.assert_array_equal(array, np.sum(held["before"], axis=0))
for worker in workers:
    assert worker["SUM"]["holds"] == [6.0] and worker["MEAN"]["holds"] == [2.0]
    assert worker["gather"]["holds"] == [1.0, 2.0, 3.0]
    assert worker["gather"]["shape"] == (3 * NUMBERS,)
    sent = worker["gather"]["arrays sent"]
    assert np.isnan(sent) or abs(sent - 2) < 0.05  # NaN where the system does not tell
assert {traffic.total_bytes for traffic in ways.values()} == {2 * (8 - 1) * 4 * NUMBERS}
for n in range(2, 13):
    assert counted["ring"][n] == 2 * (n - 1) / n
    assert counted["through rank 0"][n] == n - 1
for n, sent in on_the_wire.items():
    assert np.isnan(sent).any() or np.allclose(sent, 2 * (n - 1) / n, rtol=0.02), sent
assert rounds["ring"] == rounds["through rank 0"] == 30
assert rounds["four machines of 4"] < 30
assert differing(around_the_ring) == 0 < differing(each_its_own)

# %% [markdown]
# > **Take away.** An all-reduce leaves the same sum with everyone, and on a ring each worker sends 2(n−1)/n arrays for it: less than two, however many workers there are.
#
# Next: [04 · Why is my loss 4 times too big?](04_loss_scaling.ipynb)
