// The small components of which every view is made.
import {
  Component,
  html,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "../vendor/htm-preact.js";
import {locale, said, t} from "../words.js";
import {now, useNow, useSecondsSince} from "./ticking.js";

/** @import {Moment, Part, Told, Tone, Usd} from "../known.d.ts" */
/** @import {Children} from "../vendor/htm-preact.js" */

// -- what is said -----------------------------------------------------------

const PER = {h: "/h", month: "/month"};

/**
 * Rounds an amount like the terminal, the report and the card in a chat: 12.3 -> "12.30", 0.0352 -> "0.0352".
 * @param {Usd} usd
 * @param {number} [wanted]
 */
export function amount(usd, wanted) {
  const value = Number(usd);
  const places = wanted ?? (Math.abs(value) < 1 ? 4 : 2);
  return value.toFixed(places);
}

/**
 * Writes a duration in its two largest units: "2 d 3 h", "14 min", "9 s".
 * @param {number} seconds
 */
export function spanWords(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  /** @type {[number, string][]} */
  const parts = [
    [Math.floor(whole / 86400), "{n} d"],
    [Math.floor((whole % 86400) / 3600), "{n} h"],
    [Math.floor((whole % 3600) / 60), "{n} min"],
    [whole % 60, "{n} s"],
  ];
  const first = parts.findIndex(([n]) => n > 0);
  if (first < 0) return t("{n} s", {n: 0});
  const shown = first === 2 ? parts.slice(2, 3) : parts.slice(first, first + 2);
  return shown
    .filter(([n]) => n > 0)
    .map(([n, key]) => t(key, {n}))
    .join(" ");
}

const UNITS = ["B", "KB", "MB", "GB", "TB"];

/**
 * Writes a number of bytes like the terminal, the report and the card in a chat: 1 kB is 1000 bytes.
 * @param {number | null | undefined} n
 */
export function bytesWords(n) {
  if (n === null || n === undefined) return t("unknown");
  let [value, step] = [n, 0];
  while (value >= 1000 && step < UNITS.length - 1) {
    value /= 1000;
    step += 1;
  }
  return `${value.toFixed(step ? 1 : 0)} ${UNITS[step]}`;
}

// -- money and time ---------------------------------------------------------

const Unknown = () => html`<span class="unknown">${t("unknown")}</span>`;
/** @type {(value: unknown) => value is null | undefined} */
const absent = (value) => value === null || value === undefined;
/** @type {<T>(value: T) => value is NonNullable<T>} */
export const known = (value) => value !== null && value !== undefined;

/**
 * Writes money in the form that every face uses: "12.30 USD", "0.4500 USD/h".
 * @param {Usd} usd
 * @param {"h" | "month" | null} [per]
 * @param {number} [places]
 */
export const usdWords = (usd, per, places) => `${amount(usd, places)} USD${per ? t(PER[per]) : ""}`;

/**
 * Shows an amount in USD. An unknown amount is shown as unknown, not as zero. `per`: "h", "month" or nothing.
 * @param {{usd: Usd, per?: "h" | "month" | null | undefined,
 *   places?: number | undefined}} properties
 */
export function Money({usd, per, places}) {
  if (absent(usd)) return html`<${Unknown} />`;
  return html`<span class="money">
    ${amount(usd, places)}${" "}<span class="unit">USD${per && t(PER[per])}</span>
  </span>`;
}

/**
 * Shows an amount that grows: `usd` at the time `at`, and `rate` USD an hour since then.
 * @param {{usd: Usd, rate: Usd, at: Moment}} properties
 */
export function MoneyTicking({usd, rate, at}) {
  const since = useSecondsSince(at);
  if (absent(usd)) return html`<${Unknown} />`;
  const grown = Number(usd) + (Number(rate ?? 0) * since) / 3600;
  return html`<span class=${Number(rate) > 0 ? "ticking" : ""}><${Money} usd=${grown} /></span>`;
}

/** @param {{seconds: number | null | undefined}} properties */
export function Span({seconds}) {
  if (absent(seconds)) return html`<${Unknown} />`;
  return html`<span class="span">${spanWords(seconds)}</span>`;
}

/**
 * Shows a duration that grows: `seconds` at the time `at`.
 * @param {{seconds: number | null | undefined, at: Moment}} properties
 */
export function SpanTicking({seconds, at}) {
  const since = useSecondsSince(at);
  return html`<${Span} seconds=${absent(seconds) ? null : seconds + since} />`;
}

/** @param {number} n */
const two = (n) => String(n).padStart(2, "0");

/** @param {number} seconds */
function clockWords(seconds) {
  const whole = Math.floor(Math.abs(seconds));
  if (whole >= 86400) return spanWords(whole);
  return `${Math.floor(whole / 3600)}:${two(Math.floor((whole % 3600) / 60))}:${two(whole % 60)}`;
}

/**
 * Shows the time that is left: `seconds` at the time `at`. If it has passed, this is said in words.
 * @param {{seconds: number | null | undefined, at: Moment, soon?: number}} properties
 */
export function Countdown({seconds, at, soon = 1800}) {
  const since = useSecondsSince(at);
  if (absent(seconds)) return html`<${Unknown} />`;
  const left = seconds - since;
  const kind = left <= 0 ? "bad" : left < soon ? "warn" : "calm";
  return html`<span class="countdown ticking is-${kind}" role="timer">
    ${kind !== "calm" && html`<${Shape} kind=${kind} />`}
    ${left <= 0 ? t("{span} over", {span: spanWords(-left)}) : clockWords(left)}
  </span>`;
}

/** @param {{n: number | null | undefined}} properties */
export function Bytes({n}) {
  if (absent(n)) return html`<${Unknown} />`;
  return html`<span class="bytes" title=${`${n.toLocaleString("en-US")} B`}>${bytesWords(n)}</span>`;
}

/**
 * @param {Date} one
 * @param {Date} other
 */
const sameDay = (one, other) => one.toDateString() === other.toDateString();

/**
 * Shows a time in this browser's time zone. The day is left out if it is today by the server's clock.
 * @param {{at: Moment | null | undefined}} properties
 */
export function When({at}) {
  if (absent(at)) return html`<${Unknown} />`;
  const moment = new Date(at);
  const time = moment.toLocaleTimeString(locale(), {hour12: false});
  const day = moment.toLocaleDateString(locale(), {day: "numeric", month: "short"});
  return html`<time datetime=${moment.toISOString()} title=${moment.toString()}>
    ${sameDay(moment, new Date(now())) ? time : `${day} ${time}`}
  </time>`;
}

/**
 * "3 min ago", ticking.
 * @param {{at: string | null | undefined}} properties
 */
export function Ago({at}) {
  const moment = useNow();
  if (absent(at)) return html`<${Unknown} />`;
  const span = spanWords((moment - Date.parse(at)) / 1000);
  return html`<time datetime=${at} title=${new Date(at).toString()}>${t("{span} ago", {span})}</time>`;
}

const UTC = /(\d{4}-\d\d-\d\d) (\d\d:\d\d(?::\d\d)?) UTC/;

/**
 * Shows a sentence of the server. Text in `backticks` is shown as code, all other text as plain text. Times are shown
 * in the time zone of the rest of the page.
 * @param {{text: string}} properties
 */
export function Words({text}) {
  return said(text)
    .split("`")
    .map((part, n) => (n % 2 ? html`<code>${part}</code>` : html`<${Moments} text=${part} />`));
}

/** @param {{text: string}} properties */
function Moments({text}) {
  const found = UTC.exec(text);
  if (!found) return text;
  const [whole, day, time] = found;
  return html`${text.slice(0, found.index)}<${When} at=${`${day}T${time}Z`} /><${Moments}
      text=${text.slice(found.index + whole.length)}
    />`;
}

// -- state ------------------------------------------------------------------

/** @type {Record<string, any>} */
const SHAPES = {
  good: html`<circle cx="6" cy="6" r="4.5" />`,
  warn: html`<path d="M6 .8 11.6 11H.4Z" />`,
  bad: html`<path d="M3.6.5h4.8l3.1 3.1v4.8l-3.1 3.1H3.6L.5 8.4V3.6Z" />`,
  wait: html`<path d="M6 1.5a4.5 4.5 0 0 1 0 9Z" />
  <circle cx="6" cy="6" r="4.3" fill="none" stroke="currentColor" />`,
  still: html`<path d="M2 1.5h3v9H2zM7 1.5h3v9H7z" />`,
  soft: html`<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.5" />`,
  accent: html`<path d="M6 .7 11.3 6 6 11.3.7 6Z" />`,
};

// The shape for a kind, so that the kind is not shown by colour alone.
export function Shape({kind = "soft"}) {
  return html`<svg class="shape is-${kind}" viewBox="0 0 12 12" aria-hidden="true">
    ${SHAPES[kind] ?? SHAPES.soft}
  </svg>`;
}

/**
 * kinds: good warn bad wait still soft accent
 * @param {{kind?: Tone, children: Children}} properties
 */
export function Pill({kind = "soft", children}) {
  return html`<span class="pill is-${kind}"><${Shape} kind=${kind} />${children}</span>`;
}

/**
 * Shows a share of the whole. If `fraction` is null, it is unknown.
 * @param {{fraction?: number | null | undefined, label: string}} properties
 */
export function Progress({fraction, label}) {
  if (absent(fraction)) return html`<progress class="progress" aria-label=${label}></progress>`;
  return html`<progress class="progress" max="1" value=${fraction} aria-label=${label}></progress>`;
}

// -- what is pressed --------------------------------------------------------

/**
 * kinds: plain primary danger quiet
 * @param {{kind?: "plain" | "primary" | "danger" | "quiet", busy?: boolean, disabled?: boolean,
 *   onClick?: (event: Event) => void,
 *   children?: Children, type?: string, [more: string]: unknown}} properties
 */
export function Button({
  kind = "plain",
  busy = false,
  disabled = false,
  onClick,
  children,
  type = "button",
  ...rest
}) {
  return html`<button
    ...${rest}
    type=${type}
    class="button is-${kind}"
    disabled=${disabled || busy}
    aria-busy=${busy ? "true" : undefined}
    onClick=${onClick}
  >
    ${children}
  </button>`;
}

/**
 * Shows a next step like `Words`, with a button to copy each of our commands in it.
 * @param {{text: string}} properties
 */
export function Step({text}) {
  return said(text)
    .split("`")
    .map((part, n) => {
      if (n % 2 === 0) return html`<${Moments} text=${part} />`;
      return part.startsWith("gpu-tenant ")
        ? html`<${Copy} text=${part} />`
        : html`<code>${part}</code>`;
    });
}

/**
 * A command to copy.
 * @param {{text: string}} properties
 */
export function Copy({text}) {
  const [said, setSaid] = useState("");
  const code = useRef(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setSaid(t("Copied"));
    } catch {
      getSelection()?.selectAllChildren(code.current);
      setSaid(t("Selected: press Ctrl+C"));
    }
    setTimeout(() => setSaid(""), 2000);
  };
  return html`<span class="copy">
    <code ref=${code}>${text}</code>
    <button
      type="button"
      class="button is-quiet"
      aria-label=${t("Copy the command {text}", {text})}
      onClick=${copy}
    >
      ${said || t("Copy")}
    </button>
    <span class="unseen" role="status">${said}</span>
  </span>`;
}

