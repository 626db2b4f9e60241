# %% [markdown]
# # 00 · Can this machine train like a cluster?
#
# You have one computer, perhaps without a GPU. The course needs several *devices* that train together, and several *processes* that find each other over a network. This lesson looks at what you have, makes four devices out of one processor, lets two processes shake hands, and gives each thing its name.
#
# **After this lesson** you know that your machine is ready, and you can say what a device, a replica, a worker, a mirrored variable and a global batch are, because you have counted each of them.
#
# *20 minutes · the first lesson*

# %%
import os

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import tensorflow as tf
from course_utils import doctor

cu.plots.style()
four = cu.devices.simulate(4)

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## What is in this machine?
#
# `doctor` looks at all that the course needs. `ok` is good, `note` is worth knowing, and a `problem` comes with its cure. Mend a problem first: a lesson that fails later will not say why so plainly.

# %%
checks = doctor.examine()
for check in checks:
    print(f"{check.state:<9}{check.name:<12}{check.seen}")
    if check.cure:
        print(" " * 21 + "what to do: " + check.cure)

# %% [markdown]
# No GPU is needed, and two cores are enough. One line deserves a second look: **`TF_CONFIG`**. It is the note by which a process learns that it belongs to a cluster (lesson 07). If an old experiment left it in your shell, every process believes that it is somebody's worker, and waits for partners who will never come. This is what the doctor says then:

# %% tags=["stable"]
stale = {"TF_CONFIG": '{"cluster": {"worker": ["gone:2222"]}}'}
print(doctor.tf_config(stale).state, "→", doctor.tf_config(stale).cure)

# %% [markdown]
# ## Four devices from one processor
#
# A **device** is a place where TensorFlow keeps tensors and computes with them: a GPU, a TPU core, or the processor. In the set-up cell, `simulate(4)` cut this machine's processor into four *virtual* devices (where there are four GPUs, it takes those). Each has tensors of its own. They share the cores, so nothing gets faster; but what is right on four of them is right on four GPUs.

# %%
devices = [device.name[-5:] for device in tf.config.list_logical_devices()]
print("cores:  ", doctor.cores().seen)
print("devices:", devices)

# %% [markdown]
# ### Predict
#
# A `MirroredStrategy` over all four devices: how many **replicas** of a model will it keep? As many as the cores, one, or four? Write down your guess before you run on.

# %% tags=["predict"]
my_guess = None

# %% tags=["stable"]
strategy = cu.devices.mirrored(4)
print(strategy.num_replicas_in_sync, "replicas")

# %% [markdown]
# A **replica** is one copy of the model, on one device. The number of cores did not matter. `strategy.num_replicas_in_sync` is the number to ask for, and the one that every formula of this course uses.
#
# ## What each replica holds
#
# A variable made inside `strategy.scope()` is a **mirrored variable**: it has one copy on each replica. All copies start equal.

# %% tags=["stable"]
with strategy.scope():
    weight = tf.Variable(0.0)

copies = strategy.experimental_local_results(weight)
print({copy.device[-5:]: float(copy) for copy in copies})

# %% [markdown]
# ## One step of data parallelism
#
# Sixteen numbers are to be fitted by one weight. They are the **global batch**: what all replicas together see in one step. Each replica takes four of them, its *per-replica batch*, and computes a gradient from those alone.

# %%
x = tf.range(1.0, 17.0)
y = 2 * x  # the weight that we look for is 2
examples = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)  # the global batch
batch = next(iter(strategy.experimental_distribute_dataset(examples)))


@tf.function
def step(x, y):
    replica = tf.distribute.get_replica_context()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((weight * x - y) ** 2) / 16
    mine = tape.gradient(loss, weight)
    everyones = replica.all_reduce("SUM", mine)  # distributed: the only exchange
    weight.assign_sub(0.005 * everyones)
    return {"first x": x[0], "last x": x[-1], "my gradient": mine, "sum": everyones}


# %% [markdown]
# ### Predict
#
# Four replicas, four different shares, four different gradients. After the step, will the four copies of `weight` be equal or different?

# %% tags=["predict"]
my_guess = None

