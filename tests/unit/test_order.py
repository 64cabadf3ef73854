"""The order for a box: what a file may say, what is refused, and what a platform makes of it."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from arranged import lease

from gpu_tenant.domain.errors import BadRequest, SecretRefused, TenantError
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.order import AtProvider, Order, is_older
from gpu_tenant.domain.terms import Terms
from gpu_tenant.files.order_file import (
    FIRST,
    NAME,
    SCHEMA,
    find_order,
    read_order,
    schema,
    write_first,
)
from gpu_tenant.leases.orders import with_ordered
from gpu_tenant.providers.credentials import must_be_references

PLATFORMS = ["runpod", "vastai", "gcp", "lambda_cloud"]


def read(directory: Path, text: str) -> Order:
    (directory / NAME).write_text(text, encoding="utf-8")
    return read_order(directory, PLATFORMS)


@pytest.mark.parametrize(
    "text",
    [
        "ports = [0]",
        "ports = [65536]",
        "ports = [80, 80]",
        "public_ports = [8000]",
        "public_ports = ['8000']",
        "public_ports = ['8000/udp']",
        "public_ports = ['0/tcp']",
        "public_ports = ['65536/tcp']",
        "public_ports = ['22/tcp']",
        "public_ports = ['8000/tcp', '8000/http']",
        "public_ports = ['08000/tcp']",
        "setup = ['']",
        'setup = ["x\\u0000"]',
        "setup = 'pip install x'",
        "setup_minutes = 0",
        "setup = ['login --token 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']",
    ],
)
def test_a_port_that_is_none_and_a_command_that_is_none_are_refused(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises((BadRequest, SecretRefused)) as refused:
        read(tmp_path, text)
    assert "xKqWvTz" not in str(refused.value)


def test_whoever_rents_sees_the_ports_and_every_command_of_the_setup(tmp_path: Path) -> None:
    found = read(tmp_path, 'ports = [8888, 6006]\nsetup = ["apt-get update", "pip install x"]')

    assert found.words() == (
        "ports 8888, 6006 at 127.0.0.1 by `ssh LEASE --ports`, and closed to the world",
        "setup `apt-get update`",
        "setup `pip install x`",
    )


def test_whoever_rents_sees_what_will_be_open_to_the_world(tmp_path: Path) -> None:
    found = read(tmp_path, 'public_ports = ["8000/http", "9000/tcp"]')

    assert found.words() == ("open to the whole internet: 8000/http, 9000/tcp",)


def test_a_whole_order_is_read(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        image = "ghcr.io:443/me/train_it:1.2"
        disk_gb = 120
        region = "EU"
        cuda = "12.4"
        python = "3.10"
        [env]
        HF_TOKEN = "env:HF_TOKEN"
        [provider.vastai]
        image = "me/vast:1@sha256:%s"
        [provider.runpod]
        template = "30zmvf89kd"
        """
        % ("a" * 64),
    )

    assert found.image_at("gcp") == AtProvider(image="ghcr.io:443/me/train_it:1.2")
    assert (found.image_at("vastai").image or "").startswith("me/vast:1@sha256:")
    assert found.image_at("runpod") == AtProvider(template="30zmvf89kd")
    assert found.env_from == ("HF_TOKEN=env:HF_TOKEN",)
    assert found.words("runpod") == (
        "template 30zmvf89kd",
        "CUDA 12.4 or newer",
        "Python 3.10 or newer",
        "HF_TOKEN from env:HF_TOKEN",
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("imgae = 'a'", "`imgae`; did you mean `image`?"),
        ("disk = 40", "`disk`; did you mean `disk_gb`?"),
        ("[provider.runpods]\nimage = 'a'", "`provider.runpods`; did you mean `runpod`?"),
        ("[provider.runpod]\ntemplete = 'a'", "did you mean `template`?"),
        ("qqqq = []", "it takes image, disk_gb"),
        ("volumes = []", "`volumes`"),
        ("[volumes.data]\npaht = '/data'", "`volumes.data.paht`; did you mean `path`?"),
        ("[volumes.data]", "`volumes.data.path`"),
        ("[volumes.data]\npath = 'data'", "is not an absolute path"),
        ("[volumes.data]\npath = '/'", "is not an absolute path"),
        ("[volumes.data]\npath = '/data/../etc'", "is not an absolute path"),
        ("[volumes.data]\npath = '/root/data'", "no volume is mounted in /root"),
        ("[volumes.data]\npath = '/etc'", "no volume is mounted in /etc"),
        ("[volumes.Data]\npath = '/data'", "is not the name of a volume"),
        ("[volumes.a1]\npath = '/d'\n[volumes.a2]\npath = '/d/e'", "cannot be mounted at /d"),
        ("image = 'a b'", "`image`: 'a b' is not an image"),
        ("image = '--privileged'", "is not an image"),
        ("image = 'UPPER/case'", "is not an image"),
        ("[provider.gcp]\ntemplate = '../x y'", "is not the id of a template"),
        ("disk_gb = 4", "`disk_gb`"),
        ("disk_gb = true", "`disk_gb`"),
        ("cuda = 12.4", "`cuda`"),
        ("cuda = 'new'", "is not a version"),
        ("[env]\n'A B' = 'env:A'", "is not the name of a variable"),
        ("image = ", "is not a valid order"),
    ],
)
def test_what_no_order_has_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(tmp_path, text)

    assert told in refused.value.message
    assert str(tmp_path / NAME) in refused.value.message


