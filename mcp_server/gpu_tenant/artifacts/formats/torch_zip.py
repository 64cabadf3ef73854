"""torch checkpoints since 1.6: a zip with a pickle `data.pkl`, and its storages as members `data/N`.

Source: `_save` and `_load` of `torch/serialization.py`, and `caffe2/serialize/inline_container.cc`
for the members' names, alignment and checksums.
"""

from dataclasses import dataclass, replace
from typing import Literal

from gpu_tenant.artifacts.formats import subprocesses, zip_file
from gpu_tenant.artifacts.formats.bounded_file import (
    LARGE_BYTES,
    Broken,
    Findings,
    Source,
    Unread,
    count_of,
)
from gpu_tenant.artifacts.formats.non_finite import Tensor, TensorSample, report, samples
from gpu_tenant.artifacts.formats.pickle_allowlist import WEIGHTS_ONLY
from gpu_tenant.artifacts.formats.pickle_file import scan
from gpu_tenant.artifacts.formats.pickle_vm import ITEM_BYTES, Scan
from gpu_tenant.domain.wording import some

_MOST_MEMBERS = 200_000
_MANY_MEMBERS = 10_000


@dataclass(frozen=True, slots=True)
class _Followed:
    """The content of the pickle, and for some members the values to check in them."""

    said: Scan
    samples: dict[str, TensorSample]


def check(source: Source, findings: Findings) -> None:
    """Check that every member is whole, and that every storage to which the pickle refers is there at its full length.

    The pickle is followed first, so that the values can be checked while the members are read. Its findings are
    added last, because a damaged member explains a damaged pickle.

    Raises:
        Broken: a member or a storage is damaged or missing, or there is no `data.pkl`.
    """
    members = _members(source, findings)
    later = Findings()
    followed: _Followed | Exception | None
    try:
        followed = _follow(source, members, later)
    except Exception as fault:  # noqa: BLE001  raised below, if no member is at fault
        followed = fault
    looked_at = followed.samples if isinstance(followed, _Followed) else {}
    for name, member in members.items():
        try:
            _pass(source, member, looked_at.get(name))
        except Unread as reason:
            raise Broken(f"{member.name!r:.80} {reason}: torch never writes that") from reason
    if any(member.crc is not None for member in members.values()):
        findings.proved.append(f"{count_of(len(members), 'member')} whole, by CRC-32")
    else:
        findings.not_proved.append(
            "values: written with checksums turned off, only the hash covers them"
        )
    findings.add(later)
    if isinstance(followed, Exception):
        raise followed
    if followed is None:
        return
    report(followed.samples.values(), findings)
    if followed.said.globals <= WEIGHTS_ONLY:
        subprocesses.read(source, "torch", "torch_weights", findings)
    else:
        findings.not_proved.append("not loaded by torch: it holds more than weights_only allows")


def _follow(
    source: Source, members: dict[str, zip_file.Member], findings: Findings
) -> _Followed | None:
    """Check that everything to which `data.pkl` refers is there. None if the pickle could not be followed.

    Raises:
        Broken: something is missing, or there is no `data.pkl`.
    """
    if "data.pkl" not in members:
        raise Broken("no data.pkl: this is a zip, but not a torch checkpoint")
    program = members["data.pkl"]
    if not program.stored:
        findings.not_proved.append(
            "data.pkl is compressed, which torch does not do, and was not followed"
        )
        return None
    if program.size_bytes > LARGE_BYTES:
        source.alone()
    said = scan(source, program.content_at, program.content_at + program.packed_bytes)
    said.report(findings)
    return _Followed(said, samples(_storages(source, members, said, findings)))


def _pass(source: Source, member: zip_file.Member, sample: TensorSample | None) -> None:
    """Check that the member is whole, and check the values of the sample in it."""
    at = member.content_at
    for piece in zip_file.content(source, member):
        if sample is not None:
            sample.see(at, piece)
        at += len(piece)


def holds_pickle(source: Source) -> bool:
    """Whether a zip contains the `data.pkl` of a torch checkpoint. False if the zip cannot be read."""
    try:
        return any(
            member.name.endswith("/data.pkl") for member in zip_file.members(source, Findings())
        )
    except (Broken, Unread):
        return False


def _members(source: Source, findings: Findings) -> dict[str, zip_file.Member]:
    """Return the members of the archive. The keys are their names below the archive's own folder."""
    members: dict[str, zip_file.Member] = {}
    for member in zip_file.members(source, findings):
        if len(members) == _MOST_MEMBERS:
            raise Unread(f"more than {_MOST_MEMBERS:,} members are not followed here")
        if len(members) == _MANY_MEMBERS:
            source.alone()
        members[member.name.partition("/")[2]] = member
    # torch has a setting to write no checksums. Then every CRC is 0, and must not be compared.
    if all(member.crc == 0 for member in members.values() if member.size_bytes):
        return {name: replace(member, crc=None) for name, member in members.items()}
    return members


def _storages(
    source: Source, members: dict[str, zip_file.Member], said: Scan, findings: Findings
) -> dict[str, Tensor]:
    """Find the values of every storage. The keys are the names of the members that contain them.

    Raises:
        Broken: a storage is missing or too short.
    """
    order = _byte_order(source, members)
    tensors: dict[str, Tensor] = {}
    for key, storage in said.storages.items():
        member = members.get(f"data/{key}")
        label = said.labels.get(key, f"data/{key}")
        if member is None:
            raise Broken(f"{label}: its values, data/{key}, are missing")
        if storage.dtype is None or storage.size_bytes is None:
            findings.not_proved.append(
                f"{label}: a storage of unknown type, its length was not compared"
            )
            continue
        surplus = member.size_bytes - storage.size_bytes
        if not 0 <= surplus < ITEM_BYTES[storage.dtype]:
            raise Broken(
                f"{label}: data/{key} has {some(member.size_bytes, 'byte')} of {storage.size_bytes:,}"
            )
        if member.stored:
            tensors[f"data/{key}"] = Tensor(
                label, storage.dtype, member.content_at, storage.count, order
            )
    findings.proved.append(f"{count_of(len(said.storages), 'storage')} at full length")
    return tensors


def _byte_order(source: Source, members: dict[str, zip_file.Member]) -> Literal["little", "big"]:
    member = members.get("byteorder")
    if member is None or not member.stored:
        return "little"
    match source.read(member.content_at, min(member.size_bytes, 8)):
        case b"little":
            return "little"
        case b"big":
            return "big"
        case other:
            raise Broken(f"unknown byte order {other!r}")
