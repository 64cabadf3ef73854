"""Reads `gpu-tenant.toml`, which a work tree may contain: the order for a box. Also writes a first one."""

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errand import Usual
from gpu_tenant.domain.errors import BadRequest, SecretRefused
from gpu_tenant.domain.order import AtProvider, Order, VolumeMount
from gpu_tenant.files.secret_scan import find_secrets

NAME = "gpu-tenant.toml"
SCHEMA = Path(__file__).with_name("gpu-tenant.schema.json")
"""The JSON schema of such a file, for editors. `make docs` generates it from the fields of the order."""
_MOST_BYTES = 64 << 10

FIRST = """\
# The box that this work needs, for `gpu-tenant offers` and `gpu-tenant provision`.
# A line that is left out leaves it as the platform has it. A flag on the command line goes before this file.

# A container image of any registry. Where a platform rents virtual machines, name its template below.
# image = "pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel"

# disk_gb = 80            # the box's own disk
# region = "EU"           # part of a region's name
# cuda = "12.4"           # the driver runs at least this; the audit checks it
# python = "3.10"         # python3 on the box is at least this; the audit checks it

# Commands that run once, in the work directory, after the first push and before the first job; again on a new box.
# What they make is no work: it is lost with the box. Name no secret in them: they have the variables below.
# setup = ["apt-get install -y ffmpeg", "pip install -r requirements.txt"]
# setup_minutes = 60      # then they are ended

# Ports of the box, at 127.0.0.1 of this computer while `gpu-tenant ssh LEASE --ports` runs. Nobody else reaches them.
# ports = [8888, 6006]

# Ports that RunPod or Vast.ai open to the whole internet, at the address that `gpu-tenant leases` shows. Whoever finds
# one can use it, so what listens there must ask for a password. Other platforms open none.
# public_ports = ["8000/http", "9000/tcp"]

# Variables of every job and of the setup, by reference. No value is stored: env:NAME, file:PATH in this tree,
# keyring:SERVICE/USER, or ref:NAME of your own config.toml. You are asked once whether this tree may have them.
# [env]
# HF_TOKEN = "env:HF_TOKEN"

# A volume that outlives the box: `gpu-tenant volumes --create data ...` makes it, once.
# [volumes.data]
# path = "/data"

# What `gpu-tenant run` does here, so that it needs no other words.
# [run]
# command = "python3 train.py"
# smoke = "python3 train.py --epochs 1"   # shorter, for the test here
# artifacts = ["out/"]
# gpu = "RTX 4090|RTX 3090"
# hours = 10
# max_usd = 5

# What differs at one platform: another image, or its own template or machine image by its id. `registry` is the login
# for a private image, as it is stored there: its id at RunPod, the name of its secret in a cluster. No password belongs here.
# [provider.runpod]
# template = "30zmvf89kd"
# registry = "6n2k8v4d"
# [provider.gcp]
# template = "common-cu129-ubuntu-2404-nvidia-580"
"""


def find_order(directory: Path) -> Path | None:
    """Return the path of a work tree's order. None if it has none."""
    path = directory / NAME
    return path if path.is_file() else None


class WorkFile(Order):
    """The whole file: the order for the box, and what `gpu-tenant run` does there."""

    run: Usual = Field(
        default=Usual(), description="what `gpu-tenant run` does here, if nothing else is said"
    )


def read_order(path: Path, platforms: Sequence[str]) -> Order:
    """Read an order. `path` is the file, or the directory that contains it.

    Raises:
        BadRequest: there is no such file, or it has a field that no order has.
        SecretRefused: it contains something that looks like a secret.
    """
    told = read_work_file(path, platforms)
    return Order.model_validate({name: getattr(told, name) for name in Order.model_fields})


def read_work_file(path: Path, platforms: Sequence[str]) -> WorkFile:
    """Read the whole file. Raises the same errors as `read_order`, and `BadRequest` for a link out of its directory."""
    file = path / NAME if path.is_dir() else path
    try:
        real = file.resolve()
        if file.is_symlink() and not real.is_relative_to(file.parent.resolve()):
            # A stranger's tree could name any file here, and an error would show a part of it.
            raise BadRequest(
                f"{file} is a link out of its directory, and was not read",
                remedy="put the file itself there, or name the file that it leads to",
            )
        with real.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise _wrong(file, f"it is larger than {_MOST_BYTES} bytes")
        said = tomllib.loads(content.decode())
        if found := find_secrets(file.name, content):
            raise SecretRefused(
                f"{file} holds what looks like a secret ({found[0]})",
                remedy='refer to it instead, below `[env]`: `NAME = "env:NAME"`; no value is stored',
            )
    except OSError as error:
        raise BadRequest(
            f"{file} cannot be read: {error.strerror}",
            remedy=f"{Command('init')} writes a first one",
        ) from None
    except ValueError as error:
        raise _wrong(file, str(error)) from None
    _must_be_known(file, said, platforms)
    try:
        return WorkFile.model_validate(said)
    except ValidationError as error:
        # The input is not shown, because it may be a secret that somebody wrote into the file.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    raise _wrong(file, f"`{field}`: {first['msg'].removeprefix('Value error, ')}")


def write_first(directory: Path) -> Path:
    """Write a first order. It contains only comments, and orders nothing yet. An existing file stays as it is.

    Raises:
        BadRequest: the file exists already, or cannot be written.
    """
    path = directory / NAME
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(FIRST)
    except FileExistsError:
        raise BadRequest(
            f"{path} is there already, and was left as it is", remedy="edit that file"
        ) from None
    except OSError as error:
        raise BadRequest(
            f"{path} cannot be written: {error.strerror}", remedy="name a directory of your own"
        ) from None
    return path


def schema() -> dict[str, object]:
    """Return the JSON schema of the file."""
    told = WorkFile.model_json_schema()
    told.pop("title", None)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": NAME,
        **told,
    }


def _must_be_known(file: Path, said: dict[str, object], platforms: Sequence[str]) -> None:
    _keys_of(file, said, WorkFile, "")
    run = said.get("run")
    if isinstance(run, dict):
        _keys_of(file, run, Usual, "run.")
    volumes = said.get("volumes")
    for name, table in volumes.items() if isinstance(volumes, dict) else ():
        if isinstance(table, dict):
            _keys_of(file, table, VolumeMount, f"volumes.{name}.")
    own = said.get("provider")
    if not isinstance(own, dict):
        return
    for name, table in own.items():
        _must_be_one_of(file, f"provider.{name}", name, platforms)
        if isinstance(table, dict):
            _keys_of(file, table, AtProvider, f"provider.{name}.")


def _keys_of(file: Path, said: dict[str, object], form: type[BaseModel], before: str) -> None:
    for key in said:
        _must_be_one_of(file, f"{before}{key}", key, list(form.model_fields))


def _must_be_one_of(file: Path, where: str, key: str, known: Sequence[str]) -> None:
    if key in known:
        return
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    meant = f"did you mean `{near[0]}`?" if near else f"it takes {', '.join(known)}"
    raise _wrong(file, f"nothing is called `{where[:80]}`; {meant}")


def _wrong(file: Path, why: str) -> BadRequest:
    return BadRequest(f"{file} is not a valid order: {why}", remedy="correct that file")
