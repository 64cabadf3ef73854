"""Whatever is typed wrong: an error with a code, the right status, and a next command that leads on."""

import re
import shlex
from collections.abc import Iterator

import pytest
from e2e.leased import command, end_processes
from e2e.owner import Owner

TIMES = ("", " ", "2x", "-1", "nan", "inf", "zwei", "1e9", "两小时", "2h30")
SUMS = ("", "$5", "5,0", "-1", "nan", "fünf", "1e999", "1 000")
COUNTS = ("", "-3", "nan", "1e99", "viel")
LEASE = "LEASE"
"""Stands for the lease that lives."""

WRONG: list[tuple[str, ...]] = [
    # a time
    *(("offers", f"--hours={x}") for x in TIMES),
    *(("provision", "--smoke", "none", f"--hours={x}") for x in TIMES),
    *(("extend", LEASE, f"--hours={x}") for x in TIMES),
    *(("adopt", "me@127.0.0.1:1", f"--hours={x}") for x in TIMES),
    *(("resume", LEASE, f"--hours={x}") for x in TIMES),
    *(("logs", LEASE, f"--since={x}") for x in TIMES),
    *(("launch", "--artifact", "out/", f"--max-runtime-h={x}", "--", "true") for x in TIMES),
    *(("hold", LEASE, x) for x in ("", "-1", "nan", "morgen", "1e9")),
    # a sum
    *(("offers", f"--max-price-usd-h={x}") for x in SUMS),
    *(("provision", "--smoke", "none", f"--budget-usd={x}") for x in SUMS),
    *(("terms", LEASE, f"--budget-usd={x}") for x in SUMS),
    *(("limits", f"--usd-day={x}") for x in SUMS),
    # a number
    *(("offers", f"--vram-gib={x}") for x in COUNTS),
    *(("offers", f"--disk-gb={x}") for x in COUNTS),
    *(("offers", f"--upload-gb={x}") for x in COUNTS),
    *(("audit", LEASE, f"--gpus={x}") for x in COUNTS),
    *(("audit", LEASE, f"--vram-gib={x}") for x in COUNTS),
    *(("monitor", LEASE, f"--wait-s={x}") for x in COUNTS),
    *(("monitor", LEASE, f"--cursor={x}") for x in COUNTS),
    *(("leases", f"--limit={x}") for x in COUNTS),
    *(("stop", LEASE, f"--grace-s={x}") for x in COUNTS),
    *(("smoke", ".", f"--time-limit-s={x}", "--", "true") for x in COUNTS),
    *(("push", ".", LEASE, f"--limit={x}") for x in ("", "20", "-1M", "schnell", "nan")),
    # a verb
    *(
        (x,)
        for x in (
            "colect",
            "lease",
            "status",
            "ls",
            "launhc",
            "teardwn",
            "provison",
            "mointor",
            "down",
            "発射",
            "PUSH",
            "stat us",
            "rm",
            "kill",
            "list",
            "logz",
            "destroy",
        )
    ),
    # an option
    ("offers", "--gpus", "4090"),
    ("push", ".", "--exclude", "x"),
    ("launch", "--artefact", "out/", "--", "true"),
    ("collect", "--destination", "x"),
    ("leases", "--al"),
    ("monitor", "--folow"),
    ("logs", "--tail", "5"),
    ("teardown", "--force"),
    ("teardown", LEASE, "--yes"),
    ("launch", "--artifact", "out/", "python3", "train.py", "--epochs", "3"),
    # a name
    *(
        (x, "nobody-1")
        for x in (
            "monitor",
            "logs",
            "audit",
            "stop",
            "collect",
            "teardown",
            "park",
            "resume",
            "recover",
            "report",
            "terms",
            "waive",
        )
    ),
    ("push", ".", "nobody-1"),
    ("extend", "nobody-1", "--hours", "1"),
    ("hold", "nobody-1", "1h"),
    ("ssh", "nobody-1"),
    ("sweep", "sw-9"),
    ("monitor", LEASE, "--job", "no-such-job"),
    ("logs", LEASE, "--job", "no-such-job"),
    ("stop", LEASE, "--job", "no-such-job"),
    ("sign", "WRONG-CODE"),
    ("waive",),
    ("profiles", "vast"),
    ("offers", "--on", "aws"),
    ("offers", "--provider", "vastai"),
    ("adopt", "me@127.0.0.1:1", "--on", "nowhere"),
    ("adopt", "not an address at all"),
    ("adopt",),
    ("rehearse", "aws"),
    ("provision", "--provider", "aws", "--smoke", "none"),
    ("provision", "--quote", "q-none", "--smoke", "none"),
    ("provision", "--quote", "q-ran0", "--smoke", "none"),
    ("provision", "--smoke", "s-none"),
    ("provision", "local"),
    # a GPU
    *(("offers", "--gpu", x) for x in ("", "4090:0", "H100:x", "H100:99999")),
    # a pattern
    *(
        ("launch", "--artifact", x, "--", "true")
        for x in ("", "../x", "/", "!x", "[z-a]", "/proc", "out/../../x")
    ),
    *(
        ("collect", LEASE, "--discard", x)
        for x in ("", "*", "**", "nothing-like-it", "/", "*.json")
    ),
    *(("collect", LEASE, "--artifact", x) for x in ("", "nothing-like-it/", "/", "..")),
    ("launch", "--", "true"),
    ("launch",),
    ("logs", LEASE, "--grep", ""),
    ("logs", LEASE, "--whole", "--since", "1h"),
    # a variable
    *(
        ("launch", "--artifact", "out/", "--env", x, "--", "true")
        for x in ("FOO=bar", "FOO", "=x", "FOO=env:GT_NOT_SET", "FOO=file:/nowhere/x", "F O=text:x")
    ),
    # a file
    ("push", "/nowhere", LEASE),
    ("push", "", LEASE),
    ("smoke", "/nowhere", "--", "true"),
    ("launch", "--cells", "/nowhere/cells", "--artifact", "{cell}/", "--", "true"),
    ("launch", "--matrix", "lr", "--artifact", "{cell}/", "--", "true"),
    ("launch", "--attempts", "3", "--artifact", "out/", "--", "true"),
    ("leases", "--older", "nobody-1"),
    ("leases", "--every", "30"),
    ("leases", "--live", "--json"),
    ("install", "nowhere"),
    ("alarms", "--test", "no-such-channel"),
    ("reconcile", "--same-account", "aws"),
    # an order
    *(
        (*verb, "--order", x)
        for verb in (("offers",), ("provision", "--smoke", "none"))
        for x in ("", " ", "/nowhere/gpu-tenant.toml", "train.py")
    ),
    ("init", "/nowhere"),
    ("init", ""),
    ("init", "train.py"),
    ("init", "--shema"),
    # a host
    *(("hosts", "--forget", x) for x in ("", "41", "vastai:", "vastai:41", "aws:41", ":41")),
    *(("offers", "--host", x) for x in ("", "41", "vastai:", "aws:41")),
    ("hosts", "--list"),
    # an audit under load
    *(("audit", LEASE, f"--burn={x}") for x in (*COUNTS, "0", "100000")),
    ("audit", LEASE, "--where"),
    # a wish
    *(("provision", "--smoke", "none", f"--wait={x}") for x in TIMES),
    *(("offers", f"--wait={x}") for x in TIMES),
    ("call-off", "w-none"),
    ("call-off",),
    # an end
    *(("provision", "--smoke", "none", f"--when-done={x}") for x in ("", "stop", "END now")),
    *(
        ("provision", "--smoke", "none", f"--on-failure={x}")
        for x in ("", "end after", "end after -1m", "retry")
    ),
    *(("provision", "--smoke", "none", f"--count={x}") for x in ("", "0", "-1", "viel", "1000000")),
    # an environment, and boxes that are to talk
    ("prepare", LEASE, "--source", "/nowhere/requirements.txt"),
    ("prepare", LEASE, "--clone", ""),
    ("prepare", LEASE, "--replay", "nobody-1"),
    ("preflight", LEASE),
    ("preflight", LEASE, "nobody-1"),
    ("report", LEASE, "--to", "/nowhere/report.html"),
    ("report", LEASE, "--form", "pdf"),
    ("dashboard", "--port", "99999"),
    ("offers", "--like", "nobody-1"),
    # one command from the smoke test to the receipt
    ("run",),
    ("run", "--", "true"),
    ("run", "--on", "local", "--", "true"),
    *(("run", "--artifact", "out/", f"--hours={x}", "--", "true") for x in TIMES),
    *(("run", "--artifact", "out/", f"--max-usd={x}", "--", "true") for x in SUMS),
    *(("run", "--artifact", "out/", f"--vram-gib={x}", "--", "true") for x in COUNTS),
    *(
        ("run", "--artifact", "out/", "--max-usd", "1", f"--on={x}", "--", "true")
        for x in ("aws", "nowhere")
    ),
    *(("run", "--on", "local", "--artifact", x, "--", "true") for x in ("", "../x", "/")),
    ("run", "--dir", "/nowhere", "--artifact", "out/", "--", "true"),
    ("run", "--on", "local", "--artifact", "out/", "--env", "FOO=bar", "--", "true"),
    ("run", "--on", "local", "--artifact", "out/", "--on-failure", "later", "--", "true"),
    ("run", "--artefact", "out/", "--", "true"),
    ("run", "--resume", "nobody-1"),
    # a volume
    ("volumes", "--create", "", "--on", "runpod", "--size-gb", "10"),
    ("volumes", "--create", "data"),
    ("volumes", "--create", "data", "--on", "aws", "--size-gb", "10"),
    ("volumes", "--create", "data", "--on", "local", "--size-gb", "10"),
    ("volumes", "--create", "data", "--on", "runpod"),
    ("volumes", "--destroy", "nobody-1"),
    ("volumes", "--destroy", ""),
    ("volumes", "--delete", "data"),
    *(("volumes", "--create", "data", "--on", "runpod", f"--size-gb={x}") for x in (*COUNTS, "0")),
    # what an order sets up, and the ports that it names
    ("setup", "nobody-1"),
    ("setup", LEASE, "--order", "/nowhere/gpu-tenant.toml"),
    ("setup", LEASE, "--order", ""),
    ("setup", LEASE, "--agian"),
    ("ssh", LEASE, "--ports"),
    ("ssh", "nobody-1", "--ports"),
    *(("ssh", LEASE, "--forward", x) for x in ("", "0", "-1", "99999", "viel", "1:2:3:4")),
]

