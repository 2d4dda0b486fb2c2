"""The page of a certificate, drawn once in a process however many tests read it."""

from __future__ import annotations

from pytest_gpuready.certificate.document import Certificate
from pytest_gpuready.certificate.html import render

_DRAWN: dict[int, tuple[Certificate, str]] = {}


def drawn(certificate: Certificate) -> str:
    """The HTML of this very certificate; documents are frozen, so the first drawing stays the right one."""
    # The certificate is kept beside its page: as long as it lives no other one has its id.
    known = _DRAWN.get(id(certificate))
    if known is None:
        known = _DRAWN[id(certificate)] = (certificate, render(certificate))
    return known[1]
