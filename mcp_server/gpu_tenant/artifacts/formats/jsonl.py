"""JSON lines (.jsonl, .ndjson): checks that every line, also the last one, is one whole JSON value.

Source: https://jsonlines.org.
"""

import codecs
from collections.abc import Iterable

from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Findings,
    Source,
    count_of,
)
from gpu_tenant.artifacts.formats.json_text import as_utf8, is_parsed, lines

_LONGEST_LINE_BYTES = 32 << 20


def check(source: Source, findings: Findings) -> None:
    """Check that every line is a JSON value.

    Raises:
        Broken: a line is not a JSON value, or the last line is cut off.
    """
    source.alone(LARGE_BYTES)
    check_chunks(as_utf8(source.chunks()), findings)


def check_chunks(chunks: Iterable[bytes], findings: Findings) -> None:
    """Check that every line of the chunks is a JSON value.

    Raises:
        Broken: a line is not a JSON value, or the last line is cut off.
        Unread: a line is too long to be read with bounded memory.
    """
    values = blank = large = 0
    for number, line in enumerate(lines(chunks, _LONGEST_LINE_BYTES), 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            blank += 1
            continue
        try:
            large += not is_parsed(line)
            values += 1
        except Broken as fault:
            raise Broken(f"line {number:,}: {fault}") from fault
    if not values:
        raise Broken("no line holds a value")
    if blank:
        findings.warn(count_of(blank, "blank line"))
    findings.proved.append(f"{count_of(values, 'line')}, each a whole JSON value")
    if large:
        findings.not_proved.append(
            f"{count_of(large, 'line')} so large that only the brackets were counted"
        )
    findings.not_proved.append("that no line is missing: a cut between two lines leaves no trace")
