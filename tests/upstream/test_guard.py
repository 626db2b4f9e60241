"""A mend refuses what it was not tested with, and says so."""

from importlib import metadata

import pytest
from upstream_matrix import alone

from course_utils.errors import UpstreamError
from course_utils.upstream import _guard


def test_an_untested_version_is_refused_with_both_versions_and_the_cure():
    with pytest.raises(UpstreamError) as refused:
        _guard.check_versions("some_mend", {"tensorflow": ("0.9.0",)})
    assert metadata.version("tensorflow") in refused.value.seen
    assert "0.9.0" in refused.value.expected
    assert "tensorflow==0.9.0" in refused.value.cure


def test_a_missing_package_is_refused():
    with pytest.raises(UpstreamError, match="not installed"):
        _guard.check_versions("some_mend", {"no-such-package-here": ("1.0",)})


def test_the_tested_version_passes():
    _guard.check_versions("some_mend", {"tensorflow": ("0.9.0", metadata.version("tensorflow"))})


def original(x):
    return x + 1


def other(x):
    return x + 2


class Owner:
    function = other


def test_changed_source_is_refused_even_when_the_version_is_right():
    with pytest.raises(UpstreamError, match=r"Owner\.function.*not the code that was tested"):
        _guard.check_sources("some_mend", {(Owner, "function"): _guard.source_digest(original)})


def test_a_function_that_is_gone_is_refused():
    with pytest.raises(UpstreamError, match="gone"):
        _guard.check_sources("some_mend", {(Owner, "no_such_function"): "0" * 16})


def test_the_digest_does_not_depend_on_where_a_function_stands():
    class Nested:
        def original(x):
            return x + 1

    assert _guard.source_digest(Nested.original) == _guard.source_digest(original)
    assert _guard.source_digest(original) != _guard.source_digest(other)


MENDS = {
    "devices_per_worker": (
        "tensorflow.python.distribute.collective_all_reduce_strategy",
        "CollectiveAllReduceExtended._initialize_local_devices",
    ),
    "epoch_end_stall": ("tensorflow.python.data.ops.multi_device_iterator_ops", "_create_device_dataset"),
    "keras_multiworker": ("keras.src.backend.tensorflow.trainer", "TensorFlowTrainer.fit"),
}


@pytest.mark.parametrize("mend", MENDS)
def test_a_silent_change_upstream_is_refused(mend):
    assert "not the code that was tested" in alone(enable_over_changed_code, mend, *MENDS[mend])


@pytest.mark.parametrize("mend", MENDS)
def test_another_version_is_refused(mend):
    assert "0.0.1" in alone(enable_on_another_version, mend)


def enable_over_changed_code(mend, module, path):
    import importlib

    *parents, name = path.split(".")
    owner = importlib.import_module(module)
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, lambda *args, **kwargs: None)
    return refusal(mend)


def enable_on_another_version(mend):
    from importlib import metadata

    metadata.version = lambda package: "0.0.1"
    return refusal(mend)


def refusal(mend):
    import importlib

    from course_utils.errors import UpstreamError

    try:
        importlib.import_module(f"course_utils.upstream.{mend}").enable()
    except UpstreamError as error:
        return str(error)
    return "enabled"
