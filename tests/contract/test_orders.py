"""Orders for boxes, drawn: what each platform is sent is what its own document allows, and it reads back the same."""

import json
import os
import random
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from contract.openapi import fields, validate_request
from contract.staged import Staged, on_stage

from gpu_tenant.domain.errors import BadRequest, ProviderTrouble
from gpu_tenant.domain.model import Box, BoxState, SshAddress
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.order import AtProvider, Order
from gpu_tenant.domain.ports import Market, Parking
from gpu_tenant.emulators.runpod.responses import TEMPLATES as RUNPOD_TEMPLATES
from gpu_tenant.emulators.vastai.responses import TEMPLATES as VAST_TEMPLATES
from gpu_tenant.leases.offers import closed_ports, find_offers, refused_image
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.runpod.connector import _source

ORDERS = 60
EVERY = 1 if os.environ.get("GPU_TENANT_TORTURE") else 12
"""Of these orders, one in so many is tried with every change, and each by `make torture`."""
PLATFORMS = ("runpod", "vastai", "gcp", "digitalocean", "lambda_cloud", "autodl")
_TEMPLATES: dict[str, tuple[str, ...]] = {
    "runpod": ("runpod-torch-v280", "30zmvf89kd"),
    "vastai": ("4e17788f74f075dd9aab7d0d4427968f", "c0ffee00c0ffee00c0ffee00c0ffee00"),
    "gcp": (
        "common-cu129-ubuntu-2404-nvidia-580",
        "rehearsal/training",
        "projects/rehearsal/global/images/training-v3",
    ),
    "digitalocean": ("ubuntu-24-04-x64", "166407999", "gpu-h100x8-base"),
    "lambda_cloud": ("lambda-stack-24-04", "43336648-096d-4cba-9aa2-f9bb7727639d"),
    "autodl": ("image-rehearsal", "base-image-12be412037"),
}
_IMAGES = (
    "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel",
    "ghcr.io/me/train:1",
    "registry.example.com:5000/team/box_it@sha256:" + "0f" * 32,
    "nvcr.io/nvidia/pytorch:25.08-py3",
    "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
    "ubuntu",
)


def drawn() -> list[Order]:
    """Sixty orders, the same in each run."""
    draw, orders = random.Random(18), []
    for number in range(ORDERS):
        own: dict[str, AtProvider] = {}
        for name in PLATFORMS:
            match draw.choice(("", "", "image", "template")):
                case "image":
                    own[name] = AtProvider(image=draw.choice(_IMAGES))
                case "template":
                    own[name] = AtProvider(template=draw.choice(_TEMPLATES[name]))
        orders.append(
            Order(
                image=draw.choice((*[None] * len(_IMAGES), *_IMAGES)),
                disk_gb=draw.choice((None, 40, 64, 100)),
                cuda=draw.choice((None, None, "12.4", "11.8")),
                public_ports=() if number % 48 != 24 else ("8000/http", "9000/tcp"),
                provider=own,
            )
        )
    return orders


@pytest.fixture(params=PLATFORMS)
def staged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Staged]:
    with on_stage(request.param, tmp_path) as found:
        yield found


def shown(staged: Staged, box_id: str) -> tuple[object, float]:
    """The image and the disk of that box, as the platform shows them, or as the rehearsal has them."""
    facts: Any = staged.stage.world.state.things[box_id].facts
    match staged.stage.provider:
        case "runpod":
            return facts["asked"]["image"], facts["asked"]["mounts"]["persistent"]["size"]
        case "vastai":
            return facts["image"], float(facts["disk"])
        case "gcp":
            made = facts["body"]["disks"][0]["initializeParams"]
            return made["sourceImage"], int(made["diskSizeGb"])
        case "autodl":
            return facts["image"], 0
        case _:
            return facts["image"], 0


