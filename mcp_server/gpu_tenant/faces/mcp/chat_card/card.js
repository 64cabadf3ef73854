// The lease card. It is a module, because a host may draw it again in the same window. It uses the protocol of
// MCP Apps, JSON-RPC over postMessage, and draws the answers of a few tools. The content of an answer is only
// ever set as text. The card itself only calls tools that read.

/** @import {Card, Collected, Leases, Snapshot, TornDown, Watched} from "./types.d.ts" */
/** @typedef {string | number | null | undefined} Usd */
/** @typedef {number | null | undefined} Count A number of bytes, of files or of seconds; null is unknown. */
/** @typedef {HTMLElement | string | null | undefined} Child */

const VERSION = "2026-01-26";
const LOG_LINES = 40;
const OPEN_AT_MOST = 3;

// The host

const host = window.parent;
const waiting = new Map();
let asked = 0;
let canAsk = false;
/** @type {Record<string, any>} */
let input = {};

/** @param {Record<string, unknown>} message */
function send(message) {
  // The host's origin is not known, but the messages contain nothing secret.
  host.postMessage({jsonrpc: "2.0", ...message}, "*");
}

/**
 * @param {string} method
 * @param {Record<string, unknown>} params
 * @returns {Promise<any>}
 */
function ask(method, params) {
  return new Promise((resolve, reject) => {
    asked += 1;
    waiting.set(asked, {resolve, reject});
    send({id: asked, method, params});
  });
}

/** @type {Record<string, (params: any) => void>} */
const heard = {
  "ui/notifications/tool-input": (params) => {
    input = params.arguments ?? {};
  },
  "ui/notifications/tool-result": (params) => show(params, "told"),
  "ui/notifications/tool-cancelled": () =>
    draw([part("p", {class: "soft"}, t("This call was cancelled."))]),
  "ui/notifications/host-context-changed": dress,
};

window.addEventListener("message", ({source, data}) => {
  if (source !== host || data?.jsonrpc !== "2.0") return;
  if (data.method === undefined) {
    const asker = waiting.get(data.id);
    waiting.delete(data.id);
    if (data.error) asker?.reject(new Error(String(data.error.message)));
    else asker?.resolve(data.result);
  } else if (data.id === undefined) {
    if (Object.hasOwn(heard, data.method)) heard[data.method](data.params ?? {});
  } else if (data.method === "ping" || data.method === "ui/resource-teardown") {
    send({id: data.id, result: {}});
  } else {
    send({id: data.id, error: {code: -32601, message: "the card has no such method"}});
  }
});

/** @param {any} context */
function dress(context) {
  const root = document.documentElement;
  // If the host does not say which language its user reads, the browser's language is used.
  const locale = typeof context.locale === "string" ? context.locale : navigator.language;
  root.lang = locale.toLowerCase().startsWith("zh") ? "zh-Hans" : "en";
  if (context.theme === "light" || context.theme === "dark") root.dataset.theme = context.theme;
  for (const [name, value] of Object.entries(context.styles?.variables ?? {})) {
    if (name.startsWith("--") && typeof value === "string") root.style.setProperty(name, value);
  }
}

async function begin() {
  const told = await ask("ui/initialize", {
    protocolVersion: VERSION,
    appInfo: {name: "gpu-tenant lease card", version: "1"},
    appCapabilities: {availableDisplayModes: ["inline"]},
  });
  canAsk = told.hostCapabilities?.serverTools !== undefined;
  dress(told.hostContext ?? {});
  send({method: "ui/notifications/initialized", params: {}});
  new ResizeObserver(measure).observe(document.body);
}

let measured = 0;
function measure() {
  const height = Math.ceil(document.body.getBoundingClientRect().height);
  if (height === measured) return;
  measured = height;
  send({method: "ui/notifications/size-changed", params: {width: window.innerWidth, height}});
}

// Looking again

/**
 * @param {string} tool
 * @param {Record<string, unknown>} args
 * @param {HTMLButtonElement} button
 */
