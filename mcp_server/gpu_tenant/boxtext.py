"""Text that came from a box, made safe to show to a person and to a model."""

import re

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\)?"  # titles, links
    r"|\x1b[ -/]*[0-~]?"
)


def _points(*ranges: tuple[int, int]) -> dict[int, None]:
    return {point: None for first, last in ranges for point in range(first, last + 1)}


_UNSEEN: dict[int, str | None] = {
    **_points(
        (0x00, 0x08),
        (0x0B, 0x1F),
        (0x7F, 0x9F),
        (0xAD, 0xAD),  # soft hyphen
        (0x061C, 0x061C),
        (0x180E, 0x180E),
        (0x200B, 0x200F),  # zero width, and direction marks
        (0x202A, 0x202E),  # bidi embeddings and overrides
        (0x2060, 0x206F),
        (0xFEFF, 0xFEFF),
        (0xFFF9, 0xFFFB),
        (0xE0000, 0xE01EF),  # tags and variation selectors: letters nobody sees
    ),
    0x2028: " ",
    0x2029: " ",
    **dict.fromkeys(
        range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"
    ),  # bytes that were not UTF-8
}

_FENCE_TAG = re.compile(r"<(?=\s*/?\s*untrusted)", re.IGNORECASE)
_NONCE = re.compile(r"[0-9A-Za-z]{8,64}")


def plain(text: str, *, max_line: int = 2000) -> str:
    """The text without anything that a terminal would obey or an eye would miss.

    Escape sequences, control characters other than newline and tab, bidi and zero-width characters
    are gone; a line redrawn with carriage returns is in its last state; a line longer than
    `max_line` characters is cut to it and says by how much.
    """
    text = _ESCAPE.sub("", text.replace("\r\n", "\n"))
    lines = (_last_state(line).translate(_UNSEEN) for line in text.split("\n"))
    return "\n".join(_cut(line, max_line) for line in lines)


def fence(text: str, *, nonce: str) -> str:
    """The text, made plain, between tags that it cannot close itself.

    `nonce` is 8 to 64 letters and digits that the box cannot know.
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("a nonce is 8 to 64 letters and digits")
    held = _FENCE_TAG.sub("&lt;", plain(text))
    return f'<untrusted-{nonce} source="box log">\n{held}\n</untrusted-{nonce}>'


def _last_state(line: str) -> str:
    """What a progress bar showed last: the last thing written after a carriage return."""
    states = line.split("\r")
    return next((state for state in reversed(states) if state.strip()), states[-1])


def _cut(line: str, max_line: int) -> str:
    if len(line) <= max_line:
        return line
    # The note itself fits, so that a text made plain twice is not cut twice.
    note = f"… [+{len(line)} characters]"
    kept = max(0, max_line - len(note))
    return f"{line[:kept]}… [+{len(line) - kept} characters]"
