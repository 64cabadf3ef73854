"""Changes single settings in the owner's configuration. Everything else in it stays as it was."""

from collections.abc import Mapping
from pathlib import Path

from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.files.replace_file import replacing
from gpu_tenant.files.toml_edit import TomlError, with_table


def write_settings(
    configuration: Path, table: str, values: Mapping[str, str | int | float]
) -> None:
    """Set these values in the table. The new file is written beside the old one, flushed and renamed.

    Raises:
        LocalTrouble: the configuration could not be changed, and was left as it was.
    """
    try:
        before = configuration.read_text(encoding="utf-8") if configuration.exists() else ""
        after = with_table(before, (table,), values)
        # If the configuration is a link, replace the file to which it leads. The link itself stays.
        with replacing(configuration.resolve(), durable="file") as file:
            file.write(after.encode())
            if configuration.exists() and configuration.read_text(encoding="utf-8") != before:
                raise OSError("another program has just changed it")  # noqa: TRY301 - reported like the others
    except (OSError, TomlError) as error:
        lines = ", ".join(
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
            for name, value in values.items()
        )
        raise LocalTrouble(
            f"{configuration} was left as it was: {error}",
            remedy=f"write it by hand: below `[{table}]`, a line {lines}",
        ) from error
