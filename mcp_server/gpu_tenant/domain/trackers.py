"""Experiment trackers: the links that a job's log prints, and what a tracker leaves in the work directory."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

OFFLINE_RUNS = ("wandb/offline-run-*/", "events.out.tfevents.*")
"""Patterns of what a tracker wrote only on the box: offline runs of W&B, and event files of TensorBoard."""
_PARTS = {
    OFFLINE_RUNS[0]: ("wandb", "offline-run-20260101_000000-0a1b2c3d"),
    OFFLINE_RUNS[1]: ("events.out.tfevents.1700000000.box.1.0",),
}
"""Examples of the names in the paths of such runs."""
BESIDE_RUNS = ("wandb/latest-run", "wandb/debug.log", "wandb/debug-internal.log")
"""What W&B writes beside its runs: links into the newest one."""

MOST_LINKS = 4
_WORD = r"[\w.-]{1,128}"
_HOST = r"(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}(?::\d{1,5})?"
_RUN = r"/runs/[\w-]{1,64}"
_LINK = re.compile(
    r"https://(?:"
    rf"(?:[a-z0-9-]{{1,63}}\.)?wandb\.(?:ai|io)/{_WORD}/{_WORD}(?:{_RUN})?"
    rf"|{_HOST}/{_WORD}/{_WORD}{_RUN}"  # W&B on a server of one's own
    rf"|{_HOST}(?:/{_WORD}){{0,3}}/#/experiments/\d{{1,20}}{_RUN}"  # MLflow
    rf"|{_HOST}/ml/experiments/\d{{1,20}}{_RUN}"  # MLflow at Databricks
    r"|tensorboard\.dev/experiment/\w{1,64}"
    rf"|(?:www\.)?huggingface\.co/(?:(?:datasets|spaces)/)?{_WORD}/{_WORD}"
    r")/?(?=['\"<>)\],;.]{0,3}(?:\s|$))",
    re.ASCII,
)
_KNOWN_HOST = re.compile(
    r"https://(?:(?:[a-z0-9-]{1,63}\.)?wandb\.(?:ai|io)|tensorboard\.dev|(?:www\.)?huggingface\.co"
    r"|[a-z0-9-]{1,63}\.cloud\.databricks\.com|[a-z0-9.-]{1,63}\.(?:azuredatabricks\.net|gcp\.databricks\.com))/",
    re.ASCII,
)
_NO_OWNER = re.compile(
    r"https://(?:www\.)?huggingface\.co/(?:docs|blog|settings|api|papers|join|login)/"
)


def tracker_links(log: str) -> tuple[str, ...]:
    """Return the links to a tracker's run that the log prints, each once, in their order.

    Only https links of a known form are returned. None of them has a name, a password or a query in it. The log may
    lie: a link is shown as text, and is never followed.
    """
    found = (match[0].rstrip("/.") for match in _LINK.finditer(log))
    return first_links(link for link in found if not _NO_OWNER.match(link))


def first_links(links: Iterable[str]) -> tuple[str, ...]:
    """Return the first `MOST_LINKS` of the links, each once. Links to known trackers come before all others."""
    each = dict.fromkeys(links)
    return tuple(sorted(each, key=lambda link: not _KNOWN_HOST.match(link)))[:MOST_LINKS]


def link_words(link: str) -> str:
    """Return the link as every face shows it. A link to a host that is not a known tracker's gets a remark.

    A box can print a link to any host. A tracker on one's own server looks just like a stranger's page.
    """
    if _KNOWN_HOST.match(link):
        return link
    return f'"{link}" (only the box says that this is a tracker)'


def kept_by_default(
    artifacts: Sequence[str], discard: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Add the runs of trackers to what must be kept. Return what must be kept, and what may be lost.

    A pattern that is in both results is kept if it matches anything, and may match nothing. If the caller names a path
    of W&B, or event files, nothing is added for that tracker.
    """
    said = (*artifacts, *discard)
    runs = [p for p in OFFLINE_RUNS if not any(_is_about(one, _PARTS[p]) for one in said)]
    beside = BESIDE_RUNS if OFFLINE_RUNS[0] in runs else ()
    return (*artifacts, *runs), (*discard, *runs, *beside)


def as_named(
    artifacts: Sequence[str], discard: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Undo `kept_by_default`: return only what somebody has named."""
    unnamed = {p for p in OFFLINE_RUNS if p in artifacts and p in discard}
    beside = {*BESIDE_RUNS} if OFFLINE_RUNS[0] in unnamed else set[str]()
    return (
        tuple(p for p in artifacts if p not in unnamed),
        tuple(p for p in discard if p not in unnamed | beside),
    )


def _is_about(pattern: str, names: Sequence[str]) -> bool:
    """Whether a part of the pattern matches one of the names. A part that matches any name does not count."""
    parts = [part for part in pattern.split("/") if part.strip("*?")]
    return any(fnmatchcase(name, part) for part in parts for name in names)
