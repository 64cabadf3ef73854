// The Chinese sentences about the actions: what each will do, and its result.
export default {
  "Collect, then end it": "收集后结束",
  "Every declared artifact and log is fetched to this computer, read again, and compared with the box.":
    "所有声明的产物和日志会取回本机，重新读取，并与机器上的内容比对。",
  "It is refused if anything would be lost, and says what. Then nothing was destroyed.":
    "若有内容会丢失，则拒绝并说明；那时没有销毁任何东西。",
  // verbs
  Extend: "延期",
  Park: "关机保留",
  Resume: "重新开机",
  "Start it, collect, then end it": "开机，收集后结束",
  "Raise budget and deadline": "提高预算并延期",
  "Look again": "再看一次",
  "The box is started again: only a box that runs can be proved and ended.":
    "机器重新开机：只有运行中的机器才能核对并结束。",
  "Where its end is refused, it runs and bills on until you end it or park it again.":
    "若结束被拒绝，机器继续运行并计费，直到你结束它或再次关机保留。",
  "It fails without harm where no GPU is free: the disk is kept, and bills.":
    "没有空闲 GPU 时会失败，但无损失：磁盘保留并计费。",
  "Budget and deadline change. The guard on the box, where there is one, is told first.":
    "预算和截止时间一起修改。机器上若有守护，会先通知它。",
  "Its owner signs for a greater budget: that is asked here, in the next step.":
    "提高预算须由机主签署：下一步就在这里询问。",
  "Sign, and go on": "签署并继续",
  "At its present pace its job needs about {usd} in all, and {span} from now: a tenth more is filled in.":
    "按目前速度，任务共需约 {usd}，从现在起还需 {span}：已多填一成。",
  "The box is asked once more whether it answers, and how its job stands.":
    "再问一次机器是否应答，以及任务的状况。",
  "Nothing is stopped, started or destroyed, whatever comes of it.":
    "无论结果如何，都不会停止、启动或销毁任何东西。",
  "The box answers.": "机器有应答。",
  "Stop the job": "停止任务",
  Collect: "取回文件",
  "Take a snapshot": "取一份快照",
  "Verify and tear down": "验证并销毁",
  "Destroy and accept the loss": "承担损失并销毁",
  "Go on elsewhere": "换机器继续",
  Adopt: "接管",
  "More for {lease}": "{lease} 的更多操作",
  "{verb}: {lease}": "{verb}：{lease}",
  "What happens": "会发生什么",
  "What it costs": "要花多少",
  "What it does not do": "不会做什么",
  "The runbook of {title}": "{title} 的手册",
  "Leave it as it is": "保持现状",
  "an unknown sum": "未知金额",
  "The box goes on billing {sum} an hour until it is parked or torn down.":
    "机器继续按每小时 {sum} 计费，直到关机保留或销毁。",
  "The box goes on billing until it is parked or torn down; its rate is not known.":
    "机器继续计费，直到关机保留或销毁；费率未知。",

  "Stop the job, then park": "停止任务，然后关机保留",

  // terms
  "Change the terms": "修改条款",
  "The terms have changed.": "条款已修改。",
  "What you fill in is in force at once. What you leave empty stays as it is.":
    "填写的内容立即生效，留空的保持不变。",
  "Without a budget, the lease may cost its rate until its deadline.":
    "没有预算时，租约会按费率一直计费到截止时间。",
  "Nothing on the box is touched, and its job goes on.": "机器上的内容不受影响，任务继续运行。",
  "What you signed ahead was for the old terms, and lapses. A new name changes no terms.":
    "您预先签署的内容针对旧条款，随之失效。只改名称不改变条款。",
  Name: "名称",
  "Project, name and tags, for lists and sums.": "项目、名称和标签，用于列表和费用汇总。",
  "Budget in all, USD": "总预算（USD）",
  "Ended when idle for hours": "空闲多少小时后结束",
  "0: never.": "0：从不。",
  "When its work is done": "工作完成后",
  "as it is": "保持不变",
  "end it, once all is proved": "全部验证后结束",
  "park it": "关机保留",

  // extend, park, resume, stop
  "Hours from now": "从现在起的小时数",
  "Counted from now, and not added to what is left.": "从现在算起，不是在剩余时间上追加。",
  "Deadline now": "当前剩余",
  "New deadline": "新的截止时间",
  "Spent by then, at this rate": "届时按当前费率共花费",
  "Less than with the deadline now": "比当前截止时间少花",
  "More than with the deadline now": "比当前截止时间多花",
  "That passes the budget of {sum}, which still ends the lease first. `gpu-tenant terms {lease} --budget-usd N` changes it.":
    "这会超过 {sum} 的预算，租约仍会先因预算结束。用 `gpu-tenant terms {lease} --budget-usd N` 修改预算。",
  "The deadline moves. The guard on the box, where there is one, is told first.":
    "截止时间改变。若机器上有守护程序，会先通知它。",
  "Nothing on the box is touched, and its job goes on. Budget and price cap stay as they are.":
    "机器上的一切不动，任务继续。预算和价格上限不变。",
  "The provider stops the box, and its disk is kept.": "由平台关停机器，磁盘保留。",
  "A command on the box stops it, and its disk is kept.": "由机器上的命令关机，磁盘保留。",
  "You stop it by hand in the platform's console; the runbook says where. Then this notes that it is parked.":
    "由你在平台控制台手动关机，手册写明位置；之后这里记为已关机保留。",
  "The GPU is no longer billed. The disk is, every hour, until the lease is torn down.":
    "GPU 不再计费。磁盘仍按小时计费，直到租约销毁。",
  "It does not end the lease, and the deadline still comes.": "租约不会结束，截止时间照常到来。",
  "A stop may empty the disk that the work is on: it is refused once the box was used.":
    "该平台可能清空已关停机器的磁盘：机器用过之后会拒绝此操作。",
  "It is refused while a job runs.": "任务运行时会拒绝。",
  "Nobody promises that a GPU is free when you resume.": "再开机时不保证有空闲 GPU。",
  "The deadline has passed: say a new one.": "截止时间已过：请给出新的。",
  "A new deadline; left empty, it stays.": "新的截止时间；留空则不变。",
  Address: "地址",
  "Only where the console shows a new one: user@host:port, or its ssh command.":
    "仅当控制台显示新地址时填写：user@host:port，或其 ssh 命令。",
  "The box is started again; it may come back at another address.": "机器重新启动，地址可能改变。",
  "It bills {sum} an hour from then on.": "此后按每小时 {sum} 计费。",
  "It bills as a running box again; the rate is not known.": "重新按运行状态计费；费率未知。",
  "No job is started. It fails without harm where no GPU is free: the disk is kept, and bills.":
    "不会启动任务。没有空闲 GPU 时失败也无害：磁盘保留，并继续计费。",
  "The newest": "最新的",
  "Grace in seconds": "宽限秒数",
  "Time to save a checkpoint after it was asked.": "收到请求后保存检查点的时间。",
  "The job is asked to end, so that it can save its work, and is killed when the grace is over.":
    "先请求任务结束以便保存成果，宽限时间过后强制终止。",
  "No file is removed, and the lease does not end.": "不删除任何文件，租约不结束。",

  // collect, snapshot, teardown, recover
  "Where to, and which files": "取到哪里，取哪些文件",
  "Directory on this computer": "本机目录",
  "Left empty: where this lease keeps its files.": "留空：此租约保存文件的位置。",
  "Keep these, too": "另外保留",
  "A pattern a line, as in .gitignore.": "每行一个模式，写法同 .gitignore。",
  "Give these up": "放弃这些",
  "What matches is not fetched and is lost with the box. A pattern a line.":
    "匹配的文件不取回，随机器一起丢失。每行一个模式。",
  "The box is sealed: every declared artifact and log is listed with its hash, then fetched to this computer and proved as it lands.":
    "封存机器：列出每个声明的产物和日志及其哈希，取回本机，并在落盘时逐一验证。",
  "Bytes off the box may cost extra, by the provider's prices.":
    "下行流量可能另收费，以平台价格为准。",
  "Nothing is destroyed. It is refused while a job runs; cut off, it goes on from the last byte.":
    "不销毁任何东西。任务运行时会拒绝；中断后从最后一个字节继续。",
  "What is complete on the box by now is copied to this computer while the job goes on.":
    "把机器上目前完整的文件复制到本机，任务继续运行。",
  "It is no seal: it does not prove that nothing else is there, and no teardown rests on it.":
    "这不是封存：不能证明没有其他文件，也不能作为销毁的依据。",
  "Verified first: every kept file is read again, compared with the box, and must load as what it claims to be.":
    "先验证：每个保留的文件重新读取，与机器比对，并且必须能按其格式打开。",
  "Only then the lease ends, and the machine is handed back as it is.":
    "通过之后租约才结束，机器原样交还。",
  "Only then the lease ends, and its directory on this computer is deleted.":
    "通过之后租约才结束，并删除它在本机上的目录。",
  "Nobody bills for it, so no bill ends. You get a receipt.":
    "没有人为它计费，也就没有账单要停。你会得到收据。",
  "Only then the box is destroyed, with its disk.": "通过之后才销毁机器和磁盘。",
  "The bill ends at about {sum}. You get a receipt once the provider has twice shown the box gone.":
    "账单约止于 {sum}。平台两次确认机器消失后给出收据。",
  "The bill ends. You get a receipt once the provider has twice shown the box gone.":
    "停止计费。平台两次确认机器消失后给出收据。",
  "It is refused if anything would be lost, and says what. Then nothing has happened.":
    "若有任何东西会丢失就拒绝，并说明是什么；那时什么也没有发生。",
  "A new box is rented where the lease's terms allow, and the job goes on from the newest checkpoint that was proved.":
    "在租约条款允许的平台租一台新机器，任务从最新的已验证检查点继续。",
  "The new box bills at most {sum} an hour.": "新机器每小时最多 {sum}。",
  "The new box bills by its own rate; this lease has no price cap.":
    "新机器按自身费率计费；此租约没有价格上限。",
  "The old box is not destroyed. What was not saved before it was taken is computed again.":
    "旧机器不会被销毁。被收回前未保存的部分会重新计算。",

  // errands
  "This goes on when you close the window or the page.": "关闭窗口或页面后仍会继续。",
  "under way": "进行中",
  done: "完成",
  "refused or failed": "被拒绝或失败",
  "The dashboard was started anew since. How the lease stands, and its story, say what came of this.":
    "仪表盘此后重新启动过。结果如何，请看该租约的现状和事件记录。",
  "1 file": "1 个文件",
  "{n} files": "{n} 个文件",
  "Verified, then destroyed; the provider has twice shown the box gone.":
    "已验证并销毁；平台两次确认机器已消失。",
  "It was never used; the provider has twice shown the box gone.":
    "从未使用；平台两次确认机器已消失。",
  "Destroyed over a person's signature; the provider has twice shown the box gone.":
    "经人签字后销毁；平台两次确认机器已消失。",
  "It cost an unknown sum.": "费用未知。",
  "It cost {sum}.": "费用 {sum}。",
  "Kept: {files}, {size}, in {where}.": "保留：{files}，{size}，位于 {where}。",
  "Kept: {files}, {size}.": "保留：{files}，{size}。",
  "Not proved: {list}": "未能验证：{list}",
  "Given up: {list}": "已放弃：{list}",
  "Left behind: {what}": "遗留：{what}",
  "{files}, {size}, lie proved in {where}; {new} were new.":
    "{files}，{size}，已验证并存于 {where}；其中新取 {new}。",
  "Unclaimed: {files}, {size}. A teardown waits until they are kept or given up by name.":
    "未认领：{files}，{size}。保留或逐一放弃之前不会销毁。",
  "The largest of them: {list}": "其中最大的文件：{list}",
  "Cannot be kept: {list}": "无法保留：{list}",
  "Declared, and never written: {list}": "已声明但从未写出：{list}",
  "Not in the durable store: {why}": "未存入持久存储：{why}",
  "{files}, {size}, were copied to {where}.": "{files}，{size}，已复制到 {where}。",
  "Still being written, and left: {files}.": "仍在写入，暂未取：{files}。",
  "Complete, and left for the next look: {files}.": "已完整，留待下次：{files}。",
  "Did not read back whole: {list}": "读回不完整：{list}",
  "No room here for: {list}": "本机空间不足：{list}",
  "an unknown rate": "未知费率",
  "{sum} an hour": "每小时 {sum}",
  "The deadline has moved.": "截止时间已更改。",
  "Parked: it bills {rate} now.": "已关机保留：现按{rate}计费。",
  "Started again: it bills {rate}.": "已重新开机：按{rate}计费。",
  "Under a lease now, at {rate}.": "已纳入租约，{rate}。",
  "It goes on under {lease}, at {rate}.": "在 {lease} 下继续，{rate}。",
  "By its deadline it will have cost {sum}.": "到截止时间共花费 {sum}。",
  "The job has ended by itself.": "任务已自行结束。",
  "The job has ended with an error.": "任务出错结束。",
  "The job has ended as asked.": "任务已按请求结束。",
  "The job did not end in its grace, and was killed.": "任务未在宽限时间内结束，已被强制终止。",
  "The job is {state}.": "任务状态：{state}。",
  Done: "完成",
  Actions: "操作",
  "Put away what has ended": "收起已结束的",
  "{n} actions under way": "{n} 个操作进行中",
  "a box": "一台机器",
  "1 action before it": "此前 1 个操作",
  "{n} actions before it": "此前 {n} 个操作",
  "and {n} more": "另有 {n} 个",
  "All actions under way": "所有进行中的操作",
};
