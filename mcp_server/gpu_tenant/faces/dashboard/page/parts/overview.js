// Shows all leases: first those in danger, then those that run, start, are parked, or have ended.

import {get} from "../net.js";
import {useStore} from "../store.js";
import {html, useEffect, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Alarms} from "./alarms.js";
import {LeaseRow} from "./leaserow.js";
import {Orphans} from "./orphans.js";
import {byFleet, grouped, isFree, isLive, isUnseen, phaseOf, rateOf} from "./standing.js";
import {Sweeps} from "./sweeps.js";
import {
  Button,
  Copy,
  Empty,
  Field,
  Money,
  Pill,
  Shape,
  Span,
  Trouble,
  useLoaded,
  Waiting,
  Words,
} from "./widgets.js";

/** @import {TimedRow} from "../known.d.ts" */

// -- groups -----------------------------------------------------------------

/** @param {{name: string, rows: TimedRow[]}} properties */
function FleetLine({name, rows}) {
  const told = rows.map(({card}) => card.together).find(Boolean);
  const size = told
    ? t("{had} of {asked} boxes", {had: told.had, asked: told.asked})
    : t("{n} boxes here", {n: rows.length});
  return html`<h3 class="fleetline">
    <${Shape} kind="accent" />
    ${t("Fleet")} <span class="mono">${name}</span>
    <span class="soft">${size} · <${Money} usd=${rateOf(rows)} per="h" /></span>
    ${told && told.missing.length > 0 && html`<span class="soft small">${told.missing.join("; ")}</span>`}
  </h3>`;
}

/** @param {{rows: TimedRow[], fine: boolean}} properties */
function Members({rows, fine}) {
  const blind = useStore((known) => known.blind);
  return html`<ul class="leases">
    ${rows.map(
      (row) =>
        html`<${LeaseRow}
          key=${row.card.lease}
          row=${row}
          blind=${blind[row.card.lease]}
          fine=${fine}
        />`,
    )}
  </ul>`;
}

/** @param {{id: string, words: () => string, rows: TimedRow[]}} properties */
function Group({id, words, rows}) {
  if (id === "free") return html`<${Free} words=${words} rows=${rows} />`;
  const rate = rateOf(rows);
  return html`<section class="group is-${id}" aria-labelledby=${`group-${id}`}>
    <h2 id=${`group-${id}`}>
      ${words()} <span class="count">${rows.length}</span>
      ${
        rate > 0 &&
        html`<span class="sum">
          <span class="soft small">${t("these alone")}</span> <${Money} usd=${rate} per="h" />
        </span>`
      }
    </h2>
    ${byFleet(rows).map(
      ({fleet, rows: members}) => html`<div key=${fleet ?? ""} class=${fleet ? "fleet" : "singles"}>
        ${fleet && html`<${FleetLine} name=${fleet} rows=${members} />`}
        <${Members} rows=${members} fine=${id !== "attention"} />
      </div>`,
    )}
  </section>`;
}

/**
 * Shows the leases that cost nothing. They are folded if there are others.
 * @param {{words: () => string, rows: TimedRow[]}} properties
 */
function Free({words, rows}) {
  const others = useStore((known) =>
    known.overview?.leases.some((row) => isLive(row) && row.card.condition.group !== "free"),
  );
  return html`<details class="group is-free" open=${!others}>
    <summary><h2 id="group-free">${words()} <span class="count">${rows.length}</span></h2></summary>
    <${Members} rows=${rows} fine=${true} />
  </details>`;
}

/** @param {{id: string, words: string, lines: string[]}} properties */
function Listed({id, words, lines}) {
  if (lines.length === 0) return null;
  return html`<section class="group" aria-labelledby=${`group-${id}`}>
    <h2 id=${`group-${id}`}>${words} <span class="count">${lines.length}</span></h2>
    <ul class="listed">
      ${lines.map(
        (line) =>
          html`<li key=${line}><${Shape} kind="accent" /><span><${Words} text=${line} /></span></li>`,
      )}
    </ul>
  </section>`;
}

// -- what has ended ---------------------------------------------------------

/** @param {{row: TimedRow}} properties */
function EndedRow({row}) {
  const {card} = row;
  const {kind, words} = phaseOf(row);
  return html`<tr>
    <th scope="row">
      <a class="mono" href=${`#/lease/${encodeURIComponent(card.lease)}`}>${card.lease}</a>
    </th>
    <td>${row.gpu ?? t("unknown")}</td>
    <td>${row.title}</td>
    <td><${Pill} kind=${kind}>${words()}<//></td>
    <td class="number"><${Span} seconds=${card.age_s} /></td>
    <td class="number">${isFree(row) ? t("nobody bills") : html`<${Money} usd=${card.cost_usd} />`}</td>
  </tr>`;
}

/** @param {{rows: TimedRow[]}} properties */
function EndedTable({rows}) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${t("Ended leases")}>
    <table class="table">
      <thead>
        <tr>
          <th scope="col">${t("Lease")}</th>
          <th scope="col">GPU</th>
          <th scope="col">${t("Platform")}</th>
          <th scope="col">${t("How it ended")}</th>
          <th scope="col" class="number">${t("Lasted")}</th>
          <th scope="col" class="number">${t("Cost")}</th>
        </tr>
      </thead>
      <tbody>${rows.map((row) => html`<${EndedRow} key=${row.card.lease} row=${row} />`)}</tbody>
    </table>
  </div>`;
}

