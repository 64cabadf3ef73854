"""Finds what a program started by a service would lack compared with this shell: keys, proxies, the program itself."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.model import Profile
from gpu_tenant.files.installation import why_not_started
from gpu_tenant.files.planned_changes import there
from gpu_tenant.providers.credentials import find_credential

_OF_A_SHELL = (
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GPU_TENANT_GCP_ZONES",
)
"""Variables that decide whether a provider can be reached at all."""
_OF_A_CLUSTER = (
    ("KUBECONFIG", "kubernetes", {"kubeconfig"}, 'kubeconfig = "{}"'),
    ("SLURM_CONF", "slurm", {"login", "before"}, 'before = ["env", "SLURM_CONF={}"]'),
)
"""For each kind of cluster: the variable that says which cluster is used, the table about it in the configuration, the
settings there that override the variable, and the line to write there.
"""


def must_start_alone(program: Sequence[str]) -> None:
    """Check that the program starts without the variables of this shell.

    Raises:
        Refused: it does not start.
    """
    said = why_not_started(program) or ""
    if said or any(not word.isprintable() for word in program):
        raise Refused(
            f"{' '.join(program)} does not start outside this shell: {said[:200]}",
            remedy="install it (`uv tool install gpu-tenant`, `pipx install gpu-tenant`), then run the installed program",
        )


def what_is_lacking(
    configuration: Path,
    profiles: Iterable[Profile],
    environ: Mapping[str, str],
) -> Iterator[str]:
    """Yield in sentences what this shell has and a program started by a service will lack. Keys come first.

    Raises:
        LocalTrouble: the configuration cannot be read.
    """
    told: set[str] = set()
    for profile in profiles:
        found = find_credential(profile, configuration, environ)
        elsewhere = find_credential(profile, configuration, {})
        scheme, _, variable = found.source.partition(":") if found else ("", "", "")
        if scheme == "env" and (elsewhere is None or elsewhere.source.startswith("env:")):
            told.add(variable)
            yield (
                f"the key of {profile.title} is found only in this shell's {variable}, and the"
                f" watchdog would not see it: {_put(profile, configuration)}"
            )
    for variable in sorted(set(_references(configuration)) - told):
        yield (
            f"{configuration} refers to env:{variable}, which the watchdog would not see:"
            ' refer to "file:PATH" or "keyring:SERVICE/USER" there'
        )
    unseen = [name for name in _OF_A_SHELL if environ.get(name) and name not in told]
    if unseen:
        yield f"this shell sets {', '.join(unseen)}, and the watchdog would not see it"
    yield from _clusters(configuration, environ)


def _clusters(configuration: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the clusters that only this shell's variables name. Without these, another cluster may be used."""
    said = _read_settings(configuration)
    for variable, table, settles, line in _OF_A_CLUSTER:
        value, named = environ.get(variable), said.get(table)
        if value and isinstance(named, dict) and settles.isdisjoint(named):
            yield (
                f"this shell's {variable} says which cluster [{table}] means, and the watchdog would not"
                f" see that variable: write `{line.format(value)}` there"
            )


def _put(profile: Profile, configuration: Path) -> str:
    usual = profile.credential.file if profile.credential else None
    named = f'`{profile.id} = "file:PATH"` or `"keyring:SERVICE/USER"`'
    place = f"name its place under [credentials] in {configuration}, {named}"
    return f"put it into {usual}, or {place}" if usual else place


def _references(configuration: Path) -> Iterator[str]:
    """Yield every environment variable to which the configuration refers."""
    waiting: list[object] = [_read_settings(configuration)]
    while waiting:
        said = waiting.pop()
        if isinstance(said, dict):
            waiting += said.values()
        elif isinstance(said, list):
            waiting += said
        elif isinstance(said, str) and said.startswith("env:"):
            yield said.removeprefix("env:")


def _read_settings(configuration: Path) -> dict[str, object]:
    content = there(configuration)
    return tomllib.loads(content.decode()) if isinstance(content, bytes) else {}