async function look(tool, args, button) {
  const status = /** @type {HTMLElement} */ (document.getElementById("heard"));
  button.disabled = true;
  status.textContent = t("Looking…");
  try {
    show(await ask("tools/call", {name: tool, arguments: args}), "looked");
    status.textContent = t("Looked at {time}.", {time: time()});
    /** @type {HTMLElement | null} */ (document.querySelector("main > .actions button"))?.focus();
  } catch (error) {
    status.textContent = t("The host did not let the card look: {why}", {
      why: /** @type {Error} */ (error).message,
    });
    button.disabled = false;
  }
}

/**
 * @param {string} words
 * @param {string} tool
 * @param {Record<string, unknown>} args
 */
function again(words, tool, args) {
  if (!canAsk) return null;
  const button = /** @type {HTMLButtonElement} */ (part("button", {type: "button"}, t(words)));
  button.addEventListener("click", () => look(tool, args, button));
  return button;
}

const allLeases = (words = "All leases") => again(words, "list_leases", {});

// Words

/**
 * @param {string} tag
 * @param {Record<string, string>} attributes
 * @param {(Child | Child[])[]} children
 */
function part(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.flat().filter((child) => child != null));
  return made;
}

/** @param {Usd} usd */
function money(usd) {
  if (usd == null) return t("unknown");
  const amount = Number(usd);
  return Number.isFinite(amount)
    ? `${amount.toFixed(Math.abs(amount) >= 1 ? 2 : 4)} USD`
    : String(usd);
}

/** @param {Usd} usd */
const rate = (usd) => (usd == null ? t("unknown") : t("{usd}/h", {usd: money(usd)}));

/**
 * @param {Usd} usd
 * @param {string | null | undefined} counts
 */
const counted = (usd, counts) =>
  counts ? t("{sum}: {counts}", {sum: money(usd), counts}) : money(usd);

