"""NumPy archives (.npz): a zip of .npy members. Each member is checked by its CRC and by its own header.

Source: `numpy.savez` in `numpy/lib/_npyio_impl.py`.
"""

from collections.abc import Iterator
from itertools import chain

from gpu_tenant.artifacts.formats import npy, zip_file
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, Unread, count_of
from gpu_tenant.artifacts.formats.non_finite import LAYOUTS, SAMPLE_LIMIT, Tally, state
from gpu_tenant.artifacts.formats.pickle_file import scan
from gpu_tenant.domain.wording import some


def check(source: Source, findings: Findings) -> None:
    """Check that every member is whole, and that every array has all its values.

    Raises:
        Broken: a member is damaged, or values are missing.
    """
    arrays = others = seen = total = 0
    for member in zip_file.members(source, findings):
        try:
            pieces = zip_file.content(source, member)
            if not member.name.endswith(".npy"):
                others += 1
                for _ in pieces:
                    pass
                continue
            arrays += 1
            looked_at, floats = _array(member, pieces, SAMPLE_LIMIT - seen, findings)
        except Unread as reason:
            raise Broken(f"{member.name!r:.80} {reason}: numpy never writes that") from reason
        seen += looked_at
        total += floats
        if member.stored:
            _objects(source, member, findings)
    if others and not arrays:
        raise Broken("no array among its members: this is a zip, but not an npz")
    findings.proved.append(f"{count_of(arrays, 'array')} whole, by CRC-32 and by header")
    if others:
        findings.warn(f"{count_of(others, 'member')} besides the arrays")
    state(seen, total, findings)


def _array(
    member: zip_file.Member, pieces: Iterator[bytes | memoryview], budget: int, findings: Findings
) -> tuple[int, int]:
    """Check the length of an array against its header. Returns how many floats were checked, and how many it has."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= npy.LONGEST_HEADER_BYTES:
            break
    header = npy.header(head)
    if not header.holds_objects and header.start + header.size_bytes != member.size_bytes:
        there = member.size_bytes - header.start
        raise Broken(
            f"{member.name!r:.80} has {some(there, 'byte')} of values, of {header.size_bytes:,}"
        )
    tally = Tally()
    carried = b""
    for piece in chain([head[header.start :]], pieces):
        if header.dtype and tally.seen < budget:
            width = LAYOUTS[header.dtype].size_bytes
            carried += piece
            whole = len(carried) - len(carried) % width
            tally.add(carried[:whole], header.dtype, header.order)
            carried = carried[whole:]
    tally.report(member.name.removesuffix(".npy"), findings)
    return tally.seen, header.count * header.parts if header.dtype else 0


def _objects(source: Source, member: zip_file.Member, findings: Findings) -> None:
    """If the member is an array of objects, follow it as a pickle. The member must be stored uncompressed."""
    header = npy.header(source.upto(member.content_at, npy.LONGEST_HEADER_BYTES + 12))
    if header.holds_objects:
        end = member.content_at + member.packed_bytes
        scan(source, member.content_at + header.start, end).report(findings)
