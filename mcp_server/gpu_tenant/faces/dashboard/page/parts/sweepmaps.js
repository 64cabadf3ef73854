// Draws the results of a sweep: a heat map over two parameters, and a line for each cell over all parameters.

import {html, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Field} from "./widgets.js";

/** @import {CellRow} from "../types.d.ts" */

const SHADES = 9;
const [WIDE, HIGH, EDGE] = [640, 220, 28];

/** @param {number} value */
const figure = (value) => String(+value.toPrecision(4));

/**
 * Returns the values of a parameter in all cells. If all are numbers, they are in numerical order.
 * @param {CellRow[]} rows
 * @param {string} name
 */
function valuesOf(rows, name) {
  const values = [...new Set(rows.map(({parameters}) => parameters[name]))].filter(
    (value) => value !== undefined,
  );
  const isNumeric = values.every((value) => value !== "" && Number.isFinite(Number(value)));
  return isNumeric ? values.sort((one, other) => Number(one) - Number(other)) : values.sort();
}

/**
 * Returns the parameters that differ between cells.
 * @param {CellRow[]} rows
 */
export function variedBy(rows) {
  const names = [...new Set(rows.flatMap(({parameters}) => Object.keys(parameters)))];
  return names.filter((name) => valuesOf(rows, name).length > 1);
}

/**
 * @param {{rows: CellRow[], metric: string, names: string[]}} properties
 */
export function SweepMaps({rows, metric, names}) {
  const told = rows.filter(({metrics}) => Number.isFinite(metrics[metric]));
  if (told.length < 2) return null;
  return html`${names.length > 1 && html`<${HeatMap} rows=${told} metric=${metric} names=${names} />`}
    <${Lines} rows=${told} metric=${metric} names=${names} />`;
}

/**
 * A heat map over two parameters. A field shows the mean of the metric over all other parameters.
 * @param {{rows: CellRow[], metric: string, names: string[]}} properties
 */
function HeatMap({rows, metric, names}) {
  const [across, setAcross] = useState(names[0] ?? "");
  const [down, setDown] = useState(names[1] ?? "");
  const [xs, ys] = [valuesOf(rows, across), valuesOf(rows, down)];
  /**
   * @param {string} x
   * @param {string} y
   */
  const mean = (x, y) => {
    const found = rows
      .filter(({parameters}) => parameters[across] === x && parameters[down] === y)
      .map(({metrics}) => metrics[metric] ?? Number.NaN);
    return found.length > 0 ? found.reduce((sum, value) => sum + value, 0) / found.length : null;
  };
  const grid = ys.map((y) => xs.map((x) => mean(x, y)));
  const known = grid.flat().filter((value) => value !== null);
  const [least, most] = [Math.min(...known), Math.max(...known)];
  /** @param {number | null} value */
  const shade = (value) =>
    value === null || most === least
      ? ""
      : `heat-${Math.round(((value - least) / (most - least)) * (SHADES - 1))}`;
  /**
   * @param {string} label
   * @param {string} chosen
   * @param {string} other
   * @param {(name: string) => void} choose
   */
  const choice = (label, chosen, other, choose) => html`<${Field} label=${label}>
    <select value=${chosen} onChange=${(event) => choose(event.target.value)}>
      ${names
        .filter((name) => name !== other)
        .map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select>
  <//>`;
  const words = t("{metric} over {across} and {down}", {metric, across, down});
  return html`<section class="heat" aria-label=${words}>
    <h3>${words}</h3>
    ${
      names.length > 2 &&
      html`<div class="fields">
        ${choice(t("Across"), across, down, setAcross)}${choice(t("Down"), down, across, setDown)}
      </div>`
    }
    <div class="scroll" tabindex="0" role="group" aria-label=${words}>
      <table class="table">
        <thead>
          <tr>
            <th scope="col" class="mono">${down} / ${across}</th>
            ${xs.map((x) => html`<th key=${x} scope="col" class="number mono">${x}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${ys.map(
            (y, row) => html`<tr key=${y}>
              <th scope="row" class="mono">${y}</th>
              ${grid[row]?.map(
                (value, at) => html`<td key=${xs[at]} class=${`number ${shade(value)}`}>
                  ${value === null ? "–" : figure(value)}
                </td>`,
              )}
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </section>`;
}

/**
 * Parallel coordinates: a line for each cell, over all parameters to the metric. The table has the same figures.
 * @param {{rows: CellRow[], metric: string, names: string[]}} properties
 */
function Lines({rows, metric, names}) {
  const values = rows.map(({metrics}) => metrics[metric] ?? Number.NaN);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const axes = [...names, metric];
  /** @param {number} axis */
  const x = (axis) => EDGE + (axis * (WIDE - 2 * EDGE)) / Math.max(1, axes.length - 1);
  /** @param {number} share */
  const y = (share) => HIGH - EDGE - share * (HIGH - 2 * EDGE);
  /** @param {number} value */
  const ofMetric = (value) => (most > least ? (value - least) / (most - least) : 0.5);
  const scales = names.map((name) => valuesOf(rows, name));
  /**
   * @param {CellRow} row
   * @param {number} value
   */
  const points = (row, value) =>
    [
      ...names.map((name, at) => {
        const scale = scales[at] ?? [];
        return [x(at), y(scale.indexOf(row.parameters[name] ?? "") / (scale.length - 1))];
      }),
      [x(axes.length - 1), y(ofMetric(value))],
    ]
      .map(([across, up]) => `${across?.toFixed(1)},${up?.toFixed(1)}`)
      .join(" ");
  const words = t("{n} cells over {names} to {metric}", {
    n: rows.length,
    names: names.join(", "),
    metric,
  });
  return html`<figure class="lines">
    <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} role="img" aria-label=${words}>
      ${rows.map((row, at) => {
        const value = values[at] ?? Number.NaN;
        const level = Math.round(ofMetric(value) * (SHADES - 1));
        return html`<polyline
          key=${row.cell}
          class=${`line-${level}`}
          points=${points(row, value)}
        ><title>${`${row.cell}: ${metric} ${figure(value)}`}</title></polyline>`;
      })}
      ${axes.map((name, at) => {
        const ends = at < names.length ? scales[at] : [figure(least), figure(most)];
        return html`<g key=${name}>
          <line class="axis" x1=${x(at)} x2=${x(at)} y1=${y(0)} y2=${y(1)} />
          <text x=${x(at)} y=${HIGH - 4}>${name}</text>
          <text class="end" x=${x(at)} y=${y(0) + 12}>${ends?.[0]}</text>
          <text class="end" x=${x(at)} y=${y(1) - 5}>${ends?.[ends.length - 1]}</text>
        </g>`;
      })}
    </svg>
    <figcaption class="soft small">${words}</figcaption>
  </figure>`;
}
