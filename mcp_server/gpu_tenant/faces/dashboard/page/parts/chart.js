// Draws one chart: lines over time or over steps, the same in words, and on request as a table.
import {html, useEffect, useLayoutEffect, useRef, useState} from "../vendor/htm-preact.js";
import {locale, t, useLang} from "../words.js";
import {Button} from "./widgets.js";

/** @import {Drawn} from "../known.d.ts" */
/** @import uPlot from "../vendor/uplot.js" */

/**
 * The library that draws. It is loaded with the first chart, because most visits to the page need none.
 * @type {typeof import("../vendor/uplot.js").default | null}
 */
let Plot = null;

const HEIGHT = 160;
const ROWS = 200; // a table has at most this many rows; if there are more, some are left out
const AXIS = 60;
const COLOURS = 8;
const POWERS = Array.from({length: 60}, (_, n) => 2 ** n);

/**
 * `xs` are seconds since the epoch, or steps; `series` is [{name, values}], where null is an unknown value.
 * `format` writes a value in words. The scale reaches at least to `top`, and with `from0` it begins at 0. With `binary`
 * it counts in powers of two. `moment` is "now" if the last value is the present one, otherwise "last". `version`
 * changes whenever the arrays have grown. With `log` the scale is logarithmic, and values that are not above 0 are
 * left out. With `spans` a line continues over unknown values.
 * @param {{title: string, over: "step" | "time", xs: number[], series: Drawn[],
 *   format: (value: number) => string, top?: number | undefined, from0?: boolean,
 *   binary?: boolean, log?: boolean, spans?: boolean, version: number | string, aside?: string | null,
 *   moment: "now" | "last"}} properties
 */
export function Chart({
  title,
  over,
  xs,
  series,
  format,
  top,
  from0 = true,
  binary = false,
  log = false,
  spans = false,
  version,
  aside,
  moment,
}) {
  const [zoomed, setZoomed] = useState(false);
  const host = useRef(null);
  const plot = useRef(null);
  const readout = useRef(null);
  const lang = useLang();
  const look = useLook();
  const hasPlot = usePlot();
  const newest = useRef();
  newest.current = {xs, series, format, top, from0, binary, log, spans, over, readout, setZoomed};

  useLayoutEffect(() => {
    if (Plot === null) return undefined;
    const made = new Plot(options(newest, host.current), columns(newest.current), host.current);
    plot.current = made;
    const watcher = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (width > 0 && width !== made.width) made.setSize({width, height: HEIGHT});
    });
    watcher.observe(host.current);
    return () => {
      watcher.disconnect();
      made.destroy();
    };
  }, [hasPlot, lang, look, over, log, series.length]);

  useEffect(() => {
    const made = plot.current;
    if (!made) return;
    const shown = made.data[0];
    const whole =
      shown.length === 0 || (made.scales.x.min <= shown[0] && made.scales.x.max >= shown.at(-1));
    made.setData(columns(newest.current), whole);
    if (!whole) made.redraw();
  }, [version]);

  const whole = () => {
    const [shown] = plot.current.data;
    plot.current.setScale("x", {min: shown[0], max: shown[shown.length - 1]});
  };
  const said = inWords(series, format, moment);
  return html`<figure class="chart">
    <figcaption>
      <h3>${title} <span class="soft">${aside}</span></h3>
      <output class="readout" ref=${readout} aria-hidden="true"></output>
      ${zoomed && html`<${Button} kind="quiet" onClick=${whole}>${t("Show the whole")}<//>`}
    </figcaption>
    <div class="plot" ref=${host} role="img" aria-label=${`${title}: ${said}`}></div>
    ${
      series.length > 1
        ? html`<${Legend} series=${series} format=${format} />`
        : html`<p class="said">${said}</p>`
    }
    <${Table} title=${title} over=${over} xs=${xs} series=${series} format=${format} />
  </figure>`;
}

/** @param {{series: Drawn[], format: (value: number) => string}} properties */
function Legend({series, format}) {
  return html`<ul class="legend">
    ${series.map(
      ({name, values}, at) => html`<li key=${name}>
        <span class="chart-key of-${at % COLOURS}" aria-hidden="true"></span>
        ${name} <b>${last(values, format)}</b>
      </li>`,
    )}
  </ul>`;
}

/**
 * Writes the last, the least and the greatest known value.
 * @param {Drawn[]} series
 * @param {(value: number) => string} format
 * @param {"now" | "last"} moment
 */
function inWords(series, format, moment) {
  if (series.length > 1) {
    return series
      .map(({name, values}) => `${name} ${last(values, format)}`)
      .slice(0, COLOURS)
      .join(", ");
  }
  const [least, most] = extent(series[0].values);
  if (least === null || most === null) return t("nothing known yet");
  const values = {last: last(series[0].values, format), least: format(least), most: format(most)};
  return moment === "now"
    ? t("now {last}, least {least}, most {most}", values)
    : t("last {last}, least {least}, most {most}", values);
}

/**
 * @param {(number | null)[]} values
 * @param {(value: number) => string} format
 */
function last(values, format) {
  const known = values.findLast((value) => value !== null);
  return known === undefined ? t("unknown") : format(known);
}

/** @param {(number | null)[]} values */
function extent(values) {
  /** @type {number | null} */
  let least = null;
  /** @type {number | null} */
  let most = null;
  for (const value of values) {
    if (value === null) continue;
    if (least === null || value < least) least = value;
    if (most === null || value > most) most = value;
  }
  return [least, most];
}

/**
 * @param {{title: string, over: "step" | "time", xs: number[], series: Drawn[],
 *   format: (value: number) => string}} properties
 */
function Table({title, over, xs, series, format}) {
  const [open, setOpen] = useState(false);
  const apart = Math.max(1, Math.ceil(xs.length / ROWS));
  const chosen = [];
  if (open) for (let at = xs.length - 1; at >= 0; at -= apart) chosen.push(at);
  return html`<details class="as-table" onToggle=${(event) => setOpen(event.target.open)}>
    <summary>${t("As a table")}</summary>
    ${
      open &&
      html`<div class="scroll" tabindex="0" role="region" aria-label=${title}>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">${over === "time" ? t("Time") : t("Step")}</th>
              ${series.map(({name}) => html`<th scope="col" key=${name}>${name}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${chosen.map(
              (at) => html`<tr key=${at}>
                <th scope="row">${position(over, xs[at])}</th>
                ${series.map(
                  ({name, values}) =>
                    html`<td key=${name}>${values[at] === null ? "–" : format(values[at])}</td>`,
                )}
              </tr>`,
            )}
          </tbody>
        </table>
      </div>`
    }
  </details>`;
}

