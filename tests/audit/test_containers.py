"""The docker reader: GPUs in every spelling, and what opens the host, in inspect documents and compose files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.audit.case_reading import CASES, check_case, outcome, read_text, survives, suspects, values

INSPECT = json.loads((CASES / "083" / "inspect.json").read_text())
COMPOSE = (CASES / "085" / "docker-compose.yml").read_text()


def inspect(**host: Any) -> str:
    """The hardened container with other host settings."""
    return json.dumps([INSPECT[0] | {"HostConfig": INSPECT[0]["HostConfig"] | host}])


def test_minus_one_is_every_gpu_and_null_is_none() -> None:
    """Case 083: Count -1 means all, null lists are empty, the hardened container passes."""
    found = check_case("083")
    assert values(found, "container.gpus") == ["all"]
    assert values(found, "container.privileged") == ["false"]
    assert values(found, "container.cap_drop") == [["ALL"]]
    assert values(found, "container.shm_bytes") == [17179869184]
    assert suspects(found) == ""


def test_a_reservation_of_two_is_not_eight() -> None:
    """Case 085: a GPU reservation that is too small fails, whatever else is well."""
    found = check_case("085")
    assert values(found, "container.gpus") == [2]
    assert values(found, "container.ports") == [["127.0.0.1:8000"]]
    assert "deployment configuration (count: 2)" in suspects(found)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ({"Privileged": True}, "privileged"),
        ({"CapAdd": ["CAP_SYS_ADMIN", "IPC_LOCK"]}, "cap_add SYS_ADMIN"),
        ({"SecurityOpt": ["seccomp=unconfined"]}, "seccomp unconfined"),
        ({"SecurityOpt": ["apparmor:unconfined"]}, "apparmor unconfined"),
        ({"PidMode": "host"}, "pid: host"),
        ({"Binds": ["/var/run/docker.sock:/var/run/docker.sock"]}, "mounts /var/run/docker.sock"),
        ({"Binds": ["/:/host:rw"]}, "mounts /"),
        ({"Devices": [{"PathOnHost": "/dev/mem"}]}, "device /dev/mem"),
    ],
)
def test_what_opens_the_host_fails(tmp_path: Path, host: dict[str, Any], reason: str) -> None:
    """Each way out of the container is a failure that names itself."""
    reading = read_text(tmp_path, "docker", inspect(**host), {"gpus": "all"})
    assert outcome(reading) == "fail"
    assert reason in suspects(list(reading.findings))


def test_what_rdma_needs_opens_nothing(tmp_path: Path) -> None:
    """Pinned memory, the host's network and IPC and the InfiniBand devices are told and fail nothing."""
    host = {
        "CapAdd": ["IPC_LOCK"],
        "NetworkMode": "host",
        "IpcMode": "host",
        "Devices": [{"PathOnHost": "/dev/infiniband"}],
    }
    reading = read_text(tmp_path, "docker", inspect(**host), {"gpus": "all"})
    assert outcome(reading) == "pass"
    assert values(list(reading.findings), "container.hardening") == [["host's network", "host's IPC"]]


def request(**fields: Any) -> dict[str, Any]:
    return {"DeviceRequests": [{"Driver": "nvidia", "Capabilities": [["gpu"]], **fields}]}


NONE: dict[str, Any] = {"DeviceRequests": None}


@pytest.mark.parametrize(
    ("host", "wanted", "is_", "value"),
    [
        (request(Count=8), 8, "pass", 8),
        (request(Count=2), 8, "fail", 2),
        (request(Count=0, DeviceIDs=["0", "1", "2", "3"]), 4, "pass", 4),
        (request(Count=0, DeviceIDs=["0", "1"]), "all", "fail", 2),
        (request(Count=-1), 8, "not-measured", "all"),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, "all", "pass", "all"),
        (NONE, 8, "fail", 0),
        (NONE | {"Devices": [{"PathOnHost": f"/dev/nvidia{n}"} for n in range(8)]}, 8, "pass", 8),
    ],
)
def test_gpus_of_a_container_in_every_spelling(
    tmp_path: Path, host: dict[str, Any], wanted: Any, is_: str, value: Any
) -> None:
    """Counts, ids, CDI names and device files; without any, none is asked for."""
    reading = read_text(tmp_path, "docker", inspect(**host), {"gpus": wanted})
    assert outcome(reading) == is_
    assert values(list(reading.findings), "container.gpus") == [value]


