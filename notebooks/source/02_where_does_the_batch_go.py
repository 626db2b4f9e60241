# %% [markdown]
# # 02 · How is one batch cut over replicas?
#
# You write `.batch(16)`. Four replicas ask for work. Does each get 16 examples, or 4? What if 18 cannot be cut into four equal parts? And can a replica come away with nothing?
#
# **After this lesson** you can say which example goes to which replica in which step, choose between the two ways to distribute a dataset, and survive a replica that got nothing.
#
# *25 minutes · builds on lesson 01 (scope and run)*

# %%
import course_utils as cu
import numpy as np
import tensorflow as tf

strategy = cu.devices.mirrored(4)
cu.epoch_end_stall.enable()  # iterators end at once; lesson 05 tells why they would not

# %% tags=["parameters"]
profile = "laptop"
PER_REPLICA = 64  # images for each replica, in the last experiment

# %% [markdown]
# ## Examples with a number on their back
#
# Shapes tell how many examples a replica got, not *which*. So we train on nothing and just follow numbers: example 0, example 1, and so on.

# %%
numbers = tf.data.Dataset.range(36)
distributed = strategy.experimental_distribute_dataset(
    numbers.batch(16)
)  # distributed: hands the batches to the replicas

# %% [markdown]
# ### Predict
#
# The dataset hands out batches of 16, and there are 4 replicas. How many examples does replica 0 get in the first step: `16` or `4`? And which ones: `0, 1, 2, 3` or `0, 4, 8, 12`?

# %% tags=["predict"]
my_guess = None

# %% tags=["stable"]
batch = next(iter(distributed))
batch

# %% [markdown]
# `PerReplica` is a package for `strategy.run`: one tensor for each replica. **The batch in your pipeline is the global batch**, and each replica gets a contiguous quarter of it. Count the batch size once, for all replicas together, and the same pipeline serves 1, 4 or 400 of them.
#
# Let us draw it. `received` writes down what every replica gets, step by step.


# %%
def received(distributed, steps=None):
    """For each step, the ids that each replica got."""
    found = []
    for batch in distributed:
        if len(found) == steps:
            break
        shares = strategy.experimental_local_results(batch)
        found.append([share.numpy().tolist() for share in shares])
    return found


cu.plots.show(
    cu.plots.strips(received(distributed), title="36 examples in batches of 16"),
    alt="Three steps: each batch is cut into four contiguous, equal parts, the last "
    "of 4 examples too.",
)

# %% [markdown]
# Each batch is cut by itself. The last one holds only 4 examples, and so each replica gets one.
#
# ## When it does not divide
#
# 18 examples, 4 replicas: 4½ each is not possible.
#
# ### Predict
#
# Which shares? `5, 5, 4, 4` would be fair. `4, 4, 4, 6` gives the rest to the last. `4, 4, 4, 4` drops two. Then a batch of 6: who gets what?

# %% tags=["predict"]
my_shares_of_18 = None
my_shares_of_6 = None


# %%
def first_step(batch_size):
    dataset = numbers.batch(batch_size)
    return received(strategy.experimental_distribute_dataset(dataset), steps=1)[0]


SIZES = (16, 18, 4, 6)
firsts = [first_step(size) for size in SIZES]
cu.plots.show(
    cu.plots.strips(firsts, names=[f"batch of {size}" for size in SIZES]),
    alt="16 gives 4, 4, 4, 4; 18 gives 5, 5, 5, 3; 4 gives one each; 6 gives 2, 2, 2 "
    "and nothing.",
)

# %% [markdown]
# TensorFlow rounds **up**: everybody takes ⌈B / n⌉ as long as there is something left. So 18 becomes 5, 5, 5, 3. And 6 becomes 2, 2, 2 and **nothing**: there are more examples than replicas, and still one replica stands empty-handed.

# %% [markdown]
# ## What an empty replica does
#
# It does not sit out. `strategy.run` runs the same function on all replicas, and this one gets a tensor of length 0. Take the mean id over each share, and then the mean of the four:


# %% tags=["stable"]
@tf.function
def mean_of_share(ids):
    return tf.reduce_mean(tf.cast(ids, tf.float32))


