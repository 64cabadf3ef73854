// The dialog in which a person signs for exactly what would be lost. Nothing else destroys unproved files.

import {get, leasePath, post} from "../net.js";
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Sign} from "./signing.js";
import {Button, Money, Shape, Trouble, useLoaded, Waiting} from "./widgets.js";
/** @import {TimedRow} from "../known.d.ts" */
/** @import {Errand, Losses as LossesNow} from "../types.d.ts" */

/** @param {{row: TimedRow, onBegun: (errand: Errand) => void, onClose: () => void}} properties */
export function Waiver({row, onBegun, onClose}) {
  const {lease} = row.card;
  const path = leasePath(lease);
  const [report, problem, again] = useLoaded(
    /** @returns {Promise<LossesNow>} */
    () => get(`${path}/losses`),
    lease,
  );
  if (problem) return html`<${Trouble} problem=${problem} retry=${again} />`;
  if (!report)
    return html`<p class="soft">${t("Asking the box what would be lost…")}</p><${Waiting} />`;
  if (report.losses.length === 0)
    return html`<p>${t("Nothing would be lost: verify and tear down needs no signature.")}</p>
    <footer class="choice"><${Button} onClick=${onClose}>${t("Close")}<//></footer>`;
  const signed = async () => onBegun(await post(`${path}/waive`, {}));
  return html`<${Sign}
    code=${report.asked}
    action=${t("Destroy and lose this")}
    onSigned=${signed}
    onClose=${onClose}
  >
    <${Losses} row=${row} report=${report} />
  <//>`;
}

/** @param {{row: TimedRow, report: LossesNow}} properties */
function Losses({row, report}) {
  return html`<p class="caution">
    <${Shape} kind="bad" />
    <strong>${t("This cannot be undone. Gone for good, and nowhere else that was proved:")}</strong>
  </p>
  <div class="losses" role="group" tabindex="0" aria-label=${t("What would be lost")}>
    <ol>${report.losses.map((loss) => html`<li key=${loss}>${loss}</li>`)}</ol>
  </div>
  <dl class="sums">
    <div>
      <dt>${t("Waiting costs")}</dt>
      <dd><${Money} usd=${row.card.price_usd_h} per="h" /></dd>
    </div>
    <div>
      <dt>${t("Fingerprint of the list")}</dt>
      <dd><code>${report.digest.slice(0, 16)}</code></dd>
    </div>
  </dl>`;
}