/**
 * @param {"step" | "time"} over
 * @param {number} x
 */
function position(over, x) {
  if (over === "step") return x.toLocaleString("en-US");
  return new Date(x * 1000).toLocaleTimeString(locale(), {hour12: false});
}

/** @param {{xs: number[], series: Drawn[], log?: boolean}} properties */
const columns = ({xs, series, log = false}) =>
  /** @type {any} */ ([xs, ...series.map(({values}) => (log ? values.map(positive) : values))]);

/** @param {number | null} value */
const positive = (value) => (value !== null && value > 0 ? value : null);

/**
 * Returns the options for the library. All colours come from the style sheet.
 * @param {any} newest
 * @param {HTMLElement} host
 * @returns {uPlot.Options}
 */
function options(newest, host) {
  const style = getComputedStyle(host);
  /** @param {string} name */
  const colour = (name) => style.getPropertyValue(name).trim();
  const {over, series, binary, log, spans} = newest.current;
  const axis = {
    stroke: colour("--soft"),
    font: `11px ${colour("--text") || "system-ui, sans-serif"}`,
    grid: {stroke: colour("--line"), width: 1},
    ticks: {show: false},
  };
  return {
    width: Math.max(1, Math.floor(host.clientWidth)),
    height: HEIGHT,
    legend: {show: false},
    padding: /** @type {[number, number, number, number]} */ ([8, 8, 0, 0]),
    cursor: {
      sync: {key: over},
      y: false,
      points: {size: 6},
      drag: {x: true, y: false},
    },
    scales: {
      x: {
        time: over === "time",
        range: (_, least, most) =>
          least !== null && least === most ? around(over, least) : [least, most],
      },
      y: log ? {distr: 3} : {range: (_, least, most) => reach(least, most, newest.current)},
    },
    axes: [
      {
        ...axis,
        size: 28,
        space: 72,
        label: over === "time" ? t("time") : t("step"),
        labelSize: 16,
        labelFont: axis.font,
        ...(over === "time" ? {values: clock} : {values: (_, ticks) => ticks.map(short)}),
      },
      {
        ...axis,
        size: AXIS,
        space: 32,
        ...(binary && {incrs: POWERS}),
        // A logarithmic scale has labels only at some of its ticks.
        values: (_, ticks) =>
          ticks.map((tick) => (tick === null ? "" : newest.current.format(tick))),
      },
    ],
    series: [
      {},
      ...series.map((/** @type {Drawn} */ _, /** @type {number} */ at) => ({
        stroke: colour(`--series-${at % COLOURS}`),
        width: series.length > 1 ? 1.25 : 1.75,
        fill: series.length > 1 ? undefined : colour("--series-fill"),
        points: {
          show: (/** @type {uPlot} */ made, /** @type {number} */ index) =>
            made.data[index].length < 3,
        },
        spanGaps: spans,
      })),
    ],
    hooks: {
      setCursor: [(made) => tell(made, newest.current)],
      setScale: [(made, key) => key === "x" && newest.current.setZoomed(isZoomed(made))],
    },
  };
}

