"""Packs a clone and its manifest into one file, the bundle for desktop programs (MCPB): `make mcpb`."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    *("LICENSE", "README.md", "SKILL.md", "pyproject.toml"),
    *("agents", "mcp_server/gpu_tenant", "profiles", "references", "scripts"),
)
"""What the server needs to set itself up and to run. The manifest lies at the top, beside these."""
_WHEN = (2026, 1, 1, 0, 0, 0)
"""One time for all files, so that the same tree makes the same bytes."""


def pack(target: Path) -> None:
    """Write the bundle."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *PARTS], cwd=ROOT, check=True, capture_output=True
    )
    names = sorted(filter(None, listed.stdout.decode().split("\0")))
    files = [("manifest.json", Path(__file__).with_name("manifest.json"))]
    files += [(name, ROOT / name) for name in names]
    target.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(target, "w", ZIP_DEFLATED) as bundle:
        for name, path in files:
            entry = ZipInfo(name, _WHEN)
            entry.external_attr = (path.stat().st_mode & 0o777) << 16
            entry.compress_type = ZIP_DEFLATED
            bundle.writestr(entry, path.read_bytes())


if __name__ == "__main__":
    pack(Path(sys.argv[1]))