/** @param {Count} count */
function size(count) {
  if (count == null) return t("unknown");
  const units = ["B", "KB", "MB", "GB", "TB"];
  let amount = Number(count);
  let unit = 0;
  while (amount >= 1000 && unit < units.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${amount.toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

/**
 * @param {Count} count
 * @param {Count} whole
 */
const outOf = (count, whole) => t("{size} of {whole}", {size: size(count), whole: size(whole)});

/** @param {number} count */
const files = (count) => (count === 1 ? t("1 file") : t("{n} files", {n: count}));

/**
 * @param {number} count
 * @param {Count} bytes
 */
const heap = (count, bytes) => t("{files}, {size}", {files: files(count), size: size(bytes)});

/**
 * @param {number} count
 * @param {Count} bytes
 * @param {string} where
 */
const lying = (count, bytes, where) =>
  t("{files}, {size}, in {where}", {files: files(count), size: size(bytes), where});

/** @param {Count} seconds */
function span(seconds) {
  if (seconds == null) return t("unknown");
  if (seconds < 120) return t("{n} s", {n: Math.round(seconds)});
  if (seconds < 7200) return t("{n} min", {n: Math.round(seconds / 60)});
  return t("{n} h", {n: (seconds / 3600).toFixed(1)});
}

/** @param {number} seconds */
function clock(seconds) {
  const whole = Math.floor(seconds);
  const two = (/** @type {number} */ count) => String(count).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

// The countdown runs only after the card itself has asked for the state. A host may draw an old answer again, and the
// answer does not say how old it is.
/** @type {(() => void)[]} */
let ticking = [];
let shownAt = 0;
let shownHow = "told";

/** @param {Count} seconds */
function deadline(seconds) {
  if (seconds == null) return t("unknown");
  const words = part("span", {});
  const tell = () => {
    const left = seconds - (shownHow === "looked" ? (performance.now() - shownAt) / 1000 : 0);
    words.className = left < 0 ? "bad" : left < 1800 ? "warn" : "";
    words.textContent =
      left < 0 ? t("passed {span} ago", {span: span(-left)}) : t("in {span}", {span: clock(left)});
  };
  tell();
  ticking.push(tell);
  return words;
}

setInterval(() => {
  if (shownHow === "looked") for (const tell of ticking) tell();
}, 1000);

/** @param {(any[] | null | false | undefined | "")[]} rows */
function facts(rows) {
  const list = part("dl", {});
  for (const row of rows) {
    if (row) list.append(part("dt", {}, t(row[0])), part("dd", {}, row[1]));
  }
  return list;
}

/** @param {string} words */
const alarm = (words) =>
  part("p", {class: "alarm"}, part("strong", {class: "bad"}, t("Alarm: ")), said(words));

/**
 * @param {string} title
 * @param {readonly string[] | null | undefined} lines
 */
function bullets(title, lines) {
  if (!lines?.length) return null;
  return part(
    "section",
    {},
    part("h3", {}, t(title)),
    part(
      "ul",
      {},
      lines.map((line) => part("li", {}, said(line))),
    ),
  );
}

/**
 * @param {string} title
 * @param {object} [values]
 */
function heading(title, values) {
  const how =
    shownHow === "looked"
      ? t("looked at {time}", {time: time()})
      : t("as this answer told it; it may be old");
  return part(
    "div",
    {class: "heading"},
    part("h1", {}, t(title, values)),
    part("span", {class: "soft"}, how),
  );
}

// The answers

let opened = new Set();

/**
 * @param {any} answer
 * @param {"told" | "looked"} how
 */
function show(answer, how) {
  const told = answer?.structuredContent;
  shownAt = performance.now();
  shownHow = how;
  ticking = [];
  opened = new Set(
    Array.from(document.querySelectorAll("details[open] h2"), (name) => name.textContent),
  );
  if (answer?.isError || !told) {
    const words = (answer?.content ?? [])
      .map((/** @type {{text?: string}} */ piece) => piece.text ?? "")
      .join("\n");
    const title = answer?.isError ? "Refused, or it did not work" : "The answer";
    draw([
      part(
        "section",
        {class: "panel", role: "alert"},
        part("h1", {}, t(title)),
        part("p", {}, said(words)),
      ),
      actions(allLeases()),
    ]);
    return;
  }
  const drawn = [
    [told.leases, leases],
    [told.job && told.state, watched],
    [told.receipt, tornDown],
    [told.seal, collected],
    [told.proves, snapshot],
    [told.stops_the_meter, one],
  ].find(([is]) => is);
  draw(
    drawn ? drawn[1](told) : [part("p", {class: "soft"}, t("The card does not draw this answer."))],
  );
}

/** @param {(HTMLElement | null)[]} parts */
function draw(parts) {
  const card = /** @type {HTMLElement} */ (document.getElementById("card"));
  card.replaceChildren(...parts.filter((drawn) => drawn !== null));
  // Scroll each log to its end.
  for (const log of card.querySelectorAll("pre")) log.scrollTop = log.scrollHeight;
}

/** @param {(HTMLElement | null)[]} buttons */
function actions(...buttons) {
  const given = buttons.filter((button) => button !== null);
  return given.length ? part("div", {class: "actions"}, given) : null;
}

/** @type {Record<string, string>} */
const UNBILLED = {nobody: "nobody bills", "no more": "bills no more"};

/**
 * Returns what the lease costs an hour now, or in words why there is no such sum.
 * @param {Card} card
 */
const rateOf = (card) =>
  card.bills in UNBILLED ? t(UNBILLED[card.bills]) : rate(card.price_usd_h);

/** @param {Card} card */
const spentOf = (card) =>
  card.bills === "nobody" && card.cost_usd === null ? t("nothing") : money(card.cost_usd);

/** @type {Record<string, string>} */
const JOB_PILLS = {running: "good", failed: "bad", killed: "bad"};

/** @type {Record<string, string>} */
const PILLS = {good: "good", accent: "good", warn: "warn", bad: "bad", still: "warn"};

/**
 * Returns the colour for a lease, as on the page. A box that bills while nothing runs on it gets a warning colour.
 * @param {Card} card
 */
function tone({condition}) {
  if (condition.is_wasted && condition.tone !== "bad") return "warn";
  return PILLS[condition.tone] ?? "soft";
}

/**
 * @param {Card} card
 * @param {boolean} open
 * @param {"above" | "here"} told where its alarm is told
 */
function lease(card, open, told) {
  const live = ["intended", "active", "terminating"].includes(card.state);
  const parked =
    card.leaking_usd_month == null
      ? null
      : ["leaks", t("{sum} a month", {sum: money(card.leaking_usd_month)})];
  const summary = part(
    "summary",
    {},
    part("h2", {}, card.lease),
    part("span", {class: `pill ${tone(card)}`}, t(card.condition.word)),
    card.alarm ? part("span", {class: "pill bad"}, t("alarm")) : null,
    part(
      "span",
      {class: "soft"},
      t("{provider}, {rate}, spent {sum}", {
        provider: card.provider,
        rate: rateOf(card),
        sum: spentOf(card),
      }),
    ),
  );
  const rows = facts([
    ["age", span(card.age_s)],
    card.deadline_in_s === null ? null : ["deadline", deadline(card.deadline_in_s)],
    [
      "rate",
      card.running_usd_h == null
        ? rateOf(card)
        : t("{now} now, {later} once it runs", {
            now: rate(card.price_usd_h),
            later: rate(card.running_usd_h),
          }),
    ],
    ["spent", counted(card.cost_usd, card.counts)],
    live ? ["by its deadline", money(card.forecast_deadline_usd)] : null,
    card.job_ends_in_s == null
      ? null
      : [
          "job's end",
          t("in {span}, about {sum}", {
            span: span(card.job_ends_in_s),
            sum: money(card.forecast_job_usd),
          }),
        ],
    parked,
    live ? ["if this computer dies", said(card.stops_the_meter)] : null,
    card.jobs.length ? ["jobs", card.jobs.join(", ")] : null,
    card.unclaimed ? ["unclaimed", said(card.unclaimed)] : null,
    card.published.length ? ["open to the internet", card.published.map(said).join("; ")] : null,
    ["next", said(card.next)],
  ]);
  const job =
    live && card.jobs.length
      ? again("Look at its job", "monitor", {lease: card.lease, wait_s: 0})
      : null;
  const shown = /** @type {HTMLDetailsElement} */ (
    part(
      "details",
      {class: "lease"},
      summary,
      card.alarm && told !== "above" ? alarm(card.alarm) : null,
      rows,
      actions(job),
    )
  );
  shown.open = open || Boolean(card.alarm) || opened.has(card.lease);
  return shown;
}

/** @type {Record<string, string>} */
const MATTERS = {
  "job over": "its box bills on, and no job runs",
  taken: "the box was stopped unasked, and its disk bills on",
  silent: "its box does not answer: it may be running and billing",
  "ends soon": "its deadline is near",
};

/**
 * Says why the lease needs a person, since when, what it has cost since, and the next step.
 * @param {Card} card
 */
function toDo(card) {
  const {to_do: told, word} = card.condition;
  if (!told) return [];
  const what = told.matter === "alarm" ? said(card.alarm ?? "") : t(MATTERS[told.matter]);
  const since =
    told.since_s == null
      ? ""
      : t(", for {span}", {span: span(/** @type {number} */ (told.since_s))});
  const cost = told.since_usd == null ? "" : t(", {sum} since", {sum: money(told.since_usd)});
  const state = told.matter === "job over" ? `${t(word)}, ` : "";
  return [`${card.lease}: ${state}${what}${since}${cost}${t(". ")}${said(card.next)}`];
}

/** @param {Leases} told */
function leases(told) {
  const few = told.leases.length <= OPEN_AT_MOST;
  const which = input.which === "all" ? {which: "all"} : {};
  const none = "No lease is live: no box of ours is billing that this ledger knows of.";
  const foreign = (told.foreign ?? []).map((box) =>
    t("{box} at {provider}: {state}, {rate}", {
      ...box,
      box: [box.box, box.name, box.gpus].filter(Boolean).join(", "),
      rate: rate(box.price_usd_h),
    }),
  );
  return [
    heading("Leases"),
    part(
      "div",
      {class: "summed"},
      part("span", {}, t("burning {rate}", {rate: rate(told.burning_usd_h)})),
      part("span", {}, t("spent {sum}", {sum: money(told.spent_usd)})),
      part("span", {}, t("leaking {sum} a month", {sum: money(told.leaking_usd_month)})),
    ),
    told.not_counted?.length
      ? part(
          "p",
          {class: "soft"},
          t("Not counted: {what}", {what: told.not_counted.map(said).join(", ")}),
        )
      : null,
    bullets("Do this", told.leases.flatMap(toDo)),
    ...(told.alarms ?? []).map(alarm),
    ...(told.leases.length
      ? told.leases.map((card) => lease(card, few, "above"))
      : [part("p", {class: "panel"}, t(none))]),
    bullets("Without a box, and billing", told.also_billing),
    bullets("Not ours, left alone", foreign),
    bullets("Sweeps", told.sweeps),
    told.watched
      ? part("p", {class: "soft"}, t("Watched by: {who}", {who: said(told.watched)}))
      : null,
    actions(again("Look now", "list_leases", which)),
  ];
}

/** @param {Card} card */
function one(card) {
  return [
    heading("Lease"),
    lease(card, true, "here"),
    bullets("Terms", card.terms),
    actions(allLeases("Look now")),
  ];
}

/** @param {string} log */
function fromBox(log) {
  const fenced = /^<untrusted-([0-9A-Za-z]+)[^>\n]*>\n([\s\S]*)\n<\/untrusted-\1>$/.exec(log);
  return (fenced ? fenced[2] : log).replace(/\n+$/, "").split("\n").slice(-LOG_LINES).join("\n");
}

/** @param {Watched} told */
function progress(told) {
  const at = told.progress;
  if (!at) return null;
  const metrics = Object.entries(at.metrics ?? {})
    .slice(0, 4)
    .map(([name, value]) => `${name} ${value}`);
  const {fraction} = at;
  const done = at.total == null ? at.done : t("{done} of {total}", at);
  const place = at.done == null ? [] : [`${at.unit ?? ""} ${done}`.trim()];
  const words = [
    ...(fraction != null ? [`${Math.round(fraction * 100)} %`] : []),
    ...place,
    ...metrics,
  ].join(", ");
  const bar =
    fraction != null
      ? part("progress", {max: "1", value: String(fraction), "aria-label": t("Progress")})
      : null;
  return part("div", {}, bar, part("p", {class: "soft"}, words));
}

/** @param {Watched} told */
function watched(told) {
  const gpus = (told.gpus ?? []).map((gpu) => [
    `GPU ${gpu.index}`,
    t("{busy} %, {used} of {all} MiB, {warm} °C, {name}", {
      busy: gpu.util_pct ?? t("unknown"),
      used: gpu.mem_used_mib ?? t("unknown"),
      all: gpu.mem_total_mib ?? t("unknown"),
      warm: gpu.temp_c ?? t("unknown"),
      name: gpu.name,
    }),
  ]);
  const ended =
    told.exit_code == null
      ? said(told.state)
      : t("{state}, status {code}", {state: said(told.state), code: told.exit_code});
  const kind = JOB_PILLS[told.state] ?? "soft";
  return [
    heading("{job} on {lease}", told),
    part(
      "section",
      {class: "panel"},
      part(
        "p",
        {},
        part("span", {class: `pill ${kind}`}, ended),
        told.running_s == null ? "" : t("after {span}", {span: span(told.running_s)}),
      ),
      told.why ? part("p", {class: "bad"}, said(told.why)) : null,
      progress(told),
      facts([
        ...gpus,
        ["memory", outOf(told.memory_used_bytes, told.memory_limit_bytes)],
        ["disk free", size(told.disk_free_bytes)],
        ["spent", money(told.cost_usd)],
        ["deadline", deadline(told.deadline_in_s)],
        told.cadence ? ["saves", said(told.cadence)] : null,
        told.gang ? ["together", said(told.gang)] : null,
        ["next", said(told.next)],
      ]),
    ),
    told.alarm ? alarm(told.alarm) : null,
    part(
      "section",
      {},
      part("h3", {}, t("Last of its log, in words from the box")),
      part(
        "pre",
        {tabindex: "0", "aria-label": t("Log, from the box")},
        told.log ? fromBox(told.log) : t("nothing new"),
      ),
    ),
    actions(
      again("Look now", "monitor", {lease: told.lease, job: told.job, wait_s: 0}),
      allLeases(),
    ),
  ];
}

/** @param {TornDown} told */
function tornDown(told) {
  const proof = told.receipt;
  const formats = Object.entries(proof.formats)
    .map(([format, count]) => `${count} ${format}`)
    .join(", ");
  return [
    heading("Receipt for {lease}", told),
    part(
      "section",
      {class: "panel"},
      part(
        "p",
        {},
        part("span", {class: "pill good"}, said(told.state)),
        t("at {provider}, box {box}", {provider: proof.provider, box: proof.box_id}),
      ),
      facts([
        ["ground", said(proof.ground)],
        [
          "kept",
          proof.kept_in ? lying(proof.kept_files, proof.kept_bytes, proof.kept_in) : t("nothing"),
        ],
        ["proved to load", formats || t("nothing to load")],
        [proof.left_behind ? "lease lasted" : "box lived", span(proof.lived_s)],
        [
          proof.left_behind ? "handed back" : "seen gone",
          t("{first}, and again {second}", {
            first: proof.first_absent_at,
            second: proof.second_absent_at,
          }),
        ],
        ["cost", counted(proof.cost_usd, proof.counts)],
        proof.billed_usd == null ? null : ["billed so far", money(proof.billed_usd)],
        proof.left_behind ? ["left behind", proof.left_behind] : null,
        told.gang ? ["together", said(told.gang)] : null,
        told.twin ? ["also bills", said(told.twin)] : null,
      ]),
    ),
    bullets("Given up", proof.given_up),
    bullets("Not proved", proof.not_proved),
    bullets("Warnings", proof.warnings),
    actions(allLeases()),
  ];
}

/** @param {Collected} told */
function collected(told) {
  return [
    heading("Collected from {lease}", told),
    part(
      "section",
      {class: "panel"},
      facts([
        ["here", lying(told.files, told.size_bytes, told.directory)],
        [
          "fetched now",
          told.came_before ? said(told.came_before) : heap(told.fetched_files, told.fetched_bytes),
        ],
        ["unclaimed", heap(told.unclaimed_files, told.unclaimed_bytes)],
        [
          "may be lost",
          t("{size} by {patterns}", {
            size: size(told.discarded_bytes),
            patterns: told.discarded_by.join(", ") || t("no pattern"),
          }),
        ],
        told.stored ? ["stored", told.stored] : null,
        told.not_stored ? ["not stored", said(told.not_stored)] : null,
        ["seal", told.seal.slice(0, 12)],
        ["next", said(told.next)],
      ]),
    ),
    bullets("Unclaimed, largest first", told.unclaimed_largest),
    bullets("Cannot be kept", told.cannot_be_kept),
    bullets("Never appeared", told.never_appeared),
    actions(allLeases()),
  ];
}

/** @param {Snapshot} told */
function snapshot(told) {
  return [
    heading("Brought home from {lease} while it runs", told),
    part(
      "section",
      {class: "panel"},
      facts([
        ["here", lying(told.files, told.size_bytes, told.directory)],
        ["left for later", String(told.left_out)],
        ["unfinished", String(told.unfinished_files)],
        ["proves", said(told.proves)],
        ["next", said(told.next)],
      ]),
    ),
    bullets("Broken", told.broken),
    bullets("No room here for", told.no_room),
    actions(allLeases()),
  ];
}

begin().catch((error) =>
  draw([part("p", {class: "soft"}, t("No host answers the card: {why}", {why: error.message}))]),
);