NOT_RUN = (
    "teardown",
    "waive",
    "sign",
    "rehearse",
    "dashboard",
    "serve",
    "demo",
    "install",
    "watchdog",
)
"""What would end the lease or never end: of these it is tried that they are calls at all."""
_PLACEHOLDER = re.compile(
    r"\b(DIR|LEASE|PATTERN|COMMAND|PROVIDER|NAME|TARGET|CODE|N|ID|CELL|P)\b|\.\.\.|USER|HOST"
)

_ELSEWHERE = {"BOX_UNREACHABLE": (4,), "CREDENTIAL_REFUSED": (5,), "LOCAL_TROUBLE": (6,)}
"""The exit statuses of what is wrong elsewhere than in the call."""


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Owner, str]]:
    """A local lease whose job has ended, and whose files were collected."""
    place = tmp_path_factory.mktemp("wrong")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place))
        patch.setenv("GPU_TENANT_HOME", str(place / "state"))
        (place / "tree").mkdir()
        (place / "tree" / "train.py").write_text("print(1)\n")
        patch.chdir(place / "tree")
        owner = Owner(place / "state", place / "tree")
        lease = owner.has_run("mkdir -p out; echo '[1]' > out/a.json", "out/")
        owner.does("collect", lease)
        try:
            yield owner, lease
        finally:
            end_processes(owner.state / "boxes")


