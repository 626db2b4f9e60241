"""Manifests for Kubernetes, held against the published schemas."""

import json

import kubernetes_validate
import pytest
import yaml
from kubeflow.training import models as kubeflow
from pods import INDEX, environment_of, expanded, pod_of

from course_utils.cluster import deploy
from course_utils.cluster.config import check_tf_configs
from course_utils.errors import ConfigError

KUBERNETES = "1.29"  # the oldest one in which the index of a pod is kept through podFailurePolicy
PLAN = deploy.Plan(
    "train.py", ("--steps", "400"), workers=4, gpus=2, time="2h", image="registry.example/train:1"
)


def documents(flavour, plan=PLAN):
    return list(yaml.safe_load_all(deploy.kubernetes(plan, flavour)))


def test_job_and_service_are_what_kubernetes_publishes():
    service, job = documents("job")
    for document in (service, job):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    assert (service["kind"], job["kind"]) == ("Service", "Job")


def test_a_misspelt_field_would_be_noticed():
    _, job = documents("job")
    job["spec"]["completionMod"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, KUBERNETES, strict=True)


def test_every_pod_of_the_job_gets_a_tf_config_that_fits_the_others():
    for flavour in ("job", "jobset"):
        container = pod_of(documents(flavour)[-1])["containers"][0]
        texts = [environment_of(container, {INDEX: str(index)})["TF_CONFIG"] for index in range(4)]
        check_tf_configs(texts)
        assert [json.loads(text)["task"]["index"] for text in texts] == [0, 1, 2, 3]


def test_the_names_in_tf_config_are_those_that_the_service_makes():
    service, job = documents("job")
    pod = pod_of(job)
    addresses = json.loads(pod["containers"][0]["env"][1]["value"].replace("$(TASK_INDEX)", "0"))
    name, subdomain = job["metadata"]["name"], pod["subdomain"]
    assert subdomain == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": name}
    port = service["spec"]["ports"][0]["port"]
    assert addresses["cluster"]["worker"] == [f"{name}-{index}.{subdomain}:{port}" for index in range(4)]


def test_the_jobset_holds_a_job_that_kubernetes_would_take_and_starts_all_of_it_again():
    (jobset,) = documents("jobset")
    assert jobset["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    # the documented fields of JobSet's own part
    assert set(jobset["spec"]) <= {"network", "failurePolicy", "successPolicy", "replicatedJobs", "suspend"}
    assert set(jobset["spec"]["network"]) <= {"enableDNSHostnames", "subdomain", "publishNotReadyAddresses"}
    assert jobset["spec"]["failurePolicy"] == {"maxRestarts": 3}
    (jobs,) = jobset["spec"]["replicatedJobs"]
    inner = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "workers"}, **jobs["template"]}
    kubernetes_validate.validate(inner, KUBERNETES, strict=True)
    assert inner["spec"]["backoffLimit"] == 0


def test_the_tfjob_fits_kubeflows_own_model_and_its_pod_kubernetes():
    (tfjob,) = documents("tfjob")
    _fits(kubeflow.KubeflowOrgV1TFJob, tfjob)
    _fits(kubeflow.KubeflowOrgV1TFJobSpec, tfjob["spec"])
    _fits(kubeflow.KubeflowOrgV1RunPolicy, tfjob["spec"]["runPolicy"])
    worker = tfjob["spec"]["tfReplicaSpecs"]["Worker"]
    _fits(kubeflow.KubeflowOrgV1ReplicaSpec, worker)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": worker["template"]["spec"]}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    assert pod["spec"]["containers"][0]["name"] == "tensorflow"  # the operator looks for it
    assert "TF_CONFIG" not in json.dumps(tfjob)  # the operator writes it
    assert "legacy" in deploy.kubernetes(PLAN, "tfjob").splitlines()[0]


def _fits(model, document):
    assert set(document) <= set(model.attribute_map.values())


def test_all_workers_start_together_see_one_storage_and_have_time_to_save():
    for flavour in deploy.FLAVOURS:
        document = documents(flavour)[-1]
        pod = pod_of(document)
        container = pod["containers"][0]
        assert pod["terminationGracePeriodSeconds"] == deploy.GRACE
        assert {"name": "shared", "mountPath": deploy.SHARED} in container["volumeMounts"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
        assert container["command"] == ["python", "-u", "train.py", "--steps", "400"]
    job = documents("job")[-1]["spec"]
    assert job["parallelism"] == job["completions"] == 4


def test_the_script_gets_its_arguments_as_they_are_also_those_with_a_dollar():
    arguments = ("$(TASK_INDEX)", "$$x", "$HOME", "$$(a)")
    plan = deploy.Plan("train.py", arguments, image="registry.example/train:1")
    for flavour in deploy.FLAVOURS:
        (container,) = pod_of(documents(flavour, plan)[-1])["containers"]
        started = [expanded(word, {"TASK_INDEX": "1"}) for word in container["command"]]
        assert started == ["python", "-u", "train.py", *arguments]


def test_a_tf_config_that_no_process_could_be_started_with_is_refused():
    with pytest.raises(ConfigError, match="Linux takes no variable of more than"):
        deploy.kubernetes(deploy.Plan("train.py", workers=10_000, image="me/train:1"))
    deploy.kubernetes(deploy.Plan("train.py", workers=3_000, image="me/train:1"))


def test_a_pod_needs_an_image():
    with pytest.raises(ConfigError, match="needs an image"):
        deploy.kubernetes(deploy.Plan("train.py"))
