// Shows the jobs of a lease, and the state of the chosen one: its progress, when it will end, or why it ended.
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Bounded} from "./boundary.js";
import {Charts} from "./charts.js";
import {doneWords} from "./leaserow.js";
import {isLive, isOver, jobStateOf} from "./standing.js";
import {
  Empty,
  known,
  Pill,
  Progress,
  Shape,
  Span,
  SpanTicking,
  Step,
  When,
  Words,
} from "./widgets.js";

/** @import {TimedRow, Way} from "../known.d.ts" */
/** @import {JobMoment, JobSeen} from "../types.d.ts" */

/** @param {number} value */
const figure = (value) =>
  Number.isInteger(value)
    ? value.toLocaleString("en-US")
    : Number(value).toLocaleString("en-US", {maximumSignificantDigits: 5});

/**
 * Returns the newest known state of a job: {state, progress, lastAt}, or null if its state was never known.
 * It comes from the page's stream, else from the overview, else from the last record, which was made at `lastAt`.
 * @param {TimedRow} row
 * @param {JobSeen} job
 * @param {JobMoment | null} seen
 * @returns {{state: string, progress: Way | null, lastAt: string | null} | null}
 */
function standingOf(row, job, seen) {
  if (row.is_old && row.job?.id === job.id)
    return {state: row.job.state, progress: row.job.progress, lastAt: row.job.at};
  if (seen?.job === job.id) return {state: seen.state, progress: seen.progress, lastAt: null};
  if (row.job?.id === job.id)
    return {state: row.job.state, progress: row.job.progress, lastAt: null};
  if (job.last?.state) return {state: job.last.state, progress: job.last, lastAt: job.last.at};
  return null;
}

/**
 * Lists all jobs, the newest first. `place` is the sub-view, which stays the same if another job is chosen.
 * @param {{row: TimedRow, jobs: JobSeen[], chosen: string | undefined, seen: JobMoment | null,
 *   place: string}} properties
 */
export function JobList({row, jobs, chosen, seen, place}) {
  if (jobs.length < 2) return null;
  /** @param {JobSeen} job */
  const to = (job) =>
    `#/lease/${encodeURIComponent(row.card.lease)}/${place}/${encodeURIComponent(job.id)}`;
  return html`<nav class="joblist" aria-label=${t("Jobs of this lease")}>
    <ol>
      ${jobs.toReversed().map(
        (job) => html`<li key=${job.id}>
          <a
            href=${to(job)}
            aria-current=${job.id === chosen ? "true" : undefined}
            title=${job.command}
          >
            <span class="mono">${job.id}</span>
            <${InShort} job=${job} standing=${standingOf(row, job, seen)} />
          </a>
        </li>`,
      )}
    </ol>
  </nav>`;
}

/**
 * Whether the job may have ended since this state was recorded.
 * @param {NonNullable<ReturnType<typeof standingOf>>} standing
 */
const isOld = ({state, lastAt}) => lastAt !== null && !isOver(state);

/** @param {{job: JobSeen, standing: ReturnType<typeof standingOf>}} properties */
function InShort({job, standing}) {
  if (!known(job.launched_at)) return html`<span class="soft small">${t("not launched")}</span>`;
  const when = html`<span class="soft small"><${When} at=${job.launched_at} /></span>`;
  if (standing === null) return when;
  const {kind, words} = jobStateOf(standing, isOld(standing));
  return html`<span class="state is-${kind}"><${Shape} kind=${kind} />${words()}</span> ${when}`;
}

/**
 * Shows one job. `seen` is its newest state from the stream, null before there is one.
 * @param {{row: TimedRow, job: JobSeen | null, seen: JobMoment | null}} properties
 */
export function JobView({row, job, seen}) {
  if (!job) {
    return html`<${Empty} title=${isLive(row) ? t("No job yet") : t("It had no job")}>
      ${isLive(row) && html`<p>${t("Next:")} <${Step} text=${row.card.next} /></p>`}
    <//>`;
  }
  return html`<section class="job" aria-labelledby="job-title">
    <${Standing} row=${row} job=${job} seen=${seen} />
    <${Declared} job=${job} />
  </section>
  <section aria-labelledby="charts-title">
    <h2 id="charts-title">${t("Over time")}</h2>
    <${Bounded}>
      <${Charts}
        key=${`${row.card.lease}/${job.id}`}
        lease=${row.card.lease}
        job=${job.id}
        seen=${seen}
      />
    <//>
  </section>`;
}

