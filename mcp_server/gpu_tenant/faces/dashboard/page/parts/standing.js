// Decides the state of a lease for the page, where it is shown, and in which colour.
import {t} from "../words.js";
import {now} from "./ticking.js";

/** @import {Standing, TimedRow, Usd} from "../known.d.ts" */
/** @import {Card, Sight, Trouble} from "../types.d.ts" */

const ENDED = ["gone", "void", "lost"];
const STILL = ["parked", "stopped by its provider", "stopped"];
const SOON_S = 900;

/** @param {{card: Card}} properties */
export const isLive = ({card}) => !ENDED.includes(card.state);
/**
 * Whether nobody bills for the box: it is the owner's own machine, and has no rate.
 * @param {{kind: string, card: Card}} properties
 */
export const isFree = ({kind, card}) =>
  card.bills === "nobody" || (kind === "own" && card.cost_usd === null);
/** @param {{card: Card}} properties */
export const isStill = ({card}) => STILL.includes(card.phase);

/**
 * Whether the box does not answer although it should. For a stopped box it is known why.
 * @param {Pick<TimedRow, "card" | "blind">} row
 */
export const isSilent = ({card, blind}) => blind !== null && !isStill({card});

/**
 * Returns the hourly cost of all live leases, in USD, including parked ones. Unknown rates are not included.
 * @param {TimedRow[]} rows
 */
export const rateOf = (rows) =>
  rows.filter(isLive).reduce((sum, {card}) => sum + Number(card.price_usd_h ?? 0), 0);

/** @param {Pick<TimedRow, "card" | "at">} row */
export const leftOf = ({card, at}) =>
  (card.deadline_in_s ?? Infinity) - (now() - Date.parse(at)) / 1000;

/** @type {Record<string, Standing>} */
const PHASES = {
  intended: {kind: "wait", words: () => t("Ordered")},
  booting: {kind: "wait", words: () => t("Starting")},
  ready: {kind: "good", words: () => t("Running")},
  parked: {kind: "still", words: () => t("Parked")},
  "stopped by its provider": {kind: "warn", words: () => t("Stopped by its provider")},
  stopped: {kind: "warn", words: () => t("Stopped")},
  "lost with its host": {kind: "bad", words: () => t("Lost with its host")},
  terminating: {kind: "wait", words: () => t("Ending")},
  gone: {kind: "soft", words: () => t("Ended")},
  void: {kind: "soft", words: () => t("Never came")},
  lost: {kind: "bad", words: () => t("Lost")},
};

/**
 * Returns the state of a lease in one word: from its box, its job, its bill, and whether the box answers.
 * @param {TimedRow} row
 * @returns {Standing}
 */
export function phaseOf({card, blind}) {
  const {word} = card.condition;
  // It is unknown then whether the job still runs. But if it had ended, this is still true.
  if (isSilent({card, blind}) && word === "ready")
    return {kind: "soft", words: () => t("Does not answer")};
  return PHASES[word] ?? OVER[word] ?? {kind: "soft", words: () => word};
}

// The words for a box that exists, and whose job has ended.
/** @type {Record<string, Standing>} */
const OVER = {
  "job finished": {kind: "accent", words: () => t("Job finished")},
  "job failed": {kind: "bad", words: () => t("Job failed")},
  "job killed": {kind: "bad", words: () => t("Job killed")},
  "job stopped": {kind: "still", words: () => t("Job stopped")},
};

/**
 * Whether money is wasted: the jobs have ended, and the box still bills.
 * @param {TimedRow} row
 */
export const isWasted = ({card}) => card.condition.is_wasted;

/**
 * Whether a person must do something about the lease, and its first action is what they must do.
 * @param {TimedRow} row
 */
export const isCalledFor = ({card, verbs, by_itself: byItself}) =>
  (!byItself && ["recover", "resume_and_end"].includes(verbs[0])) ||
  Boolean(card.condition.to_do && card.condition.to_do.matter !== "silent");

/** @param {string} state of a job */
export const isOver = (state) => `job ${state}` in OVER;

/** @param {TimedRow} row */
export const isFailed = ({card}) => ["job failed", "job killed"].includes(card.condition.word);

