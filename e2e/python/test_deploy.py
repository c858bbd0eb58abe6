"""The manifests of deploy/ conform to the published schemas of Kubernetes and Compose."""

import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MANIFESTS = sorted(path for path in (DEPLOY / "kubernetes").glob("*.yaml") if path.name != "kustomization.yaml")


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_valid(path):
    found = documents(path)
    assert found
    for document in found:
        kubernetes_validate.validate(document, "1.31", strict=True)


def test_an_unknown_field_is_detected():
    [deployment, *_] = documents(DEPLOY / "kubernetes" / "api.yaml")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.31", strict=True)


def test_every_manifest_belongs_to_the_kustomization():
    [kustomization] = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert sorted(kustomization["resources"]) == [path.name for path in MANIFESTS]


def test_a_gateway_has_time_for_its_drain():
    workloads = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for path in MANIFESTS
        for document in documents(path)
        if document["kind"] in ("Deployment", "StatefulSet")
    }
    assert sorted(workloads) == ["noroshi-api", "noroshi-gateway", "noroshi-sender"]
    pod = workloads["noroshi-gateway"]
    [container] = pod["containers"]
    command = container["lifecycle"]["preStop"]["exec"]["command"]
    [deadline] = [word.removeprefix("--deadline=") for word in command if word.startswith("--deadline=")]
    assert "--wait" in command and deadline.endswith("m")
    # After the hook SIGTERM drains again, for at most half a minute (config/gateway.toml).
    assert pod["terminationGracePeriodSeconds"] >= 60 * int(deadline[:-1]) + 60


def test_compose_is_valid():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, DEPLOY / "compose" / "compose.yaml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_names_missing_variables():
    text = (DEPLOY / "compose" / "compose.yaml").read_text()
    example = (DEPLOY / "compose" / "example.env").read_text()
    for part in text.split("${")[1:]:
        name = part.split(":?")[0]
        assert f"\n{name}=" in example, name
