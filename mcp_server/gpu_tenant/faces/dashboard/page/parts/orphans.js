// Shows what may bill without a lease: boxes in the account that are not ours, and disks that were left behind.

import {post} from "../net.js";
import {noteErrand, openAction, useStore} from "../store.js";
import {html, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Coming, useErrand} from "./errands.js";
import {Button, Dialog, Money, Shape, Trouble} from "./widgets.js";

/** @import {Stray} from "../types.d.ts" */

/** @type {Stray[]} */
const NONE = [];

export function Orphans() {
  const foreign = useStore((known) => known.overview?.foreign ?? NONE);
  const leftovers = useStore((known) => known.overview?.also_billing ?? NONE);
  const leaking = useStore((known) => known.overview?.leaking_usd_month ?? null);
  if (foreign.length === 0 && leftovers.length === 0) return null;
  return html`<section class="orphans" aria-labelledby="orphans-title">
    <h2 id="orphans-title">${t("Under no lease")}</h2>
    ${
      foreign.length > 0 &&
      html`<p class="soft">
        ${t(
          "Boxes in your accounts that gpu-tenant did not rent. They are shown, and never touched unless you say so.",
        )}
      </p>
      <div class="scroll" role="group" tabindex="0" aria-label=${t("Boxes under no lease")}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">${t("Box")}</th>
              <th scope="col">${t("Platform")}</th>
              <th scope="col">${t("State")}</th>
              <th scope="col" class="number">${t("Rate")}</th>
              <th scope="col"><span class="unseen">${t("Actions")}</span></th>
            </tr>
          </thead>
          <tbody>
            ${foreign.map(
              (box) => html`<tr key=${`${box.provider}/${box.box}`}>
                <th scope="row">
                  <code>${box.box}</code>
                  ${
                    (box.name || box.gpus) &&
                    html`<p class="soft">${[box.name, box.gpus].filter(Boolean).join(", ")}</p>`
                  }
                  ${
                    box.deployment &&
                    html`<p class="whose">
                      <${Shape} kind="warn" />
                      ${t("of another gpu-tenant ({deployment}), which looks after it", {
                        deployment: box.deployment,
                      })}
                    </p>`
                  }
                </th>
                <td>${box.title}</td>
                <td>${box.state}</td>
                <td class="number"><${Money} usd=${box.price_usd_h} per="h" /></td>
                <td class="acts">
                  <${Button}
                    aria-label=${t("Adopt {box}", {box: box.box})}
                    onClick=${() => adopt(box, "keep")}
                  >
                    ${t("Adopt")}
                  <//>
                  ${
                    box.can_park &&
                    html`<${Button}
                      kind="quiet"
                      aria-label=${t("Adopt and park {box}", {box: box.box})}
                      onClick=${() => adopt(box, "park")}
                    >
                      ${t("Adopt and park")}
                    <//>`
                  }
                </td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>`
    }
    ${
      leftovers.length > 0 &&
      html`<div class="leftovers">
        <h3><${Shape} kind="warn" />${t("Bills although no box uses it")}</h3>
        <ul>${leftovers.map((words) => html`<li key=${words}>${words}</li>`)}</ul>
        <p>
          ${t("Parked boxes and leftovers together:")}
          ${" "}
          <strong><${Money} usd=${leaking} per="month" /></strong>
        </p>
        <p class="soft">
          ${t(
            "gpu-tenant deletes none of this: a volume may hold the only copy. Its platform's console does, and the runbook says where.",
          )}
        </p>
      </div>`
    }
  </section>`;
}

/**
 * @param {Stray} box
 * @param {"keep" | "park"} then
 */
const adopt = (box, then) => openAction({verb: "adopt", box, then});

/** @param {{box: Stray, then: "keep" | "park", onClose: () => void}} properties */
export function Adoption({box, then, onClose}) {
  const [begun, setBegun] = useState(null);
  const [taken, setTaken] = useState(box.deployment === null);
  const [problem, setProblem] = useState(null);
  const errand = useErrand(begun);
  const park = then === "park";
  const begin = async () => {
    try {
      const one = await post("/api/boxes/adopt", {provider: box.provider, box: box.box, then});
      noteErrand(one);
      setBegun(one);
    } catch (refusal) {
      setProblem(refusal);
    }
  };
  const title = park ? t("Adopt and park {box}", {box: box.box}) : t("Adopt {box}", {box: box.box});
  if (begun)
    return html`<${Dialog} title=${title} onClose=${onClose}>
      <${Coming} errand=${errand} />
      <footer class="choice"><${Button} onClick=${onClose}>${t("Close")}<//></footer>
    <//>`;
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <div class="plan">
      ${
        box.deployment &&
        html`<${Whose} deployment=${box.deployment} taken=${taken} onTake=${setTaken} />`
      }
      <dl>
        <div>
          <dt><${Shape} kind="accent" />${t("What happens")}</dt>
          <dd>
            ${t(
              "The box comes under a lease, with a deadline and the usual terms; from then on it is watched like the others.",
            )}
          </dd>
          ${
            park &&
            html`<dd>${t("Then it is stopped, and its disk is kept. What runs on it ends.")}</dd>`
          }
        </div>
        <div>
          <dt><${Shape} kind="wait" />${t("What it costs")}</dt>
          <dd>
            ${
              park
                ? t(
                    "The GPU is no longer billed. The disk is, every hour, until the lease is torn down.",
                  )
                : t("What it costs already: the meter goes on until you park it or tear it down.")
            }
          </dd>
        </div>
        <div>
          <dt><${Shape} kind="soft" />${t("What it does not do")}</dt>
          <dd>
            ${t(
              "Nothing is destroyed. What lies on it counts as yours to keep: a teardown later asks about every file.",
            )}
          </dd>
        </div>
      </dl>
      ${problem && html`<${Trouble} problem=${problem} />`}
      <footer class="choice">
        <${Button} onClick=${onClose}>${t("Leave it as it is")}<//>
        <${Button} kind="primary" disabled=${!taken} onClick=${begin}>
          ${park ? t("Adopt and park") : t("Adopt")}
        <//>
      </footer>
    </div>
  <//>`;
}

/**
 * Shows a box with the mark of another gpu-tenant. It can be adopted only if the person says that this is right.
 * @param {{deployment: string, taken: boolean, onTake: (taken: boolean) => void}} properties
 */
function Whose({deployment, taken, onTake}) {
  return html`<div class="caution">
    <p>
      <${Shape} kind="warn" />
      <strong>
        ${t("This box belongs to another gpu-tenant: deployment {deployment}.", {deployment})}
      </strong>
      ${" "}
      ${t(
        "That is another computer of yours, or a colleague's. It has a lease on this box and looks after it; two that look after one box get in each other's way.",
      )}
    </p>
    <label class="option">
      <input type="checkbox" checked=${taken} onChange=${(event) => onTake(event.target.checked)} />
      ${" "}
      ${t("That one is gone for good, or its owner agrees: this one takes the box over")}
    </label>
  </div>`;
}
