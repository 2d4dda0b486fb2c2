"""How DCGM is installed on this machine; of all of it only `dcgmi --version` is run.

What is looked at: `dcgmi` on the PATH, plug-in folders and diag-skus.yaml where packages of 4.x and 3.x put them (or
beside where `dcgmi` lies, for another prefix), processes of the host engine and of diagnostics that run now. Of the SKU
file only the entries of GPU models that are here are kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

from pytest_gpuready.model.agent_doc import DcgmDoc

PLUGINS = (
    "usr/libexec/datacenter-gpu-manager-4/plugins",
    "usr/share/nvidia-validation-suite/plugins",
    "usr/libexec/nvidia-validation-suite/plugins",
)
SKU_FILES = (
    "usr/share/datacenter-gpu-manager-4/diag-skus.yaml",
    "usr/libexec/datacenter-gpu-manager-4/diag-skus.yaml",
    "usr/share/nvidia-validation-suite/diag-skus.yaml",
    "etc/nvidia-validation-suite/diag-skus.yaml",
)
HOST_ENGINE = "nv-hostengine"
DIAGNOSTIC = ("nvvs", "dcgmi")
LARGEST_SKU_FILE = 4 * 2**20
LARGEST_ENTRY = 8192
MOST_ENTRIES = 8
MOST_FILES = 200
VERSION_S = 5.0

_ENTRY = re.compile(r"^(\s*)- name:", re.MULTILINE)
_VERSION = re.compile(r"version:\s*(\d{1,3}(?:\.\d{1,5}){1,3})")
_ID = re.compile(r"""^\s*id:\s*['"]?([0-9A-Fa-f]{4,8})['"]?\s*(?:#.*)?$""", re.MULTILINE)


def installed(root: Path, environment: Mapping[str, str], device_ids: Collection[str]) -> DcgmDoc | None:
    """What is there, None where no `dcgmi` is on the PATH. `device_ids` are those of the GPUs found ("2335")."""
    path = shutil.which("dcgmi", path=environment.get("PATH", ""))
    if path is None:
        return None
    prefix = _prefix(path, root)
    engines, diagnostics = _processes(root / "proc")
    file, digest, skus, problem = _skus(root, prefix, device_ids)
    variables, unknown = _variables(root / "proc", engines, environment)
    return DcgmDoc(
        path=path,
        version=_version(path),
        root=os.geteuid() == 0,
        machine=os.uname().machine,
        host_engine=engines,
        diagnostics=diagnostics,
        plugins=_plugins(root, prefix),
        sku_file=file,
        sku_sha256=digest,
        skus=skus,
        sku_problem=problem,
        environment=variables,
        environment_problem=unknown,
    )


def _prefix(path: str, root: Path) -> Path:
    """What stands for / before usr/libexec: where `dcgmi` lies in PREFIX/usr/bin, that prefix, else `root`."""
    folder = Path(path).resolve().parent
    return folder.parent.parent if folder.parts[-2:] == ("usr", "bin") else root


def _version(path: str) -> str:
    """What it calls itself; it asks no engine for that."""
    try:
        said = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=VERSION_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = _VERSION.search(said.stdout[:4096].decode("utf-8", "replace"))
    return match[1] if match else ""


def _plugins(root: Path, prefix: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for base in dict.fromkeys((prefix, root)):
        for place in PLUGINS:
            try:
                folders = sorted(entry for entry in (base / place).iterdir() if entry.is_dir())[:20]
                for folder in folders:
                    names = sorted(entry.name for entry in folder.iterdir() if ".so" in entry.name)
                    found.setdefault(str(folder), names[:MOST_FILES])
            except OSError:
                continue
    return found


def _skus(root: Path, prefix: Path, device_ids: Collection[str]) -> tuple[str, str, dict[str, list[str]], str]:
    """Path, digest, entries by device id, and why there are none."""
    for base in dict.fromkeys((prefix, root)):
        for place in SKU_FILES:
            path = base / place
            try:
                with path.open("rb") as file:
                    raw = file.read(LARGEST_SKU_FILE + 1)
            except FileNotFoundError:
                continue
            except OSError as error:
                return str(path), "", {}, f"{path}: {error.strerror}"
            if len(raw) > LARGEST_SKU_FILE:
                return str(path), "", {}, f"{path}: larger than {LARGEST_SKU_FILE // 2**20} MiB"
            text = raw.decode("utf-8", "replace")
            return str(path), hashlib.sha256(raw).hexdigest(), entries(text, device_ids), ""
    return "", "", {}, "no diag-skus.yaml where packages put it (datacenter-gpu-manager-config)"


def entries(text: str, device_ids: Collection[str]) -> dict[str, list[str]]:
    """The text of every entry about one of these device ids, as it stands in the file; no YAML is read here."""
    starts = [match.start() for match in _ENTRY.finditer(text)]
    found: dict[str, list[str]] = {}
    for begin, end in zip(starts, [*starts[1:], len(text)], strict=True):
        entry = text[begin:end]
        match = _ID.search(entry)
        if match is None:
            continue
        for device in device_ids:
            kept = found.get(device, [])
            if match[1].lower().startswith(device.lower()) and len(kept) < MOST_ENTRIES:
                found[device] = [*kept, entry[:LARGEST_ENTRY]]
    return found


def _processes(proc: Path) -> tuple[list[int], dict[str, str]]:
    """Host engines, and diagnostics that run: nvvs, or dcgmi with the word diag."""
    engines: list[int] = []
    diagnostics: dict[str, str] = {}
    try:
        pids = [entry.name for entry in proc.iterdir() if entry.name.isdecimal()]
    except OSError:
        return engines, diagnostics
    for pid in sorted(pids, key=int):
        try:
            words = (proc / pid / "cmdline").read_bytes()[:4096].decode("utf-8", "replace").split("\0")
        except OSError:  # it has ended meanwhile, or is none of ours to read
            continue
        name = words[0].rsplit("/", 1)[-1]
        if name == HOST_ENGINE:
            engines.append(int(pid))
        elif name in DIAGNOSTIC and (name == "nvvs" or "diag" in words):
            diagnostics[pid] = name
    return engines, diagnostics


def _variables(proc: Path, engines: list[int], own: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """DCGM_* variables that a diagnostic would see (the host engine starts it, or else we do), or why nobody knows."""
    seen = dict(own)
    for pid in engines[:1]:
        try:
            raw = (proc / str(pid) / "environ").read_bytes()[: 2**20].decode("utf-8", "replace")
        except OSError as error:
            return {}, f"the environment of {HOST_ENGINE} (pid {pid}): {error.strerror}"
        seen = dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
    return {name: seen[name][:200] for name in sorted(seen) if name.startswith("DCGM_")}, ""
