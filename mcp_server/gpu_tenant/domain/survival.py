"""What outlives a stop of a lease's box: everything, the lease's own directory, or nothing that matters."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from gpu_tenant.domain.fact_life import stop_is_in_doubt
from gpu_tenant.domain.model import Lease, MountedVolume, Profile, WorkPlace

HOME = "~"
"""The login home, as a profile names it."""

Kept = Literal["all", "work", "nothing"]
"""What a stop keeps. `work` means the lease's directory and what lies beside it, and nothing else."""


def work_place(profile: Profile, lease: Lease) -> str:
    """Return the path, as the profile names it, in which the lease's directory is, or will be.

    Before the first contact with the box, this is the platform's best place.
    """
    if lease.place is not None:
        return lease.place.path
    return next(iter(possible_places(profile, lease)), HOME)


def possible_places(profile: Profile, lease: Lease) -> tuple[str, ...]:
    """Return the platform's places for the lease's directory. Volumes are left out.

    Another box may mount the same volume, and would then carry the mark that identifies the lease's box.
    """
    mounts = {mount.path for mount in lease.terms.order.volumes.values()}
    return tuple(path for path in profile.work_places if path not in mounts)


def accounted_paths(profile: Profile, lease: Lease) -> tuple[str, ...]:
    """Return the paths where a destroy loses bytes, as a command on the lease's box reaches them.

    A mounted volume outlives the box, so its path is left out. If an ordered volume is not known to be mounted, its
    path may be a directory on the box's own disk, and is included.
    """
    mounted = {volume.path for volume in mounted_volumes(lease)}
    ordered = (mount.path for mount in lease.terms.order.volumes.values())
    paths = dict.fromkeys((*profile.accounted_paths, *ordered))
    return tuple(reached_path(path, lease.place) for path in paths if path not in mounted)


def mounted_volumes(lease: Lease) -> tuple[MountedVolume, ...]:
    """Return the volumes that the first contact found mounted on the lease's box."""
    return lease.place.volumes if lease.place is not None else ()


def reached_path(path: str, place: WorkPlace | None) -> str:
    """Return how a command on a box reaches that path of the profile.

    In a rehearsal, another directory stands for the path.
    """
    return place.at if place is not None and place.at and path == place.path else path


def lost_by_a_stop(profile: Profile) -> tuple[str, ...]:
    """Return the accounted paths that a stop empties, or may empty."""
    return tuple(
        place.path
        for place in profile.places
        if place.path in profile.accounted_paths and _fate(profile, place.path) != "yes"
    )


def kept_by_a_stop(profile: Profile) -> tuple[str, ...]:
    """Return the accounted paths that outlive a stop."""
    lost = lost_by_a_stop(profile)
    return tuple(path for path in profile.accounted_paths if path not in lost)


def kept_paths(profile: Profile, lease: Lease) -> tuple[str, ...]:
    """Return the paths that outlive a stop, as a command on the lease's box reaches them."""
    return tuple(reached_path(path, lease.place) for path in kept_by_a_stop(profile))


def kept_disks(lease: Lease) -> tuple[str, ...]:
    """Return the paths that outlive a stop only if the platform's disk is mounted there. None in a rehearsal."""
    place = lease.place
    return (place.at,) if place is not None and place.at and place.at == place.path else ()


def stop_keeps(profile: Profile, lease: Lease) -> Kept:
    """Return what a stop of the lease's box keeps, as far as that is known.

    If this is `work`, the box must be searched before a stop, because files that are needed may lie where the stop
    loses them.
    """
    if profile.park == "none" or "verbs.park.effect" in profile.outlived:
        return "nothing"
    if profile.park == "keeps" and not lost_by_a_stop(profile):
        return "all"
    return "work" if _fate(profile, work_place(profile, lease)) == "yes" else "nothing"


def may_keep(profile: Profile) -> bool:
    """Whether a stop at that platform keeps at least the work, if its box is as the platform documents it."""
    if profile.park == "none" or stop_is_in_doubt(profile):
        return False
    if profile.park == "keeps":
        return True
    return _fate(profile, profile.work_places[0] if profile.work_places else HOME) == "yes"


def deleted_at(profile: Profile, lease: Lease) -> datetime | None:
    """Return when the platform deletes the parked box with its disk. None if it is not parked, or no end is known."""
    if lease.parked_at is None or profile.parked_for_h is None:
        return None
    return lease.parked_at + timedelta(hours=profile.parked_for_h)


def kept_words(profile: Profile, lease: Lease) -> str:
    """Say in one line what a park and a teardown keep of the files on the box, and what that costs an hour."""
    ends = "hands the machine back as it is" if profile.destroy == "hands_back" else "keeps nothing"
    mounts = {mount.path for mount in lease.terms.order.volumes.values()}
    stays = [
        p.path
        for p in profile.places
        if p.survives.get("destroy") == "yes" and p.path not in mounts
    ]
    stays += [f"{mount.path} (volume {name})" for name, mount in lease.terms.order.volumes.items()]
    if stays and profile.destroy == "deletes":
        ends = f"keeps only {_all_of(stays)}"
    return f"park {_parked_words(profile, lease)}; teardown {ends}"


def _parked_words(profile: Profile, lease: Lease) -> str:
    if profile.park == "none":
        return "is not possible there"
    rate = lease.quote.offer.price.parked_usd_h if lease.quote else None
    at = "at an unknown rate" if rate is None else f"at {rate} USD/h"
    if profile.parked_for_h is not None:
        at += f", for {profile.parked_for_h / 24:g} days at most"
    match stop_keeps(profile, lease):
        case "all":
            return f"keeps every disk {at}"
        case "work":
            kept = _all_of(kept_by_a_stop(profile))
            return f"keeps {kept} {at}, and is refused while work lies elsewhere"
        case "nothing":
            why = f" ({lease.place.why})" if lease.place and lease.place.why else ""
            return f"keeps nothing for certain{why}, and is refused once the box was used"


def _all_of(paths: Sequence[str]) -> str:
    return " and ".join(paths)


def _fate(profile: Profile, path: str) -> str:
    return next((x.survives["park"] for x in profile.places if x.path == path), "unknown")
