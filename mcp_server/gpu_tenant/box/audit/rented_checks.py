"""Judges whether the GPUs of a box are those that were rented: their number, their name and their memory."""

from collections.abc import Iterator, Mapping

from gpu_tenant.box.audit.findings import Finding, Rented, blocker, gib, ok, warning
from gpu_tenant.box.audit.probe import GIB, REHEARSED_MARK, Gpu, SeenSmi, part, read_smi
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.providers.gpu_catalog import is_amd, same_gpu

LEAST_MEMORY = 0.9
"""A card must show at least this share of the memory that was rented.

The driver keeps some memory for itself, and more with ECC: a card that is sold with 48 GB shows 45 GiB.
"""


def card_name(gpu: Gpu) -> str:
    """Return the driver's name of the card, without the mark of a rehearsal."""
    return gpu.name.removesuffix(REHEARSED_MARK)


def judge_rented(observed: Mapping[str, object], rented: Rented) -> Iterator[Finding]:
    """Judge whether the driver lists the GPUs that were rented.

    If the driver lists no GPU, there is no finding here, because another check reports a blocker.
    """
    driver = read_smi(part(observed, "smi", SeenSmi).out)
    if driver is None or not driver.gpus or is_amd(rented.gpu):
        return
    seen, wrong = len(driver.gpus), False
    if seen < rented.count:
        wrong = True
        yield blocker("rented gpus", f"{seen} of {rented.count}", "fewer than were rented")
    for gpu in driver.gpus:
        for finding in (*_card(gpu, rented), *_memory(gpu, rented)):
            wrong = True
            yield finding
    if not wrong:
        yield ok("rented gpus", f"{seen} x {quote_text(driver.gpus[0].name)}, as rented")


def _card(gpu: Gpu, rented: Rented) -> Iterator[Finding]:
    same, subject = same_gpu(rented.gpu, card_name(gpu)), f"gpu {gpu.index} card"
    if same is None:
        reason = f"whether that is the rented {quote_text(rented.gpu)} is unknown: compare them"
        yield warning(subject, quote_text(gpu.name), reason)
    elif not same:
        reason = f"{quote_text(rented.gpu)} was rented: this is another card"
        yield blocker(subject, quote_text(gpu.name), reason)


def _memory(gpu: Gpu, rented: Rented) -> Iterator[Finding]:
    if gpu.total_bytes is None or rented.vram_gib is None:
        return
    if gpu.total_bytes < rented.vram_gib * GIB * LEAST_MEMORY:
        reason = f"{rented.vram_gib:g} GiB were rented"
        yield blocker(f"gpu {gpu.index} size", f"{gib(gpu.total_bytes):.1f} GiB", reason)
