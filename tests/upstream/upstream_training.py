"""What the workers of the upstream tests run. Not in conftest.py: workers look functions up by their module's
name, and `conftest` is the name of several."""


def train_on_one_device(folder, names, orders):
    """The reference: no strategy, no mend. Dropout with the masks of replicas, for each order of them."""
    import sys

    sys.path.insert(0, folder)
    import tensorflow as tf
    import upstream_cases as cases

    strategy = tf.distribute.get_strategy()
    masks = {("dropout", order): cases.dropout_as_on(order, strategy)._asdict() for order in orders}
    return cases.run(names, strategy) | masks


def train_on_workers(folder, names, mirrored=False):
    """(replicas, {case: result}), mended; with `mirrored` on the replicas of this process alone."""
    import sys

    sys.path.insert(0, folder)
    import tensorflow as tf
    import upstream_cases as cases

    from course_utils.upstream import devices_per_worker, epoch_end_stall, keras_multiworker

    for mend in (devices_per_worker, epoch_end_stall, keras_multiworker):
        mend.enable()
        mend.enable()
    devices = [device.name for device in tf.config.list_logical_devices("CPU")] if mirrored else None
    strategy = (
        tf.distribute.MirroredStrategy(devices) if mirrored else tf.distribute.MultiWorkerMirroredStrategy()
    )
    return strategy.num_replicas_in_sync, cases.run(names, strategy)
