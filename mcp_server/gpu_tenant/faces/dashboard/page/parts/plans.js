// Says in plain words what each action will do, what it costs, and what it does not do, before a person confirms it.
import {t} from "../words.js";
import {isFree} from "./standing.js";
import {known, usdWords} from "./widgets.js";
/** @import {TimedRow, Usd} from "../known.d.ts" */
/** @import {Card} from "../types.d.ts" */

/** @type {Record<string, () => string>} */
export const VERBS = {
  extend: () => t("Extend"),
  terms: () => t("Change the terms"),
  park: () => t("Park"),
  resume: () => t("Resume"),
  resume_and_end: () => t("Start it, collect, then end it"),
  give_more: () => t("Raise budget and deadline"),
  look: () => t("Look again"),
  stop: () => t("Stop the job"),
  stop_and_park: () => t("Stop the job, then park"),
  collect: () => t("Collect"),
  snapshot: () => t("Take a snapshot"),
  teardown: () => t("Verify and tear down"),
  end: () => t("Collect, then end it"),
  waive: () => t("Destroy and accept the loss"),
  recover: () => t("Go on elsewhere"),
  adopt: () => t("Adopt"),
  provision: () => t("Rent"),
  again: () => t("Run again"),
  give_up: () => t("Give up"),
};

/** @param {string} verb */
export const verbWords = (verb) => VERBS[verb]?.() ?? verb;

/** @param {Usd} value */
const usd = (value) =>
  value === null || value === undefined ? t("an unknown sum") : usdWords(value);
/** @param {{card: Card}} properties */
const goesOn = ({card}) =>
  known(card.price_usd_h)
    ? t("The box goes on billing {sum} an hour until it is parked or torn down.", {
        sum: usd(card.price_usd_h),
      })
    : t("The box goes on billing until it is parked or torn down; its rate is not known.");

/**
 * Returns what the lease will have cost `hours` from now, at its present rate.
 * @param {Card} card
 * @param {number} hours
 */
export function costIn(card, hours) {
  if (!known(card.cost_usd) || !known(card.price_usd_h)) return null;
  return Number(card.cost_usd) + Number(card.price_usd_h) * hours;
}

/**
 * @param {{card: Card}} given
 * @param {number} hours
 */
export function extension({card}, hours) {
  const then = costIn(card, hours);
  const before = card.forecast_deadline_usd;
  const over = known(then) && known(card.budget_usd) && then > Number(card.budget_usd);
  return {
    then,
    more: known(then) && known(before) ? then - Number(before) : null,
    over: over
      ? t(
          "That passes the budget of {sum}, which still ends the lease first. `gpu-tenant terms {lease} --budget-usd N` changes it.",
          {sum: usd(card.budget_usd), lease: card.lease},
        )
      : null,
  };
}

/** @type {Record<string, () => string>} */
const PARKING = {
  api: () => t("The provider stops the box, and its disk is kept."),
  in_box: () => t("A command on the box stops it, and its disk is kept."),
  owner: () =>
    t(
      "You stop it by hand in the platform's console; the runbook says where. Then this notes that it is parked.",
    ),
};

/** @param {TimedRow} row */
function endingOf({card, kind}) {
  if (card.provider === "local")
    return t("Only then the lease ends, and its directory on this computer is deleted.");
  return kind === "own"
    ? t("Only then the lease ends, and the machine is handed back as it is.")
    : t("Only then the box is destroyed, with its disk.");
}

/** @param {TimedRow} row */
function billEnds(row) {
  if (isFree(row)) return t("Nobody bills for it, so no bill ends. You get a receipt.");
  return known(row.card.cost_usd)
    ? t(
        "The bill ends at about {sum}. You get a receipt once the provider has twice shown the box gone.",
        {sum: usd(row.card.cost_usd)},
      )
    : t("The bill ends. You get a receipt once the provider has twice shown the box gone.");
}

/** @param {{card: Card}} properties */
const startCosts = ({card}) =>
  known(card.running_usd_h)
    ? t("It bills {sum} an hour from then on.", {sum: usd(card.running_usd_h)})
    : t("It bills as a running box again; the rate is not known.");

