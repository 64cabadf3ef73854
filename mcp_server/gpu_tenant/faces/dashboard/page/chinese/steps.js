// The Chinese of the next steps that the server names; {1}, {2} are its commands.
export default {
  "{1} again: its provider has not shown the box yet": "再次运行 {1}：平台尚未列出这台机器",
  "{1}; a parked box goes on billing its disk": "{1}；已停的机器仍按磁盘计费",
  "{1}: this waits until the box lets us in": "{1}：会等到可以登录机器为止",
  "{1}, then {2}: its work has ended": "{1}，然后 {2}：任务已经结束",
  "{1}; when the job has ended: {2}, then {3}": "{1}；任务结束后：{2}，然后 {3}",
  "{1} if it needs longer; when the job has ended: {2}, then {3}":
    "需要更久则 {1}；任务结束后：{2}，然后 {3}",
  "{1}: the box is being set up": "{1}：正在布置机器",
  "{1}, then {2}": "{1}，然后 {2}",
  "{1} again: the last teardown was cut short": "再次运行 {1}：上一次销毁中途断了",
  "nothing: this lease has ended": "无需操作：这份租约已结束",
};
