"""A stand-in for a driver's user-space libraries: builds the fake libnvidia-ml and an empty libcuda, and their values.

Nothing here is hardware. Every GPU's name says "stand-in", so that no document made with it can pass for a recording.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = "580.95.05"
LINKS = 18

# pynvml call of a recording -> key of the fake.
PLAIN = {
    "GetUUID": "uuid",
    "GetSerial": "serial",
    "GetVbiosVersion": "vbios",
    "GetBoardPartNumber": "partnumber",
    "GetInforomImageVersion": "inforom",
    "GetModuleId": "module",
    "GetVirtualizationMode": "virtualization",
    "GetGspFirmwareVersion": "gsp",
    "GetMemoryBusWidth": "buswidth",
    "GetPowerUsage": "power",
    "GetEnforcedPowerLimit": "powerlimit",
    "GetPowerManagementDefaultLimit": "powerdefault",
    "GetPersistenceMode": "persistence",
    "GetComputeMode": "computemode",
    "GetCurrentClocksEventReasons": "clockreasons",
    "GetMarginTemperature": "margin",
    "GetMaxPcieLinkGeneration": "pcie.maxgen",
    "GetMaxPcieLinkWidth": "pcie.maxwidth",
    "GetCurrPcieLinkGeneration": "pcie.gen",
    "GetCurrPcieLinkWidth": "pcie.width",
    "GetTemperature": "temperature",
}
INDEXED = {
    "GetClockInfo": "clock",
    "GetMaxClockInfo": "maxclock",
    "GetTemperatureThreshold": "tempthreshold",
    "GetTotalEccErrors": "eccerrors",
}
PER_LINK = {
    "GetNvLinkState": "nvlink.{}.state",
    "GetNvLinkVersion": "nvlink.{}.version",
    "GetNvLinkRemoteDeviceType": "nvlink.{}.remote",
}
SEVERAL = {
    "GetEccMode": ("ecc", "ecc.pending"),
    "GetMigMode": ("mig", "mig.pending"),
    "GetRemappedRows": ("remapped.corr", "remapped.unc", "remapped.pending", "remapped.failure"),
}
FIELDS = {"NVML_FI_DEV_MEMORY_TEMP": 82, "NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT": 194}
FIELDS |= {"NVML_FI_DEV_NVLINK_LINK_COUNT": 91, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230}
LINK_FIELDS = {"NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY": 161, "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY": 162}
LINK_FIELDS |= {"NVML_FI_DEV_NVLINK_ERROR_DL_CRC": 163, "NVML_FI_DEV_NVLINK_GET_SPEED": 164}


def build(folder: Path, *, version: str = VERSION, cuda: str = VERSION, old: bool = False) -> Path:
    """The folder with libnvidia-ml.so.1 and, unless `cuda` is "", libcuda.so.1, named as a driver names them."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-DOLD_DRIVER"] if old else []
    _compile(folder, "libnvidia-ml", version, [*flags, str(HERE / "fake_nvml.c")])
    if cuda:
        empty = folder / "empty.c"
        empty.write_text("int gpuready_stand_in_for_libcuda;\n", encoding="ascii")
        _compile(folder, "libcuda", cuda, [str(empty)])
    return folder


def built(kept: Path) -> Path:
    """The folder that `build` makes with its defaults, made once for these sources and kept in `kept`."""
    return _once(kept, "driver", HERE / "fake_nvml.c", Path(__file__), make=build)


def preload(kept: Path, source: Path) -> Path:
    """A library to preload, compiled once for this source and kept in `kept`."""
    folder = _once(kept, source.stem, source, make=lambda folder: _gcc(folder / f"{source.stem}.so", [str(source)]))
    return folder / f"{source.stem}.so"


def _once(kept: Path, name: str, *sources: Path, make: Callable[[Path], object]) -> Path:
    """The folder of what is made of these sources; several processes may ask for it at a time."""
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()
    folder = kept / f"{name}-{digest[:16]}"
    if not folder.exists():
        kept.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".", dir=kept))
        make(fresh)
        with contextlib.suppress(OSError):  # somebody else was faster
            fresh.rename(folder)
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _compile(folder: Path, library: str, version: str, sources: list[str]) -> None:
    out = folder / f"{library}.so.{version}"
    _gcc(out, [f"-Wl,-soname,{library}.so.1", *sources])
    (folder / f"{library}.so.1").symlink_to(out.name)


def _gcc(out: Path, words: list[str]) -> None:
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(out), *words], check=True)


