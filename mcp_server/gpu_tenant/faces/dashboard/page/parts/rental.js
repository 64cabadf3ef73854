// The dialog for renting a box by a quote: what will happen, what it costs, the terms, and one confirmation.

import {get, post} from "../net.js";
import {noteErrand} from "../store.js";
import {html, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Coming, useErrand} from "./errands.js";
import {
  Ago,
  Button,
  Dialog,
  Field,
  Money,
  Shape,
  Trouble,
  usdWords,
  useLoaded,
  Words,
} from "./widgets.js";

/** @import {Typed} from "../known.d.ts" */
/** @import {PassedSmoke, Ranked} from "../types.d.ts" */

const NONE = "none";

/** @param {{offer: Ranked, hours: number, title: string, onClose: () => void}} properties */
export function Rental({offer, hours, title: platform, onClose}) {
  const [smoke] = useLoaded(
    /** @returns {Promise<PassedSmoke>} */
    () => get("/api/smoke"),
    "smoke",
  );
  const [body, setBody] = useState(/** @type {Record<string, any>} */ ({}));
  const [begun, setBegun] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const errand = useErrand(begun);
  const gpu = offer.gpu_count > 1 ? `${offer.gpu} × ${offer.gpu_count}` : offer.gpu;
  const title = t("Rent {gpu} at {platform}", {gpu, platform});
  /** @param {Record<string, any>} news */
  const change = (news) => setBody({...body, ...news});
  const chosen = body.smoke ?? smoke?.id ?? "";
  /** @param {Event} event */
  const begin = async (event) => {
    event.preventDefault();
    setBusy(true);
    const {smoke: _asked, ...terms} = body;
    const said = Object.entries(terms).filter(([, value]) => value !== undefined && value !== "");
    try {
      const wanted = {quote: offer.quote, smoke: chosen, ...Object.fromEntries(said)};
      const one = await post("/api/boxes/rent", wanted);
      noteErrand(one);
      setBegun(one);
    } catch (refusal) {
      setProblem(refusal);
      setBusy(false);
    }
  };
  if (begun) {
    const lease = /** @type {string | undefined} */ (errand?.result?.lease);
    return html`<${Dialog} title=${title} onClose=${onClose}>
      <${Coming} errand=${errand} />
      ${
        errand?.state === "running" &&
        html`<p class="soft">${t("This goes on when you close the window or the page.")}</p>`
      }
      <footer class="choice">
        ${
          lease &&
          html`<a class="button is-primary" href=${`#/lease/${encodeURIComponent(lease)}`}>
            ${t("To its page")}
          </a>`
        }
        <${Button} onClick=${onClose}>${t("Close")}<//>
      </footer>
    <//>`;
  }
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="plan" onSubmit=${begin}>
      <div class="asked">
        <${Smoke} smoke=${smoke} chosen=${chosen} change=${change} />
        <div class="fields">
          <${NumberField} name="hours" label=${t("Hours to the deadline")} least="0.1" change=${change}
            hint=${t("Left empty: one and a half times the hours of work.")} />
          <${NumberField} name="budget_usd" label=${t("Budget in all, USD")} least="0" change=${change}
            hint=${t("A watchdog ends it before that.")} />
        </div>
        <${Field} label=${t("Name")} hint=${t("Project, name and tags, for lists and sums.")}>
          <input
            type="text"
            autocomplete="off"
            spellcheck=${false}
            maxlength="400"
            placeholder="llama/first try #paper"
            onInput=${(/** @type {Typed} */ event) => change({name: event.target.value.trim()})}
          />
        <//>
      </div>
      <dl>
        <div>
          <dt><${Shape} kind="accent" />${t("What happens")}</dt>
          <dd>${t("Exactly this box is rented, if its price is still what is shown here.")}</dd>
          <dd>
            ${t(
              "It comes under a lease: its deadline, its idle limit and your limits hold, and it is ended once its work is done and proved.",
            )}
          </dd>
        </div>
        <div>
          <dt><${Shape} kind="wait" />${t("What it costs")}</dt>
          <dd>
            ${t("It bills {rate} an hour from now on, until it is torn down.", {
              rate: usdWords(offer.running_usd_h),
            })}
          </dd>
          <dd>
            ${t("Finished work, {hours} h", {hours})}: <strong><${Money} usd=${offer.expected_usd} /></strong>
          </dd>
        </div>
        <div>
          <dt><${Shape} kind="soft" />${t("What it does not do")}</dt>
          <dd>${t("No file is sent and no job starts: the next step is shown when it is had.")}</dd>
        </div>
      </dl>
      ${problem && html`<${Trouble} problem=${problem} />`}
      <footer class="choice">
        <${Button} onClick=${onClose}>${t("Rent nothing")}<//>
        <${Button} type="submit" kind="primary" busy=${busy} disabled=${chosen === ""}>
          ${t("Rent it at {rate} an hour", {rate: usdWords(offer.running_usd_h)})}
        <//>
      </footer>
    </form>
  <//>`;
}

/**
 * Lets a person choose the newest valid smoke test, or to rent without one.
 * @param {{smoke: PassedSmoke | null | undefined, chosen: string,
 *   change: (news: Record<string, any>) => void}} properties
 */
function Smoke({smoke, chosen, change}) {
  return html`<fieldset>
    <legend>${t("Was the job tried here first?")}</legend>
    ${
      smoke?.id &&
      html`<label class="option">
        <input
          type="radio"
          name="smoke"
          checked=${chosen === smoke.id}
          onChange=${() => change({smoke: smoke.id})}
        />
        ${" "}
        ${t("Yes:")} <code>${smoke.command}</code>, <${Ago} at=${smoke.at} />
      </label>`
    }
    ${
      smoke?.id === null &&
      html`<p class="soft">
        <${Words}
          text=${t(
            "No smoke test of the last week has passed. `gpu-tenant smoke` tries the job here, for nothing.",
          )}
        />
      </p>`
    }
    <label class="option">
      <input
        type="radio"
        name="smoke"
        checked=${chosen === NONE}
        onChange=${() => change({smoke: NONE})}
      />
      ${" "}
      ${t("No: rent without a smoke test. A mistake is then found while the box bills.")}
    </label>
  </fieldset>`;
}

/**
 * @param {{name: string, label: string, hint: string, least: string,
 *   change: (news: Record<string, any>) => void}} properties
 */
function NumberField({name, label, hint, least, change}) {
  return html`<${Field} label=${label} hint=${hint}>
    <input
      type="number"
      inputmode="decimal"
      min=${least}
      step="any"
      onInput=${(/** @type {Typed} */ event) =>
        change({[name]: event.target.value === "" ? undefined : event.target.valueAsNumber})}
    />
  <//>`;
}
