# %% [markdown]
# # 13 · The network is the bottleneck. Now what?
#
# You rent eight machines instead of one, and the training takes longer than before. Nothing is broken. The machines spend their time waiting: for bytes to arrive, or for the slowest among them.
#
# **After this lesson** you can say which of the two it is, send fewer bytes without training another model, and give a slow machine its fair share of the work, and you can prove that the gradient is still the right one.
#
# *45 minutes · builds on lessons 03 (all-reduce), 04 (loss scaling) and 09 (workers)*

# %%
import time

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import numpy as np
import tensorflow as tf

cu.plots.style()
# %% tags=["parameters"]
profile = "laptop"
BATCH = 1024  # examples in a step, over all workers

# %% [markdown]
# ## What a step has to wait for
#
# After each step every worker has to get the sum of all gradients. On a ring of n workers it sends 2(n−1)/n arrays for that (lesson 03), each as large as the model. How long does that take? The network of lesson 05 has 175,514 weights, a ResNet-50 has 25.6 million:

# %% tags=["stable"]
print("two workers        100 Mbit/s     1 Gbit/s    25 Gbit/s")
for name, weights in {"lesson 05's": 175_514, "ResNet-50": 25_600_000}.items():
    links = [cu.cluster.Link(speed) for speed in ("100Mbit", "1Gbit", "25Gbit")]
    times = [1000 * link.seconds(2 * (2 - 1) / 2 * 4 * weights) for link in links]
    print(f"{name:16}", *(f"{milliseconds:9.1f} ms" for milliseconds in times))

# %% [markdown]
# That is for *one* step, and before it is over nobody can begin the next. Three things help: send fewer bytes a step, talk less often, or buy a faster network. This lesson does the first two.
#
# ## Fewer bits a number
#
# The obvious idea: send each number in 16 bits instead of 32. There are two ways to cut a float32 in half, and they lose different things.

# %% tags=["stable"]
numbers = np.array([3e-8, 0.1, 1 / 3, 70_000], np.float32)
for dtype in ("float32", "float16", "bfloat16"):
    back = tf.cast(tf.cast(numbers, dtype), tf.float32)
    print(f"{dtype:9}", *(f"{number:12.6g}" for number in back.numpy()))

# %% [markdown]
# `float16` keeps three decimal digits, but knows nothing above 65,504, and tiny gradients get coarse or vanish. `bfloat16` keeps the range of float32, with two digits.
#
# ## Fewer numbers
#
# The bolder idea, *top-k*: send only the few largest numbers, each with its place, and treat the rest as zero. With one number in a hundred, at 8 bytes each, that is a fiftieth of the bytes, between two workers. (Among n each needs n−1 such messages: with 100 workers nothing is saved.)
#
# ### Predict
#
# Two weights get the same gradients `[1.0, 0.3]` in every step, and only the larger of the two is sent. How far has the **second** weight moved after 10 steps, at a learning rate of 1?

# %% tags=["predict"]
my_guess = None


# %% tags=["stable"]
def top_1(steps, error_feedback):
    """How far two weights have moved, when only the larger one is sent."""
    gradient, moved, left = np.array([1.0, 0.3]), np.zeros(2), np.zeros(2)
    for _ in range(steps):
        wanted = gradient + left
        sent = np.where(np.abs(wanted) == np.abs(wanted).max(), wanted, 0)
        if error_feedback:
            left = wanted - sent  # what was not sent is not lost
        moved += sent
    return moved.round(2).tolist()


print("what is not sent is lost:", top_1(10, error_feedback=False))
print("kept for later:          ", top_1(10, error_feedback=True))
print("everything is sent:      ", [10.0, 3.0])

# %% [markdown]
# Without a memory the second weight **never moves**, not in a thousand steps. With *error feedback*, what was not sent is added to the next gradient. It grows until it is the largest, and then it goes. Nothing is lost; some things come late.
#
# ## The real thing
#
# `cu.compression` has these *ways* to sum gradients. They are called on a replica and do all the talking. That makes one thing important: **Keras' optimizers all-reduce in `apply`, always**, also what is summed already. So the update goes past that, with `apply_sums`.


# %%
data = cu.datasets.fashion_mnist()
images, labels = data.train_images[: 16 * BATCH], data.train_labels[: 16 * BATCH]


