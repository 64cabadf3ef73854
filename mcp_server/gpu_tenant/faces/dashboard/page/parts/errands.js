// Shows running actions (errands) and their results: in the dialog that started them, and in a tray that stays open.

import {useStore} from "../store.js";
import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {verbWords} from "./plans.js";
import {
  Ago,
  Button,
  bytesWords,
  Progress,
  Shape,
  SpanTicking,
  Step,
  usdWords,
  Words,
} from "./widgets.js";

/** @import {Card, Collected, Errand, Receipt, Snapshot} from "../types.d.ts" */

const KINDS = {running: "wait", done: "good", failed: "bad"};
/** @type {Record<string, () => string>} */
const STATES = {
  running: () => t("under way"),
  done: () => t("done"),
  failed: () => t("refused or failed"),
};
const SHOWN = 8;

/**
 * Returns the key of an errand. The id alone is not enough, because a new start of the server counts again from 1.
 * @param {{id: number, began_at: string}} properties
 */
const keyOf = ({id, began_at: at}) => `${id} ${at}`;

/**
 * Returns the state of an errand that was begun here. Null if the server was restarted and does not know it any more.
 * @param {Errand | null} begun
 */
export function useErrand(begun) {
  const errand = useStore((known) => (begun ? known.errands[begun.id] : undefined));
  return begun && errand && keyOf(errand) === keyOf(begun) ? errand : null;
}

// -- what it came to, in words ----------------------------------------------

/** @param {number} n */
const files = (n) => (n === 1 ? t("1 file") : t("{n} files", {n}));
/**
 * @param {string[] | undefined} list
 * @param {string} words
 */
const some = (list, words) =>
  list && list.length > 0
    ? [t(words, {list: list.slice(0, 5).join(", ") + (list.length > 5 ? ", …" : "")})]
    : [];

const GROUNDS = {
  verified: () => t("Verified, then destroyed; the provider has twice shown the box gone."),
  never_used: () => t("It was never used; the provider has twice shown the box gone."),
  waived: () =>
    t("Destroyed over a person's signature; the provider has twice shown the box gone."),
};

/** @param {Receipt} receipt */
function receiptWords(receipt) {
  const kept = {
    files: files(receipt.kept_files),
    size: bytesWords(receipt.kept_bytes),
    where: receipt.kept_in ?? "",
  };
  return [
    GROUNDS[receipt.ground](),
    receipt.cost_usd === null
      ? t("It cost an unknown sum.")
      : t("It cost {sum}.", {sum: usdWords(receipt.cost_usd)}),
    receipt.kept_in
      ? t("Kept: {files}, {size}, in {where}.", kept)
      : t("Kept: {files}, {size}.", kept),
    ...some(receipt.not_proved, "Not proved: {list}"),
    ...some(receipt.given_up, "Given up: {list}"),
    ...(receipt.left_behind ? [t("Left behind: {what}", {what: receipt.left_behind})] : []),
  ];
}

/** @param {Collected} came */
function collectedWords(came) {
  return [
    t("{files}, {size}, lie proved in {where}; {new} were new.", {
      files: files(came.files),
      size: bytesWords(came.size_bytes),
      where: came.directory,
      new: files(came.fetched_files),
    }),
    ...(came.unclaimed_files > 0
      ? [
          t(
            "Unclaimed: {files}, {size}. A teardown waits until they are kept or given up by name.",
            {files: files(came.unclaimed_files), size: bytesWords(came.unclaimed_bytes)},
          ),
        ]
      : []),
    ...some(came.unclaimed_largest, "The largest of them: {list}"),
    ...some(came.cannot_be_kept, "Cannot be kept: {list}"),
    ...some(came.never_appeared, "Declared, and never written: {list}"),
    ...(came.not_stored ? [t("Not in the durable store: {why}", {why: came.not_stored})] : []),
  ];
}

/** @param {Snapshot} came */
function snapshotWords(came) {
  return [
    t("{files}, {size}, were copied to {where}.", {
      files: files(came.files),
      size: bytesWords(came.size_bytes),
      where: came.directory,
    }),
    ...(came.unfinished_files > 0
      ? [t("Still being written, and left: {files}.", {files: files(came.unfinished_files)})]
      : []),
    ...(came.left_out > 0
      ? [t("Complete, and left for the next look: {files}.", {files: files(came.left_out)})]
      : []),
    ...some(came.broken, "Did not read back whole: {list}"),
    ...some(came.no_room, "No room here for: {list}"),
  ];
}

