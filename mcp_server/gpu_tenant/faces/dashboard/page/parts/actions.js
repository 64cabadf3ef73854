// The actions for a lease: the most suitable one as a button, the others in a menu. Each first shows what it will do.

import {leasePath, post} from "../net.js";
import {noteErrand, openAction, useStore} from "../store.js";
import {html, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Coming, useErrand} from "./errands.js";
import {costIn, extension, planOf, verbWords} from "./plans.js";
import {Sign} from "./signing.js";
import {isCalledFor} from "./standing.js";
import {now} from "./ticking.js";
import {Waiver} from "./waiver.js";
import {
  Button,
  Countdown,
  Dialog,
  Field,
  Money,
  Shape,
  spanWords,
  Trouble,
  usdWords,
  When,
  Words,
} from "./widgets.js";

/** @import {TimedRow, Tone, Typed, Usd} from "../known.d.ts" */
/** @import {Card, Errand} from "../types.d.ts" */
/** @import {Children} from "../vendor/htm-preact.js" */

/**
 * The button and the menu. `row` is the lease's row in the overview.
 * @param {{row: TimedRow}} properties
 */
export function Verbs({row}) {
  const [first, second, ...more] = row.verbs;
  const away = useStore((known) => known.link === "offline");
  // If the job costs more than it should, `stop` gets a button, too, and is not in the menu.
  const beside = second === "stop" && isCalledFor(row);
  const others = beside || !second ? more : [second, ...more];
  /** @param {string} verb */
  const choose = (verb) => openAction({verb, row});
  if (!first) return null;
  return html`<div class="verbs">
    <${Button}
      kind=${isCalledFor(row) ? "primary" : "plain"}
      disabled=${away}
      title=${away ? t("The dashboard's server does not answer") : undefined}
      onClick=${() => choose(first)}
    >
      ${verbWords(first)}
    <//>
    ${
      beside &&
      html`<${Button} disabled=${away} onClick=${() => choose(second)}>${verbWords(second)}<//>`
    }
    ${others.length > 0 && html`<${Menu} row=${row} verbs=${others} disabled=${away} onChoose=${choose} />`}
  </div>`;
}

// -- the menu ---------------------------------------------------------------

/**
 * @param {{row: TimedRow, verbs: string[], disabled: boolean,
 *   onChoose: (id: string) => void}} properties
 */
function Menu({row, verbs, disabled, onChoose}) {
  const button = useRef(null);
  const list = useRef(null);
  const [open, setOpen] = useState(false);
  const items = () => [...list.current.querySelectorAll("button")];

  /**
   * Places the list. It is in the top layer, so that a scrolling table does not cut it off.
   * @param {ToggleEvent} event
   */
  const placed = (event) => {
    const shown = event.newState === "open";
    setOpen(shown);
    if (!shown) return;
    const at = button.current.getBoundingClientRect();
    const {offsetHeight: height, offsetWidth: width} = list.current;
    const above = at.bottom + height + 8 > innerHeight && at.top > height + 8;
    list.current.style.top = `${above ? at.top - height - 4 : at.bottom + 4}px`;
    list.current.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
    items()[0].focus();
  };
  /** @param {KeyboardEvent} event */
  const moved = (event) => {
    const all = items();
    const at = all.indexOf(document.activeElement);
    const next = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1}[event.key];
    if (next !== undefined) {
      event.preventDefault();
      all[(next + all.length) % all.length].focus();
    } else if (event.key === "Tab") {
      list.current.hidePopover();
    }
  };
  /** @param {string} verb */
  const chosen = (verb) => {
    list.current.hidePopover();
    button.current.focus();
    onChoose(verb);
  };
  return html`<span class="menu">
    <button
      ref=${button}
      type="button"
      class="button is-plain more"
      disabled=${disabled}
      aria-haspopup="menu"
      aria-expanded=${String(open)}
      aria-label=${t("More for {lease}", {lease: row.card.lease})}
      onClick=${() => list.current.togglePopover()}
    >
      <svg class="shape" viewBox="0 0 12 12" aria-hidden="true">
        <circle cx="1.5" cy="6" r="1.4" />
        <circle cx="6" cy="6" r="1.4" />
        <circle cx="10.5" cy="6" r="1.4" />
      </svg>
    </button>
    <div
      ref=${list}
      class="menulist"
      popover="auto"
      role="menu"
      aria-label=${t("More for {lease}", {lease: row.card.lease})}
      onToggle=${placed}
      onKeyDown=${moved}
    >
      ${verbs.map(
        (verb) => html`<button
          key=${verb}
          type="button"
          role="menuitem"
          tabindex="-1"
          class=${verb === "waive" ? "is-last" : ""}
          onClick=${() => chosen(verb)}
        >
          ${verbWords(verb)}
          …
        </button>`,
      )}
    </div>
  </span>`;
}

// -- one action -------------------------------------------------------------

/**
 * The dialog of one action: what it will do, then its progress, then its result. If it is closed, the action goes on.
 * `began` is the row when the dialog was opened; if the lease ends, it has no row any more.
 * `begins` are the first values of the dialog's fields.
 * @param {{row: TimedRow, verb: string, begins?: Record<string, any>, onClose: () => void}} properties
 */
export function Action({row: began, verb, begins, onClose}) {
  const row = useNewest(began);
  const [doing, setDoing] = useState(verb);
  const [begun, setBegun] = useState(null);
  const title = t("{verb}: {lease}", {verb: verbWords(doing), lease: row.card.lease});
  /** @param {Errand} errand */
  const begin = (errand) => {
    noteErrand(errand);
    setBegun(errand);
  };
  const [sent, setSent] = useState(/** @type {Record<string, any>} */ ({}));
  // Makes the same request again after a person has signed for it.
  const again = async () => begin(await post(`${leasePath(row.card.lease)}/${verb}`, sent));
  const waive = () => {
    setDoing("waive");
    setBegun(null);
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${
      begun
        ? html`<${Underway} begun=${begun} row=${row} again=${again} onWaiver=${waive} onClose=${onClose} />`
        : doing === "waive"
          ? html`<${Waiver} row=${row} onBegun=${begin} onClose=${onClose} />`
          : html`<${Plan}
            row=${row}
            verb=${verb}
            begins=${begins}
            onSent=${setSent}
            onBegun=${begin}
            onClose=${onClose}
          />`
    }
  <//>`;
}