def loss_and_gradients(model, images, labels, batch):
    """The part of the mean loss that these examples contribute (lesson 04)."""
    with tf.GradientTape() as tape:
        losses = cu.training.per_example_loss(labels, model(images))
        loss = cu.training.average_loss(losses, batch)
    return loss, tape.gradient(loss, model.trainable_variables)


# %%
def trainer(
    strategy,
    way,
    dtype="float32",
    batch=BATCH,
    gradients_of=loss_and_gradients,
    apply=cu.compression.apply_sums,
):
    """A function () → loss that trains one step, its gradients summed in that way."""
    with strategy.scope():
        model = cu.models.mlp([512], seed=0, dtype=dtype)
        weights, optimizer = model.trainable_variables, keras.optimizers.SGD(0.1)
        optimizer.build(weights)
        way.build(weights)

    def on_a_replica(images, labels):
        loss, gradients = gradients_of(model, images, labels, batch)
        apply(optimizer, way(gradients), weights)  # distributed: `way` does the talking
        return loss

    step = tf.function(lambda batch: strategy.run(on_a_replica, args=batch))
    batches = cu.training.batches(strategy, (images, labels), batch)
    return lambda: strategy.reduce("SUM", step(next(batches)), axis=None)


def measure(ways, steps):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    trainers = {name: trainer(strategy, **how) for name, how in ways.items()}
    return cu.compression.compare(strategy, trainers, steps)


# %% [markdown]
# `measure` lets the ways take turns on the workers. It counts bytes as the operating system does, and seconds by the clock.
#
# The loopback of a laptop is faster than most networks. `Link` slows it down: a proxy between the workers lets bytes through only as fast as a cable would. It needs no special rights; each worker just gets a `TF_CONFIG` in which the others live at the proxy's ports.
#
# The model has 407,050 weights. Guess before you run the cell: how many times faster is a step with top-k 1 % than with float32, over a line of 100 Mbit/s? And over the loopback?

# %%
from course_utils.compression import Cast, TopK, TwoLevels

ways = {
    "float32": {"way": Cast("float32")},
    "float16": {"way": Cast("float16")},
    "bfloat16": {"way": Cast("bfloat16")},
    "top 1 %": {"way": TopK(0.01)},
}
forgetful = {"top 1 %, forgetful": {"way": TopK(0.01, error_feedback=False)}}
line = cu.LocalCluster(workers=2, output="quiet", link=cu.cluster.Link("100Mbit"))
quiet = cu.LocalCluster(workers=2, output="quiet")
slow = line.run(measure, ways, steps=5)[0]
fast = quiet.run(measure, ways | forgetful, steps=30)[0]

panels = {
    "sent by a worker (MB a step)": {way: slow[way].megabytes for way in ways},
    "100 Mbit/s (ms a step)": {way: 1000 * slow[way].seconds for way in ways},
    "loopback (ms a step)": {way: 1000 * fast[way].seconds for way in ways},
}
cu.plots.show(
    cu.plots.bars_side_by_side(panels),
    alt="Bars for float32, float16, bfloat16 and top 1 %. Bytes: whole, half, half, a "
    "fiftieth. At 100 Mbit/s steps get shorter with them; over the loopback hardly.",
)

# %% [markdown]
# ## When does it pay?
#
# **The same bytes are saved in both, but the slow line rewards it more.** There, float32's 1.63 MB alone take 130 ms. What is left with top-k is computing, which no compression shortens: a fiftieth of the bytes is far from a fiftieth of the time. (float16 and bfloat16 send equally much; how far apart their times are tells you how exact such times are.) Over the loopback there is less to win, and finding the largest hundredth of 407,050 numbers takes time of its own.
#
# So there is a *break-even*: compressing pays where sending the bytes that it saves would take longer than the compressing itself.

# %%
import timeit

for name, run in {"100 Mbit/s": slow, "loopback": fast}.items():
    faster = {way: run["float32"].seconds / run[way].seconds for way in ways}
    print(f"{name:10}", ", ".join(f"{way} {x:.1f}×" for way, x in faster.items()))

