"""The shape of the house: imports go downwards only, and the agent carries nothing that it does not need."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "pytest_gpuready"

# Upper rooms first. A module may import from its own room and from rooms below it.
ROOMS = (
    ("accept",),
    ("plugin",),
    ("driving", "judging", "grouped", "again", "blocks", "fixtures", "hookspecs", "screen", "unopened"),
    ("acceptance",),
    ("cli",),
    ("certificate",),
    ("audit",),
    ("campaign",),
    ("probes",),
    ("inventory",),
    ("faults",),
    ("profiles",),
    ("judge",),
    ("transport",),
    ("parse",),
    ("agent",),
    ("model",),
    ("errors", "files", "version"),
)
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}
AGENT_MAY_IMPORT = {"agent", "model", "errors"}


def modules() -> list[Path]:
    return [p for p in sorted(SRC.rglob("*.py")) if "suites" not in p.parts and p != SRC / "__init__.py"]


def room_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


@functools.cache
def imported_rooms(path: Path) -> frozenset[str]:
    """Rooms of the package that a module imports when it runs; what stands under TYPE_CHECKING is no import."""
    names: set[str] = set()
    left: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pytest_gpuready"):
            names |= (
                {node.module} if node.module != "pytest_gpuready" else {f"{node.module}.{a.name}" for a in node.names}
            )
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names if a.name.startswith("pytest_gpuready")}
        # An import is a statement: it stands in no expression.
        left += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.expr)]
    return frozenset({name.split(".")[1] for name in names if "." in name} - {"__version__"})


def test_imports_go_downwards() -> None:
    """No module imports from a room above its own."""
    homeless = {room_of(path) for path in modules()} - set(RANK)
    assert not homeless, f"{homeless} have no place in the house: add them to ROOMS"
    upward = {
        str(path.relative_to(SRC)): found
        for path in modules()
        if (found := sorted(other for other in imported_rooms(path) if RANK[other] < RANK[room_of(path)]))
    }
    assert upward == {}


def test_the_agent_stands_alone() -> None:
    """The agent imports the model and the errors only: that is all a node needs."""
    agent = [path for path in modules() if room_of(path) == "agent"]
    assert len(agent) > 1
    assert {path.name: imported_rooms(path) for path in agent if not imported_rooms(path) <= AGENT_MAY_IMPORT} == {}


def test_the_pytest_process_never_loads_cuda_or_nvml() -> None:
    """Importing everything that runs in the pytest process loads neither pynvml nor a CUDA package."""
    script = (
        "import sys, pytest_gpuready.driving, pytest_gpuready.plugin, pytest_gpuready.accept\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('pynvml', 'cuda', 'cupy', 'torch')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_plugin_is_light() -> None:
    """Loading the plug-in loads nothing of the package but a few small modules of its own room."""
    script = (
        "import sys, pytest_gpuready.plugin\n"
        "print(sorted(m for m in sys.modules if m.startswith('pytest_gpuready.')))\n"
        "print([m for m in ('msgspec', 'jinja2', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded, others = done.stdout.splitlines()
    mine = [f"pytest_gpuready.{name}" for name in ("fixtures", "hookspecs", "plugin", "unopened")]
    assert loaded == str(mine)
    assert others == "[]"