/**
 * Describes the lease after an extend, park, resume, adopt or recover.
 * @param {string} verb
 * @param {Card} card
 */
function cardWords(verb, card) {
  const rate =
    card.price_usd_h === null
      ? t("an unknown rate")
      : t("{sum} an hour", {sum: usdWords(card.price_usd_h)});
  const first = {
    extend: () => t("The deadline has moved."),
    terms: () => t("The terms have changed."),
    give_more: () => t("The terms have changed."),
    stop_and_park: () => t("Parked: it bills {rate} now.", {rate}),
    park: () => t("Parked: it bills {rate} now.", {rate}),
    resume: () => t("Started again: it bills {rate}.", {rate}),
    provision: () => t("Rented as {lease}, at {rate}.", {lease: card.lease, rate}),
    adopt: () => t("Under a lease now, at {rate}.", {rate}),
    recover: () => t("It goes on under {lease}, at {rate}.", {lease: card.lease, rate}),
  }[verb];
  const then = card.forecast_deadline_usd;
  return [
    ...(first ? [first()] : []),
    ...(then === null
      ? []
      : [t("By its deadline it will have cost {sum}.", {sum: usdWords(then)})]),
    ...(card.alarm ? [card.alarm] : []),
  ];
}

/** @type {Record<string, () => string>} */
const JOB_ENDS = {
  finished: () => t("The job has ended by itself."),
  failed: () => t("The job has ended with an error."),
  stopped: () => t("The job has ended as asked."),
  killed: () => t("The job did not end in its grace, and was killed."),
};

/** @param {{verb: string, result: any}} properties */
export function resultWords({verb, result}) {
  if (!result) return [];
  if (result.receipt)
    return [...receiptWords(result.receipt), ...[result.gang, result.twin].filter(Boolean)];
  if ("fetched_files" in result) return collectedWords(result);
  if ("left_out" in result) return snapshotWords(result);
  if ("deadline_in_s" in result && "phase" in result) return cardWords(verb, result);
  if (verb === "look") return [t("The box answers.")];
  if (verb === "stop")
    return [JOB_ENDS[result.state]?.() ?? t("The job is {state}.", {state: result.state})];
  return [];
}

// -- one of them ------------------------------------------------------------

/**
 * Shows the progress or the result of an errand. `errand` is null if the server does not know it any more.
 * @param {{errand: Errand | null}} properties
 */
export function Coming({errand}) {
  if (!errand)
    return html`<p class="outcome">
      <${Shape} kind="warn" />
      ${t(
        "The dashboard was started anew since. How the lease stands, and its story, say what came of this.",
      )}
    </p>`;
  if (errand.state === "running") return html`<${Going} errand=${errand} />`;
  const {error} = errand;
  if (error)
    return html`<div class="outcome is-bad">
      <p><${Shape} kind="bad" /><strong><${Words} text=${error.message} /></strong></p>
      ${error.remedy && html`<p class="remedy"><${Words} text=${error.remedy} /></p>`}
    </div>`;
  const next = /** @type {string | undefined} */ (errand.result?.next);
  return html`<div class="outcome is-good">
    <p><${Shape} kind="good" /><strong>${t("Done")}</strong></p>
    ${resultWords(errand).map((line) => html`<p key=${line}><${Words} text=${line} /></p>`)}
    ${next && html`<p class="soft">${t("Next:")} <${Step} text=${next} /></p>`}
  </div>`;
}

/** @param {{errand: Errand}} properties */
function Going({errand}) {
  const total = errand.total_bytes;
  const label = `${verbWords(errand.verb)} ${errand.lease ?? ""}`;
  return html`<div class="going">
    <${Progress} fraction=${total > 0 ? errand.done_bytes / total : null} label=${label} />
    <p class="soft">
      ${errand.words || t("under way")} · <${SpanTicking} seconds=${0} at=${errand.began_at} />
    </p>
  </div>`;
}

// -- the tray ---------------------------------------------------------------

