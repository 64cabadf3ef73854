// What bills and is under no lease: boxes in the account that are not ours, and what was left behind.
import {html, useState} from "../vendor/htm-preact.js";
import {post} from "../net.js";
import {noteErrand, useStore} from "../store.js";
import {t} from "../words.js";
import {Coming} from "./errands.js";
import {Button, Dialog, Money, Shape, Trouble} from "./widgets.js";

const NONE = [];

export function Orphans() {
  const foreign = useStore((known) => known.overview?.foreign ?? NONE);
  const leftovers = useStore((known) => known.overview?.also_billing ?? NONE);
  const leaking = useStore((known) => known.overview?.leaking_usd_month ?? null);
  const [chosen, setChosen] = useState(null);
  if (foreign.length === 0 && leftovers.length === 0) return null;
  return html`<section class="orphans" aria-labelledby="orphans-title">
    <h2 id="orphans-title">${t("Under no lease")}</h2>
    ${foreign.length > 0 && html`<p class="soft">${t("Boxes in your accounts that gpu-tenant did not rent. They are shown, and never touched unless you say so.")}</p>
    <div class="scroll" role="group" tabindex="0" aria-label=${t("Boxes under no lease")}><table class="table">
      <thead><tr><th scope="col">${t("Box")}</th><th scope="col">${t("Platform")}</th><th scope="col">${t("State")}</th><th scope="col" class="number">${t("Rate")}</th><th scope="col"><span class="unseen">${t("Actions")}</span></th></tr></thead>
      <tbody>${foreign.map((box) => html`<tr key=${`${box.provider}/${box.box}`}>
        <th scope="row"><code>${box.box}</code></th><td>${box.title}</td><td>${box.state}</td>
        <td class="number"><${Money} usd=${box.price_usd_h} per="h" /></td>
        <td class="acts"><${Button} aria-label=${t("Adopt {box}", {box: box.box})} onClick=${() => setChosen({box, then: "keep"})}>${t("Adopt")}<//>
          ${box.can_park && html`<${Button} kind="quiet" aria-label=${t("Adopt and park {box}", {box: box.box})} onClick=${() => setChosen({box, then: "park"})}>${t("Adopt and park")}<//>`}</td>
      </tr>`)}</tbody></table></div>`}
    ${leftovers.length > 0 && html`<div class="leftovers">
      <h3><${Shape} kind="warn" />${t("Bills although no box uses it")}</h3>
      <ul>${leftovers.map((words) => html`<li key=${words}>${words}</li>`)}</ul>
      <p>${t("Parked boxes and leftovers together:")} <strong><${Money} usd=${leaking} per="month" /></strong></p>
      <p class="soft">${t("gpu-tenant deletes none of this: a volume may hold the only copy. Its platform's console does, and the runbook says where.")}</p>
    </div>`}
    ${chosen && html`<${Adoption} ...${chosen} onClose=${() => setChosen(null)} />`}
  </section>`;
}

function Adoption({box, then, onClose}) {
  const [id, setId] = useState(null);
  const [problem, setProblem] = useState(null);
  const errand = useStore((known) => known.errands[id]);
  const park = then === "park";
  const begin = async () => {
    try {
      const begun = await post("/api/boxes/adopt", {provider: box.provider, box: box.box, then});
      noteErrand(begun);
      setId(begun.id);
    } catch (refusal) {
      setProblem(refusal);
    }
  };
  const title = park ? t("Adopt and park {box}", {box: box.box}) : t("Adopt {box}", {box: box.box});
  if (id !== null)
    return html`<${Dialog} title=${title} onClose=${onClose}><${Coming} errand=${errand} /><footer class="choice"><${Button} onClick=${onClose}>${t("Close")}<//></footer><//>`;
  return html`<${Dialog} title=${title} onClose=${onClose}><div class="plan"><dl>
      <div><dt><${Shape} kind="accent" />${t("What happens")}</dt>
        <dd>${t("The box comes under a lease, with a deadline and the usual terms; from then on it is watched like the others.")}</dd>
        ${park && html`<dd>${t("Then it is stopped, and its disk is kept. What runs on it ends.")}</dd>`}</div>
      <div><dt><${Shape} kind="wait" />${t("What it costs")}</dt>
        <dd>${park
          ? t("The GPU is no longer billed. The disk is, every hour, until the lease is torn down.")
          : t("What it costs already: the meter goes on until you park it or tear it down.")}</dd></div>
      <div><dt><${Shape} kind="soft" />${t("What it does not do")}</dt>
        <dd>${t("Nothing is destroyed. What lies on it counts as yours to keep: a teardown later asks about every file.")}</dd></div>
    </dl>
    ${problem && html`<${Trouble} problem=${problem} />`}
    <footer class="choice"><${Button} onClick=${onClose}>${t("Leave it as it is")}<//>
      <${Button} kind="primary" onClick=${begin}>${park ? t("Adopt and park") : t("Adopt")}<//></footer>
  </div><//>`;
}