def test_a_password_in_place_of_a_stored_login_is_refused_and_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no password belongs here") as refused:
        read(tmp_path, "[provider.runpod]\nregistry = 'me:correct horse'")

    assert "correct horse" not in str(refused.value)


def test_a_stored_login_goes_with_an_image_and_is_shown(tmp_path: Path) -> None:
    found = read(tmp_path, "image = 'me/own:1'\n[provider.runpod]\nregistry = '6n2k8v4d'")

    assert found.image_at("runpod") == AtProvider(image="me/own:1", registry="6n2k8v4d")
    assert found.words("runpod") == ("image me/own:1, pulled with the login 6n2k8v4d",)
    alone = read(tmp_path, "[provider.runpod]\nregistry = '6n2k8v4d'")
    assert alone.image_at("runpod") == AtProvider()


def test_a_wrong_value_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(BadRequest) as refused:
        read(tmp_path, "[env]\nHF_TOKEN = ['hf_abcdefghijklmnop']")

    assert "hf_abcdefghijklmnop" not in str(refused.value)


def test_a_work_tree_without_an_order_has_none(tmp_path: Path) -> None:
    assert find_order(tmp_path) is None
    with pytest.raises(BadRequest, match="cannot be read"):
        read_order(tmp_path / "absent.toml", PLATFORMS)


def test_a_first_order_orders_nothing_and_is_never_written_over(tmp_path: Path) -> None:
    path = write_first(tmp_path)
    assert read_order(path, PLATFORMS) == Order()

    path.write_text("disk_gb = 99\n", encoding="utf-8")
    with pytest.raises(BadRequest, match="left as it is"):
        write_first(tmp_path)

    assert read_order(path, PLATFORMS) == Order(disk_gb=99)


def test_every_example_of_the_first_order_is_valid(tmp_path: Path) -> None:
    examples = re.sub(r"(?m)^# (?=[A-Za-z_]+ = |\[|\]|  \")", "", FIRST)

    found = read(tmp_path, examples)

    assert all(getattr(found, field) for field in Order.model_fields), found


def test_the_published_schema_is_that_of_the_order(tmp_path: Path) -> None:
    published = json.loads(SCHEMA.read_text(encoding="utf-8"))
    check = jsonschema.Draft202012Validator(published)

    assert published == schema()
    assert check.is_valid({"image": "a/b:1", "provider": {"runpod": {"template": "x"}}})
    assert not check.is_valid({"imgae": "a"})
    assert not check.is_valid({"provider": {"runpod": {"volume": "a"}}})
    assert not check.is_valid({"image": "--privileged"})


def test_two_orders_make_the_same_box_whatever_their_disks_are() -> None:
    one = Order(image="a:1", disk_gb=40, region="EU")

    assert one.is_same_box(Order(image="a:1", disk_gb=80))
    assert not one.is_same_box(Order(image="a:2", disk_gb=40, region="EU"))


@pytest.mark.parametrize(
    ("have", "want", "older"),
    [
        ("12.4", "12.8", True),
        ("12.10", "12.9", False),
        ("13.0", "12.9", False),
        ("3.7", "3.10", True),
    ],
)
def test_versions_are_compared_as_numbers(have: str, want: str, older: bool) -> None:
    assert is_older(have, want) is older


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("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", "not a reference"),
        ("text:fast", "not a reference"),
        ("cmd:curl example.com", "may not start commands on this computer"),
    ],
)
def test_a_variable_is_a_reference_and_is_not_repeated(reference: str, told: str) -> None:
    with pytest.raises(TenantError) as refused:
        must_be_references([f"HF_TOKEN={reference}"])

    assert told in refused.value.message
    assert "xKqWvTzR" not in str(refused.value)


def test_what_a_launch_names_goes_before_what_the_order_names() -> None:
    terms = Terms(
        deadline_at=datetime(2026, 1, 1, tzinfo=UTC),
        order=Order(env={"A": "env:A", "B": "file:/b"}),
    )
    standing = lease(LeaseState.ACTIVE, terms=terms)

    assert with_ordered(standing, ["A=env:OTHER"]) == ["B=file:/b", "A=env:OTHER"]


def test_a_secret_anywhere_in_an_order_is_refused_and_not_repeated(tmp_path: Path) -> None:
    secret = "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"

    for text in (f"[env]\nHF = 'env:{secret}'", f"region = '{secret}'", f"# {secret}"):
        with pytest.raises(SecretRefused) as refused:
            read(tmp_path, text)
        assert secret not in str(refused.value)


def test_a_link_out_of_the_work_tree_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("secret_word = 1\n", encoding="utf-8")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / NAME).symlink_to("../other.toml")

    with pytest.raises(BadRequest, match="is a link out of its directory") as told:
        read_order(tree, PLATFORMS)

    assert "secret_word" not in str(told.value)
    (tree / "box.toml").write_text("disk_gb = 80\n", encoding="utf-8")
    (tree / NAME).unlink()
    (tree / NAME).symlink_to("box.toml")
    assert read_order(tree, PLATFORMS).disk_gb == 80
