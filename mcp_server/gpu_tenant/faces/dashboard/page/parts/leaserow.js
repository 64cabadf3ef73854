// The row of one lease in the overview: what it is, what it does, what it costs, what ends it, what to do.
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Verbs} from "./actions.js";
import {
  endedOf,
  isFailed,
  isFree,
  isLive,
  isSilent,
  isStill,
  isWasted,
  jobStateOf,
  phaseOf,
} from "./standing.js";
import {
  Ago,
  amount,
  Countdown,
  known,
  Money,
  MoneyTicking,
  memo,
  Pill,
  Progress,
  Shape,
  Span,
  SpanTicking,
  usdWords,
  When,
  Words,
} from "./widgets.js";

/** @import {TimedRow, Tone, Usd, Way} from "../known.d.ts" */
/** @import {Card, Gpu, Sight, Working} from "../types.d.ts" */
/** @import {Children} from "../vendor/htm-preact.js" */

/**
 * Returns the lease's GPU. If it is unknown, returns whose machine it is.
 * @param {TimedRow} row
 */
export const nameOf = ({gpu, kind, title}) => gpu ?? (kind === "own" ? title : t("GPU unknown"));

/** @param {{name: string, label: Children, children: Children, below?: Children}} properties */
function Cell({name, label, children, below}) {
  return html`<div class="cell is-${name}">
    <dt>${label}</dt>
    <dd>${children}</dd>
    ${below && html`<dd class="below">${below}</dd>`}
  </div>`;
}

// -- the job ----------------------------------------------------------------

/**
 * Writes a metric with four digits. A number in the thousands is written without decimals.
 * @param {number} value
 */
const figure = (value) =>
  Number(value).toLocaleString(
    "en-US",
    Math.abs(value) < 1000 ? {maximumSignificantDigits: 4} : {maximumFractionDigits: 0},
  );

/**
 * Returns the progress in words, such as ["62 %", "step 1,240 of 2,000"], as far as the job reports it.
 * @param {Way} progress
 */
export function doneWords({fraction, done, total, unit}) {
  const words = [];
  if (known(fraction)) words.push(`${Math.floor(fraction * 100)} %`);
  if (known(done)) {
    const of = known(total)
      ? t("{done} of {total}", {done: figure(done), total: figure(total)})
      : figure(done);
    words.push(`${unit ?? ""} ${of}`.trim());
  }
  return words;
}

const metricWords = ({metrics = {}}) =>
  Object.entries(metrics)
    .slice(0, 2)
    .map(([name, value]) => `${name} ${figure(value)}`);

/** @param {Gpu[]} gpus */
function busyWords(gpus) {
  const busy = gpus.map(({util_pct: share}) => share).filter(known);
  if (busy.length === 0) return [];
  return [
    t("GPU {n} % busy", {n: Math.round(busy.reduce((sum, share) => sum + share, 0) / busy.length)}),
  ];
}

/**
 * Shows pieces of a line. The line is broken only between pieces.
 * @param {{of: Children[]}} properties
 */
const Pieces = ({of}) =>
  html`<span class="pieces">${of.map((piece, n) => html`<span key=${n}>${piece} </span>`)}</span>`;

/** @param {string} id */
const jobLabel = (id) => html`${t("Job")} <span class="mono">${id}</span>`;

/** @param {{row: TimedRow}} properties */
function Work({row}) {
  const {job, card} = row;
  if (job)
    return html`<${Job} job=${job} card=${card} others=${row.others_running} isOld=${row.is_old} />`;
  const unseen = card.jobs.at(-1);
  if (unseen) {
    const ended = endedOf(row);
    return html`<${Cell} name="job" label=${jobLabel(unseen)}>
      ${
        ended
          ? html`<span class="state is-${ended.kind}"><${Shape} kind=${ended.kind} />${ended.words()}</span>`
          : html`<span class="none">${t("not looked at yet")}</span>`
      }
    <//>`;
  }
  const next = isLive(row) && html`${t("Next:")} <${Words} text=${card.next} />`;
  return html`<${Cell} name="job" label=${t("Job")} below=${next}><span class="none">${t("none")}</span><//>`;
}

/** @param {number} n */
const othersWords = (n) => (n === 1 ? t("1 more job runs") : t("{n} more jobs run", {n}));

