"""A person sees everything that they sign for: each name, or how many more there are and where they stand."""

import pytest
from arranged import lease, seal

from gpu_tenant.artifacts.local_evidence import Loss
from gpu_tenant.artifacts.losses import in_words, uncollected_loss
from gpu_tenant.domain.errors import Unverified
from gpu_tenant.domain.seal import Manifest, SealedFile, Unclaimed
from gpu_tenant.leases.verify import Assessment, changed_since, prove, unkept_losses


def written(*names: str, size: int) -> Manifest:
    """A seal of a box on which nobody has claimed these files."""
    largest = tuple(Unclaimed.Path(at=f"/work/{name}", size=size) for name in names)
    heap = Unclaimed(count=len(names), bytes=size * len(names), largest=largest)
    return seal().model_copy(update={"unclaimed": heap})


@pytest.mark.parametrize("size", [7, 0], ids=["with content", "empty"])
def test_every_file_that_would_go_is_named_in_what_is_signed(size: int) -> None:
    names = ("a.pt", "b.pt", "c.pt", "d.pt", "e.pt")
    losses = list(unkept_losses(written(*names, size=size), lease()))
    signed = Assessment(untouched=False, seal=None, evidence=(), losses=losses).words

    assert len(losses) == 1
    assert all(any(name in words for words in signed) for name in names)


@pytest.mark.parametrize("size", [7, 0], ids=["with content", "empty"])
def test_the_sentence_of_a_refusal_says_how_many_it_leaves_out(size: int) -> None:
    (loss,) = unkept_losses(written("a", "b", "c", "d", "e", size=size), lease())

    assert loss.what.endswith(", and 2 more")


def test_a_refusal_that_leaves_names_out_says_where_all_of_them_stand() -> None:
    named = list(unkept_losses(written("a", "b", "c", size=7), lease()))
    cut = list(unkept_losses(written("a", "b", "c", "d", size=7), lease()))

    def remedy(losses: list[Loss]) -> str:
        with pytest.raises(Unverified) as refused:
            prove(lease(), Assessment(untouched=False, seal=None, evidence=(), losses=losses))
        return refused.value.remedy

    where = f"`gpu-tenant waive {lease().id}` lists all of it by name"
    assert where in remedy(cut)
    assert where not in remedy(named)


def test_a_box_that_names_fewer_than_it_counts_is_not_believed_to_have_named_all() -> None:
    assert in_words(["a", "b"], 5) == "a, b, and 3 more"
    assert in_words(["a", "b", "c"]) == "a, b, c"


def test_a_file_that_nobody_has_read_again_is_named_in_what_is_signed() -> None:
    """A checkpoint that was written over has the old name and size, and its hash is not known yet."""
    names = ("a.pt", "b.pt", "same.pt")
    collected = seal().model_copy(update={"entries": tuple(entry(name) for name in names)})
    now = collected.model_copy(
        update={"digest": "", "entries": (entry("a.pt", size=9), entry("b.pt"), entry("same.pt"))}
    )
    unread = now.entries[1].model_copy(update={"sha256": None})
    now = now.model_copy(update={"entries": (now.entries[0], unread, now.entries[2])})

    loss = uncollected_loss(now, collected, lease())

    assert [name.partition(" ")[0].strip('"“”') for name in loss.names] == ["a.pt", "b.pt"]
    assert "1 file (9 bytes) on the box differs from what was collected" in loss.what
    assert "1 file on the box may differ" in loss.what


def test_what_was_never_collected_is_not_said_to_differ() -> None:
    now = seal().model_copy(update={"entries": (entry("a.pt"), entry("b.pt"))})

    assert uncollected_loss(now, None, lease()).what == (
        "2 files (14 bytes) on the box, and nothing was collected: a.pt, b.pt"
    )


def entry(name: str, size: int = 7) -> SealedFile:
    return SealedFile(
        name=name,
        at=f"/work/{name}",
        kind="file",
        role="artifact",
        size_bytes=size,
        sha256="0" * 64,
        mtime_ns=1,
    )


@pytest.mark.parametrize("known", ["hash", "change time"])
def test_a_signature_for_a_file_is_for_its_content_at_that_time(known: str) -> None:
    """The file was written over with as many other bytes, and its time was set back."""

    def digest(version: int) -> str:
        told = {"sha256": f"{version:064}"} if known == "hash" else {"ctime_ns": version}
        file = entry("out/a").model_copy(update={"sha256": None, "ctime_ns": None, **told})
        now = seal().model_copy(update={"entries": (file,)})
        losses = [uncollected_loss(now, None, lease())]
        return Assessment(untouched=False, seal=None, evidence=(), losses=losses).loss_digest

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_a_signature_for_a_file_that_nobody_claimed_is_for_its_content_at_that_time() -> None:
    def digest(changed_ns: int) -> str:
        file = Unclaimed.Path(at="/work/a", size=7, ctime_ns=changed_ns)
        heap = Unclaimed(count=1, bytes=7, largest=(file,))
        now = seal().model_copy(update={"unclaimed": heap})
        losses = list(unkept_losses(now, lease()))
        return Assessment(untouched=False, seal=None, evidence=(), losses=losses).loss_digest

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


@pytest.mark.parametrize("named", [1, 20])
async def test_a_second_seal_that_names_few_files_hides_no_new_one(named: int) -> None:
    now = written(*(f"new-{n}" for n in range(25)), size=7)
    few = now.unclaimed.model_copy(update={"largest": now.unclaimed.largest[:named]})

    async def again(**_: object) -> Manifest:
        return now.model_copy(update={"unclaimed": few})

    (loss,) = await changed_since(seal(), again, lease())

    assert "was written on the box" in loss.what
