# %% [markdown]
# # 12 · What changes at ImageNet size?
#
# 1,281,167 photographs, 1,000 classes, 25 million weights, 90 epochs. The loop is the one you know. What changes is everything around it: pictures that have to be decoded while the network waits, a batch so large that the learning rate must follow it, statistics that belong to a few pictures only, and a training of days, in which a mistake costs days.
#
# **After this lesson** you can assemble the whole recipe, prove that it is the same on one device, four replicas and two workers, and start it on the real ImageNet by one setting.
#
# *40 minutes · builds on lessons 04 (loss), 06 (large batches), 09 (workers) and 10 (checkpoints)*

# %%
import tempfile
import time

import course_utils as cu

cu.cluster.warm_up(wait=False)  # the workers-to-be import TensorFlow meanwhile
import keras
import tensorflow as tf

# %% tags=["parameters"]
profile = "laptop"

# %% [markdown]
# ## Two sizes of one recipe
#
# A **recipe** is all that is not the network: batch, epochs, learning rate, decay, smoothing. `IMAGENET` is the usual one for ResNet-50, on four workers. `SMALL` has the same ingredients for what a laptop can learn in seconds: Fashion-MNIST.

# %%
cu.plots.style()
cu.devices.simulate(4)
images, tests, epochs = {"laptop": (4_096, 2_000, 3), "full": (59_904, 10_000, 5)}[
    profile
]
data = cu.datasets.fashion_mnist().first(images, tests)

IMAGENET = cu.recipe.Recipe()
SMALL = cu.recipe.Recipe(images, 128, epochs, warmup_epochs=epochs / 6, base_rate=1.6)
for field, value in vars(IMAGENET).items():
    print(f"{field:16} {value:>12,} {getattr(SMALL, field):>12,}")
print(f"{'updates':16} {IMAGENET.steps:>12,} {SMALL.steps:>12,}")

# %% [markdown]
# ## From files to batches
#
# The pictures are JPEG files of all sizes. On the way to a batch they are read, shuffled, decoded, cropped at random and flipped. In which order?
#
# ### Predict
#
# Many programs resize every picture to 224 × 224 × 3 floats and shuffle 10,000 of them *afterwards*. How much memory does that buffer take, in GB? And how much if the files themselves are shuffled?

# %% tags=["predict"]
my_guess = {"after decoding": None, "before decoding": None}

# %%
ARCHIVE = 138 * 2**30  # bytes of ILSVRC2012_img_train.tar
a_file = ARCHIVE / IMAGENET.examples
a_picture = 224 * 224 * 3 * 4
buffer = {
    "after decoding": 10_000 * a_picture / 1e9,
    "before decoding": 10_000 * a_file / 1e9,
}
print({when: f"{size:.1f} GB" for when, size in buffer.items()})

# %% [markdown]
# **Shuffle before decoding, decode last.** Then only the crop is decoded, not what is thrown away, and the pixels stay bytes until the network normalises them in its first layer.
#
# `cu.imagenet` is that pipeline, on `tfds.load("imagenet2012")`. Where there is no ImageNet, `stand_in` lets TFDS make pictures up: the same code, nothing to see. So here is its random crop at work on a picture that has something to show.

# %%
with cu.imagenet.stand_in(examples=8):
    pictures, labels = next(iter(cu.imagenet.train_data(4, shuffle_buffer=8)))
print(pictures.shape, pictures.dtype.name, labels.numpy())

boot = tf.image.resize(data.train_images[0], [112, 112])
jpeg = tf.io.encode_jpeg(tf.cast(boot, tf.uint8))
views = [cu.imagenet.central_crop(jpeg, 112)]
views += [cu.imagenet.random_crop(jpeg, 112, [1, number]) for number in range(6)]
cu.plots.show(
    cu.plots.examples(
        [view[..., 0] for view in views], ["evaluation", *["training"] * 6]
    ),
    alt="An ankle boot as an evaluation sees it, whole but for the rim, and six random "
    "crops of it, of different sizes and places, stretched to the same size.",
)

