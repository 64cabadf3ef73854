"""Plain text. It has no structure that could be broken. The findings say whether it is UTF-8."""

import codecs

from gpu_tenant.artifacts.formats.bounded_file import Findings, Source, Unread


def check(source: Source, findings: Findings) -> None:
    """Add to the findings whether the text is UTF-8. This function always raises, because it can check nothing else.

    Raises:
        Unread: always.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in source.chunks():
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        findings.warn("not UTF-8")
    else:
        findings.proved.append("UTF-8 to the last byte")
    raise Unread("text has no structure to check: only the hash covers it")
