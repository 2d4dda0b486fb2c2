"""Reading NVML call by call: a value, or the error's name beside the field it would have filled.

The binding and the driver have versions of their own. A function that the binding lacks reads the same as one that the
driver lacks: "FunctionNotFound". Nothing else is caught, so a mistake of ours stays one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LOST = ("GpuIsLost", "ResetRequired")
MISSING = "FunctionNotFound"

# nvmlFieldValue_t.valueType -> member of its union.
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def error_name(error: Any) -> str:
    """The name of an NVML error without its prefix: "NotSupported"; "code 42" where the binding has no name."""
    name = type(error).__name__.removeprefix("NVMLError")
    return name.removeprefix("_") or f"code {error.value}"


def signed(value: int) -> int:
    """A 32-bit number that NVML declares unsigned and means signed: 4294967294 is -2."""
    return value - 2**32 if value >= 2**31 else value


def text(value: Any) -> str:
    """A string of NVML; the binding decodes most of them and hands over a few as bytes (GSP firmware version)."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class Reader:
    """Calls about one GPU. `errors` collects field -> error name; `lost` is set once the GPU does not answer at all."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.nvml = nvml
        self.handle = handle
        self.errors: dict[str, str] = {}
        self.lost = ""

    def call(self, fields: str | Sequence[str], function: str, *arguments: Any) -> Any:
        """What the function answers, or None and its error's name under every one of the fields."""
        names = (fields,) if isinstance(fields, str) else fields
        known = getattr(self.nvml, function, None)
        if known is None:
            return self._failed(names, MISSING)
        try:
            return known(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            return self._failed(names, error_name(error))
        except UnicodeDecodeError:  # the binding decodes strings as UTF-8
            return self._failed(names, "UnreadableText")

    def first(self, field: str, *functions: str) -> Any:
        """The answer of the first function that binding and driver both have: new names first, older ones after."""
        answer = None
        for function in functions:
            self.errors.pop(field, None)
            answer = self.call(field, function)
            if self.errors.get(field) not in (MISSING, "ArgumentVersionMismatch"):
                break
        return answer

    def values(self, wanted: Sequence[tuple[str, int, int]]) -> dict[str, int]:
        """Field values (name, field id, scope) of one call; the names of those that failed go to `errors`."""
        read, failed = self.fields([(field, scope) for _, field, scope in wanted])
        found = {}
        for at, (name, _, _) in enumerate(wanted):
            if at in read:
                found[name] = read[at]
            else:
                self._failed((name,), failed[at])
        return found

    def fields(self, wanted: Sequence[tuple[int, int]]) -> tuple[dict[int, int], dict[int, str]]:
        """Place in `wanted` (field id, scope) -> value, and place -> error name: each field has a return code."""
        if not wanted:
            return {}, {}
        try:
            answers = self.nvml.nvmlDeviceGetFieldValues(self.handle, list(wanted))
        except self.nvml.NVMLError as error:
            self._failed((), error_name(error))
            return {}, {at: error_name(error) for at in range(len(wanted))}
        read, failed = {}, {}
        for at, answer in enumerate(answers):
            if answer.nvmlReturn == 0:
                read[at] = int(getattr(answer.value, _MEMBERS.get(answer.valueType, "ullVal")))
            else:
                failed[at] = error_name(self.nvml.NVMLError(answer.nvmlReturn))
                self._failed((), failed[at])
        return read, failed

    def _failed(self, names: Sequence[str], error: str) -> None:
        for name in names:
            self.errors[name] = error
        if error in LOST:
            self.lost = self.lost or error
