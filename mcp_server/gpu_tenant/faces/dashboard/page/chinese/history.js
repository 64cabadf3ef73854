// The Chinese of the history.
export default {
  "never used": "从未使用",
  "gone, no receipt": "已消失，无收据",
  "never came": "未曾开出",
  lost: "已丢失",
  "Nothing was spent yet": "还没有花费",
  "Leases that have ended, their cost and their receipts will stand here.":
    "已结束的租约、费用和收据会显示在这里。",
  "Spent on all leases": "全部租约已花费",
  "More was spent than is shown here: these leases had hours at an unknown rate, and no sum counts those.":
    "实际花费多于此处所示：以下租约有部分时段费率未知，任何合计都不含这些时段。",
  "In the last 30 days": "最近 30 天",
  "Spent by day (UTC)": "每日花费（UTC）",
  "Leases that have ended": "已结束的租约",
  "Spent by day, from {first} to {last}: {total} in all, {most} on the dearest day":
    "{first} 至 {last} 每日花费：共 {total}，最多一天 {most}",
  "The same as a table": "以表格显示",
  "Day (UTC)": "日期（UTC）",
  Sum: "合计",
  "Burn rate": "每小时花费",
  "Burn rate: {most} an hour at the most, {now} now": "每小时花费：最高 {most}，现在 {now}",
  now: "现在",
  "The browser did not let it be copied": "浏览器不允许复制",
  "Copy as CSV": "复制为 CSV",
  "Billed by the platform": "平台账单",
  "Ended at": "结束于",
  Kept: "保留",
};
