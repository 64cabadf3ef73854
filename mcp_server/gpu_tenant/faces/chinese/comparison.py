"""The table that compares all platforms, in Chinese."""

import re
from collections.abc import Mapping

from gpu_tenant.faces.chinese import in_chinese

_WORDS: Mapping[str, str] = {
    "platform": "平台",
    "path": "路径",
    "a reboot": "重启后还在",
    "a stop": "关机后还在",
    "the end": "销毁后还在",
    "a dead host": "宿主机损坏后还在",
    "being taken back": "被收回后还在",
    "a stopped box bills": "关机后计费的",
    "its GPU is kept": "GPU 为它保留",
    "may bill after the end": "销毁后可能还计费的",
    "with no credit": "余额用完时",
    "there is no stop": "没有关机",
    "yes": "是",
    "no": "否",
    "nothing": "无",
    "gpu": "GPU",
    "disk": "磁盘",
    "volumes": "卷",
    "snapshots": "快照",
    "addresses": "地址",
}
"""Words that mean this in the table alone."""


def chinese_cell(cell: str) -> str:
    """Return a cell of the comparison in Chinese: a word of the table, a list of them, days, or a sentence."""
    parts = cell.split(", ")
    if all(part in _WORDS for part in parts):
        return "、".join(_WORDS[part] for part in parts)
    if days := re.fullmatch(r"([\d.]+) days", cell):
        return f"{days[1]} 天"
    return in_chinese(cell)
