"""Manifests for Kubernetes: they start what exists, their parts fit together, and Kubernetes would take them.

Ray's own resources are held against a part of KubeRay's schema, kept in kuberay.json. Kubernetes' schemas are 22 MB and
so are read nightly alone, where kubernetes-validate is installed.
"""

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import surefoot
from surefoot.fleet.fleet_file import FleetFile, read_fleet_file
from tests.cli.process import run

FOLDER = Path(__file__).parents[2] / "packaging" / "kubernetes"
BASES, OVERLAYS = ("server", "fleet", "ray"), ("fleet-large", "ray-redis")
KUBERAY = json.loads((Path(__file__).parent / "kuberay.json").read_text())
WORKLOADS = ("Deployment", "StatefulSet")

Document = dict[str, Any]


def documents(name: str) -> list[Document]:
    """What `kubectl apply --kustomize` would send. Without a kustomize, a base's own files, which it leaves alone."""
    for words in (["kustomize", "build"], ["kubectl", "kustomize"]):
        if shutil.which(words[0]) is not None:
            done = subprocess.run([*words, FOLDER / name], capture_output=True, text=True, check=True, timeout=300)
            return list(yaml.safe_load_all(done.stdout))
    if name in OVERLAYS:
        pytest.skip("neither kustomize nor kubectl is installed")
    listed = yaml.safe_load((FOLDER / name / "kustomization.yaml").read_text())["resources"]
    return [document for file in listed for document in yaml.safe_load_all((FOLDER / name / file).read_text())]


def pods(document: Document) -> Iterator[Document]:
    """Templates of pods."""
    spec = document.get("spec", {})
    if document["kind"] in WORKLOADS:
        yield spec["template"]
    if document["kind"] == "RayCluster":
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
            yield group["template"]


def find(name: str, kind: str, called: str) -> Document:
    (found,) = [d for d in documents(name) if d["kind"] == kind and d["metadata"]["name"] == called]
    return found


@functools.cache
def options_of(*command: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]+", run(*command, "--help").stdout))


@pytest.mark.parametrize("name", [*BASES, *OVERLAYS])
def test_parts_fit_together(name: str) -> None:
    all_documents = documents(name)
    labels = [pod["metadata"]["labels"] for document in all_documents for pod in pods(document) if "metadata" in pod]
    for document in all_documents:
        spec = document.get("spec", {})
        if document["kind"] == "Service" and "ray.io/cluster" not in spec["selector"]:
            assert any(spec["selector"].items() <= given.items() for given in labels), document["metadata"]
        for selector in (spec.get("selector", {}).get("matchLabels"), spec.get("podSelector", {}).get("matchLabels")):
            assert selector is None or any(selector.items() <= given.items() for given in labels)
        claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())]
        for pod in pods(document):
            check_pod(pod["spec"], claims)


def check_pod(spec: Document, claims: list[str]) -> None:
    volumes = {volume["name"] for volume in spec.get("volumes", ())} | set(claims)
    for container in spec["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        ports = {port["name"] for port in container.get("ports", ())}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports
                assert container[probe]["httpGet"]["path"] in ("/ready", "/health")
        assert container["image"].endswith(f":{surefoot.__version__}")


@pytest.mark.parametrize(("name", "kind", "called", "command"), [
    ("server", "Deployment", "surefoot", ["serve"]),
    ("fleet", "StatefulSet", "surefoot", ["serve"]),
    ("fleet", "Deployment", "surefoot-gateway", ["fleet", "gateway"]),
])  # fmt: skip
def test_commands_exist(name: str, kind: str, called: str, command: list[str]) -> None:
    (container,) = find(name, kind, called)["spec"]["template"]["spec"]["containers"]
    assert container["args"][: len(command)] == command
    given = {word.partition("=")[0] for word in container["args"] if word.startswith("--")}
    assert given
    assert given <= options_of(*command)
    assert "--keys" in given, "else it would not bind an address that others can reach"
    # Where files are looked for, something is mounted.
    paths = re.findall(r"=(/\S+)", "\n".join(container["args"]))
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert all(any(path.startswith(mount + "/") for mount in mounts) for path in paths)


@pytest.mark.parametrize("name", ["fleet", "fleet-large"])
def test_gateways_know_every_server(name: str) -> None:
    servers = find(name, "StatefulSet", "surefoot")
    file = (FOLDER / name / "servers").read_text()
    numbers = range(servers["spec"]["replicas"])
    (port,) = servers["spec"]["template"]["spec"]["containers"][0]["ports"]
    wanted = [
        f"http://surefoot-{number}.{servers['spec']['serviceName']}:{port['containerPort']}" for number in numbers
    ]
    assert file.splitlines() == wanted


def test_the_fleets_file_is_one() -> None:
    file = read_fleet_file(FOLDER / "ray" / "fleet.toml")
    assert isinstance(file, FleetFile)
    assert {word for word in file.options if word.startswith("--")} <= options_of("serve")
    cluster = find("ray", "RayCluster", "surefoot")["spec"]
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    # `ray start` gets it through a shell, which takes away the outer quotes.
    assert json.loads(json.loads(head["rayStartParams"]["resources"])) == {file.gateway_resource: 1}
    assert workers["replicas"] == file.replicas
    (container,) = workers["template"]["spec"]["containers"]
    assert float(container["resources"]["limits"]["cpu"]) >= file.cpus
    service = find("ray", "Service", "surefoot")["spec"]
    assert service["ports"][0]["targetPort"] == file.port
    assert service["selector"]["ray.io/cluster"] == "surefoot"
    job = find("ray", "RayJob", "surefoot-up")["spec"]
    assert job["entrypoint"].startswith("surefoot fleet up /etc/surefoot/fleet/")


@pytest.mark.parametrize("name", ["ray", "ray-redis"])
def test_kuberay_would_take_it(name: str) -> None:
    checked = [document for document in documents(name) if document["kind"] in KUBERAY]
    assert {document["apiVersion"] for document in checked} == {"ray.io/v1"}
    assert len(checked) == 2
    for document in checked:
        jsonschema.validate(document["spec"], KUBERAY[document["kind"]])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**document["spec"], "replicas": 3}, KUBERAY[document["kind"]])


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*BASES, *OVERLAYS])
def test_kubernetes_would_take_it(name: str) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: pip install kubernetes-validate (22 MB)"
    )
    for document in documents(name):
        if document["kind"] in KUBERAY:
            templates = list(pods(document))
            assert templates or document["kind"] == "RayJob"
            standard = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **pod} for pod in templates]
        else:
            standard = [document]
        for given in standard:
            kubernetes_validate.validate(given, kubernetes_validate.latest_version(), strict=True)
