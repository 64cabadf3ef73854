"""Pickles: reads every opcode up to STOP, and follows it symbolically. Nothing is ever unpickled.

Source: the opcode table of the standard library's `pickletools`.
"""

import io
import pickletools

from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Cursor,
    Findings,
    Source,
    Unread,
    count_of,
)
from gpu_tenant.artifacts.formats.pickle_allowlist import KNOWN
from gpu_tenant.artifacts.formats.pickle_vm import UNSEEN, PickleMachine, Scan

_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}
_LONGEST_LINE_BYTES = 1 << 16
_KEPT_ARGUMENT_BYTES = 1024
_PROTO = b"\x80"
"""The first byte of every pickle since protocol 2."""
_WITH_ARRAYS = "joblib.numpy_pickle"
"""The module whose classes stand for arrays that follow in the middle of the pickle, as raw bytes."""
_PREFIX = {
    pickletools.TAKEN_FROM_ARGUMENT1: "<B",
    pickletools.TAKEN_FROM_ARGUMENT4: "<i",
    pickletools.TAKEN_FROM_ARGUMENT4U: "<I",
    pickletools.TAKEN_FROM_ARGUMENT8U: "<Q",
}


def check(source: Source, findings: Findings) -> None:
    """Check that the file is a sequence of whole pickles.

    Raises:
        Broken: an opcode, an operand or STOP is missing.
        Unread: the pickle is too large to be followed.
    """
    source.alone(LARGE_BYTES)
    end = pickles = persistent_ids = 0
    names = set[str]()
    while not pickles or source.upto(end, 1) == _PROTO:
        said = scan(source, end, source.size_bytes)
        said.report(findings)
        end = said.end
        persistent_ids += said.persistent_ids
        names |= said.globals
        pickles += 1
    if end < source.size_bytes:
        findings.warn(f"{count_of(source.size_bytes - end, 'byte')} after the last pickle")
    if persistent_ids:
        findings.not_proved.append(f"{count_of(persistent_ids, 'value')} kept outside the pickle")
    if names and names <= KNOWN:
        findings.not_proved.append(
            "that it can be unpickled: the classes that it names may be gone or changed"
        )


def scan(source: Source, start: int, end: int) -> Scan:
    """Check that the pickle from `start` on is whole, and list every name in it. It must end before `end`.

    Raises:
        Broken: the pickle is not whole.
        Unread: the pickle is too large to be followed, or refers to out-of-band buffers.
    """
    cursor = Cursor(source, start, end)
    machine = PickleMachine(cursor.at)
    try:
        _follow(machine, cursor)
    except Broken as fault:
        if any(name.startswith(_WITH_ARRAYS) for name in machine.scan.globals):
            raise Unread(
                f"joblib writes arrays into its pickle, which is not followed: {fault}"
            ) from fault
        raise
    machine.scan.end = cursor.at
    return machine.scan


def _follow(machine: PickleMachine, cursor: Cursor) -> None:
    while not machine.stopped:
        at = cursor.at
        opcode = _OPCODES.get(cursor.take(1).decode("latin-1"))
        if opcode is None:
            raise Broken(f"no pickle opcode at byte {at:,}")
        try:
            machine.step(opcode, _argument(opcode, cursor), cursor)
        except ValueError as error:
            raise Broken(f"the pickle is damaged at byte {at:,}: {error}") from error


def _argument(opcode: pickletools.OpcodeInfo, cursor: Cursor) -> object:
    """Read the opcode's argument. `UNSEEN` if it is too long to matter. The cursor moves past it in any case."""
    kind = opcode.arg
    if kind is None:
        return None
    if kind.n >= 0:
        content = cursor.take(kind.n)
    elif kind.n == pickletools.UP_TO_NEWLINE:
        content = _line(cursor)
        if kind.name == "stringnl_noescape_pair":
            content += _line(cursor)
        if len(content) > _LONGEST_LINE_BYTES:
            return UNSEEN
    else:
        layout = _PREFIX[kind.n]
        start = cursor.at
        length = cursor.number(layout)
        if length < 0:
            raise Broken(f"a negative length at byte {start:,}")
        if length > _KEPT_ARGUMENT_BYTES:
            cursor.skip(length)
            return UNSEEN
        prefix = length.to_bytes(cursor.at - start, "little")
        content = prefix + cursor.take(length)
    value: object = kind.reader(io.BytesIO(content))
    return value


def _line(cursor: Cursor) -> bytes:
    """Read the next line with its newline. If it is longer than anything that is kept, return only its beginning."""
    kept = b""
    while True:
        step = cursor.take(min(256, cursor.left) or 1)
        end = step.find(b"\n") + 1
        if len(kept) <= _LONGEST_LINE_BYTES:
            kept += step[:end] if end else step
        if end:
            cursor.at -= len(step) - end
            return kept
