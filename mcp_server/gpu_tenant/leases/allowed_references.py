"""Decides which of the owner's secrets a work tree, or a tool, may name: those that the owner has allowed.

A reference is allowed if it stands in `[references]` of the owner's configuration, if a person has signed for it, or if
a person typed it at a terminal. A signature is for one work tree, and is remembered.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gpu_tenant.artifacts.push import pushed_trees
from gpu_tenant.domain.errors import SignatureWanted
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.signature import as_one_line, digest_of
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.speaker import speaker
from gpu_tenant.ledger.signatures import signature_wanted
from gpu_tenant.providers.credentials import in_tree, resolve

_TO_ALLOW = ("env", "file", "env-file", "keyring")
"""The kinds of references that lead to any secret of the owner's.

A text is none. `ref:` and `cmd:` lead only to what the owner has written down. Anything else is refused when it is read.
"""


def allowed_in_tree(context: Context, entries: Sequence[str], directory: Path) -> dict[str, str]:
    """Return the variables that a file of the work tree names, if all of them are allowed.

    A file that the tree names is in the tree when its value is read, and not only now.

    Raises:
        SecretRefused: a reference leads to a file outside of the tree, or to the key of an account.
        SignatureWanted: nobody has allowed one of them yet.
    """
    tree = directory.expanduser().resolve()
    own = set(context.key_places.owner_references.values())
    named: dict[str, str] = {}
    for entry in entries:
        name, _, reference = entry.partition("=")
        scheme, _, rest = reference.partition(":")
        if scheme == "file" and reference not in own:
            reference = f"file:{in_tree(name, rest, tree)}"
        named[name] = reference
    _must_have(context, str(tree), named.items())
    return named


def must_be_allowed(context: Context, leases: Iterable[Lease], entries: Sequence[str]) -> None:
    """Check that jobs of these leases may have these variables, which a caller has named.

    What was agreed for a lease is not asked for again: the variables of its order, of its run and of its jobs.

    Raises:
        SignatureWanted: nobody has allowed one of them yet.
    """
    for lease in leases:
        agreed = set(_agreed(context, lease))
        new = [entry for entry in entries if entry not in agreed]
        trees = [tree.directory for tree in pushed_trees(context.ledger, lease.id)]
        for where in trees or [lease.id]:
            must_be_allowed_at(context, where, new)


def must_be_allowed_at(context: Context, where: str, entries: Sequence[str]) -> None:
    """Check that jobs of the work tree `where` may have these variables, which a caller has named.

    Raises:
        SignatureWanted: nobody has allowed one of them yet.
    """
    if speaker.get() == "person":
        return
    _must_have(
        context, where, ((name, told) for name, _, told in (e.partition("=") for e in entries))
    )


def secret_files_must_be_allowed(context: Context, directory: Path, names: Sequence[str]) -> None:
    """Check that these files of the work tree, which look like secrets, may be pushed.

    Raises:
        SignatureWanted: nobody has allowed one of them yet.
    """
    if speaker.get() == "person" or not names:
        return
    tree, guarded = directory.resolve(), context.key_places.guarded
    lines = []
    for name in names:
        if guarded.holds(tree / name):
            continue  # No word sends such a file, so nobody is asked to sign for it.
        real = (tree / name).resolve()
        leads = "" if real.is_relative_to(tree) else f", which leads to {quote_text(str(real))}"
        lines.append(f"{quote_text(name)}{leads}")
    would = f"let pushes of {quote_text(str(tree))} send these files, which look like secrets"
    _must_be_signed(context, would, tree.name, lines)


def _must_have(context: Context, where: str, named: Iterable[tuple[str, str]]) -> None:
    wanted = [(name, told) for name, told in named if not _is_allowed(context, told)]
    for name, told in wanted:
        # Nobody is asked to sign for what would be refused, or leads nowhere.
        context.key_places.refuse_account_key(name, told)
        if told.startswith("env:"):
            resolve(name, told, environ=context.key_places.without(context.environ))
    lines = [f"{name} from {quote_text(_where_it_leads(told))}" for name, told in wanted]
    try:
        _must_be_signed(
            context,
            f"let jobs of {quote_text(where)} have these variables of yours",
            Path(where).name,
            lines,
        )
    except SignatureWanted as wanted_first:
        name, told = wanted[0]
        error = SignatureWanted(
            wanted_first.message,
            remedy=f"{wanted_first.remedy}; or the owner writes `{name} = {json.dumps(told)}` under `[references]` in "
            f"{context.home.configuration}, which allows it for every tree",
        )
        error.asked = wanted_first.asked
        raise error from None


def _is_allowed(context: Context, reference: str) -> bool:
    return (
        reference.partition(":")[0] not in _TO_ALLOW
        or reference in context.key_places.owner_references.values()
    )


def _agreed(context: Context, lease: Lease) -> Iterator[str]:
    yield from lease.terms.order.env_from
    errand = context.ledger.errand_of(lease.id)
    if errand is not None:
        yield from errand.env
    for job in context.ledger.jobs(lease.id):
        yield from job.env_from


def _where_it_leads(reference: str) -> str:
    """Return the reference with the real path of its file, so that a person sees where a link leads."""
    scheme, _, rest = reference.partition(":")
    return f"file:{os.path.realpath(Path(rest).expanduser())}" if scheme == "file" else reference


def _must_be_signed(context: Context, would: str, subject: str, lines: Iterable[str]) -> None:
    """Check that people have signed for every line, at any time. A subset of a signed list is signed for.

    Raises:
        SignatureWanted: they have not. It has now been requested, for the lines that are missing.
    """
    ledger, kind, subject = context.ledger, "secrets", as_one_line(subject) or "/"
    told = set(map(as_one_line, lines))
    missing = sorted(told - ledger.lines_signed(kind, subject, as_one_line(would))) if told else []
    if not missing:
        return
    asked = ledger.ask_signature(
        kind=kind,
        subject=subject,
        digest=digest_of((would, *missing)),
        would=would,
        words=missing,
        at=context.clock.now(),
    )
    raise signature_wanted(asked)
