"""Translates the facts of platforms into Chinese, for their pages, their runbooks and the comparison of platforms."""

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
    "bytes": "流量",
    "electricity": "电费",
    "volumes": "卷",
    "snapshots": "快照",
    "addresses": "地址",
    "metadata": "元数据服务",
    "a network volume": "网络卷",
    "destroy the Droplet": "销毁 Droplet",
    "terminate": "终止（terminate）",
    "its owner": "机主",
    "per second": "按秒计",
    "gpushare.com/center/hire, 我的实例 (my instances)": "gpushare.com/center/hire，我的实例",
    "lanrui.co, 控制台 (console), 工作空间 (workspaces)": "lanrui.co，控制台，工作空间",
}
"""Words, and what each means as the value of a fact. In other texts it may mean something else."""


def chinese_fact(value: str) -> str:
    """Return the value in Chinese: a word of the table, a list of such words, a number of days or hours, or a sentence."""
    if value in _WORDS:
        return _WORDS[value]
    parts = value.split(", ")
    if all(part in _WORDS for part in parts):
        return "、".join(_WORDS[part] for part in parts)
    if days := re.fullmatch(r"([\d.]+) days", value):
        return f"{days[1]} 天"
    if hours := re.fullmatch(r"([\d.]+) h", value):
        return f"{hours[1]} 小时"
    return in_chinese(value)
