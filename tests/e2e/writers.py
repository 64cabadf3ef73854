"""What SkyPilot and dstack write into an ssh configuration: by their own writers where they are installed.

Run by an interpreter that has one of them: `python writers.py skypilot HOST PORT INNER USER KEY`. Without
it the output of the named version, as recorded, is written with those values.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded")
_PACKAGE = {"skypilot": "sky", "dstack": "dstack"}
_AT = {"skypilot": ".sky/generated/ssh/dev", "dstack": ".dstack/ssh/config"}


def written(tool: str, home: Path, **values: str) -> None:
    """The tool's own entry for `dev` is below that home: HOST, PORT, INNER, USER and KEY as given."""
    if importlib.util.find_spec(_PACKAGE[tool]):
        subprocess.run(
            [
                sys.executable,
                __file__,
                tool,
                *(values[x] for x in ("HOST", "PORT", "INNER", "USER", "KEY")),
            ],
            env={
                "HOME": str(home),
                "PATH": "/usr/bin:/bin",
                "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
            },
            check=True,
        )
        return
    (recorded,) = RECORDED.glob(f"{tool}-*.ssh")
    file = home / _AT[tool]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_filled(recorded.read_text(encoding="utf-8"), values), encoding="utf-8")


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f" {name}\n", f" {value}\n")
    return text


def _by_skypilot(host: str, port: str, inner: str, user: str, key: str) -> None:
    from sky.utils.cluster_utils import SSHConfigHelper  # type: ignore[import-not-found]

    auth = {"ssh_user": user, "ssh_private_key": key}
    SSHConfigHelper.add_cluster("dev", "dev-2ea4", [host], auth, [int(port)])


def _by_dstack(host: str, port: str, inner: str, user: str, key: str) -> None:
    from dstack._internal.core.services.ssh.attach import (  # type: ignore[import-not-found]
        SSHAttach,
    )
    from dstack._internal.core.services.ssh.ports import (  # type: ignore[import-not-found]
        PortsLock,
    )

    SSHAttach(
        run_name="dev",
        identity_path=key,
        ports_lock=PortsLock(),
        hostname=host,
        ssh_port=int(port),
        container_ssh_port=int(inner),
        user=user,
        container_user=user,
        dockerized=True,
    )._add_hosts_to_ssh_config()


if __name__ == "__main__":
    {"skypilot": _by_skypilot, "dstack": _by_dstack}[sys.argv[1]](*sys.argv[2:])
