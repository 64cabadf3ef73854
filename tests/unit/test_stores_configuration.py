"""A store is found by what its owner said, and a key goes where its owner meant it to go."""

from pathlib import Path

import pytest
from arranged import LEASE

from gpu_tenant.artifacts.stores.configuration import box_store, open_store
from gpu_tenant.domain.errors import BadRequest, LocalTrouble, SecretRefused, TenantError

ENVIRON = {"ID": "AKIDOWNER", "SECRET": "owner-secret", "BOX_ID": "AKIDBOX", "BOX": "box-secret"}
OWN = 'access_key_id = "env:ID"\nsecret_access_key = "env:SECRET"\n'
FOR_BOXES = 'box_access_key_id = "env:BOX_ID"\nbox_secret_access_key = "env:BOX"\n'


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def said(configuration: Path, table: str) -> None:
    url = "" if "url" in table else 'url = "s3://my-bucket/runs/"\n'
    configuration.write_text(f"[stores.archive]\n{url}{table}", encoding="utf-8")


def test_a_store_is_named_as_its_owner_named_it(configuration: Path, tmp_path: Path) -> None:
    said(configuration, OWN)
    for words, shown in {
        str(tmp_path): str(tmp_path),
        "rclone:my remote:some/where": "rclone:my remote:some/where",
        "s3://my-bucket/x": "s3://my-bucket/x",
        "archive": "archive (s3://my-bucket/runs/)",
    }.items():
        assert open_store(words, configuration=configuration, environ=ENVIRON).words == shown


@pytest.mark.parametrize(
    "words",
    [
        "",
        "archiv",
        "relative/path",
        "rclone:nothing",
        "s3://",
        "s3://B/x",
        "https://x/y",
        "rclone::s3,secret_access_key=hunter2:bucket",
    ],
)
def test_what_is_no_store_is_refused_with_the_forms(words: str, configuration: Path) -> None:
    said(configuration, OWN)

    with pytest.raises(BadRequest, match="is not a store") as told:
        open_store(words, configuration=configuration, environ=ENVIRON)

    assert "s3://bucket/prefix" in told.value.remedy


def test_a_directory_that_is_not_there_is_refused_with_what_makes_it(configuration: Path) -> None:
    with pytest.raises(BadRequest, match="mkdir -p /nowhere/at/all"):
        open_store("/nowhere/at/all", configuration=configuration, environ={})


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ('access_key_id = "AKIDWRITTENOUT"\nsecret_access_key = "env:SECRET"', BadRequest),
        ('access_key_id = "text:AKIDWRITTENOUT"\nsecret_access_key = "env:SECRET"', BadRequest),
        ('access_key_id = "env:ID"', BadRequest),
        ('access_key_id = "env:NONE"\nsecret_access_key = "env:SECRET"', BadRequest),
        ('secret = "AKIDWRITTENOUT"', LocalTrouble),
        ("access_key_id = 7", LocalTrouble),
    ],
)
def test_a_key_that_is_no_reference_is_refused_and_not_repeated(
    table: str, error: type[TenantError], configuration: Path
) -> None:
    said(configuration, table)

    with pytest.raises(error) as told:
        open_store("archive", configuration=configuration, environ=ENVIRON)

    assert "WRITTENOUT" not in str(told.value)
    assert str(configuration) in told.value.remedy or "correct that file" in told.value.remedy


def test_a_box_is_given_the_key_for_boxes_and_a_place_of_its_lease(configuration: Path) -> None:
    said(configuration, OWN + FOR_BOXES + 'region = "cn-north-1"\n')

    store = box_store("archive", LEASE, configuration=configuration, environ=ENVIRON)

    assert store == {
        "kind": "s3",
        "endpoint": "https://s3.cn-north-1.amazonaws.com.cn",
        "region": "cn-north-1",
        "addressing": "path",
        "bucket": "my-bucket",
        "prefix": f"runs/{LEASE}",
        "access_key_id": "AKIDBOX",
        "secret_access_key": "box-secret",
    }


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (OWN, BadRequest),
        (OWN + FOR_BOXES.replace("BOX_ID", "ID").replace("env:BOX", "env:SECRET"), SecretRefused),
        (OWN + FOR_BOXES.replace("env:BOX_ID", "env:ID"), SecretRefused),
        ('url = "/tmp"\n' + FOR_BOXES, BadRequest),
    ],
)
def test_without_a_key_of_its_own_a_box_gets_none(
    table: str, error: type[TenantError], configuration: Path
) -> None:
    said(configuration, table)

    with pytest.raises(error) as told:
        box_store("archive", LEASE, configuration=configuration, environ=ENVIRON)

    assert "secret" not in told.value.message.replace("secret_access_key", "")
