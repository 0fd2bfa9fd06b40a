"""Codecs: how keys and values of a table are written as bytes."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

__all__ = ["INTEGER", "JSON", "PICKLE", "Codec"]

T = TypeVar("T")


class Codec(Protocol[T]):
    """How objects of one type are written. The order of keys is the order of their bytes."""

    def encode(self, object: T, /) -> bytes:
        """Returns the bytes that stand for an object."""

    def decode(self, data: bytes, /) -> T:
        """Returns the object that bytes stand for."""


class _Integer:
    """Integers of 64 bits with a sign, in their order."""

    def encode(self, object: int, /) -> bytes:
        return (object + (1 << 63)).to_bytes(8, "big")

    def decode(self, data: bytes, /) -> int:
        return int.from_bytes(data, "big") - (1 << 63)


class _Json:
    """Everything that the module ``json`` writes."""

    def encode(self, object: Any, /) -> bytes:
        import json

        return json.dumps(object, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes, /) -> Any:
        import json

        return json.loads(data)


class _Pickle:
    """Everything that the module ``pickle`` writes. Reading runs code that the bytes name."""

    def encode(self, object: Any, /) -> bytes:
        import pickle

        return pickle.dumps(object, protocol=4)

    def decode(self, data: bytes, /) -> Any:
        import pickle

        return pickle.loads(data)


#: Integers from -2**63 to 2**63 - 1; as keys they are in their order.
INTEGER: Codec[int] = _Integer()
#: Values in JSON.
JSON: Codec[Any] = _Json()
#: Values in the format of ``pickle``: only for data that you trust.
PICKLE: Codec[Any] = _Pickle()
