"""The agent as one file that any Python from 3.10 on can run: what `transport.ssh` sends along with an agent command.

It holds the agent, the model, the errors, NVIDIA's `pynvml` (pure Python) and, under the name of msgspec, the little of
it that the agent needs (`plain_msgspec`): the real one is compiled for one Python and one machine, which need not be
the node's. It is the code of the controller, so both always speak the same protocol. What cannot travel are the CUDA
packages: a probe that needs them says so in its document where the node's Python has none.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pytest_gpuready.errors import TransportError

OLDEST = (3, 10)
"""The oldest Python that runs the agent."""

_PACKAGE = Path(__file__).parents[1]
_WHEN = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentZip:
    """The file and its name: the sha256 of its bytes, in hexadecimal."""

    data: bytes
    sha256: str


@functools.cache
def agent_zip() -> AgentZip:
    """The agent of this installation; the same sources give the same bytes.

    Raises:
        TransportError: `pynvml` is not installed here.
    """
    nvml = importlib.util.find_spec("pynvml")
    if nvml is None or nvml.origin is None:
        raise TransportError("expected the module pynvml here, found none; pip install nvidia-ml-py")
    files = {
        "pytest_gpuready/__init__.py": _PACKAGE / "__init__.py",
        "pytest_gpuready/errors.py": _PACKAGE / "errors.py",
        "msgspec.py": _PACKAGE / "transport" / "plain_msgspec.py",
        "pynvml.py": Path(nvml.origin),
    }
    for room in ("agent", "model"):
        for path in (_PACKAGE / room).rglob("*.py"):
            files[f"pytest_gpuready/{path.relative_to(_PACKAGE).as_posix()}"] = path
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _WHEN), path.read_bytes(), zipfile.ZIP_DEFLATED)
    data = stream.getvalue()
    return AgentZip(data=data, sha256=hashlib.sha256(data).hexdigest())
