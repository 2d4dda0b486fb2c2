"""NCCL behind its wrapper: which call each collective becomes, and every refusal as one line."""

from __future__ import annotations

import enum
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_gpuready.agent import cuda_driver
from pytest_gpuready.agent.collectives import nccl
from pytest_gpuready.agent.collectives.nccl import Nccl, NcclError


class DataType(enum.IntEnum):
    Float32 = 7
    Bfloat16 = 9


class Result(enum.IntEnum):
    Success = 0
    UnhandledCudaError = 1
    RemoteError = 6
    InProgress = 7


class StandInError(Exception):
    """As nccl4py has it."""


class Bindings:
    """STAND-IN for nccl.bindings.nccl: notes its calls; `refuse` raises."""

    NCCLError, DataType, Result = StandInError, DataType, Result
    RedOp = SimpleNamespace(Sum=0)

    def __init__(self, version: int = 23203) -> None:
        self.version, self.calls, self.refuse, self.said = version, [], "", ""
        self.code = Result.Success

    def Comm(self) -> str:  # noqa: N802 - their name
        return "no communicator"

    def get_version(self) -> int:
        return self.version

    def get_unique_id(self) -> bytes:
        return b"u" * 128

    def get_last_error(self, comm: Any) -> str:
        return self.said

    def get_error_string(self, code: int) -> str:
        return f"error {code}"

    def comm_get_async_error(self, comm: Any) -> int:
        return self.code

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name == self.refuse:
                raise StandInError("UnhandledCudaError (1): unhandled cuda error\n(run with NCCL_DEBUG=INFO)")
            self.calls.append((name, *arguments))
            return "comm" if name == "comm_init_rank_scalable" else None

        return call


def joined(bindings: Bindings, *, nranks: int = 3, rank: int = 1, datatype: str = "float32") -> nccl.Communicator:
    return Nccl(bindings).join(nranks, rank, b"u" * 128, 99, datatype)


def test_a_rank_joins_with_the_id() -> None:
    """The id travels as its 128 bytes; the version reads as NCCL prints it."""
    bindings = Bindings()
    found = Nccl(bindings)
    assert (found.version, found.unique_id()) == ("2.32.3", b"u" * 128)
    joined(bindings).leave()
    assert bindings.calls == [
        ("comm_init_rank_scalable", 3, 1, 1, bytearray(b"u" * 128), 0),
        ("comm_destroy", "comm"),
    ]


@pytest.mark.parametrize(
    ("op", "calls"),
    [
        ("all_reduce", [("all_reduce", 1000, 2000, 8, 7, 0, "comm", 99)]),
        ("all_gather", [("all_gather", 1000, 2000, 8, 7, "comm", 99)]),
        ("reduce_scatter", [("reduce_scatter", 1000, 2000, 8, 7, 0, "comm", 99)]),
        ("alltoall", [("allto_all", 1000, 2000, 8, 7, "comm", 99)]),
        (
            "sendrecv",
            [
                ("group_start",),
                ("send", 1000, 8, 7, 2, "comm", 99),
                ("recv", 2000, 8, 7, 0, "comm", 99),
                ("group_end",),
            ],
        ),
    ],
)
def test_each_collective_is_its_call(op: str, calls: list[tuple[Any, ...]]) -> None:
    """Addresses, elements, datatype, communicator and stream; a ring sends on and gets from behind."""
    bindings = Bindings()
    comm = joined(bindings)
    bindings.calls.clear()
    comm.run(op, 1000, 2000, 8)
    assert bindings.calls == calls


def test_an_old_library_sends_to_each() -> None:
    """Before 2.28 there is no call alltoall: every part goes to its rank in one group."""
    bindings = Bindings(version=22706)
    comm = joined(bindings, datatype="bfloat16")
    bindings.calls.clear()
    comm.run("alltoall", 1000, 2000, 8)
    assert bindings.calls == [
        ("group_start",),
        *[
            call
            for peer in range(3)
            for call in (
                ("send", 1000 + 16 * peer, 8, 9, peer, "comm", 99),
                ("recv", 2000 + 16 * peer, 8, 9, peer, "comm", 99),
            )
        ],
        ("group_end",),
    ]


@pytest.mark.parametrize(
    ("refuse", "says"),
    [
        (
            "comm_init_rank_scalable",
            "ncclCommInitRank: expected ncclSuccess, found UnhandledCudaError (1): unhandled cuda error",
        ),
        ("all_gather", "all_gather of 8 elements: expected ncclSuccess, found UnhandledCudaError (1)"),
        ("all_reduce", "barrier: expected ncclSuccess, found UnhandledCudaError (1)"),
    ],
)
def test_a_refusal_is_one_line_with_its_last_words(refuse: str, says: str) -> None:
    """What was called, NCCL's name of the error, and what it said last."""
    bindings = Bindings()
    bindings.refuse, bindings.said = refuse, "Cuda failure 2\n 'out of memory'"

    def use() -> None:
        comm = joined(bindings)
        comm.run("all_gather", 1, 2, 8)
        comm.barrier(3)

    with pytest.raises(NcclError) as raised:
        use()
    assert str(raised.value).startswith(says)
    assert str(raised.value).endswith("; NCCL says: Cuda failure 2 'out of memory'")


def test_trouble_that_comes_later_is_told() -> None:
    """Nothing where a call went well or still goes on; else the error and its last words."""
    bindings = Bindings()
    comm = joined(bindings)
    assert comm.trouble() == ""
    bindings.code = Result.InProgress
    assert comm.trouble() == ""
    bindings.code, bindings.said = Result.RemoteError, "Connection closed by remote peer"
    assert comm.trouble() == "error 6; NCCL says: Connection closed by remote peer"


def test_a_library_that_is_too_old_is_refused() -> None:
    """Before 2.23 ranks are not made as nccl4py makes them: said at once, with what to install."""
    with pytest.raises(NcclError, match=r"^expected NCCL 2\.23 or newer, found 2\.20\.5; "):
        Nccl(Bindings(version=22005))


class DynamicLibNotFoundError(RuntimeError):
    """As cuda-pathfinder has it."""


def test_what_is_missing_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package nccl4py, or the library that it loads: one line with the extra that brings it."""
    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", lambda name: _Driver())
    monkeypatch.setitem(sys.modules, "nccl", None)
    with pytest.raises(NcclError, match=r"^expected the package nccl4py, found: .*; pip install .*\[cuda12\]"):
        nccl.load()

    def not_found() -> int:
        raise DynamicLibNotFoundError('Failure finding "libnccl.so.2":\n No such file')

    bindings: Any = ModuleType("nccl.bindings.nccl")
    bindings.NCCLError, bindings.get_version = StandInError, not_found
    for name in ("nccl", "nccl.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "nccl.bindings.nccl", bindings)
    with pytest.raises(NcclError, match=r"^expected libnccl\.so\.2, found: .*No such file; pip install .*\[cuda12\]"):
        nccl.load()


class _Driver:
    """libcuda of a driver that speaks CUDA 12.8."""

    def cuDriverGetVersion(self, found: Any) -> int:  # noqa: N802 - the driver's own name
        found._obj.value = 12080
        return 0