/** @param {{job: Working, card: Card, others: number, isOld: boolean}} properties */
function Job({job, card, others, isOld}) {
  const {kind, words} = jobStateOf(job, isOld);
  /** @type {Way} */
  const progress = job.progress ?? {};
  const running = job.state === "running" && !isOld;
  const ends =
    running &&
    known(card.job_ends_in_s) &&
    html`${t("ends in")} <${Span} seconds=${card.job_ends_in_s} />`;
  const busy = running ? busyWords(job.gpus ?? []) : [];
  const [share, ...done] = doneWords(progress);
  const pieces = [
    isOld && html`${t("seen")} <${Ago} at=${job.at} />`,
    share,
    ends,
    ...done,
    ...metricWords(progress),
    ...busy,
    others > 0 && othersWords(others),
  ].filter(Boolean);
  const label = t("Progress of {job}", {job: job.id});
  return html`<${Cell} name="job" label=${jobLabel(job.id)} below=${html`<${Pieces} of=${pieces} />`}>
    <span class="jobline">
      <span class="state is-${kind}"><${Shape} kind=${kind} />${words()}</span>
      ${
        !isOld &&
        (running || known(progress.fraction)) &&
        html`<${Progress} fraction=${progress.fraction} label=${label} />`
      }
      ${job.spark && html`<${Spark} spark=${job.spark} />`}
    </span>
  <//>`;
}

// -- the money --------------------------------------------------------------

/**
 * Returns 4 decimal places for the rate and its cap, if they would look equal with fewer. Otherwise undefined.
 * @param {{max_price_usd_h: Usd, price_usd_h: Usd}} properties
 */
export function ratePlaces({max_price_usd_h: cap, price_usd_h: rate}) {
  if (!known(cap) || !known(rate) || Number(rate) === Number(cap)) return undefined;
  return amount(rate) === amount(cap) ? 4 : undefined;
}

/**
 * "0.2300 USD/h"
 * @param {Card} card
 */
export const capWords = (card) => usdWords(card.max_price_usd_h, "h", ratePlaces(card));

/** @param {{row: TimedRow}} properties */
function Rate({row}) {
  const {card} = row;
  if (isFree(row))
    return html`<${Cell} name="rate" label=${t("Rate now")}><span class="none">${t("nobody bills")}</span><//>`;
  const later =
    known(card.running_usd_h) &&
    html`<${Money} usd=${card.running_usd_h} per="h" /> ${t("once it runs")}`;
  if (isStill(row)) {
    return html`<${Cell} name="rate" label=${t("Its disk bills")} below=${later}>
      <${Money} usd=${card.price_usd_h} per="h" />
    <//>`;
  }
  const cap = known(card.max_price_usd_h) && t("capped at {usd}", {usd: capWords(card)});
  return html`<${Cell} name="rate" label=${t("Rate now")} below=${later || cap}>
    <${Money} usd=${card.price_usd_h} per="h" places=${ratePlaces(card)} />
  <//>`;
}

/**
 * @param {Usd} usd
 * @param {number} budget
 */
const share = (usd, budget) => `${Math.min(100, (100 * Number(usd)) / budget)}%`;

/**
 * Draws the budget as a line: the part that is spent, and a mark for what will be spent at the deadline.
 * @param {{spent: Usd, told: Usd, budget: number}} properties
 */
export function BudgetLine({spent, told, budget}) {
  const kind =
    Number(told ?? spent) > budget ? "bad" : Number(told ?? spent) > 0.9 * budget ? "warn" : "good";
  return html`<svg class="budget is-${kind}" aria-hidden="true">
    <rect class="whole" width="100%" height="4" rx="2" />
    ${known(told) && html`<rect class="told" width=${share(told, budget)} height="4" rx="2" />`}
    <rect class="spent" width=${share(spent, budget)} height="4" rx="2" />
  </svg>`;
}

/**
 * Returns the course of the cost, such as ["of 220.00 USD", "212.33 USD at the deadline"]. If the job ends first, its
 * end counts in place of the deadline.
 * @param {Card} card
 */