flat, kept = tf.random.normal([407_050]), TopK(0.01).count(407_050)
both_ways = tf.function(
    lambda: cu.compression.spread(*cu.compression.largest(flat, kept), len(flat))
)
both_ways()  # traces
work = min(timeit.repeat(both_ways, repeat=5, number=4)) / 4
saved = slow["float32"].megabytes - slow["top 1 %"].megabytes
print(f"{1000 * work:.1f} ms of work save {saved:.2f} MB: pays below", end=" ")
print(f"about {8 * saved / work:,.0f} Mbit/s")

# %%
losses = {way: cost.losses for way, cost in fast.items()}
sent = {way: cost.megabytes for way, cost in fast.items()}
cu.plots.show(
    cu.plots.losses_by_step_and_cost(losses, sent, "sent by each worker (MB)"),
    alt="Loss of five ways. Against steps: float32 and both 16-bit ways are one line, "
    "top 1 % joins later, the forgetful one stays above. Against MB: top 1 % is ahead.",
)

# %% [markdown]
# ## Does it still learn?
#
# Left against the steps, right against what these steps have sent. The 16-bit curves cannot be told from float32. Top-k starts more slowly, since what it keeps comes late, and then joins them. **The forgetful one stays behind**: what it did not send is lost. For the same bytes, top-k takes about fifty steps between two workers where float32 takes one.
#
# ## Is that compression?
#
# Which of these sends fewer bytes than float32? Decide before you run the cell: **(a)** the policy `mixed_bfloat16`, which computes in 16 bits; **(b)** gradients summed in float16 and then handed to `optimizer.apply`.

# %%
candidates = {
    "mixed_bfloat16": {"way": Cast("float32"), "dtype": "mixed_bfloat16"},
    "float16 + apply": {"way": Cast("float16"), "apply": lambda o, g, w: o.apply(g, w)},
}
policies = quiet.run(measure, candidates, steps=3)[0]
for name, cost in (fast | policies).items():
    print(f"{name:18} {cost.megabytes / fast['float32'].megabytes:5.2f} of the bytes")

# %% [markdown]
# Neither. Under a mixed policy the *weights* stay float32, and so do their gradients: **mixed precision is about computing, and sends exactly as much**. And (b) sends the gradients in 16 bits and then, in `apply`, once more in float32. It also adds up what was added up already, so its steps are twice as large as asked for.
#
# ## First inside, then between
#
# Two machines with two devices each. On a ring of four replicas each rank sends 2(n−1)/n = 1½ arrays to its neighbour, and one of a worker's two neighbours lives on the other worker. But inside a worker sending costs nothing. So add up inside *first*, and let one array a worker travel:


# %%
def count_arrays(ways, numbers, steps=3):
    """For each way: how many arrays this worker sends a step, and what the sum is."""
    cu.devices_per_worker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def trainer(way):
        def on_a_replica():
            me = tf.distribute.get_replica_context().replica_id_in_sync_group
            (total,) = way([tf.fill([numbers], tf.cast(me + 1, tf.float32))])
            return total[0]

        step = tf.function(lambda: strategy.run(on_a_replica))
        return lambda: strategy.experimental_local_results(step())[0]

    trainers = {name: trainer(way) for name, way in ways.items()}
    costs = cu.compression.compare(strategy, trainers, steps)
    array = 4 * numbers / 1e6
    return {name: (cost.megabytes / array, cost.losses) for name, cost in costs.items()}


two_by_two = cu.LocalCluster(workers=2, devices_per_worker=2, output="quiet")
levels = {"ring of four": Cast(), "two levels": TwoLevels()}
counted = two_by_two.run(count_arrays, levels, numbers=1_000_000)
for worker, found in enumerate(counted):
    for way, (arrays, totals) in found.items():
        print(f"worker {worker}, {way:12} {arrays:.2f} arrays sent, sum {totals[0]:g}")

# %% [markdown]
# Same sum, a third less on the wire: the hierarchical all-reduce of lesson 03, on real workers. With eight devices a machine it saves more. (On GPUs, NCCL finds out by itself who lives where.)
#
# ## Fewer, larger messages
#
# Bytes are one thing. The other is the *delay*: however little a message holds, it is under way for a while. So TensorFlow packs a model's gradients together; `CommunicationOptions` says how many bytes go into one pack. Fifty gradients of 4,000 bytes, over a link with a delay of 5 ms:


# %%
def in_packs(limits, steps=2):
    """For each limit: all-reduces in one step, kilobytes sent, and seconds for it."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def packed(limit):
        options = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=limit)

        def on_a_replica():
            me = tf.distribute.get_replica_context()
            gradients = [tf.ones([1000]) + 0 for _ in range(50)]
            return me.all_reduce("SUM", gradients, options=options)[0][0]

        return tf.function(lambda: strategy.run(on_a_replica))

    packs = {limit: packed(limit) for limit in limits}
    costs = cu.compression.compare(strategy, packs, steps)
    return {
        limit: (reduces_in(packs[limit]), 1000 * cost.megabytes, cost.seconds)
        for limit, cost in costs.items()
    }


def reduces_in(step):
    operations = step.get_concrete_function().graph.get_operations()
    return sum(op.type == "CollectiveReduceV2" for op in operations)


far = cu.LocalCluster(workers=2, output="quiet", link=cu.cluster.Link(delay="5ms"))
packs = far.run(in_packs, [0, 40_000, 4_000])[0]
for limit, (reduces, sent, seconds) in packs.items():
    print(f"{limit:6} bytes: {reduces:2} all-reduces,", end=" ")
    print(f"{sent:.0f} kB sent, {1000 * seconds:4.0f} ms")

# %% [markdown]
# Almost the same bytes. What grows is how often one waits for the delay. (Why not 50? TensorFlow closes a pack when it holds *more* than the limit, so two gradients of 4,000 bytes share one.) 0, the default, packs all into one; smaller packs are for models so large that sending the first gradients can begin while the last are still being computed.
#
# ## Talk less often
#
# A step sends the same bytes however many examples it has seen. So compute the gradients of several small batches, add them up *at home*, and meet once: *gradient accumulation*.


# %%
def in_pieces(model, images, labels, batch, pieces=4):
    """Loss and gradients as before, from small batches that are added up at home."""
    cut = zip(tf.split(images, pieces), tf.split(labels, pieces), strict=True)
    parts = [loss_and_gradients(model, *piece, batch) for piece in cut]
    losses, gradients = zip(*parts, strict=True)
    return tf.add_n(losses), [tf.add_n(each) for each in zip(*gradients, strict=True)]


recipes = {
    "all at once": {"way": Cast()},
    "in 4 pieces, meet once": {"way": Cast(), "gradients_of": in_pieces},
    "4 steps of a quarter": {"way": Cast(), "batch": BATCH // 4},
}
accumulated = quiet.run(measure, recipes, steps=4)[0]
for name, cost in accumulated.items():
    examples = recipes[name].get("batch", BATCH)
    sent = cost.megabytes * BATCH / examples
    print(f"{name:23} {sent:5.2f} MB for {BATCH} examples, loss {cost.losses[4]:.5f}")

# %% [markdown]
# The first two are the same training, to the last digits: **accumulation is just a larger batch** that fits into less memory (lesson 06 has what that means for the learning rate). Meeting after every quarter sends four times as much, and is another training.
#
# ## Workers of unequal speed
#
# Now the network is fine, but worker 1 is an old machine, a third as fast as worker 0. (`at_speed` imitates that: it sleeps for as long as such a machine would still be computing.) Each takes its share of every batch, and all wait for the last. `compute` and `finish` are two functions, so that a worker can tell what it does itself from how long it then waits.


# %%
SPEEDS = [24_000, 8_000]  # examples a second, of worker 0 and of worker 1


def train_in_shares(shares, weigh, steps=10):
    """The model's weights, and seconds a step: computing, and waiting to be done."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    me = strategy.cluster_resolver.task_id
    with strategy.scope():
        model = cu.models.mlp([128], seed=0)
        weights, optimizer = model.trainable_variables, keras.optimizers.SGD(0.1)

    def gradients_of_mine(images, labels):
        _, gradients = loss_and_gradients(model, images, labels, BATCH)
        return [gradient * weigh(shares[me]) for gradient in gradients]

    def update(mine):
        cu.compression.apply_sums(optimizer, Cast()(mine), weights)

    compute = tf.function(lambda *mine: strategy.run(gradients_of_mine, args=mine))
    finish = tf.function(lambda mine: strategy.run(update, args=(mine,)))
    seconds = []
    for first in range(sum(shares[:me]), steps * BATCH, BATCH):
        mine = slice(first, first + shares[me])
        batch = tf.constant(images[mine]), tf.constant(labels[mine])
        start = time.perf_counter()
        with cu.balance.at_speed(shares[me], SPEEDS[me]):
            gradients = compute(*batch)
        computed = time.perf_counter()
        finish(gradients)
        seconds.append((computed - start, time.perf_counter() - computed))
    return model.get_weights(), np.median(seconds, axis=0)


