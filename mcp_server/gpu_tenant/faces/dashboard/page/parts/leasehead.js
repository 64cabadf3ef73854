// How a lease stands at a glance: what and where it is, what ends it, what it costs, and what a person must hear.

import {leasePath} from "../net.js";
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Verbs} from "./actions.js";
import {BudgetLine, capWords} from "./leaserow.js";
import {Save} from "./save.js";
import {isFree, isLive, isStill, phaseOf} from "./standing.js";
import {
  Countdown,
  known,
  Money,
  MoneyTicking,
  Pill,
  Shape,
  Span,
  SpanTicking,
  Step,
  spanWords,
  usdWords,
  When,
  Words,
} from "./widgets.js";

/** @import {TimedDetail, TimedRow, Tone} from "../known.d.ts" */
/** @import {JobMoment, Sight} from "../types.d.ts" */

// -- who it is --------------------------------------------------------------

/**
 * The name, the state, where it is, and what can be done.
 * @param {{detail: TimedDetail, seen: JobMoment | null}} properties
 */
export function Head({detail, seen}) {
  const {row, lease} = detail;
  const {card} = row;
  const {kind, words} = phaseOf(row);
  return html`<header class="lease-head">
    <div class="lease-who">
      <p class="soft small">
        <a href="#/">${t("All leases")}</a> / <span class="mono">${card.lease}</span>
      </p>
      <h1>${gpuWords(row, seen)} <span class="soft">${t("at")}</span> ${row.title}</h1>
      ${card.name && html`<p class="called">${card.name}</p>`}
      <p class="lease-line">
        <${Pill} kind=${kind}>${words()}<//>
        ${
          isLive(row) &&
          html`<span>${t("age")} <${SpanTicking} seconds=${card.age_s} at=${row.at} /></span>`
        }
        ${
          card.address
            ? html`<span class="soft">${card.address}</span>`
            : card.box && html`<span class="soft">${t("box {box}", {box: card.box})}</span>`
        }
        ${card.fleet && html`<span class="soft">${t("fleet {fleet}", {fleet: card.fleet})}</span>`}
        ${
          lease.recovers &&
          html`<span class="soft">
            ${t("goes on with")}
            ${" "}
            <a href=${`#/lease/${encodeURIComponent(lease.recovers)}`}>${lease.recovers}</a>
          </span>`
        }
      </p>
    </div>
    <div class="lease-do"><${Verbs} row=${row} /><${Report} lease=${card.lease} /></div>
  </header>`;
}

/**
 * @param {TimedRow} row
 * @param {JobMoment | null} seen
 */
function gpuWords(row, seen) {
  if (row.gpu) return row.gpu;
  if (!seen || seen.gpus.length === 0) return t("GPU unknown");
  return seen.gpus.length === 1 ? seen.gpus[0].name : `${seen.gpus[0].name} x${seen.gpus.length}`;
}

/** @param {{lease: string}} properties */
function Report({lease}) {
  /** @param {string} form */
  const path = (form) => `${leasePath(lease)}/report?form=${form}`;
  return html`<div class="report">
    <span class="soft small">${t("Report")}</span>
    <${Save}
      path=${path("html")}
      name=${`${lease}.html`}
      aria-label=${t("Save the report as HTML")}
    >HTML<//>
    <${Save}
      path=${path("md")}
      name=${`${lease}.md`}
      aria-label=${t("Save the report as Markdown")}
    >Markdown<//>
  </div>`;
}

// -- what a person must hear ------------------------------------------------

/** @type {Record<string, Tone>} */
const LOUD = {urgent: "bad", warning: "warn", notice: "soft"};

/**
 * Alarms, the loudest first, whether the box can be asked, and which files nobody has claimed.
 * @param {{detail: TimedDetail, blind?: Sight | null | undefined}} properties
 */
