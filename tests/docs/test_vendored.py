"""What is vendored is, byte for byte, what its page says."""

import hashlib
import re
from pathlib import Path

VENDORED = Path(__file__).parents[2] / "mcp_server/gpu_tenant/faces/dashboard/page/vendor"


def test_every_vendored_file_has_the_hash_that_is_written_beside_it() -> None:
    written = (VENDORED / "VENDORED.md").read_text(encoding="utf-8")
    said = {name: digest for digest, name in re.findall(r"^([0-9a-f]{64})  (\S+)$", written, re.M)}

    here = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDORED.iterdir()
        if path.suffix in (".js", ".css")
    }

    assert here == said
