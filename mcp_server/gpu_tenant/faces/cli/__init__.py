"""The command line, for people, scripts and CI.

Modules that are slow to import are imported only when a command runs, so that `--help` answers at once.
"""

import sys
from typing import NoReturn

import click

from gpu_tenant import __version__

GROUPS = {
    "Every day": {
        "run": "Run one command on a rented box: all steps, from the smoke test to the receipt.",
        "offers": "What could be rented now, ranked by the cost of the finished work.",
        "leases": "Every lease: state, cost, deadline, what stops its meter.",
        "monitor": "Look at a job: state, progress, new log, GPU, cost.",
        "logs": "The log of a job: its end, the newest lines, or the lines with a text.",
        "collect": "Fetch every declared artifact, and check it against hashes from the box.",
        "teardown": "End the lease, if and only if nothing would be lost.",
        "report": "A lease as one file to keep: what ran, what it cost, what was proved.",
    },
    "Try without money": {
        "demo": "A whole lease on this computer, shown as it happens.",
        "smoke": "Run the command here first: CPU only, in a copy of the work tree.",
        "rehearse": "A provider's API on this computer, with real boxes and a money meter.",
    },
    "Rent": {
        "pilot": "Try a platform for real: a tiny lease within a small sum, and what differs from what is known.",
        "init": "Write a first `gpu-tenant.toml`: the image, disk and variables that the work needs.",
        "provision": "Rent a box by a quote, or make one on this computer. It gets a lease.",
        "call-off": "Cancel what `provision --wait` still waits for: nothing is rented for it any more.",
        "adopt": "Put an existing machine under a lease: over ssh, or one that a provider lists.",
        "volumes": "Disks that outlive every box: what each bills, and how to make, grow or end one.",
        "hosts": "What counts against hosts that were rented, and how to forget it.",
    },
    "Work on a box": {
        "audit": "Look at the box before trusting it.",
        "push": "Bring the work tree to the box: only what changed.",
        "setup": "Run the commands of the order that set the box up, and show them.",
        "prepare": "Install what the work tree asks for, on top of the image's own torch.",
        "preflight": "Whether several boxes can talk, pair by pair, before one job runs over them.",
        "launch": "Start a job that goes on without this computer, and declare its outputs.",
        "sweep": "The cells of a sweep: which are verified, and what is wrong with the others.",
        "exec": "One command on a box for a quick look: seconds and kilobytes, on record.",
        "ssh": "Log in to a box, forward ports from it, or have plain `ssh LEASE` work.",
        "stop": "End a job: it is asked first, and killed after the grace period.",
    },
    "Continue, keep or end": {
        "terms": "The terms in force for a lease, and how to change them.",
        "extend": "Move a lease's deadline.",
        "hold": "Say that more work is coming, so that a lease is not ended when its jobs have ended.",
        "park": "Stop a box's GPU meter and keep its disk, where the platform can.",
        "resume": "Start a parked box again.",
        "recover": "Go on elsewhere with the work of a box that its provider took.",
        "sign": "Sign as a person for what a command or a tool has asked, by its code.",
        "waive": "Destroy a box although files are lost: a person signs for exactly the loss shown.",
    },
    "Watch and limit": {
        "watchdog": "Look after every lease on a schedule, so that none bills unseen.",
        "alarms": "What a person must know now, and whether alarms can reach that person.",
        "dashboard": "Everything that is leased, on a web page that only this computer opens.",
        "costs": "What is paid: now, today, this month, by project, and what bills without a box.",
        "limits": "The owner's limits for all leases together, and how much of each is used.",
        "reconcile": "Like `leases`, for a schedule: status 1 when something needs a person.",
    },
    "When something is wrong": {
        "doctor": "Check this computer: state, ledger, key, profiles, tools.",
        "guide": "A page of the guide: what each kind of trouble means, and what to do about it.",
        "profiles": "What is known of each platform, as a runbook.",
        "gotcha": "Propose a new entry of the guide: symptom, cause, fix, and how it was reproduced.",
    },
    "For agents": {
        "serve": "The MCP server, over stdio.",
        "install": "Add the skill and the server to your agent, keep the watchdog running, or have Tab complete.",
    },
}
"""Every command with its summary, by what somebody wants. A command's module is imported when it runs."""

SUMMARIES = {name: words for group in GROUPS.values() for name, words in group.items()}

OTHER_NAMES = {
    "ls": "leases",
    "list": "leases",
    "ps": "leases",
    "status": "leases",
    "log": "logs",
    "tail": "logs --follow",
    "watch": "monitor --follow",
    "queue": "monitor",
    "search": "offers",
    "market": "offers",
    "rent": "provision",
    "up": "provision",
    "create": "provision",
    "start": "resume",
    "pause": "park",
    "login": "ssh",
    "cancel": "stop",
    "kill": "stop",
    "download": "collect",
    "pull": "collect",
    "sync": "push",
    "upload": "push",
    "down": "teardown",
    "destroy": "teardown",
    "terminate": "teardown",
    "delete": "teardown",
    "rm": "teardown",
    "cost": "costs",
    "price": "offers",
    "money": "costs",
    "spend": "costs",
    "bill": "costs",
    "cp": "collect",
    "web": "dashboard",
    "ui": "dashboard",
    "mcp": "serve",
    "check": "doctor",
}
"""Names that other tools use for our commands. They only lead to a hint and run nothing: a destroy must be intended."""

