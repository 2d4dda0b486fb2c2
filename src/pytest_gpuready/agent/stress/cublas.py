"""Matrix products by cuBLASLt through `nvmath.bindings`: one plan a format and shape, its algorithm chosen by timing.

The first eight algorithms that the heuristics offer are timed, warm, twice two products; the heuristics' own first
choice stays unless another one is faster by more than `WORTH`, and what was chosen stays for all phases of the process.
Equal GPUs may choose differently all the same: results are comparable where `algorithm` is the same text. The first
offer is the same on equal chips with the same library, and one product with it (`first_offer`) is comparable always.
Algorithms that split K are not asked for: they would add in an order of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from pytest_gpuready.agent.cuda_driver import CudaError, install
from pytest_gpuready.agent.stress.device import is_absent
from pytest_gpuready.agent.stress.formats import COMPUTE_32I, R_64F, Format

OFFERS = 8
WORTH = 0.01
TIMED = 2
LONG_S = 0.03
"""A product that lasts longer than this is timed once, and only against one other algorithm."""
HOPELESS = 1.3
"""So much slower than the best so far, once is enough."""
WARM_S = 0.02
WORKSPACE = 64 * 2**20
TRANSPOSED = 1
# cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t
TRANSA, A_SCALE_POINTER, B_SCALE_POINTER, FAST_ACCUM, A_SCALE_MODE, B_SCALE_MODE = 3, 17, 18, 25, 31, 32
MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK = 1, 3
# cublasLtMatmulAlgoConfigAttributes_t
CONFIG = {"id": 0, "tile": 1, "split": 2, "reduction": 3, "swizzle": 4, "custom": 5, "stages": 6}
CONFIG |= {"inner": 7, "cluster": 8}
SHORT = ("inner", "cluster")
"""Attributes of 16 bits."""


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t; the algorithm is its first 64 bytes."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Cublas:
    """cuBLASLt with a handle, in the context of this thread."""

    def __init__(self) -> None:
        try:
            self._lt = importlib.import_module("nvmath.bindings.cublasLt")
        except ImportError as error:
            raise CudaError(f"expected the package nvmath-python, found: {error}; {install()}") from error
        self.chosen: dict[tuple[str, tuple[int, int, int]], str] = {}
        """Format and shape -> the name of the algorithm that was chosen."""
        self._handle = self.call("create")
        number = int(self.call("get_version"))
        self.version = f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def call(self, name: str, *arguments: Any) -> Any:
        """One call of the library.

        Raises: CudaError with the library's own words.
        """
        try:
            return getattr(self._lt, name)(*arguments)
        except Exception as error:  # the bindings' own types: cuBLASLtError, and RuntimeError for a missing library
            said = " ".join(str(error).split())[:200]
            if is_absent(error):
                raise CudaError(f"expected cuBLAS to multiply with, found: {said[:160]}; {install()}") from error
            raise CudaError(f"cublasLt {name}: expected success, found {type(error).__name__}: {said}") from error

    @property
    def handle(self) -> int:
        return int(self._handle)


def _attribute(lt: Cublas, setter: str, target: int, which: int, value: ctypes._SimpleCData[Any]) -> None:
    lt.call(setter, target, which, ctypes.addressof(value), ctypes.sizeof(value))


class Multiplication:
    """D = A·B of one format and shape on fixed buffers; `run` queues one product."""

    def __init__(
        self,
        lt: Cublas,
        gpu: Any,
        form: Format,
        shape: tuple[int, int, int],
        *,
        a: int,
        b: int,
        d: int,
        space: int,
    ) -> None:
        self._lt = lt
        m, n, k = shape
        self._made: list[tuple[str, int]] = []
        self._desc = self._make("matmul_desc", form.compute, form.scale)
        _attribute(lt, "matmul_desc_set_attribute", self._desc, TRANSA, ctypes.c_int32(TRANSPOSED))
        if form.fast_accumulation:
            _attribute(lt, "matmul_desc_set_attribute", self._desc, FAST_ACCUM, ctypes.c_int8(1))
        self._layouts = [
            self._make("matrix_layout", form.types[0], k, m, k),
            self._make("matrix_layout", form.types[1], k, n, k),
            self._make("matrix_layout", form.types[2], m, n, m),
        ]
        number = ctypes.c_int32 if form.compute == COMPUTE_32I else ctypes.c_double if form.scale == R_64F else None
        self._one, self._none = (number or ctypes.c_float)(1), (number or ctypes.c_float)(0)
        self._a, self._b, self._d, self._space, self._stream = a, b, d, space, gpu.stream
        self._form, self._shape = form, shape
        self._offers: list[_Heuristic] = []
        self._chosen = 0
        self.pass_s = 0.0
        self.timed: list[float] = []

    def _make(self, what: str, *arguments: int) -> int:
        made = int(self._lt.call(f"{what}_create", *arguments))
        self._made.append((f"{what}_destroy", made))
        return made

    def scales(self, a: int, b: int) -> None:
        """Where the block scales of A and B lie."""
        mode = ctypes.c_int32(self._form.block_scale)
        for which, value in ((A_SCALE_MODE, mode), (B_SCALE_MODE, mode)):
            _attribute(self._lt, "matmul_desc_set_attribute", self._desc, which, value)
        for which, address in ((A_SCALE_POINTER, a), (B_SCALE_POINTER, b)):
            _attribute(self._lt, "matmul_desc_set_attribute", self._desc, which, ctypes.c_uint64(address))

    def choose(self, seconds_of: Callable[[Callable[[], None], int], float]) -> None:
        """Ask for algorithms and keep the fastest.

        Raises: CudaError where the library has none for this format here.
        """
        preference = self._make("matmul_preference")
        setter = "matmul_preference_set_attribute"
        _attribute(self._lt, setter, preference, MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE))
        _attribute(self._lt, setter, preference, REDUCTION_SCHEME_MASK, ctypes.c_uint32(0))
        found, count = (_Heuristic * OFFERS)(), ctypes.c_int(0)
        a, b, d = self._layouts
        self._lt.call(
            "matmul_algo_get_heuristic",
            *(self._lt.handle, self._desc, a, b, d, d, preference, OFFERS),
            *(ctypes.addressof(found), ctypes.addressof(count)),
        )
        self._offers = [one for one in found[: count.value] if one.state == 0]
        if not self._offers:
            raise CudaError(f"expected an algorithm for {self._form.name} {self._shape}, found none in this cuBLAS")
        key = (self._form.name, self._shape)
        if key in self._lt.chosen:  # the same one for every phase of this process
            names = [self._name(place) for place in range(len(self._offers))]
            kept = self._lt.chosen[key]
            self._chosen = names.index(kept) if kept in names else 0
            self.pass_s = seconds_of(self.run, TIMED)
            return
        once = seconds_of(self.run, 1)
        seconds_of(self.run, max(1, round(WARM_S / once)))  # an idle card's clocks need a moment to rise
        times = self._time(seconds_of, [0.0] * len(self._offers))
        if once <= LONG_S:  # twice, for clocks move
            times = self._time(seconds_of, times)
        best = min(range(len(times)), key=times.__getitem__)
        self._chosen = best if times[best] < times[0] * (1 - WORTH) else 0
        self._lt.chosen[key] = self.algorithm
        self.pass_s = times[self._chosen]
        self.timed = times

    def _time(self, seconds_of: Callable[[Callable[[], None], int], float], before: list[float]) -> list[float]:
        """The shortest time of each offer, now or before (0: never yet); inf for one that does not run."""
        times: list[float] = []
        for place, known in enumerate(before):
            best = min([one for one in [*times, *before] if one], default=float("inf"))
            if (place and known > HOPELESS * best) or (best > LONG_S and place > 1 and best < float("inf")):
                times.append(known or float("inf"))
                continue
            self._chosen = place
            try:
                once = seconds_of(self.run, 1)
            except CudaError:
                if place == 0:
                    raise
                times.append(float("inf"))
                continue
            took = once if once > min(LONG_S, HOPELESS * best) else seconds_of(self.run, TIMED)
            times.append(min(took, known) if known else took)
        return times

    def run(self) -> None:
        """Queue one product."""
        offer, lt = self._offers[self._chosen], self._lt
        a, b, d = self._layouts
        lt.call(
            "matmul",
            *(lt.handle, self._desc, ctypes.addressof(self._one), self._a, a, self._b, b),
            *(ctypes.addressof(self._none), self._d, d, self._d, d),
            *(ctypes.addressof(offer), self._space, WORKSPACE, self._stream),
        )

    @property
    def took_first(self) -> bool:
        """True where the heuristics' own first choice is the one that was taken."""
        return self._chosen == 0

    @contextlib.contextmanager
    def first_offer(self) -> Iterator[None]:
        """Products that are queued meanwhile use the heuristics' own first choice."""
        chosen, self._chosen = self._chosen, 0
        try:
            yield
        finally:
            self._chosen = chosen

    @property
    def algorithm(self) -> str:
        """Which offer is used and how it is set up, all that can be set: equal text is the same algorithm.

        The bytes of it would not do: two H200s with one library had some that nobody had written.
        """
        return self._name(self._chosen)

    def _name(self, place: int) -> str:
        offer = self._offers[place]
        parts = []
        for name, which in CONFIG.items():
            value, size = ctypes.c_uint32(0), ctypes.c_size_t(0)
            width = 2 if name in SHORT else 4
            with contextlib.suppress(CudaError):  # not every algorithm has every attribute
                self._lt.call(
                    "matmul_algo_config_get_attribute",
                    *(ctypes.addressof(offer), which, ctypes.addressof(value), width, ctypes.addressof(size)),
                )
                parts.append(f"{name} {value.value}")
        return ", ".join(parts)

    def close(self) -> None:
        for destroy, made in reversed(self._made):
            with contextlib.suppress(CudaError):
                self._lt.call(destroy, made)
        self._made = []
