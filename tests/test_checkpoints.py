"""Checkpoints of many workers: one writer a path, a resume that repeats and skips nothing, or an error."""

import json
import os
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import LocalCluster, checkpoints, datasets, devices, models, training
from course_utils.cluster import WorkerError
from course_utils.errors import ClusterError, DataError

devices.simulate(4)  # before any test starts TensorFlow: pytest imports all modules first

BATCH, STEPS, CUT, EVERY = 32, 12, 7, 3
HOSTS = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"], "evaluator": ["e:1"]}


def resolver(task_type, task_id, jobs):
    spec = tf.train.ClusterSpec({job: HOSTS[job] for job in jobs})
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, task_type=task_type, task_id=task_id)


@pytest.fixture(scope="module")
def examples():
    data = datasets.fashion_mnist().first(train=160, test=10)
    return data.train_images, data.train_labels


@pytest.mark.parametrize(
    ("task_type", "task_id", "jobs", "expected"),
    [
        ("worker", 0, ["worker"], True),
        ("worker", 1, ["worker"], False),
        ("chief", 0, ["chief", "worker"], True),
        ("worker", 0, ["chief", "worker"], False),
        ("worker", 1, ["chief", "worker"], False),
        ("evaluator", 0, ["chief", "worker", "evaluator"], False),
        ("ps", 0, ["chief", "worker", "ps"], False),
    ],
)
def test_one_task_of_each_cluster_is_chief(task_type, task_id, jobs, expected):
    assert checkpoints.is_chief(resolver(task_type, task_id, jobs)) is expected


def test_without_a_cluster_the_process_is_its_own_chief(tmp_path):
    assert checkpoints.is_chief()
    assert checkpoints.is_chief(devices.mirrored(2))
    assert checkpoints.write_path(tmp_path / "model.keras") == str(tmp_path / "model.keras")
    assert checkpoints.write_path("model.keras") == "model.keras"


def test_every_task_writes_to_a_path_of_its_own_and_the_chief_to_the_real_one(tmp_path):
    jobs = ["chief", "worker", "evaluator"]
    tasks = [resolver(*task, jobs) for task in (("chief", 0), ("worker", 0), ("worker", 1), ("evaluator", 0))]
    paths = [checkpoints.write_path(tmp_path / "job" / "{epoch}.keras", task) for task in tasks]
    assert paths[0] == str(tmp_path / "job" / "{epoch}.keras")
    assert len(set(paths)) == 4 and {os.path.basename(path) for path in paths} == {"{epoch}.keras"}
    assert all(os.path.isdir(os.path.dirname(path)) for path in paths)
    assert len({checkpoints.own_folder(tmp_path / "backup", task) for task in tasks}) == 4


def test_cleaning_takes_what_others_wrote_and_never_what_the_chief_wrote(tmp_path):
    chief, other = resolver("worker", 0, ["worker"]), resolver("worker", 1, ["worker"])
    for name in ("model.keras", "{epoch}.keras", "folder"):
        for task in (chief, other):
            Path(checkpoints.write_path(tmp_path / name, task).format(epoch=3)).write_text("…")
        assert len(list(tmp_path.iterdir())) == 2
        for task in (chief, other):
            checkpoints.clean(tmp_path / name, task)
        assert [path.name for path in tmp_path.iterdir()] == [name.format(epoch=3)]
        next(tmp_path.iterdir()).unlink()


def test_cleaning_one_path_leaves_another_of_the_same_worker(tmp_path):
    other = resolver("worker", 1, ["worker"])
    kept, gone = (Path(checkpoints.write_path(tmp_path / name, other)) for name in ("kept", "gone"))
    kept.mkdir()
    gone.mkdir()
    checkpoints.clean(tmp_path / "gone", other)
    assert kept.exists() and not gone.exists()


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("step", [0, 3, 11])
def test_data_from_a_step_on_are_the_training_data_without_what_came_before(step, replicas, examples):
    strategy = devices.mirrored(replicas)
    whole = training.training_data(examples, BATCH, seed=5).skip(step).take(4)
    rest = checkpoints.data_from(step, examples, BATCH, seed=5).take(4)
    for wanted, seen in zip(*map(strategy.experimental_distribute_dataset, (whole, rest)), strict=True):
        for a, b in zip(wanted, seen, strict=True):  # images, labels
            copies = map(strategy.experimental_local_results, (a, b))
            assert all(np.array_equal(*both) for both in zip(*copies, strict=True))


