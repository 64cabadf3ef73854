// The card's own words, and the server's sentences, in English or Chinese.
/** @type {Record<string, string>} */
const CHINESE = {
  unknown: "未知",
  nothing: "无",
  "nobody bills": "不计费",
  "bills no more": "不再计费",
  "job finished": "任务已结束",
  "job failed": "任务失败",
  "job killed": "任务被终止",
  "job stopped": "任务已停止",
  "Do this": "请处理",
  "its box bills on, and no job runs": "机器仍在计费，且没有任务在跑",
  "the box was stopped unasked, and its disk bills on": "机器被意外停机，其磁盘仍在计费",
  "its box does not answer: it may be running and billing": "机器没有应答：可能仍在运行并计费",
  "its deadline is near": "截止时间快到了",
  ", for {span}": "，已 {span}",
  ", {sum} since": "，此后已花费 {sum}",
  ". ": "。",
  "1 file": "1 个文件",
  "{n} files": "{n} 个文件",
  "{n} s": "{n} 秒",
  "{n} min": "{n} 分",
  "{n} h": "{n} 小时",
  "{usd}/h": "{usd}/小时",
  "passed {span} ago": "已过 {span}",
  "in {span}": "还有 {span}",
  "after {span}": "历时 {span}",
  "{size} of {whole}": "{size} / {whole}",
  "{sum}: {counts}": "{sum}：{counts}",
  "{files}, {size}, in {where}": "{files}，{size}，位于 {where}",
  "{files}, {size}": "{files}，{size}",

  "Looking…": "正在查看…",
  "Looked at {time}.": "已于 {time} 查看。",
  "looked at {time}": "{time} 查看",
  "as this answer told it; it may be old": "按此回答所述；可能已旧",
  "The host did not let the card look: {why}": "宿主不允许卡片查看：{why}",
  "No host answers the card: {why}": "没有宿主应答卡片：{why}",
  "This call was cancelled.": "此调用已取消。",
  "The card does not draw this answer.": "卡片不显示此类回答。",
  "Refused, or it did not work": "被拒绝，或未成功",
  "The answer": "回答",
  "All leases": "全部租约",
  "Look now": "立即查看",
  "Look at its job": "查看其任务",

  "Alarm: ": "警报：",
  alarm: "警报",
  Leases: "租约",
  Lease: "租约",
  Terms: "条款",
  Sweeps: "参数扫描",
  "{provider}, {rate}, spent {sum}": "{provider}，{rate}，已花费 {sum}",
  "No lease is live: no box of ours is billing that this ledger knows of.":
    "没有现行租约：本账本中没有我们的机器在计费。",
  "burning {rate}": "当前 {rate}",
  "spent {sum}": "已花费 {sum}",
  "leaking {sum} a month": "闲置仍计费 每月 {sum}",
  "Not counted: {what}": "未计入：{what}",
  "Watched by: {who}": "看守：{who}",
  "Without a box, and billing": "没有机器却仍在计费",
  "Not ours, left alone": "不是我们的，不触碰",
  "{box} at {provider}: {state}, {rate}": "{provider} 的 {box}：{state}，{rate}",
  leaks: "闲置仍计费",
  "{sum} a month": "每月 {sum}",
  age: "时长",
  deadline: "截止",
  rate: "费率",
  "{now} now, {later} once it runs": "当前 {now}，运行后 {later}",
  spent: "已花费",
  "by its deadline": "到截止时",
  "job's end": "任务结束",
  "in {span}, about {sum}": "还需 {span}，约 {sum}",
  "if this computer dies": "本机停机或断网时",
  jobs: "任务",
  next: "下一步",

  Progress: "进度",
  "{done} of {total}": "{done} / {total}",
  "{job} on {lease}": "{lease} 上的 {job}",
  "{state}, status {code}": "{state}，退出码 {code}",
  "{busy} %, {used} of {all} MiB, {warm} °C, {name}":
    "{busy} %，{used} / {all} MiB，{warm} °C，{name}",
  memory: "内存",
  "disk free": "磁盘剩余",
  saves: "保存检查点",
  together: "同组",
  "also bills": "仍计费",
  "Last of its log, in words from the box": "日志末尾，机器的原话",
  "Log, from the box": "来自机器的日志",
  "nothing new": "没有新内容",

  "Receipt for {lease}": "{lease} 的收据",
  "at {provider}, box {box}": "{provider}，机器 {box}",
  ground: "依据",
  kept: "保留",
  "proved to load": "已验证可读取",
  "nothing to load": "无可读取的文件",
  "lease lasted": "租约持续",
  "box lived": "机器存续",
  "handed back": "已交还",
  "seen gone": "确认已消失",
  "{first}, and again {second}": "{first}，再次确认 {second}",
  cost: "费用",
  "billed so far": "目前账单",
  "left behind": "留在原机器上",
  "Given up": "已放弃",
  "Not proved": "未能验证",
  Warnings: "警告",

  "Collected from {lease}": "已从 {lease} 取回",
  here: "本机",
  "fetched now": "此次取回",
  unclaimed: "未认领",
  "open to the internet": "对互联网开放",
  "may be lost": "可丢弃",
  "{size} by {patterns}": "{size}，依 {patterns}",
  "no pattern": "无模式",
  stored: "已存入持久存储",
  "not stored": "未存入",
  seal: "封存",
  "Unclaimed, largest first": "未认领，从大到小",
  "Cannot be kept": "无法保留",
  "Never appeared": "从未出现",
  "Brought home from {lease} while it runs": "运行中从 {lease} 复制回来",
  "left for later": "留待下次",
  unfinished: "未写完",
  proves: "能证明",
  Broken: "已损坏",
  "No room here for": "本机空间不足",
};

const server = makeTranslator(SENTENCES);

// Returns a sentence of an answer in the host's language. Without a translation it stays in English.
/** @param {string} sentence */
const said = (sentence) =>
  document.documentElement.lang === "zh-Hans" ? server(sentence) : sentence;

// Returns one of the card's own sentences in the host's language, with `{name}` replaced by its value.
/**
 * @param {string} sentence
 * @param {object} [values]
 */
function t(sentence, values = {}) {
  const chinese = document.documentElement.lang === "zh-Hans" && Object.hasOwn(CHINESE, sentence);
  return (chinese ? CHINESE[sentence] : sentence).replace(
    /\{(\w+)\}/g,
    (/** @type {string} */ hole, /** @type {string} */ name) =>
      Object.hasOwn(values, name) ? String(/** @type {any} */ (values)[name]) : hole,
  );
}

const time = () => new Date().toLocaleTimeString(document.documentElement.lang);