# %% [markdown]
# In training no crop comes twice, so a **cache** belongs before the crop: after it, every epoch would see the same ones. An evaluation always looks at the middle. With several workers each reads its own files; an evaluation is filled up until all have equally many batches, and the filling is not counted.
#
# ## Exercise 12.1 · A sum that fits
#
# A residual block adds what came in to what two padded 3 × 3 convolutions (the first with the `stride`) make of it. Normalise after every convolution, over *all* replicas; ReLU in between and after the sum. Where shapes differ, a 1 × 1 convolution **projects** what came in. Input and output are Keras' symbolic tensors. About 9 lines.


# %% tags=["exercise"] exercise_id="12.residual_block"
def residual_block(x, filters, stride):
    """The block's output, of `filters` channels."""
    ...


# %%
cu.check("12.residual_block", residual_block)

# %% [markdown]
# ## ResNet-50, one step
#
# `cu.models.resnet50` is built of such blocks (of three convolutions each). One step of SGD, pictures of 224 × 224 from the ImageNet pipeline. Eager, because tracing 50 layers takes longer than one step of them.

# %%
tf.get_logger().setLevel("ERROR")  # it would say that eager steps are slow


def one_step(model, size=224, replicas=1):
    """(weights, the pictures' loss, seconds) of one step on two of them."""
    strategy = cu.devices.mirrored(replicas)
    with strategy.scope(), cu.imagenet.stand_in():
        model, optimizer = model(size), keras.optimizers.SGD(0.01)
        optimizer.build(model.trainable_variables)
        batches, _, _ = cu.imagenet.distributed(strategy, global_batch=2, size=size)
        batch = next(iter(batches))
    step = cu.recipe.train_step(
        model, optimizer, cu.recipe.Recipe(global_batch=2, weight_decay=0.0)
    )
    start = time.perf_counter()
    share = strategy.run(step, args=batch)
    loss = float(strategy.reduce("SUM", share, axis=None))
    return model.count_params(), loss, time.perf_counter() - start


stepped = {"ResNet-50": one_step(lambda size: cu.models.resnet50())}
print("{:,} weights · loss {:.2f} · {:.1f} s".format(*stepped["ResNet-50"]))

# %% [markdown]
# A thousand classes and no idea: the loss should be near ln 1000 = 6.9. A first loss far from that is worth a look before you spend days. (`replicas=2` takes the same step on two.)
#
# ## Exercise 12.2 · Another architecture
#
# Nothing in the recipe knows that the network is a ResNet. Return another one, for pictures of `size` × `size` × 3 pixels from 0 to 255: `keras.applications` has MobileNetV3, EfficientNet and dozens more. Mind what they assume: the weights, the last layer, the scaling, and BatchNormalization for each replica alone. About 4 lines.


# %% tags=["exercise"] exercise_id="12.another_network"
def another_network(size, classes):
    """A Keras model that gives logits."""
    ...


# %%
cu.check("12.another_network", another_network)


# %%
for name in ("MobileNetV3Small", "EfficientNetB0"):
    stepped[name] = one_step(
        lambda size, name=name: cu.models.application(name, size), size=96
    )
for name, (weights, loss, _) in stepped.items():
    print(f"{name:18} {weights:>11,} weights · first loss {loss:.2f}")

# %% [markdown]
# They drop in: one function returns another network, and pipeline, recipe and step stay as they are.
#
# ## Exercise 12.3 · The recipe
#
# Return `(optimizer, loss, classify)` for a model that gives logits:
#
# - `optimizer`: SGD, momentum 0.9. Rate: 0.1 for a global batch of 256, scaled to yours; 5 warm-up epochs from 0, then a cosine to 0 at the end.
# - `loss(images, labels)`: *this replica's* share of the loss in training, labels smoothed by 0.1, with a weight decay of 1e-4 (½ Σ w²) on kernels only. The shares are summed.
# - `classify(images)`: the class of each picture, for an evaluation.
#
# `examples` is a multiple of `global_batch`. About 14 lines.


