"""What a box should have besides its GPU: image, disk, volumes, and which variables its jobs get."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import sentence

_IMAGE = re.compile(
    r"(?:(?:[a-zA-Z0-9][a-zA-Z0-9-]*(?:\.[a-zA-Z0-9-]+)+|localhost|[a-zA-Z0-9.-]+(?=:))(?::\d{1,5})?/)?"
    r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
"""An image in the form that registries use: name, tag and digest."""
_TEMPLATE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,200}")
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_VERSION = re.compile(r"\d{1,2}\.\d{1,2}")
_PUBLIC_PORT = re.compile(r"([1-9]\d{0,4})/(http|tcp)")
_VOLUME = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")
"""A name that every platform accepts as part of its own name for the volume."""
_PATH = re.compile(r"/[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")
_NOT_HERE = (
    *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "proc", "root"),
    *("run", "sbin", "sys", "tmp", "usr", "var"),
)
"""No volume may be mounted in these directories, because they belong to the system or hold login homes.

A login home holds the mark of its lease, which must be on no other box.
"""
MOST_COMMAND = 4000
_SHOWN = 120


def _image(said: str) -> str:
    if len(said) > 400 or not _IMAGE.fullmatch(said):
        raise ValueError(f"{said[:80]!r} is not an image such as `ghcr.io/me/train:1.2`")
    return said


def _template(said: str) -> str:
    if not _TEMPLATE.fullmatch(said):
        raise ValueError(f"{said[:80]!r} is not the id of a template or of a machine image")
    return said


def _registry(said: str) -> str:
    if not _REGISTRY.fullmatch(said):
        # The text is not repeated, because it may be a password.
        raise ValueError(
            "`registry` is the id of a login that is stored at RunPod, or the name of a secret of the cluster; no "
            "password belongs here"
        )
    return said


def _version(said: str) -> str:
    if not _VERSION.fullmatch(said):
        raise ValueError(f"{said[:20]!r} is not a version such as `12.4`")
    return said


def _names(said: dict[str, str]) -> dict[str, str]:
    for name in said:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:40]!r} is not the name of a variable")
    return said


def _volume_names(said: "dict[str, VolumeMount]") -> "dict[str, VolumeMount]":
    paths = [mount.path for mount in said.values()]
    for name in said:
        must_be_volume_name(name)
    for path in paths:
        if sum(other == path or other.startswith(f"{path}/") for other in paths) > 1:
            raise ValueError(f"two volumes cannot be mounted at {path}, or one below the other")
    return said


def must_be_volume_name(name: str) -> str:
    """Return `name` if a volume may have it.

    Raises:
        ValueError: no volume may have this name.
    """
    if not _VOLUME.fullmatch(name):
        raise ValueError(
            f"{name[:40]!r} is not the name of a volume: small letters, digits and -, 2 to 32 of them, a letter first"
        )
    return name


def _mount_path(said: str) -> str:
    first = said.split("/")[1] if said.startswith("/") else ""
    if len(said) > 200 or not _PATH.fullmatch(said) or {".", ".."} & set(said.split("/")):
        raise ValueError(f"{said[:80]!r} is not an absolute path such as `/data`")
    if first in _NOT_HERE:
        raise ValueError(f"no volume is mounted in /{first}: take a path such as `/data`")
    return said


def _commands(said: tuple[str, ...]) -> tuple[str, ...]:
    for command in said:
        if not command.strip() or "\0" in command or len(command) > MOST_COMMAND:
            raise ValueError(f"a command has 1 to {MOST_COMMAND} characters, and is not blank")
    return said


def _each_once(said: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(said)) < len(said):
        raise ValueError("a port is named twice")
    return said


def _public_port(said: str) -> str:
    told = _PUBLIC_PORT.fullmatch(said)
    if told is None or int(told[1]) > 65535:
        raise ValueError(f"{said[:40]!r} is not a port such as `8000/http` or `9000/tcp`")
    if told[1] == "22":
        raise ValueError("port 22 is the box's own sshd, which already has an address")
    return said


def _public_once(said: tuple[str, ...]) -> tuple[str, ...]:
    _each_once(tuple(port_number(port) for port in said))
    return said


def port_number(public: str) -> int:
    """Return the number of a port such as `8000/http`."""
    return int(public.partition("/")[0])


def _text(form: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^(?:{form.pattern})$"})


Image = Annotated[str, AfterValidator(_image), _text(_IMAGE)]
Template = Annotated[str, AfterValidator(_template), _text(_TEMPLATE)]
Registry = Annotated[str, AfterValidator(_registry), _text(_REGISTRY)]
Port = Annotated[int, Field(ge=1, le=65535)]
PublicPort = Annotated[str, AfterValidator(_public_port), _text(_PUBLIC_PORT)]
Version = Annotated[str, AfterValidator(_version), _text(_VERSION)]


MountPath = Annotated[str, AfterValidator(_mount_path), _text(_PATH)]


class VolumeMount(Record):
    """Where one named volume is mounted."""

    path: MountPath = Field(description="where it is mounted on the box, such as /data")


class AtProvider(Record):
    """What differs at one platform."""

    image: Image | None = Field(
        default=None, description="a container image, only at this platform"
    )
    template: Template | None = Field(
        default=None,
        description="the platform's own template or machine image, by its id; it goes before `image`",
    )
    registry: Registry | None = Field(
        default=None,
        description="the login for a private image, as it is stored there: its id at RunPod, its secret's name in a "
        "cluster",
    )


class Order(Record):
    """What a box should have besides its GPU. What the order leaves out is as usual at the platform."""

    image: Image | None = Field(
        default=None, description="a container image of any registry, as `name:tag`"
    )
    disk_gb: int | None = Field(default=None, ge=8, le=100_000, description="the box's own disk")
    region: str | None = Field(
        default=None, min_length=1, max_length=100, description="part of a region's name"
    )
    cuda: Version | None = Field(
        default=None, description="the lowest CUDA version that the driver must run"
    )
    python: Version | None = Field(default=None, description="the lowest version of python3")
    env: Annotated[dict[str, str], AfterValidator(_names)] = Field(
        default={},
        description="variables of every job and of the setup, by reference: env:NAME, file:PATH in the tree, keyring:S/U or ref:R",
    )
    setup: Annotated[tuple[str, ...], AfterValidator(_commands)] = Field(
        default=(),
        max_length=100,
        description="commands that run once, in the work directory, before the first job; the first that fails "
        "ends them",
    )
    setup_minutes: int = Field(
        default=60, ge=1, le=1440, description="the longest that the setup may take"
    )
    ports: Annotated[tuple[Port, ...], AfterValidator(_each_once)] = Field(
        default=(),
        max_length=20,
        description="ports of the box that are reached from this computer alone, through ssh",
    )
    public_ports: Annotated[tuple[PublicPort, ...], AfterValidator(_public_once)] = Field(
        default=(),
        max_length=10,  # RunPod's proxy opens at most ten ports of a pod.
        description="ports that the platform opens to the whole internet, such as `8000/http`; whoever finds one "
        "can use it",
    )
    volumes: Annotated[dict[str, VolumeMount], AfterValidator(_volume_names)] = Field(
        default={},
        description="volumes that outlive the box, by the names that `gpu-tenant volumes` lists",
    )
    provider: dict[str, AtProvider] = Field(
        default={}, description="what differs at one platform, by its id"
    )

    @property
    def env_from(self) -> tuple[str, ...]:
        """The variables as `NAME=reference`."""
        return tuple(f"{name}={reference}" for name, reference in self.env.items())

    def image_at(self, provider: str) -> AtProvider:
        """Return what the box is to be started from at that platform. An empty result means its usual image."""
        own = self.provider.get(provider, AtProvider())
        if own.template is not None:
            return AtProvider(template=own.template, registry=own.registry)
        image = own.image or self.image
        return AtProvider(image=image, registry=own.registry if image else None)

    def is_same_box(self, other: "Order") -> bool:
        """Whether both orders make the same box.

        Disk and region are not compared, because a search may state its own.
        """
        plain = {"disk_gb": None, "region": None}
        return self.model_copy(update=plain) == other.model_copy(update=plain)

    def words(self, provider: str | None = None) -> tuple[str, ...]:
        """Return what is ordered, with one text for each part.

        `provider` is the platform of the box, if it is chosen.
        """
        said = []
        if provider is not None:
            said += _from(self.image_at(provider), "")
        else:
            said += _from(AtProvider(image=self.image), "")
            for name, own in self.provider.items():
                said += _from(self.image_at(name), f" at {name}") if own != AtProvider() else []
        for name, told in (("CUDA", self.cuda), ("Python", self.python)):
            said += [f"{name} {told} or newer"] if told else []
        said += [f"volume {name} at {mount.path}" for name, mount in self.volumes.items()]
        if self.env:
            # A work tree may come from a stranger. So the person who rents sees which of their variables its jobs will
            # get.
            said += [f"{name} from {reference}" for name, reference in self.env.items()]
        if self.ports:
            named = ", ".join(map(str, self.ports))
            said.append(
                f"ports {named} at 127.0.0.1 by `ssh LEASE --ports`, and closed to the world"
            )
        if self.public_ports:
            said.append(f"open to the whole internet: {', '.join(self.public_ports)}")
        # For the same reason, they see what is run on the box.
        said += [f"setup `{sentence(command, most=_SHOWN)}`" for command in self.setup]
        return tuple(said)


NOTHING_ORDERED = Order.model_construct()
"""The usual box of each platform. It is not validated, because that would build the validator in every command."""


def _from(source: AtProvider, where: str) -> list[str]:
    named = {"template": source.template, "image": source.image}
    login = f", pulled with the login {source.registry}" if source.registry else ""
    return [f"{kind} {name}{where}{login}" for kind, name in named.items() if name]


def is_older(version: str, wanted: str) -> bool:
    """Whether a version such as `12.4` is older than the wanted one."""
    return _parts(version) < _parts(wanted)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