batches, mean_of_means = {}, {}
for size in (6, 18):
    cut = strategy.experimental_distribute_dataset(numbers.batch(size))
    batches[size] = next(iter(cut))
    means = strategy.run(mean_of_share, args=(batches[size],))
    mean_of_means[size] = float(strategy.reduce("MEAN", means, axis=None))
mean_of_means

# %% [markdown]
# The mean over nothing is `nan`, and one `nan` poisons the whole. The batch of 18 has no empty share and is wrong all the same. The mean of 0 … 17 is 8.5; the mean of means gives the short share of three the weight of a long one.
#
# ### Add up, count, divide once
#
# That is the cure. With `axis=0`, `reduce` does it, over the examples of all replicas:

# %% tags=["stable"]
whole = {
    size: float(strategy.reduce("MEAN", batch, axis=0))
    for size, batch in batches.items()
}
whole

# %% [markdown]
# Lesson 04 makes a loss of it. Or avoid short batches: `drop_remainder=True` drops the last batch if it is short. Only that one; a size that the replicas do not divide is cut unevenly, as before:

# %% tags=["stable"]
for size in (16, 6):
    dataset = numbers.batch(size, drop_remainder=True)
    dropped = received(strategy.experimental_distribute_dataset(dataset))
    last = [len(ids) for ids in dropped[-1]]
    print(f"batches of {size}: {len(dropped)} steps, the last with shares of {last}")

# %% [markdown]
# ## The other way: a function for each worker
#
# `distribute_datasets_from_function` calls a function of yours once for each worker and takes its dataset **as it is**: nothing is cut. Every replica takes a whole batch, in turn. The function is told where it runs:


# %% tags=["stable"]
def dataset_function(context):
    pipelines, replicas = context.num_input_pipelines, context.num_replicas_in_sync
    print(f"{pipelines} pipeline for {replicas} replicas")
    return numbers.batch(context.get_per_replica_batch_size(16))


from_function = strategy.distribute_datasets_from_function(dataset_function)
same_as_before = received(from_function) == received(distributed)

# %% [markdown]
# One worker, so one pipeline, feeding four replicas. It is this function that must know how many there are. With the global 16 divided by the replicas, is the result the same as before?

# %%
cu.plots.show(
    cu.plots.strips(received(from_function), title="Batches of 4 from a function"),
    alt="The same as before, but in the last step replica 0 gets all four examples, "
    "the others none.",
)
{"the same ids for the same replicas": same_as_before}

# %% [markdown]
# Nearly. The whole steps agree. But the last batch is handed over as it is: replica 0 takes all four, the others nothing.
#
# ## Two ways to be wrong by a factor of four
#
# One pipeline counts the batch for all replicas, the other for one. Mix them up, and nothing complains:


# %%
def distribute(batch_size, cut):
    dataset = tf.data.Dataset.range(64).batch(batch_size)
    if cut:
        return strategy.experimental_distribute_dataset(dataset)
    return strategy.distribute_datasets_from_function(lambda context: dataset)


WAYS = {
    "cut, batch(16)": (16, True),
    "function, batch(4)": (4, False),
    "cut, batch(4)": (4, True),
    "function, batch(16)": (16, False),
}
steps = {name: received(distribute(*way), steps=1)[0] for name, way in WAYS.items()}

# %%
short = [[ids[:4] for ids in step] for step in steps.values()]
title = "First step (at most 4 ids of each replica are drawn)"
cu.plots.show(
    cu.plots.strips(short, names=list(steps), title=title),
    alt="Cutting 16 and a function with 4 agree; cutting 4 gives one each; a "
    "function with 16 gives 16 each.",
)
{name: sum(map(len, step)) for name, step in steps.items()}  # examples

# %% [markdown]
# Above, two ways to the same step of 16 examples. Below, **divided twice** (4 a step, so four times as many updates) and **never divided** (64 a step, so a quarter of them). The training runs in each case, with another batch size than the one that you tuned your learning rate for.
#
# | | `experimental_distribute_dataset` | `distribute_datasets_from_function` |
# |---|---|---|
# | you batch for | all replicas | one replica |
# | who cuts | TensorFlow | you |
# | several workers | sharded for you | you shard |
# | take it when | you have one dataset | you must decide who reads what |

# %% [markdown]
# ## Real images
#
# The training and the test set of Fashion-MNIST, with 64 images for each replica. One number is chosen, `PER_REPLICA`; the global batch follows from the strategy.

