"""Changes single settings in the owner's configuration, and leaves everything else in it as it was."""

import os
from collections.abc import Mapping
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from gpu_tenant.domain.errors import LocalTrouble


def write_settings(
    configuration: Path, table: str, values: Mapping[str, str | int | float]
) -> None:
    """The table holds these values. The new file is written beside the old one, flushed and renamed.

    Raises:
        LocalTrouble: it could not be changed, and was left as it was.
    """
    fresh = configuration.with_name(f".{configuration.name}.{os.getpid()}")
    try:
        before = configuration.read_text(encoding="utf-8") if configuration.exists() else ""
        said = tomlkit.parse(before)
        section = said.setdefault(table, tomlkit.table())
        for name, value in values.items():
            section[name] = value
        with os.fdopen(
            os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(tomlkit.dumps(said))
            file.flush()
            os.fsync(file.fileno())
        if configuration.exists() and configuration.read_text(encoding="utf-8") != before:
            raise OSError("somebody else has just written to it")  # noqa: TRY301 - told like the others
        # If the configuration is a link to a file kept elsewhere, that file is replaced and the link stays.
        fresh.replace(configuration.resolve())
    except (OSError, TOMLKitError, TypeError, AttributeError) as error:
        fresh.unlink(missing_ok=True)
        lines = ", ".join(
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
            for name, value in values.items()
        )
        raise LocalTrouble(
            f"{configuration} was left as it was: {error}",
            remedy=f"write it by hand: below `[{table}]`, a line {lines}",
        ) from error
