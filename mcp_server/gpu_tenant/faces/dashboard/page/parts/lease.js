// The page of one lease: its state, which is always visible, and below it the job, log, files, timeline or terms.

import {get, leasePath} from "../net.js";
import {useFollow, useStore} from "../store.js";
import {html, useCallback, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Artifacts} from "./artifacts.js";
import {Bounded} from "./boundary.js";
import {JobList, JobView} from "./jobs.js";
import {Ended, Head, Says, Vitals} from "./leasehead.js";
import {JobLog} from "./log.js";
import {ReceiptView} from "./receipt.js";
import {isLive} from "./standing.js";
import {Terms} from "./terms.js";
import {Timeline} from "./timeline.js";
import {Copy, Empty, Trouble, Waiting} from "./widgets.js";

/** @import {Hearing, TimedDetail, TimedRow, Told} from "../known.d.ts" */
/** @import {Detail, JobMoment, JobSeen, Sight} from "../types.d.ts" */

const AFRESH_MS = 60_000;
/** @type {[string, () => string][]} */
const PLACES = [
  ["job", () => t("Job")],
  ["log", () => t("Log")],
  ["files", () => t("Files")],
  ["story", () => t("Story")],
  ["terms", () => t("Terms")],
];

/**
 * Shows `#/lease/ID/PLACE/JOB`. Without a place it shows the job, or the files if the lease has ended.
 * @param {{id: string, rest: string[]}} properties
 */
export function LeasePage({id, rest}) {
  const followed = useStore(
    (known) => known.overview?.leases.find((row) => row.card.lease === id) ?? null,
  );
  const blind = useStore((known) => known.blind[id] ?? null);
  const ended = useStore(
    (known) =>
      Object.values(known.errands).filter((one) => one.lease === id && one.state !== "running")
        .length,
  );
  const stamp = followed ? stampOf(followed) : "none";
  const [detail, problem, again] = useDetail(id, `${stamp} ${ended}`);
  if (problem && !detail)
    return html`<section class="page leasepage">
      <h1>${id}</h1>
      <${Unread} problem=${problem} retry=${again} />
    </section>`;
  if (!detail)
    return html`<section class="page leasepage"><h1>${id}</h1><${Waiting} lines=${6} /></section>`;
  const row = followed ?? detail.row;
  // The row decides whether the box answers: the stream may have missed that it answers again.
  return html`<${Whole} detail=${{...detail, row}} blind=${row.blind === null ? null : blind} rest=${rest} />`;
}

/**
 * Returns a text that changes when the recorded lease may have changed, for example when the next job of a sweep runs.
 * @param {TimedRow} row
 */
const stampOf = ({card, job, others_running: others}) =>
  [card.phase, card.jobs.length, card.alarm, card.next, job?.id, job?.state, others].join(" ");

/**
 * Returns the job that was running when this lease was opened. It stays the same when the next job begins.
 * @param {string} lease
 * @param {string | null} job
 */
function useFirst(lease, job) {
  const first = useRef({lease, job});
  if (first.current.lease !== lease || first.current.job === null) first.current = {lease, job};
  return first.current.job;
}

/**
 * Returns the job that was launched last. A job that waits in a queue has nothing to show yet.
 * @param {JobSeen[]} jobs
 */
const newestOf = (jobs) => jobs.findLast((job) => job.launched_at !== null) ?? jobs.at(-1) ?? null;

/** @param {{problem: Told, retry?: () => void}} properties */
function Unread({problem, retry}) {
  if (problem.code !== "UNKNOWN_LEASE")
    return html`<${Trouble} problem=${problem} retry=${retry} />`;
  return html`<${Empty} title=${t("There is no such lease")}>
    <p>${problem.message}</p>
    <p><a href="#/">${t("To the leases")}</a></p>
  <//>`;
}

