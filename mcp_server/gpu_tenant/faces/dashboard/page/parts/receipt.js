// Shows the receipt of a lease: what was kept and proved, that the box is gone, and what it cost.
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {isFree} from "./standing.js";
import {Bytes, known, Money, Shape, Span, When, Words} from "./widgets.js";

/** @import {Moment, TimedDetail, TimedRow, Tone} from "../known.d.ts" */
/** @import {Line, Receipt} from "../types.d.ts" */

const GROUNDS = {
  verified: {
    kind: "good",
    words: () => t("Ended, and nothing that counts was lost"),
    how: () =>
      t(
        "Everything declared was re-read off the box, and every other byte in the job's places was accounted for.",
      ),
  },
  never_used: {
    kind: "good",
    words: () => t("Ended, never used"),
    how: () => t("Nothing was ever launched or pushed on it, so there was nothing to lose."),
  },
  waived: {
    kind: "warn",
    words: () => t("Ended over a signature"),
    how: () => t("A person signed for exactly the loss below."),
  },
};
/** @param {{detail: TimedDetail}} properties */
export function ReceiptView({detail}) {
  const {receipt} = detail;
  if (!receipt) return null;
  const {kind, words, how} = GROUNDS[receipt.ground] ?? {
    kind: "soft",
    words: () => receipt.ground,
    how: () => "",
  };
  const formats = Object.entries(receipt.formats);
  const {billed_usd: billed, cost_usd: counted} = receipt;
  const spent =
    known(billed) && known(counted) && Number(billed) > Number(counted) ? billed : counted;
  return html`<section class="receipt is-${kind}" aria-labelledby="receipt-title">
    <header><h2 id="receipt-title"><${Shape} kind=${kind} />${words()}</h2><p>${how()}</p></header>
    <dl class="receipt-sums">
      <div class="vital">
        <dt>${t("It cost")}</dt>
        <dd class="figure">
          ${isFree(detail.row) ? t("nobody bills") : html`<${Money} usd=${spent} />`}
        </dd>
        ${
          receipt.counts &&
          !isFree(detail.row) &&
          html`<dd class="below soft"><${Words} text=${receipt.counts} /></dd>`
        }
        ${
          known(receipt.billed_usd) &&
          html`<dd class="below">
            <${Money} usd=${receipt.billed_usd} /> ${t("by its provider's books so far")}
          </dd>`
        }
      </div>
      <div class="vital">
        <dt>${t("It lived")}</dt>
        <dd class="figure"><${Span} seconds=${receipt.lived_s} /></dd>
        <dd class="below">
          <${When} at=${receipt.active_at} /> – <${When} at=${receipt.first_absent_at} />
        </dd>
      </div>
      <div class="vital">
        <dt>${t("Kept")}</dt>
        <dd class="figure">
          ${receipt.kept_files.toLocaleString("en-US")} <span class="unit">${t("files")}</span> ·${" "}
          <${Bytes} n=${receipt.kept_bytes} />
        </dd>
        ${
          formats.length > 0 &&
          html`<dd class="below">
            ${t("proved to load:")} ${formats.map(([format, n]) => `${n} ${format}`).join(", ")}
          </dd>`
        }
        ${receipt.kept_in && html`<dd class="below"><code>${receipt.kept_in}</code></dd>`}
      </div>
    </dl>
    ${
      receipt.outcome &&
      html`<${Lines}
        kind=${receipt.outcome.grade === "done" ? "soft" : "bad"}
        title=${t("The work")}
        lines=${[receipt.outcome.grade, ...receipt.outcome.reasons]}
      />`
    }
    <div class="receipt-more">
      <${Proof} detail=${detail} />
      <div class="stack">
        <${Lines} kind="warn" title=${t("Given up")} lines=${receipt.given_up} />
        <${Lines} kind="warn" title=${t("Warnings")} lines=${receipt.warnings} />
        <${Lines} kind="soft" title=${t("What was not proved")} lines=${receipt.not_proved} />
        ${
          receipt.left_behind &&
          html`<${Lines} kind="bad" title=${t("What stays there")} lines=${[receipt.left_behind]} />`
        }
      </div>
    </div>
  </section>`;
}

// How a box can end. The owner's own machine stays. If a box was rented in a console, a person confirms its end.
/** @type {Record<string, {label: () => string, steps: (provider: string, box: string) => string[]}>} */
const ENDINGS = {
  deleted: {
    label: () => t("The proof that the box is gone"),
    steps: (provider, box) => [
      t("its end was asked of {provider}", {provider}),
      t("its list no longer had box {box}", {box}),
      t("and not the second time either: gone"),
    ],
  },
  handedBack: {
    label: () => t("How the machine was handed back"),
    steps: (_, box) => [
      t("box {box} was to be handed back", {box}),
      t("handed back as it is"),
      t("and seen so a second time"),
    ],
  },
  attested: {
    label: () => t("How the box was ended"),
    steps: (provider, box) => [
      t("box {box} was to be ended in the console of {provider}", {box, provider}),
      t("a person said that it was ended there"),
      t("and it answered no more"),
    ],
  },
};

/** @param {{row: TimedRow, receipt: Receipt, events: Line[]}} properties */
function endingOf({row, receipt, events}) {
  if (row.kind === "own" && receipt.left_behind) return ENDINGS.handedBack;
  return events.some(({kind}) => kind === "attested") ? ENDINGS.attested : ENDINGS.deleted;
}

/** @param {{detail: TimedDetail}} properties */
function Proof({detail}) {
  const {row, receipt, events} = detail;
  if (!receipt) return null;
  const {label, steps} = endingOf({row, receipt, events});
  const times = [receipt.destroy_asked_at, receipt.first_absent_at, receipt.second_absent_at];
  return html`<ol class="proof" aria-label=${label()}>
    ${steps(row.title, receipt.box_id).map(
      (words, n) => html`<${Step} key=${words} at=${times[n]} words=${words} />`,
    )}
  </ol>`;
}

/** @param {{at: Moment, words: string}} properties */
function Step({at, words}) {
  return html`<li><${When} at=${at} /><span>${words}</span></li>`;
}

/** @param {{kind: Tone, title: string, lines: string[]}} properties */
function Lines({kind, title, lines}) {
  if (lines.length === 0) return null;
  return html`<div class="receipt-lines">
    <h3><${Shape} kind=${kind} />${title}</h3>
    <ul>${lines.map((line) => html`<li key=${line}><${Words} text=${line} /></li>`)}</ul>
  </div>`;
}