/**
 * Returns the newest row of the lease.
 * @param {TimedRow} row
 */
function useNewest(row) {
  const told = useStore((known) =>
    known.overview?.leases.find(({card}) => card.lease === row.card.lease),
  );
  const last = useRef(row);
  if (told) last.current = told;
  return last.current;
}

const KEPT_OUT = [undefined, null, "", NaN];
/** @param {Record<string, any>} body */
const said = (body) =>
  Object.fromEntries(Object.entries(body).filter(([, value]) => !KEPT_OUT.includes(value)));

/**
 * @param {{row: TimedRow, verb: string, begins?: Record<string, any>,
 *   onSent: (body: Record<string, any>) => void, onBegun: (errand: Errand) => void,
 *   onClose: () => void}} properties
 */
function Plan({row, verb, begins, onSent, onBegun, onClose}) {
  const plan = planOf(verb, row);
  const [body, setBody] = useState(() => ({...START[verb]?.(row), ...begins}));
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const Fields = FIELDS[verb];
  /** @param {Event} event */
  const begin = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      onSent(said(body));
      onBegun(await post(`${leasePath(row.card.lease)}/${verb}`, said(body)));
    } catch (refusal) {
      setProblem(refusal);
      setBusy(false);
    }
  };
  return html`<form class="plan" onSubmit=${begin}>
    ${
      Fields &&
      html`<${Fields} row=${row} body=${body} change=${(news) => setBody({...body, ...news})} />`
    }
    <dl>
      <${Part} kind="accent" title=${t("What happens")} lines=${plan.will} />
      <${Part} kind="wait" title=${t("What it costs")} lines=${plan.costs} />
      <${Part} kind="soft" title=${t("What it does not do")} lines=${plan.wont} />
    </dl>
    ${
      plan.runbook &&
      html`<p class="soft">
        <a href=${`/runbooks/${row.card.provider}`} target="_blank">
          ${t("The runbook of {title}", {title: row.title})}
        </a>
      </p>`
    }
    ${problem && html`<${Trouble} problem=${problem} />`}
    <footer class="choice">
      <${Button} onClick=${onClose}>${t("Leave it as it is")}<//>
      <${Button} type="submit" kind="primary" busy=${busy}>${verbWords(verb)}<//>
    </footer>
  </form>`;
}