def built(strategy, make=models.linear):
    """A model and an optimizer with state of its own: Adam, so that a forgotten one shows."""
    with strategy.scope():
        return make(seed=0), keras.optimizers.Adam(0.01)


def looped(folder, examples, until=STEPS):
    """(first step, losses, weights, mean of a metric) of a custom loop on this worker, resumed if it can."""
    strategy = tf.distribute.get_strategy()
    model, optimizer = built(strategy)
    seen = keras.metrics.Mean()
    saved = checkpoints.Checkpoints(folder, model=model, optimizer=optimizer, seen=seen, max_to_keep=2)
    first, losses = saved.restore(), []
    on_a_replica = training.train_step(model, optimizer, BATCH)
    batches = iter(strategy.experimental_distribute_dataset(checkpoints.data_from(first, examples, BATCH)))

    def counted(images, labels):
        share = on_a_replica(images, labels)
        seen.update_state(share)
        return share

    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(counted, args=batch), axis=None)

    for number in range(first, until):
        losses.append(float(step(next(batches))))
        if (number + 1) % EVERY == 0:
            saved.save(number + 1)
    return first, losses, model.get_weights(), float(seen.result())


def fitted(folder, examples, epochs=STEPS // EVERY):
    """(first epoch, losses, weights) of `fit` on this worker, resumed if it can; an epoch is EVERY steps."""
    model, optimizer = built(tf.distribute.get_strategy())
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
    saved = checkpoints.Checkpoints(folder, model=model, max_to_keep=2)
    first = saved.restore()
    history = model.fit(
        checkpoints.data_from(first, examples, BATCH),
        steps_per_epoch=EVERY,
        initial_epoch=first // EVERY,
        epochs=epochs,
        callbacks=[saved.each_epoch(EVERY)],
        verbose=0,
    )
    return first // EVERY, history.history["loss"], model.get_weights()


def on_worker(fn, *args, **how):
    from course_utils import keras_multiworker

    keras_multiworker.enable()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        return fn(*args, **how)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def runs(folder, examples):
    """On a chief and a worker: both ways undisturbed, both ways cut off, and both ways resumed."""

    def undisturbed_and_cut(folder, examples):
        whole = looped(f"{folder}/whole-loop", examples), fitted(f"{folder}/whole-fit", examples)
        cut = looped(f"{folder}/loop", examples, until=CUT), fitted(f"{folder}/fit", examples, epochs=2)
        return whole, cut

    def resumed(folder, examples):
        return looped(f"{folder}/loop", examples), fitted(f"{folder}/fit", examples)

    cluster = LocalCluster(workers=1, chief=True, output="quiet")
    before = cluster.run(on_worker, undisturbed_and_cut, str(folder), examples)
    after = cluster.run(on_worker, resumed, str(folder), examples)
    return before, after


def test_a_resumed_loop_ends_equal_to_an_undisturbed_one(runs):
    for (whole, cut), resumed in zip(*runs, strict=True):
        (_, losses, weights, seen), (first, again, final, seen_again) = whole[0], resumed[0]
        assert first == CUT // EVERY * EVERY and len(again) == STEPS - first
        assert training.largest_difference(weights, final) == 0
        np.testing.assert_allclose(again, losses[first:], rtol=1e-6)
        np.testing.assert_allclose(cut[0][1], losses[:CUT], rtol=1e-6)
        assert seen_again == pytest.approx(seen, rel=1e-6)  # a metric in the checkpoint came back too
        assert np.std(losses) > 0.01


def test_a_resumed_fit_ends_equal_to_an_undisturbed_one(runs):
    for (whole, _), resumed in zip(*runs, strict=True):
        (_, losses, weights), (first, again, final) = whole[1], resumed[1]
        assert first == 2 and len(again) == STEPS // EVERY - 2
        assert training.largest_difference(weights, final) == 0
        np.testing.assert_allclose(again, losses[2:], rtol=1e-6)


def test_only_the_chiefs_files_stay_and_no_more_than_were_to_be_kept(runs, folder):
    assert sorted(path.name for path in folder.iterdir()) == ["fit", "loop", "whole-fit", "whole-loop"]
    names = {path.name.partition(".")[0] for path in (folder / "loop").iterdir()}
    assert names == {"checkpoint", "ckpt-9", "ckpt-12"}


def test_what_two_workers_saved_goes_on_with_four_replicas_and_ends_in_a_plain_model(runs, folder):
    _, _, weights, _ = runs[1][0][0]
    strategy = devices.mirrored(4)
    model, optimizer = built(strategy)
    saved = checkpoints.Checkpoints(folder / "loop", model=model, optimizer=optimizer, strategy=strategy)
    assert saved.restore() == STEPS and saved.restored.endswith(f"ckpt-{STEPS}")
    assert training.largest_difference(model.get_weights(), weights) == 0
    assert int(optimizer.iterations.numpy()) == STEPS
    plain = models.linear(seed=1)
    training.restore(plain, folder / "loop")
    assert training.largest_difference(plain.get_weights(), weights) == 0


def test_workers_that_find_different_checkpoints_refuse_to_go_on(tmp_path, examples):
    def elsewhere(folder, examples):
        index = tf.distribute.get_strategy().cluster_resolver.task_id
        looped(f"{folder}/{index}", examples, until=0)

    model, optimizer = built(tf.distribute.get_strategy())
    metric = keras.metrics.Mean()
    checkpoints.Checkpoints(tmp_path / "0", model=model, optimizer=optimizer, seen=metric).save(6)
    with pytest.raises(WorkerError, match=r"different steps: 6, 0"):
        LocalCluster(workers=2, output="quiet").run(on_worker, elsewhere, str(tmp_path), examples)


@pytest.fixture
def saved(tmp_path):
    """Checkpoints of a small job in this process, with three of them written."""
    model, optimizer = built(tf.distribute.get_strategy())
    saved = checkpoints.Checkpoints(tmp_path, model=model, optimizer=optimizer, max_to_keep=3)
    for step in (1, 2, 3):
        model.trainable_variables[0].assign_add(tf.ones_like(model.trainable_variables[0]))
        saved.save(step)
    return saved


def test_a_first_start_restores_nothing_and_says_so(tmp_path):
    model, optimizer = built(tf.distribute.get_strategy())
    saved = checkpoints.Checkpoints(tmp_path, model=model, optimizer=optimizer)
    assert saved.restore() == 0 and saved.restored is None and saved.latest is None


def test_an_optimizer_that_is_not_in_the_checkpoint_is_noticed(tmp_path):
    model, optimizer = built(tf.distribute.get_strategy())
    checkpoints.Checkpoints(tmp_path, model=model).save(1)
    with pytest.raises(DataError, match="does not fit"):
        checkpoints.Checkpoints(tmp_path, model=model, optimizer=optimizer).restore()


def test_another_architecture_is_noticed(saved):
    model, optimizer = built(tf.distribute.get_strategy(), make=models.small_cnn)
    with pytest.raises(DataError, match=r"ckpt-3 does not fit"):
        checkpoints.Checkpoints(saved.folder, model=model, optimizer=optimizer).restore()


def test_a_model_without_variables_is_noticed(tmp_path):
    with pytest.raises(DataError, match="no variables yet"):
        checkpoints.Checkpoints(tmp_path, model=keras.Sequential([keras.layers.Dense(3)]))


def test_a_checkpoint_of_which_a_part_is_missing_is_passed_over_for_the_one_before(saved):
    for part in Path(saved.folder).glob("ckpt-3.data*"):
        part.unlink()
    assert saved.latest.endswith("ckpt-2")
    assert saved.restore() == 2


def test_checkpoints_whose_files_are_all_gone_are_no_first_start(saved):
    for part in Path(saved.folder).glob("ckpt-*"):
        part.unlink()
    with pytest.raises(DataError, match="lists 3 checkpoints"):
        saved.restore()


def test_unfinished_files_of_a_killed_run_go_at_the_next_start(saved):
    left = Path(saved.folder, "ckpt-4_temp")
    left.mkdir()
    (left / "part-00000-of-00001.data-00000-of-00001").write_text("half of it")
    model, optimizer = built(tf.distribute.get_strategy())
    assert checkpoints.Checkpoints(saved.folder, model=model, optimizer=optimizer).restore() == 3
    assert not left.exists()


def backed_up(folder, examples, epochs):
    """(the epochs that ran, final weights) of `fit` with Keras' own BackupAndRestore; the backup stays."""
    model, _ = built(tf.distribute.get_strategy())
    model.compile(keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(True))
    own = checkpoints.own_folder(folder)
    backup = keras.callbacks.BackupAndRestore(own, delete_checkpoint=False)
    data = training.evaluation_data(examples, BATCH)
    history = model.fit(data, steps_per_epoch=2, epochs=epochs, callbacks=[backup], verbose=0)
    return history.epoch, model.get_weights()


def test_keras_backup_cut_off_between_its_two_files_trains_an_epoch_twice(tmp_path, examples):
    _, whole = backed_up(tmp_path / "whole", examples, 3)
    backed_up(tmp_path / "cut", examples, 2)
    epoch = Path(checkpoints.own_folder(tmp_path / "cut"), "training_metadata.json")
    assert json.loads(epoch.read_text())["epoch"] == 2
    epoch.write_text('{"epoch": 1, "batch": 0}')  # as it was, with the weights of epoch 2 written before it
    epochs, weights = backed_up(tmp_path / "cut", examples, 3)
    assert epochs == [1, 2]
    assert training.largest_difference(weights, whole) > 1e-4


def test_keras_backups_of_two_workers_at_different_epochs_do_not_join(tmp_path, examples):
    backed_up(tmp_path, examples, 2)  # this process writes what would be worker 0's, and worker 1 has none
    with pytest.raises(ClusterError, match=r"worker 0 has finished|Collective ops is aborted"):
        LocalCluster(workers=2, output="quiet", timeout=60).run(on_worker, backed_up, tmp_path, examples, 4)


@pytest.mark.parametrize("text", ["", "rubbish {"])
def test_a_damaged_list_of_checkpoints_is_no_first_start(saved, text):
    Path(saved.folder, "checkpoint").write_text(text)
    with pytest.raises(DataError, match="list of checkpoints"):
        saved.restore()
    with pytest.raises(DataError, match="list of checkpoints"):
        checkpoints.Checkpoints(saved.folder, model=built(tf.distribute.get_strategy())[0])


@pytest.mark.parametrize("ending", ["index", "data-00000-of-00001"])
def test_a_damaged_checkpoint_is_told_with_the_older_ones(saved, ending):
    part = Path(saved.folder, f"ckpt-3.{ending}")
    part.write_bytes(part.read_bytes()[:20])
    with pytest.raises(DataError, match=r"ckpt-3 cannot be read.*ckpt-1, ckpt-2"):
        saved.restore()


def job(folder, make=models.linear, **how):
    """The checkpoints of a new start of a job in this process."""
    model, optimizer = built(tf.distribute.get_strategy(), make)
    return checkpoints.Checkpoints(folder, model=model, optimizer=optimizer, **how)


def test_a_second_job_in_the_folder_is_noticed_at_its_first_checkpoint(tmp_path):
    first, second = job(tmp_path), job(tmp_path)
    assert (first.restore(), second.restore()) == (0, 0)
    first.save(10)
    with pytest.raises(DataError, match=r"Somebody else has written ckpt-10 into"):
        second.save(20)
    first.save(20)
    assert first.latest.endswith("ckpt-20")


def test_a_job_whose_folder_was_emptied_meanwhile_is_told(saved):
    for part in Path(saved.folder).iterdir():
        part.unlink()
    with pytest.raises(DataError, match="Somebody else has emptied"):
        saved.save(4)


def test_a_new_start_that_does_not_restore_puts_nothing_older_on_top(saved):
    with pytest.raises(DataError, match=r"holds ckpt-3, and this is to be ckpt-1\."):
        job(saved.folder).save(1)
    with pytest.raises(DataError, match="holds ckpt-3"):
        saved.save(2)  # nor the same job, further back
    assert saved.latest.endswith("ckpt-3")


def test_a_job_that_restored_goes_on_and_may_save_the_same_step_again(saved):
    again = job(saved.folder)
    assert again.restore() == 3
    again.save(3)
    again.save(np.int64(4))
    assert job(saved.folder).restore() == 4


def test_a_job_goes_on_after_a_checkpoint_of_which_a_part_was_missing(saved):
    for part in Path(saved.folder).glob("ckpt-3.data*"):
        part.unlink()
    again = job(saved.folder)
    assert again.restore() == 2
    again.save(3)
    assert job(saved.folder).restore() == 3


@pytest.mark.parametrize("step", [-1, 2.5, 3.0, True, "7", None])
def test_what_is_no_number_of_steps_is_refused(saved, step, examples):
    with pytest.raises(DataError, match=r"save\(step\) cannot be"):
        saved.save(step)
    with pytest.raises(DataError, match=r"data_from\(step\) cannot be"):
        checkpoints.data_from(step, examples, BATCH)
    assert saved.latest.endswith("ckpt-3")


def test_a_step_may_be_a_number_of_tensorflow(saved):
    assert saved.save(tf.constant(7)).endswith("ckpt-7")


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3"])
def test_at_least_one_checkpoint_is_kept(tmp_path, most):
    with pytest.raises(DataError, match="max_to_keep cannot be"):
        job(tmp_path, max_to_keep=most)


def test_a_folder_that_is_a_file_is_told(tmp_path):
    file = tmp_path / "job"
    file.write_text("notes")
    for folder in (file, file / "inside"):
        with pytest.raises(DataError, match=r"is a file, and checkpoints need a folder"):
            job(folder)
    with pytest.raises(DataError, match="is a file"):
        checkpoints.write_path(file / "model.keras")
    assert file.read_text() == "notes"


def two_outputs(seed=0):
    inputs = keras.Input([4])
    hidden = keras.layers.Dense(4, name="hidden")(inputs)
    return keras.Model(inputs, [hidden, keras.layers.Dense(3, name="second")(hidden)])


def one_output(seed=0):
    inputs = keras.Input([4])
    return keras.Model(inputs, keras.layers.Dense(4, name="hidden")(inputs))


def test_a_checkpoint_of_a_larger_model_is_noticed_and_what_it_has_more(tmp_path):
    larger = two_outputs()
    checkpoints.Checkpoints(tmp_path, model=larger).save(1)
    said = r"does not fit this model.*a larger model was saved, which has also second/bias, second/kernel"
    with pytest.raises(DataError, match=said):
        checkpoints.Checkpoints(tmp_path, model=one_output()).restore()
    with pytest.raises(DataError, match=said):
        training.restore(one_output(), tmp_path)
    assert training.restore(two_outputs(), tmp_path).endswith("ckpt-1")


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_saved_beside_the_model_makes_it_no_larger(tmp_path, compiled, examples):
    """The optimizer, metrics and the number of steps, of a compiled model too, stay behind without a word."""
    model, optimizer = built(tf.distribute.get_strategy(), models.small_cnn)
    if compiled:
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(True), metrics=["accuracy"])
        model.fit(*(part[:32] for part in examples), verbose=0)
    seen = keras.metrics.Mean()
    more = {} if compiled else {"optimizer": optimizer}
    checkpoints.Checkpoints(tmp_path, model=model, seen=seen, **more).save(1)
    plain = models.small_cnn(seed=9)
    training.restore(plain, tmp_path)
    assert training.largest_difference(plain, model) == 0


class InAList(keras.Model):
    """Layers in a plain list: TensorFlow's checkpoints know nothing of them."""

    def __init__(self):
        super().__init__()
        self.hidden = [keras.layers.Dense(4) for _ in range(2)]
        self.last = keras.layers.Dense(3)

    def call(self, inputs):
        for layer in self.hidden:
            inputs = layer(inputs)
        return self.last(inputs)


def test_layers_that_tensorflow_would_leave_out_are_noticed_before_anything_is_saved(tmp_path):
    model = InAList()
    model(np.ones([1, 4], np.float32))
    path = tf.train.Checkpoint(model=model).save(tmp_path / "plain")
    assert not [name for name, _ in tf.train.list_variables(path) if "hidden" in name]  # why it is refused
    with pytest.raises(DataError, match=r"leave out 4 of the model's 6 weights, such as"):
        checkpoints.Checkpoints(tmp_path, model=model)
    with pytest.raises(DataError, match="leave out 4"):
        training.restore(model, tmp_path)