# %% tags=["exercise"] exercise_id="12.recipe"
def recipe(model, examples, global_batch, epochs):
    """(optimizer, loss, classify)"""
    ...


# %%
cu.check("12.recipe", recipe)

# %% [markdown]
# ## The whole job
#
# `cu.recipe.Training` does what your recipe does, and counts top-1 and top-5. Around it: all variables in the scope, a checkpoint every epoch, the finished model saved, each worker to a path of its own (lesson 10). Started again, it goes on with the batch after its checkpoint. The weights after 4 steps are kept for a proof.


# %%
def train(strategy, make_model, recipe, make_data, folder):
    """(weights after 4 steps, the epochs), and the model in `folder`."""
    with strategy.scope():  # distributed
        model, optimizer = make_model(), recipe.optimizer()
    data = make_data(strategy, recipe)
    job = cu.recipe.Training(strategy, model, optimizer, recipe, *data)
    saved = cu.checkpoints.Checkpoints(
        f"{folder}/steps", model=model, optimizer=optimizer, strategy=strategy
    )
    done = saved.restore()  # 0, or the steps of an earlier start
    job.skip(done)  # whose batches were seen
    if not done:
        job.steps(4)
    early, history = model.get_weights(), []
    for number in range(done // recipe.steps_per_epoch + 1, recipe.epochs + 1):
        history.append(job.epoch(number))
        if cu.checkpoints.is_chief(strategy):
            print(history[-1], flush=True)
        saved.save(number * recipe.steps_per_epoch)
    path = cu.checkpoints.write_path(f"{folder}/model.keras", strategy)
    model.save(path)
    cu.checkpoints.clean(f"{folder}/model.keras", strategy)
    return early, history


# %%
def clothes(strategy, recipe):
    """Training batches, test batches, and how many of these are one evaluation."""
    train = data.train_images, data.train_labels
    test = data.test_images, data.test_labels
    batches = (
        cu.training.training_data(train, recipe.global_batch),
        cu.training.evaluation_data(test, 500),
    )
    return *map(strategy.experimental_distribute_dataset, batches), len(test[1]) // 500


def small():
    return cu.models.resnet_small(seed=0)


folder = tempfile.TemporaryDirectory()
runs = {}
for name, replicas in (("1 device", 1), ("4 replicas", 4)):
    cu.sync_batch_norm_trace.enable()  # what that is for: see below
    strategy, place = cu.devices.mirrored(replicas), f"{folder.name}/{replicas}"
    print(name)
    runs[name] = train(strategy, small, SMALL, clothes, place)

# %% [markdown]
# Now on two real workers. `train` is sent to them as it is.


# %%
def on_worker(*job):
    return train(tf.distribute.MultiWorkerMirroredStrategy(), *job)


cluster = cu.LocalCluster(workers=2, timeout=3600)
workers = cluster.run(on_worker, small, SMALL, clothes, f"{folder.name}/both")
runs["2 workers"] = workers[0]

# %% [markdown]
# ## The same, and good?
#
# Two different questions. **Is it the same training?** Compare weights, after the first steps of SGD, where rounding has had no time to grow (lesson 05). **Is it good?** Compare an accuracy with a floor.
#
# One more run for comparison, with a mistake that many tutorials make: the network ends in a softmax, the loss applies another.


# %%
def with_softmax():
    return keras.Sequential([small(), keras.layers.Softmax()])


one_device = cu.devices.mirrored(1)
runs["softmax twice"] = train(
    one_device, with_softmax, SMALL, clothes, f"{folder.name}/softmax"
)

# %%
reference, _ = runs["1 device"]
apart = {
    name: cu.training.largest_difference(runs[name][0], reference)
    for name in ("4 replicas", "2 workers")
}
for name, difference in apart.items():
    print(f"after 4 steps {name} are {difference:.1e} apart from 1 device")

FLOOR = {"laptop": 0.72, "full": 0.88}[profile]
top1 = {name: [epoch.top1 for epoch in epochs] for name, (_, epochs) in runs.items()}
cu.plots.show(
    cu.plots.accuracy_curves(top1, FLOOR, title="One recipe, three kinds of cluster"),
    alt="Test accuracy by epoch: 1 device, 4 replicas and 2 workers end above the "
    "floor; the run with two softmaxes stays below.",
)

# %% [markdown]
# The three take the same steps, and end above the floor. (Their curves part all the same: rounding grows, lesson 05.) The broken one trains without complaint, and stays below.
#
# But a floor finds only gross mistakes. Divide the loss by four too much, and the network still gets there. **Equality finds that, at step 1.** Use both.
#
# *(`sync_batch_norm_trace` above: when it traces synchronised layers on several replicas, TensorFlow searches the graphs of all of them at each all-reduce, and finds nothing. The course leaves the search out.)*

# %% [markdown]
# ## What each replica sees
#
# Four replicas, 8 pictures each. This is the mean that the first BatchNormalization saw in each channel, on each replica: by itself, and synchronised.


# %%
def means_seen(synchronized):
    """What each replica's first normalisation took for the mean: (replica, channel)."""
    strategy = cu.devices.mirrored(4)
    with strategy.scope():
        model = cu.models.resnet_small(0, widths=[8], synchronized=synchronized)
    batch = tf.data.Dataset.from_tensor_slices(data.train_images[:32]).batch(32)
    shares = next(iter(strategy.experimental_distribute_dataset(batch)))
    strategy.run(lambda images: model(images, training=True), args=(shares,))
    norm = model.layers[3]
    copies = strategy.experimental_local_results(norm.moving_mean.value)
    return tf.stack(copies).numpy() / (1 - norm.momentum)  # it moved so far from 0


seen = {
    "each its own 8 pictures": means_seen(synchronized=False),
    "synchronised: all 32": means_seen(synchronized=True),
}
cu.plots.show(
    cu.plots.replica_bars(seen, ylabel="mean of the batch"),
    alt="Bars of the mean in 8 channels on four replicas. Left, without synchronising, "
    "the four differ in every channel; right they are equal.",
)

# %% [markdown]
# Left, four replicas normalise by four different means: four slightly different networks, and no longer the training of one device. The more pictures a replica has, the closer the means come, and with 64 photographs a replica many leave it at that: synchronising costs three small all-reduces a layer forwards, and more backwards. With a few pictures it is worth them.
#
# ## Looking without touching
#
# In training, BatchNormalization looks at the pictures beside a picture. In an evaluation nobody may be beside it: `training=False` takes the averages. Here is the trained network both ways, on the test pictures mixed and sorted by class.
#
# ### Predict
#
# Mixed, both ways are about equal. And sorted, a hundred of one class in a batch?

# %% tags=["predict"]
my_guess = {"training=False": None, "training=True": None}

# %%
trained = keras.saving.load_model(f"{folder.name}/both/model.keras")


@tf.function
def right_answers(images, labels, training):
    found = tf.argmax(trained(images, training=training), axis=1)
    return tf.reduce_sum(tf.cast(found == labels, tf.int32))


def accuracy(order, training):
    """Per cent right, in batches of 100 in that order, leaving the network as it is."""
    before, right = trained.get_weights(), 0
    for rows in order.reshape(-1, 100):
        batch = data.test_images[rows], data.test_labels[rows]
        right += int(right_answers(*batch, training))
    trained.set_weights(before)  # training=True has moved the averages
    return 100 * right / len(order)


mixed = tf.range(len(data.test_labels)).numpy()
by_class = data.test_labels.argsort(kind="stable")
looks = {
    name: {f"training={how}": accuracy(order, how) for how in (False, True)}
    for name, order in (("mixed", mixed), ("sorted by class", by_class))
}
cu.plots.show(
    cu.plots.grouped_bars(looks, "right answers (%)", "The same network, looked at"),
    alt=f"{looks}: with training=True the accuracy falls when a batch has one class.",
)

# %% [markdown]
# The network is the same, the pictures are the same, only their order is not. With `training=True` a batch of boots is normalised until boots look average. Evaluated that way on mixed batches nothing is noticed; the first user who sends one picture does.
#
# ## The saved model
#
# The model above came out of `model.keras`, written by the chief of the two workers: a plain model, without any strategy. Does it know what the workers knew?

# %%
_, from_file = cu.training.evaluate(trained, (data.test_images, data.test_labels))
print(f"last epoch {top1['2 workers'][-1]:.2%}, from the file {from_file:.2%}")

some = [0, 4, 6, 8, 12, 17]
chances = tf.nn.softmax(trained(data.test_images[some])).numpy()
cu.plots.show(
    cu.plots.predictions(
        data.test_images[some], chances, data.test_labels[some], cu.datasets.CLASS_NAMES
    ),
    alt="Six test pictures with the three likeliest classes of each.",
)

# %% [markdown]
# ## The real thing
#
# One setting: `COURSE_IMAGENET`, the folder of a prepared TFDS `imagenet2012`. To get one, register at image-net.org, download two archives (138 + 6.3 GiB), and call `cu.imagenet.prepare(archives, to=folder)`: hours, and as much disk again. Then `course run 12 --profile full --time-limit …` trains `IMAGENET` on four workers with the cells above. What is missing is said at once:

# %%
photographs = cu.imagenet.folder()
try:
    cu.imagenet.verify(photographs)
    complete = True
except cu.errors.DataError as error:
    complete = False
    print(error.seen)


def imagenet(strategy, recipe):
    return cu.imagenet.distributed(strategy, recipe.global_batch)


if profile == "full" and complete:
    four = cu.LocalCluster(workers=4, timeout=90 * 24 * 3600)
    four.run(on_worker, cu.models.resnet50, IMAGENET, imagenet, f"{photographs}/run")

# %%
_, _, seconds = stepped["ResNet-50"]
days = seconds / 2 * IMAGENET.examples * IMAGENET.epochs / 86_400
print(f"This machine, at the speed of the step above: {days:,.0f} days")
print(f"256 GPUs took 1 hour (Goyal et al., 2017): 4 of them {256 / 4 / 24:.1f} days")

# %% [markdown]
# ## What must be true now

# %%
assert buffer["after decoding"] > 5 * buffer["before decoding"]
assert pictures.shape == (4, 224, 224, 3) and pictures.dtype == tf.uint8
assert IMAGENET.steps == 450_450 and stepped["ResNet-50"][0] > 25e6
assert all(6 < loss < 9 for _, loss, _ in stepped.values())

# The same training on every kind of cluster, and equal workers ...
assert max(apart.values()) < 1e-5
assert cu.training.largest_difference(workers[0][0], workers[1][0]) == 0
assert [e.top1 for e in workers[1][1]] == top1["2 workers"]
# ... a good one, which the broken one is not.
assert all(top1[name][-1] > FLOOR for name in ("1 device", "4 replicas", "2 workers"))
assert top1["softmax twice"][-1] < FLOOR

alone, together = seen.values()
assert abs(together - together[0]).max() < 1e-5 < abs(alone - alone[0]).max()
assert looks["mixed"]["training=False"] == looks["sorted by class"]["training=False"]
assert looks["sorted by class"]["training=True"] < looks["mixed"]["training=True"] - 10
assert abs(from_file - top1["2 workers"][-1]) < 1e-3

# %% [markdown]
# > **Take away.** At ImageNet size the loop stays and everything around it has to count by the global batch: rate, loss, decay, statistics. Prove sameness by equality and quality by a floor; decode last; and evaluate as you will use it.
#
# Next: [13 · The network is the bottleneck. Now what?](13_slow_networks_and_slow_workers.ipynb)
