"""What the tests of real jobs share: the weights of the same job under `course launch`."""

import pytest
import trained


@pytest.fixture(scope="session")
def launched(tmp_path_factory):
    """The final weights of two workers on this machine, which nothing disturbs."""
    folder = tmp_path_factory.mktemp("launched")
    output = trained.course("launch", "--workers", "2", trained.SCRIPT, "--", *trained.arguments(folder))
    assert f"from step 0 to {trained.STEPS}" in output
    return trained.weights(folder)
