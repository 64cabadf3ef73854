// What a person must hear about: on the page, and as the browser's notifications where they are wanted.

import {whileHidden} from "../net.js";
import {useStore} from "../store.js";
import {html, useEffect, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Button, Shape, Words} from "./widgets.js";

/** @import {TimedRow} from "../known.d.ts" */

const KEPT = "gpu-tenant.notify";
const TOLD = "gpu-tenant.notified";
/** @type {TimedRow[]} */
const NONE = [];

/**
 * The lease that an alarm names, where it names one that is shown.
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
 * An alarm whose figures have moved on is the same alarm; of another lease or box it is another one.
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
  const note = new Notification("gpu-tenant", {
    body: alarm,
    tag: kindOf(alarm),
    icon: "/page/icon.svg",
  });
  note.onclick = () => {
    window.focus();
    location.hash = lease ? `#/lease/${encodeURIComponent(lease)}` : "#/";
    note.close();
  };
}

// Draws nothing: each alarm is notified once, and again only after it had gone.
export function Notifier() {
  const alarms = useStore((known) => known.overview?.alarms ?? null);
  const rows = useStore((known) => known.overview?.leases ?? NONE);
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
              "On: each alarm is shown once, also while this page is in the background. It must stay open.",
            )
          : t("Off. With them, each alarm is shown once by your browser while this page is open.")
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
