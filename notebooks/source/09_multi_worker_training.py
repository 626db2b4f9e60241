# %% [markdown]
# # 09 · Do two processes stay one model?
#
# Two processes, each with a model of its own, each with half of every batch. Nobody copies weights from one to the other while they train. And yet, after a thousand steps, they are to be *one* model.
#
# **After this lesson** you can train on several workers in both ways, with `Model.fit` and with your own loop, you can prove that the workers stay one model, and you know what does *not* stay equal by itself.
#
# *35 minutes · builds on lessons 01 (what is mirrored), 04 (loss), 05 (loop) and 07 (TF_CONFIG)*

# %%
import hashlib
import runpy
import tempfile
from pathlib import Path

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## The job
#
# A small network on real images: 20 steps over a global batch of 64, by plain SGD. Small enough to run it in every way there is, and to look at every step.
#
# `train_with_fit` trains it under whatever strategy it is given, and keeps the weights after every step. **One line differs from a program for a single device**, and it is marked.

# %%
cu.plots.style()
cu.devices.simulate(2)
data = cu.datasets.fashion_mnist()
images, labels = data.train_images[:1280], data.train_labels[:1280]
BATCH, STEPS = 64, 20


def make_model():
    model = cu.models.mlp([32], seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])
    return model


def train_with_fit(strategy):
    """The weights after each step: a list of arrays a step."""
    after = []
    with strategy.scope():  # distributed: all variables are made in here
        model = make_model()
    keep = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: after.append(model.get_weights())
    )
    model.fit(images, labels, BATCH, shuffle=False, verbose=2, callbacks=[keep])
    return after


# %% [markdown]
# ## On two workers, as Keras 3 comes
#
# `LocalCluster` starts two processes. Each makes its `MultiWorkerMirroredStrategy`, finds the other by its `TF_CONFIG`, and calls `train_with_fit`.


# %%
def on_worker(train):
    return train(tf.distribute.MultiWorkerMirroredStrategy())


quiet = cu.LocalCluster(workers=2, output="quiet")
try:
    quiet.run(on_worker, train_with_fit)
    refused = None
except cu.cluster.WorkerError as error:
    refused = error.seen
print(refused)

# %% [markdown]
# That is keras-team/keras#20585, open for a long time: Keras 3's `fit` raises as soon as there is a second worker. The course mends it. `cu.keras_multiworker.enable()` replaces a few of Keras' functions, in the versions that it was tested with, and refuses all others. It has to be called where the training runs: **on the workers**.
#
# ### Predict
#
# Below, worker 0 and worker 1 each print the line that `fit` prints. Worker 0 sees the first half of each batch, worker 1 the second half. Will they print the same loss and accuracy, or each those of its own half?

# %% tags=["predict"]
my_guess = None


# %%
def on_mended_worker(train):
    cu.keras_multiworker.enable()
    return train(tf.distribute.MultiWorkerMirroredStrategy())


cluster = cu.LocalCluster(workers=2)
by_fit = cluster.run(on_mended_worker, train_with_fit)

# %% [markdown]
# The same numbers. Before `fit` prints, the counts behind loss and accuracy are added up over both workers. Each worker reports the training of *all*, not its own half. (The seconds are each worker's own.)
#
# ## Is it one model?
#
# A *digest* is a fingerprint of all weights: one bit more or less, and it is another one. Here is one for each worker after every step.


# %%
def digest(weights):
    """Eight characters that stand for all bits of a list of arrays."""
    return hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest()[:8]


print("step   worker 0   worker 1")
for step, (on_0, on_1) in enumerate(zip(*by_fit, strict=True), start=1):
    equal = "equal" if digest(on_0) == digest(on_1) else "DIFFERENT"
    print(f"{step:4}   {digest(on_0)}   {digest(on_1)}   {equal}")

# %% [markdown]
# Not close: **equal in every bit, after every step**. Two facts make it so.
#
# First, they **start** equal. When the model is made, the chief's initial values are sent to all (a *broadcast*). Even if each worker draws from a seed of its own:


# %%
def first_weights(strategy):
    with strategy.scope():
        model = cu.models.mlp([32], seed=strategy.cluster_resolver.task_id)
    return digest(model.get_weights())