/** @param {{open: boolean, told: any}} properties */
function Ended({open, told}) {
  const [shown, setShown] = useState(open);
  const load = () => (shown ? get("/api/overview?which=all") : Promise.resolve(null));
  const [all, problem, again] = useLoaded(load, `${shown}/${told}`);
  const rows = all?.leases.filter((row) => !isLive(row));
  if (!shown) {
    return html`<p class="more">
      <${Button} kind="quiet" onClick=${() => setShown(true)}>
        ${t("Show the leases that have ended")}
      <//>
    </p>`;
  }
  return html`<section class="group is-ended">
    <h2>
      ${t("Ended")} ${rows && html`<span class="count">${rows.length}</span>`}
      ${!open && html`<${Button} kind="quiet" onClick=${() => setShown(false)}>${t("Hide")}<//>`}
    </h2>
    ${problem && html`<${Trouble} problem=${problem} retry=${again} />`}
    ${!rows && !problem && html`<${Waiting} />`}
    ${rows && rows.length > 0 && html`<${EndedTable} rows=${rows} />`}
    ${rows?.length === 0 && html`<p class="soft">${t("No lease has ended yet.")}</p>`}
  </section>`;
}

// -- nothing ----------------------------------------------------------------

function Nothing() {
  const [all, problem] = useLoaded(() => get("/api/overview?which=all"), "nothing");
  if (!all && !problem) return html`<${Waiting} />`;
  const ended = (all?.leases ?? []).filter((row) => !isLive(row));
  const words =
    ended.length > 0
      ? t("Everything has ended, and no lease bills")
      : t("Nothing is leased, and no lease bills");
  return html`<div class="nothing">
    <h2><${Shape} kind="good" />${words}</h2>
    <div class="tiles">
      <section class="card stack">
        <h3>${t("Find a GPU")}</h3>
        <p class="soft">
          ${t(
            "What it costs all in, on every platform that you have a key for, before anything is rented.",
          )}
        </p>
        <p><${Copy} text="gpu-tenant offers --gpu H100 --hours 4" /></p>
        <p><a href="#/offers">${t("Or look on this page")}</a></p>
      </section>
      <section class="card stack">
        <h3>${t("Rehearse first")}</h3>
        <p class="soft">
          ${t(
            "A whole rental from offer to receipt, on this computer, without an account or money.",
          )}
        </p>
        <p><${Copy} text="gpu-tenant demo" /></p>
        <p><a href="#/runbooks">${t("Or read how each platform behaves")}</a></p>
      </section>
    </div>
  </div>
  ${ended.length > 0 && html`<${Ended} open=${true} told=${ended.length} />`}`;
}

// Says that the leases are not known yet, which does not mean that there are none.
function Unseen() {
  return html`<${Empty} title=${t("Nobody could look yet")}>
    <p>
      ${t(
        "What is leased and what it bills is unknown. That is not nothing: boxes may be running and billing.",
      )}
    </p>
    <p><${Copy} text="gpu-tenant leases" /></p>
  <//>`;
}

function Skeleton() {
  return html`<div class="skeleton" role="status">
    <span class="unseen">${t("Loading")}</span>
    ${[1, 2, 3].map(
      (n) => html`<div key=${n} class="lease is-unsaid" aria-hidden="true">
        <span></span>
        <span></span>
        <span></span>
        <span></span>
      </div>`,
    )}
  </div>`;
}

// -- find -------------------------------------------------------------------

/** @type {Record<string, () => string>} */
const ORDERS = {
  "": () => t("what needs you first"),
  name: () => t("name"),
  cost: () => t("spent, most first"),
  rate: () => t("rate, highest first"),
  deadline: () => t("deadline, next first"),
  age: () => t("age, oldest first"),
};
const FEWEST = 4; // for so few leases, a search is not needed

/** @type {Record<string, (row: TimedRow) => number | string>} */
const KEYS = {
  name: ({card}) => card.name.toLowerCase() || "\uffff",
  cost: ({card}) => -Number(card.cost_usd ?? -1),
  rate: ({card}) => -Number(card.price_usd_h ?? -1),
  deadline: ({card}) => card.deadline_in_s ?? Infinity,
  age: ({card}) => -card.age_s,
};

