"""torch checkpoints before 1.6: five pickles, and then each storage as a count and its raw values.

Source: `_legacy_save` of `torch/serialization.py`: magic number, protocol, system, object, list of
storage keys, then per key eight little-endian bytes of element count and the elements.
"""

from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Cursor,
    Findings,
    Source,
    Unread,
    count_of,
)
from gpu_tenant.artifacts.formats.non_finite import Tensor, look
from gpu_tenant.artifacts.formats.pickle_file import scan
from gpu_tenant.artifacts.formats.pickle_vm import ITEM_BYTES
from gpu_tenant.domain.wording import some

MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
"""torch's magic number as a pickle, in protocol 2."""
_PROTOCOL = 1001


def check(source: Source, findings: Findings) -> None:
    """Check that the object's pickle is whole, and that every storage to which it refers follows at its full length.

    Raises:
        Broken: a pickle or a storage is missing or damaged.
    """
    source.alone(LARGE_BYTES)
    end = 0
    pickles = []
    for _ in ("magic number", "protocol", "system", "object", "storages"):
        pickles.append(scan(source, end, source.size_bytes))
        end = pickles[-1].end
    _, protocol, _, said, listed = pickles
    if protocol.result != _PROTOCOL:
        raise Broken(
            f"{_shorten(protocol.result)} as the protocol, where {_PROTOCOL} is the only one"
        )
    if not isinstance(listed.result, list):
        raise Broken("the list of storages is not a list")
    said.globals.update(*(other.globals for other in pickles))
    said.report(findings)
    cursor = Cursor(source, listed.end)
    tensors = []
    for key in listed.result:
        storage = said.storages.get(key) if isinstance(key, str) else None
        if storage is None or storage.dtype is None:
            raise Unread(f"a storage whose type the pickle does not tell: {_shorten(key)}")
        label = said.labels.get(storage.key, f"storage {key}")
        count = cursor.number("<q")
        if count != storage.count:
            raise Broken(f"{label}: {count:,} values of {storage.count:,}")
        tensors.append(Tensor(label, storage.dtype, cursor.at, count))
        cursor.skip(count * ITEM_BYTES[storage.dtype])
    if missing := said.storages.keys() - {
        tensor for tensor in listed.result if isinstance(tensor, str)
    }:
        raise Broken(f"no values for {count_of(len(missing), 'storage')}")
    if any(storage.dtype == "BYTES" for storage in said.storages.values()):
        # torch 2.13 writes such files, but cannot read them: UntypedStorage has no dtype.
        findings.warn(
            "torch cannot load float8 or uint16 from its own old format; the values are there"
        )
    if cursor.left:
        findings.warn(f"{some(cursor.left, 'byte')} after the last storage")
    findings.proved.append(f"{count_of(len(tensors), 'storage')} at full length")
    findings.not_proved.append("not loaded by torch: this old format can only be read into memory")
    findings.not_proved.append("values: this format carries no checksum, only the hash covers them")
    look(source, tensors, findings)


def _shorten(value: object) -> str:
    """Return a short text for a value from the file. Its full text could be endless."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int) and value.bit_length() < 64:
        return str(value)
    return f"a {type(value).__name__}"
