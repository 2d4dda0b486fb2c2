"""The GPUs that a site file lists one by one, beside those found: which entry is which GPU.

An address or a UUID is of one GPU; a serial number is of a board, and some boards carry several GPUs. So addresses and
UUIDs choose first, and a serial number takes what is left of its board.
"""

from __future__ import annotations

from pytest_gpuready.inventory.site import DeclaredGpu, DeclaredNode, Site
from pytest_gpuready.model import Gpu, Part, Slot


def listed(
    name: str, declared: tuple[DeclaredGpu, ...], gpus: tuple[Gpu, ...], assumptions: list[str]
) -> tuple[tuple[Slot, ...], tuple[Gpu, ...]]:
    """Slots in the order of the list, and GPUs that no entry names.

    A GPU on the bus that does not answer NVML has no UUID and no serial: it takes the place of a GPU that is missing
    by UUID or serial, since otherwise a dead GPU would count as a missing and an unexpected one.
    """
    taken, _ = _matched(declared, gpus)
    left = [gpu for gpu in gpus if gpu not in taken.values()]
    for index, entry in enumerate(declared):
        match, label = taken.get(index), f"{Part(node=name, index=index).label} ({entry})"
        if match and entry.module >= 0 and match.module >= 0 and entry.module != match.module:
            assumptions.append(f"{label}: declared in module {entry.module}, found in module {match.module}")
        silent = next((gpu for gpu in left if not gpu.uuid and not gpu.serial), None)
        if not match and entry.key != "bdf" and silent:
            taken[index] = silent
            left.remove(silent)
            assumptions.append(f"{label}: taken to be the GPU at {silent.bdf}, which NVML does not identify")
    slots = tuple(
        Slot(
            part=Part(node=name, index=index),
            expected_bdf=entry.value if entry.key == "bdf" else "",
            expected_module=entry.module,
            declared=str(entry),
            gpu=taken.get(index),
        )
        for index, entry in enumerate(declared)
    )
    return slots, tuple(left)


def named_twice(site: Site, node: DeclaredNode, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """An error line for every entry that names, in another way, a GPU that another entry named already."""
    taken, twice = _matched(node.gpus, gpus)
    lines = []
    for index, gpu in sorted(twice.items()):
        other = next(at for at, match in taken.items() if match == gpu)
        first, second = sorted((index, other))
        both = f"{node.gpus[first]} and {node.gpus[second]}"
        says = f"expected every GPU once, found {both} to be the same one at {gpu.bdf}; keep one"
        lines.append(site.wrong(("nodes", node.key, "gpus", second), says))
    return tuple(lines)


def _matched(declared: tuple[DeclaredGpu, ...], gpus: tuple[Gpu, ...]) -> tuple[dict[int, Gpu], dict[int, Gpu]]:
    """Entry -> its GPU, and entry -> a GPU that it names although another entry has it."""
    taken: dict[int, Gpu] = {}
    twice: dict[int, Gpu] = {}
    for index in sorted(range(len(declared)), key=lambda at: declared[at].key == "serial"):
        named = [gpu for gpu in gpus if _matches(declared[index], gpu)]
        free = next((gpu for gpu in named if gpu not in taken.values()), None)
        if free:
            taken[index] = free
        elif named:
            twice[index] = named[0]
    return taken, twice


def _matches(entry: DeclaredGpu, gpu: Gpu) -> bool:
    value = {"bdf": gpu.bdf, "uuid": gpu.uuid, "serial": gpu.serial}[entry.key]
    return bool(value) and value.lower() == entry.value.lower()
