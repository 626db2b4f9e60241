"""Which cases are proved on which shapes of cluster."""

# What every shape must do as one device does.
MATRIX = [
    "sequential",
    "functional_with_dict_inputs",
    "two_outputs",
    "sample_weights",
    "synchronised_batch_normalisation",
    "mixed_bfloat16",
    "several_steps_per_execution",
    "uneven_last_batch",
    "validation_data",
    "dropout",
    "callbacks",
]
SHAPES = {"1x2": (1, 2), "2x1": (2, 1), "2x2": (2, 2), "3x1": (3, 1), "4x1": (4, 1)}


def replicas_of_parts(shape):
    """The replica that gets each part of a batch: TensorFlow deals the parts out to the workers in turn."""
    workers, devices = SHAPES[shape]
    return tuple(part % workers * devices + part // workers for part in range(workers * devices))


# What plain MirroredStrategy gets wrong as well.
MIRRORED = ["uneven_last_batch", "several_steps_per_execution", "dropout", "gradient_accumulation"]
# What is proved on one shape only: on 2x2 where replicas and workers could matter each in its own way.
MORE = {
    "2x1": [
        "adam_with_moving_average",
        "class_weights",
        "clipped_by_global_norm",
        "eager",
        "endless_generator",
        "generator",
        "gradient_accumulation",
        "mean_by_sample_weight",
        "py_dataset",
        "sum_over_batch",
        "validation_split",
    ],
    "2x2": [
        "accumulated_and_clipped",
        "convolution_without_examples",
        "custom_train_step",
        "interrupted_and_resumed",
        "local_batch_normalisation_without_examples",
        "masked_sequences",
        "mixed_float16",
        "overflow_on_one_replica",
        "py_dataset_with_threads",
        "shuffled_arrays",
        "shuffled_without_a_seed",
    ],
}


def cluster(workers=1, devices=1):
    from course_utils.cluster import LocalCluster

    return LocalCluster(workers=workers, devices_per_worker=devices, timeout=280, output="quiet")


def alone(function, *args, devices=1):
    """What `function(*args)` returns in a process of its own that is no part of a cluster."""
    from course_utils.cluster import LocalCluster

    cluster = LocalCluster(workers=1, devices_per_worker=devices, timeout=120, output="quiet", check=False)
    return cluster.run_with([None], function, *args)[0]