# %% tags=["stable"]
seen = {
    name: strategy.experimental_local_results(value)
    for name, value in strategy.run(step, args=batch).items()
}
seen["weight after"] = strategy.experimental_local_results(weight)
print(f"{'':<16}" + "".join(f"replica {i:<6}" for i in range(4)))
for name, values in seen.items():
    print(f"{name:<16}" + "".join(f"{value.numpy():<14.2f}" for value in values))

# %% [markdown]
# Read it line by line. The examples differ, so the gradients differ. They are added up by an **all-reduce** (lesson 03), after which every replica holds the same sum. Each then makes the same update to an equal copy, so the copies stay equal.
#
# **Gradients are exchanged; weights never are.** That is data parallelism: the model copied, the data shared out, the gradients added up.

# %%
cu.plots.show(
    cu.plots.one_step(
        gradients=[value.numpy() for value in seen["my gradient"]],
        summed=[value.numpy() for value in seen["sum"]],
        weights=[value.numpy() for value in seen["weight after"]],
    ),
    alt="Four replicas: own gradients differ; the sum and the new weight are equal.",
)

# %% [markdown]
# ## Two processes shake hands
#
# Until now everything happened inside this notebook's process. A **worker** is a process of its own, on this machine or on another, with one or more devices. `LocalCluster` starts real ones: they open ports, find each other through `TF_CONFIG`, and talk over TCP as machines in a data centre do. Each runs the same function, from its first line, like a script.


# %%
def shake_hands():
    """What one worker knows of itself, and the sum of 1 over all replicas."""
    # distributed: this line waits until all workers have come
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    one_hand = tf.function(lambda: tf.constant(1))
    hands = strategy.reduce("SUM", strategy.run(one_hand), axis=None)
    devices = strategy.extended.worker_devices
    return {
        "process": os.getpid(),
        "worker": strategy.cluster_resolver.task_id,
        "devices": [device.rpartition("/device:")[2] for device in devices],
        "replicas in the cluster": strategy.num_replicas_in_sync,
        "hands shaken": int(hands),
    }


# %% [markdown]
# ### Predict
#
# Two workers with **two devices each**. How many replicas are in step: `2`, because there are two processes, or `4`? And what sum does each worker get?

# %% tags=["predict"]
my_guess = None

# %%
with cu.LocalCluster(workers=2, devices_per_worker=2) as cluster:
    workers = cluster.run(shake_hands)

for key in workers[0]:
    print(f"{key:<25}" + "".join(f"{one[key]!s:<22}" for one in workers))

# %% [markdown]
# Two process numbers, neither of them this notebook's. Two devices on each side, **four replicas in one cluster**, and on both workers the same sum: each has heard from all. Here is the map, drawn from what they reported.

# %%
cu.plots.show(
    cu.plots.device_map([worker["devices"] for worker in workers]),
    alt="One machine, two workers, two replicas in each, a device for each replica.",
)

# %% [markdown]
# ## The words
#
# | word | what it is | read it from |
# |---|---|---|
# | device | a place that computes: GPU, TPU core, (virtual) CPU | `tf.config.list_logical_devices()` |
# | replica | one copy of the model, on one device | `strategy.num_replicas_in_sync` |
# | worker | one process, with one or more replicas | `strategy.cluster_resolver.task_id` |
# | mirrored variable | one variable, with a copy on each replica | `strategy.experimental_local_results(v)` |
# | global batch | the examples of one step, over all replicas | replicas × per-replica batch |
# | data parallelism | the model copied, the data shared out, the gradients added up | |
#
# Beware of texts in which a *worker* is "a copy of the model": that is a replica.

# %% [markdown]
# ## Exercise 00.1 · How many replicas?
#
# Write `count_replicas`. It gets a `MirroredStrategy`, over some of the devices or all, and returns how many replicas it keeps in step. About 1 line.
#
# Every exercise works like this one: fill in the cell, run it and the check below it. `cu.hint("00.count_replicas")` helps a little at a time, `cu.solution(…)` shows an answer, and `cu.progress()` tells how far you are.


# %% tags=["exercise"] exercise_id="00.count_replicas"
def count_replicas(strategy):
    # about 1 line
    ...