function courseWords(card) {
  const words = known(card.budget_usd) ? [t("of {usd}", {usd: usdWords(card.budget_usd)})] : [];
  const jobFirst =
    known(card.job_ends_in_s) && card.job_ends_in_s < (card.deadline_in_s ?? Infinity);
  if (jobFirst && known(card.forecast_job_usd)) {
    words.push(t("about {usd} at its job's end", {usd: usdWords(card.forecast_job_usd)}));
  } else if (known(card.forecast_deadline_usd)) {
    words.push(t("{usd} at the deadline", {usd: usdWords(card.forecast_deadline_usd)}));
  }
  return words;
}

/** @param {{row: TimedRow}} properties */
function Spent({row}) {
  const {card, at} = row;
  if (isFree(row))
    return html`<${Cell} name="spent" label=${t("Spent")}><span class="none">${t("nobody bills")}</span><//>`;
  const budget = Number(card.budget_usd ?? 0);
  const line = budget > 0 && known(card.cost_usd);
  const below = html`${
    line &&
    html`<${BudgetLine} spent=${card.cost_usd} told=${card.forecast_deadline_usd} budget=${budget} />`
  }
  <${Pieces} of=${courseWords(card)} />`;
  return html`<${Cell} name="spent" label=${t("Spent")} below=${below}>
    <${MoneyTicking} usd=${card.cost_usd} rate=${isLive(row) ? card.price_usd_h : 0} at=${at} />
  <//>`;
}

// -- what must be heard -----------------------------------------------------

/** @param {{tone: string, shape?: Tone | null, lead: string, children: Children}} properties */
export function Say({tone, shape, lead, children}) {
  return html`<p class="says is-${tone}">
    ${shape && html`<${Shape} kind=${shape} />`}
    <span><strong>${lead}</strong> ${children}</span>
  </p>`;
}

/**
 * Says what is unknown about a box that does not answer. If the box is free, its bill is not mentioned.
 * @param {{row: TimedRow}} properties
 */
export const unseenWords = ({row}) =>
  isFree(row)
    ? t(
        "That is unknown, and not dead: its job may be running. It is asked again every few seconds.",
      )
    : t(
        "That is unknown, and not dead: it may be running and billing. It is asked again every few seconds.",
      );

/** @param {{row: TimedRow, since: string | null | undefined, words: string | null}} properties */
function Blind({row, since, words}) {
  return html`<${Say} tone="warn" shape="warn" lead=${t("The box does not answer.")}>
    ${since && html`${t("Since")} <${When} at=${since} />: `}
    ${unseenWords({row})}
    ${" "}
    <span class="soft">${words}</span>
  <//>`;
}

/**
 * Shows for how long the lease has needed a person, and what this has cost.
 * @param {{row: TimedRow}} properties
 */
export function SinceThen({row: {card, at}}) {
  const {since_s: since, since_usd: usd} = card.condition.to_do ?? {};
  if (!known(since)) return null;
  const cost =
    known(usd) &&
    html`${t("It has cost")} <${MoneyTicking} usd=${usd} rate=${card.price_usd_h} at=${at} /> ${t("since.")}`;
  return html`<span class="since">
    ${t("That was")} <${SpanTicking} seconds=${since} at=${at} /> ${t("ago.")} ${cost}
  </span>`;
}

/**
 * A box that was stopped unasked: its disk bills on.
 * @param {{row: TimedRow}} properties
 */
function Taken({row}) {
  const unasked = row.card.phase === "stopped";
  const lead = unasked ? t("The box was stopped.") : t("Its provider has stopped the box.");
  return html`<${Say} tone="warn" shape="warn" lead=${lead}>
    <${SinceThen} row=${row} /> ${t("Its disk bills on until it goes on or is torn down.")}
  <//>`;
}

/**
 * A lease that ends soon, while its job may still run.
 * @param {{row: TimedRow}} properties
 */
function EndsSoon({row}) {
  return html`<${Say} tone="warn" shape="warn" lead=${t("Its deadline is near.")}>
    <${Words} text=${row.card.next} />
  <//>`;
}

/**
 * A box that bills while nothing runs on it.
 * @param {{row: TimedRow}} properties
 */
function Wasted({row}) {
  const failed = isFailed(row);
  const lead = failed ? t("Its job has failed.") : t("Its job has ended.");
  return html`<${Say} tone=${failed ? "bad" : "warn"} shape=${failed ? "bad" : "warn"} lead=${lead}>
    <${SinceThen} row=${row} /> ${t("The box bills on until it is torn down.")}
  <//>`;
}

