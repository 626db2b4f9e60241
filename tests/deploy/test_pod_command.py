"""The command of the pods, with exactly the manifest's environment, on hosts with the pods' names."""

import machines
import pods
import pytest
import trained
import yaml

from course_utils.cluster import deploy

pytestmark = pytest.mark.skipif(bool(machines.missing()), reason=str(machines.missing()))


def manifest():
    text = trained.course(
        *("deploy", "kubernetes", "--workers", "2", "--image", "registry.example/train:1"),
        *(trained.SCRIPT, "--", *trained.arguments(deploy.SHARED)),
    )
    _, job = yaml.safe_load_all(text)
    return job


@pytest.mark.timeout(2 * trained.LIMIT)
def test_the_pods_train_the_same_weights_as_a_launch(tmp_path, launched):
    job = manifest()
    image = {"PATH": trained.PATH, "WORKDIR": trained.ROOT}
    with machines.Machines(pods.names_of(job), tmp_path) as hosts:
        workers = [pods.start(hosts, job, index, image, tmp_path) for index in range(2)]
        outputs = [worker.communicate(timeout=trained.LIMIT)[0] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], "\n".join(outputs)
    assert f"2 replicas, from step 0 to {trained.STEPS}" in outputs[0]
    claim = pods.pod_of(job)["volumes"][0]["persistentVolumeClaim"]["claimName"]
    trained.assert_equal(trained.weights(tmp_path / claim), launched)
