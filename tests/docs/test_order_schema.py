"""The published form of `gpu-tenant.toml` is that of the order."""

import json
import os

from gpu_tenant.files.order_file import SCHEMA, schema


def test_the_generated_schema_of_an_order_is_that_of_its_fields() -> None:
    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("GPU_TENANT_SNAPSHOTS") == "write":
        SCHEMA.write_text(text, encoding="utf-8")

    assert SCHEMA.read_text(encoding="utf-8") == text
