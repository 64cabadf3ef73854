"""Makes an errand from the caller's words and from `[run]` of `gpu-tenant.toml`."""

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errand import ErrandRequest, Usual
from gpu_tenant.domain.errors import BadRequest, SecretRefused
from gpu_tenant.domain.order import Order
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.files.order_file import find_order, read_work_file
from gpu_tenant.files.paths import must_be_named
from gpu_tenant.leases.allowed_references import allowed_in_tree, must_be_allowed_at
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.names import must_be_labels
from gpu_tenant.leases.orders import order_of
from gpu_tenant.providers.credentials import must_be_references


def errand_of(
    context: Context, directory: Path, said: Mapping[str, object], order: Order | None = None
) -> ErrandRequest:
    """Return the errand.

    The values in `said` take precedence over those in the directory's file. Other values have their defaults.

    Raises:
        BadRequest: a value is out of its bounds, or the file has an entry that is not allowed.
        SecretRefused: the file holds something that looks like a secret, or names a file outside of its tree.
        SignatureWanted: a variable was named that the owner has not allowed yet.
    """
    must_be_named(str(directory))
    directory = directory.expanduser().resolve()
    usual, ordered = Usual(), Order()
    file = find_order(directory)
    if file is not None:
        usual = _allowed(
            context, directory, read_work_file(file, sorted(context.profiles)).run, said
        )
        ordered = order_of(context, str(file)) if order is None else order
    elif order is not None:
        ordered = order
    if order is not None:
        must_be_allowed_at(context, str(directory), order.env_from)
    must_be_allowed_at(context, str(directory), _entries(said))
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
            {"directory": str(directory), **fields, **given, "order": ordered}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadRequest(
            f"{field}: {first['msg'].lower()}",
            remedy=f"{Command('run')} again, with another value",
        ) from None


def _entries(said: Mapping[str, object]) -> tuple[str, ...]:
    named = said.get("env")
    return tuple(map(str, named)) if isinstance(named, list | tuple) else ()


def _allowed(context: Context, directory: Path, usual: Usual, said: Mapping[str, object]) -> Usual:
    """Return what the tree's file says, if the owner has allowed the variables that it names.

    Raises:
        BadRequest, SecretRefused, SignatureWanted: as in `errand_of`.
    """
    for name in usual.include:
        if not (directory / name).resolve().is_relative_to(directory):
            raise SecretRefused(
                f"`include` of [run] names {quote_text(name)}, which leads out of the work tree",
                remedy=f"if it must be sent, say so yourself: {Option('include', name)}",
            )
    if said.get("env") or not usual.env:
        return usual
    must_be_references(usual.env)
    env = allowed_in_tree(context, usual.env, directory)
    return usual.model_copy(update={"env": tuple(f"{k}={v}" for k, v in env.items())})
