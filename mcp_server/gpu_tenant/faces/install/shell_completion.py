"""Plans the file by which a shell completes our commands, options, leases, quotes, platforms and jobs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.files.planned_changes import Change, Content, there

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True, slots=True)
class CompletionPlan:
    """The file of one shell, as it is and as it will be."""

    shell: Shell
    changes: tuple[Change, ...]
    then: str
    """What makes the shell read the file."""


def plan(
    shell: Shell | None,
    environ: Mapping[str, str],
    *,
    script: Callable[[Shell], str],
    does: Literal["write", "remove"],
) -> CompletionPlan:
    """Plan to write the file of that shell, or to remove it. None is the shell that this environment names.

    `script` returns what the file says.

    Raises:
        BadRequest: the environment names no shell that can complete.
        Refused: another file is at its place.
    """
    known = get_args(Shell)
    named = shell or Path(environ.get("SHELL", "")).name
    if named not in known:
        raise BadRequest(
            f"which shell? {named or 'SHELL'} is none of {', '.join(known)}",
            remedy="`gpu-tenant install completion --shell bash`",
        )
    found: Shell = next(one for one in known if one == named)
    path, then = _place(found, environ)
    before, ours = there(path), script(found).encode()
    if before is not None and not _is_ours(before):
        raise Refused(
            f"{path} is not ours, and is left as it is",
            remedy=f"move it away: `mv {path} {path}.mine`",
        )
    after = ours if does == "write" else None
    changes = () if before == after else (Change(path, before, after),)
    return CompletionPlan(found, changes, then)


def _place(shell: Shell, environ: Mapping[str, str]) -> tuple[Path, str]:
    """Return where that shell looks for the file, and what a person has to do then."""
    home = Path.home()
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local/share")
    match shell:
        case "bash":
            return (
                data / "bash-completion/completions/gpu-tenant",
                "a new bash completes `gpu-tenant`, if the package bash-completion is installed",
            )
        case "zsh":
            directory = data / "zsh/site-functions"
            return (
                directory / "_gpu-tenant",
                f"a new zsh completes `gpu-tenant`, if `fpath=({directory} $fpath)` stands before `compinit` in ~/.zshrc",
            )
        case "fish":
            configuration = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
            return (
                configuration / "fish/completions/gpu-tenant.fish",
                "a new fish completes `gpu-tenant`",
            )


def _is_ours(content: Content) -> bool:
    """Whether the file is a completion that asks our program, of this version or of an earlier one."""
    return isinstance(content, bytes) and b"_GPU_TENANT_COMPLETE" in content