/** @type {Record<string, (row: TimedRow) => {will?: any[], costs?: any[], wont?: any[], runbook?: boolean}>} */
const PLANS = {
  extend: () => ({
    will: [t("The deadline moves. The guard on the box, where there is one, is told first.")],
    wont: [
      t(
        "Nothing on the box is touched, and its job goes on. Budget and price cap stay as they are.",
      ),
    ],
  }),
  terms: (row) => ({
    will: [t("What you fill in is in force at once. What you leave empty stays as it is.")],
    costs:
      known(row.card.budget_usd) || isFree(row)
        ? []
        : [t("Without a budget, the lease may cost its rate until its deadline.")],
    wont: [
      t("Nothing on the box is touched, and its job goes on."),
      t("What you signed ahead was for the old terms, and lapses. A new name changes no terms."),
    ],
  }),
  park: (row) => ({
    will: [(PARKING[row.park_how] ?? PARKING.api)()],
    costs: [
      t("The GPU is no longer billed. The disk is, every hour, until the lease is torn down."),
    ],
    wont: [
      t("It does not end the lease, and the deadline still comes."),
      row.park === "wipes"
        ? t("A stop may empty the disk that the work is on: it is refused once the box was used.")
        : t("It is refused while a job runs."),
      t("Nobody promises that a GPU is free when you resume."),
    ],
    runbook: true,
  }),
  resume: ({card}) => ({
    will: [t("The box is started again; it may come back at another address.")],
    costs: [startCosts({card})],
    wont: [
      t(
        "No job is started. It fails without harm where no GPU is free: the disk is kept, and bills.",
      ),
    ],
  }),
  resume_and_end: (row) => ({
    will: [
      t("The box is started again: only a box that runs can be proved and ended."),
      ...(planOf("end", row).will ?? []),
    ],
    costs: [
      startCosts(row),
      t("Where its end is refused, it runs and bills on until you end it or park it again."),
      ...(planOf("end", row).costs ?? []),
    ],
    wont: [
      t("It fails without harm where no GPU is free: the disk is kept, and bills."),
      ...(planOf("end", row).wont ?? []),
    ],
  }),
  give_more: () => ({
    will: [
      t("Budget and deadline change. The guard on the box, where there is one, is told first."),
      t("Its owner signs for a greater budget: that is asked here, in the next step."),
    ],
    wont: [
      t("Nothing on the box is touched, and its job goes on."),
      t("What you signed ahead was for the old terms, and lapses. A new name changes no terms."),
    ],
  }),
  look: () => ({
    will: [t("The box is asked once more whether it answers, and how its job stands.")],
    wont: [t("Nothing is stopped, started or destroyed, whatever comes of it.")],
  }),
  stop: (row) => ({
    will: [
      t(
        "The job is asked to end, so that it can save its work, and is killed when the grace is over.",
      ),
    ],
    costs: [goesOn(row)],
    wont: [t("No file is removed, and the lease does not end.")],
  }),
  stop_and_park: (row) => ({
    will: [
      t(
        "The job is asked to end, so that it can save its work, and is killed when the grace is over.",
      ),
      (PARKING[row.park_how] ?? PARKING.api)(),
    ],
    costs: [
      t("The GPU is no longer billed. The disk is, every hour, until the lease is torn down."),
    ],
    wont: [
      t("It does not end the lease, and the deadline still comes."),
      ...(row.park === "wipes"
        ? [t("A stop may empty the disk that the work is on: it is refused once the box was used.")]
        : []),
      t("Nobody promises that a GPU is free when you resume."),
    ],
    runbook: true,
  }),
  collect: () => ({
    will: [
      t(
        "The box is sealed: every declared artifact and log is listed with its hash, then fetched to this computer and proved as it lands.",
      ),
    ],
    costs: [t("Bytes off the box may cost extra, by the provider's prices.")],
    wont: [
      t(
        "Nothing is destroyed. It is refused while a job runs; cut off, it goes on from the last byte.",
      ),
    ],
  }),
  snapshot: () => ({
    will: [
      t("What is complete on the box by now is copied to this computer while the job goes on."),
    ],
    costs: [t("Bytes off the box may cost extra, by the provider's prices.")],
    wont: [
      t(
        "It is no seal: it does not prove that nothing else is there, and no teardown rests on it.",
      ),
    ],
  }),
  teardown: (row) => ({
    will: [
      t(
        "Verified first: every kept file is read again, compared with the box, and must load as what it claims to be.",
      ),
      endingOf(row),
    ],
    costs: [billEnds(row)],
    wont: [t("It is refused if anything would be lost, and says what. Then nothing has happened.")],
  }),
  end: (row) => ({
    will: [
      t(
        "Every declared artifact and log is fetched to this computer, read again, and compared with the box.",
      ),
      endingOf(row),
    ],
    costs: [t("Bytes off the box may cost extra, by the provider's prices."), billEnds(row)],
    wont: [
      t("It is refused if anything would be lost, and says what. Then nothing was destroyed."),
    ],
  }),
  recover: ({card}) => ({
    will: [
      t(
        "A new box is rented where the lease's terms allow, and the job goes on from the newest checkpoint that was proved.",
      ),
    ],
    costs: [
      known(card.max_price_usd_h)
        ? t("The new box bills at most {sum} an hour.", {sum: usd(card.max_price_usd_h)})
        : t("The new box bills by its own rate; this lease has no price cap."),
    ],
    wont: [
      t("The old box is not destroyed. What was not saved before it was taken is computed again."),
    ],
  }),
};

/**
 * @param {string} verb
 * @param {TimedRow} row
 */
export const planOf = (verb, row) => ({will: [], costs: [], wont: [], ...PLANS[verb](row)});
