// How a lease stands, and so where it is shown and how loudly.
import {t} from "../words.js";
import {now} from "./ticking.js";

/** @import {Standing, TimedRow, Usd} from "../known.d.ts" */
/** @import {Card, Sight, Trouble} from "../types.d.ts" */

const ENDED = ["gone", "void", "lost"];
const STILL = ["parked", "stopped by its provider"];
const SOON_S = 900;

/** @param {{card: Card}} properties */
export const isLive = ({card}) => !ENDED.includes(card.state);
/**
 * Nobody bills for a box that is one's own, unless its owner put a rate on it.
 * @param {{kind: string, card: Card}} properties
 */
export const isFree = ({kind, card}) =>
  card.bills === "nobody" || (kind === "own" && card.cost_usd === null);
/** @param {{card: Card}} properties */
export const isStill = ({card}) => STILL.includes(card.phase);

/**
 * Whether its box does not answer, and should: of a box that is stopped it is known why.
 * @param {Pick<TimedRow, "card" | "blind">} row
 */
export const isSilent = ({card, blind}) => blind !== null && !isStill({card});

/**
 * USD an hour of those that are live, the parked ones too; what is unknown is not in it.
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
  "lost with its host": {kind: "bad", words: () => t("Lost with its host")},
  terminating: {kind: "wait", words: () => t("Ending")},
  gone: {kind: "soft", words: () => t("Ended")},
  void: {kind: "soft", words: () => t("Never came")},
  lost: {kind: "bad", words: () => t("Lost")},
};

/**
 * What the server says of its box, its job, what bills and whether the box answers, all together.
 * @param {TimedRow} row
 * @returns {Standing}
 */
export function phaseOf({card, blind}) {
  const {word} = card.condition;
  // Whether it still runs is what nobody knows then. How its job ended stays so.
  if (isSilent({card, blind}) && word === "ready")
    return {kind: "soft", words: () => t("Does not answer")};
  return PHASES[word] ?? OVER[word] ?? {kind: "soft", words: () => word};
}

// A box that is there, and whose job has ended: it is not running, whatever its lease says.
/** @type {Record<string, Standing>} */
const OVER = {
  "job finished": {kind: "accent", words: () => t("Job finished")},
  "job failed": {kind: "bad", words: () => t("Job failed")},
  "job killed": {kind: "bad", words: () => t("Job killed")},
  "job stopped": {kind: "still", words: () => t("Job stopped")},
};

/**
 * Whether its price buys nothing: its jobs have ended, and the box bills on.
 * @param {TimedRow} row
 */
export const isWasted = ({card}) => card.condition.is_wasted;

/**
 * Whether a person is to do something about it, and its first verb is that.
 * @param {TimedRow} row
 */
export const isCalledFor = ({card, verbs}) =>
  ["recover", "resume_and_end"].includes(verbs[0]) ||
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
 * `isOld`: it was so when it was seen last, which is no word on how it is now.
 * @param {{state: string}} job
 * @param {boolean} [isOld]
 * @returns {Standing}
 */
export function jobStateOf(job, isOld = false) {
  if (isOld) return {kind: "soft", words: () => t("was {state}", {state: jobStateOf(job).words()})};
  return JOBS[job.state] ?? {kind: "soft", words: () => job.state};
}

/**
 * How its newest job ended by the record, before anybody has looked; null where it has not, or where that is unknown.
 * @param {Pick<TimedRow, "card" | "ended">} row
 */
export function endedOf({card, ended}) {
  const {word} = card.condition;
  const state = word in OVER ? word.slice("job ".length) : ended;
  return state ? jobStateOf({state}) : null;
}

/**
 * Nobody could look yet: that nothing is shown does not say that nothing is there.
 * @param {{trouble: Trouble | null, burning_usd_h: Usd}} properties
 */
export const isUnseen = ({trouble, burning_usd_h: burning}) => trouble !== null && burning === null;

// -- the groups -------------------------------------------------------------

/**
 * Whether something has come since the server said how it stands: its deadline is near, or its box is silent.
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
 * [{id, words, rows}], those with rows alone; the soonest deadline first, what is parked by what it costs.
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
 * The rows with those of one fleet together, then all others: [{fleet: name | null, rows}].
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
