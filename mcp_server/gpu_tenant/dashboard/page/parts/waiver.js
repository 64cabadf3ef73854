// A person signs for exactly what would be lost: nothing else destroys what was not proved.
import {html, useState} from "../vendor/htm-preact.js";
import {get, post} from "../net.js";
import {t} from "../words.js";
import {Button, Copy, Field, Money, Shape, Trouble, useLoaded, Waiting} from "./widgets.js";

export function Waiver({row, onBegun, onClose}) {
  const {lease} = row.card;
  const path = `/api/leases/${encodeURIComponent(lease)}`;
  const [report, problem, again] = useLoaded(() => get(`${path}/losses`), lease);
  if (problem) return html`<${Trouble} problem=${problem} retry=${again} />`;
  if (!report) return html`<p class="soft">${t("Asking the box what would be lost…")}</p><${Waiting} />`;
  if (report.losses.length === 0)
    return html`<p>${t("Nothing would be lost: verify and tear down needs no signature.")}</p>
      <footer class="choice"><${Button} onClick=${onClose}>${t("Close")}<//></footer>`;
  if (report.code === "none") return html`<${Elsewhere} row=${row} report=${report} onClose=${onClose} />`;
  return html`<${Signature} key=${report.digest} row=${row} report=${report} path=${path} again=${again} onBegun=${onBegun} onClose=${onClose} />`;
}

function Losses({row, report}) {
  return html`<p class="caution"><${Shape} kind="bad" /><strong>${t("This cannot be undone. Gone for good, and nowhere else that was proved:")}</strong></p>
    <div class="losses" role="group" tabindex="0" aria-label=${t("What would be lost")}>
      <ol>${report.losses.map((loss) => html`<li key=${loss}>${loss}</li>`)}</ol>
    </div>
    <dl class="sums">
      <div><dt>${t("Waiting costs")}</dt><dd><${Money} usd=${row.card.price_usd_h} per="h" /></dd></div>
      <div><dt>${t("Fingerprint of the list")}</dt><dd><code>${report.digest.slice(0, 16)}</code></dd></div>
    </dl>`;
}

// This dashboard was not started at a terminal: whoever sits at its page need not be a person.
function Elsewhere({row, report, onClose}) {
  return html`<div class="waiver">
    <${Losses} row=${row} report=${report} />
    <p>${t("A person signs for this at a terminal, and this dashboard was not started at one. There, this command shows the list and asks:")}</p>
    <p><${Copy} text=${`gpu-tenant waive ${row.card.lease}`} /></p>
    <footer class="choice"><${Button} onClick=${onClose}>${t("Keep everything")}<//></footer>
  </div>`;
}

function Signature({row, report, path, again, onBegun, onClose}) {
  const {lease} = row.card;
  const [typed, setTyped] = useState("");
  const [code, setCode] = useState("");
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const complete = typed === lease && code.trim() !== "";
  const sign = async (event) => {
    event.preventDefault();
    if (!complete) return;
    setBusy(true);
    try {
      onBegun(await post(`${path}/waive`, {digest: report.digest, typed, code: code.trim()}));
    } catch (problem) {
      // That code is spent; asked again, the terminal shows another one for the list as it is by then.
      setRefusal(problem);
      setCode("");
      setBusy(false);
      again();
    }
  };
  return html`<form class="waiver" onSubmit=${sign}>
    <${Losses} row=${row} report=${report} />
    <p class="soft">${t("You sign for exactly this list. If it has changed by then, the signature does not count.")}</p>
    <${Field} label=${t("To sign, type the id of the lease: {lease}", {lease})}>
      <input type="text" autocomplete="off" autocapitalize="off" spellcheck=${false} value=${typed} onInput=${(event) => setTyped(event.target.value)} /><//>
    <${Field} label=${t("Code from the dashboard's terminal")} hint=${t("It stands there for exactly this list, and is good for once.")}>
      <input type="text" autocomplete="off" autocapitalize="off" spellcheck=${false} value=${code} onInput=${(event) => setCode(event.target.value)} /><//>
    ${refusal && html`<${Trouble} problem=${refusal} />`}
    <footer class="choice">
      <${Button} onClick=${onClose}>${t("Keep everything")}<//>
      <${Button} type="submit" kind="danger" disabled=${!complete} busy=${busy}>${t("Destroy and lose this")}<//>
    </footer>
  </form>`;
}
