"""The recipe: its numbers, its loss by hand, and equality between one device, replicas and workers."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import LocalCluster, datasets, devices, imagenet, models, recipe, training
from course_utils.upstream import sync_batch_norm_trace

devices.simulate(4)
FLOOR = 0.66  # after 96 steps of 64 pictures
SMALL = recipe.Recipe(examples=512, global_batch=32, epochs=2, warmup_epochs=0.25, base_rate=1.6)


@pytest.fixture(scope="module", autouse=True)
def quick_traces():
    sync_batch_norm_trace.enable()
    yield
    sync_batch_norm_trace.disable()


def tiny(**how):
    return models.resnet_small(seed=0, widths=[4, 8], **how)


def test_the_recipe_as_it_stands_is_that_of_imagenet():
    full = recipe.Recipe()
    assert (full.steps_per_epoch, full.steps) == (5005, 450_450)
    rate = full.schedule()
    assert rate(0) == 0 and rate(5 * 5005) == pytest.approx(0.1) and rate(450_450) == 0
    assert full.optimizer().momentum == 0.9 and not full.optimizer().weight_decay


def test_the_rate_follows_the_global_batch():
    large = recipe.Recipe(global_batch=8192)
    assert large.schedule()(5 * large.steps_per_epoch) == pytest.approx(3.2)


def test_the_smoothed_loss_is_that_of_keras():
    logits = np.random.default_rng(0).normal(size=(6, 10)).astype("f4")
    labels = np.arange(6)
    wanted = keras.losses.CategoricalCrossentropy(True, label_smoothing=0.1, reduction=None)
    np.testing.assert_allclose(
        recipe.smoothed_loss(labels, logits, 0.1), wanted(tf.one_hot(labels, 10), logits), rtol=1e-5
    )


def test_kernels_are_decayed_and_nothing_else():
    variables = tiny().trainable_variables
    kept = [v for v in variables if not any(v is one for one in recipe.decayed(variables))]
    assert {v.name for v in recipe.decayed(variables)} == {"kernel"}
    assert {v.name for v in kept} == {"gamma", "beta", "bias"}
    by_hand = sum((v.numpy() ** 2).sum() / 2 for v in recipe.decayed(variables))
    assert float(recipe.decay_loss(variables, 1e-4)) == pytest.approx(1e-4 * by_hand, rel=1e-5)


def test_what_pads_an_evaluation_is_not_counted():
    scores = recipe.Scores()
    logits = tf.one_hot([1, 2, 0, 0], 10) * 9.0
    scores.count(tf.constant([1, 3, imagenet.PADDING, imagenet.PADDING]), logits)
    _, top1, top5 = scores.read()
    assert top1 == 0.5 and 0.5 <= top5 <= 1
    scores.reset()
    scores.count(tf.constant([1, 2, 0, 0]), logits)
    assert scores.read()[1] == 1


def clothes(strategy, its=SMALL):
    data = datasets.fashion_mnist().first(its.examples, 1000)
    batches = (
        training.training_data((data.train_images, data.train_labels), its.global_batch),
        training.evaluation_data((data.test_images, data.test_labels), 500),
    )
    return *map(strategy.experimental_distribute_dataset, batches), 2


def a_few_steps(strategy, make=tiny, step=recipe.train_step):
    """The weights after three steps at a rate that moves them."""
    with strategy.scope():
        model, optimizer = make(), keras.optimizers.SGD(0.1, momentum=0.9)
    recipe.Training(strategy, model, optimizer, SMALL, *clothes(strategy), step=step).steps(3)
    return model.get_weights()


@pytest.fixture(scope="module")
def one_device():
    return a_few_steps(devices.mirrored(1))


def test_replicas_take_the_steps_of_one_device(one_device):
    assert training.largest_difference(a_few_steps(devices.mirrored(4)), one_device) < 1e-5


def interrupted(skip):
    """The weights after one epoch, a restart from what was saved, and another epoch."""
    strategy = devices.mirrored(1)
    state = []
    for number in (1, 2):
        with strategy.scope():
            model, optimizer = tiny(), SMALL.optimizer()
        job = recipe.Training(strategy, model, optimizer, SMALL, *clothes(strategy))
        if state:
            for variable, value in zip([*model.variables, *optimizer.variables], state, strict=True):
                variable.assign(value)
            skip(job)
        job.epoch(number)
        state = [variable.numpy() for variable in [*model.variables, *optimizer.variables]]
    return model.get_weights()


def test_a_training_that_was_started_again_repeats_no_batch():
    strategy = devices.mirrored(1)
    with strategy.scope():
        model, optimizer = tiny(), SMALL.optimizer()
    job = recipe.Training(strategy, model, optimizer, SMALL, *clothes(strategy))
    for number in (1, 2):
        job.epoch(number)
    resumed = interrupted(lambda job: job.skip(SMALL.steps_per_epoch))
    assert training.largest_difference(resumed, model.get_weights()) < 1e-6
    repeated = interrupted(lambda job: None)
    assert training.largest_difference(repeated, model.get_weights()) > 1e-3


def decay_of_each_replica(model, optimizer, its):
    """As in `recipe.train_step`, but every replica adds the whole decay."""

    def step(images, labels):
        with tf.GradientTape() as tape:
            losses = recipe.smoothed_loss(labels, model(images, training=True), its.label_smoothing)
            share = training.average_loss(losses, its.global_batch)
            share += recipe.decay_loss(model.trainable_variables, its.weight_decay)
        optimizer.apply(tape.gradient(share, model.trainable_variables), model.trainable_variables)
        return share

    return step


def divided_twice(model, optimizer, its):
    return recipe.train_step(model, optimizer, recipe.Recipe(global_batch=2 * its.global_batch))


@pytest.mark.parametrize(
    "broken",
    [{"step": decay_of_each_replica}, {"step": divided_twice}, {"make": lambda: tiny(synchronized=False)}],
    ids=["decay counted twice", "divided twice", "not synchronised"],
)
def test_the_comparison_with_one_device_finds_what_is_wrong(one_device, broken):
    assert training.largest_difference(a_few_steps(devices.mirrored(2), **broken), one_device) > 3e-5


def on_a_worker():
    """(weights after an epoch, its line, how many pictures an evaluation counted) on stand-in pictures."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    its = recipe.Recipe(examples=8, global_batch=4, epochs=1, warmup_epochs=0)
    with imagenet.stand_in(examples=7):
        with strategy.scope():
            model = models.resnet_small(0, widths=[4], image=(32, 32, 3), classes=1000)
            optimizer = its.optimizer()
        job = recipe.Training(
            strategy, model, optimizer, its, *imagenet.distributed(strategy, its.global_batch, size=32)
        )
        line = job.epoch(1)
    return model.get_weights(), line, float(job.scores.top1.count.numpy()), job.test_steps


