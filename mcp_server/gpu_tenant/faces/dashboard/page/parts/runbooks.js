// Lists the platforms: the main trap of each, what stops its bill, and a link to its runbook.

import {get} from "../net.js";
import {html, useState} from "../vendor/htm-preact.js";
import {t, useLang} from "../words.js";
import {Field, Pill, Shape, Trouble, useLoaded, Waiting, Words} from "./widgets.js";

/** @import {Platform} from "../types.d.ts" */

/** @type {Record<string, () => string>} */
const KINDS = {
  container: () => t("Containers"),
  vm: () => t("Virtual machines"),
  marketplace: () => t("Marketplace"),
  scheduler: () => t("Cluster queue"),
  kubernetes: () => t("Kubernetes"),
  notebook: () => t("Notebooks"),
  own: () => t("Your own machines"),
};

/** @param {string} kind */
export const kindWords = (kind) => KINDS[kind]?.() ?? kind;

export function Runbooks() {
  const [platforms, problem, again] = useLoaded(() => get("/api/platforms"), "platforms");
  const [typed, setTyped] = useState("");
  const lang = useLang();
  const wanted = typed.trim().toLowerCase();
  const shown = (platforms ?? []).filter((one) =>
    `${one.id} ${one.title} ${one.trap} ${kindWords(one.kind)}`.toLowerCase().includes(wanted),
  );
  return html`<section class="page runbooks" aria-labelledby="runbooks-title">
    <h1 id="runbooks-title">${t("Runbooks")}</h1>
    <p class="soft">
      ${t(
        "What is known of each platform, with its sources: what survives, what stops the meter, and what to do by hand at 3 a.m.",
      )}
    </p>
    <p>
      <a href=${`/runbooks/compare${lang === "zh" ? "?lang=zh" : ""}`}>
        ${t("Compare all platforms: what survives a stop, and what bills then")}
      </a>
    </p>
    ${problem && html`<${Trouble} problem=${problem} retry=${again} />`}
    ${!platforms && !problem && html`<${Waiting} lines=${6} />`}
    ${
      platforms &&
      html`<${Field} label=${t("Filter")}>
        <input type="search" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <//>
      <ul class="platforms">
        ${shown.map((platform) => html`<${Platform} key=${platform.id} platform=${platform} />`)}
      </ul>
      ${shown.length === 0 && html`<p class="soft" role="status">${t("No platform matches.")}</p>`}`
    }
  </section>`;
}

/** @param {{platform: Platform}} properties */
function Platform({platform}) {
  const lang = useLang();
  const {
    id,
    title,
    kind,
    trap,
    stops,
    stops_the_meter: dies,
    checked_on: checked,
    credential,
  } = platform;
  const keyed = credential.needed && credential.found;
  return html`<li class="platform">
    <div class="name">
      <h2><a href=${`/runbooks/${id}${lang === "zh" ? "?lang=zh" : ""}`}>${title}</a></h2>
      ${
        keyed
          ? html`<${Pill} kind="good">${t("key found")}<//>`
          : html`<span class="soft">${kindWords(kind)}</span>`
      }
    </div>
    <p class="snare"><${Shape} kind="warn" /><span><${Words} text=${trap} /></span></p>
    <dl>
      <div><dt>${t("Stops the meter")}</dt><dd><${Words} text=${stops} /></dd></div>
      <div><dt>${t("If this computer dies")}</dt><dd><${Words} text=${dies} /></dd></div>
    </dl>
    <p class="soft checked">
      ${keyed && html`${kindWords(kind)} · `}
      ${t("Checked on")} <time datetime=${checked}>${checked}</time>
    </p>
  </li>`;
}
