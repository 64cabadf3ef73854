// Shows the offers, ranked by what the finished work would cost.

import {get} from "../net.js";
import {openAction} from "../store.js";
import {html, useEffect, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {
  Button,
  Copy,
  Empty,
  Field,
  Money,
  Pill,
  Shape,
  spanWords,
  Trouble,
  useLoaded,
  Waiting,
  Words,
} from "./widgets.js";

/** @import {Found as FoundOffers, Platform, Ranked} from "../types.d.ts" */

const TRUST = {
  any: () => t("Any host"),
  unverified: () => t("Unverified or better"),
  verified: () => t("Verified or better"),
  datacenter: () => t("Data centres only"),
};
const HOSTS = {
  unverified: {kind: "warn", words: () => t("unverified host")},
  verified: {kind: "soft", words: () => t("verified host")},
  datacenter: {kind: "good", words: () => t("data centre")},
};
const USUAL = {gpu: "", hours: 4, interruptible: "no", trust: "verified", disk_gb: 40};

const QUOTED_MS = 10 * 60_000;

/** @param {Record<string, any>} wish */
function asQuery(wish) {
  const said = Object.entries(wish).map(([name, value]) => [name, String(value ?? "").trim()]);
  return new URLSearchParams(said.filter(([, value]) => value !== "")).toString();
}

/**
 * @param {string} query
 * @returns {Record<string, any>}
 */
const wishOf = (query) => ({...USUAL, ...Object.fromEntries(new URLSearchParams(query))});

/**
 * @param {string} query
 * @param {number} round
 */
const askedBy = (query, round) =>
  query === "" ? null : {query, hours: Number(wishOf(query).hours), round: round + 1};

/** @param {Platform[]} platforms */
const isKeyless = (platforms) =>
  !platforms.some(({credential}) => credential.needed && credential.found);

/**
 * The search is in the address, so that a link leads to the same search.
 * @param {{query: string}} properties
 */
export function Offers({query}) {
  const [platforms] = useLoaded(() => get("/api/platforms"), "platforms");
  const [wish, setWish] = useState(() => wishOf(query));
  const [asked, setAsked] = useState(() => askedBy(query, 0));
  useEffect(() => {
    setWish(wishOf(query));
    setAsked((before) => (before?.query === query ? before : askedBy(query, before?.round ?? 0)));
  }, [query]);
  const ask = () => {
    const wanted = asQuery(wish);
    if (wanted === query) setAsked(askedBy(query, asked?.round ?? 0));
    else location.hash = `#/offers?${wanted}`;
  };
  return html`<section class="page offers" aria-labelledby="offers-title">
    <h1 id="offers-title">${t("Offers")}</h1>
    <p class="soft">
      ${t(
        "Every platform whose key is found is asked at once. Ranked by what the finished work would cost, and nothing is rented here.",
      )}
    </p>
    ${
      platforms &&
      isKeyless(platforms) &&
      html`<p class="caution">
        <${Shape} kind="warn" />
        ${t("No key of any account is found, so most platforms cannot be asked.")}
        ${" "}
        <a href="#/settings">${t("Say in Settings where one is")}</a>
      </p>`
    }
    <${Wish}
      wish=${wish}
      platforms=${platforms ?? []}
      change=${(news) => setWish({...wish, ...news})}
      onAsk=${ask}
    />
    ${
      asked &&
      html`<${Found}
        key=${asked.round}
        asked=${asked}
        titles=${Object.fromEntries((platforms ?? []).map(({id, title}) => [id, title]))}
      />`
    }
  </section>`;
}

// -- what is wished for -----------------------------------------------------

/**
 * @param {{wish: Record<string, any>, platforms: Platform[],
 *   change: (news: Record<string, any>) => void, onAsk: () => void}} properties
 */
function Wish({wish, platforms, change, onAsk}) {
  /** @param {string} name */
  const text = (name) => (/** @type {any} */ event) => change({[name]: event.target.value});
  /**
   * @param {string} name
   * @param {object} more
   */
  const number = (name, more) => html`<input
    type="number"
    inputmode="decimal"
    step="any"
    ...${more}
    value=${wish[name]}
    onInput=${(event) => change({[name]: event.target.value})}
  />`;
  /** @param {Event} event */
  const ask = (event) => {
    event.preventDefault();
    onAsk();
  };
  return html`<form class="wish" role="search" onSubmit=${ask}>
    <div class="fields">
      <${Field} label=${t("GPU")}>
        <input
          type="text"
          list="gpus"
          autocomplete="off"
          spellcheck=${false}
          placeholder=${t("any, or H100 SXM:8")}
          value=${wish.gpu}
          onInput=${text("gpu")}
        />
      <//>
      <datalist id="gpus">
        ${[
          "RTX 4090",
          "RTX 5090",
          "L40S",
          "A100 PCIE",
          "A100 SXM4",
          "H100 SXM",
          "H100 SXM:8",
          "H200",
          "B200",
        ].map((name) => html`<option key=${name} value=${name} />`)}
      </datalist>
      <${Field} label=${t("Hours of work")}>
        ${number("hours", {min: 0.1, max: 8760, required: true})}
      <//>
      <${Field} label=${t("At most, USD an hour")}>
        ${number("max_price_usd_h", {min: 0, placeholder: t("no cap")})}
      <//>
      <${Field} label=${t("Disk, GB")}>${number("disk_gb", {min: 8, max: 100000, step: 1})}<//>
      <${Field} label=${t("Trust")}>
        <select value=${wish.trust} onChange=${text("trust")}>
          ${Object.entries(TRUST).map(
            ([id, words]) => html`<option key=${id} value=${id}>${words()}</option>`,
          )}
        </select>
      <//>
    </div>
    <details>
      <summary>${t("More wishes: memory, region, interruptible, bytes, platform")}</summary>
      <div class="fields">
        <${Field} label=${t("Memory of each GPU, GiB")}>${number("vram_gib", {min: 1})}<//>
        <${Field} label=${t("Region")}>
          <input
            type="text"
            autocomplete="off"
            placeholder=${t("part of its name")}
            value=${wish.region}
            onInput=${text("region")}
          />
        <//>
        <${Field} label=${t("Interruptible")}>
          <select value=${wish.interruptible} onChange=${text("interruptible")}>
            <option value="no">${t("No: it stays until I end it")}</option>
            <option value="either">${t("Either")}</option>
            <option value="yes">${t("Only such")}</option>
          </select>
        <//>
        <${Field} label=${t("To the box, GB")}>
          ${number("upload_gb", {min: 0, placeholder: "0"})}
        <//>
        <${Field} label=${t("Off the box, GB")}>
          ${number("download_gb", {min: 0, placeholder: "0"})}
        <//>
        <${Field} label=${t("Platform")}>
          <select value=${wish.provider ?? ""} onChange=${text("provider")}>
            <option value="">${t("All")}</option>
            ${platforms
              .filter(({connected}) => connected)
              .map(({id, title}) => html`<option key=${id} value=${id}>${title}</option>`)}
          </select>
        <//>
      </div>
    </details>
    <p><${Button} type="submit" kind="primary">${t("Find offers")}<//></p>
  </form>`;
}

// -- what was found ---------------------------------------------------------

/** @param {{asked: {query: string, hours: number}, titles: Record<string, string>}} properties */
function Found({asked, titles}) {
  const [found, problem, again] = useLoaded(
    /** @returns {Promise<FoundOffers>} */
    () => get(`/api/offers?${asked.query}`),
    asked.query,
  );
  const old = useOld(found);
  if (problem) return html`<${Trouble} problem=${problem} retry=${again} />`;
  if (!found)
    return html`<div role="status">
      <p class="soft">${t("Asking the platforms; the slowest has 15 seconds…")}</p>
      <${Waiting} lines=${4} />
    </div>`;
  const troubles = Object.entries(found.troubles);
  return html`<div class="found">
    <div class="headed">
      <h2>
        <span role="status">
          ${found.offers.length === 1 ? t("1 offer") : t("{n} offers", {n: found.offers.length})}
        </span>
      </h2>
      ${
        !old &&
        found.offers.some(({quote}) => quote) &&
        html`<p class="soft">
          ${t("A quote holds for ten minutes. Its button here, or its command in a terminal, rents exactly that box.")}
        </p>`
      }
    </div>
    ${
      old &&
      html`<p class="caution" role="status">
        <${Shape} kind="warn" />
        ${t("These are more than ten minutes old, and their quotes have run out.")}
        ${" "}
        <${Button} onClick=${again}>${t("Ask again")}<//>
      </p>`
    }
    ${
      found.offers.length === 0
        ? html`<${Empty} title=${t("Nothing fits")}><p><${Words} text=${found.next} /></p><//>`
        : html`<ol class="ranked">
          ${found.offers.map(
            (offer, at) => html`<${Offer}
              key=${offer.quote ?? at}
              offer=${offer}
              old=${old}
              cheapest=${offer.quote !== null && offer.quote === found.cheapest}
              hours=${asked.hours}
              title=${titles[offer.provider] ?? offer.provider}
            />`,
          )}
        </ol>`
    }
    ${found.untested && html`<p>${found.untested}</p>`}
    <${LeftOut} unfit=${found.unfit} />
    ${
      troubles.length > 0 &&
      html`<section class="outcome is-bad" aria-labelledby="silent">
        <h3 id="silent"><${Shape} kind="warn" />${t("Did not answer")}</h3>
        <dl class="points">
          ${troubles.map(
            ([provider, words]) => html`<div key=${provider}>
              <dt>${titles[provider] ?? provider}</dt>
              <dd><${Words} text=${words} /></dd>
            </div>`,
          )}
        </dl>
      </section>`
    }
  </div>`;
}

/**
 * Whether the quotes of these offers have expired.
 * @param {any} found
 */
function useOld(found) {
  const [old, setOld] = useState(null);
  useEffect(() => {
    if (!found) return;
    const timer = setTimeout(() => setOld(found), QUOTED_MS);
    return () => clearTimeout(timer);
  }, [found]);
  return found !== undefined && old === found;
}

/** @param {{unfit: Record<string, number>}} properties */
function LeftOut({unfit}) {
  const reasons = Object.entries(unfit);
  if (reasons.length === 0) return null;
  return html`<section aria-labelledby="unfit">
    <h3 id="unfit">${t("Left out")}</h3>
    <ul class="unfit">
      ${reasons.map(([reason, count]) => html`<li key=${reason}><b>${count}</b> ${reason}</li>`)}
    </ul>
  </section>`;
}

/**
 * @param {{offer: Ranked, old: boolean, cheapest: boolean, hours: number,
 *   title: string}} properties
 */
function Offer({offer, old, cheapest, hours, title}) {
  const host = HOSTS[offer.trust];
  const gpu = offer.gpu_count > 1 ? `${offer.gpu} × ${offer.gpu_count}` : offer.gpu;
  return html`<li class="offer">
    <div class="what">
      <h3>${gpu}</h3>
      <p class="soft">
        ${[
          title,
          offer.region,
          offer.vram_gib && t("{n} GiB a GPU", {n: offer.vram_gib}),
          offer.max_hours && t("for {span} at most", {span: spanWords(offer.max_hours * 3600)}),
        ]
          .filter(Boolean)
          .join(" · ")}
      </p>
      <p class="pills">
        <${Pill} kind=${host.kind}>${host.words()}<//>
        ${offer.interruptible && html`<${Pill} kind="warn">${t("interruptible")}<//>`}
        ${cheapest && html`<${Pill} kind="accent">${t("lowest rate")}<//>`}
        ${offer.memory === "too small" && html`<${Pill} kind="bad">${t("too little GPU memory")}<//>`}
        ${offer.memory === "tight" && html`<${Pill} kind="warn">${t("GPU memory is tight")}<//>`}
        ${
          offer.reliability !== null &&
          html`<span class="soft">
            ${t("reliability {share}", {share: `${(offer.reliability * 100).toFixed(1)} %`})}
          </span>`
        }
      </p>
    </div>
    <dl class="price">
      <div>
        <dt>${t("Finished work, {hours} h", {hours})}</dt>
        <dd><strong><${Money} usd=${offer.expected_usd} /></strong></dd>
      </div>
      <div><dt>${t("Rate")}</dt><dd><${Money} usd=${offer.running_usd_h} per="h" /></dd></div>
    </dl>
    ${offer.terms.length > 0 && html`<${Breakdown} offer=${offer} />`}
    ${
      offer.notes.length > 0 &&
      html`<ul class="notes">${offer.notes.map((note) => html`<li key=${note}><${Words} text=${note} /></li>`)}</ul>`
    }
    ${
      offer.quote
        ? !old &&
          html`<p class="rent">
            <${Button} onClick=${() => openAction({verb: "provision", offer: {offer, hours, title}})}>
              ${t("Rent it")}…
            <//>
            ${" "}
            <${Copy} text=${`gpu-tenant provision --quote ${offer.quote}`} />
          </p>`
        : html`<p class="soft">
          ${t("This one is not rented by a quote.")}
          ${" "}
          <a href=${`/runbooks/${offer.provider}`} target="_blank">${t("Runbook")}</a>
        </p>`
    }
  </li>`;
}

/** @type {["gpu_usd_h" | "disk_usd_h" | "parked_usd_h" | "upload_usd_gb" | "download_usd_gb", string, "h" | null][]} */
const PRICES = [
  ["gpu_usd_h", "GPU", "h"],
  ["disk_usd_h", "Disk", "h"],
  ["parked_usd_h", "While parked", "h"],
  ["upload_usd_gb", "A GB to the box", null],
  ["download_usd_gb", "A GB off the box", null],
];

/** @param {{offer: Ranked}} properties */
function Breakdown({offer}) {
  const {price, terms} = offer;
  return html`<details class="breakdown">
    <summary>${t("How that comes about")}</summary>
    <div
      class="scroll"
      role="group"
      tabindex="0"
      aria-label=${t("The expected cost, part by part")}
    >
      <table class="table">
        <thead>
          <tr>
            <th scope="col">${t("Part")}</th>
            <th scope="col">${t("Reckoned as")}</th>
            <th scope="col" class="number">${t("Cost")}</th>
          </tr>
        </thead>
        <tbody>
          ${terms.map(
            (term) => html`<tr key=${term.name}>
              <th scope="row">${term.name}</th>
              <td class="soft">${term.words}</td>
              <td class="number"><${Money} usd=${term.usd} /></td>
            </tr>`,
          )}
        </tbody>
        <tfoot>
          <tr>
            <th scope="row" colspan="2">${t("Expected in all")}</th>
            <td class="number"><strong><${Money} usd=${offer.expected_usd} /></strong></td>
          </tr>
        </tfoot>
      </table>
    </div>
    <dl class="rates">
      ${PRICES.map(
        ([name, words, per]) =>
          html`<div key=${name}>
            <dt>${t(words)}</dt>
            <dd><${Money} usd=${price[name]} per=${per} /></dd>
          </div>`,
      )}
    </dl>
    ${
      (price.converted || price.as_of) &&
      html`<p class="soft">
        ${[price.converted, price.as_of && t("as of {day}", {day: price.as_of})]
          .filter(Boolean)
          .join(" · ")}
      </p>`
    }
  </details>`;
}
