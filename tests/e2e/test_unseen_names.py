"""A file whose name has letters that nobody sees is collected and proved like any other."""

import os
from pathlib import Path

from gpu_tenant.app import open_tenancy

ENGLAND = "\U0001f3f4" + "".join(chr(0xE0000 + ord(c)) for c in "gbeng") + "\U000e007f"
NAMES = (
    f"{ENGLAND}.txt",
    "葛\U000e0100.txt",
    "\u2066left.txt",
    "\ufeffmark.txt",
    "soft\u00adly.txt",
    "wide\u3000.txt",
    "own\ue000.txt",
    "100%.txt",
)


async def test_a_file_named_by_a_flag_is_collected_proved_and_lets_the_box_go(
    tmp_path: Path,
) -> None:
    tree = tmp_path / "tree"
    (tree / "pushed").mkdir(parents=True)
    for name in NAMES:
        (tree / "pushed" / name).write_text(name, encoding="utf-8")
    (tree / "run.sh").write_text("mkdir out && cp pushed/* out/\n", encoding="utf-8")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GPU_TENANT_HOME": str(tmp_path / "state"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    tenancy = open_tenancy(environ)
    try:
        lease = (await tenancy.provision(smoke="none", hours=1)).lease
        await tenancy.push(lease, str(tree))
        await tenancy.push(lease, str(tree))
        await tenancy.launch_detached(lease, command="sh run.sh", artifacts=["out/"])
        for _ in range(100):
            if (await tenancy.monitor(lease, wait_s=1)).state == "finished":
                break
        kept = await tenancy.collect(lease)
        gone = await tenancy.verify_and_teardown(lease)
    finally:
        await tenancy.aclose()

    there = {path.name for path in Path(kept.directory).rglob("*.txt")}
    assert there == set(NAMES)
    assert gone
