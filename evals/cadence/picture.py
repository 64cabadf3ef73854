"""A bar chart as SVG, drawn by hand: groups of bars on one scale, with their values."""

from collections.abc import Mapping

_BAR, _GAP, _LEFT, _TOP, _HEIGHT = 26, 40, 50, 60, 220
_COLOURS = ("#9aa5b1", "#0b7285", *("#f1b24a",) * 5)


def drawn(groups: Mapping[str, Mapping[str, float]], title: str) -> str:
    """The picture's text."""
    names = list(next(iter(groups.values())))
    highest = max(value for by in groups.values() for value in by.values())
    group_w = _BAR * len(names) + _GAP
    width, base = _LEFT + group_w * len(groups) + 10, _TOP + _HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {base + 110}" width="{width}">',
        '<g font-family="sans-serif" font-size="11" fill="#222">',
        f"<title>{title}</title>",
        f'<rect width="{width}" height="{base + 110}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24" font-size="13">{title}</text>',
    ]
    for share in (0.25, 0.5, 0.75, 1):
        y = base - _HEIGHT * share
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{width - 10}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{highest * share:.1f}</text>'
        )
    for place, (group, by) in enumerate(groups.items()):
        left = _LEFT + 10 + place * group_w
        for number, name in enumerate(names):
            x, height = left + number * _BAR, by[name] / highest * _HEIGHT
            colour = _COLOURS[min(number, len(_COLOURS) - 1)]
            parts.append(
                f'<rect x="{x}" y="{base - height:.1f}" width="{_BAR - 4}" height="{height:.1f}" fill="{colour}"/>'
                f'<text x="{x + 11}" y="{base - height - 4:.1f}" text-anchor="middle" font-size="9">{by[name]:.2f}</text>'
                f'<text transform="translate({x + 14} {base + 6}) rotate(60)" font-size="10">{name}</text>'
            )
        parts.append(f'<text x="{left}" y="{base + 100}" font-size="12">{group}</text>')
    parts.append(f'<path d="M{_LEFT} {base}H{width - 10}" stroke="#222"/></g></svg>\n')
    return "\n".join(parts)