started = quiet.run(on_worker, first_weights)
started

# %% [markdown]
# Second, they **move** equally. Each worker has its own gradient, but applies the sum that the all-reduce left on both of them, and that sum is the same bits everywhere (lesson 03).
#
# Weights are never compared and never repaired. If they once parted, nothing would bring them back.
#
# ## Is it the *right* model?
#
# Two workers could agree on something wrong. So here is the other way to train, a loop of your own, and then both ways are held against **one device**. Look for `# distributed:` again.
#
# `train_step` divides the losses by the *global* batch (lesson 04) and applies its gradients, which is where the all-reduce happens (lesson 05). None of it knows how many processes there are.


# %%
def train_with_a_loop(strategy, build=make_model):
    """(weights, statistics) after each step: what is trained, and what is not."""
    with strategy.scope():  # distributed: all variables are made in here
        model, optimizer = build(), keras.optimizers.SGD(0.05)
        optimizer.build(model.trainable_variables)
    on_a_replica = cu.training.train_step(model, optimizer, BATCH)
    batches = cu.training.evaluation_data((images, labels), BATCH)
    batches = iter(strategy.experimental_distribute_dataset(batches))  # distributed

    @tf.function
    def step(batch):
        strategy.run(on_a_replica, args=batch)  # distributed: on every replica

    after = []
    for _ in range(STEPS):
        step(next(batches))
        kinds = model.trainable_variables, model.non_trainable_variables
        after.append([[v.numpy() for v in variables] for variables in kinds])
    return after


# %%
one_device = train_with_fit(tf.distribute.get_strategy())
by_loop = quiet.run(on_worker, train_with_a_loop)
ways = {
    "fit on 2 workers": by_fit[0],
    "loop on 2 workers": [weights for weights, _ in by_loop[0]],
    "fit on 2 replicas of one process": train_with_fit(cu.devices.mirrored(2)),
}

distance = cu.training.largest_difference
from_one_device = {
    name: max(map(distance, after, one_device)) for name, after in ways.items()
}
for name, difference in from_one_device.items():
    print(f"{name:34} at most {difference:.1e} from one device")

# %% [markdown]
# ## The same training, four times
#
# Two workers, two replicas, `fit`, a loop: **all of them are the training that one device would have done**, but for the last bits of a float32. (Sums in another order round differently: that is why this comparison has a tolerance, and the one between workers has none.)

# %% [markdown]
# ## What does not stay equal
#
# Now give the model a BatchNormalization layer. In training it normalises by the mean and variance of the batch, and keeps moving averages of both for evaluation.
#
# ### Predict
#
# After 20 steps with this layer, what is equal on both workers: the kernels? The layer's own `gamma` and `beta`? Its moving mean?

# %% tags=["predict"]
my_guess = {"kernels": None, "gamma and beta": None, "moving mean": None}


# %%
def with_batch_norm():
    layers = [
        keras.layers.Rescaling(1 / 255),
        keras.layers.Flatten(),
        keras.layers.Dense(32, "relu"),
        keras.layers.BatchNormalization(momentum=0.9),  # 20 steps are few: learn fast
        keras.layers.Dense(10),
    ]
    return keras.Sequential([keras.Input((28, 28, 1)), *layers])


with_norm = quiet.run(
    on_worker, lambda strategy: train_with_a_loop(strategy, with_batch_norm)
)
apart = {"weights": [], "moving mean and variance": []}
for on_0, on_1 in zip(*with_norm, strict=True):
    for kind, values_0, values_1 in zip(apart, on_0, on_1, strict=True):
        apart[kind].append(distance(values_0, values_1))
cu.plots.show(
    cu.plots.differences(
        apart,
        ylabel="largest difference",
        title="How far apart are worker 0 and worker 1?",
    ),
    alt="Difference between the workers after each of 20 steps: weights exactly 0 in "
    "every step, BatchNormalization's moving statistics far above from the first on.",
)

# %% [markdown]
# `gamma` and `beta` are weights: they have gradients, and stay equal like all others. The moving mean has none. Each worker averages what *it* saw, and it saw another half of every batch.
#
# Nothing reports this. The loss falls, the digests of the weights agree. But ask the two what they see in the same pictures:


# %%
def rebuilt(weights, statistics):
    """A plain model with what one worker had after its last step."""
    model = with_batch_norm()
    kinds = model.trainable_variables, model.non_trainable_variables
    for variables, values in zip(kinds, (weights, statistics), strict=True):
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    return model


pictures = data.test_images
answers = [
    rebuilt(*after[-1]).predict(pictures, 500, 0).argmax(1) for after in with_norm
]
disagree = int((answers[0] != answers[1]).sum())
print(f"The workers disagree about {disagree} of {len(pictures):,} test images.")

# %% [markdown]
# **Same weights, but not the same model.** Which of the two goes into the checkpoint depends on who writes it. Lesson 01 showed the same between replicas; here the copies live in different processes, where nobody sees both.
#
# ## Dropout: equal where it should not be
#
# The opposite case. A Dropout layer draws its mask from a counter, and the counter is a mirrored variable: equal on all replicas. This layer remembers its last mask.


# %%
class RememberMask(keras.layers.Dropout):
    def build(self, input_shape):
        self.kept = self.add_weight(shape=(16,), initializer="zeros", trainable=False)

    def call(self, inputs, training=False):
        dropped = super().call(inputs, training=training)
        self.kept.assign(dropped[0])
        return dropped


def masks(strategy):
    """The masks of this worker's replicas, in a loop of your own and in `fit`."""
    ones = tf.ones([8, 16])
    with strategy.scope():
        layer = RememberMask(0.5, seed=7)
        model = keras.Sequential([keras.Input((16,)), layer, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    tf.function(lambda: strategy.run(lambda: model(ones, training=True)))()
    in_a_loop = strategy.experimental_local_results(layer.kept.value)
    in_a_loop = [copy.numpy() > 0 for copy in in_a_loop]
    model.fit(ones, ones[:, :1], batch_size=8, verbose=0)
    in_fit = strategy.experimental_local_results(layer.kept.value)
    return in_a_loop, [copy.numpy() > 0 for copy in in_fit]


# %%
two_by_two = cu.LocalCluster(workers=2, devices_per_worker=2, output="quiet")
workers = two_by_two.run(on_mended_worker, masks)
in_a_loop, in_fit = ([mask for worker in workers for mask in worker[i]] for i in (0, 1))
cu.plots.show(
    cu.plots.masks({"a loop of your own": in_a_loop, "the mended fit": in_fit}),
    alt="Masks of 16 units on four replicas, two on each of two workers. In a loop all "
    "four are the same; in the mended fit each replica has one of its own.",
)

# %% [markdown]
# Two workers with two replicas each. In a loop, Keras switches off the same units everywhere; the four replicas add less noise than you asked for. `keras_multiworker` mends that in `fit`: it folds the replica's number into the seed. The counter itself stays equal on all workers, so that they stay one model, and the run can be repeated to the last bit.

# %% [markdown]
# ## Who may print?
#
# Two workers print two lines; a hundred print a hundred. So people let one of them print, usually the **chief** (worker 0, where none is called so). There is a trap in it.
#
# ### Predict
#
# The accuracy is a metric made in the scope. Only worker 0 asks for its value. What happens?

# %% tags=["predict"]
my_guess = None


# %%
def chief_reads_alone(strategy):
    with strategy.scope():
        accuracy = keras.metrics.SparseCategoricalAccuracy()
    strategy.run(lambda: accuracy.update_state([1], [[0.0, 1.0]]))
    if strategy.cluster_resolver.task_id == 0:
        return float(accuracy.result())


try:
    cu.LocalCluster(workers=2, output="quiet", timeout=4).run(
        on_worker, chief_reads_alone
    )
    dead_lock = None
except cu.errors.ClusterError as error:
    dead_lock = error.seen
print(dead_lock)

# %% [markdown]
# **Reading a distributed metric is an all-reduce**, although it looks like reading a number. Its counts are kept on each worker and are added up when someone asks. Who asks alone waits for ever. (Here the cluster's time limit of 4 seconds ended it.)
#
# The rule for everything that is a meeting, be it a step, a metric or the strategy itself: **all workers, equally often, in the same order**. Then print what you like.

# %% [markdown]
# ## As a plain script
#
# Nothing above needs a notebook. This is a whole program for any number of workers. It knows neither how many there are nor which one it is: that is in the `TF_CONFIG` that it is started with.

# %%
SCRIPT = """
import course_utils as cu, keras, tensorflow as tf
cu.keras_multiworker.enable()
strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else
chief = strategy.cluster_resolver.task_id == 0

data = cu.datasets.fashion_mnist()
with strategy.scope():
    model = cu.models.mlp([32], seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05), loss, metrics=["accuracy"])

train = data.train_images[:1280], data.train_labels[:1280]
model.fit(*train, batch_size=64, epochs=3, verbose=2 if chief else 0)
test = data.test_images[:2000], data.test_labels[:2000]
loss, accuracy = model.evaluate(*test, batch_size=500, verbose=0)
if chief:
    print(f"accuracy on test images: {accuracy:.1%}")
"""

with tempfile.TemporaryDirectory() as folder:
    script = Path(folder, "train.py")
    script.write_text(SCRIPT)
    cluster.run(lambda path: len(runpy.run_path(path)), str(script))

# %% [markdown]
# `evaluate` ran on both workers, because it reads metrics; only the chief printed. On real machines you start the same file once on each, with the same address book and its own name tag in `TF_CONFIG` (lesson 07). In a terminal of this machine, `course launch --workers 2 train.py` starts it once for each worker, and the repository's `examples/train.py` is such a file.
#
# ## Exercise 09.1 · Statistics that agree
#
# Return a normalisation layer that works by batches as BatchNormalization does, and whose statistics agree on all replicas and workers. About 1 line.


# %% tags=["exercise"] exercise_id="09.batch_norm"
def batch_norm():
    """A layer."""
    ...


# %%
cu.check("09.batch_norm", batch_norm)

# %% [markdown]
# ## Exercise 09.2 · A mask of its own for each replica
#
# `tf.nn.experimental.stateless_dropout` draws its mask from two whole numbers, and from nothing else. Return these two. Each replica shall have its own mask in each step, no mask shall come twice however many steps there are, on up to a thousand replicas, another `seed` shall give other masks, and the same arguments must always give the same mask. About 1 line.


# %% tags=["exercise"] exercise_id="09.mask_seed"
def mask_seed(seed, step, replica):
    """Two whole numbers."""
    ...


# %%
cu.check("09.mask_seed", mask_seed)

# %% [markdown]
# ## Exercise 09.3 · Print on one worker only
#
# This runs on every worker. Call `step(batch)` for each of the `batches`; after them, print the value of `accuracy.result()` once for the whole cluster, on the chief. Checked by counting steps, readings and lines on three workers. About 5 lines.


# %% tags=["exercise"] exercise_id="09.run_epoch"
def run_epoch(batches, step, accuracy, is_chief):
    """None; the chief has printed the accuracy."""
    ...


# %%
cu.check("09.run_epoch", run_epoch)

# %% [markdown]
# ## What must be true now

# %%
assert "PerReplica" in refused  # Keras 3 alone does not train on two workers
assert started[0] == started[1]
for on_0, on_1 in zip(*by_fit, strict=True):
    assert digest(on_0) == digest(on_1)
for (weights_0, _), (weights_1, _) in zip(*by_loop, strict=True):
    assert digest(weights_0) == digest(weights_1)
assert len(one_device) == STEPS and max(from_one_device.values()) < 1e-5

assert max(apart["weights"]) == 0  # the same bits …
assert min(apart["moving mean and variance"]) > 1e-3  # … but not the same model
assert disagree > 0
assert all((mask == in_a_loop[0]).all() for mask in in_a_loop)
assert len({tuple(mask) for mask in in_fit}) == 4
assert "accuracy.result()" in dead_lock and "worker 1 has finished" in dead_lock

# %% [markdown]
# > **Take away.** Workers stay one model because they start equal and apply the same sum, bit for bit. What has no gradient is not kept equal by anybody: make it meet (statistics), or keep it apart on purpose (masks). And whatever is a meeting needs everyone, equally often.
#
# Next: [10 · Who may write?](10_checkpoints.ipynb)
