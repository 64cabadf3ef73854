"""Names a platform's facts on its page, in English and in Chinese."""

from collections.abc import Mapping
from typing import Literal

Lang = Literal["en", "zh"]
Both = tuple[str, str]
"""The English words and the Chinese ones."""

EVENTS: Mapping[str, Both] = {
    "reboot": ("a reboot", "重启"),
    "park": ("parking", "关机保留"),
    "destroy": ("the end of the lease", "销毁"),
    "host_loss": ("the loss of its host", "宿主机损坏"),
    "preempt": ("being taken back", "被平台收回"),
}
FATES: Mapping[str, Both] = {
    "yes": ("kept", "保留"),
    "no": ("lost", "丢失"),
    "unknown": ("not known: count it as lost", "未知：按丢失算"),
    "n/a": ("does not happen", "不会发生"),
}
CONFIDENCE: Mapping[str, Both] = {
    "live": ("seen to be so", "亲眼验证"),
    "docs2": ("two sources", "两个来源"),
    "docs1": ("one source", "一个来源"),
    "folklore": ("hearsay", "传闻"),
    "unknown": ("nobody is sure", "无人确定"),
}
KINDS: Mapping[str, Both] = {
    "container": ("containers", "容器"),
    "vm": ("virtual machines", "虚拟机"),
    "marketplace": ("a marketplace", "算力市场"),
    "scheduler": ("a cluster's queue", "集群调度"),
    "kubernetes": ("Kubernetes", "Kubernetes"),
    "notebook": ("notebooks", "笔记本"),
    "own": ("your own machines", "自有机器"),
}
TRUST: Mapping[str, Both] = {
    "owner": ("you, or people you know, own the machine", "机器属于你或你认识的人"),
    "datacenter": ("a data centre owns the machine", "机器属于数据中心"),
    "untrusted-host": (
        "a stranger owns the machine, and can read what is put there",
        "机器属于陌生人，放上去的东西都可能被看到",
    ),
}
LEASES: Mapping[str, Both] = {
    "created": ("gpu-tenant rents the box", "由 gpu-tenant 租用"),
    "adopted": ("you rent the box, gpu-tenant adopts it", "由你租用，gpu-tenant 接管"),
    "either": ("gpu-tenant or you rent the box", "可由 gpu-tenant 或你租用"),
    "none": ("a runbook only: no box to log in to", "仅有手册：没有可登录的机器"),
}
STATES: Mapping[str, Both] = {
    "booting": ("starting", "启动中"),
    "ready": ("running", "运行中"),
    "parked": ("parked", "已关机保留"),
    "broken": ("broken", "已损坏"),
    "unknown": ("not known", "未知"),
}
PRICES: Mapping[str, Both] = {
    "api": ("its API says them at every look", "每次查看时由其 API 给出"),
    "table": ("a dated table in this program", "本程序内带日期的价目表"),
    "owner": ("you state them; no API does", "由你填写；没有 API 提供"),
}
STEPS: Mapping[str, Both] = {
    "rent": ("To rent", "租用"),
    "address": ("To find its address", "查看地址"),
    "park": ("To park it", "关机保留"),
    "resume": ("To start it again", "再次开机"),
    "destroy": ("To end the bill for good", "彻底停止计费"),
}
SECTIONS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "money": ("Money", "费用", ("billing", "verbs")),
    "clocks": (
        "What happens by itself",
        "会自动发生的事",
        ("clocks", "interrupt", "deadman"),
    ),
    "access": (
        "Getting in",
        "登录与网络",
        ("ssh", "net", "detach", "credential", "image", "paths"),
    ),
    "program": ("What the program goes by", "程序所依据的", ("gone", "boot", "mark")),
}
"""The facts that no other part of the page shows: for each heading its words, and the parts of a profile below it."""

