// Shows alarms: on the page, and as notifications of the browser if the person wants these.

import {whileHidden} from "../net.js";
import {useStore} from "../store.js";
import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Button, Shape, Words} from "./widgets.js";

/** @import {TimedRow} from "../known.d.ts" */

const KEPT = "gpu-tenant.notify";
const TOLD = "gpu-tenant.notified";
/** @type {TimedRow[]} */
const NONE = [];

/**
 * Returns the lease that an alarm names, if it is one of those that are shown.
 * @param {string} alarm
 * @param {TimedRow[]} rows
 */
function leaseOf(alarm, rows) {
  const words = new Set(alarm.split(/[\s:,;()`'"]+/));
  return rows.find(({card}) => words.has(card.lease))?.card.lease ?? null;
}

/** @param {{alarms: string[]}} properties */
export function Alarms({alarms}) {
  const rows = useStore((known) => known.overview?.leases ?? NONE);
  if (alarms.length === 0) return null;
  return html`<section class="alarms" role="alert" aria-labelledby="alarms-title">
    <h2 id="alarms-title">
      <${Shape} kind="bad" />
      ${alarms.length === 1 ? t("1 alarm") : t("{n} alarms", {n: alarms.length})}
    </h2>
    <ul>
      ${alarms.map(
        (alarm) =>
          html`<li key=${alarm}><${Alarm} words=${alarm} lease=${leaseOf(alarm, rows)} /></li>`,
      )}
    </ul>
  </section>`;
}

/** @param {{words: string, lease: string | null}} properties */
function Alarm({words, lease}) {
  if (!lease) return html`<${Words} text=${words} />`;
  const [before, ...after] = words.split(lease);
  return html`<${Words} text=${before} />
  <a href=${`#/lease/${encodeURIComponent(lease)}`}>${lease}</a>
  <${Words} text=${after.join(lease)} />`;
}

// -- notifications ----------------------------------------------------------

const supported = () => "Notification" in window;
const wanted = () =>
  supported() && Notification.permission === "granted" && localStorage.getItem(KEPT) === "yes";

/**
 * Returns a text that is the same for an alarm whose figures have changed, but differs for another lease or box.
 * @param {string} alarm
 */
const kindOf = (alarm) =>
  alarm.replace(/\bbox \S+|[a-z]\w*(?:-\w+)+|\d+(?:\.\d+)?/gi, (words) =>
    /^\d/.test(words) ? "#" : words,
  );

function told() {
  try {
    return new Set(JSON.parse(localStorage.getItem(TOLD) ?? "[]"));
  } catch {
    return new Set();
  }
}

/**
 * @param {string} alarm
 * @param {string | null} lease
 */
function notify(alarm, lease) {
  show(alarm, kindOf(alarm), lease ? `#/lease/${encodeURIComponent(lease)}` : "#/");
}

/**
 * @param {string} body
 * @param {string} tag one notification of a tag is shown, however many tabs are open
 * @param {string} place
 */
function show(body, tag, place) {
  const note = new Notification("gpu-tenant", {
    body,
    tag,
    icon: "/page/icon.svg",
  });
  note.onclick = () => {
    window.focus();
    location.hash = place;
    note.close();
  };
}

/** @type {Record<string, (values: Record<string, string>) => string>} */
const ENDS = {
  finished: (values) => t("The job {job} on {lease} has finished.", values),
  failed: (values) => t("The job {job} on {lease} has failed.", values),
  killed: (values) => t("The job {job} on {lease} was killed.", values),
  stopped: (values) => t("The job {job} on {lease} was stopped.", values),
};

/**
 * Notifies of each job that this page has seen running, and that has ended now.
 * @param {TimedRow[]} rows
 * @param {Map<string, string>} seen the state of each job at the look before
 */
function tellEnds(rows, seen) {
  for (const {card, job} of rows) {
    if (!job) continue;
    const key = `${card.lease}/${job.id}`;
    const before = seen.get(key);
    seen.set(key, job.state);
    const words = ENDS[job.state];
    if (!words || before === undefined || before in ENDS || !wanted()) continue;
    const place = `#/lease/${encodeURIComponent(card.lease)}/job/${encodeURIComponent(job.id)}`;
    show(words({job: job.id, lease: card.lease}), `${key} ${job.state}`, place);
  }
}

// Draws nothing. Notifies of each alarm once, and again only if it had ended in between.
export function Notifier() {
  const alarms = useStore((known) => known.overview?.alarms ?? null);
  const rows = useStore((known) => known.overview?.leases ?? NONE);
  const seen = useRef(/** @type {Map<string, string>} */ (new Map()));
  useEffect(() => tellEnds(rows, seen.current), [rows]);
  useEffect(() => whileHidden(wanted() ? "open" : "closed"), []);
  useEffect(() => {
    if (alarms === null || !wanted()) return;
    const before = told();
    localStorage.setItem(TOLD, JSON.stringify(alarms.map(kindOf)));
    for (const alarm of alarms) {
      if (!before.has(kindOf(alarm))) notify(alarm, leaseOf(alarm, rows));
    }
  }, [alarms]);
  return null;
}

export function NotifySwitch() {
  const [on, setOn] = useState(wanted);
  const [blocked, setBlocked] = useState(supported() && Notification.permission === "denied");
  const turn = async () => {
    const next = !on && (await Notification.requestPermission()) === "granted";
    localStorage.setItem(KEPT, next ? "yes" : "no");
    whileHidden(next ? "open" : "closed");
    setOn(next);
    setBlocked(Notification.permission === "denied");
  };
  if (!supported()) return html`<p>${t("This browser has no notifications.")}</p>`;
  return html`<div>
    <p>
      ${
        on
          ? t(
              "On: each alarm and each end of a job is shown once, also while this page is in the background. It must stay open.",
            )
          : t(
              "Off. With them, your browser shows each alarm and each end of a job once, while this page is open.",
            )
      }
    </p>
    ${
      blocked &&
      html`<p class="caution">
        <${Shape} kind="warn" />
        ${t(
          "Your browser blocks notifications of this page; its settings for this address allow them again.",
        )}
      </p>`
    }
    <p>
      <${Button} disabled=${blocked && !on} onClick=${turn}>
        ${on ? t("Turn off") : t("Turn on notifications")}
      <//>
    </p>
  </div>`;
}