export function Says({detail, blind}) {
  const {row, alarms} = detail;
  const unseen = blind ?? (row.blind && isLive(row) ? {words: row.blind, since: null} : null);
  const rank = Object.keys(LOUD);
  const told = alarms.toSorted((one, other) => rank.indexOf(one.level) - rank.indexOf(other.level));
  const {alarm, unclaimed} = row.card;
  const more = alarm && !told.some(({words}) => words.includes(alarm) || alarm.includes(words));
  if (!unseen && !more && !unclaimed && told.length === 0) return null;
  return html`<div class="lease-says">
    ${
      unseen &&
      html`<p class="says is-warn" role="status">
        <${Shape} kind="warn" />
        <span>
          <strong>
            ${
              unseen.since
                ? html`${t("The box does not answer since")} <${When} at=${unseen.since} />.`
                : t("The box does not answer.")
            }
          </strong>
          ${" "}
          ${t(
            "That is unknown, and not dead: it may be running and billing. Nothing is stopped, started or destroyed on this alone.",
          )}
          ${unseen.words && html` <span class="soft"><${Words} text=${unseen.words} /></span>`}
        </span>
      </p>`
    }
    ${
      more &&
      html`<p class="says is-bad">
        <${Shape} kind="bad" />
        <span><${Words} text=${row.card.alarm} /></span>
      </p>`
    }
    ${told.map(
      ({words, level, since}) => html`<p key=${words} class="says is-${LOUD[level] ?? "warn"}">
        <${Shape} kind=${LOUD[level] ?? "warn"} />
        <span>
          <${Words} text=${words} />
          ${" "}
          <span class="soft small">${t("since")} <${When} at=${since} /></span>
        </span>
      </p>`,
    )}
    ${
      unclaimed &&
      html`<p class="says is-warn">
        <${Shape} kind="warn" />
        <span><${Words} text=${unclaimed} /></span>
      </p>`
    }
  </div>`;
}

// -- a lease that is over, and has no receipt -------------------------------

const OVER = ["ended", "absent", "taken", "notice"];

/**
 * How a lease ended whose box never came, or was lost: nothing of it counts on.
 * @param {{detail: TimedDetail}} properties
 */
export function Ended({detail}) {
  const {row, lease, events} = detail;
  const {kind, words} = phaseOf(row);
  const why = OVER.flatMap((wanted) => events.filter((event) => event.kind === wanted).slice(-1));
  return html`<section class="vitals" aria-label=${t("How it ended")}>
    <dl>
      <div class="vital">
        <dt>${t("How it ended")}</dt>
        <dd class="figure"><${Pill} kind=${kind}>${words()}<//></dd>
        <dd class="below"><${When} at=${lease.ended_at} /></dd>
      </div>
      <div class="vital">
        <dt>${t("It cost")}</dt>
        <dd class="figure">
          ${isFree(row) ? t("nobody bills") : html`<${Money} usd=${row.card.cost_usd} />`}
        </dd>
        ${
          row.card.counts &&
          !isFree(row) &&
          html`<dd class="below soft"><${Words} text=${row.card.counts} /></dd>`
        }
      </div>
      ${
        why.length > 0 &&
        html`<div class="vital is-fence">
          <dt>${t("What is known of it")}</dt>
          ${why.map(
            ({kind: told, at, words: said}) =>
              html`<dd key=${told} class="words"><${When} at=${at} /> <${Words} text=${said} /></dd>`,
          )}
        </div>`
      }
    </dl>
  </section>`;
}

// -- what ends it, and what it costs ----------------------------------------

/**
 * The figures of a lease that lives.
 * @param {{detail: TimedDetail}} properties
 */
