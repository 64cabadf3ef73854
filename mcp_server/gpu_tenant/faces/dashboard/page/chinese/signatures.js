// The Chinese of what a person signs for: the waiver, other requests, passkeys.
export default {
  "Nothing was destroyed": "没有销毁任何东西",
  "Do what is named above and try again; that loses nothing. If what is left may be lost, its owner can sign for exactly that.":
    "照上面说的做再试一次，不会有损失。如果剩下的可以丢弃，所有者可以就此签字。",
  "See what would be lost…": "看看会丢失什么…",
  "Asking the box what would be lost…": "正在询问机器会丢失什么…",
  "Nothing would be lost: verify and tear down needs no signature.":
    "不会丢失任何东西：验证并销毁无需签字。",
  "This cannot be undone. Gone for good, and nowhere else that was proved:":
    "无法撤销。以下内容将永久消失，且未验证在别处另有副本：",
  "What would be lost": "会丢失的内容",
  "You sign for exactly this list. If it has changed by then, the signature does not count.":
    "你只为这份清单签字。若清单届时已变，签字无效。",
  "Waiting costs": "继续等待的费用",
  "Fingerprint of the list": "清单指纹",
  "To sign, type the id of the lease: {lease}": "签字请输入租约编号：{lease}",
  "Code from the dashboard's terminal": "仪表盘终端上显示的代码",
  "It stands there for exactly this list, and is good for once.":
    "它只对应这份清单，且只能用一次。",
  "A person signs for this at a terminal, and this dashboard was not started at one. There, this command shows the list and asks:":
    "这需要本人在终端签字，而此仪表盘不是从终端启动的。请在终端运行此命令，它会列出清单并询问：",
  "Keep everything": "全部保留",
  "What is signed for": "签字的内容",
  "To sign, type: {subject}": "签字请输入：{subject}",
  "A passkey belongs to a name and not to a number. It signs on this same page under its name:":
    "通行密钥属于域名而不是数字地址。请用域名打开同一页面签字：",
  "Open the page as localhost": "以 localhost 打开此页面",
  "Your browser then asks for the passkey.": "随后浏览器会要求使用通行密钥。",
  Signatures: "签字",
  "What only a person may decide is signed for here, or with `gpu-tenant sign` at a terminal. No agent signs.":
    "只有本人才能决定的事，在这里签字，或在终端用 `gpu-tenant sign` 签字。智能体不能签字。",
  "Nothing waits for a signature.": "没有等待签字的事项。",
  "Look at {code} and sign": "查看 {code} 并签字",
  "Look and sign": "查看并签字",
  Sign: "签字",
  Passkeys: "通行密钥",
  "With a passkey nothing is signed without you: a program that runs as you can play a terminal, and cannot touch your key.":
    "设置通行密钥后，没有你就无法签字：以你的身份运行的程序可以伪装终端，却碰不到你的密钥。",
  "Set up a passkey": "设置通行密钥",
  "to set up a passkey: it belongs to a name.": "以设置通行密钥：它属于域名。",
  "I have lost my passkey": "我丢失了通行密钥",
  "Keep the passkeys": "保留通行密钥",
  "Destroy and lose this": "销毁并丢失这些",
};
