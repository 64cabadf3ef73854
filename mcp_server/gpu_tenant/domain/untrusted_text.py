"""Text that came from a box or a provider, made safe to show to a person and to a model."""

import json
import re
from hashlib import sha256

_ESCAPE = re.compile(
    # One character class before all alternatives, so that text without escape sequences is skipped quickly.
    r"[\x1b\x90\x98\x9b\x9d-\x9f](?:"
    r"(?P<colour>(?<=\x1b)\[[0-9;:]*m)"  # SGR
    r"|(?:(?<=\x1b)\[|(?<=\x9b))[0-?]*[ -/]*[@-~]"  # other CSI: cursor moves, modes
    r"|(?:(?<=\x1b)[\]PX^_]|(?<=[\x90\x98\x9d-\x9f]))[^\x07\x1b\x9c\n]*(?:\x07|\x9c|\x1b\\)?"  # titles, links
    r"|(?<=\x1b)[ -/]*[0-~]?"
    r")?"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RESET = re.compile(r"\x1b\[[0;:]*m")

_GONE = (
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
    (0xE0000, 0xE0FFF),  # tags and variation selectors: letters nobody sees
)
_UNSEEN: dict[int, str | None] = {
    **{point: None for first, last in _GONE for point in range(first, last + 1)},
    0x2028: " ",
    0x2029: " ",
    **dict.fromkeys(
        range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"
    ),  # bytes that were not UTF-8
}
# As ranges: a class of that many single characters would be a hundred times slower to search.
_IS_UNSEEN = re.compile(
    f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in _GONE)}\u2028\u2029\ud800-\udfff]"
)

_FENCED = re.compile(r"<untrusted-(\w+) [^\n]*>\n(.*)\n</untrusted-\1>", re.DOTALL)
_FENCE_TAG = re.compile(r"<(?=\s*/?\s*untrusted)", re.IGNORECASE)
_ORDINARY = re.compile(r"[\w./+@=,:%~#*-]+")
_QUOTES = {ord(mark): '"' for mark in "“”„‟"}
_LONGEST_QUOTED = 160
_LONGEST_SEEN = 4096
_NONCE = re.compile(r"[0-9A-Za-z]{8,64}")


def plain(text: str, *, max_line: int = 2000) -> str:
    """Return the text without anything that a terminal would obey or a reader would not see.

    Escape sequences are removed, and so are control characters other than newline and tab, and bidi and zero-width
    characters. Of a line that was redrawn with carriage returns, the last state stays. A line longer than `max_line`
    characters is cut to that length, and says how much is missing.
    """
    return "\n".join(_cut(line, max_line) for line in bare(text).split("\n"))


def keep_colours(text: str, *, max_line: int = 2000) -> str:
    """Do what `plain` does, but keep colors. The only escape sequences left are whole SGR ones, `ESC [ digits ; : m`.

    A line that was cut or redrawn ends in the colors in which it would have ended anyway. Without its colors, the
    result is what `plain` makes of the same text.
    """
    text = _ESCAPE.sub(
        lambda found: found[0] if found["colour"] else "", text.replace("\r\n", "\n")
    )
    text = _IS_UNSEEN.sub(lambda one: _visible(one[0], but="\x1b"), _redrawn(text))
    return "\n".join(_cut(line, max_line) for line in text.split("\n"))


def bare(text: str) -> str:
    """Do what `plain` does, but cut no line. The result has as many lines as the text."""
    text = text.replace("\r\n", "\n")
    if "\x1b" in text or not text.isascii():
        text = _ESCAPE.sub("", text)
    text = _redrawn(text)
    if text.isascii():
        return text.translate(_UNSEEN)  # ten times faster
    return _IS_UNSEEN.sub(lambda one: _visible(one[0]), text)