# %%
data = cu.datasets.fashion_mnist()
global_batch = PER_REPLICA * strategy.num_replicas_in_sync


def distributed_images(images, labels):
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(global_batch)
    return strategy.experimental_distribute_dataset(dataset)


train = distributed_images(data.train_images, data.train_labels)
test = distributed_images(data.test_images, data.test_labels)
images, labels = next(iter(train))
[share.shape for share in strategy.experimental_local_results(images)]

# %% [markdown]
# Does every image reach exactly one replica? Count what each replica gets in each step, over both sets from beginning to end:


# %% tags=["stable"]
local = strategy.experimental_local_results


def share_sizes(distributed):
    """Images by step and replica: shape (steps, replicas)."""
    return np.array([list(map(len, local(labels))) for _, labels in distributed])


sizes = {"training": share_sizes(train), "test": share_sizes(test)}
for name, of in sizes.items():
    print(f"{name}: {len(of)} steps, first {of[0]}, last {of[-1]}, sum {of.sum():,}")

# %% [markdown]
# All images, once each. The last batch is short, and everyone has its part of it. Had the test set held a single image more than whole batches, three replicas would have got nothing. **Whatever you average, be ready for an empty share.**

# %% [markdown]
# ## Exercise 02.1 · Keep the global batch
#
# Write the function for `distribute_datasets_from_function`: it gets the context, an unbatched dataset and the *global* batch size, and returns a dataset with which one step over all replicas takes exactly `global_batch` examples. If that is not possible, let it raise a `ValueError` instead of taking some other number. There is one worker, so no sharding. About 1 line.


# %% tags=["exercise"] exercise_id="02.keep_the_global_batch"
def keep_the_global_batch(context, dataset, global_batch):
    """A dataset of which each replica takes one whole batch in a step."""
    ...


# %%
cu.check("02.keep_the_global_batch", keep_the_global_batch)

# %% [markdown]
# ## Exercise 02.2 · Predict the split
#
# Write `shares`: the number of examples that each replica gets when `experimental_distribute_dataset` cuts a batch, as a list with one number for each replica. The check compares with what TensorFlow does. About 3 lines.


# %% tags=["exercise"] exercise_id="02.shares"
def shares(batch_size, replicas):
    """How many examples each replica gets of one batch, as a list."""
    ...


# %%
cu.check("02.shares", shares)

# %% [markdown]
# ## Exercise 02.3 · Pick the right function
#
# Two colleagues hand you finished datasets, already batched: one for `"all replicas"` together (the global batch), one for `"one replica"`. Distribute either, so that every replica gets the number of examples that was meant for it, and no example goes to two replicas. About 3 lines.


# %% tags=["exercise"] exercise_id="02.pick_the_function"
def pick_the_function(strategy, dataset, batched_for):
    """The dataset, distributed as it was meant."""
    ...


# %%
cu.check("02.pick_the_function", pick_the_function)

# %% [markdown]
# ## What must be true now

# %%
lengths = [[len(ids) for ids in step] for step in firsts]
assert lengths == [[4, 4, 4, 4], [5, 5, 5, 3], [1, 1, 1, 1], [2, 2, 2, 0]]
for size, step in zip(SIZES, firsts, strict=True):
    in_order = [example for ids in step for example in ids]
    assert in_order == list(range(size))  # none lost, none twice

assert np.isnan(mean_of_means[6]) and mean_of_means[18] != np.arange(18).mean()
assert whole == {size: np.arange(size).mean() for size in (6, 18)}
assert steps["cut, batch(16)"] == steps["function, batch(4)"]
assert sizes["training"].sum() == len(data.train_labels)
in_order = np.concatenate([share for _, labels in test for share in local(labels)])
np.testing.assert_array_equal(in_order, data.test_labels)  # every test image, once

# one image more than whole batches: three replicas get nothing
assert [len(ids) for ids in first_step(1)] == [1, 0, 0, 0]

# %% [markdown]
# > **Take away.** `experimental_distribute_dataset` cuts a global batch, rounding up; a dataset function hands out batches for one replica. Divide once, and never average a share that may be empty.
#
# Next: [03 · What does an all-reduce compute, and what does it cost?](03_all_reduce.ipynb)