/** @type {Record<string, Standing>} */
const JOBS = {
  absent: {kind: "soft", words: () => t("not there")},
  starting: {kind: "wait", words: () => t("starting")},
  running: {kind: "good", words: () => t("running")},
  lingering: {kind: "warn", words: () => t("lingering")},
  finished: {kind: "accent", words: () => t("finished")},
  failed: {kind: "bad", words: () => t("failed")},
  killed: {kind: "bad", words: () => t("killed")},
  stopped: {kind: "still", words: () => t("stopped")},
};

/**
 * Returns the state of a job. With `isOld`, it is the last known state, which may be out of date.
 * @param {{state: string}} job
 * @param {boolean} [isOld]
 * @returns {Standing}
 */
export function jobStateOf(job, isOld = false) {
  if (isOld) return {kind: "soft", words: () => t("was {state}", {state: jobStateOf(job).words()})};
  return JOBS[job.state] ?? {kind: "soft", words: () => job.state};
}

/**
 * Returns from the record how the newest job ended. Null if it has not ended, or if this is unknown.
 * @param {Pick<TimedRow, "card" | "ended">} row
 */
export function endedOf({card, ended}) {
  const {word} = card.condition;
  const state = word in OVER ? word.slice("job ".length) : ended;
  return state ? jobStateOf({state}) : null;
}

/**
 * Whether the leases are not known yet. Then an empty list does not mean that there are none.
 * @param {{trouble: Trouble | null, burning_usd_h: Usd}} properties
 */
export const isUnseen = ({trouble, burning_usd_h: burning}) => trouble !== null && burning === null;

// -- the groups -------------------------------------------------------------

/**
 * Whether the lease has become urgent since the server's last answer: its deadline is near, or its box is silent.
 * @param {TimedRow} row
 * @param {Sight | null | undefined} blind
 */
const isDue = (row, blind) =>
  Boolean(blind) || (!isStill(row) && row.card.state === "active" && leftOf(row) < SOON_S);

export const GROUPS = [
  {id: "attention", words: () => t("Do this")},
  {id: "running", words: () => t("Running")},
  {id: "idle", words: () => t("The job has ended")},
  {id: "starting", words: () => t("Starting")},
  {id: "ending", words: () => t("Ending")},
  {id: "still", words: () => t("Parked: nothing runs, and it bills")},
  {id: "free", words: () => t("Nobody bills for these")},
];

/**
 * @param {TimedRow} row
 * @param {Sight | null | undefined} blind
 */
const groupOf = (row, blind) => (isDue(row, blind) ? "attention" : row.card.condition.group);

/**
 * @param {TimedRow} one
 * @param {TimedRow} other
 */
const dearestThenSoonest = (one, other) =>
  Number(other.card.price_usd_h ?? Infinity) - Number(one.card.price_usd_h ?? Infinity) ||
  leftOf(one) - leftOf(other);
/**
 * @param {TimedRow} one
 * @param {TimedRow} other
 */
const soonest = (one, other) => leftOf(one) - leftOf(other);

/**
 * Returns the groups that have rows: [{id, words, rows}]. The soonest deadline comes first; parked leases are sorted by
 * cost.
 * @param {TimedRow[]} rows
 * @param {Record<string, Sight>} blind
 */
export function grouped(rows, blind) {
  const live = rows.filter(isLive);
  return GROUPS.map((group) => ({
    ...group,
    rows: live
      .filter((row) => groupOf(row, blind[row.card.lease]) === group.id)
      .sort(group.id === "still" ? dearestThenSoonest : soonest),
  })).filter((group) => group.rows.length > 0);
}

/**
 * Returns first the rows of each fleet together, then all others: [{fleet: name | null, rows}].
 * @param {TimedRow[]} rows
 */
export function byFleet(rows) {
  const fleets = new Map();
  for (const row of rows) fleets.set(row.card.fleet, [...(fleets.get(row.card.fleet) ?? []), row]);
  const together = [...fleets].filter(([name, members]) => name && members.length > 1);
  const named = new Set(together.map(([name]) => name));
  const others = rows.filter(({card}) => !named.has(card.fleet));
  const blocks = together.map(([fleet, members]) => ({fleet, rows: members}));
  return others.length > 0 ? [{fleet: null, rows: others}, ...blocks] : blocks;
}
