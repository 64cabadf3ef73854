// The Chinese of the settings and the runbooks.
export default {
  // settings
  Notifications: "通知",
  "Mail, chat and desktop channels that work without this page:":
    "不依赖本页的邮件、聊天和桌面通知：",
  "Keys of your accounts": "账户密钥",
  "This page shows where a key is found, and never the key. What is written down is a reference to it.":
    "本页只显示密钥所在位置，绝不显示密钥。写下的只是引用。",
  found: "已找到",
  "not found": "未找到",
  "looked for in {places}": "在 {places} 中查找",
  "Test the key of {title}": "测试 {title} 的密钥",
  Test: "测试",
  "Say where the key of {title} is": "指定 {title} 的密钥位置",
  "Say where": "指定位置",
  "An environment variable": "环境变量",
  "Its name": "变量名",
  "It must be set where gpu-tenant is started, also for the watchdog.":
    "须在启动 gpu-tenant 的环境中设置，看守程序也一样。",
  "A file that only you read": "只有你能读的文件",
  "Its path": "路径",
  "The file holds the key and nothing else; `chmod 600` it.": "文件只含密钥；请 `chmod 600`。",
  "This computer's keyring": "本机钥匙串",
  "SERVICE/USER": "服务/用户",
  "As you stored it there; it may ask to be unlocked.": "按你存入时的名称；可能要求解锁。",
  "Where the key of {title} is": "{title} 的密钥位置",
  "Written down:": "已写下：",
  "Do not paste the key here: only say where it is. What looks like a key is refused and not kept.":
    "不要把密钥粘贴到这里，只说明它在哪里。看起来像密钥的内容会被拒绝且不保存。",
  "It is kept in": "保存在",
  "Written as": "写为",
  "Write it down and test it": "写下并测试",
  blocks: "必须解决",
  "look at this": "请留意",
  fine: "正常",
  Checkup: "体检",
  "Whether this computer is fit to be a tenant: state, ledger, tools, keys. Every account that has a key is asked once.":
    "本机是否具备使用条件：状态、账本、工具、密钥。每个有密钥的账户会被询问一次。",
  "Check again": "再查一次",
  "Check now": "立即检查",
  "Nothing blocks": "没有必须解决的问题",
  "Something blocks": "有必须解决的问题",
  "As the system": "跟随系统",
  Light: "浅色",
  Dark: "深色",
  "Language and theme": "语言与主题",
  Language: "语言",
  Theme: "主题",

  // runbooks
  Containers: "容器",
  "Virtual machines": "虚拟机",
  Marketplace: "算力市场",
  "Cluster queue": "集群队列",
  Kubernetes: "Kubernetes",
  Notebooks: "笔记本",
  "Your own machines": "自有机器",
  "What is known of each platform, with its sources: what survives, what stops the meter, and what to do by hand at 3 a.m.":
    "每个平台的已知事实及来源：什么能保留、如何停止计费、凌晨三点如何手动处理。",
  Filter: "筛选",
  "Compare all platforms: what survives a stop, and what bills then":
    "对比所有平台：关机后哪些数据能保留，还会扣哪些费用",
  "No platform matches.": "没有匹配的平台。",
  "key found": "已找到密钥",
  "Stops the meter": "停止计费",
  "If this computer dies": "本机停机或断网时",
  "Checked on": "核对于",
};
