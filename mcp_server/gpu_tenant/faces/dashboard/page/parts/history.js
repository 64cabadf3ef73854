// Shows what was spent: by day and platform, the hourly cost over time, and all leases that have ended.

import {get} from "../net.js";
import {useStore} from "../store.js";
import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {now} from "./ticking.js";
import {
  Button,
  Bytes,
  Empty,
  Money,
  Pill,
  Shape,
  Span,
  Trouble,
  usdWords,
  useLoaded,
  Waiting,
  When,
} from "./widgets.js";

/** @import {Tone} from "../known.d.ts" */
/** @import {Burning, CostShare, Day, History, Past} from "../types.d.ts" */

const DAY_MS = 86_400_000;
const FEWEST_DAYS = 14;
const COLOURS = 6;

/** @type {Record<string, {kind: Tone, words: () => string}>} */
const GROUNDS = {
  verified: {kind: "good", words: () => t("verified")},
  never_used: {kind: "soft", words: () => t("never used")},
  waived: {kind: "warn", words: () => t("waived")},
};
/** @type {Record<string, {kind: Tone, words: () => string}>} */
const STATES = {
  gone: {kind: "soft", words: () => t("gone, no receipt")},
  void: {kind: "soft", words: () => t("never came")},
  lost: {kind: "bad", words: () => t("lost")},
};
/** @param {Past} lease */
const howEnded = (lease) =>
  GROUNDS[lease.ground ?? ""] ?? STATES[lease.state] ?? {kind: "soft", words: () => lease.state};

