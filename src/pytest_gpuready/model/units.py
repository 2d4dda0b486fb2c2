"""Numbers as the field writes them: three or four significant digits, plain ASCII."""

from __future__ import annotations

from pytest_gpuready.model.measurement import Value


def show(value: Value, unit: str = "") -> str:
    """A value with its unit: 55.38 GB/s, 143771 MiB, enabled."""
    if isinstance(value, str):
        text = value
    elif isinstance(value, int) or float(value).is_integer():
        text = f"{int(value)}"
    else:
        magnitude = abs(value)
        decimals = 1 if magnitude >= 100 else 2 if magnitude >= 1 else 3
        text = f"{value:.{decimals}f}"
    return f"{text} {unit}" if unit else text
