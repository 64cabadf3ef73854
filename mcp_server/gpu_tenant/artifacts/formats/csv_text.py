"""CSV and TSV: checks that the text can be decoded, quotes are closed, and all rows have the same number of columns.

Source: RFC 4180, read as leniently as Python's `csv` does. There is no checksum and no end marker.
"""

import codecs
import csv
import re
from collections.abc import Iterable, Iterator
from typing import Literal

from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Findings,
    Source,
    count_of,
)
from gpu_tenant.artifacts.formats.json_text import as_utf8, lines

_LONGEST_FIELD_CHARACTERS = 16 << 20
_LONGEST_LINE_BYTES = 16 << 20
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")
_SENTINEL = "the file's last row has ended"


def check(source: Source, findings: Findings) -> None:
    """Check that the rows are whole.

    Raises:
        Broken: the text cannot be decoded, a quote is not closed, or the last row is cut off.
    """
    source.alone(LARGE_BYTES)
    tried = Findings()
    try:
        check_chunks(as_utf8(source.chunks()), tried, delimiter=delimiter(source.name))
    except Broken:
        if delimiter(source.name) != "\t":
            raise
        # In a table with tabs, a quote is often a letter like any other: `csv.QUOTE_NONE`.
        tried = Findings()
        check_chunks(as_utf8(source.chunks()), tried, delimiter="\t", quoting=3)
    findings.add(tried)


def delimiter(name: str) -> str:
    """Return the column separator that a file name claims."""
    return "\t" if ".tsv" in name.lower() else ","


def check_chunks(
    chunks: Iterable[bytes], findings: Findings, *, delimiter: str, quoting: Literal[0, 3] = 0
) -> None:
    """Check that the rows of the chunks are whole.

    Raises:
        Broken: the text cannot be decoded, a quote is not closed, or the last row is cut off.
        Unread: a line is too long to be read with bounded memory.
    """
    if csv.field_size_limit() < _LONGEST_FIELD_CHARACTERS:
        csv.field_size_limit(_LONGEST_FIELD_CHARACTERS)
    text = _Text(chunks, findings)
    rows = ragged = columns = 0
    last: list[str] = []
    reader = csv.reader(text, delimiter=delimiter, quoting=quoting)
    try:
        for row in reader:
            if text.ended and row == [_SENTINEL]:
                break
            if text.ended:
                raise Broken(f"a quote stays open, from row {rows + 1:,} to the end")
            if not row:
                continue
            rows += 1
            columns = columns or len(row)
            ragged += len(row) != columns
            last = row
    except csv.Error as error:
        raise Broken(f"row {rows + 1:,}: {error}") from error
    if not rows:
        findings.warn("no row")
    if not text.newline_at_end:
        if ragged == 1 and len(last) < columns:
            raise Broken(f"cut off in the last row: {len(last)} columns of {columns}")
        findings.warn("the last row has no newline: it may be cut off inside its last column")
    if ragged:
        findings.warn(f"{ragged:,} of {rows:,} rows do not have the {columns} columns of the first")
    findings.proved.append(
        f"{count_of(rows, 'row')} of {count_of(columns, 'column')}, quotes closed"
    )
    findings.not_proved.append("that no row is missing: a cut between two rows leaves no trace")


class _Text:
    """The lines as text, and one more line at the end. That line becomes a row of its own only if no quote is open."""

    def __init__(self, chunks: Iterable[bytes], findings: Findings) -> None:
        self.ended = False
        self.newline_at_end = True
        self._chunks = chunks
        self._findings = findings

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(lines(self._watch_chunks(), _LONGEST_LINE_BYTES), 1):
            if b"\0" in line:
                raise Broken(f"line {number:,} holds NUL bytes: no text")
            if _CONTROL.search(line):
                self._findings.warn(f"line {number:,} holds control characters: perhaps no text")
            try:
                text = line.decode()
            except UnicodeDecodeError:
                text = line.decode("latin-1")
                self._findings.warn(f"line {number:,} is not UTF-8")
            yield text + "\n"
        self.ended = True
        yield _SENTINEL

    def _watch_chunks(self) -> Iterator[bytes]:
        first, ends_with_cr = True, False
        for chunk in self._chunks:
            if first:
                # Lines of an old Mac end with a carriage return alone.
                ends_with_cr = b"\r" in chunk and b"\n" not in chunk
            text = chunk.replace(b"\r", b"\n") if ends_with_cr else chunk
            self.newline_at_end = text.endswith(b"\n")
            yield text.removeprefix(codecs.BOM_UTF8) if first else text
            first = False