/**
 * Whether only a part of the readings is shown.
 * @param {any} made
 */
function isZoomed({data: [xs], scales: {x}}) {
  return xs.length > 1 && (x.min > xs[0] || x.max < xs[xs.length - 1]);
}

/**
 * Returns a scale around a single reading.
 * @param {"step" | "time"} over
 * @param {number} x
 * @returns {[number, number]}
 */
const around = (over, x) => (over === "time" ? [x - 30, x + 30] : [x - 1, x + 1]);

/**
 * @param {number | null} least
 * @param {number | null} most
 * @param {{top?: number | undefined, from0: boolean}} given
 * @returns {[number | null, number | null]}
 */
function reach(least, most, {top, from0}) {
  if (least === null || most === null) return [0, top ?? 1];
  const [low, high] = [from0 ? Math.min(0, least) : least, Math.max(top ?? -Infinity, most)];
  const room = Math.abs(low) / 10 || 1; // above and below a horizontal line
  return low === high || Plot === null
    ? [low - room, high + room]
    : Plot.rangeNum(low, high, {
        min: {pad: from0 ? 0 : 0.05, soft: from0 ? 0 : undefined, mode: from0 ? 1 : 0},
        max: {pad: 0.05, soft: top, mode: top === undefined ? 0 : 1},
      });
}

/** @param {number} n */
const short = (n) =>
  Math.abs(n) >= 10_000 ? `${+(n / 1000).toPrecision(4)}k` : String(+n.toPrecision(6));

/**
 * @param {any} made
 * @param {number[]} ticks
 */
function clock(made, ticks) {
  const longer = made.scales.x.max - made.scales.x.min > 86_400;
  const fine = made.scales.x.max - made.scales.x.min < 600;
  return ticks.map((tick) =>
    new Date(tick * 1000).toLocaleString(locale(), {
      hour12: false,
      hour: "2-digit",
      minute: "2-digit",
      ...(longer && {day: "numeric", month: "short"}),
      ...(fine && {second: "2-digit"}),
    }),
  );
}

/**
 * Shows the values under the cursor, in the corner of the chart.
 * @param {any} made
 * @param {{xs: number[], series: Drawn[], format: (value: number) => string,
 *   over: "step" | "time", readout: any}} given
 */
function tell(made, {xs, series, format, over, readout}) {
  if (!readout.current) return;
  const at = made.cursor.idx;
  if (at === null || at === undefined || made.cursor.left < 0) {
    readout.current.textContent = "";
    return;
  }
  const values = series.map(({values}) =>
    values[at] === null || values[at] === undefined ? "–" : format(values[at]),
  );
  readout.current.textContent = `${position(over, xs[at])}  ${values.slice(0, COLOURS).join(" · ")}`;
}

// Whether the library that draws has been loaded.
function usePlot() {
  const [has, setHas] = useState(Plot !== null);
  useEffect(() => {
    if (has) return;
    import("../vendor/uplot.js").then((brought) => {
      Plot = brought.default;
      setHas(true);
    });
  }, [has]);
  return has;
}

// Returns a number that changes when the page turns light or dark. A canvas must then be drawn again.
function useLook() {
  const [look, setLook] = useState(0);
  useEffect(() => {
    const changed = () => setLook((n) => n + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    const themes = new MutationObserver(changed);
    themes.observe(document.documentElement, {attributes: true, attributeFilter: ["data-theme"]});
    system.addEventListener("change", changed);
    return () => {
      themes.disconnect();
      system.removeEventListener("change", changed);
    };
  }, []);
  return look;
}
