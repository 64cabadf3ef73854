"""Makes an errand from the caller's words and from `[run]` of `gpu-tenant.toml`."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errand import ErrandRequest, Usual
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.order import Order
from gpu_tenant.files.order_file import find_order, read_work_file
from gpu_tenant.files.paths import must_be_named
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.names import must_be_labels
from gpu_tenant.leases.orders import order_of


def errand_of(
    context: Context, directory: Path, said: Mapping[str, object], order: Order | None = None
) -> ErrandRequest:
    """Return the errand.

    The values in `said` take precedence over those in the directory's file. Other values have their defaults.

    Raises:
        BadRequest: a value is out of its bounds, or the file has an entry that is not allowed.
        SecretRefused: the file holds something that looks like a secret.
    """
    must_be_named(str(directory))
    directory = directory.expanduser().resolve()
    usual, ordered = Usual(), Order()
    file = find_order(directory)
    if file is not None:
        usual = read_work_file(file, sorted(context.profiles)).run
        ordered = order_of(context, str(file))
    given = {name: value for name, value in said.items() if value not in (None, (), [], "")}
    fields = {
        name: value
        for name in Usual.model_fields
        if (value := given.pop(name, getattr(usual, name))) not in (None, ())
    }
    must_be_labels(str(given.get("name", "")))
    fields.setdefault("command", "")
    fields.setdefault("artifacts", ())
    if "to" in fields:
        fields["to"] = os.path.abspath(Path(str(fields["to"])).expanduser())  # noqa: PTH100 - a directory that is not there yet
    try:
        return ErrandRequest.model_validate(
            {"directory": str(directory), **fields, **given, "order": order or ordered}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadRequest(
            f"{field}: {first['msg'].lower()}",
            remedy=f"{Command('run')} again, with another value",
        ) from None