def wanted(slug: str, source: AtProvider) -> object:
    """The image that a box has which was ordered so; the default stands for the platform's own."""
    template = source.template
    match slug:
        case "runpod":
            if template:
                return RUNPOD_TEMPLATES[template]["image"]
            return source.image or "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
        case "vastai":
            if template:
                return VAST_TEMPLATES[template]
            return source.image or "vastai/base-image:@vastai-automatic-tag"
        case "gcp":
            usual = "projects/deeplearning-platform-release/global/images/common-cu129-ubuntu-2404-nvidia-580-v20260626"
            own = "projects/rehearsal/global/images/training-v3"
            return own if template and "training" in template else usual
        case "digitalocean":
            return int(template) if template and template.isdigit() else template
        case "lambda_cloud":
            return template and {"id" if template.count("-") == 4 else "family": template}
        case _:
            return template or "base-image-l2t43iu6uk"


def allowed(slug: str, sent: dict[str, Any], kept: dict[str, Any]) -> None:
    """What was sent is what the platform's own document, or its own client, takes."""
    body = sent["body"]
    match slug:
        case "runpod":
            # The log of requests leaves our key out.
            validate_request("runpod", "POST", "/v2/pods", kept["asked"])
            assert ("image" in body) != ("templateId" in body)
        case "digitalocean":
            validate_request("digitalocean", "POST", "/v2/droplets", body)
        case "lambda_cloud":
            path = "/api/v1/instance-operations/launch"
            validate_request("lambda_cloud", "POST", path, body)
        case "gcp":
            from google.cloud import compute_v1

            compute_v1.Instance.from_json(json.dumps(body), ignore_unknown_fields=False)
        case "vastai":
            # Vast.ai's own client sends more, and some of it in another form, than its document says.
            form = fields("vastai", "PUT", "/api/v0/asks/1")
            parts = {
                k: v for k, v in body.items() if k in form and v is not None and k not in _OTHERWISE
            }
            jsonschema.validate(parts, {"type": "object", "properties": form})
            assert {"label", "disk", "onstart", "cancel_unavail"} <= set(parts)
            assert len(body["onstart"]) <= 4048
            assert ("image" in parts) != ("template_hash_id" in parts)


_OTHERWISE = ("env", "runtype")


async def test_what_is_ordered_is_sent_as_documented_and_read_back(staged: Staged) -> None:
    slug, met = staged.stage.provider, 0
    for number, order in list(enumerate(drawn()))[::EVERY]:
        source = order.image_at(slug)
        assert isinstance(staged.connector, Market)
        if refused_image(staged.connector, source) is not None:
            continue
        if closed_ports(staged.connector, order.public_ports) is not None:
            continue
        disk_gb = order.disk_gb or 40
        if not await staged.connector.offers(Wish(disk_gb=disk_gb, order=order)):
            continue  # no box of that platform has such a disk, or such a driver
        intent = await staged.intent(f"o{number:03}", disk_gb=disk_gb, order=order)

        box = await staged.connector.create(intent)

        creates = [
            line
            for line in staged.ask("requests")
            if line["method"] in ("POST", "PUT") and _CREATES[slug] in line["path"]
        ]
        place = box.id if slug != "gcp" else _google(staged, box.id)
        allowed(slug, creates[-1], staged.stage.world.state.things[place].facts)
        image, size = shown(staged, place)
        assert wanted(slug, source) in (image, None), order
        assert slug in ("digitalocean", "lambda_cloud", "autodl") or size >= disk_gb
        # The room that it took is free again, without the minutes that a box takes to come up.
        staged.stage.world.end(staged.stage.world.state.things[place], status="ended")
        met += 1

    assert met >= (len(drawn()[::EVERY]) if slug in ("runpod", "vastai") else 1)


_CREATES = {
    "runpod": "/v2/pods",
    "vastai": "/api/v0/asks/",
    "gcp": "/instances",
    "digitalocean": "/v2/droplets",
    "lambda_cloud": "/launch",
    "autodl": "/create",
}


