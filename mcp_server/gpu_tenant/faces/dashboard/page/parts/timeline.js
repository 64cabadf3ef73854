// Shows the recorded events of a lease, day by day.
import {html, useEffect, useMemo, useState} from "../vendor/htm-preact.js";
import {locale, t} from "../words.js";
import {now} from "./ticking.js";
import {Button, Empty, memo, Shape, spanWords, Words} from "./widgets.js";

/** @import {Line} from "../types.d.ts" */
/** @typedef {Line & {key: number}} Keyed */

/** @type {Record<string, string[]>} */
const KINDS = {
  good: ["ready", "resumed", "verified", "stored", "collected", "recovered", "prepared", "receipt"],
  bad: ["taken", "refused"],
  warn: ["notice", "absent", "waived", "waived ahead", "runs on", "stopped"],
  still: ["parking", "parked"],
  accent: ["launched", "gang", "brokered", "permitted", "bound", "intended", "ended"],
};
const QUIET = new Set(["progress", "price", "billed"]);
const LONG_S = 600; // a pause of this length is mentioned
const MINUTE_MS = 60_000;

/** @param {string} kind */
const kindOf = (kind) => Object.keys(KINDS).find((tone) => KINDS[tone].includes(kind)) ?? "soft";

/**
 * Shows the events. `events` has the oldest first, as the ledger; the newest are shown first.
 * @param {{events: Line[]}} properties
 */
export function Timeline({events}) {
  const [order, setOrder] = useState("newest");
  const [every, setEvery] = useState(false);
  const moment = useMinute(events);
  if (events.length === 0) return html`<${Empty} title=${t("Nothing has happened yet")} />`;
  const told = events
    .map((event, at) => ({...event, key: at}))
    .filter(({kind}) => every || !QUIET.has(kind));
  const quiet = events.length - events.filter(({kind}) => !QUIET.has(kind)).length;
  const days = byDay(order === "newest" ? told.toReversed() : told);
  return html`<section class="story" aria-labelledby="story-title">
    <header class="story-head">
      <h2 id="story-title">${t("What happened")}</h2>
      <${Button} kind="quiet" onClick=${() => setOrder(order === "newest" ? "oldest" : "newest")}>
        ${order === "newest" ? t("Newest first") : t("Oldest first")} ⇅
      <//>
      ${
        quiet > 0 &&
        html`<${Button} kind="quiet" aria-pressed=${String(every)} onClick=${() => setEvery(!every)}>
          ${t("Progress and prices too ({n})", {n: quiet})}
        <//>`
      }
    </header>
    ${days.map(
      ({day, lines}) => html`<section key=${day}>
        <h3>${day}</h3>
        <ol>
          ${lines.map(
            (line, at) => html`<${Line}
              key=${line.key}
              kind=${line.kind}
              at=${line.at}
              words=${line.words}
              apart=${apart(line, lines[at + 1])}
              moment=${moment}
            />`,
          )}
        </ol>
      </section>`,
    )}
  </section>`;
}

/**
 * Returns the time. It changes only every minute and with a new event, because a long timeline is slow to draw.
 * @param {Line[]} events
 */
function useMinute(events) {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((n) => n + 1), MINUTE_MS);
    return () => clearInterval(timer);
  }, []);
  return useMemo(now, [events, Math.floor(now() / MINUTE_MS)]);
}

const Line = memo(({kind, at, words, apart: seconds, moment}) => {
  const tone = kindOf(kind);
  return html`<li class="line is-${tone}">
    <time class="soft" datetime=${at}>
      ${new Date(at).toLocaleTimeString(locale(), {hour12: false})}
    </time>
    <${Shape} kind=${tone} />
    <p><span class="kind">${t(kind)}</span> <${Words} text=${words} /></p>
    <span class="ago soft small" title=${new Date(at).toString()}>
      ${agoWords((moment - Date.parse(at)) / 1000)}
    </span>
  </li>
  ${
    seconds >= LONG_S &&
    html`<li class="pause soft small" aria-hidden="true">${spanWords(seconds)}</li>`
  }`;
});

/** @param {number} seconds */
const agoWords = (seconds) =>
  seconds < 60 ? t("just now") : t("{span} ago", {span: spanWords(seconds)});

/**
 * @param {Line} one
 * @param {Line | undefined} other
 */
const apart = (one, other) =>
  other ? Math.abs(Date.parse(one.at) - Date.parse(other.at)) / 1000 : 0;

/** @param {Keyed[]} lines */
function byDay(lines) {
  /** @type {{day: string, lines: Keyed[]}[]} */
  const days = [];
  for (const line of lines) {
    const day = new Date(line.at).toLocaleDateString(locale(), {
      weekday: "long",
      day: "numeric",
      month: "long",
      year: "numeric",
    });
    const last = days.at(-1);
    if (last?.day === day) last.lines.push(line);
    else days.push({day, lines: [line]});
  }
  return days;
}
