// The head of a lease's page: what and where it is, what ends it, what it costs, and its alarms.

import {leasePath} from "../net.js";
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Verbs} from "./actions.js";
import {BudgetLine, capWords, Fence, nameOf, Say, SinceThen, unseenWords} from "./leaserow.js";
import {Save} from "./save.js";
import {isFailed, isFree, isLive, isSilent, isStill, isWasted, phaseOf} from "./standing.js";
import {
  Copy,
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
/** @import {JobMoment, MemoryWanted, Sight} from "../types.d.ts" */

// -- who it is --------------------------------------------------------------

/**
 * Shows the name, the state, the place, and the actions.
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
      <h1>${gpuWords(row, seen)}</h1>
      ${card.name && html`<p class="called">${card.name}</p>`}
      <p class="lease-line">
        <${Pill} kind=${kind}>${words()}<//>
        ${
          isSilent(row) &&
          known(card.condition.to_do?.since_s) &&
          html`<span>${t("for")} <${SpanTicking} seconds=${card.condition.to_do.since_s} at=${row.at} /></span>`
        }
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
  const [first, ...others] = (seen?.gpus ?? []).map(({name}) => name);
  const found = first && (others.length > 0 ? `${first} x${others.length + 1}` : first);
  const name = row.gpu ?? (found || nameOf(row));
  return name === row.title
    ? name
    : html`${name} <span class="soft">${t("at")}</span> ${row.title}`;
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
 * Shows the alarms, the most urgent first, whether the box answers, and the unclaimed files.
 * @param {{detail: TimedDetail, blind?: Sight | null | undefined, seen: JobMoment | null}} properties
 */
export function Says({detail, blind, seen}) {
  const {row, alarms} = detail;
  const unseen = isLive(row) && isSilent(row) ? (blind ?? {words: row.blind, since: null}) : null;
  const rank = Object.keys(LOUD);
  const told = alarms.toSorted((one, other) => rank.indexOf(one.level) - rank.indexOf(other.level));
  const {alarm, unclaimed, published} = row.card;
  const more = alarm && !told.some(({words}) => words.includes(alarm) || alarm.includes(words));
  const over = isWasted(row);
  const still = row.card.phase === "parked" && row.card.jobs.length > 0;
  const taken = isStill(row) && !still && row.card.phase !== "parked";
  if (
    !unseen &&
    !more &&
    !over &&
    !still &&
    !taken &&
    !unclaimed &&
    published.length === 0 &&
    told.length === 0
  )
    return null;
  return html`<div class="lease-says">
    ${unseen && html`<${Unseen} row=${row} login=${detail.login} ...${unseen} />`}
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
    ${over && html`<${Over} row=${row} seen=${seen} />`}
    ${still && html`<${Parked} row=${row} />`}
    ${taken && html`<${Resumed} />`}
    ${
      unclaimed &&
      html`<p class="says is-warn">
        <${Shape} kind="warn" />
        <span><${Words} text=${unclaimed} /></span>
      </p>`
    }
    ${published.map(
      (/** @type {string} */ port) =>
        html`<p class="says">
          <${Shape} kind="warn" />
          <span>${t("open to the internet")}: <${Words} text=${port} /></span>
        </p>`,
    )}
  </div>`;
}

/**
 * Shows that the box does not answer, and how a person can find out why.
 * @param {{row: TimedRow, login: string, words?: string | null | undefined,
 *   since?: string | null | undefined}} properties
 */
function Unseen({row, login, words, since}) {
  return html`<p class="says is-warn" role="status">
    <${Shape} kind="warn" />
    <span>
      <strong>
        ${
          since
            ? html`${t("The box does not answer since")} <${When} at=${since} />.`
            : t("The box does not answer.")
        }
      </strong>
      ${" "}
      ${unseenWords({row})}
      ${" "}
      ${t("Nothing is stopped, started or destroyed on this alone.")}
      ${words && html` <span class="soft"><${Words} text=${words} /></span>`}
      ${
        login !== "none" &&
        html` ${t("To see for yourself:")} <${Copy} text=${`gpu-tenant ssh ${row.card.lease}`} />`
      }
    </span>
  </p>`;
}

/**
 * Shows a box that bills while nothing runs on it: why its job ended, and that ending the box loses nothing.
 * @param {{row: TimedRow, seen: JobMoment | null}} properties
 */
function Over({row, seen}) {
  const failed = isFailed(row);
  const lead = failed
    ? known(seen?.exit_code)
      ? t("Its job has failed, with exit code {code}.", {code: seen.exit_code})
      : t("Its job has failed.")
    : t("Its job has ended.");
  const {lease, jobs, price_usd_h: rate} = row.card;
  const job = row.job?.id ?? jobs.at(-1);
  const tone = failed ? "bad" : "warn";
  return html`<${Say} tone=${tone} shape=${tone} lead=${lead}>
    <${SinceThen} row=${row} />
    ${" "}
    ${
      known(rate)
        ? t("The box still costs {usd} until it is ended.", {usd: usdWords(rate, "h")})
        : t("The box bills on until it is torn down.")
    }
    ${" "}
    ${t("If collecting fails, nothing is destroyed: the box stays, and bills on.")}
    ${" "}
    ${
      job &&
      html`<a href=${`#/lease/${encodeURIComponent(lease)}/log/${encodeURIComponent(job)}`}>${t("Its log")}</a>`
    }
  <//>`;
}

/** @type {Record<string, () => string>} */
const PARKED_AFTER = {
  finished: () => t("Its job has finished."),
  failed: () => t("Its job has failed."),
  killed: () => t("Its job was killed."),
  stopped: () => t("Its job was stopped."),
};

/** @param {{row: TimedRow}} properties */
function Parked({row}) {
  const lead = PARKED_AFTER[row.ended ?? ""]?.() ?? t("The box is stopped, and its disk is kept.");
  return html`<${Say} tone=${row.ended ? "warn" : "soft"} shape="still" lead=${lead}>
    ${t(
      "Its files can be proved only while the box runs: to end it, it is started first. If no GPU is free, it stays as it is, and nothing is lost.",
    )}
  <//>`;
}

function Resumed() {
  return html`<${Say} tone="soft" lead=${t("If it is resumed:")}>
    ${t(
      "the box starts, and no job does. Launch the job again: it goes on from its last checkpoint, if it wrote one. If no GPU is free, nothing changes.",
    )}
  <//>`;
}

// -- a lease that is over, and has no receipt -------------------------------

const OVER = ["ended", "absent", "taken", "notice"];

/**
 * Shows how a lease ended that has no receipt, because its box never came, or was lost.
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
 * Shows the figures of a live lease.
 * @param {{detail: TimedDetail, seen: JobMoment | null}} properties
 */
export function Vitals({detail, seen}) {
  const {row, policy, memory} = detail;
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
          <${Fence} words=${fence} />
        </dd>
      </div>
      ${seen?.outlook && html`<${Outlook} words=${seen.outlook} />`}
      ${memory && html`<${Memory} wanted=${memory} />`}
    </dl>
    ${
      row.card.next &&
      html`<p class="next"><span class="soft">${t("Next:")}</span> <${Step} text=${row.card.next} /></p>`
    }
  </section>`;
}

/**
 * Shows whether the job ends before its budget and its deadline. If not, shows the command that gives it more time.
 * @param {{words: string}} properties
 */
function Outlook({words}) {
  const isShort = words.includes(" raises that ");
  return html`<div class="vital is-wide is-outlook">
    <dt>${t("Whether its job ends in time")}</dt>
    <dd class="words">
      ${isShort && html`<${Shape} kind="warn" />`} <${Step} text=${words} />
    </dd>
  </div>`;
}

/** @type {Record<string, Tone>} */
const FITS = {"too small": "bad", tight: "warn"};

/** @param {{wanted: MemoryWanted}} properties */
function Memory({wanted}) {
  const tone = FITS[wanted.fit ?? ""];
  return html`<div class="vital is-wide is-memory">
    <dt>${t("GPU memory, as estimated by its smoke test")}</dt>
    <dd class="words">
      <strong>${wanted.figures}</strong>${": "}
      ${tone && html`<${Shape} kind=${tone} />`} <${Words} text=${wanted.words} />
    </dd>
  </div>`;
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
      isStill(row) &&
      !isFree(row) &&
      html`<dd class="below">
        ${
          row.signed_ahead
            ? t("then its disk bills on for its rescue sum, and it is destroyed, as signed")
            : t("then nothing is destroyed, and its disk bills on")
        }
      </dd>`
    }
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

/**
 * Returns in how many seconds the budget is used up, if this is before the deadline. Otherwise null.
 * @param {TimedRow} row
 */
function usedUpIn({card}) {
  const {
    budget_usd: budget,
    cost_usd: spent,
    price_usd_h: rate,
    forecast_deadline_usd: told,
  } = card;
  if (!known(budget) || !known(spent) || !Number(rate) || Number(told ?? 0) <= Number(budget))
    return null;
  return Math.max(0, ((Number(budget) - Number(spent)) / Number(rate)) * 3600);
}

/** @param {{row: TimedRow}} properties */
function Spent({row}) {
  const {card, at} = row;
  const budget = known(card.budget_usd) ? Number(card.budget_usd) : null;
  const usedUp = usedUpIn(row);
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
      usedUp !== null &&
      html`<dd class="below is-bad">
        <${Shape} kind="bad" />${t("used up in about {span}", {span: spanWords(usedUp)})}
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
    <dt>${isStill(row) ? t("Its disk bills") : t("Rate now")}</dt>
    <dd class="figure"><${Money} usd=${card.price_usd_h} per="h" /></dd>
    ${
      known(card.leaking_usd_month) &&
      html`<dd class="below">
        ${t("{usd} a month, if left so", {usd: usdWords(card.leaking_usd_month)})}
      </dd>`
    }
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