/**
 * Whether all words match this lease, by the rules of `gpu-tenant leases --search`: `#tag` matches a whole tag.
 * @param {TimedRow} row
 * @param {string} words
 */
function isFound({card, title, gpu}, words) {
  const tags = card.name.toLowerCase().split(/\s+/);
  const {word: state} = card.condition;
  const text = [card.name, card.lease, card.provider, title, gpu, card.box, card.fleet, state]
    .join(" ")
    .toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => (word.startsWith("#") ? tags.includes(word) : text.includes(word)));
}

/**
 * @param {string} query
 * @returns {{search: string, sort: string}}
 */
function soughtBy(query) {
  const said = new URLSearchParams(query);
  const sort = said.get("sort") ?? "";
  return {search: said.get("search") ?? "", sort: sort in ORDERS ? sort : ""};
}

/**
 * Puts the search into the address, so that a link leads to the same list.
 * @param {{search: string, sort: string}} sought
 */
function seek(sought) {
  const said = Object.entries(sought).filter(([, value]) => value !== "");
  const query = new URLSearchParams(said).toString();
  history.replaceState(null, "", query ? `#/?${query}` : "#/");
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** @param {{sought: {search: string, sort: string}, found: number, of: number}} properties */
function Finder({sought, found, of}) {
  return html`<form class="finder" role="search" onSubmit=${(event) => event.preventDefault()}>
    <${Field} label=${t("Find")}>
      <input
        type="search"
        autocomplete="off"
        spellcheck=${false}
        placeholder=${t("name, project/, #tag, platform")}
        value=${sought.search}
        onInput=${(event) => seek({...sought, search: event.target.value})}
      />
    <//>
    <${Field} label=${t("In the order of")}>
      <select value=${sought.sort} onChange=${(event) => seek({...sought, sort: event.target.value})}>
        ${Object.entries(ORDERS).map(
          ([id, words]) => html`<option key=${id} value=${id}>${words()}</option>`,
        )}
      </select>
    <//>
    ${
      sought.search !== "" &&
      html`<p class="soft" role="status">${t("{found} of {of} leases", {found, of})}</p>`
    }
  </form>`;
}

/** @param {{rows: TimedRow[], sort: string}} properties */
function Sorted({rows, sort}) {
  const key = KEYS[sort];
  const sorted = [...rows].sort((one, other) => (key(one) < key(other) ? -1 : 1));
  return html`<section class="group" aria-label=${ORDERS[sort]()}>
    <${Members} rows=${sorted} fine=${false} />
  </section>`;
}

// -- all of it --------------------------------------------------------------

/** @param {TimedRow[]} rows */
const saidBy = (rows) =>
  new Set(rows.filter(({card}) => card.alarm).map(({card}) => `${card.lease}: ${card.alarm}`));

/** @param {{query?: string}} properties */
export function Overview({query = ""}) {
  const overview = useStore((known) => known.overview);
  const blind = useStore((known) => known.blind);
  const problem = useStore((known) => known.problem);
  const groups = overview ? grouped(overview.leases, blind) : [];
  const count = groups.find(({id}) => id === "attention")?.rows.length ?? 0;
  useEffect(() => {
    document.title = `${count > 0 ? `▲ ${count} · ` : ""}${t("Leases")} · gpu-tenant`;
  }, [count]);
  if (!overview) {
    return html`<section class="page">
      <h1 class="unseen">${t("Leases")}</h1>
      ${problem ? html`<${Trouble} problem=${problem} />` : html`<${Skeleton} />`}
    </section>`;
  }
  const said = saidBy(overview.leases);
  const sought = soughtBy(query);
  const live = overview.leases.filter(isLive);
  const found = live.filter((row) => isFound(row, sought.search));
  return html`<section class="page">
    <h1 class="unseen">${t("Leases")}</h1>
    <${Alarms} alarms=${overview.alarms.filter((words) => !said.has(words))} />
    ${
      (live.length >= FEWEST || query !== "") &&
      html`<${Finder} sought=${sought} found=${found.length} of=${live.length} />`
    }
    ${
      sought.sort
        ? html`<${Sorted} rows=${found} sort=${sought.sort} />`
        : grouped(found, blind).map((group) => html`<${Group} key=${group.id} ...${group} />`)
    }
    <${Orphans} />
    <${Sweeps} lines=${overview.sweeps} />
    <${Listed} id="waiting" words=${t("Waiting for a box")} lines=${overview.waiting} />
    ${
      isUnseen(overview)
        ? html`<${Unseen} />`
        : groups.length === 0
          ? html`<${Nothing} />`
          : html`<${Ended} open=${false} told=${overview.leases.length} />`
    }
  </section>`;
}
