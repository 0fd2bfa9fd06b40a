"""Rows as columns, for numpy and pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from . import _native
    from ._database import Reads
    from ._table import Table

__all__ = ["Columns"]

K = TypeVar("K")
V = TypeVar("V")


class Columns(Generic[K, V]):
    """Rows of a range as two columns of bytes, many at a time. ``Reads.scan_into`` fills it.

    A column is one ``bytes`` with all keys or values, one behind the other, and their offsets, which
    are little-endian numbers of 64 bits, one more than there are rows: as Arrow's ``large_binary``.
    """

    def __init__(
        self,
        table: Table[K, V],
        start: K | None = None,
        stop: K | None = None,
        *,
        prefix: K | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        reverse: bool = False,
        rows: int = 65536,
    ) -> None:
        if rows < 1:
            raise ValueError(f"rows: {rows} is not at least 1")
        self._table = table
        self._range = (start, stop, prefix, include_start, include_stop, reverse)
        self._rows_max = rows
        self._reader: Reads | None = None
        self._rows: _native.Rows[Any] | None = None
        #: The number of rows in the columns.
        self.rows: int = 0
        self.key_offsets: bytes = bytes(8)
        self.keys: bytes = b""
        self.value_offsets: bytes = bytes(8)
        self.values: bytes = b""

    def _fill(self, reader: Reads) -> int:
        if self._rows is None or self._reader is not reader:
            self._rows = reader.rows(self._table, 0, *self._range)
            self._reader = reader
        found = self._rows.columns(self._rows_max)
        self.rows, self.key_offsets, self.keys, self.value_offsets, self.values = found
        return self.rows

    def __len__(self) -> int:
        return self.rows

    def numpy(self, key: Any = None, value: Any = None) -> tuple[Any, Any]:
        """Returns keys and values as two arrays of numpy, which share the memory of the columns.

        ``key`` and ``value`` are types of fixed-length elements, such as ``">i8"``. Without a type
        the elements are bytes of the length that all of them have.
        """
        return (
            _array(self.keys, self.key_offsets, self.rows, key, "keys"),
            _array(self.values, self.value_offsets, self.rows, value, "values"),
        )

    def arrow(self) -> Any:
        """Returns the rows as a record batch of pyarrow, which shares the memory of the columns."""
        import pyarrow

        def column(offsets: bytes, data: bytes) -> Any:
            buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
            return pyarrow.Array.from_buffers(pyarrow.large_binary(), self.rows, buffers)

        arrays = [column(self.key_offsets, self.keys), column(self.value_offsets, self.values)]
        return pyarrow.RecordBatch.from_arrays(arrays, names=["key", "value"])


def _array(data: bytes, offsets: bytes, rows: int, kind: Any, what: str) -> Any:
    import numpy

    if kind is None:
        kind = f"V{len(data) // rows}" if rows and data else "V1"
    kind = numpy.dtype(kind)
    ends = numpy.frombuffer(offsets, dtype="<i8")
    if rows and not bool((numpy.diff(ends) == kind.itemsize).all()):
        raise ValueError(f"the {what} are not all {kind.itemsize} bytes long: use arrow() or the offsets")
    return numpy.frombuffer(data, dtype=kind)