def healthy(count: int = 8, version: str = VERSION) -> dict[str, str]:
    """Values of a healthy node with `count` GPUs behind NVSwitches, in the fake's keys."""
    values: dict[str, Any] = {"driver": version, "nvml": f"13.{version}", "cuda": 13000, "count": count}
    values |= {
        f"gpu.*.{key}": value
        for key, value in {
            "name": "NVIDIA H200 (stand-in)",
            "pci.id": 0x233510DE,
            "partnumber": "692-2G520-0000-000",
            "vbios": "96.00.A5.00.01",
            "inforom": "G520.0282.02.02",
            "inforom.valid": 1,
            "mem.total": 150754820096,
            "buswidth": 6016,
            "virtualization": 0,
            "gsp": version,
            "temperature": 32,
            "tempthreshold.1": 89,
            "tempthreshold.2": 95,
            "margin": 55,
            "power": 74540,
            "powerlimit": 700000,
            "powerdefault": 700000,
            "persistence": 1,
            "computemode": 0,
            "ecc": 1,
            "mig": 0,
            "clock.1": 345,
            "maxclock.1": 1980,
            "maxclock.2": 3201,
            "appclock.1": 1980,
            "appclock.2": 3201,
            "appclock.default.1": 1980,
            "appclock.default.2": 3201,
            "clockreasons": 1,
            "pcie.maxgen": 5,
            "pcie.maxwidth": 16,
            "pcie.gen": 5,
            "pcie.width": 16,
            "remapped.corr": 0,
            "remapped.unc": 0,
            "fabric.state": 3,
            "fabric.status": 0,
            "fabric.health": 0,
            "field.82": 31,
            "field.91": LINKS,
            "field.194": 4294967294,
            "field.230": 0,
        }.items()
    }
    values |= {f"gpu.*.eccerrors.{kind}.{counter}": 0 for kind in (0, 1) for counter in (0, 1)}
    for link in range(LINKS):
        values |= {f"gpu.*.nvlink.{link}.{key}": n for key, n in (("state", 1), ("version", 6), ("remote", 2))}
        values |= {f"gpu.*.field.{key}": value for key, value in _link_fields(link).items()}
    for gpu in range(count):
        values |= {
            f"gpu.{gpu}.busid": f"00000000:{0x19 + 16 * gpu:02X}:00.0",
            f"gpu.{gpu}.uuid": f"GPU-00000000-0000-4000-8000-00000000000{gpu}",
            f"gpu.{gpu}.serial": f"165000000000{gpu}",
            f"gpu.{gpu}.module": gpu + 1,
        }
        values |= {f"gpu.{gpu}.p2p.2.{other}": 0 for other in range(count) if other != gpu}
    return {key: str(value) for key, value in values.items()}


def bdf(gpu: int) -> str:
    """Where `healthy` puts a GPU."""
    return f"0000:{0x19 + 16 * gpu:02x}:00.0"


def _link_fields(link: int) -> dict[str, int]:
    scope = f".{link}" if link else ""
    return {f"161{scope}": 0, f"162{scope}": 0, f"163{scope}": 0, f"164{scope}": 26562}


def from_recorded(recording: dict[str, Any]) -> dict[str, str]:
    """Values of a recorded nvml.json (one key per pynvml getter); only the names are changed, to say stand-in.

    The recording holds some link values for link 0 alone: the other links get the same.
    """
    values: dict[str, Any] = {key: recording[key] for key in ("driver", "nvml", "cuda", "count")}
    for i, gpu in enumerate(recording["gpus"]):
        own: dict[str, Any] = {"name": f"{gpu['nvmlDeviceGetName']} (stand-in)"}
        for call, answer in gpu.items():
            name, _, rest = call.removeprefix("nvmlDevice").partition("[")
            arguments = re.findall(r"\d+", rest)
            if isinstance(answer, dict):
                continue
            if name in PLAIN:
                own[PLAIN[name]] = answer
            elif name in INDEXED:
                own[".".join([INDEXED[name], *arguments])] = answer
            elif name in PER_LINK:
                own[PER_LINK[name].format(*arguments)] = answer
            elif name in SEVERAL:
                own |= dict(zip(SEVERAL[name], answer, strict=True))
        pci = gpu["nvmlDeviceGetPciInfo_v3"]
        own |= {
            "busid": pci["busId"],
            "pci.id": pci["pciDeviceId"],
            "mem.total": gpu["nvmlDeviceGetMemoryInfo"]["total"],
        }
        own |= {f"field.{FIELDS[name]}": gpu["fields"][name] for name in FIELDS}
        for link in range(gpu["fields"]["NVML_FI_DEV_NVLINK_LINK_COUNT"]):
            own.setdefault(f"nvlink.{link}.version", own["nvlink.0.version"])
            own.setdefault(f"nvlink.{link}.remote", own["nvlink.0.remote"])
            scope = f".{link}" if link else ""
            own |= {f"field.{LINK_FIELDS[name]}{scope}": gpu["fields"][name] for name in LINK_FIELDS}
        for other, kinds in gpu["p2p"].items():
            own |= {f"p2p.{kind}.{other}": status for kind, status in kinds.items()}
        values |= {f"gpu.{i}.{key}": value for key, value in own.items()}
    return {key: str(value) for key, value in values.items()}


def write(path: Path, values: dict[str, str]) -> Path:
    """The file that FAKE_NVML names."""
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
    return path