NAMES: Mapping[str, Both] = {
    "billing.running": ("billed while it runs", "运行时计费项"),
    "billing.after_destroy": ("may bill on after the end", "销毁后可能继续计费"),
    "billing.zero_balance": ("when the account is empty", "余额耗尽时"),
    "billing.rounding": ("how time is counted", "计时方式"),
    "billing.price_source": ("where prices come from", "价格来源"),
    "verbs.park.effect": ("what parking does to the disk", "关机保留对磁盘的影响"),
    "verbs.park.how": ("who parks", "由谁关机"),
    "verbs.park.command": ("the command that parks", "关机命令"),
    "verbs.park.bills": ("what a parked box costs", "关机后的费用"),
    "verbs.park.gpu_guaranteed_after": ("a GPU for certain afterwards", "再开机时必有 GPU"),
    "verbs.destroy.how": ("who ends it", "由谁销毁"),
    "verbs.destroy.effect": ("what the end does", "销毁的效果"),
    "gone.list_lag_s": ("seconds until a new box is listed", "新机器出现在列表前的秒数"),
    "gone.confirm_s": ("seconds between two looks that prove it gone", "两次确认消失的间隔秒数"),
    "boot.timeout_s": ("seconds it may take to start", "启动允许的秒数"),
    "mark.field": ("where our mark is", "标记所在字段"),
    "mark.max": ("length of that field", "该字段长度"),
    "mark.filterable": ("listable by that mark", "可按标记筛选"),
    "inode_cap": ("files it may hold", "文件数上限"),
    "quota_gb": ("GB that cost nothing extra", "免费容量 (GB)"),
    "after_h": ("after hours", "小时之后"),
    "empties": ("what a stopped box loses then", "届时清空的"),
    "effect": ("what happens", "后果"),
    "interrupt.how": ("how it is taken back", "收回方式"),
    "interrupt.notice_s": ("seconds of warning", "提前通知秒数"),
    "interrupt.heard": (
        "where the guard on the box asks for the warning",
        "盒上守护在哪里查询通知",
    ),
    "interrupt.signal": ("how the warning comes", "通知方式"),
    "interrupt.resumes_by_itself": ("comes back by itself", "会自动恢复"),
    "deadman.stops_the_meter": ("if this computer dies", "本机失联时"),
    "deadman.provider_timer": ("a timer of the platform's", "平台自带定时器"),
    "deadman.in_box": ("what the box can end the bill with", "机器自身停止计费的手段"),
    "ssh.env_inherited": ("its environment reaches ssh", "环境变量传入 ssh"),
    "ssh.user": ("login name", "登录用户"),
    "ssh.password_login": ("logs in with a password", "使用密码登录"),
    "ssh.port_stable": ("same address after a park", "关机后地址不变"),
    "net.mirror_needed": ("needs mirrors of foreign sites", "需要镜像站"),
    "net.speed_up": ("faster to foreign sites", "学术加速"),
    "detach.survives.ssh_drop": ("jobs outlive a lost connection", "断线后任务继续"),
    "detach.survives.reboot": ("jobs outlive a reboot", "重启后任务继续"),
    "credential.env": ("its key is looked for in", "密钥所在环境变量"),
    "credential.file": ("or in the file", "或文件"),
    "image.python": ("the image's Python", "镜像内的 Python"),
}
_BY_WHOM: Mapping[str, Both] = {
    "api": ("this program, through the API", "本程序，通过 API"),
    "directory": ("this program", "本程序"),
    "in_box": ("a command on the box", "机器上的命令"),
    "owner": ("a person, in the console", "人，在控制台"),
}
VALUES: Mapping[str, Mapping[str, Both]] = {
    "billing.price_source": PRICES,
    "verbs.park.effect": {
        "keeps": ("every disk is kept", "所有磁盘保留"),
        "wipes": ("the box's own disk may be emptied", "机器自身磁盘可能被清空"),
        "none": ("there is no parking", "没有关机保留"),
    },
    "verbs.park.how": _BY_WHOM,
    "verbs.destroy.how": _BY_WHOM,
    "verbs.destroy.effect": {
        "deletes": ("the box and what is on it are gone", "机器及其上内容全部消失"),
        "hands_back": ("the box stays with its owner as it is", "机器原样留给所有者"),
    },
    "deadman.provider_timer": {
        "none": ("none", "没有"),
        "stop": ("it stops the box", "会关停机器"),
        "delete": ("it deletes the box", "会删除机器"),
    },
    "deadman.in_box": {
        "none": ("nothing", "没有"),
        "api_key": ("a key of its own", "自带的密钥"),
        "poweroff": ("its own power-off", "自行关机"),
    },
}
"""The words for the schema's values, by the fact."""

ANSWERS: Mapping[str, Both] = {
    "yes": ("yes", "是"),
    "no": ("no", "否"),
    "unknown": ("not known", "未知"),
    "n/a": ("does not apply", "不适用"),
}
CLOCKS: Mapping[str, str] = {
    "auto_shutdown": "自动关机",
    "closing_zones": "分区关闭",
    "container_restart": "容器重启",
    "end_date": "租期终点",
    "free_notebook": "免费笔记本",
    "hy_tmp": "/hy-tmp",
    "idle": "闲置",
    "job_cleanup": "Job 清理",
    "job_deadline": "Job 时限",
    "long_rental_end": "长租到期",
    "longest_run": "最长运行",
    "longest_runtime": "运行时最长时限",
    "max_run_duration": "最长运行时间",
    "migration": "迁移",
    "monthly_invoice": "每月账单",
    "scratch_purge": "scratch 清理",
    "switched_off": "关机之后",
    "temporary_save": "临时保存",
    "wall_time": "时限",
    "weekly_invoice": "每周账单",
}
"""The names of the platforms' clocks in Chinese. In English a name is its id."""
HEADINGS: Mapping[str, str] = {
    "All platforms": "所有平台",
    "The trap": "陷阱",
    "What stops the meter": "如何停止计费",
    "The verb that ends the bill": "停止计费的操作",
    "If this computer dies": "本机失联时",
    "How it takes a box back": "平台如何收回机器",
    "What survives": "哪些数据能保留",
    "All platforms compared": "各平台对比",
    "Path": "路径",
    "By hand, in its console": "在控制台手动操作",
    "Where": "位置",
    "To let gpu-tenant in, paste this into the box": "把这段粘贴到机器里，让 gpu-tenant 登录",
    "Runbook": "手册",
    "The facts, one by one": "逐条事实",
    "Its words for a box, in ours": "平台状态与本程序状态对照",
    "Where prices come from": "价格来源",
    "Not confirmed": "未经证实",
    "Sources": "来源",
    "Checked on": "核对日期",
    "On this page": "本页内容",
    "a fact without a number rests on the first": "未标编号的事实以第一条为准",
}


def words_for(both: Mapping[str, Both], key: str, lang: Lang) -> str:
    """Return the words for `key` in that language, or the key itself if there are none."""
    words = both.get(key)
    return key if words is None else words[0 if lang == "en" else 1]


def heading(english: str, lang: Lang) -> str:
    """Return a heading of the page in that language."""
    return english if lang == "en" else HEADINGS[english]