/**
 * Says in one short sentence what ends the bill by itself. The whole text is shown on request.
 * @param {string} words of the server
 */
function fenceInShort(words) {
  if (words.startsWith("armed: at ") && words.includes(", then"))
    return t("its guard stops the jobs at the deadline, and then the box");
  if (words.startsWith("armed: ") || words.startsWith("armed to stop the jobs only"))
    return t("its guard stops the jobs at the deadline, and no more");
  if (words.startsWith("nothing ends the bill for its disk")) return t("its disk bills on");
  if (words.startsWith("nothing ends")) return t("it bills on: nothing ends that");
  return null;
}

/** @param {{words: string}} properties */
export function Fence({words}) {
  const short = fenceInShort(words);
  const sign = words.startsWith("nothing ends") && html`<${Shape} kind="warn" />`;
  if (short === null) return html`${sign}<${Words} text=${words} />`;
  return html`<details class="fence">
    <summary>${sign}${short}</summary>
    <${Words} text=${words} />
  </details>`;
}

/** @param {{words: string}} properties */
function FenceLine({words}) {
  const open = words.startsWith("nothing ends");
  return html`<div class="says is-fence ${open ? "is-open" : ""}">
    <strong>${t("If this computer dies:")}</strong> <${Fence} words=${words} />
  </div>`;
}

