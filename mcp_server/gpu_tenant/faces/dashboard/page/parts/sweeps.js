// Shows sweeps: the state of their cells, and on request the result of each cell, the best first.

import {get, post} from "../net.js";
import {noteErrand} from "../store.js";
import {html, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {useErrand} from "./errands.js";
import {SweepMaps, variedBy} from "./sweepmaps.js";
import {Button, Money, Shape, Span, Trouble, useLoaded, Waiting, Words} from "./widgets.js";

/** @import {CellRow, Reckoning} from "../types.d.ts" */

/** The table shows at most this many metrics. The first is the one by which it is sorted. */
const METRICS = 4;

const STATES = {
  verified: () => t("verified"),
  finished: () => t("finished"),
  running: () => t("running"),
  queued: () => t("queued"),
  waiting: () => t("waiting for a box"),
  given_up: () => t("given up"),
  failed: () => t("failed"),
  missing: () => t("missing"),
  duplicate: () => t("ran twice"),
};

/** The metrics that the cells told, the one that the table is sorted by first. @param {Reckoning} table */
function metricsOf({rows, by}) {
  const told = [...new Set(rows.flatMap(({metrics}) => Object.keys(metrics)))];
  /** @param {string} metric */
  const first = (metric) => Number(!by?.startsWith(`${metric}, the `));
  return told.sort((one, other) => first(one) - first(other)).slice(0, METRICS);
}

/** @param {{value: number | undefined}} properties */
function Metric({value}) {
  return html`<td class="number">${value === undefined ? "–" : Number(value.toPrecision(6))}</td>`;
}

/** A person may let a cell in the first states run again, and give up a cell in the second states. */
const AGAIN = ["failed", "missing"];
const NOT_BEGUN = ["waiting", "queued"];

/** @param {{sweep: string, row: CellRow}} properties */
function Decide({sweep, row}) {
  const [problem, setProblem] = useState(null);
  const [begun, setBegun] = useState(null);
  const errand = useErrand(begun);
  /** @param {"again" | "give_up"} what */
  const decide = async (what) => {
    try {
      const path = `/api/sweeps/${encodeURIComponent(sweep)}/${what}`;
      const one = await post(path, {cells: [row.cell]});
      noteErrand(one);
      setBegun(one);
    } catch (refusal) {
      setProblem(refusal);
    }
  };
  if (problem) return html`<${Trouble} problem=${problem} />`;
  if (errand?.state === "running")
    return html`<span class="soft" role="status">${t("under way")}</span>`;
  if (AGAIN.includes(row.state))
    return html`<${Button}
      kind="quiet"
      aria-label=${t("Run again: {cell}", {cell: row.cell})}
      onClick=${() => decide("again")}
    >${t("Run again")}<//>`;
  if (NOT_BEGUN.includes(row.state))
    return html`<${Button}
      kind="quiet"
      aria-label=${t("Give up: {cell}", {cell: row.cell})}
      onClick=${() => decide("give_up")}
    >${t("Give up")}<//>`;
  return null;
}

/** @param {{sweep: string, row: CellRow, metrics: string[]}} properties */
function Cell({sweep, row, metrics}) {
  return html`<tr>
    <th scope="row" class="mono">${row.cell}</th>
    <td>${STATES[row.state]()}</td>
    ${metrics.map((name) => html`<${Metric} key=${name} value=${row.metrics[name]} />`)}
    <td class="number">${row.took_s === null ? "–" : html`<${Span} seconds=${row.took_s} />`}</td>
    <td class="number">${row.cost_usd === null ? "–" : html`<${Money} usd=${row.cost_usd} />`}</td>
    <td>
      ${row.lease && html`<a class="mono" href=${`#/lease/${encodeURIComponent(row.lease)}`}>${row.lease}</a>`}
    </td>
    <td><${Decide} sweep=${sweep} row=${row} /></td>
  </tr>`;
}

/** @param {{sweep: string, table: Reckoning}} properties */
function Cells({sweep, table}) {
  const metrics = metricsOf(table);
  const names = variedBy(table.rows);
  const words = t("Cells of {sweep}, the best first", {sweep});
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${words}>
    <table class="table">
      <thead>
        <tr>
          <th scope="col">${t("Cell")}</th>
          <th scope="col">${t("State")}</th>
          ${metrics.map((name) => html`<th key=${name} scope="col" class="number mono">${name}</th>`)}
          <th scope="col" class="number">${t("Lasted")}</th>
          <th scope="col" class="number">${t("Cost")}</th>
          <th scope="col">${t("Lease")}</th>
          <th scope="col"><span class="unseen">${t("What can be done")}</span></th>
        </tr>
      </thead>
      <tbody>
        ${table.rows.map(
          (row) => html`<${Cell} key=${row.cell} sweep=${sweep} row=${row} metrics=${metrics} />`,
        )}
      </tbody>
    </table>
  </div>
  ${
    metrics[0] &&
    names.length > 0 &&
    html`<details class="maps">
      <summary>${t("Draw it")}</summary>
      <${SweepMaps} rows=${table.rows} metric=${metrics[0]} names=${names} />
    </details>`
  }`;
}

/** One sweep. Its table is made anew whenever its line changes. @param {{line: string}} properties */
function Sweep({line}) {
  const [shown, setShown] = useState(false);
  const sweep = line.split(":", 1)[0] ?? "";
  const load = () =>
    shown ? get(`/api/sweeps/${encodeURIComponent(sweep)}`) : Promise.resolve(null);
  const [table, problem, again] = useLoaded(load, `${shown}/${line}`);
  return html`<li>
    <${Shape} kind="accent" />
    <div class="sweep">
      <${Words} text=${line} />${" "}
      <${Button} kind="quiet" onClick=${() => setShown(!shown)}>
        ${shown ? t("Hide the cells of {sweep}", {sweep}) : t("Show the cells of {sweep}", {sweep})}
      <//>
      ${shown && problem && html`<${Trouble} problem=${problem} retry=${again} />`}
      ${shown && !table && !problem && html`<${Waiting} />`}
      ${shown && table && html`<${Cells} sweep=${sweep} table=${table} />`}
    </div>
  </li>`;
}

/** @param {{lines: string[]}} properties */
export function Sweeps({lines}) {
  if (lines.length === 0) return null;
  return html`<section class="group" aria-labelledby="group-sweeps">
    <h2 id="group-sweeps">${t("Sweeps")} <span class="count">${lines.length}</span></h2>
    <ul class="listed">
      ${lines.map((line) => html`<${Sweep} key=${line.split(":", 1)[0]} line=${line} />`)}
    </ul>
  </section>`;
}