# %%
equal = quiet.run(train_in_shares, [BATCH // 2] * 2, lambda share: 1)
speeds = [BATCH / 2 / computing for _, (computing, _) in equal]
shares = cu.balance.shares(speeds, BATCH)
balanced = quiet.run(train_in_shares, shares, lambda share: 1)
print(f"measured: {speeds[0]:,.0f} and {speeds[1]:,.0f} examples a second")
panels = {
    f"{BATCH // 2} and {BATCH // 2} examples": [1000 * times for _, times in equal],
    f"{shares[0]} and {shares[1]} examples": [1000 * times for _, times in balanced],
}
cu.plots.show(
    cu.plots.waiting(panels),
    alt="A bar for each of two workers: computing, then waiting. With equal shares "
    "worker 0 waits for most of the step; by speed both compute for most of it.",
)

# %% [markdown]
# ## Is it still the right gradient?
#
# The shares come from what was *measured*. Every example counts once if each worker divides by the **global** batch, as `loss_and_gradients` does. If instead each takes the mean over *its* examples and these means are averaged, as one may with equal shares, then the examples in the small share count more than the others.

# %%
mean_of_means = lambda share: BATCH / share / 2  # noqa: E731 (from the sum to that)
averaged = quiet.run(train_in_shares, shares, mean_of_means)
one_device = cu.models.mlp([128], seed=0)
for first in range(0, 10 * BATCH, BATCH):
    batch = images[first : first + BATCH], labels[first : first + BATCH]
    _, gradients = loss_and_gradients(one_device, *batch, BATCH)
    for weight, gradient in zip(one_device.trainable_variables, gradients, strict=True):
        weight.assign_sub(0.1 * gradient)

trained = {"equal": equal, "by speed": balanced, "by speed, mean of means": averaged}
from_one_device = {}
for name, [(weights, _), _] in trained.items():
    apart = cu.training.largest_difference(weights, one_device.get_weights())
    from_one_device[name] = apart
    print(f"{name:24} {apart:.1e} from one device")

# %% [markdown]
# **Unequal shares are the same training, as long as no example counts more than another.** The mean of means is another one, and nothing reports it.
#
# Fixed shares suit machines that are *always* slower. Where the speed changes, let each worker fetch its next examples when it is ready: the tf.data service of lesson 08. It evens out the *input*; the all-reduce still waits for everyone.
#
# ## A learning rate for each worker?
#
# 0.1 for worker 0 and 0.3 for worker 1: once said in `SGD(rate)`, once by `assign` afterwards. In which case are the two still one model after three steps?


# %%
def rates_that_differ(rates, how):
    """The weight after each of three steps."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    mine = rates[strategy.cluster_resolver.task_id]
    with strategy.scope():
        weight = keras.Variable(1.0)
        optimizer = keras.optimizers.SGD(mine if how == "SGD(rate)" else rates[0])
        optimizer.build([weight])
    if how == "assign(rate)":
        optimizer.learning_rate.assign(mine)

    def on_a_replica():  # half of the gradient of weight²/2
        optimizer.apply([weight.value / 2], [weight])

    step = tf.function(lambda: strategy.run(on_a_replica))
    return [(step(), float(weight.numpy()))[1] for _ in range(3)]


rates = {}
for how in ("SGD(rate)", "assign(rate)"):
    rates[how] = quiet.run(rates_that_differ, [0.1, 0.3], how)
    for worker, weights in enumerate(rates[how]):
        print(f"{how:12} worker {worker}:", " → ".join(f"{w:.3f}" for w in weights))

# %% [markdown]
# Neither does what was meant. The learning rate is a variable like any other: **the chief's value is sent to all**, and 0.3 is lost without a word. Assigned later, each takes the *same* gradient times *another* rate, and **the workers are no longer one model**.
#
# What differs belongs *before* the sum: the third exercise.
#
# ## Exercise 13.1 · Compress, and lose nothing
#
# `gradient` is this worker's, a flat float32 array, `left` what it has kept so far. `meet(message)` sends an array, or a tuple of them, to everyone and returns the list of all messages. Return the sum that all apply, and what you keep. A message may have at most `budget` bytes, a tenth of the gradient's. About 10 lines.


# %% tags=["exercise"] exercise_id="13.compress"
def compress(gradient, left, budget, meet):
    """The pair (sum over the workers, what I keep)."""
    ...


# %%
cu.check("13.compress", compress)

# %% [markdown]
# ## Exercise 13.2 · Shares for unequal workers
#
# `speeds` are examples a second, one for each worker. Return two lists: how many examples of the batch each worker takes, in proportion to the speeds (less than one example off), and a factor for each. Every worker computes the *mean* gradient over its examples and multiplies it by its factor; then the results are summed. All examples must be used, and the sum must be the gradient of the whole batch. About 5 lines.


# %% tags=["exercise"] exercise_id="13.plan_shares"
def plan_shares(speeds, global_batch):
    """The pair (shares, factors)."""
    ...


# %%
cu.check("13.plan_shares", plan_shares)

# %% [markdown]
# ## Exercise 13.3 · A rate for each worker's examples
#
# Each worker has its own `rate`, by which *its* part of the gradient is to count, and all must stay one model. `gradient` is this worker's part of the whole: the parts are to be added up. Return the new weight. `all_reduce("SUM", value)` and `all_reduce("MEAN", value)` are yours. About 1 line.


# %% tags=["exercise"] exercise_id="13.update_with_rates"
def update_with_rates(weight, gradient, rate, all_reduce):
    """The new weight."""
    ...


# %%
cu.check("13.update_with_rates", update_with_rates)

# %% [markdown]
# ## What must be true now

# %%
whole = fast["float32"].megabytes
known = not np.isnan(whole)  # where the system counts at all
promised = zip(fast | policies, (1, 0.5, 0.5, 0.02, 0.02, 1, 1.5), strict=True)
for way, share in promised:
    assert not known or abs((fast | policies)[way].megabytes / whole - share) < 0.02
for way in ways:  # a slow line changes seconds, not bytes
    assert not known or abs(slow[way].megabytes / fast[way].megabytes - 1) < 0.05
for worker in counted:
    assert {totals[0] for _, totals in worker.values()} == {10}
    sent = [arrays for arrays, _ in worker.values()]
    assert not known or np.allclose(sent, [1.5, 1.0], rtol=0.02), sent
assert [reduces for reduces, *_ in packs.values()] == [1, 5, 25]
assert not known or max(sent for _, sent, _ in packs.values()) < 1.2 * packs[0][1]

for way in ("float16", "bfloat16"):
    np.testing.assert_allclose(fast[way].losses, fast["float32"].losses, rtol=0.02)
last = {way: np.mean(cost.losses[-5:]) for way, cost in fast.items()}
assert last["top 1 %"] < 1.15 * last["float32"] < last["top 1 %, forgetful"]
at_once, in_4, _ = (cost.losses for cost in accumulated.values())
np.testing.assert_allclose(in_4, at_once, rtol=1e-5)
assert sum(shares) == BATCH
assert max(from_one_device["equal"], from_one_device["by speed"]) < 1e-5
if abs(shares[0] / shares[1] - 1) > 0.05:  # as made, unless the machine is very busy
    assert from_one_device["by speed, mean of means"] > 1e-4
assert rates["SGD(rate)"][0] == rates["SGD(rate)"][1]  # one model, the chief's rate
assert rates["assign(rate)"][0] != rates["assign(rate)"][1]  # two models

# %% [markdown]
# > **Take away.** First find out what you wait for. If it is bytes, send fewer, keep what you did not send, and count them on the wire: what only *computes* in 16 bits sends as much as ever. If it is a slow worker, give it less, and let every example count once.
#
# Next: [14 · What is my job doing?](14_watching_a_job.ipynb)
