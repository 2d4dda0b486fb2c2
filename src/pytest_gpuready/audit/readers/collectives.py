"""Readers of collectives and bandwidth: nccl-tests, NCCL logs, launchers, nvbandwidth, gpu-burn, iperf3.

What recognises an output is cheap and loaded at once; what reads it is imported when it is needed, because an audit of
one file must not pay for every tool.
"""

from __future__ import annotations

from pytest_gpuready.audit.reader import WHOLE_AT_MOST, Given, Reader, Reading

_LAUNCHER_LINES = (
    "srun: ", "slurmstepd: error", "salloc: ", "mpirun noticed", "prterun noticed", "mpirun detected",
    "prterun detected",
    "BAD TERMINATION", "MPI_ABORT was invoked", "mpirun was unable", "lost communication with a remote daemon",
    "mpirun has exited", "mpirun: ", "prterun: ", "mpiexec: ",
)  # fmt: skip


def _lines(head: str) -> list[str]:
    return [line for line in head.splitlines() if line.strip()]


def _is_json(head: str) -> bool:
    return head.lstrip()[:1] in ("{", "[")


def _nccl_tests(head: str) -> int:
    if _is_json(head):
        return 0
    if "# nThread " in head and "minBytes" in head:
        return 95
    if "busbw" in head and "algbw" in head and "redop" in head:
        return 90
    return (
        80 if "# Out of bounds values" in head or ": Test NCCL failure" in head or ": Test CUDA failure" in head else 0
    )


def _nccl_json(head: str) -> int:
    return 95 if head.lstrip().startswith("{") and '"nccl_version"' in head and '"args"' in head else 0


def _nccl_log(head: str) -> int:
    if _is_json(head):
        return 0
    lines = _lines(head)[:2000]
    said = sum(1 for line in lines if " NCCL INFO " in line or " NCCL WARN " in line)
    return 0 if not said else 75 if said * 4 >= len(lines) else 45


def _launcher(head: str) -> int:
    if _is_json(head):
        return 0
    return 55 if any(word in line for line in _lines(head)[:5000] for word in _LAUNCHER_LINES) else 0


def _iperf3(head: str) -> int:
    if _is_json(head):
        marks = ('"iperf 3', '"test_start"', '"event":"start"', '"sum_received"', '"tcp_mss_default"')
        return (
            90
            if sum(mark in head.replace('": "', '":"').replace("\t", "") for mark in marks) and '"start"' in head
            else 0
        )
    return (
        70
        if "iperf3: error" in head or ("[ ID] Interval" in head and ("Bitrate" in head or "Bandwidth" in head))
        else 0
    )


def _nvbandwidth(head: str) -> int:
    return 95 if head.lstrip().startswith("{") and '"nvbandwidth"' in head[:400] else 0


def _gpu_burn(head: str) -> int:
    if "proc'd:" in head and "Gflop/s" in head:
        return 90
    return (
        85
        if "Burning for" in head and "seconds" in head
        else 60
        if "Tested " in head and "GPUs:" in head and "\tGPU " in head
        else 0
    )


def _read_nccl_tests(given: Given) -> Reading:
    from pytest_gpuready.audit.readers import nccl_outputs  # noqa: PLC0415 - loaded when needed

    return nccl_outputs.tests_text(given)


def _read_nccl_json(given: Given) -> Reading:
    from pytest_gpuready.audit.readers import nccl_outputs  # noqa: PLC0415

    return nccl_outputs.tests_json(given)


def _read_nccl_log(given: Given) -> Reading:
    from pytest_gpuready.audit.readers import nccl_outputs  # noqa: PLC0415

    return nccl_outputs.debug_log(given)


def _read_launcher(given: Given) -> Reading:
    from pytest_gpuready.audit.readers import nccl_outputs  # noqa: PLC0415

    return nccl_outputs.launcher(given)


def _read_iperf3(given: Given) -> Reading:
    from pytest_gpuready.audit.readers import throughput  # noqa: PLC0415

    return throughput.iperf3(given)


def _read_nvbandwidth(given: Given) -> Reading:
    from pytest_gpuready.audit.readers import throughput  # noqa: PLC0415

    return throughput.nvbandwidth(given)


def _read_gpu_burn(given: Given) -> Reading:
    from pytest_gpuready.audit.readers import throughput  # noqa: PLC0415

    return throughput.gpu_burn(given)


READERS: tuple[Reader, ...] = (
    Reader(tool="nccl-tests-text", recognise=_nccl_tests, read=_read_nccl_tests),
    Reader(tool="nccl-tests-json", recognise=_nccl_json, read=_read_nccl_json, at_most=WHOLE_AT_MOST),
    Reader(tool="nccl-debug-log", recognise=_nccl_log, read=_read_nccl_log),
    Reader(tool="launcher", recognise=_launcher, read=_read_launcher),
    Reader(tool="iperf3", recognise=_iperf3, read=_read_iperf3, at_most=WHOLE_AT_MOST),
    Reader(tool="nvbandwidth", recognise=_nvbandwidth, read=_read_nvbandwidth, at_most=WHOLE_AT_MOST),
    Reader(tool="gpu-burn", recognise=_gpu_burn, read=_read_gpu_burn),
)
