"""The picture of the bench of transfers: bars of rates, as shares of the fastest peer's, drawn by hand."""

from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

_LEFT, _WIDTH, _LINE, _GAP, _TOP = 190, 520, 15, 34, 46
_OURS, _PEER, _BESIDE = "#0b7285", "#f1b24a", "#e4dccb"
_MOST = 2.0


def drawn(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The picture's text: a group of bars for each row that is a race of rates."""
    parts, y = [], _TOP
    title = "rate, as a share of the fastest peer's; the dashed line is the limit of the link or machine"
    for row in rows.values():
        peers = [f["mb_s"] for f in row["figures"] if f["counted"] and f["who"][:4] != "ours"]
        if not peers or not max(peers) or row["name"].startswith("changed"):
            continue
        best, top = max(peers), y
        parts.append(
            f'<text x="10" y="{y + 4}" font-size="12">{escape(row["work"])}, {escape(row["link"])}</text>'
        )
        y += 12
        for figure in row["figures"]:
            share = figure["mb_s"] / best
            ours = figure["who"].startswith("ours")
            colour = _OURS if ours else _PEER if figure["counted"] else _BESIDE
            width = min(share, _MOST) / _MOST * _WIDTH
            parts.append(
                f'<text x="{_LEFT - 6}" y="{y + 10}" text-anchor="end">{escape(figure["who"])}</text>'
                f'<rect x="{_LEFT}" y="{y + 1}" width="{width:.1f}" height="{_LINE - 4}" fill="{colour}"/>'
                f'<text x="{_LEFT + width + 4:.1f}" y="{y + 10}" font-size="9">{share:.2f} ({figure["mb_s"]:.0f} MB/s)</text>'
            )
            y += _LINE
        parts.append(_line(1.0, top + 10, y, 'stroke="#222"'))
        if row["limit_mb_s"] and row["limit_mb_s"] / best <= _MOST:
            limit = row["limit_mb_s"] / best
            parts.append(_line(limit, top + 10, y, 'stroke="#c92a2a" stroke-dasharray="4 3"'))
        y += _GAP
    width = _LEFT + _WIDTH + 110
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}">',
            '<g font-family="sans-serif" font-size="11" fill="#222">',
            f"<title>{title}</title>",
            f'<rect width="{width}" height="{y}" fill="#fff"/>',
            f'<text x="10" y="20" font-size="13">{title}</text>',
            *parts,
            "</g></svg>\n",
        ]
    )


def _line(share: float, top: int, bottom: int, style: str) -> str:
    return f'<path d="M{_LEFT + share / _MOST * _WIDTH:.1f} {top}V{bottom}" {style}/>'