_EPILOG = """\
Exit status: 0 done; 1 it did not end well, or nothing is offered; 2 the call is wrong; 3 refused; 10 a person has to answer. The
others are troubles, and `gpu-tenant guide errors` explains each of them.
"""
_EVERY_DAY, *_ = GROUPS


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SUMMARIES:
            return None
        from gpu_tenant.faces.cli import registry

        return registry.command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in SUMMARIES and not name.startswith("-"):
            raise click.UsageError(_unknown(name), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Do not ask the commands for their help, because this would import all of them.
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    asked = name.casefold()
    meant = OTHER_NAMES.get(asked)
    if meant is None:
        # These other names are compared, too, and the nearest name wins: `lease` is nearer to
        # `leases` than to `release`, another name of `teardown`.
        near = get_close_matches(asked, [*SUMMARIES, *OTHER_NAMES], n=1, cutoff=0.6)
        meant = next((OTHER_NAMES.get(one, one) for one in near), None)
    hint = f"; did you mean `gpu-tenant {meant}`?" if meant else ""
    return f"there is no command {name!r}{hint}"


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_EPILOG,
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="gpu-tenant")
@click.pass_context
def group(ctx: click.Context) -> None:
    """A careful short-term tenant on somebody else's GPU box.

    No box is destroyed before its files are proved safe elsewhere, and no meter runs unseen.
    """
    if ctx.invoked_subcommand is None:
        click.echo(_first_page(ctx), nl=False)


def _first_page(ctx: click.Context) -> str:
    """Return what somebody reads who types the program's name alone."""
    page = ctx.make_formatter()
    page.write_text("A careful short-term tenant on somebody else's GPU box.")
    with page.section(_EVERY_DAY):
        page.write_dl(list(GROUPS[_EVERY_DAY].items()))
    with page.section("First"):
        page.write_dl(
            [
                ("gpu-tenant demo", "a whole lease on this computer, in half a minute"),
                ("gpu-tenant rehearse vastai", "a platform's API on this computer, without money"),
                ("gpu-tenant doctor", "what this computer lacks to rent"),
                ("gpu-tenant --help", "every command"),
            ]
        )
    return page.getvalue()


_STOPPED = {
    "": "stopped here; boxes and jobs go on (`gpu-tenant leases`)",
    "smoke": "stopped: nothing of the smoke test runs on, its copy is removed, and nothing is on record",
}
"""The message after Ctrl-C, for each command."""


def main() -> None:
    """Run the command that this process's arguments name. The exit status says how it ended."""
    try:
        group.main(prog_name="gpu-tenant", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo(_STOPPED.get("".join(sys.argv[1:2]), _STOPPED[""]), err=True)
        sys.exit(130)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        remedy = f"`{context.command_path if context else 'gpu-tenant'} --help`"
        if isinstance(error, click.NoSuchOption) and {
            "run",
            "smoke",
            "launch",
            "exec",
            "ssh",
        } & set(sys.argv):
            remedy = f"put `--` before the job's own command; {remedy}"
        _tell("BAD_REQUEST", _plainly(error.format_message()), remedy, error.exit_code)
    except Exception as error:
        # Imported here, because only a failure needs it.
        from gpu_tenant.domain.errors import TenantError

        if not isinstance(error, TenantError):
            raise
        _tell(
            error.code, error.message, _with_a_command(error.code, error.remedy), error.exit_status
        )


def _plainly(message: str) -> str:
    """Return click's message about a wrong number in plain words."""
    return message.replace("is not a valid integer range.", "is no whole number").replace(
        "is not a valid float range.", "is no number"
    )


def _with_a_command(code: str, remedy: str) -> str:
    """Return the remedy for a wrong call. If it contains no command, add the command for the help."""
    named = f"`gpu-tenant {sys.argv[1]} --help`" if set(sys.argv[1:2]) & set(SUMMARIES) else ""
    return (
        f"{remedy}; {named}"
        if code == "BAD_REQUEST" and named and "`gpu-tenant" not in remedy
        else remedy
    )


def _tell(code: str, message: str, remedy: str, exit_status: int) -> NoReturn:
    """Print the error and the next command on stderr. If --json was given, also print them as JSON on stdout."""
    click.echo(f"error: {code}: {message}\nhint: {remedy}", err=True)
    given = sys.argv[1:]
    if "--json" in given[: given.index("--") if "--" in given else None]:
        import json

        told = {"code": code, "message": message, "remedy": remedy, "exit_status": exit_status}
        click.echo(json.dumps({"error": told}, indent=2, ensure_ascii=False))
    sys.exit(exit_status)