/** @param {{kind: Tone, title: string, lines: string[]}} properties */
function Part({kind, title, lines}) {
  if (lines.length === 0) return null;
  return html`<div>
    <dt><${Shape} kind=${kind} />${title}</dt>
    ${lines.map((line) => html`<dd key=${line}>${line}</dd>`)}
  </div>`;
}

/**
 * @param {{begun: Errand, row: TimedRow, again: () => Promise<void>, onWaiver: () => void,
 *   onClose: () => void}} properties
 */
function Underway({begun, row, again, onWaiver, onClose}) {
  const errand = useErrand(begun);
  const [signing, setSigning] = useState(/** @type {string | null} */ (null));
  const asked = errand?.error?.asked;
  if (asked && signing === asked)
    return html`<${Sign}
      code=${asked}
      action=${t("Sign, and go on")}
      onSigned=${again}
      onClose=${onClose}
    />`;
  const refused =
    errand?.state === "failed" &&
    ["teardown", "end", "resume_and_end"].includes(errand.verb) &&
    row.verbs.includes("waive");
  return html`<div class="underway">
    <${Coming} errand=${errand} />
    ${
      errand?.state === "running" &&
      html`<p class="soft">${t("This goes on when you close the window or the page.")}</p>`
    }
    ${
      asked &&
      html`<p>
        <${Button} kind="primary" onClick=${() => setSigning(asked)}>${t("Look and sign")}<//>
      </p>`
    }
    ${
      refused &&
      html`<section class="wayout">
        <h3>${t("Nothing was destroyed")}</h3>
        <p>
          ${t(
            "Do what is named above and try again; that loses nothing. If what is left may be lost, its owner can sign for exactly that.",
          )}
        </p>
        <${Button} kind="quiet" onClick=${onWaiver}>${t("See what would be lost…")}<//>
      </section>`
    }
    <footer class="choice"><${Button} onClick=${onClose}>${t("Close")}<//></footer>
  </div>`;
}

// -- what is asked ----------------------------------------------------------

const SPARE = 1.1; // the job's estimated need is filled in with a tenth to spare

/** @param {Card} card */
const hoursLeft = (card) => Math.max(0, Math.ceil((card.deadline_in_s ?? 0) / 3600));

/**
 * Returns the hours from now that the job needs. Null if its deadline is late enough, or if this is unknown.
 * @param {Card} card
 */
function neededHours({job_ends_in_s: ends, deadline_in_s: left}) {
  if (ends === null || ends <= (left ?? 0)) return null;
  return Math.ceil((ends * SPARE) / 3600);
}

/**
 * Returns the total budget that lasts for so many hours, but not less than the present budget.
 * @param {Card} card
 * @param {number} hours
 */
function neededBudget(card, hours) {
  const lasts = costIn(card, hours) ?? Number(card.forecast_job_usd ?? 0) * SPARE;
  // Round up, because the cost grows while the person reads and signs.
  const needed = Math.ceil(lasts * 10 + 1) / 10;
  return Math.max(needed, Number(card.budget_usd ?? 0));
}

/** @param {TimedRow} row */
const later = ({card}) => ({hours: (card.deadline_in_s ?? 0) > 0 ? undefined : 4});

/** @type {Record<string, (row: TimedRow) => Record<string, any>>} */
const START = {
  extend: ({card}) => ({hours: neededHours(card) ?? hoursLeft(card) + 4}),
  give_more({card}) {
    const hours = neededHours(card) ?? Math.max(hoursLeft(card), 1);
    return {budget_usd: neededBudget(card, hours), hours};
  },
  resume: later,
  resume_and_end: later,
  stop: () => ({grace_s: 20}),
  stop_and_park: () => ({grace_s: 20}),
};