def sentence(text: str, *, most: int) -> str:
    """Return the text as one plain line of at most `most` characters."""
    # Text far beyond the end would cost time, and is never shown.
    line = " ".join(plain(text[: 8 * most]).split())
    if len(text) <= 8 * most and len(line) <= most:
        return line
    return f"{line[: most - 1]}…"


def quote_text(text: str) -> str:
    """Quote what a box said, for use inside one of our sentences: short, and clearly not our own words.

    An ordinary file name is unchanged. Anything that has a blank, or could be overlooked, is put in quotation marks.
    Different texts stay different.
    """
    line = " ".join(plain(text[:_LONGEST_SEEN]).split())
    if len(text) > _LONGEST_QUOTED or len(line) > _LONGEST_QUOTED:
        name = sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
        line = f"{line[:80]}… ({len(text):,} characters, {name})"
    return line if _ORDINARY.fullmatch(line) else json.dumps(line, ensure_ascii=False)


def cite(text: str, *, most: int) -> str:
    """Quote what a provider said, for use inside one of our sentences: its first `most` characters, as one line.

    A single ordinary word is unchanged. Anything else is between quotation marks that the text itself cannot close.
    """
    line = " ".join(plain(text[: 8 * most]).split()).translate(_QUOTES)
    if len(line) > most or len(text) > 8 * most:
        line = f"{line[:most]}..."
    return line if not line or _ORDINARY.fullmatch(line) else f"“{line}”"


def fence(text: str, *, nonce: str, of: str = "box log") -> str:
    """Put the text, made plain, between tags that say what it is. The text cannot close these tags.

    `of` says in our own words what the text is. `nonce` is 8 to 64 letters and digits that the box cannot know.
    """
    if not _NONCE.fullmatch(nonce):
        raise ValueError("a nonce is 8 to 64 letters and digits")
    held = _FENCE_TAG.sub("&lt;", plain(text))
    return f'<untrusted-{nonce} source="{of}">\n{held}\n</untrusted-{nonce}>'


def without_fence(text: str) -> str:
    """Return the text between the tags of `fence`. A terminal says in another way whose words these are."""
    held = _FENCED.fullmatch(text)
    return held[2] if held else text


def _visible(character: str, but: str = "") -> str:
    """Return what is shown in place of a character that nobody would see."""
    return character if character == but else _UNSEEN[ord(character)] or ""


def _redrawn(text: str) -> str:
    if "\r" not in text:
        return text
    return "\n".join(_last_state(line) if "\r" in line else line for line in text.split("\n"))


def _last_state(line: str) -> str:
    """Return what a progress bar showed last: the last text written after a carriage return."""
    states = line.split("\r")
    shown = next(
        (n for n in reversed(range(len(states))) if _COLOUR.sub("", states[n]).strip()),
        len(states) - 1,
    )
    before, after = "".join(states[:shown]), "".join(states[shown + 1 :])
    return f"{_colours(before)}{states[shown]}{_colours(after)}"


def _colours(text: str) -> str:
    """Return the color sequences of the text that are still in effect at its end."""
    said = "".join(_COLOUR.findall(text))
    resets = [reset.start() for reset in _RESET.finditer(said)]
    return said[resets[-1] :] if resets else said


def _cut(line: str, max_line: int) -> str:
    if len(line) <= max_line:
        return line
    shown = len(_COLOUR.sub("", line))
    if shown <= max_line:
        return line
    # The length with the note fits the limit, so that a text that is made plain twice is not cut twice.
    note = f"… [+{shown} characters]"
    kept = max(0, max_line - len(note))
    at = _place_of(line, kept)
    return f"{line[:at]}… [+{shown - kept} characters]{_colours(line[at:])}"


def _place_of(line: str, shown: int) -> int:
    """Return the index at which the line has shown `shown` characters."""
    at = 0
    for colour in _COLOUR.finditer(line):
        if colour.start() - at >= shown:
            break
        shown -= colour.start() - at
        at = colour.end()
    return at + shown
