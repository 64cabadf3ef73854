"""Experiment trackers: the links that a job's log prints, and what a tracker leaves in the work directory."""

import re
from collections.abc import Sequence

OFFLINE_RUNS = ("wandb/offline-run-*/", "events.out.tfevents.*")
"""What a tracker wrote that is nowhere else: an offline run of W&B, and a TensorBoard directory's event files."""
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
_NO_OWNER = re.compile(
    r"https://(?:www\.)?huggingface\.co/(?:docs|blog|settings|api|papers|join|login)/"
)


def tracker_links(log: str) -> tuple[str, ...]:
    """Return the links to a tracker's run that the log prints, each once, in their order.

    Only https links of a known form are returned. None of them has a name, a password or a query in it. The log may
    lie: a link is shown as text, and is never followed.
    """
    found = (match[0].rstrip("/.") for match in _LINK.finditer(log))
    return tuple(dict.fromkeys(link for link in found if not _NO_OWNER.match(link)))[:MOST_LINKS]


def kept_by_default(
    artifacts: Sequence[str], discard: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what must be kept and what may be lost, with the runs of trackers kept if there are any.

    A pattern that is in both is kept, and may match nothing. Whoever says anything of `wandb` or of event files
    decides it alone.
    """
    said = " ".join((*artifacts, *discard))
    runs = [p for p in OFFLINE_RUNS if p.split("/")[0].split(".")[0] not in said]
    beside = BESIDE_RUNS if OFFLINE_RUNS[0] in runs else ()
    return (*artifacts, *runs), (*discard, *runs, *beside)