/** @param {{detail: TimedDetail, blind?: Sight | null | undefined, rest: string[]}} properties */
function Whole({detail, blind, rest}) {
  const {row, jobs} = detail;
  const lease = row.card.lease;
  const place = PLACES.some(([name]) => name === rest[0]) ? rest[0] : isLive(row) ? "job" : "files";
  const first = useFirst(lease, row.job?.id ?? null);
  const job = jobs.find((one) => one.id === (rest[1] ?? first)) ?? newestOf(jobs);
  const [seen, heard] = useCloseLook(lease, job?.id ?? null);
  const mine = seen?.job === job?.id ? seen : null;
  return html`<article class="page leasepage is-${place}">
    <${Bounded} key="head"><${Head} detail=${detail} seen=${mine} /><//>
    <${Bounded} key="says"><${Says} detail=${detail} blind=${blind} seen=${mine} /><//>
    <${Bounded} key="figures"><${Figures} detail=${detail} seen=${mine} /><//>
    <${Places} lease=${lease} place=${place} job=${rest[1]} files=${detail.files?.total} />
    <div class="place">
      ${
        (place === "job" || place === "log") &&
        html`<${Bounded} key="jobs">
          <${JobList} row=${row} jobs=${jobs} chosen=${job?.id} seen=${mine} place=${place} />
        <//>`
      }
      <${Bounded} key=${`${place} ${job?.id}`}>
        <${Place} place=${place} detail=${detail} job=${job} seen=${mine} heard=${heard} />
      <//>
    </div>
  </article>`;
}

/** @param {{detail: TimedDetail, seen: JobMoment | null}} properties */
function Figures({detail, seen}) {
  if (detail.receipt) return html`<${ReceiptView} detail=${detail} />`;
  return isLive(detail.row)
    ? html`<${Vitals} detail=${detail} seen=${seen} />`
    : html`<${Ended} detail=${detail} />`;
}

/**
 * @param {{place: string, detail: TimedDetail, job: JobSeen | null, seen: JobMoment | null,
 *   heard: Hearing}} properties
 */
function Place({place, detail, job, seen, heard}) {
  const {row, lease, files, events, policy} = detail;
  switch (place) {
    case "log":
      return job
        ? html`<${JobLog} row=${row} job=${job.id} seen=${seen} heard=${heard} keptIn=${lease.kept_in} />`
        : html`<${NoLog} row=${row} />`;
    case "files":
      return html`<${Artifacts}
        row=${row}
        files=${files}
        keptIn=${lease.kept_in}
      />`;
    case "story":
      return html`<${Timeline} events=${events} />`;
    case "terms":
      return html`<${Terms} row=${row} lease=${lease} policy=${policy} login=${detail.login} />`;
    default:
      return html`<${JobView} row=${row} job=${job} seen=${seen} />`;
  }
}

/** @param {{row: TimedRow}} properties */
function NoLog({row}) {
  return html`<${Empty} title=${t("No job, and so no log")}>
    ${
      isLive(row) &&
      html`<p><${Copy} text=${`gpu-tenant launch --lease ${row.card.lease} -- COMMAND`} /></p>`
    }
  <//>`;
}

/**
 * @param {{lease: string, place: string, job: string | undefined,
 *   files: number | undefined}} properties
 */
function Places({lease, place, job, files}) {
  /** @param {string} name */
  const to = (name) =>
    `#/lease/${encodeURIComponent(lease)}/${name}${job && (name === "job" || name === "log") ? `/${encodeURIComponent(job)}` : ""}`;
  return html`<nav class="places" aria-label=${t("Parts of this lease")}>
    <ul>
      ${PLACES.map(
        ([name, words]) => html`<li key=${name}>
          <a href=${to(name)} aria-current=${name === place ? "page" : undefined}>
            ${words()}
            ${
              name === "files" &&
              files &&
              html` <span class="count">${files.toLocaleString("en-US")}</span>`
            }
          </a>
        </li>`,
      )}
    </ul>
  </nav>`;
}

// -- what is known of it ----------------------------------------------------

/**
 * Returns the recorded lease. It is fetched again when `stamp` changes, and from time to time.
 * @param {string} id
 * @param {string} stamp
 * @returns {[TimedDetail | null, Told | null, () => void]}
 */
function useDetail(id, stamp) {
  const [found, setFound] = useState(
    /** @type {[TimedDetail | null, Told | null]} */ ([null, null]),
  );
  const [round, setRound] = useState(0);
  const again = useCallback(() => setRound((n) => n + 1), []);
  useEffect(() => {
    let wanted = true;
    get(leasePath(id)).then(
      (/** @type {Detail} */ detail) => {
        if (wanted) setFound([{...detail, row: {...detail.row, at: detail.at}}, null]);
      },
      (problem) => wanted && setFound(([detail]) => [detail, problem]),
    );
    const timer = setTimeout(again, AFRESH_MS);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [id, stamp, round]);
  return [found[0], found[1], again];
}

/**
 * Returns the newest state of the job, and `heard(tell)`, which calls `tell` with each piece of its log.
 * @param {string} lease
 * @param {string | null} job
 */
function useCloseLook(lease, job) {
  const [seen, setSeen] = useState(null);
  const tellers = useRef(new Set());
  useFollow(
    {lease, job},
    {
      job: setSeen,
      log: (piece) => {
        for (const tell of tellers.current) tell(piece);
      },
    },
  );
  const heard = useCallback((/** @type {(piece: any) => void} */ tell) => {
    tellers.current.add(tell);
    return () => tellers.current.delete(tell);
  }, []);
  return [seen, heard];
}