/** @param {{row: TimedRow, job: JobSeen, seen: JobMoment | null}} properties */
function Standing({row, job, seen}) {
  const standing = standingOf(row, job, seen);
  const {progress = null, lastAt = null} = standing ?? {};
  const running = lastAt === null && ["running", "starting"].includes(standing?.state ?? "");
  const ends = running && row.job?.id === job.id && known(row.card.job_ends_in_s);
  return html`<header class="job-head">
    <h2 id="job-title">
      <span class="soft">${t("Job")}</span> <span class="mono">${job.id}</span>
    </h2>
    <${State} standing=${standing} />
    ${
      seen &&
      runOf(seen) &&
      html`<span class="soft">
        ${t("run {n}", {n: runOf(seen)})} <span class="mono">${seen.run}</span>
      </span>`
    }
    ${
      !lastAt &&
      known(seen?.running_s) &&
      html`<span class="soft">
        ${running ? t("for") : t("ran")}
        ${" "}
        ${
          running
            ? html`<${SpanTicking} seconds=${seen.running_s} at=${seen.at} />`
            : html`<${Span} seconds=${seen.running_s} />`
        }
      </span>`
    }
    ${
      known(seen?.exit_code) &&
      html`<span class="soft">${t("exit code {code}", {code: seen.exit_code})}</span>`
    }
  </header>
  ${
    seen?.why &&
    html`<p class="says is-bad">
      <${Shape} kind="bad" />
      <span><strong>${t("Why it ended:")}</strong> <${Words} text=${seen.why} /></span>
    </p>`
  }
  ${
    seen?.alarm &&
    html`<p class="says is-warn"><${Shape} kind="warn" /><span><${Words} text=${seen.alarm} /></span></p>`
  }
  ${
    (running || known(progress?.fraction)) &&
    html`<div class="job-way">
      <${Progress}
        fraction=${progress?.fraction ?? null}
        label=${t("Progress of {job}", {job: job.id})}
      />
      <p>
        ${progress ? doneWords(progress).join(" · ") : ""}
        ${
          ends &&
          html` <span class="soft">${t("ends in")}</span> <${Span} seconds=${row.card.job_ends_in_s} />`
        }
      </p>
    </div>`
  }
  <${Measures} metrics=${progress?.metrics ?? {}} />
  ${seen?.cadence && html`<p class="soft"><${Words} text=${seen.cadence} /></p>`}
  ${seen?.trackers.map((link) => html`<p class="soft">${link}</p>`)}
  ${seen?.gang && html`<p class="soft"><${Words} text=${seen.gang} /></p>`}`;
}

/** @param {{standing: ReturnType<typeof standingOf>}} properties */
function State({standing}) {
  if (standing === null) return html`<span class="soft">${t("not looked at yet")}</span>`;
  const {kind, words} = jobStateOf(standing, isOld(standing));
  return html`<${Pill} kind=${kind}>${words()}<//>
  ${
    standing.lastAt &&
    html` <span class="soft">${t("as it was last seen")} <${When} at=${standing.lastAt} /></span>`
  }`;
}

/**
 * Returns the number of the job's run, if it is not the first: a cell that is tried again runs as "c1.2".
 * @param {JobMoment | null} seen
 */
export function runOf(seen) {
  const [, n] = (seen?.run && seen.run !== seen.job && /\.(\d+)$/.exec(seen.run)) || [];
  return n ? Number(n) : null;
}

/** @param {{metrics: Record<string, number>}} properties */
function Measures({metrics}) {
  const named = Object.entries(metrics);
  if (named.length === 0) return null;
  return html`<dl class="measures">
    ${named.map(
      ([name, value]) =>
        html`<div key=${name}><dt>${name}</dt><dd>${known(value) ? figure(value) : "NaN"}</dd></div>`,
    )}
  </dl>`;
}

/**
 * Shows what was declared when the job was launched.
 * @param {{job: JobSeen}} properties
 */
function Declared({job}) {
  /** @param {string[]} list */
  const patterns = (list) => list.map((pattern) => html`<code key=${pattern}>${pattern}</code> `);
  return html`<details class="declared">
    <summary>
      <span class="soft">${t("Command")}</span>
      ${" "}
      <code>${job.command.replace(/\s*\\?\s*\n\s*/g, " ")}</code>
    </summary>
    <pre tabindex="0" aria-label=${t("Command")}>${job.command}</pre>
    <dl class="facts">
      <div>
        <dt>${t("Kept")}</dt>
        <dd>${job.artifacts.length > 0 ? patterns(job.artifacts) : t("nothing was declared")}</dd>
      </div>
      ${
        job.discard.length > 0 &&
        html`<div><dt>${t("Given up")}</dt><dd>${patterns(job.discard)}</dd></div>`
      }
      ${
        job.env_names.length > 0 &&
        html`<div><dt>${t("Environment")}</dt><dd>${patterns(job.env_names)}</dd></div>`
      }
      <div>
        <dt>${t("Launched")}</dt>
        <dd>
          ${known(job.launched_at) ? html`<${When} at=${job.launched_at} />` : t("not launched")}
        </dd>
      </div>
    </dl>
  </details>`;
}
