// Shows live charts: the use of a job's box over time, and the job's metrics by step.

import {get, leasePath} from "../net.js";
import {html, useEffect, useMemo, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Chart} from "./chart.js";
import {Button, bytesWords, Empty, Trouble, useLoaded, Waiting} from "./widgets.js";

/** @import {JobMoment, MetricsView, Overview, Series} from "../types.d.ts" */
/** @import {Measured, Other, Readings, Typed} from "../known.d.ts" */
/** @import {Children} from "../vendor/htm-preact.js" */

const MIB = 1024 ** 2;
const UNSEEN_S = 60; // if there is no reading for longer than this, the line has a gap
const AFRESH_MS = 60_000;
const SHOWN = 12; // at most this many metrics are shown; a log may have dozens
const FIRST = [
  "loss",
  "train_loss",
  "train/loss",
  "eval_loss",
  "val_loss",
  "eval/loss",
  "val/loss",
];

/** @param {number} value */
const percent = (value) => `${Math.round(value)} %`;
/** @param {number} value */
const plainNumber = (value) =>
  value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)
    ? value.toExponential(2).replace(/\.?0+e/, "e")
    : String(+value.toPrecision(4));

/**
 * Returns the readings of a job, which grow while it is followed: [readings, problem, again].
 * @param {string} lease
 * @param {string} job
 * @param {JobMoment | null} seen
 */
