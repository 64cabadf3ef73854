"""A store may prove something only where its owner's settings say that it cannot be the box."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

import pytest
from arranged import lease
from parts import required

from gpu_tenant.artifacts.destination import claim_directory
from gpu_tenant.artifacts.local_evidence import Loss, reread_all
from gpu_tenant.artifacts.stores.configuration import open_store
from gpu_tenant.artifacts.stores.locality import ELSEWHERE, Whereabouts, host_of, store_doubt
from gpu_tenant.artifacts.stores.rclone_config import leads
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import LocalAddress, SshAddress
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.mounts import Mount
from gpu_tenant.ledger import Ledger

SETTINGS = {
    "disk": {"type": "local"},
    "secret": {"type": "crypt", "remote": "short:deep", "password": "sekret"},
    "short": {"type": "alias", "remote": "disk:/far"},
    "plain": {"type": "alias", "remote": "/far/../there"},
    "both": {"type": "combine", "upstreams": 'one=disk:/one "two=mine:bucket"'},
    "mine": {"type": "s3", "provider": "AWS"},
    "minio": {"type": "s3", "endpoint": "http://192.0.2.7:9000"},
    "nas": {"type": "sftp", "host": "192.0.2.7"},
    "by_ssh": {"type": "sftp", "host": "192.0.2.9", "ssh": "ssh root@192.0.2.7"},
    "union": {"type": "union", "upstreams": "disk:/a nas:b"},
    "round": {"type": "alias", "remote": "round:x"},
    "fly": {"type": "alias", "remote": ":sftp,host=192.0.2.7:x"},
}


@pytest.mark.parametrize(
    ("root", "where"),
    [
        ("disk:/box/safe", Whereabouts(directory=Path("/box/safe"))),
        ("secret:top", Whereabouts(directory=Path("/far/deep/top"))),
        ("plain:", Whereabouts(directory=Path("/there"))),
        ("both:one/x", Whereabouts(directory=Path("/one/x"))),
        ("both:two/x", ELSEWHERE),
        ("mine:bucket", ELSEWHERE),
        ("minio:bucket", Whereabouts(host="192.0.2.7")),
        ("nas:x", Whereabouts(host="192.0.2.7")),
    ],
)
def test_a_remote_is_followed_to_what_it_stands_on(root: str, where: Whereabouts) -> None:
    assert leads(root, SETTINGS, {}) == where


@pytest.mark.parametrize("root", ["union:", "round:", "fly:", "both:", "by_ssh:", "none:x"])
def test_what_is_not_understood_is_unknown(root: str) -> None:
    assert leads(root, SETTINGS, {}).unknown


def test_a_variable_holds_before_the_file_as_it_does_for_rclone() -> None:
    said = {"RCLONE_CONFIG_MINE_TYPE": "local", "RCLONE_S3_ENDPOINT": "192.0.2.8"}

    assert leads("mine:/x", SETTINGS, said).directory == Path("/x")
    assert leads("minio:x", SETTINGS, said).host == "192.0.2.8"


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (ELSEWHERE, None),
        (Whereabouts(directory=Path("/x")), None),
        (Whereabouts(host="192.0.2.9"), None),
        (Whereabouts(host="192.0.2.7"), "on the box itself"),
        (Whereabouts(host="127.0.0.1"), "is this computer"),
        (Whereabouts(host="no such host"), "has no address"),
        (Whereabouts(unknown="nobody says"), "nobody says"),
    ],
)
async def test_a_host_that_is_the_box_or_may_be_is_doubted(
    where: Whereabouts, words: str | None
) -> None:
    rented = lease().model_copy(update={"address": SshAddress(target="root@192.0.2.7:40022")})

    doubt = await store_doubt(where, rented)

    assert words in doubt.words if doubt and words else doubt is words
    assert doubt is None or doubt.is_the_box == ("box itself" in doubt.words)


@pytest.mark.parametrize(
    "source", ["LEASE:gpu-tenant/LEASE/caretaker/kept", "root@192.0.2.7:/kept", "127.0.0.1:/kept"]
)
async def test_where_the_box_s_own_disk_is_mounted_nothing_is_kept_and_nothing_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """What a destroy of the box would empty is no copy of what was on it."""
    rented = lease().model_copy(update={"address": SshAddress(target="root@192.0.2.7:40022")})
    content = b"only copy"
    results = tmp_path / "results"
    (results / "work").mkdir(parents=True)
    (results / "work" / "m.bin").write_bytes(content)
    sealed = SealedFile(
        name="work/m.bin",
        at="/root/gpu-tenant/x/work/m.bin",
        kind="file",
        role="artifact",
        mtime_ns=1,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
    mount = Mount(tmp_path, "fuse.sshfs", source.replace("LEASE", rented.id))
    monkeypatch.setattr("gpu_tenant.files.mounts.mounts", lambda: [mount])

    with (
        closing(Ledger(tmp_path / "state" / "ledger.sqlite3")) as ledger,
        pytest.raises(BadRequest, match="may not outlive the box"),
    ):
        await claim_directory(tmp_path / "new", rented, ledger)
    kept = rented.model_copy(update={"kept_in": str(results)})
    (proved,) = await reread_all([sealed], kept)

    assert isinstance(proved, Loss)
    assert "may not outlive the box" in proved.what
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("root@a:22", "a"),
        ("a", "a"),
        ("me@[2001:db8::1]:22", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_the_host_of_an_address(target: str, host: str) -> None:
    assert host_of(SshAddress(target=target)) == host


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("[mine]\ntype = alias\nremote = /there\n", Whereabouts(directory=Path("/there/x"))),
        ("RCLONE_ENCRYPT_V0:\nAAAA\n", None),
    ],
)
async def test_the_owners_configuration_says_it_and_a_locked_one_does_not(
    file: str, where: Whereabouts | None, tmp_path: Path
) -> None:
    required("rclone")
    (tmp_path / "rclone.conf").write_text(file, encoding="utf-8")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RCLONE_CONFIG": str(tmp_path / "rclone.conf"),
    }

    found = await open_store(
        "rclone:mine:x", configuration=tmp_path / "none", environ=environ
    ).where()

    assert found == where if where else found.unknown == "rclone does not show its configuration"


async def test_a_box_on_this_computer_has_no_host_to_be_mistaken_for() -> None:
    here = lease().model_copy(update={"address": LocalAddress(directory="/x/home")})

    assert await store_doubt(Whereabouts(host="192.0.2.7"), here) is None
    assert await store_doubt(Whereabouts(host="::1"), here) is not None
