// The Chinese of the overview: how leases and jobs stand, alarms, and what is under no lease.
export default {
  // standing
  Ordered: "已下单",
  Starting: "启动中",
  Running: "运行中",
  Parked: "已关机保留",
  "Stopped by its provider": "被平台停机",
  Ending: "正在结束",
  Ended: "已结束",
  "Never came": "未曾开出",
  Lost: "已丢失",
  "Job finished": "任务已完成",
  "Job failed": "任务失败",
  "Job killed": "任务被强制终止",
  "Job stopped": "任务已停止",
  "was {state}": "当时{state}",
  "not there": "不存在",
  starting: "启动中",
  running: "运行中",
  lingering: "有进程残留",
  finished: "已完成",
  failed: "失败",
  killed: "被强制终止",
  stopped: "已停止",
  "Do this": "请处理",
  "Nobody bills for these": "这些不计费",
  For: "已持续",
  "It has cost": "此后已花费",
  "since.": "。",
  "Its provider has stopped the box.": "平台停掉了这台机器。",
  "Its disk bills on until it goes on or is torn down.": "在恢复或销毁之前，其磁盘仍在计费。",
  "Its deadline is near.": "截止时间快到了。",
  "The job has ended": "任务已结束",
  "Parked: nothing runs, and it bills": "已关机保留：没有任务在跑，但仍在计费",

  // a lease
  Job: "任务",
  none: "无",
  "not looked at yet": "尚未查看",
  "Next:": "下一步：",
  "{done} of {total}": "{done} / {total}",
  "GPU {n} % busy": "GPU 占用 {n} %",
  "ends in": "预计还需",
  "Progress of {job}": "{job} 的进度",
  seen: "看到于",
  "Its job has failed.": "任务失败了。",
  "Its job has ended.": "任务已结束。",
  "The box bills on until it is torn down.": "在销毁之前机器仍在计费。",
  "once it runs": "(运行后)",
  "capped at {usd}": "上限 {usd}",
  "nobody bills": "不计费",
  "Waiting for a box": "等待租到机器",
  "Rate now": "当前费率",
  Spent: "已花费",
  "1 more job runs": "另有 1 个任务在运行",
  "{n} more jobs run": "另有 {n} 个任务在运行",
  "of {usd}": "预算 {usd}",
  "about {usd} at its job's end": "到任务结束时约 {usd}",
  "{usd} at the deadline": "到截止时 {usd}",
  "Alarm:": "警报：",
  "The box does not answer.": "机器没有应答。",
  Since: "自",
  "That is unknown, and not dead: it may be running and billing.":
    "这是状况不明，并不等于已死：它可能仍在运行并计费。",
  "If this computer dies:": "本机停机或断网时：",
  "GPU unknown": "GPU 未知",
  "Deadline in": "距截止",

  // overview
  Fleet: "机群",
  "{had} of {asked} boxes": "{asked} 台中的 {had} 台",
  "{n} boxes here": "此处 {n} 台",
  "Ended leases": "已结束的租约",
  Lease: "租约",
  Platform: "平台",
  "How it ended": "结束方式",
  Lasted: "持续时间",
  Cost: "费用",
  "Show the leases that have ended": "显示已结束的租约",
  Hide: "收起",
  "No lease has ended yet.": "还没有已结束的租约。",
  "Nobody could look yet": "尚未能查看",
  "What is leased and what it bills is unknown. That is not nothing: boxes may be running and billing.":
    "租了什么、费用多少，目前未知。未知不等于没有：机器可能正在运行并计费。",
  "Everything has ended, and no lease bills": "全部已结束，没有租约在计费",
  "Nothing is leased, and no lease bills": "没有租用任何机器，也没有租约在计费",
  "Find a GPU": "找一块 GPU",
  "What it costs all in, on every platform that you have a key for, before anything is rented.":
    "在你有密钥的每个平台上看清总价，然后再租。",
  "Or look on this page": "或在本页查看",
  "Rehearse first": "先演练一次",
  "A whole rental from offer to receipt, on this computer, without an account or money.":
    "在本机上走完一次租用，从报价到收据，不需账户也不花钱。",
  "Or read how each platform behaves": "或先看各平台的特点",
  Sweeps: "参数扫描",
  "Show the cells of {sweep}": "显示 {sweep} 的各组参数",
  "Hide the cells of {sweep}": "收起 {sweep} 的各组参数",
  "Cells of {sweep}, the best first": "{sweep} 的各组参数，最好的在前",
  Cell: "参数组",
  queued: "排队中",
  "waiting for a box": "等待机器",
  "given up": "已放弃",
  missing: "缺失",
  "ran twice": "重复运行",

  "{metric} at {n} measured points, from {first} to {last}":
    "{metric}：{n} 个实测点，{first} 至 {last}",

  // alarms and notifications
  "1 alarm": "1 条警报",
  "{n} alarms": "{n} 条警报",
  "This browser has no notifications.": "此浏览器不支持通知。",
  "On: each alarm and each end of a job is shown once, also while this page is in the background. It must stay open.":
    "已开启：每条警报、每次任务结束各通知一次，页面在后台时也会；页面须保持打开。",
  "Off. With them, your browser shows each alarm and each end of a job once, while this page is open.":
    "已关闭。开启后，页面打开期间，浏览器会对每条警报、每次任务结束各通知一次。",
  "The job {job} on {lease} has finished.": "{lease} 上的任务 {job} 已完成。",
  "The job {job} on {lease} has failed.": "{lease} 上的任务 {job} 已失败。",
  "The job {job} on {lease} was killed.": "{lease} 上的任务 {job} 被杀死。",
  "The job {job} on {lease} was stopped.": "{lease} 上的任务 {job} 已停止。",
  "Your browser blocks notifications of this page; its settings for this address allow them again.":
    "浏览器阻止了本页通知；可在该地址的浏览器设置中重新允许。",
  "Turn off": "关闭通知",
  "Turn on notifications": "开启通知",

  // under no lease
  "Under no lease": "不在租约内的机器",
  "Boxes under no lease": "不在租约内的机器",
  "of another gpu-tenant ({deployment}), which looks after it":
    "属于另一个 gpu-tenant（{deployment}），由它看守",
  "This box belongs to another gpu-tenant: deployment {deployment}.":
    "这台机器属于另一个 gpu-tenant：部署 {deployment}。",
  "That is another computer of yours, or a colleague's. It has a lease on this box and looks after it; two that look after one box get in each other's way.":
    "那是你的另一台电脑，或同事的电脑。它持有这台机器的租约并在看守它；两个同时看守一台机器会互相妨碍。",
  "That one is gone for good, or its owner agrees: this one takes the box over":
    "那个部署已不复存在，或其主人同意：由本部署接管这台机器",
  "Boxes in your accounts that gpu-tenant did not rent. They are shown, and never touched unless you say so.":
    "你的账户中不是由 gpu-tenant 租用的机器。这里只显示，除非你要求，绝不触碰。",
  Box: "机器",
  State: "状态",
  Rate: "费率",
  "Adopt {box}": "接管 {box}",
  "Adopt and park {box}": "接管并关机保留 {box}",
  "Adopt and park": "接管并关机保留",
  "Bills although no box uses it": "无机器使用却仍在计费",
  "Parked boxes and leftovers together:": "关机保留的机器与遗留物合计：",
  "gpu-tenant deletes none of this: a volume may hold the only copy. Its platform's console does, and the runbook says where.":
    "gpu-tenant 不会删除这些：卷里可能有唯一的副本。可在平台控制台删除，手册写明位置。",
  "The box comes under a lease, with a deadline and the usual terms; from then on it is watched like the others.":
    "机器纳入租约，带截止时间和通常条款；此后与其他机器一样受看守。",
  "Then it is stopped, and its disk is kept. What runs on it ends.":
    "随后关停机器，磁盘保留。上面运行的程序会结束。",
  "What it costs already: the meter goes on until you park it or tear it down.":
    "与现在相同：计费继续，直到你关机保留或销毁。",
  "Nothing is destroyed. What lies on it counts as yours to keep: a teardown later asks about every file.":
    "不销毁任何东西。上面的内容视为要保留：以后销毁时会逐一询问每个文件。",
};