/** @param {Record<number, Errand>} errands */
const newestFirst = (errands) => Object.values(errands).sort((one, other) => other.id - one.id);

export function Errands() {
  const known = useStore((all) => all.errands);
  const [open, setOpen] = useState(false);
  const [put, setPut] = useState(() => new Set());
  const all = newestFirst(known).filter((errand) => !put.has(keyOf(errand)));
  const running = all.filter(({state}) => state === "running");
  const ended = all.filter(({state}) => state !== "running");
  return html`<${Announcer} errands=${known} />
  ${
    all.length > 0 &&
    html`<aside class="tray" aria-label=${t("Actions")}>
      <button
        type="button"
        class="traybar"
        aria-expanded=${String(open)}
        aria-controls="errands"
        onClick=${() => setOpen(!open)}
      >
        <${Shape} kind=${KINDS[(running[0] ?? ended[0]).state]} />
        <span>${summary(running, ended)}</span>
        ${running.length > 0 && html`<${Overall} running=${running} />`}
      </button>
      <div id="errands" class="trayed" hidden=${!open}>
        <ul>
          ${all
            .slice(0, SHOWN)
            .map((errand) => html`<${Line} key=${keyOf(errand)} errand=${errand} />`)}
        </ul>
        ${
          ended.length > 0 &&
          html`<${Button} kind="quiet" onClick=${() => setPut(new Set([...put, ...ended.map(keyOf)]))}>
            ${t("Put away what has ended")}
          <//>`
        }
      </div>
    </aside>`
  }`;
}

/** @param {number} n */
const moreWords = (n) => (n === 1 ? t("1 action before it") : t("{n} actions before it", {n}));

/**
 * @param {Errand[]} running
 * @param {Errand[]} ended
 */
function summary(running, ended) {
  if (running.length > 1) return t("{n} actions under way", {n: running.length});
  const [newest, ...others] = running.length > 0 ? running : ended;
  const said =
    newest.state === "running" ? newest.words || STATES.running() : STATES[newest.state]();
  const what = t("{verb}: {lease}", {
    verb: verbWords(newest.verb),
    lease: newest.lease ?? t("a box"),
  });
  return `${what} · ${said}${others.length > 0 ? ` · ${moreWords(others.length)}` : ""}`;
}

/** @param {{running: Errand[]}} properties */
function Overall({running}) {
  const total = running.reduce((sum, one) => sum + one.total_bytes, 0);
  const done = running.reduce((sum, one) => sum + one.done_bytes, 0);
  return html`<${Progress} fraction=${total > 0 ? done / total : null} label=${t("All actions under way")} />`;
}

/** @param {{errand: Errand}} properties */
function Line({errand}) {
  return html`<li class="errand">
    <p class="head">
      <${Shape} kind=${KINDS[errand.state]} />
      <strong>${verbWords(errand.verb)}</strong>
      ${
        errand.lease &&
        html`<a href=${`#/lease/${encodeURIComponent(errand.lease)}`}>${errand.lease}</a>`
      }
      <span class="soft">
        ${
          errand.ended_at
            ? html`${STATES[errand.state]()}, <${Ago} at=${errand.ended_at} />`
            : STATES.running()
        }
      </span>
    </p>
    <${Coming} errand=${errand} />
  </li>`;
}

/**
 * Announces each change of state once to screen readers.
 * @param {{errands: Record<number, Errand>}} properties
 */
function Announcer({errands}) {
  const heard = useRef(null);
  const [said, setSaid] = useState("");
  useEffect(() => {
    const states = Object.fromEntries(
      Object.values(errands).map((errand) => [keyOf(errand), errand.state]),
    );
    /** @param {Errand} errand */
    const isNews = (errand) =>
      (heard.current[keyOf(errand)] ?? (errand.state === "running" ? null : errand.state)) !==
      errand.state;
    const changed = heard.current && newestFirst(errands).find(isNews);
    heard.current = states;
    if (changed)
      setSaid(
        `${verbWords(changed.verb)} ${changed.lease ?? ""}: ${changed.error?.message ?? STATES[changed.state]()}`,
      );
  }, [errands]);
  return html`<p class="unseen" role="status">${said}</p>`;
}