def _google(staged: Staged, box_id: str) -> str:
    number = box_id.rpartition("/")[2]
    return next(t.id for t in staged.stage.world.things() if str(t.facts["number"]) == number)


@pytest.mark.parametrize("slug", ["gcp", "digitalocean", "lambda_cloud", "autodl"])
async def test_a_platform_that_takes_no_container_image_offers_nothing_and_says_why(
    tmp_path: Path, slug: str
) -> None:
    with on_stage(slug, tmp_path) as staged:
        assert isinstance(staged.connector, Market)
        wish = Wish(order=Order(image="me/train:1"))
        ledger = Ledger(tmp_path / "ledger.sqlite3", staged.clock)

        found = await find_offers(wish, {slug: staged.connector}, ledger=ledger)

        assert found.offers == ()
        assert "cannot carry out the order's `image`" in found.troubles[slug]
        assert f"[provider.{slug}]" in found.troubles[slug]
        assert staged.ask("requests") == []
        assert found.order == ("image me/train:1",)


@pytest.mark.parametrize("slug", ["gcp", "digitalocean", "lambda_cloud", "autodl", "vastai"])
async def test_a_platform_at_which_no_stored_login_can_be_named_says_so(
    tmp_path: Path, slug: str
) -> None:
    with on_stage(slug, tmp_path) as staged:
        assert isinstance(staged.connector, Market)
        own = AtProvider(template="anything", registry="6n2k8v4d")
        ledger = Ledger(tmp_path / "ledger.sqlite3", staged.clock)

        found = await find_offers(
            Wish(order=Order(provider={slug: own})), {slug: staged.connector}, ledger=ledger
        )

        assert found.offers == ()
        assert "no stored login for a registry" in found.troubles[slug]


async def test_a_pod_names_the_login_that_is_stored_in_the_account(tmp_path: Path) -> None:
    with on_stage("runpod", tmp_path) as staged:
        own = AtProvider(image="me/private:1", registry="6n2k8v4d")
        intent = await staged.intent(order=Order(provider={"runpod": own}))

        box = await staged.connector.create(intent)

        asked = staged.stage.world.state.things[box.id].facts["asked"]
        validate_request("runpod", "POST", "/v2/pods", asked)
        assert asked["registry"] == "6n2k8v4d"


@pytest.mark.parametrize("slug", ["gcp", "digitalocean", "lambda_cloud", "autodl"])
async def test_a_platform_that_opens_no_port_offers_nothing_and_says_why(
    tmp_path: Path, slug: str
) -> None:
    with on_stage(slug, tmp_path) as staged:
        assert isinstance(staged.connector, Market)
        wish = Wish(order=Order(public_ports=("8000/http",)))
        ledger = Ledger(tmp_path / "ledger.sqlite3", staged.clock)

        found = await find_offers(wish, {slug: staged.connector}, ledger=ledger)

        assert found.offers == ()
        assert "no port of its boxes is opened to the internet" in found.troubles[slug]
        assert staged.ask("requests") == []


def after_ssh(box: Box, places: int) -> str:
    """The host's port so many places after the one of the box's sshd."""
    assert isinstance(box.address, SshAddress)
    host, _, port = box.address.target.removeprefix("root@").partition(":")
    return f"{host}:{int(port) + places}"


async def test_a_pod_says_where_its_open_ports_are_and_at_which_after_a_restart(
    tmp_path: Path,
) -> None:
    with on_stage("runpod", tmp_path) as staged:
        assert isinstance(staged.connector, Parking)
        intent = await staged.intent(order=Order(public_ports=("8000/http", "9000/tcp")))
        made = await staged.connector.create(intent)
        assert made.published == ()

        first = await staged.ready(intent)

        assert first.published == (
            f"8000/http at https://{made.id}-8000.proxy.runpod.net, which ends a request after 100 s",
            f"9000/tcp at {after_ssh(first, 1)}",
        )
        lease = intent.model_copy(update={"box_id": made.id})
        await staged.connector.park(lease)
        staged.wait(60)
        parked = next(box for box in await staged.connector.list_boxes() if box.id == made.id)
        assert parked.published == ()
        await staged.connector.resume(lease)
        again = await staged.ready(intent)
        assert again.published[0] == first.published[0]
        assert again.published[1] == f"9000/tcp at {after_ssh(again, 1)}" != first.published[1]


