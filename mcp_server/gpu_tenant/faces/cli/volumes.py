"""The command that lists volumes, and creates, adopts or grows one, or destroys one if a person signs."""

from __future__ import annotations

import sys

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.volumes import Volume, VolumeState
from gpu_tenant.faces.cli import completion, output
from gpu_tenant.faces.cli.command import as_json, verb


class VolumeRow(Record):
    """One volume at a glance."""

    name: str
    provider: str
    region: str
    state: str
    size_gb: int
    usd_month: Usd
    age: str
    last_use: str
    id: str | None
    may_stay: str | None = None


class VolumeList(Record):
    """All our volumes, and their alarms."""

    volumes: tuple[VolumeRow, ...]
    alarms: tuple[str, ...] = ()


@verb("volumes")
@click.option("--create", metavar="NAME", help="make a volume; an order mounts it by this name")
@click.option("--adopt", metavar="NAME", help="adopt a volume that was made elsewhere, with --id")
@click.option(
    "--grow", metavar="NAME", help="make a volume larger, to --size-gb; none is made smaller"
)
@click.option(
    "--on",
    "provider",
    metavar="PROVIDER",
    shell_complete=completion.platforms,
    help="where the volume is, or shall be",
)
@click.option("--region", help="with --create: the provider's own word for it, as in EU-RO-1")
@click.option("--size-gb", type=click.IntRange(1, 100_000), help="with --create and --grow")
@click.option("--id", "volume_id", metavar="ID", help="with --adopt: its id at the provider")
@click.option(
    "--destroy", metavar="NAME", help="end a volume, with all that is on it; a person signs"
)
@click.option("--disk-gone", metavar="NAME", help="sign that the disk of a deleted volume is gone")
@as_json
async def volumes(
    create: str | None,
    adopt: str | None,
    grow: str | None,
    provider: str | None,
    region: str | None,
    size_gb: int | None,
    volume_id: str | None,
    destroy: str | None,
    disk_gone: str | None,
    as_json: bool,
) -> None:
    """A volume outlives every box that mounts it, and bills until a person signs for its end."""
    from gpu_tenant.faces.cli.limits import as_owner
    from gpu_tenant.leases.volumes import (
        adopt_volume,
        confirm_disk_gone,
        create_volume,
        destroy_volume,
        grow_volume,
        last_use,
        look_at_volumes,
    )

    verbs = [name for name in (create, adopt, grow, destroy, disk_gone) if name is not None]
    if len(verbs) > 1:
        raise BadRequest(
            "--create, --adopt, --grow, --destroy and --disk-gone are commands of their own",
            remedy="give one of them",
        )
    async with output.tenancy(purpose="work" if verbs else "look") as tenancy:
        context = tenancy.context
        if create is not None:
            if provider is None or region is None or size_gb is None:
                raise BadRequest(
                    "a new volume needs a provider, a region and a size",
                    remedy=str(
                        Command(
                            "volumes", create=create, on="runpod", region="EU-RO-1", size_gb="50"
                        )
                    ),
                )
            at, place, size = provider, region, size_gb
            await as_owner(
                tenancy,
                lambda: create_volume(context, create, provider=at, region=place, size_gb=size),
            )
        elif adopt is not None:
            if provider is None or volume_id is None:
                raise BadRequest(
                    "to adopt a volume, name its provider and its id there",
                    remedy=str(Command("volumes", adopt=adopt, on="runpod", id="ID")),
                )
            where, there = provider, volume_id
            await as_owner(
                tenancy, lambda: adopt_volume(context, adopt, provider=where, volume_id=there)
            )
        elif grow is not None:
            if size_gb is None:
                raise BadRequest(
                    "a volume grows to a size",
                    remedy=str(Command("volumes", grow=grow, size_gb="GB")),
                )
            to = size_gb
            await as_owner(tenancy, lambda: grow_volume(context, grow, to, provider=provider))
        elif destroy is not None:
            gone = await as_owner(
                tenancy, lambda: destroy_volume(context, destroy, provider=provider)
            )
            if gone.state is VolumeState.GONE:
                click.echo(
                    f"the volume {gone.name} is gone: its provider's list omits it", err=True
                )
        elif disk_gone is not None:

            async def confirm() -> Volume:
                return confirm_disk_gone(context, disk_gone, provider=provider)

            gone = await as_owner(tenancy, confirm)
            click.echo(f"the volume {gone.name} is gone, and so is its disk", err=True)
        seen = await look_at_volumes(context)
        now = context.clock.now()
        shown = VolumeList(
            volumes=tuple(
                VolumeRow(
                    name=volume.name,
                    provider=volume.provider,
                    region=volume.region,
                    state=volume.state,
                    size_gb=volume.size_gb,
                    usd_month=volume.usd_month,
                    age=volume.age(now),
                    last_use=last_use(context, volume),
                    id=volume.volume_id,
                    may_stay=seen.stays.get(volume.key),
                )
                for volume in seen.volumes
            ),
            alarms=tuple(f"{name}: {words}" for name, words in seen.alarms),
        )
        output.answer(shown, as_json, _print)
    if shown.alarms:
        sys.exit(1)


def _print(shown: VolumeList) -> None:
    if not shown.volumes:
        click.echo("no volume is on record here: none of ours bills that this ledger knows of")
    rows = [("VOLUME", "AT", "STATE", "SIZE", "USD/MONTH", "AGE", "LAST USE")]
    rows += [
        (
            row.name,
            f"{row.provider}, {row.region}",
            row.state,
            f"{row.size_gb} GB",
            "unknown" if row.usd_month is None else f"{row.usd_month.normalize():f}",
            row.age,
            row.last_use,
        )
        for row in shown.volumes
    ]
    if shown.volumes:
        output.columns(rows)
    for row in shown.volumes:
        if row.may_stay:
            click.echo(f"{row.name}: {row.may_stay}")
    for words in shown.alarms:
        output.complain("alarm", words)
