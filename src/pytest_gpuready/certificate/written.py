"""The certificate as the text of `certificate.json`, piece by piece: nobody holds all of a thousand nodes twice.

One line per cell, GPU and raw output, so that two certificates can be compared line by line; everything else has a
line per field. The number of a certificate is made from the sha256 of its canonical form: the same document without
its number and without any space, fields in the order of the schema and keys of maps in the order of the alphabet.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator

import msgspec

from pytest_gpuready.certificate.document import Certificate, ClauseEntry, Doc, NodeEntry, SuiteEntry

_NESTED = (NodeEntry, SuiteEntry, ClauseEntry)
"""Entries that are written field by field; those of other kinds are a line each."""


def json_bytes(certificate: Certificate) -> bytes:
    """The whole text at once."""
    return b"".join(json_chunks(certificate))


def json_chunks(certificate: Certificate) -> Iterator[bytes]:
    """The text in pieces of at most one field or one clause with its cells."""
    yield from _fields(certificate, b"\n ")
    yield b"\n"


def number(certificate: Certificate) -> str:
    """ "GR-" and the first twelve digits of the sha256 of the canonical form."""
    digest = hashlib.sha256()
    for chunk in canonical_chunks(msgspec.structs.replace(certificate, number="")):
        digest.update(chunk)
    return f"GR-{digest.hexdigest()[:12]}"


def canonical_chunks(entry: Doc) -> Iterator[bytes]:
    """The canonical form of a document in pieces: what `msgspec.json.encode(.., order="deterministic")` gives whole."""
    for place, (name, written) in enumerate(_names(type(entry))):
        value = getattr(entry, name)
        if value is msgspec.UNSET:
            continue
        yield (b"," if place else b"{") + written + b":"
        if isinstance(value, list) and value and isinstance(value[0], _NESTED):
            yield b"["
            for number, item in enumerate(value):
                yield b"," if number else b""
                yield from canonical_chunks(item)
            yield b"]"
        else:
            yield msgspec.json.encode(value, order="deterministic")
    yield b"}"


def _fields(entry: Doc, line: bytes) -> Iterator[bytes]:
    """An entry, one field a line; `line` is a line end and the indent of its fields."""
    for place, (name, written) in enumerate(_names(type(entry))):
        value = getattr(entry, name)
        if value is msgspec.UNSET:
            continue
        yield (b"," if place else b"{") + line + written + b": "
        if not isinstance(value, list) or not value or not isinstance(value[0], Doc):
            yield msgspec.json.format(msgspec.json.encode(value), indent=1).replace(b"\n", line)
            continue
        yield b"["
        if isinstance(value[0], _NESTED):
            for number, item in enumerate(value):
                yield (b"," if number else b"") + line + b" "
                yield from _fields(item, line + b"  ")
        else:
            yield line + b" " + (b"," + line + b" ").join(map(msgspec.json.encode, value))
        yield line + b"]"
    yield line[:-1] + b"}"


@functools.cache
def _names(kind: type[Doc]) -> tuple[tuple[str, bytes], ...]:
    """Each field as Python calls it, and its name as JSON."""
    return tuple((field.name, msgspec.json.encode(field.encode_name)) for field in msgspec.structs.fields(kind))