function useReadings(lease, job, seen) {
  const [problem, setProblem] = useState(null);
  const [version, setVersion] = useState(0);
  const [round, setRound] = useState(0);
  const kept = useRef(null);
  const running = isRunning(seen);

  useEffect(() => {
    let wanted = true;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const load = async () => {
      const readBefore = kept.current?.readBytes ?? -1;
      try {
        const answer = await get(`${leasePath(lease)}/readings?job=${encodeURIComponent(job)}`);
        if (!wanted) return;
        kept.current = readingsOf(answer, kept.current);
        setProblem(null);
        setVersion((n) => n + 1);
      } catch (trouble) {
        if (!wanted) return;
        if (kept.current === null) setProblem(trouble);
      }
      // The server reads the metrics from the whole log, a part at each request.
      if (isPartial(kept.current) && kept.current.readBytes > readBefore) load();
      else if (running || isPartial(kept.current)) timer = setTimeout(load, AFRESH_MS);
    };
    load();
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [lease, job, running, round]);

  useEffect(() => {
    if (seen === null || kept.current === null || seen.job !== job) return;
    if (grow(kept.current, seen)) setVersion((n) => n + 1);
  }, [seen]);

  return [{readings: kept.current, version}, problem, () => setRound((n) => n + 1)];
}

/** @param {JobMoment | null} seen */
const isRunning = (seen) =>
  seen !== null && ["starting", "running", "lingering"].includes(seen.state);

/**
 * Whether only a part of the log was read. The metrics then end somewhere in the middle of the job.
 * @param {Readings | null} readings
 */
const isPartial = (readings) =>
  readings !== null && readings.readBytes !== null && readings.readBytes < (readings.logBytes ?? 0);

/**
 * Returns the readings in the server's answer, with gaps where there are no readings. If the log could not be read, the
 * metrics of `before` stay.
 * @param {MetricsView} answer
 * @param {Readings | null} before
 */
function readingsOf(answer, before) {
  const gpus = answer.gpus ?? [];
  const readings = {
    times: [],
    names: gpus.map(shortName),
    models: new Set(gpus.map(({name}) => name)),
    util: gpus.map(() => []),
    mem: gpus.map(() => []),
    memory: [],
    disk: [],
    memTotal: answer.gpu_mem_total_mib && answer.gpu_mem_total_mib / Math.max(1, gpus.length), // of one
    memoryLimit: answer.memory_limit_bytes,
    ...measuredIn(answer, before),
  };
  if (gpus.length === 0 && answer.gpu_util?.some((value) => value !== null)) {
    readings.names = ["GPU"];
    [readings.util, readings.mem] = [[[]], [[]]];
  }
  const utils = gpus.length > 0 ? gpus.map((gpu) => gpu.util) : [answer.gpu_util];
  const mems = gpus.length > 0 ? gpus.map((gpu) => gpu.mem_mib) : [answer.gpu_mem_mib];
  answer.times.forEach((time, at) => {
    put(readings, time, {
      util: utils.map((values) => values?.[at] ?? null),
      mem: mems.map((values) => values?.[at] ?? null),
      memory: answer.memory_bytes[at],
      disk: answer.disk_free_bytes[at],
    });
  });
  return readings;
}

/**
 * @param {{log_read_bytes?: any, log_size_bytes?: any, metrics?: Record<string, Measured>}} given
 * @param {Readings | null} before
 */
function measuredIn(
  {log_read_bytes: readBytes = null, log_size_bytes: logBytes = null, metrics = {}},
  before,
) {
  if (readBytes !== null || before === null || before.readBytes === null)
    return {metrics, readBytes, logBytes};
  return {metrics: before.metrics, readBytes: before.readBytes, logBytes: before.logBytes};
}

/** @param {{index: number}} properties */
const shortName = ({index}) => `GPU ${index}`;

/**
 * @param {Readings} readings
 * @param {number} time
 * @param {{util: (number | null)[], mem: (number | null)[], memory: number | null | undefined,
 *   disk: number | null | undefined}} given
 */
function put(readings, time, {util, mem, memory, disk}) {
  const before = readings.times.at(-1);
  if (before !== undefined && time - before > UNSEEN_S + usual(readings.times)) {
    put(readings, before + 1, {util: [], mem: [], memory: null, disk: null});
  }
  readings.times.push(time);
  for (const [at, values] of readings.util.entries()) values.push(util[at] ?? null);
  for (const [at, values] of readings.mem.entries()) values.push(mem[at] ?? null);
  readings.memory.push(memory ?? null);
  readings.disk.push(disk ?? null);
}

/**
 * Returns the usual distance of the last few readings. A watchdog makes readings less often than an open page.
 * @param {number[]} times
 */
function usual(times) {
  const few = times.slice(-6);
  const last = few.length - 1;
  return last < 1 ? Infinity : 3 * ((few[last] - few[0]) / last);
}

/**
 * Adds a new state of the job to the readings. Returns whether anything is new.
 * @param {Readings} readings
 * @param {JobMoment} seen
 */
function grow(readings, seen) {
  const time = Date.parse(seen.at) / 1000;
  if (!(time > (readings.times.at(-1) ?? 0))) return false;
  if (readings.names.length === 0 && seen.gpus.length > 0) {
    readings.names = seen.gpus.map(shortName);
    readings.models = new Set(seen.gpus.map(({name}) => name));
    const unknown = () => Array(readings.times.length).fill(null);
    [readings.util, readings.mem] = [seen.gpus.map(unknown), seen.gpus.map(unknown)];
  }
  readings.memTotal ??= seen.gpus[0]?.mem_total_mib ?? null; // of one
  readings.memoryLimit ??= seen.memory_limit_bytes;
  put(readings, time, {
    util: seen.gpus.map((gpu) => gpu.util_pct),
    mem: seen.gpus.map((gpu) => gpu.mem_used_mib),
    memory: seen.memory_used_bytes,
    disk: seen.disk_free_bytes,
  });
  if (!isPartial(readings)) measured(readings.metrics, seen.measured); // otherwise a line would skip the unread part
  return true;
}

/**
 * Adds the newest values of the metrics, one point for each value.
 * @param {Record<string, Measured>} metrics
 * @param {Record<string, Series>} newest
 */
function measured(metrics, newest) {
  for (const [name, series] of Object.entries(newest)) {
    metrics[name] ??= {steps: [], values: []};
    const {steps, values} = metrics[name];
    series.steps.forEach((step, at) => {
      if (step <= (steps.at(-1) ?? -Infinity)) return;
      steps.push(step);
      values.push(series.values[at]);
    });
  }
}

/**
 * Returns the running mean of the values. Each older value counts `share` times as much as the next.
 * @param {(number | null)[]} values
 * @param {number} share
 */
function smooth(values, share) {
  if (share === 0) return values;
  let [sum, weight] = [0, 0];
  return values.map((value) => {
    if (value === null) return null;
    sum = share * sum + (1 - share) * value;
    weight = share * weight + (1 - share);
    return sum / weight;
  });
}

/**
 * Returns the metrics of other jobs, by their own steps: [[{label, metrics}], add(lease, job), leave out(label)].
 * @returns {[Other[], (lease: string, job: string) => Promise<void>, (label: string) => void]}
 */
function useOthers() {
  const [others, setOthers] = useState(/** @type {Other[]} */ ([]));
  /**
   * @param {string} lease
   * @param {string} job
   */
  const add = async (lease, job) => {
    const {metrics} = await get(`${leasePath(lease)}/readings?job=${encodeURIComponent(job)}`);
    const label = `${lease} ${job}`;
    setOthers((before) => [...before.filter((one) => one.label !== label), {label, metrics}]);
  };
  /** @param {string} label */
  const leaveOut = (label) => setOthers((before) => before.filter((one) => one.label !== label));
  return [others, add, leaveOut];
}

/**
 * Returns one metric of this job and of the others, over the steps of all of them.
 * @param {{name: string, label: string, metric: Measured}} own
 * @param {Other[]} others
 * @param {number} smoothing
 */
function overlaid({name, label, metric}, others, smoothing) {
  const all = [
    {name: others.length > 0 ? label : name, metric},
    ...others.map((one) => ({name: one.label, metric: one.metrics[name]})),
  ].filter((one) => one.metric !== undefined);
  if (all.length === 1)
    return {xs: metric.steps, series: [{name, values: smooth(metric.values, smoothing)}]};
  const xs = [...new Set(all.flatMap((one) => one.metric?.steps ?? []))].sort(
    (one, other) => one - other,
  );
  const series = all.map((one) => {
    const values = smooth(one.metric?.values ?? [], smoothing);
    const by = new Map(one.metric?.steps.map((step, at) => [step, values[at] ?? null]));
    return {name: one.name, values: xs.map((x) => by.get(x) ?? null)};
  });
  return {xs, series, spans: true};
}

/**
 * Lets a person choose a job of any lease, even one that has ended, to compare its curves with this job's.
 * @param {{lease: string, job: string, others: Other[],
 *   onAdd: (lease: string, job: string) => Promise<void>}} properties
 */
function Compare({lease, job, others, onAdd}) {
  const [open, setOpen] = useState(false);
  const [all, unread] = useLoaded(
    /** @returns {Promise<Overview | null>} */
    () => (open ? get("/api/overview?which=all") : Promise.resolve(null)),
    `compare ${open}`,
  );
  const [problem, setProblem] = useState(null);
  const taken = new Set([`${lease} ${job}`, ...others.map(({label}) => label)]);
  const jobs = (all?.leases ?? [])
    .flatMap(({card}) =>
      card.jobs.map((/** @type {string} */ name) => ({lease: card.lease, job: name})),
    )
    .filter((one) => !one.job.includes(" ") && !taken.has(`${one.lease} ${one.job}`));
  if (!open)
    return html`<${Button} kind="quiet" onClick=${() => setOpen(true)}>${t("Compare with another job")}<//>`;
  /** @param {string} chosen */
  const choose = (chosen) => {
    const [of = "", name = ""] = chosen.split(" ");
    if (chosen !== "") onAdd(of, name).then(() => setProblem(null), setProblem);
  };
  return html`<label>
      ${t("Compare with")}
      ${" "}
      <select
        value=""
        onChange=${(/** @type {Typed} */ event) => {
          choose(event.target.value);
          event.target.value = "";
        }}
      >
        <option value="">–</option>
        ${jobs.map((one) => {
          const label = `${one.lease} ${one.job}`;
          return html`<option key=${label} value=${label}>${label}</option>`;
        })}
      </select>
    </label>
    ${(problem || unread) && html`<${Trouble} problem=${problem ?? unread} />`}`;
}

/**
 * A table of the last values of the compared jobs, with a column for each metric.
 * @param {{names: string[], own: Other, others: Other[], onLeaveOut: (label: string) => void}} properties
 */
function SideBySide({names, own, others, onLeaveOut}) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${t("Jobs side by side")}>
    <table class="table">
      <caption class="soft small">${t("The last value of each, and the step of the first metric")}</caption>
      <thead>
        <tr>
          <th scope="col">${t("Job")}</th>
          <th scope="col" class="number">${t("Step")}</th>
          ${names.map((name) => html`<th key=${name} scope="col" class="number">${name}</th>`)}
          <td></td>
        </tr>
      </thead>
      <tbody>
        ${[own, ...others].map(
          ({label, metrics}) => html`<tr key=${label}>
            <th scope="row">${label}</th>
            <td class="number">${metrics[names[0]]?.steps.at(-1) ?? "–"}</td>
            ${names.map((name) => {
              const last = metrics[name]?.values.findLast((value) => value !== null);
              return html`<td key=${name} class="number">
                ${last === undefined || last === null ? "–" : plainNumber(last)}
              </td>`;
            })}
            <td>
              ${
                label !== own.label &&
                html`<${Button}
                  kind="quiet"
                  aria-label=${t("Leave out {job}", {job: label})}
                  onClick=${() => onLeaveOut(label)}
                >
                  ×
                <//>`
              }
            </td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * The settings for how the metrics are drawn.
 * @param {{smoothing: number, setSmoothing: (share: number) => void, log: boolean,
 *   setLog: (log: boolean) => void, children?: Children}} properties
 */
function Looks({smoothing, setSmoothing, log, setLog, children}) {
  return html`<div class="looks">
    <label>
      ${t("Smoothing")}
      ${" "}
      <input
        type="range"
        min="0"
        max="0.95"
        step="0.05"
        value=${smoothing}
        onInput=${(/** @type {Typed} */ event) => setSmoothing(event.target.valueAsNumber)}
      />
    </label>
    <label>
      <input
        type="checkbox"
        checked=${log}
        onChange=${(/** @type {Typed} */ event) => setLog(event.target.checked)}
      />
      ${" "}${t("Logarithmic scale")}
    </label>
    ${children}
    <span class="soft small">${t("Drag over a chart to see a part of it.")}</span>
  </div>`;
}

/** @param {(number | null)[]} values */
const known = (values) => values.some((value) => value !== null);

/**
 * The charts of one job.
 * @param {{lease: string, job: string, seen: JobMoment | null}} properties
 */
export function Charts({lease, job, seen}) {
  const [others, add, leaveOut] = useOthers();
  const [smoothing, setSmoothing] = useState(0);
  const [log, setLog] = useState(false);
  const [{readings, version}, problem, again] = useReadings(lease, job, seen);
  const names = useMemo(
    () => (readings === null ? [] : ordered(readings.metrics)),
    [readings, version],
  );
  if (problem) return html`<${Trouble} problem=${problem} retry=${again} />`;
  if (readings === null) return html`<${Waiting} lines=${4} />`;
  const {times, names: gpus, models, util, mem, memory, disk, memTotal, memoryLimit} = readings;
  /** @param {(number | null)[][]} columns */
  const per = (columns) =>
    columns.map((values, at) => ({name: gpus[at], values})).filter(({values}) => known(values));
  const [utils, mems] = [per(util), per(mem)];
  const model = [...models].join(", ");
  /** @param {(number | null)[]} values */
  const bytes = (values) => [{name: t("bytes"), values}];
  const partial = isPartial(readings);
  const read = partial
    ? t("read {done} of {all}", {
        done: bytesWords(readings.readBytes),
        all: bytesWords(readings.logBytes),
      })
    : null;
  const moment = isRunning(seen) ? "now" : "last";
  if (times.length === 0 && names.length === 0 && !partial) {
    return html`<${Empty} title=${t("No readings yet")}>
      <p>${t("They are kept while somebody looks: this page, monitor, or a watchdog.")}</p>
    <//>`;
  }
  return html`${
    partial &&
    html`<p class="reading soft small">
      <progress max=${readings.logBytes} value=${readings.readBytes} aria-label=${t("Log read")}></progress>
      ${t("The log is being read for what the job measured:")} ${read}
    </p>`
  }
  ${
    names.length > 0 &&
    html`<${Looks} smoothing=${smoothing} setSmoothing=${setSmoothing} log=${log} setLog=${setLog}>
      <${Compare} lease=${lease} job=${job} others=${others} onAdd=${add} />
    <//>`
  }
  ${
    others.length > 0 &&
    names.length > 0 &&
    html`<${SideBySide}
      names=${names}
      own=${{label: job, metrics: readings.metrics}}
      others=${others}
      onLeaveOut=${leaveOut}
    />`
  }
  <div class="charts">
    ${names.map(
      (name) => html`<${Chart}
        key=${`m ${name}`}
        title=${name}
        over="step"
        ...${overlaid({name, label: job, metric: readings.metrics[name]}, others, smoothing)}
        aside=${[smoothing > 0 && t("smoothed by {n}", {n: smoothing}), read].filter(Boolean).join(" · ")}
        moment=${partial ? "last" : moment}
        format=${plainNumber}
        from0=${false}
        log=${log}
        version=${`${version}/${smoothing}/${others.length}`}
      />`,
    )}
    ${
      utils.length > 0 &&
      html`<${Chart}
        key="util"
        title=${t("GPU in use")}
        over="time"
        xs=${times}
        series=${utils}
        moment=${moment}
        aside=${model}
        format=${percent}
        top=${100}
        version=${version}
      />`
    }
    ${
      mems.length > 0 &&
      html`<${Chart}
        key="mem"
        title=${t("GPU memory")}
        over="time"
        xs=${times}
        series=${mems}
        moment=${moment}
        aside=${model}
        binary
        format=${(mib) => bytesWords(mib * MIB)}
        top=${memTotal ?? undefined}
        version=${version}
      />`
    }
    ${
      known(memory) &&
      html`<${Chart}
        key="ram"
        title=${t("Memory of the box")}
        over="time"
        xs=${times}
        moment=${moment}
        binary
        series=${bytes(memory)}
        format=${bytesWords}
        top=${memoryLimit ?? undefined}
        version=${version}
      />`
    }
    ${
      known(disk) &&
      html`<${Chart}
        key="disk"
        title=${t("Disk that is free")}
        over="time"
        xs=${times}
        moment=${moment}
        binary
        series=${bytes(disk)}
        format=${bytesWords}
        version=${version}
      />`
    }
  </div>`;
}

/**
 * Returns the names of the metrics: losses first, the others by name.
 * @param {Record<string, Measured>} metrics
 */
function ordered(metrics) {
  /** @param {string} name */
  const rank = (name) =>
    FIRST.includes(name)
      ? FIRST.indexOf(name)
      : name.includes("loss")
        ? FIRST.length
        : FIRST.length + 1;
  return Object.keys(metrics)
    .filter((name) => known(metrics[name].values))
    .sort((one, other) => rank(one) - rank(other) || one.localeCompare(other))
    .slice(0, SHOWN);
}