def test_the_imagenet_job_runs_on_two_workers_that_stay_one_model():
    (weights, line, *_), (weights_1, line_1, *_) = (
        results := LocalCluster(workers=2, output="quiet", timeout=90).run(on_a_worker)
    )
    assert training.largest_difference(weights, weights_1) == 0
    assert (line.top1, line.test_loss) == (line_1.top1, line_1.test_loss)
    assert [result[2:] for result in results] == [(7, 2)] * 2  # reading a count adds up both workers'


def top1_of(make, step=recipe.train_step):
    """Top-1 on 1,000 test images after 96 steps on one device."""
    its = recipe.Recipe(examples=3072, global_batch=64, epochs=2, warmup_epochs=0.5, base_rate=1.6)
    strategy = devices.mirrored(1)
    with strategy.scope():
        model, optimizer = make(), its.optimizer()
    job = recipe.Training(strategy, model, optimizer, its, *clothes(strategy, its), step=step)
    job.steps(its.steps)
    return job.evaluate()[1]


def right():
    return models.resnet_small(seed=0)


def softmax_twice():
    return keras.Sequential([right(), keras.layers.Softmax()])


def averages_that_lag():
    """After 96 steps most of the averages is still their first value, 0 and 1."""
    model = right()
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.999
    return model


def test_the_small_network_learns():
    assert top1_of(right) > FLOOR


@pytest.mark.parametrize("broken", [softmax_twice, averages_that_lag])
def test_a_broken_one_does_not_reach_the_floor(broken):
    assert top1_of(broken) < FLOOR


def divided_by_four_more(model, optimizer, its):
    return recipe.train_step(model, optimizer, replace(its, global_batch=4 * its.global_batch))


def test_a_floor_does_not_find_a_gradient_that_is_four_times_too_small():
    """Which is why the lesson compares weights as well."""
    assert top1_of(right, divided_by_four_more) > FLOOR