/**
 * A label with its control. `hint` and `problem` are shown below.
 * @param {{label: string, hint?: Children, problem?: string | undefined,
 *   children: Children}} properties
 */
export function Field({label, hint, problem, children}) {
  return html`<div class="field ${problem ? "is-bad" : ""}">
    <label><span class="label">${label}</span>${children}</label>
    ${hint && html`<p class="hint">${hint}</p>`}
    ${problem && html`<p class="wrong" role="alert"><${Shape} kind="bad" />${problem}</p>`}
  </div>`;
}

/**
 * tabs: [{id, title, count?}]; left and right arrows go from one to the next.
 * @param {{label: string, tabs: any[], chosen: string, onChoose: (id: string) => void,
 *   children: Children}} properties
 */
export function Tabs({label, tabs, chosen, onChoose, children}) {
  const bar = useRef(null);
  /** @param {KeyboardEvent} event */
  const go = (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = (at + step + tabs.length) % tabs.length;
    onChoose(tabs[next].id);
    bar.current.children[next].focus();
  };
  return html`<div class="tabs">
    <div class="tabbar" role="tablist" aria-label=${label} ref=${bar} onKeyDown=${go}>
      ${tabs.map(
        (tab) => html`<button
          key=${tab.id}
          type="button"
          role="tab"
          id=${`tab-${tab.id}`}
          aria-selected=${String(tab.id === chosen)}
          aria-controls=${tab.id === chosen ? `panel-${tab.id}` : undefined}
          tabindex=${tab.id === chosen ? 0 : -1}
          onClick=${() => onChoose(tab.id)}
        >
          ${tab.title}
          ${absent(tab.count) ? "" : html` <span class="count">${tab.count}</span>`}
        </button>`,
      )}
    </div>
    <div
      class="panel"
      role="tabpanel"
      id=${`panel-${chosen}`}
      aria-labelledby=${`tab-${chosen}`}
      tabindex="0"
    >
      ${children}
    </div>
  </div>`;
}