def test_there_are_four_hundred_wrong_inputs_over_nearly_all_verbs() -> None:
    assert len(set(WRONG)) == len(WRONG) >= 400
    assert len({words[0] for words in WRONG}) >= 40


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_wrong_input_is_told_and_its_next_command_leads_on(
    lived: tuple[Owner, str], words: tuple[str, ...]
) -> None:
    said = [lived[1] if word == LEASE else word for word in words]

    status, out, err = command(*said)

    error = re.search(r"^error: ([A-Z_]+): (.+)\nhint: (.+)$", err, re.MULTILINE)
    assert error, (status, out, err)
    assert status in _ELSEWHERE.get(error[1], (2, 3)), err
    lines = re.findall(r"`(gpu-tenant[^`]*)`", error[3])
    assert lines, error[3]
    for line in lines:
        _leads_on(shlex.split(line)[1:], error[0])


def _leads_on(next_words: list[str], error: str) -> None:
    if _PLACEHOLDER.search(" ".join(next_words)):
        # A person fills it in: then the verb and the options have to be there.
        options = [word for word in next_words if word.startswith("--") and word != "--"]
        status, out, err = command(next_words[0], "--help")
        assert status == 0, err
        assert all(option.partition("=")[0] in out for option in options), (next_words, out)
        return
    if next_words and next_words[0] in NOT_RUN:
        assert command(next_words[0], "--help")[0] == 0
        return
    status, _, err = command(*next_words)
    again = re.search(r"^error: ([A-Z_]+): (.+)\nhint: (.+)$", err, re.MULTILINE)
    assert again is None or again[0] != error, (next_words, err)
    assert "no such option" not in err.casefold(), (next_words, err)
    assert "no command" not in err, (next_words, err)
