"""What people call a lease: its project, its name and its tags.

Lists are searched by these labels, and costs are summed by them.
"""

import re
from typing import Annotated, Self

from pydantic import AfterValidator

from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import sentence

_MOST = 60
_MOST_TAGS = 10
_TAG = re.compile(r"[\w][\w.:-]*")


def _part(said: str) -> str:
    cleaned = sentence(said, most=_MOST).strip()
    if not cleaned or cleaned != said or "#" in said or not said.isprintable():
        raise ValueError(f"a project or a name has 1 to {_MOST} plain characters, and no #")
    return said


def _project(said: str) -> str:
    if "/" in said:
        raise ValueError("a project has no /, because the / comes between the project and the name")
    return _part(said)


def _tags(said: tuple[str, ...]) -> tuple[str, ...]:
    for tag in said:
        if len(tag) > _MOST or not _TAG.fullmatch(tag):
            raise ValueError(
                f"#{tag[:_MOST]} is not a tag such as #paper: letters, digits, . : - and _"
            )
    if len(said) > _MOST_TAGS:
        raise ValueError(f"a lease has at most {_MOST_TAGS} tags")
    return tuple(dict.fromkeys(said))


class Labels(Record):
    """The labels that a person gave a lease. Parts that the person left out are None or empty."""

    project: Annotated[str, AfterValidator(_project)] | None = None
    name: Annotated[str, AfterValidator(_part)] | None = None
    tags: Annotated[tuple[str, ...], AfterValidator(_tags)] = ()

    @classmethod
    def parse(cls, words: str) -> Self:
        """Read `PROJECT/NAME #TAG #TAG`. Each part may be left out: `NAME`, `PROJECT/` and `#TAG` alone are labels, too.

        Raises:
            ValueError: the words are too long, or have characters that no label has.
        """
        said = words.split()
        tags = tuple(word[1:] for word in said if word.startswith("#"))
        plain = " ".join(word for word in said if not word.startswith("#"))
        project, slash, name = plain.partition("/") if "/" in plain else ("", "", plain)
        if slash and not project.strip():
            raise ValueError("the project comes before the /, as in `llama/first try #paper`")
        return cls(project=project.strip() or None, name=name.strip() or None, tags=tags)

    def filled(self, *, project: str | None, name: str | None) -> "Labels":
        """Return the labels, with this project and name where the person gave none."""
        return self.model_copy(
            update={"project": self.project or project, "name": self.name or name}
        )

    @property
    def words(self) -> str:
        """The labels in the form that `parse` reads. Empty if there are none."""
        head = f"{self.project}/{self.name or ''}" if self.project else (self.name or "")
        return " ".join(filter(None, (head, *(f"#{tag}" for tag in self.tags))))


def short_label(said: str) -> str | None:
    """Clean and shorten a text that somebody else wrote, for use as part of a label. None if nothing is left of it."""
    cleaned = sentence(said.replace("#", " "), most=_MOST).strip()
    return cleaned or None


UNNAMED = Labels.model_construct()
"""The labels of a lease that nobody named. Not validated, because that would build the validator in every command."""