export function Vitals({detail}) {
  const {row, policy} = detail;
  const fence = policy?.if_this_computer_dies ?? row.card.stops_the_meter;
  const open = fence.startsWith("nothing ends");
  return html`<section class="vitals" aria-label=${t("How it stands")}>
    <dl>
      <${Deadline} row=${row} />
      <${Spent} row=${row} />
      <${Rate} row=${row} />
      <div class="vital is-fence">
        <dt>${t("If this computer dies")}</dt>
        <dd class="words ${open ? "is-open" : ""}">
          ${open && html`<${Shape} kind="warn" />`}
          <${Words} text=${fence} />
        </dd>
      </div>
    </dl>
    ${
      row.card.next &&
      html`<p class="next"><span class="soft">${t("Next:")}</span> <${Step} text=${row.card.next} /></p>`
    }
  </section>`;
}

/** @param {{row: TimedRow}} properties */
function Deadline({row}) {
  const {card, at} = row;
  const ends = card.job_ends_in_s;
  const left = card.deadline_in_s ?? 0;
  const spare = known(ends) ? left - ends : null;
  return html`<div class="vital">
    <dt>${isStill(row) ? t("Deadline, though parked") : t("Deadline in")}</dt>
    <dd class="figure"><${Countdown} seconds=${left} at=${at} /></dd>
    <dd class="below">
      <${When} at=${new Date(Date.parse(at) + left * 1000).toISOString()} />
    </dd>
    ${
      spare !== null &&
      html`<dd class="below ${spare < 0 ? "is-bad" : ""}">
        ${
          spare < 0
            ? html`<${Shape} kind="bad" />
            ${t("its job ends {span} too late", {span: spanWords(-spare)})}`
            : html`${t("its job ends in")} <${Span} seconds=${ends} />`
        }
      </dd>`
    }
  </div>`;
}

/** @param {{row: TimedRow}} properties */
function Spent({row}) {
  const {card, at} = row;
  const budget = known(card.budget_usd) ? Number(card.budget_usd) : null;
  return html`<div class="vital">
    <dt>${t("Spent so far")}</dt>
    <dd class="figure">
      ${
        isFree(row)
          ? t("nobody bills")
          : html`<${MoneyTicking} usd=${card.cost_usd} rate=${card.price_usd_h} at=${at} />`
      }
    </dd>
    ${
      budget &&
      html`<dd class="below">
        ${
          known(card.cost_usd) &&
          html`<${BudgetLine}
            spent=${card.cost_usd}
            told=${card.forecast_deadline_usd}
            budget=${budget}
          />`
        }
        ${t("of a budget of {usd}", {usd: usdWords(budget)})}
      </dd>`
    }
    ${
      known(card.forecast_job_usd) &&
      html`<dd class="below">
        ${t("about {usd} at its job's end", {usd: usdWords(card.forecast_job_usd)})}
      </dd>`
    }
    ${
      known(card.forecast_deadline_usd) &&
      html`<dd class="below">
        ${t("{usd} at the deadline", {usd: usdWords(card.forecast_deadline_usd)})}
      </dd>`
    }
    ${
      card.counts &&
      !isFree(row) &&
      html`<dd class="below soft"><${Words} text=${card.counts} /></dd>`
    }
  </div>`;
}

/** @param {{row: TimedRow}} properties */
function Rate({row}) {
  const {card} = row;
  if (isFree(row))
    return html`<div class="vital"><dt>${t("Rate now")}</dt><dd class="figure">${t("nobody bills")}</dd></div>`;
  return html`<div class="vital">
    <dt>${isStill(row) ? t("Leaking") : t("Rate now")}</dt>
    <dd class="figure">
      ${
        isStill(row)
          ? html`<${Money} usd=${card.leaking_usd_month} per="month" />`
          : html`<${Money} usd=${card.price_usd_h} per="h" />`
      }
    </dd>
    ${
      known(card.running_usd_h) &&
      html`<dd class="below"><${Money} usd=${card.running_usd_h} per="h" /> ${t("once it runs")}</dd>`
    }
    ${
      known(card.max_price_usd_h) &&
      html`<dd class="below">${t("capped at {usd}", {usd: capWords(card)})}</dd>`
    }
  </div>`;
}
