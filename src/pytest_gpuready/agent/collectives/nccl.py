"""NCCL as the sweep needs it, through `nccl.bindings` (package nccl4py) with raw pointers; every answer is checked.

Nothing of nccl4py is touched anywhere else: its interface is young. The high-level one takes an array to be on device
0 and refuses it on another, after which the other ranks wait for ever; addresses have no such trouble.
"""

from __future__ import annotations

import importlib
from typing import Any

from pytest_gpuready.agent.cuda_driver import install
from pytest_gpuready.agent.stress.device import is_absent
from pytest_gpuready.errors import ToolError

OLDEST = 22300
"""From this version on ranks can be made as nccl4py makes them."""

ALLTOALL_SINCE = 22800
"""NCCL's number of the version from which it has alltoall as one call; before, it is a group of send and receive."""

SAID = 200


class NcclError(ToolError):
    """NCCL did not do what was asked; one line."""


class WaitingError(NcclError):
    """What was queued does not come to its end: another rank, or the way to it, may be to blame."""


class Nccl:
    """The library, loaded."""

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings
        self.number = int(self._ask("ncclGetVersion", bindings.get_version))
        self.version = f"{self.number // 10000}.{self.number // 100 % 100}.{self.number % 100}"
        if self.number < OLDEST:
            raise NcclError(f"expected NCCL 2.23 or newer, found {self.version}; {install()}")

    def unique_id(self) -> bytes:
        """What all ranks join with; made by one of them."""
        return bytes(self._ask("ncclGetUniqueId", self.bindings.get_unique_id))

    def join(self, nranks: int, rank: int, unique_id: bytes, stream: int, datatype: str) -> Communicator:
        """A rank of the communicator, on the GPU whose context is current; waits for all the others."""
        ids = bytearray(unique_id)  # the form in which nccl4py itself hands over ids, one or several
        comm = self._ask("ncclCommInitRank", self.bindings.comm_init_rank_scalable, nranks, rank, 1, ids, 0)
        return Communicator(self, comm, place=(nranks, rank), stream=stream, datatype=datatype)

    def _ask(self, name: str, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except self.bindings.NCCLError as error:
            raise NcclError(f"{name}: expected ncclSuccess, found {_line(str(error))}{self.last_words()}") from error

    def last_words(self) -> str:
        """What NCCL itself said about its last error; "" where it said nothing."""
        try:
            said = _line(self.bindings.get_last_error(self.bindings.Comm()))
        except (self.bindings.NCCLError, TypeError):
            return ""
        return f"; NCCL says: {said}" if said else ""


class Communicator:
    """One rank. Calls are queued on its stream and return; buffers are addresses, counts are elements."""

    def __init__(self, nccl: Nccl, comm: Any, *, place: tuple[int, int], stream: int, datatype: str) -> None:
        bindings = nccl.bindings
        self._nccl, self._bindings, self._comm, self._stream = nccl, bindings, comm, stream
        self.nranks, self.rank = place
        self._type = int({"float32": bindings.DataType.Float32, "bfloat16": bindings.DataType.Bfloat16}[datatype])
        self._width = {"float32": 4, "bfloat16": 2}[datatype]
        self._float32, self._sum = int(bindings.DataType.Float32), int(bindings.RedOp.Sum)

    def run(self, op: str, send: int, receive: int, count: int) -> None:
        """Queue one collective.

        Raises:
            NcclError: it was refused.
        """
        try:
            getattr(self, f"_{op}")(send, receive, count)
        except self._bindings.NCCLError as error:
            said = f"{_line(str(error))}{self._nccl.last_words()}"
            raise NcclError(f"{op} of {count} elements: expected ncclSuccess, found {said}") from error

    def barrier(self, address: int) -> None:
        """Queue an all_reduce of one element that lies there: no rank's stream goes on before all came so far."""
        try:
            self._bindings.all_reduce(address, address, 1, self._float32, self._sum, self._comm, self._stream)
        except self._bindings.NCCLError as error:
            said = f"{_line(str(error))}{self._nccl.last_words()}"
            raise NcclError(f"barrier: expected ncclSuccess, found {said}") from error

    def trouble(self) -> str:
        """What went wrong since a call returned; "" where nothing did."""
        code = int(self._bindings.comm_get_async_error(self._comm))
        if code in (int(self._bindings.Result.Success), int(self._bindings.Result.InProgress)):
            return ""
        return f"{_line(self._bindings.get_error_string(code))}{self._nccl.last_words()}"

    def leave(self) -> None:
        """Give up the communicator; all ranks of the node have to."""
        self._bindings.comm_destroy(self._comm)

    def _all_reduce(self, send: int, receive: int, count: int) -> None:
        self._bindings.all_reduce(send, receive, count, self._type, self._sum, self._comm, self._stream)

    def _all_gather(self, send: int, receive: int, count: int) -> None:
        self._bindings.all_gather(send, receive, count, self._type, self._comm, self._stream)

    def _reduce_scatter(self, send: int, receive: int, count: int) -> None:
        self._bindings.reduce_scatter(send, receive, count, self._type, self._sum, self._comm, self._stream)

    def _alltoall(self, send: int, receive: int, count: int) -> None:
        if self._nccl.number >= ALLTOALL_SINCE:
            self._bindings.allto_all(send, receive, count, self._type, self._comm, self._stream)
            return
        part = count * self._width
        self._bindings.group_start()
        for peer in range(self.nranks):
            self._bindings.send(send + peer * part, count, self._type, peer, self._comm, self._stream)
            self._bindings.recv(receive + peer * part, count, self._type, peer, self._comm, self._stream)
        self._bindings.group_end()

    def _sendrecv(self, send: int, receive: int, count: int) -> None:
        behind, ahead = (self.rank + 1) % self.nranks, (self.rank - 1) % self.nranks
        self._bindings.group_start()
        self._bindings.send(send, count, self._type, behind, self._comm, self._stream)
        self._bindings.recv(receive, count, self._type, ahead, self._comm, self._stream)
        self._bindings.group_end()


def load() -> Nccl:
    """NCCL of this machine.

    Raises:
        NcclError: package or library are missing, or it does not start.
    """
    try:
        bindings = importlib.import_module("nccl.bindings.nccl")
    except ImportError as error:
        raise NcclError(f"expected the package nccl4py, found: {_line(str(error))}; {install()}") from error
    try:
        return Nccl(bindings)
    except NcclError:
        raise
    except Exception as error:  # the loader of libraries has error types of its own
        if is_absent(error) or isinstance(error, (RuntimeError, OSError)):
            raise NcclError(f"expected libnccl.so.2, found: {_line(str(error))}; {install()}") from error
        raise


def _line(text: str) -> str:
    return " ".join(text.split())[:SAID]
