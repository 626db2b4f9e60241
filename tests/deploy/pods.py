"""Pods without a Kubernetes: what a kubelet makes of a manifest, on machines of `machines`.

A pod gets the manifest's command, environment and mounts, and nothing else but what an image brings: a root
file system (this machine's, in which the mounts are put), a PATH and a working directory.
"""

import re
import shlex
import subprocess
from pathlib import Path

from machines import Machines

INDEX = "batch.kubernetes.io/job-completion-index"


def pod_of(document: dict) -> dict:
    """The specification of the pods of a Job, a JobSet or a TFJob."""
    spec = document["spec"]
    if document["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    if document["kind"] == "TFJob":
        spec = spec["tfReplicaSpecs"]["Worker"]
    return spec["template"]["spec"]


def environment_of(container: dict, annotations: dict[str, str]) -> dict[str, str]:
    """The container's variables, as the kubelet makes them: $(NAME) stands for one that comes before."""
    environment: dict[str, str] = {}
    for entry in container["env"]:
        if "valueFrom" in entry:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            environment[entry["name"]] = annotations[path.partition("'")[2].rstrip("']")]
        else:
            environment[entry["name"]] = expanded(entry["value"], environment)
    return environment


def expanded(text: str, environment: dict[str, str]) -> str:
    """What a kubelet makes of a text: $(NAME) is the variable's value where there is one, $$ is $."""
    return re.sub(
        r"\$(?:\$|\((\w+)\))", lambda found: environment.get(found[1], found[0]) if found[1] else "$", text
    )


def names_of(job: dict) -> list[str]:
    """What the headless Service calls the pods of an indexed Job, from their host name and subdomain."""
    name, subdomain = job["metadata"]["name"], pod_of(job)["subdomain"]
    return [f"{name}-{index}.{subdomain}" for index in range(job["spec"]["completions"])]


def start(machines: Machines, job: dict, index: int, image: dict, storage: Path, **options):
    """The process of pod `index`. image: "PATH" and "WORKDIR"; storage: a folder for each pod's claim."""
    pod = pod_of(job)
    (container,) = pod["containers"]
    environment = environment_of(container, {INDEX: str(index)})
    command = [expanded(word, environment) for word in container["command"]]
    settings = [f"{name}={value}" for name, value in ({"PATH": image["PATH"]} | environment).items()]
    root = storage / f"root-{index}"
    root.mkdir()
    return machines.start(
        names_of(job)[index],
        ["chroot", root, "env", "-i", f"--chdir={image['WORKDIR']}", *settings, *command],
        before=_root_file_system(root) + "".join(_mounts(pod, container, root, storage)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def _root_file_system(root: Path) -> str:
    """Shell lines: this machine's files under `root`, where folders for mounts can be made."""
    return f"""
root={shlex.quote(str(root))}
mount -t tmpfs tmpfs "$root"
for entry in /*; do
  if [ -L "$entry" ]; then cp -P "$entry" "$root/"
  elif [ -d "$entry" ]; then mkdir "$root$entry"; mount --rbind "$entry" "$root$entry"
  fi
done
"""


def _mounts(pod: dict, container: dict, root: Path, storage: Path):
    """Shell lines for the container's volume mounts: a claim is a folder of `storage`, memory a tmpfs."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        volume, target = volumes[mount["name"]], shlex.quote(f"{root}{mount['mountPath']}")
        if "persistentVolumeClaim" in volume:
            claim = storage / volume["persistentVolumeClaim"]["claimName"]
            claim.mkdir(exist_ok=True)
            yield f"mkdir -p {target}; mount --bind {shlex.quote(str(claim))} {target}\n"
        else:
            size = volume["emptyDir"]["sizeLimit"].removesuffix("i")
            yield f"mkdir -p {target}; mount -t tmpfs -o size={size} tmpfs {target}\n"