# %%
cu.check("00.count_replicas", count_replicas)

# %% [markdown]
# ## Exercise 00.2 · The global batch
#
# Each replica takes `per_replica_batch` examples a step. How large is the global batch on a cluster of `workers` processes with `replicas_per_worker` replicas each? About 1 line.


# %% tags=["exercise"] exercise_id="00.global_batch_size"
def global_batch_size(per_replica_batch, workers, replicas_per_worker):
    # about 1 line
    ...


# %%
cu.check("00.global_batch_size", global_batch_size)

# %% [markdown]
# ## A larger model on more devices?
#
# "More machines, more memory, so larger models": you will read this about data parallelism. Let us weigh it. The same network and a global batch of 2,048 images on 1, 2 and 4 replicas: how many bytes lie on the first replica?


# %%
def bytes_on_a_replica(replicas, images):
    """Bytes that the first replica holds: weights, momentum, its share of the batch."""
    strategy = cu.devices.mirrored(replicas)
    with strategy.scope():
        model = cu.models.mlp((512, 512))
        optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
    data = tf.data.Dataset.from_tensor_slices(images).batch(len(images))
    share = next(iter(strategy.experimental_distribute_dataset(data)))

    def first(value):
        here = strategy.experimental_local_results(getattr(value, "value", value))[0]
        return here.dtype.size * int(tf.size(here))

    return {
        "weights": sum(map(first, model.weights)),
        "momentum": sum(map(first, optimizer.variables[2:])),
        "share of the batch": first(share),
    }


# %%
images = cu.datasets.fashion_mnist().train_images[:2048].astype("float32")
held = {n: bytes_on_a_replica(n, images) for n in (1, 2, 4)}
cu.plots.show(
    cu.plots.bytes_per_replica(held),
    alt="With more replicas, only the share of the batch on each of them shrinks.",
)

# %% [markdown]
# ## What data parallelism does not do
#
# The weights and the optimizer's numbers are there in full on every replica. Only the examples, and what the layers make of them, are shared out. So data parallelism trains **faster** and on **larger batches**, never a **larger model**: one that does not fit on one device does not fit on a thousand.
#
# What does help then: layers cut over devices (*tensor parallelism*, `keras.distribution`) or put one after the other on them (*pipeline parallelism*); optimizer numbers and weights shared out over the replicas (ZeRO, FSDP); embeddings spread over parameter servers (lesson 15); activations recomputed instead of kept.

# %% [markdown]
# ## Exercise 00.3 · Does it fit?
#
# What must one replica's device hold in training? The weights (`weight_bytes`), a gradient for each weight, `slots` numbers of the optimizer for each weight (momentum 1, Adam 2), and its own examples with all that the layers make of them (`bytes_per_example`). `slots` counts numbers, not bytes; each of them, like a gradient, is as large as a weight. Return bytes. About 2 lines.


# %% tags=["exercise"] exercise_id="00.memory_per_replica"
def memory_per_replica(weight_bytes, slots, bytes_per_example, global_batch, replicas):
    # about 2 lines
    ...


# %%
cu.check("00.memory_per_replica", memory_per_replica)

# %% [markdown]
# ## What must be true now

# %%
needed = {"packages", "TensorFlow", "data", "TF_CONFIG"}
assert not [
    check for check in checks if check.name in needed and check.state == doctor.PROBLEM
]
assert strategy.num_replicas_in_sync == len(four) == 4
assert len({float(value) for value in seen["my gradient"]}) == 4  # all different,
assert (
    len({float(value) for value in seen["weight after"]}) == 1
)  # and the copies equal
assert len({worker["process"] for worker in workers} | {os.getpid()}) == 3
assert [worker["hands shaken"] for worker in workers] == [4, 4]
assert (
    held[1]["weights"] == held[4]["weights"]
    and held[1]["share of the batch"] == 4 * held[4]["share of the batch"]
)

# %% [markdown]
# > **Take away.** A worker is a process, a replica is a copy of the model on one device, and the global batch is what all replicas see in one step. Copy the model, share out the data, add up the gradients.
#
# Next: [01 · What does a mirrored variable mirror?](01_mirrored_variables.ipynb)
