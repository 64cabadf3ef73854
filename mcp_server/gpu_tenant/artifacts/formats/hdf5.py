"""HDF5: compares the end of the file with the superblock, and reads every dataset with `h5py`, if it is installed.

Source: HDF5 File Format Specification 3.0, section II.A, "Format Signature and Superblock".
"""

from gpu_tenant.artifacts.formats import subprocesses
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, Unread
from gpu_tenant.domain.wording import some

MAGIC = b"\x89HDF\r\n\x1a\n"
_OPEN_FOR_WRITING = 1


def check(source: Source, findings: Findings) -> None:
    """Check that the file is as long as its superblock says, and that `h5py`, if installed, reads every dataset.

    Raises:
        Broken: the file has another length, or `h5py` refuses it.
        Unread: the version of the superblock is not supported here.
    """
    at = _superblock(source)
    version = source.read(at + 8, 1)[0]
    if version > 3:
        raise Unread(f"superblock version {version} is not read here")
    offset_bytes = source.read(at + (13 if version < 2 else 9), 1)[0]
    if offset_bytes not in (2, 4, 8):
        raise Broken(f"addresses of {offset_bytes} bytes")
    addresses_at = at + (24 if version == 0 else 28 if version == 1 else 12)
    raw = source.read(addresses_at, 3 * offset_bytes)
    base, _, end = (
        int.from_bytes(raw[start : start + offset_bytes], "little")
        for start in range(0, 3 * offset_bytes, offset_bytes)
    )
    if base not in (0, at):
        raise Broken(f"the base address is {base:,}, the superblock at {at:,}")
    missing = at + end - base - source.size_bytes
    if missing > 0:
        raise Broken(f"cut off: the superblock counts {some(missing, 'byte')} more")
    if missing < 0:
        findings.warn(f"{some(-missing, 'byte')} after the end the superblock counts")
    if version == 3 and source.read(at + 11, 1)[0] & _OPEN_FOR_WRITING:
        findings.warn("marked as open for writing: the writer did not close it")
    findings.proved.append("as long as the superblock says")
    findings.not_proved.append(
        "values: datasets rarely carry a checksum, only the hash covers them"
    )
    subprocesses.read(source, "h5py", "hdf5_walk", findings)


def _superblock(source: Source) -> int:
    """Return the position of the superblock. It is tried at 0, 512, 1024, and so on, doubling."""
    at = 0
    while at < source.size_bytes:
        if source.upto(at, 8) == MAGIC:
            return at
        at = at * 2 or 512
    raise Broken("no HDF5 signature")