export function History() {
  const [past, problem, again] = useLoaded(() => get("/api/history"), "history");
  useNewLeases(again);
  return html`<section class="page history" aria-labelledby="history-title">
    <h1 id="history-title">${t("History")}</h1>
    ${problem && html`<${Trouble} problem=${problem} retry=${again} />`}
    ${!past && !problem && html`<${Waiting} lines=${6} />`}
    ${
      past &&
      (past.leases.length === 0 && past.days.every(({usd}) => sumOf(usd) === 0)
        ? html`<${Empty} title=${t("Nothing was spent yet")}>
          <p>${t("Leases that have ended, their cost and their receipts will stand here.")}</p>
        <//>`
        : html`<${Sums} past=${past} />
        <${Days} days=${past.days} titles=${titlesOf(past.leases)} />
        <${Shares}
          id="projects"
          title=${t("By project")}
          head=${t("Project")}
          none=${t("no project")}
          shares=${past.projects}
        />
        <${Shares}
          id="tags"
          title=${t("By tag")}
          head=${t("Tag")}
          none=${t("no tag")}
          shares=${past.tags}
        />
        <${Burning} burning=${past.burning} />
        <${Ended} leases=${past.leases} />`)
    }
  </section>`;
}

/**
 * Calls `tell` when a lease has begun or ended since this was shown.
 * @param {() => void} tell
 */
function useNewLeases(tell) {
  const live = useStore(
    (known) =>
      known.overview?.leases
        .map(({card}) => card.lease)
        .sort()
        .join(" ") ?? null,
  );
  const shown = useRef(live);
  useEffect(() => {
    if (shown.current !== null && shown.current !== live) tell();
    shown.current = live;
  }, [live]);
}

// -- sums -------------------------------------------------------------------

/** @param {Record<string, string>} usd */
const sumOf = (usd) => Object.values(usd).reduce((sum, value) => sum + Number(value), 0);
/** @param {Day[]} days */
const totalOf = (days) => days.reduce((sum, {usd}) => sum + sumOf(usd), 0);

/** @param {{past: History}} properties */
function Sums({past}) {
  return html`<div class="totals">
    <dl>
      <div><dt>${t("Spent on all leases")}</dt><dd><${Money} usd=${past.spent_usd} /></dd></div>
      <div>
        <dt>${t("In the last 30 days")}</dt>
        <dd><${Money} usd=${totalOf(past.days.slice(-30))} /></dd>
      </div>
      <div><dt>${t("This month, so far")}</dt><dd><${Money} usd=${past.month.spent_usd} /></dd></div>
      ${
        Number(past.month.forecast_usd) > Number(past.month.spent_usd) &&
        html`<div>
          <dt>${t("At its end, if all bill to their deadlines")}</dt>
          <dd><${Money} usd=${past.month.forecast_usd} /></dd>
        </div>`
      }
      <div><dt>${t("Leases that have ended")}</dt><dd>${past.leases.length}</dd></div>
    </dl>
    ${past.unknown.length > 0 && html`<${Unknown} leases=${past.unknown} />`}
  </div>`;
}

const NAMED = 12;

/**
 * Names the leases whose costs are unknown, and so not in any sum, bar or line here.
 * @param {{leases: string[]}} properties
 */
function Unknown({leases}) {
  const more = leases.length - NAMED;
  return html`<p class="caution">
    <${Shape} kind="warn" />
    ${t(
      "More was spent than is shown here: these leases had hours at an unknown rate, and no sum counts those.",
    )}
    ${leases
      .slice(0, NAMED)
      .map(
        (lease) =>
          html` <a key=${lease} class="mono" href=${`#/lease/${encodeURIComponent(lease)}`}>${lease}</a>`,
      )}
    ${more > 0 && ` ${t("and {n} more", {n: more})}`}
  </p>`;
}

// -- days -------------------------------------------------------------------

/**
 * Returns every day from the first with a cost to the last, but at least two weeks.
 * @param {Day[]} days
 */
function calendar(days) {
  const by = new Map(days.map(({day, usd}) => [day, usd]));
  const last = Date.parse(days.at(-1)?.day ?? new Date(now()).toISOString().slice(0, 10));
  const spent = days.find(({usd}) => sumOf(usd) > 0)?.day;
  const first = Math.min(spent ? Date.parse(spent) : last, last - (FEWEST_DAYS - 1) * DAY_MS);
  const all = Array.from({length: Math.round((last - first) / DAY_MS) + 1}, (_, n) =>
    new Date(first + n * DAY_MS).toISOString().slice(0, 10),
  );
  return all.map((day) => ({day, usd: by.get(day) ?? {}, sum: sumOf(by.get(day) ?? {})}));
}

/** @param {Past[]} leases */
const titlesOf = (leases) =>
  Object.fromEntries(leases.map(({provider, title}) => [provider, title]));

/** @param {{days: Day[], titles: Record<string, string>}} properties */
function Days({days, titles}) {
  /** @param {string} provider */
  const named = (provider) => titles[provider] ?? provider;
  const shown = calendar(days);
  const most = Math.max(...shown.map(({sum}) => sum));
  if (most === 0) return null;
  /** @type {Record<string, number>} */
  const sums = {};
  for (const {usd} of shown)
    for (const [provider, value] of Object.entries(usd))
      sums[provider] = (sums[provider] ?? 0) + Number(value);
  const providers = Object.keys(sums)
    .filter((one) => sums[one] > 0)
    .sort((one, other) => sums[other] - sums[one]);
  const total = totalOf(shown);
  return html`<section class="card" aria-labelledby="days-title">
    <h2 id="days-title">${t("Spent by day (UTC)")}</h2>
    <ul class="legend">
      ${providers.map(
        (provider, at) => html`<li key=${provider}>
          <span class=${`swatch series-${at % COLOURS}`} aria-hidden="true"></span>
          ${named(provider)} <${Money} usd=${sums[provider]} />
        </li>`,
      )}
    </ul>
    <figure class="plot">
      <p class="top soft" aria-hidden="true"><${Money} usd=${most} /></p>
      <svg
        viewBox=${`0 0 ${shown.length} 100`}
        preserveAspectRatio="none"
        role="img"
        aria-label=${t(
          "Spent by day, from {first} to {last}: {total} in all, {most} on the dearest day",
          {
            first: shown[0].day,
            last: shown[shown.length - 1].day,
            total: usdWords(total),
            most: usdWords(most),
          },
        )}
      >
        ${shown.map(
          (day, x) => html`<${Bar}
            key=${day.day}
            day=${day}
            x=${x}
            most=${most}
            providers=${providers}
            named=${named}
          />`,
        )}
      </svg>
      <figcaption class="soft" aria-hidden="true">
        <span>${shown[0].day}</span>
        <span>${shown[shown.length - 1].day}</span>
      </figcaption>
    </figure>
    <details>
      <summary>${t("The same as a table")}</summary>
      <div class="scroll" role="group" tabindex="0" aria-labelledby="days-title">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">${t("Day (UTC)")}</th>
              ${providers.map(
                (one) => html`<th key=${one} scope="col" class="number">${named(one)}</th>`,
              )}
              <th scope="col" class="number">${t("Sum")}</th>
            </tr>
          </thead>
          <tbody>
            ${shown
              .filter(({sum}) => sum > 0)
              .reverse()
              .map(
                ({day, usd, sum}) => html`<tr key=${day}>
                  <th scope="row">${day}</th>
                  ${providers.map(
                    (one) => html`<td key=${one} class="number">
                      ${usd[one] ? html`<${Money} usd=${usd[one]} />` : "–"}
                    </td>`,
                  )}
                  <td class="number"><strong><${Money} usd=${sum} /></strong></td>
                </tr>`,
              )}
          </tbody>
          <tfoot>
            <tr>
              <th scope="row">${t("Sum")}</th>
              ${providers.map(
                (one) => html`<td key=${one} class="number"><${Money} usd=${sums[one]} /></td>`,
              )}
              <td class="number"><strong><${Money} usd=${total} /></strong></td>
            </tr>
          </tfoot>
        </table>
      </div>
    </details>
  </section>`;
}

/**
 * @param {{day: ReturnType<typeof calendar>[number], x: number, most: number, providers: string[],
 *   named: (provider: string) => string}} properties
 */
function Bar({day, x, most, providers, named}) {
  let top = 100;
  const said = providers
    .filter((one) => Number(day.usd[one] ?? 0) > 0)
    .map((one) => `${named(one)} ${usdWords(day.usd[one])}`);
  return html`<g>
    <title>${`${day.day}: ${said.join(", ") || usdWords(0)}`}</title>
    <rect class="under" x=${x} y="0" width="1" height="100" />
    ${providers.map((provider, at) => {
      const height = (100 * Number(day.usd[provider] ?? 0)) / most;
      top -= height;
      return (
        height > 0 &&
        html`<rect
          key=${provider}
          class=${`series-${at % COLOURS}`}
          x=${x + 0.1}
          y=${top}
          width="0.8"
          height=${height}
        />`
      );
    })}
  </g>`;
}

// -- projects and tags ------------------------------------------------------

/** @param {{id: string, title: string, head: string, none: string, shares: CostShare[]}} properties */
function Shares({id, title, head, none, shares}) {
  if (shares.length === 0) return null;
  return html`<section class="card" aria-labelledby=${`${id}-title`}>
    <h2 id=${`${id}-title`}>${title}</h2>
    <div class="scroll" role="group" tabindex="0" aria-labelledby=${`${id}-title`}>
      <table class="table">
        <thead>
          <tr>
            <th scope="col">${head}</th>
            <th scope="col" class="number">${t("Leases")}</th>
            <th scope="col" class="number">${t("Cost")}</th>
          </tr>
        </thead>
        <tbody>
          ${shares.map(
            ({name, leases, usd}) => html`<tr key=${name ?? ""}>
              <th scope="row">${name ?? html`<span class="soft">${none}</span>`}</th>
              <td class="number">${leases}</td>
              <td class="number"><${Money} usd=${usd} /></td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}

// -- burn rate --------------------------------------------------------------

/** @param {{burning: Burning[]}} properties */
function Burning({burning}) {
  const points = burning.map(({at, usd_h: usd}) => [Number(at), Number(usd)]);
  const most = Math.max(0, ...points.map(([, usd]) => usd));
  if (points.length < 2 || most === 0) return null;
  const [from, to] = [points[0][0], Math.max(now() / 1000, points[points.length - 1][0])];
  /** @param {number} at */
  const x = (at) => ((1000 * (at - from)) / (to - from || 1)).toFixed(2);
  /** @param {number} usd */
  const y = (usd) => (100 - (100 * usd) / most).toFixed(2);
  const steps = points
    .map(
      ([at, usd], n) =>
        `${n === 0 ? "M" : "H"}${n === 0 ? `${x(at)} ${y(usd)}` : `${x(at)}V${y(usd)}`}`,
    )
    .join("");
  return html`<section class="card" aria-labelledby="burn-title">
    <h2 id="burn-title">${t("Burn rate")}</h2>
    <figure class="plot">
      <p class="top soft" aria-hidden="true"><${Money} usd=${most} per="h" /></p>
      <svg
        viewBox="0 0 1000 100"
        preserveAspectRatio="none"
        role="img"
        aria-label=${t("Burn rate: {most} an hour at the most, {now} now", {
          most: usdWords(most),
          now: usdWords(points[points.length - 1][1]),
        })}
      >
        <path class="area" d=${`${steps}H1000V100H0Z`} />
        <path class="line" d=${`${steps}H1000`} />
      </svg>
      <figcaption class="soft" aria-hidden="true">
        <span><${When} at=${from * 1000} /></span>
        <span><${When} at=${500 * (from + to)} /></span>
        <span>${t("now")}</span>
      </figcaption>
    </figure>
  </section>`;
}

// -- leases that have ended -------------------------------------------------

/** @type {(keyof Past)[]} */
const COLUMNS = [
  "lease",
  "name",
  "provider",
  "gpu",
  "began_at",
  "ended_at",
  "state",
  "ground",
  "cost_usd",
  "billed_usd",
  "kept_files",
  "kept_bytes",
];

/**
 * Returns a cell for a spreadsheet, as text, so that it is not run as a formula. Some cells have a provider's texts.
 * @param {string | number | null} value
 */
function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** @param {Past[]} leases */
const asCsv = (leases) =>
  [COLUMNS, ...leases.map((lease) => COLUMNS.map((name) => lease[name]))]
    .map((line) => line.map(cell).join(","))
    .join("\r\n");

/** @param {{leases: Past[]}} properties */
function CopyCsv({leases}) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    setSaid(
      await navigator.clipboard.writeText(asCsv(leases)).then(
        () => t("Copied"),
        () => t("The browser did not let it be copied"),
      ),
    );
    setTimeout(() => setSaid(""), 2000);
  };
  return html`<${Button} kind="quiet" onClick=${copy}>${t("Copy as CSV")}<//>
  <span class="soft" role="status">${said}</span>`;
}

/** @param {{leases: Past[]}} properties */
function Ended({leases}) {
  if (leases.length === 0) return null;
  const sum = leases.reduce((all, {cost_usd: cost}) => all + Number(cost ?? 0), 0);
  const billed = leases.reduce((all, {billed_usd: cost}) => all + Number(cost ?? 0), 0);
  return html`<section aria-labelledby="past-title">
    <div class="headed">
      <h2 id="past-title">${t("Leases that have ended")}</h2>
      <${CopyCsv} leases=${leases} />
    </div>
    <div class="scroll" role="group" tabindex="0" aria-labelledby="past-title">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">${t("Lease")}</th>
            <th scope="col">${t("Name")}</th>
            <th scope="col">${t("Platform")}</th>
            <th scope="col">GPU</th>
            <th scope="col">${t("Ended")}</th>
            <th scope="col" class="number">${t("Lasted")}</th>
            <th scope="col" class="number">${t("Cost")}</th>
            <th scope="col" class="number">${t("Billed by the platform")}</th>
            <th scope="col" class="number">${t("Kept")}</th>
            <th scope="col">${t("How it ended")}</th>
          </tr>
        </thead>
        <tbody>${leases.map((lease) => html`<${Past} key=${lease.lease} lease=${lease} />`)}</tbody>
        <tfoot>
          <tr>
            <th scope="row" colspan="6">${t("Sum")}</th>
            <td class="number"><strong><${Money} usd=${sum} /></strong></td>
            <td class="number">${billed > 0 ? html`<${Money} usd=${billed} />` : "–"}</td>
            <td></td>
            <td></td>
          </tr>
        </tfoot>
      </table>
    </div>
  </section>`;
}

/** @param {{lease: Past}} properties */
function Past({lease}) {
  const {kind, words} = howEnded(lease);
  const lived =
    lease.ended_at === null
      ? null
      : (Date.parse(lease.ended_at) - Date.parse(lease.began_at)) / 1000;
  return html`<tr>
    <th scope="row">
      <a class="mono" href=${`#/lease/${encodeURIComponent(lease.lease)}`}>${lease.lease}</a>
    </th>
    <td class="called" title=${lease.name}>${lease.name || "–"}</td>
    <td>${lease.title}</td>
    <td>${lease.gpu ?? t("unknown")}</td>
    <td><${When} at=${lease.ended_at} /></td>
    <td class="number"><${Span} seconds=${lived} /></td>
    <td class="number"><${Money} usd=${lease.cost_usd} /></td>
    <td class="number">
      ${lease.billed_usd === null ? "–" : html`<${Money} usd=${lease.billed_usd} />`}
    </td>
    <td class="number">
      ${
        lease.kept_files === null
          ? "–"
          : html`${lease.kept_files} · <${Bytes} n=${lease.kept_bytes} />`
      }
    </td>
    <td><${Pill} kind=${kind}>${words()}<//></td>
  </tr>`;
}
