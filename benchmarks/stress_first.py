"""One GPU under the built-in engine's worker, beside PyTorch in turns; prints a table and writes one JSON file.

    python benchmarks/stress_first.py OUT.json [--seconds 5] [--rounds 2] [--steps start,gemm,..] [--formats bf16,..]

Ours is the worker as the crew starts it: a process that is spoken to in lines of JSON. PyTorch runs in a process of its
own, with the same shapes, seconds, kind of data and clock (CUDA events, queue never empty). Who goes first alternates
from format to format. Power and clocks are read by NVML every 50 ms. Changes no setting of the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pynvml

HERE = Path(__file__).parent
STEPS = ("start", "gemm", "planted", "clean", "hbm", "cache", "patterns", "pulse")
FORMATS = ("bf16", "fp8_e4m3", "tf32", "fp16", "fp64", "int8", "fp8_e5m2")
SHORTER = {"fp64", "int8", "fp8_e5m2"}
"""Formats that are given three fifths of the seconds."""
PATTERNS = ("walking", "inversions", "address", "random", "modulo20", "fade")


class Child:
    """A process that answers lines of JSON."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}
        )

    def tell(self, line: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout
        text = self.process.stdout.readline()
        return json.loads(text) if text else {"problem": f"ended with {self.process.wait()}"}

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


class Worker(Child):
    """Ours. Runs phases one after the other and gives back their results."""

    def __init__(self, bdf: str, phases: list[dict[str, Any]], *, plants: bool = False) -> None:
        super().__init__(
            [sys.executable, "-m", "pytest_gpuready.agent.stress.worker", bdf],
            {"GPUREADY_STRESS_PLANTS": "1" if plants else ""},
        )
        self.phases = phases
        self.tell({"work": {"seed": 7, "share": 0.9, "phases": phases}})
        said = self.hear()
        self.ready = said.get("ready", said)
        if "ready" not in said:
            print(f"worker: {said}", flush=True)

    def run(self, number: int, lead_s: float = 0.5) -> dict[str, Any]:
        self.tell({"begin": number, "at": time.monotonic() + lead_s})
        while "said" in (line := self.hear()):
            pass
        return line.get("result", line)


class Power:
    """Board power and SM clock while something runs."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.samples: list[tuple[float, float, int, int]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            watts = pynvml.nvmlDeviceGetPowerUsage(self._handle) / 1e3
            clock = pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM)
            warm = pynvml.nvmlDeviceGetTemperature(self._handle, pynvml.NVML_TEMPERATURE_GPU)
            self.samples.append((time.monotonic(), watts, clock, warm))
            time.sleep(0.05)

    def median(self, since: float) -> tuple[float, int, int]:
        """Medians of the second half since a moment: watts, MHz, degrees."""
        seen = [one for one in self.samples if one[0] >= since]
        seen = seen[len(seen) // 2 :] or [(0.0, 0.0, 0, 0)]
        return (
            statistics.median(one[1] for one in seen),
            int(statistics.median(one[2] for one in seen)),
            int(statistics.median(one[3] for one in seen)),
        )


def bdf_of(handle: Any) -> str:
    said = pynvml.nvmlDeviceGetPciInfo(handle).busId
    text = (said.decode() if isinstance(said, bytes) else said).lower()
    domain, rest = text.split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def start(bdf: str, found: dict[str, Any]) -> None:
    """From the start of the process to the first product, against `import torch` and a first product."""
    ours, theirs = [], []
    gemm = {"kind": "gemm", "format": "bf16", "seconds": 0.1, "m": 2048, "n": 2048, "k": 2048}
    for _ in range(3):
        worker = Worker(bdf, [gemm])
        ready = time.monotonic() - worker.started
        result = worker.run(0, 0.0)
        done = time.monotonic() - worker.started
        product = next((float(n.split()[2]) for n in result.get("notes", []) if n.startswith("first product")), 0.0)
        ours.append((ready, product, done))
        worker.close()
    script = "import torch; a = torch.randn(2048, 2048, device='cuda', dtype=torch.bfloat16); (a @ a).sum().item()"
    for _ in range(2):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-c", script], check=True)
        theirs.append(time.monotonic() - begun)
    found["start"] = {"ours_ready_product_phase": ours, "torch": theirs}
    best = statistics.median(one[0] for one in ours)
    print(f"start: ready {[round(o[0], 2) for o in ours]} s, first product {[round(o[1], 2) for o in ours]} s, a whole")
    print(f"       phase of 0.1 s {[round(o[2], 2) for o in ours]} s; torch, first {[round(t, 2) for t in theirs]} s")
    print(f"       ready / torch, medians = {best / statistics.median(theirs):.2f}", flush=True)


def gemm(bdf: str, found: dict[str, Any], args: argparse.Namespace, power: Power) -> None:
    """Every format in turns with PyTorch."""
    formats = args.formats.split(",") if args.formats else FORMATS
    lasting = {name: args.seconds * (0.6 if name in SHORTER and not args.formats else 1) for name in formats}
    phases = [{"kind": "gemm", "format": name, "seconds": lasting[name]} for name in formats]
    worker = Worker(bdf, phases)
    peer = Child([sys.executable, str(HERE / "stress_torch.py")])
    peer.hear()
    print(f"{'format':9s} {'ours burst':>10s} {'sust.':>7s} {'torch burst':>11s} {'sust.':>7s} {'ratio':>6s}  W, MHz")
    for number, name in enumerate(formats):
        ours: list[dict[str, Any]] = []
        theirs: list[dict[str, Any]] = []

        def mine(number: int = number, name: str = name, ours: list[dict[str, Any]] = ours) -> None:
            result = worker.run(number)
            result["power"] = power.median(time.monotonic() - lasting[name])
            ours.append(result)

        def other(name: str = name, theirs: list[dict[str, Any]] = theirs) -> None:
            peer.tell({"gemm": name, "shape": found["shape"][name], "seconds": lasting[name]})
            result = peer.hear()
            result["power"] = power.median(time.monotonic() - lasting[name])
            theirs.append(result)

        from pytest_gpuready.agent.stress.formats import FORMATS as SHAPES  # noqa: PLC0415

        found.setdefault("shape", {})[name] = list(SHAPES[name].shape)
        for _ in range(args.rounds):
            for turn in (mine, other) if number % 2 == 0 else (other, mine):
                turn()
        found.setdefault("gemm", {})[name] = {"ours": ours, "torch": theirs}
        if any("sustained_tflops" not in one for one in ours + theirs):
            print(f"{name}: {[o.get('problem', 'ok') for o in ours]} {[o.get('problem', 'ok') for o in theirs]}")
            continue

        def middle(seen: list[dict[str, Any]], what: str) -> float:
            return statistics.median(one[what] for one in seen)

        ratio = middle(ours, "sustained_tflops") / middle(theirs, "sustained_tflops")
        print(
            f"{name:9s} {middle(ours, 'burst_tflops'):10.1f} {middle(ours, 'sustained_tflops'):7.1f} "
            f"{middle(theirs, 'burst_tflops'):11.1f} {middle(theirs, 'sustained_tflops'):7.1f} {ratio:6.3f}  "
            f"{ours[-1]['power']} / {theirs[-1]['power']}"
        )
        one = ours[0]
        print(
            f"      errors {sum(o.get('error_count', 0) for o in ours)}, digests {len({o['digest'] for o in ours})}, "
            f"late {one.get('late_s', 0):.2f} s, cv {one.get('cv', 0):.4f}; {'; '.join(one['notes'])}; "
            f"{one['algorithm']}",
            flush=True,
        )
    worker.close()
    peer.close()


def hbm(bdf: str, found: dict[str, Any], args: argparse.Namespace) -> None:
    """HBM kernels in turns with PyTorch's copy, fill and sum."""
    kernels = ("copy", "read", "write", "triad")
    worker = Worker(bdf, [{"kind": "hbm", "kernel": kernel, "repeats": 8} for kernel in kernels])
    peer = Child([sys.executable, str(HERE / "stress_torch.py")])
    peer.hear()
    for number, kernel in enumerate(kernels):
        ours: list[float] = []
        theirs: list[float] = []
        notes: list[str] = []
        for _ in range(args.rounds):
            result = worker.run(number, 0.1)
            if "gb_per_s" not in result:
                print(f"hbm {kernel}: {result}")
                continue
            ours += result["gb_per_s"]
            notes = result["notes"]
            if kernel != "triad":
                peer.tell({"hbm": kernel, "size": result["size_bytes"], "repeats": 8})
                theirs += peer.hear()["gb_per_s"]
        found.setdefault("hbm", {})[kernel] = {"ours": ours, "torch": theirs, "notes": notes}
        if ours:
            ratio = f"{statistics.median(ours) / statistics.median(theirs):.3f}" if theirs else "-"
            torch_ = f"{statistics.median(theirs):.0f}" if theirs else "-"
            print(
                f"hbm {kernel:6s} ours {statistics.median(ours):6.0f} GB/s, torch {torch_}, ratio {ratio}; {notes}",
                flush=True,
            )
    worker.close()
    peer.close()


def memory(bdf: str, found: dict[str, Any], steps: list[str]) -> None:
    """Caches and patterns over all memory."""
    phases: list[dict[str, Any]] = []
    if "cache" in steps:
        phases += [{"kind": "cache", "level": level} for level in ("l1", "l2")]
    if "patterns" in steps:
        phases += [{"kind": "alloc"}]
        phases += [{"kind": "pattern", "pattern": name, "pause_s": 0.5} for name in PATTERNS]
    worker = Worker(bdf, phases)
    for number, phase in enumerate(phases):
        begun = time.monotonic()
        result = worker.run(number, 0.0)
        wall = time.monotonic() - begun
        found.setdefault("memory", []).append({"phase": phase, "wall_s": wall, **result})
        name = phase.get("pattern") or phase.get("level") or phase["kind"]
        print(
            f"{phase['kind']} {name:10s} {wall:6.2f} s {result.get('gb_per_s', 0):8.0f} GB/s, checked "
            f"{result.get('checked_bytes', result.get('bytes', 0)) / 1e9:9.1f} GB, errors "
            f"{result.get('error_count', 0)} {result.get('problem', '')} {result.get('notes', '')}",
            flush=True,
        )
    worker.close()


def planted(bdf: str, found: dict[str, Any]) -> None:
    """Faults in every format and in memory: each has to be found, and nothing else."""
    phases: list[dict[str, Any]] = []
    for name in FORMATS:
        for bit in (0, 9):
            plant = {"what": "result", "pass_number": 2, "element": 1234567 + bit, "bit": bit}
            phases.append({"kind": "gemm", "format": name, "seconds": 0.2, "plant": plant})
        for what in ("tile", "nan"):
            phases.append({"kind": "gemm", "format": name, "seconds": 0.2, "plant": {"what": what}})
        # Sixteen products, so that every slice of D has been overwritten before one of them.
        plant = {"what": "unwritten", "pass_number": 3, "element": 1234567}
        phases.append({"kind": "gemm", "format": name, "seconds": 0.8, "plant": plant})
        plant = {"what": "input", "element": 1234567, "bit": 2}
        phases.append({"kind": "gemm", "format": name, "seconds": 0.2, "plant": plant})
    for name in PATTERNS:
        plant = {"what": "memory", "element": 987654321, "bit": 13}
        phases.append({"kind": "pattern", "pattern": name, "pause_s": 0.1, "size_bytes": 8 * 2**30, "plant": plant})
    worker = Worker(bdf, phases, plants=True)
    right = 0
    for number, phase in enumerate(phases):
        result = worker.run(number, 0.0)
        plant = phase["plant"]
        count = result.get("error_count", 0)
        first = (result.get("errors") or [{}])[0]
        if plant["what"] == "result":
            m = result.get("m", 1)
            where = (first.get("pass_number"), first.get("col", 0) * m + first.get("row", 0), first.get("bit"))
            good = count == 1 and where == (plant["pass_number"], plant["element"], plant["bit"])
        elif plant["what"] in ("tile", "nan"):
            good = count > 1000 and first.get("pass_number") == -1
            good = good and (plant["what"] == "tile" or count > result["m"] * result["n"] / 2)
        elif plant["what"] == "unwritten":
            m = result.get("m", 1)
            where = (first.get("row", 0) // 128, first.get("col", 0) // 128)
            good = where == (plant["element"] % m // 128, plant["element"] // m // 128)
            good = good and 3 <= first.get("pass_number", -1) < 3 + 16 and set(first["found"][2:]) == {"a", "5"}
        elif plant["what"] == "input":
            k = result.get("k", 1)
            where = (first.get("matrix"), first.get("row"), first.get("col"), first.get("bit"))
            good = count == 1 and where == ("A", plant["element"] // k, plant["element"] % k, plant["bit"])
        else:
            good = count >= 1 and (first.get("address"), first.get("bit")) == (plant["element"] * 4, plant["bit"])
        good = good and result.get("control") == "seen"
        right += good
        found.setdefault("planted", []).append({"phase": phase, "found": good, **result})
        name = phase.get("format") or phase.get("pattern")
        print(
            f"planted {name:10s} {plant['what']:9s} bit {plant.get('bit', '-')}: {'found' if good else 'MISSED'}, "
            f"{count} errors, control {result.get('control', 'none')!r} {result.get('problem', '')} "
            f"{'' if good else first}",
            flush=True,
        )
    print(f"planted: {right} of {len(phases)} found")
    refused = Worker(bdf, phases[:1])
    said = refused.run(0, 0.0)
    print(f"planted without leave: {said.get('problem', 'NOT REFUSED')}", flush=True)
    refused.close()
    worker.close()


def pulses(bdf: str, found: dict[str, Any], power: Power) -> None:
    """Pulses of several periods."""
    phases = [
        {"kind": "pulse", "format": "bf16", "period_s": period, "duty": 0.5, "seconds": seconds}
        for period, seconds in ((0.01, 2.0), (0.1, 2.0), (0.5, 3.0), (2.0, 6.0))
    ]
    worker = Worker(bdf, phases)
    for number, phase in enumerate(phases):
        result = worker.run(number, 0.5)
        found.setdefault("pulse", []).append(result)
        watts = [one[1] for one in power.samples if one[0] > time.monotonic() - phase["seconds"]] or [0]
        print(
            f"pulse {phase['period_s']:g} s: {result.get('cycles')} cycles, late at most "
            f"{1e3 * result.get('late_max_s', 0):.2f} ms, began {result.get('late_s', 0):.3f} s late, errors "
            f"{result.get('error_count', 0)}, {min(watts):.0f} to {max(watts):.0f} W {result.get('problem', '')}",
            flush=True,
        )
    worker.close()


def clean(bdf: str, found: dict[str, Any], args: argparse.Namespace, power: Power) -> None:
    """A burn-in without faults: no false alarm, power at the limit; and how fast it ends when told to."""
    worker = Worker(bdf, [{"kind": "burn", "seconds": args.clean}, {"kind": "burn", "seconds": 60.0}])
    result = worker.run(0)
    watts = power.median(time.monotonic() - args.clean)
    found["clean"] = {"power": watts, **result}
    print(
        f"clean burn {result.get('seconds', 0):.1f} s: passes {result.get('passes')}, checked "
        f"{result.get('checked', 0):.3g} elements, errors {result.get('error_count', 0)}, median {watts} "
        f"{result.get('problem', '')}"
    )
    for one in result.get("each", []):
        print(f"  {one['format']}: {one.get('sustained_tflops', 0):.1f} TFLOPS, {one.get('passes')} passes")
    traffic = [one["gb_per_s"] for one in result.get("windows", []) if one["format"] == "memory"]
    print(f"  memory turns: {[round(rate) for rate in traffic]} GB/s")
    worker.tell({"begin": 1, "at": time.monotonic() + 0.3})
    time.sleep(3)
    told = time.monotonic()
    worker.tell({"stop": True})
    while "said" in (line := worker.hear()):
        pass
    reported = time.monotonic() - told
    code = worker.process.wait(20)
    cut = line.get("result", line).get("cut", line.get("problem"))
    print(f"stop: reported after {reported:.2f} s (cut {cut}), exit {code} after {time.monotonic() - told:.2f} s")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clean", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--formats", default="", help="of the step gemm alone, all for the same seconds")
    args = parser.parse_args()
    steps = args.steps.split(",")
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    bdf, power = bdf_of(handle), Power(handle)
    found: dict[str, Any] = {"name": str(pynvml.nvmlDeviceGetName(handle))}
    begun = time.monotonic()
    work = {
        "start": lambda: start(bdf, found),
        "gemm": lambda: gemm(bdf, found, args, power),
        "hbm": lambda: hbm(bdf, found, args),
        "cache": lambda: memory(bdf, found, [one for one in steps if one in ("cache", "patterns")]),
        "planted": lambda: planted(bdf, found),
        "pulse": lambda: pulses(bdf, found, power),
        "clean": lambda: clean(bdf, found, args, power),
    }
    for step in steps:
        if step not in work:
            continue
        try:
            work[step]()
        except (KeyError, OSError, ValueError, subprocess.SubprocessError, TypeError, AttributeError) as error:
            print(f"{step}: {type(error).__name__}: {error}", flush=True)
        print(f"-- {step}: {time.monotonic() - begun:.0f} s", flush=True)
        args.out.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