/** @param {Typed} event */
const typed = (event) => (event.target.value === "" ? undefined : event.target.valueAsNumber);
/** @param {Typed} event */
const lines = (event) =>
  event.target.value
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
/** @param {string[]} list */
const patterns = (list) => (list.length === 0 ? undefined : list);

/**
 * @param {{value: number | undefined, change: (news: Record<string, any>) => void,
 *   hint?: Children, required?: boolean}} properties
 */
function Hours({value, change, hint, required}) {
  return html`<${Field} label=${t("Hours from now")} hint=${hint}>
    <input
      type="number"
      autofocus
      min="0.1"
      max="8760"
      step="any"
      required=${required}
      value=${value}
      onInput=${(event) => change({hours: typed(event)})}
    />
  <//>`;
}

/**
 * The fields for which job to stop, and how long it may save its work.
 * @param {{row: TimedRow, body: Record<string, any>,
 *   change: (news: Record<string, any>) => void}} properties
 */
function Stopping({row, body, change}) {
  const jobs = row.card.jobs.filter((/** @type {string} */ job) => !job.includes(" "));
  return html`<div class="asked">
    ${
      jobs.length > 1 &&
      html`<${Field} label=${t("Job")}>
        <select onChange=${(event) => change({job: event.target.value || undefined})}>
          <option value="">${t("The newest")}</option>
          ${jobs.map((/** @type {string} */ job) => html`<option key=${job}>${job}</option>`)}
        </select>
      <//>`
    }
    <${Field}
      label=${t("Grace in seconds")}
      hint=${t("Time to save a checkpoint after it was asked.")}
    >
      <input
        type="number"
        min="0"
        max="600"
        required
        value=${body.grace_s}
        onInput=${(event) => change({grace_s: typed(event)})}
      />
    <//>
  </div>`;
}

/**
 * The fields for a new deadline, if one is needed, and for the box's new address.
 * @param {{row: TimedRow, body: Record<string, any>,
 *   change: (news: Record<string, any>) => void}} properties
 */
function Resuming({row, body, change}) {
  const late = (row.card.deadline_in_s ?? 0) <= 0;
  return html`<div class="asked">
    <${Hours}
      value=${body.hours}
      change=${change}
      required=${late}
      hint=${
        late
          ? t("The deadline has passed: say a new one.")
          : t("A new deadline; left empty, it stays.")
      }
    />
    <${Field}
      label=${t("Address")}
      hint=${t("Only where the console shows a new one: user@host:port, or its ssh command.")}
    >
      <input
        type="text"
        autocomplete="off"
        spellcheck=${false}
        placeholder=${row.card.address ?? ""}
        onInput=${(event) => change({address: event.target.value.trim()})}
      />
    <//>
  </div>`;
}

/** @type {Record<string, Function>} */
const FIELDS = {
  resume: Resuming,
  resume_and_end: Resuming,
  /**
   * A new budget and a new deadline together, because the job needs both to finish.
   * @param {{row: TimedRow, body: Record<string, any>,
   *   change: (news: Record<string, any>) => void}} properties
   */
  give_more({row: {card}, body, change}) {
    return html`<div class="asked">
      <p>
        ${t(
          "At its present pace its job needs about {usd} in all, and {span} from now: a tenth more is filled in.",
          {
            usd: usdWords(card.forecast_job_usd ?? 0),
            span: spanWords(card.job_ends_in_s ?? 0),
          },
        )}
      </p>
      <div class="fields">
        <${Field} label=${t("Budget in all, USD")}>
          <input
            type="number"
            inputmode="decimal"
            min="0"
            step="any"
            required
            value=${body.budget_usd}
            onInput=${(/** @type {Typed} */ event) => change({budget_usd: typed(event)})}
          />
        <//>
        <${Hours} value=${body.hours} change=${change} required />
      </div>
      <dl class="sums">
        <div>
          <dt>${t("New deadline")}</dt>
          <dd><${When} at=${now() + (body.hours ?? 0) * 3600_000} /></dd>
        </div>
      </dl>
    </div>`;
  },
  /**
   * @param {{row: TimedRow, body: Record<string, any>,
   *   change: (news: Record<string, any>) => void}} properties
   */
  extend({row, body, change}) {
    const hours = body.hours ?? 0;
    const {then, more, over} = extension(row, hours);
    return html`<div class="asked">
      <${Hours}
        value=${body.hours}
        change=${change}
        required
        hint=${t("Counted from now, and not added to what is left.")}
      />
      <dl class="sums">
        <div>
          <dt>${t("Deadline now")}</dt>
          <dd><${Countdown} seconds=${row.card.deadline_in_s ?? 0} at=${row.at} /></dd>
        </div>
        <div><dt>${t("New deadline")}</dt><dd><${When} at=${now() + hours * 3600_000} /></dd></div>
        <div>
          <dt>${t("Spent by then, at this rate")}</dt>
          <dd><strong><${Money} usd=${then} /></strong></dd>
        </div>
        ${
          more !== null &&
          html`<div>
            <dt>
              ${
                more < 0
                  ? t("Less than with the deadline now")
                  : t("More than with the deadline now")
              }
            </dt>
            <dd><${Money} usd=${Math.abs(more)} /></dd>
          </div>`
        }
      </dl>
      ${over && html`<p class="caution"><${Shape} kind="warn" /><${Words} text=${over} /></p>`}
    </div>`;
  },
  stop: Stopping,
  stop_and_park: Stopping,
  /**
   * The fields for the terms. Only changed terms are sent.
   * @param {{row: TimedRow, change: (news: Record<string, any>) => void}} properties
   */
  terms({row: {card}, change}) {
    /**
     * @param {string} name
     * @param {string} label
     * @param {Usd} now
     * @param {string} [hint]
     */
    const sum = (name, label, now, hint) => html`<${Field} label=${label} hint=${hint}>
      <input
        type="number"
        inputmode="decimal"
        min="0"
        step="any"
        placeholder=${now ?? t("none")}
        onInput=${(event) => change({[name]: typed(event)})}
      />
    <//>`;
    return html`<div class="asked">
      <${Field} label=${t("Name")} hint=${t("Project, name and tags, for lists and sums.")}>
        <input
          type="text"
          autofocus
          autocomplete="off"
          spellcheck=${false}
          maxlength="400"
          placeholder=${card.name || "llama/first try #paper"}
          onInput=${(event) => change({name: event.target.value.trim()})}
        />
      <//>
      <div class="fields">
        ${sum("budget_usd", t("Budget in all, USD"), card.budget_usd)}
        ${sum("max_price_usd_h", t("At most, USD an hour"), card.max_price_usd_h)}
        ${sum("idle_h", t("Ended when idle for hours"), t("as it is"), t("0: never."))}
        <${Field} label=${t("When its work is done")}>
          <select onChange=${(event) => change({when_done: event.target.value})}>
            <option value="">${t("as it is")}</option>
            <option value="end">${t("end it, once all is proved")}</option>
            <option value="park">${t("park it")}</option>
            <option value="keep">${t("keep it")}</option>
          </select>
        <//>
      </div>
    </div>`;
  },
  /** @param {{body: Record<string, any>, change: (news: Record<string, any>) => void}} properties */
  collect({body, change}) {
    const [started] = useState({
      artifacts: (body.artifacts ?? []).join("\n"),
      discard: (body.discard ?? []).join("\n"),
    });
    return html`<details class="asked" open=${Boolean(body.artifacts || body.discard)}>
      <summary>${t("Where to, and which files")}</summary>
      <${Field}
        label=${t("Directory on this computer")}
        hint=${t("Left empty: where this lease keeps its files.")}
      >
        <input
          type="text"
          autocomplete="off"
          spellcheck=${false}
          onInput=${(event) => change({to: event.target.value.trim()})}
        />
      <//>
      <${Field} label=${t("Keep these, too")} hint=${t("A pattern a line, as in .gitignore.")}>
        <textarea
          rows="2"
          spellcheck=${false}
          onInput=${(event) => change({artifacts: patterns(lines(event))})}
        >${started.artifacts}</textarea>
      <//>
      <${Field}
        label=${t("Give these up")}
        hint=${t("What matches is not fetched and is lost with the box. A pattern a line.")}
      >
        <textarea
          rows="2"
          spellcheck=${false}
          onInput=${(event) => change({discard: patterns(lines(event))})}
        >${started.discard}</textarea>
      <//>
    </details>`;
  },
};
