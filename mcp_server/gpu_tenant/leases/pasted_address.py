"""Finds the address in the text that a person pastes from a console."""

import re
import shlex
from urllib.parse import urlsplit

from gpu_tenant.domain.address import ssh_address
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import SshAddress

_FORMS = "user@host[:port], an ssh alias, or the console's own `ssh -p PORT user@host`"
_HARMLESS = re.compile(r"-[46ACNTXYagqtvx]+")
_WITH_A_VALUE = ("-o", "-L", "-R", "-D", "-c", "-m", "-e", "-F")


def address_of(pasted: str) -> SshAddress:
    """Parse the machine's address.

    Raises:
        BadRequest: the text names no machine, or has parts that are no address (a key file, a jump host).
    """
    text = pasted.strip().lstrip("$ ")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise _unclear(pasted, str(error)) from error
    if not words:
        raise BadRequest(
            "no machine was named", remedy=f"{Command('adopt', 'TARGET')}, where TARGET is {_FORMS}"
        )
    if text.startswith("ssh://"):
        url = urlsplit(text)
        if url.password or not url.hostname:
            raise _unclear(pasted, "a password has no place there" if url.password else "no host")
        who = f"{url.username}@" if url.username else ""
        host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
        return _strict(pasted, f"{who}{host}" + (f":{url.port}" if url.port else ""))
    if words[0] == "ssh":
        return _of_command(pasted, words[1:])
    if len(words) != 1 or words[0].startswith("-"):
        raise _unclear(pasted, "more than one word")
    return _strict(pasted, words[0])


def _of_command(pasted: str, words: list[str]) -> SshAddress:
    host = user = port = None
    rest = iter(words)
    for word in rest:
        if word[:2] in ("-p", "-l"):
            value = word[2:] or next(rest, "")
            port, user = (value, user) if word[:2] == "-p" else (port, value)
        elif word[:2] in ("-i", "-J"):
            raise _unclear(
                pasted, f"{word[:2]} belongs in an alias of your ~/.ssh/config: adopt that alias"
            )
        elif word[:2] in _WITH_A_VALUE:
            if not word[2:]:
                next(rest, None)
        elif _HARMLESS.fullmatch(word):
            continue
        elif word.startswith("-"):
            raise _unclear(pasted, f"{word} is not understood")
        elif host is None:
            host = word
        else:
            break  # a command to run there, which we do not run
    if host is None:
        raise _unclear(pasted, "no host")
    if port is not None and not port.isdigit():
        raise _unclear(pasted, f"{port!r} is no port")
    who = f"{user}@" if user and "@" not in host else ""
    return _strict(pasted, f"{who}{host}" + (f":{port}" if port else ""))


def _strict(pasted: str, target: str) -> SshAddress:
    found = ssh_address(target)
    if found is None:
        raise _unclear(pasted, "a host and a user are letters, digits and .-_:%")
    return found


def _unclear(pasted: str, why: str) -> BadRequest:
    return BadRequest(
        f"{pasted!r} names no machine: {why}",
        remedy=f"{Command('adopt', 'TARGET')}, where TARGET is {_FORMS}",
    )