def test_the_nvidia_runtime_asks_by_its_variable(tmp_path: Path) -> None:
    """NVIDIA_VISIBLE_DEVICES counts only with that runtime."""
    entry = INSPECT[0] | {"Config": INSPECT[0]["Config"] | {"Env": ["NVIDIA_VISIBLE_DEVICES=all"]}}
    for runtime, is_ in (("nvidia", "pass"), ("runc", "fail")):
        text = json.dumps([entry | {"HostConfig": entry["HostConfig"] | NONE | {"Runtime": runtime}}])
        assert outcome(read_text(tmp_path, "docker", text, {"gpus": "all"})) == is_


@pytest.mark.parametrize(
    ("old", "new", "wanted", "is_"),
    [
        ("count: 2", "count: all", "all", "pass"),
        ("count: 2", 'count: "8"', 8, "pass"),
        ("count: 2", 'device_ids: ["0", "3"]', 2, "pass"),
        ("              count: 2\n", "", "all", "pass"),
        ("count: 2", "count: ${GPUS:-8}", 8, "not-measured"),
        ("[gpu]", "[tpu]", 2, "fail"),
        ("read_only: true", "privileged: true", 2, "fail"),
        ("read_only: true", 'pid: "host"', 2, "fail"),
        ("read_only: true", "privileged: ${P}", 2, "not-measured"),
        ("image: llm", "image: a\n    image: llm", 2, "not-measured"),
        ("services:", "x-c: &c {privileged: true}\nservices:\n  a:\n    <<: *c\n    image: b\nunused:", None, "fail"),
    ],
)
def test_compose_in_every_spelling(tmp_path: Path, old: str, new: str, wanted: Any, is_: str) -> None:
    """count may be a word, a text, absent or filled in later, ids may replace it; merge keys are followed."""
    text = COMPOSE.replace(old, new)
    assert text != COMPOSE
    assert outcome(read_text(tmp_path, "docker", text, {"gpus": wanted} if wanted is not None else {})) == is_


@pytest.mark.parametrize(
    ("port", "at"),
    [
        ('"8000:8000"', "0.0.0.0:8000"),
        ("22:22", "0.0.0.0:22"),
        ('"8000"', "0.0.0.0:any"),
        ('"[::1]:8000:8000/tcp"', "[::1]:8000"),
        ("{target: 80, published: 8080, host_ip: 127.0.0.1}", "127.0.0.1:8080"),
    ],
)
def test_ports_of_a_service(tmp_path: Path, port: str, at: str) -> None:
    """Short and long forms; a port is no number in base 60, and no address means every one."""
    text = COMPOSE.replace('"127.0.0.1:8000:8000"', port)
    assert values(list(read_text(tmp_path, "docker", text, {}).findings), "container.ports") == [[at]]


def test_a_container_that_was_killed_for_memory_fails(tmp_path: Path) -> None:
    """OOMKilled is the host's memory limit and not GPU memory."""
    entry = INSPECT[0] | {"State": {"Status": "exited", "OOMKilled": True, "ExitCode": 137}}
    reading = read_text(tmp_path, "docker", json.dumps([entry]), {"gpus": "all"})
    assert outcome(reading) == "fail"
    assert "not GPU memory" in suspects(list(reading.findings))


@pytest.mark.parametrize(
    "text", ["[]", "", "{}", "[1]", '[{"Id": "x"}]', "services:\n", "- a\n", "{" * 5000, "[" * 5000, "a: " * 2000]
)
def test_what_is_no_container_is_not_measured(tmp_path: Path, text: str) -> None:
    """An empty answer, an image, a list, nesting without end: one line, no verdict."""
    assert outcome(read_text(tmp_path, "docker", text, {"gpus": 8})) == "not-measured"


def test_cut_or_damaged_never_pass_unearned(tmp_path: Path) -> None:
    """The inspect document passes only whole; the compose file that reserves two never passes for eight."""
    survives(tmp_path, "083", lambda broken: '"Count": -1' in broken and broken.rstrip().endswith("]"))
    survives(tmp_path, "085", lambda broken: False)