/** @param {{row: TimedRow, blind?: Sight | null | undefined}} properties */
function Warnings({row, blind}) {
  const {alarm, stops_the_meter: fence} = row.card;
  const matter = row.card.condition.to_do?.matter;
  const unseen = isSilent(row) ? (blind ?? {words: row.blind}) : !isStill(row) && blind;
  return html`${
    alarm && html`<${Say} tone="bad" shape="bad" lead=${t("Alarm:")}><${Words} text=${alarm} /><//>`
  }
  ${isWasted(row) && html`<${Wasted} row=${row} />`}
  ${
    row.card.unclaimed &&
    html`<p class="says is-warn">
      <${Shape} kind="warn" />
      <span><${Words} text=${row.card.unclaimed} /></span>
    </p>`
  }
  ${matter === "taken" && html`<${Taken} row=${row} />`}
  ${matter === "ends soon" && html`<${EndsSoon} row=${row} />`}
  ${unseen && html`<${Blind} row=${row} ...${unseen} />`}
  ${isLive(row) && fence && (matter || fence.startsWith("nothing ends")) && html`<${FenceLine} words=${fence} />`}`;
}

/**
 * Draws the measured values, joined by straight lines.
 * @param {{spark: NonNullable<Working["spark"]>}} properties
 */
function Spark({spark}) {
  const {metric, steps, values} = spark;
  const [wide, high] = [72, 18];
  const [from, to] = [steps[0], steps[steps.length - 1]];
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const points = steps.map((step, n) => {
    const x = to > from ? ((step - from) / (to - from)) * (wide - 2) + 1 : wide / 2;
    const y = most > least ? (1 - (values[n] - least) / (most - least)) * (high - 2) + 1 : high / 2;
    return `${x.toFixed(1)},${y.toFixed(1)}`;
  });
  const label = t("{metric} at {n} measured points, from {first} to {last}", {
    metric,
    n: values.length,
    first: figure(values[0]),
    last: figure(values[values.length - 1]),
  });
  return html`<svg class="spark" viewBox=${`0 0 ${wide} ${high}`} role="img" aria-label=${label}>
    <title>${label}</title>
    <polyline points=${points.join(" ")} />
  </svg>`;
}

/**
 * The row of a lease that needs nobody: one line.
 * @param {{row: TimedRow}} properties
 */
function FineRow({row}) {
  const {card, at, job} = row;
  const {kind, words} = phaseOf(row);
  const left = card.deadline_in_s ?? 0;
  const deadline = Date.parse(at) + left * 1000;
  return html`<li class="lease is-fine is-${card.condition.tone}">
    <div class="who">
      <h3><a href=${`#/lease/${encodeURIComponent(card.lease)}`}>${nameOf(row)}</a></h3>
      <div>
        <${Pill} kind=${kind}>${words()}<//>
        <span class="small mono" title=${row.title}>${card.lease}</span>
        ${card.name && html`<span class="called small soft" title=${card.name}>${card.name}</span>`}
      </div>
    </div>
    <dl class="cells">
      <div class="cell is-job">
        <dt class="unseen">${t("Job")}</dt>
        <dd>${job ? html`<${FineJob} job=${job} card=${card} isOld=${row.is_old} />` : card.jobs.at(-1)}</dd>
      </div>
      <div class="cell is-deadline">
        <dt>${t("Deadline in")}</dt>
        <dd title=${new Date(deadline).toString()}><${Countdown} seconds=${left} at=${at} /></dd>
      </div>
      <div class="cell is-rate">
        <dt class="unseen">${isStill(row) ? t("Its disk bills") : t("Rate now")}</dt>
        <dd>${fineRate(row)}</dd>
      </div>
      <div class="cell is-spent">
        <dt>${t("Spent")}</dt>
        <dd>
          ${
            isFree(row)
              ? html`<span class="none">–</span>`
              : html`<${MoneyTicking} usd=${card.cost_usd} rate=${isLive(row) ? card.price_usd_h : 0} at=${at} />`
          }
        </dd>
      </div>
    </dl>
    <div class="doing"><${Verbs} row=${row} /></div>
    <div class="saying"><${Warnings} row=${row} /></div>
  </li>`;
}

/** @param {TimedRow} row */
function fineRate(row) {
  const {card} = row;
  if (isFree(row)) return html`<span class="none">${t("nobody bills")}</span>`;
  return html`<${Money} usd=${card.price_usd_h} per="h" places=${ratePlaces(card)} />`;
}

/** @param {{job: Working, card: Card, isOld: boolean}} properties */
function FineJob({job, card, isOld}) {
  const {kind, words} = jobStateOf(job, isOld);
  const running = job.state === "running" && !isOld;
  const [share] = doneWords(job.progress ?? {});
  const pieces = [
    isOld && html`${t("seen")} <${Ago} at=${job.at} />`,
    share,
    running &&
      known(card.job_ends_in_s) &&
      html`${t("ends in")} <${Span} seconds=${card.job_ends_in_s} />`,
    ...metricWords(job.progress ?? {}).slice(0, 1),
  ].filter(Boolean);
  return html`<span class="fineline">
    <span class="mono small soft">${job.id}</span>
    <span class="state is-${kind}"><${Shape} kind=${kind} />${words()}</span>
    <${Pieces} of=${pieces} />
    ${job.spark && html`<${Spark} spark=${job.spark} />`}
  </span>`;
}

/** @param {{row: TimedRow, blind?: Sight | null | undefined, fine?: boolean}} properties */
function Row({row, blind, fine}) {
  if (fine && !blind) return html`<${FineRow} row=${row} />`;
  return html`<${WholeRow} row=${row} blind=${blind} />`;
}

/** @param {{row: TimedRow, blind?: Sight | null | undefined}} properties */
function WholeRow({row, blind}) {
  const {card, at} = row;
  const {kind, words} = phaseOf(row);
  const left = card.deadline_in_s ?? 0;
  const deadline = Date.parse(at) + left * 1000;
  const tone = blind && card.condition.tone !== "bad" ? "warn" : card.condition.tone;
  return html`<li class="lease is-${tone}">
    <div class="who">
      <h3>
        <a href=${`#/lease/${encodeURIComponent(card.lease)}`}>${nameOf(row)}</a>
        ${" "}
        <span class="small mono">${card.lease}</span>
      </h3>
      <p>
        <${Pill} kind=${kind}>${words()}<//>
        ${" "}
        <span class="soft small"><${SpanTicking} seconds=${card.age_s} at=${at} /></span>
      </p>
      ${nameOf(row) !== row.title && html`<p class="small">${row.title}</p>`}
      ${card.name && html`<p class="called small" title=${card.name}>${card.name}</p>`}
    </div>
    <dl class="cells">
      <${Work} row=${row} />
      <${Cell} name="deadline" label=${t("Deadline in")} below=${html`<${When} at=${deadline} />`}>
        <${Countdown} seconds=${left} at=${at} />
      <//>
      <${Rate} row=${row} />
      <${Spent} row=${row} />
    </dl>
    <div class="doing"><${Verbs} row=${row} /></div>
    <div class="saying"><${Warnings} row=${row} blind=${blind} /></div>
  </li>`;
}

export const LeaseRow = memo(Row);