/**
 * A modal dialog: focus stays within, Esc closes, and focus returns to where it was.
 * @param {{title: string, onClose: () => void, children: Children}} properties
 */
export function Dialog({title, onClose, children}) {
  const box = useRef(null);
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  // If text is selected from a field out to the backdrop, this does not close the dialog.
  const pressed = useRef(null);
  /** @param {Event} event */
  const press = (event) => {
    pressed.current = event.target;
  };
  /** @param {Event} event */
  const cancel = (event) => {
    event.preventDefault();
    onClose();
  };
  /** @param {Event} event */
  const away = (event) =>
    event.target === box.current && pressed.current === box.current && onClose();
  return html`<dialog
    class="dialog"
    ref=${box}
    aria-labelledby="dialog-title"
    onClick=${away}
    onPointerDown=${press}
    onCancel=${cancel}
  >
    <div class="inside">
      <header>
        <h2 id="dialog-title">${title}</h2>
        <button type="button" class="button is-quiet" aria-label=${t("Close")} onClick=${onClose}>
          <svg viewBox="0 0 12 12" class="shape" aria-hidden="true">
            <path d="M1 1l10 10M11 1 1 11" stroke="currentColor" stroke-width="1.6" />
          </svg>
        </button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

// -- nothing, waiting, trouble ----------------------------------------------

/** @param {{title: string, children: Children}} properties */
export function Empty({title, children}) {
  return html`<section class="empty"><h2>${title}</h2>${children}</section>`;
}

// Grey lines while something is fetched; they appear only when it takes a moment.
export function Waiting({lines = 3}) {
  return html`<div class="waiting" role="status">
    <span class="unseen">${t("Loading")}</span>
    ${Array.from(
      {length: lines},
      (_, n) => html`<span key=${n} class="line" aria-hidden="true"></span>`,
    )}
  </div>`;
}

/**
 * Shows an error and the next step. `problem` has code, message and remedy.
 * @param {{problem: Told, retry?: () => void}} properties
 */
export function Trouble({problem, retry}) {
  return html`<div class="trouble" role="alert">
    <p><${Shape} kind="bad" /><strong><${Words} text=${problem.message} /></strong></p>
    ${problem.remedy && html`<p class="remedy"><${Words} text=${problem.remedy} /></p>`}
    ${retry && html`<p><${Button} onClick=${retry}>${t("Try again")}<//></p>`}
  </div>`;
}

// -- drawing less -----------------------------------------------------------

/**
 * @param {Record<string, unknown>} one
 * @param {Record<string, unknown>} other
 */
const same = (one, other) =>
  Object.keys(one).length === Object.keys(other).length &&
  Object.keys(one).every((key) => Object.is(one[key], other[key]));

/**
 * Returns a component that is drawn again only if one of its properties has changed.
 * @param {Part} Part
 */
export function memo(Part) {
  return class extends Component {
    /** @param {Record<string, unknown>} next */
    shouldComponentUpdate(next) {
      return !same(this.props, next);
    }
    render() {
      return html`<${Part} ...${this.props} />`;
    }
  };
}

/**
 * Returns [value, problem, again] for what `load()` promises. It is loaded again if `key` changes.
 * @template T
 * @param {() => Promise<T>} load
 * @param {string} key
 * @returns {[T | undefined, Told | undefined, () => void]}
 */
export function useLoaded(load, key) {
  const [found, setFound] = useState(
    /** @type {{key?: string, value?: any, problem?: Told}} */ ({}),
  );
  const [round, setRound] = useState(0);
  useEffect(() => {
    let wanted = true;
    load().then(
      (value) => wanted && setFound({key, value}),
      (problem) =>
        wanted &&
        setFound((before) => ({
          key,
          value: before.key === key ? before.value : undefined,
          problem,
        })),
    );
    return () => {
      wanted = false;
    };
  }, [key, round]);
  const mine = found.key === key ? found : {value: undefined, problem: undefined};
  return [mine.value, mine.problem, () => setRound((n) => n + 1)];
}