async def test_a_box_of_vast_ai_says_at_which_port_of_its_host_a_port_is(tmp_path: Path) -> None:
    with on_stage("vastai", tmp_path) as staged:
        intent = await staged.intent(order=Order(public_ports=("8000/http", "9000/tcp")))
        await staged.connector.create(intent)

        box = await staged.ready(intent)

        assert box.published == (
            f"8000/tcp at {after_ssh(box, 1)}",
            f"9000/tcp at {after_ssh(box, 2)}",
        )


@pytest.mark.parametrize("slug", ["runpod", "vastai"])
async def test_a_template_that_is_not_there_rents_nothing(tmp_path: Path, slug: str) -> None:
    with on_stage(slug, tmp_path) as staged:
        intent = await staged.intent(order=Order(provider={slug: AtProvider(template="nowhere")}))

        with pytest.raises(ProviderTrouble, match="template"):
            await staged.connector.create(intent)

        assert staged.alive == []


async def test_an_image_family_that_is_not_there_is_told_before_anything_is_offered(
    tmp_path: Path,
) -> None:
    with on_stage("gcp", tmp_path) as staged:
        assert isinstance(staged.connector, Market)

        with pytest.raises(BadRequest, match="no image 'nowhere'"):
            await staged.connector.offers(
                Wish(order=Order(provider={"gcp": AtProvider(template="nowhere")}))
            )


async def test_a_box_of_an_image_without_sshd_lets_us_in_by_what_we_bring(tmp_path: Path) -> None:
    with on_stage("runpod", tmp_path) as staged:
        intent = await staged.intent(
            order=Order(image="pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel")
        )

        await staged.connector.create(intent)

        assert (await staged.ready(intent)).state is BoxState.READY


async def test_a_host_with_an_older_driver_is_not_offered(tmp_path: Path) -> None:
    for slug in ("runpod", "vastai"):
        with on_stage(slug, tmp_path / slug) as staged:
            assert isinstance(staged.connector, Market)

            assert await staged.connector.offers(Wish(order=Order(cuda="12.4")))
            assert await staged.connector.offers(Wish(order=Order(cuda="13.9"))) == []


def test_what_starts_sshd_leaves_the_images_variables_to_a_login(tmp_path: Path) -> None:
    """It runs as in a container: sshd is there, and is given our key and the image's PATH."""
    sshd = tmp_path / "sbin" / "sshd"
    sshd.parent.mkdir()
    for name in ("sshd", "ssh-keygen"):
        (sshd.parent / name).write_text(f'#!/bin/sh\necho {name} "$@" >>"$HOME/ran"\n')
        (sshd.parent / name).chmod(0o755)
    words = shlex.split(_source(Order(image="a/b:1"))["args"])
    path = f"{sshd.parent}:{os.environ['PATH']}"
    environ = {
        "HOME": str(tmp_path),
        "PATH": path,
        "PUBLIC_KEY": "ssh-ed25519 AAAA me",
        "CONDA": "/opt/conda",
    }

    subprocess.run(words, env=environ, check=True, timeout=60)

    assert (tmp_path / ".ssh" / "authorized_keys").read_text() == "ssh-ed25519 AAAA me\n"
    given = (tmp_path / ".ssh" / "environment").read_text().splitlines()
    assert "CONDA=/opt/conda" in given
    assert not [line for line in given if line.startswith(("HOME=", "PUBLIC_KEY="))]
    assert [line for line in given if line.startswith(f"PATH={path}")]
    ran = (tmp_path / "ran").read_text().splitlines()
    assert ran[0] == "ssh-keygen -A"
    assert ran[1].startswith("sshd -D")
