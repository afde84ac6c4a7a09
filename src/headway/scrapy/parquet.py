"""A feed exporter for Parquet: FEEDS = {"items.parquet": {"format": "parquet"}}."""

from __future__ import annotations

from typing import IO, Any

from scrapy.exporters import BaseItemExporter

_ROWS_IN_MEMORY = 10_000


class ParquetItemExporter(BaseItemExporter):
    """Columns are those of the first items; what a later item has beyond them is an error that says so."""

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(dont_fail=True, **options)
        self._file = file
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def export_item(self, item: Any) -> None:
        self._rows.append(dict(self.get_serialized_fields(item)))
        if len(self._rows) >= _ROWS_IN_MEMORY:
            self._write()

    def finish_exporting(self) -> None:
        if self._rows or self._writer is None:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = list(dict.fromkeys(name for row in self._rows for name in row))
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in self._rows])
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.select(self._writer.schema.names).cast(self._writer.schema))
        self._rows.clear()
