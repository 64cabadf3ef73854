// The live log of a job: a list of lines, of which only the visible ones are in the document.

import {get, logPath, Problem} from "../net.js";
import {state} from "../store.js";
import {html, useEffect, useLayoutEffect, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {painted, plain} from "./ansi.js";
import {runOf} from "./jobs.js";
import {occurrences, SearchBar} from "./logsearch.js";
import {drawn, LogWindow, lineAt, MOST_LINES, rowsOf, WINDOW_BYTES} from "./logwindow.js";
import {Save} from "./save.js";
import {isLive} from "./standing.js";
import {Button, bytesWords, Copy, Trouble} from "./widgets.js";

/** @import {Hearing, Layout, LogPiece, Searched, TimedRow, Told} from "../known.d.ts" */
/** @import {JobMoment} from "../types.d.ts" */

const ROW = 18; // px, as .log-line has it
const SPARE = 20; // lines that are drawn above and below the visible ones
const NEAR = 30 * ROW; // this near to an edge, more of the log is fetched
// The server's windows have a minimum size: before a window there is nothing left, or at least this much.
const HEAD_BYTES = 131_072;
const FIRST_BYTES = 65_536; // enough to fill any window at once
const FAR = 4 * WINDOW_BYTES; // farther behind than this, the reader is taken to the newest end
const WRAPPED = "gpu-tenant.log.wrap";

const silent = () => () => {}; // for a log that does not grow: no piece comes

/**
 * The log of a job. If it has several runs, the newest run's is shown, and an earlier one can be chosen.
 * @param {{row: TimedRow, job: string, seen: JobMoment | null, heard: Hearing,
 *   keptIn: string | null}} properties
 */
export function JobLog({row, job, seen, heard, keptIn}) {
  const [chosen, setChosen] = useState(null);
  const newest = runOf(seen);
  const earlier = Array.from({length: Math.max(0, (newest ?? 0) - 2)}, (_, n) => n + 2);
  const name = chosen === null ? job : `${job}.${chosen}`;
  return html`${
    newest !== null &&
    html`<nav class="runs small" aria-label=${t("Runs of {job}", {job})}>
      ${earlier.map(
        (n) => html`<${Button}
          key=${n}
          kind="quiet"
          aria-pressed=${String(chosen === n)}
          onClick=${() => setChosen(n)}
        >
          ${t("run {n}", {n})}
        <//>`,
      )}
      <${Button}
        kind="quiet"
        aria-pressed=${String(chosen === null)}
        onClick=${() => setChosen(null)}
      >
        ${t("run {n}, the newest", {n: newest})}
      <//>
    </nav>`
  }
  <${Log}
    key=${chosen === null ? `${job} ${newest ?? ""}` : name}
    lease=${row.card.lease}
    job=${name}
    heard=${chosen === null ? heard : silent}
    live=${isLive(row)}
    keptIn=${keptIn}
  />`;
}

/**
 * Shows one log. `heard(tell)` lets the stream call `tell` with each piece of the log. It returns the function to stop.
 * @param {{lease: string, job: string, heard: Hearing, live: boolean,
 *   keptIn: string | null}} properties
 */
function Log({lease, job, heard, live, keptIn}) {
  const [wrap, setWrap] = useState(() => localStorage.getItem(WRAPPED) === "yes");
  const [full, setFull] = useState(false);
  const [searched, setSearched] = useState(null);
  const view = useLog(lease, job, heard, wrap);
  // A link to a line, without a search. The line can be shown when the end of the log has been fetched.
  const linked = useRef(new URLSearchParams(state().route.query));
  useEffect(() => {
    if (!view.loaded || linked.current.has("q") || !linked.current.has("at")) return;
    view.jump(Number(linked.current.get("at")));
    linked.current = new URLSearchParams();
  }, [view.loaded]);
  const rewrap = () => {
    localStorage.setItem(WRAPPED, wrap ? "no" : "yes");
    setWrap(!wrap);
  };
  const {log, unseen, problem} = view;
  return html`<section
    class="log ${full ? "is-full" : ""}"
    aria-label=${t("Log of {job}", {job})}
    onKeyDown=${(event) => event.key === "Escape" && full && setFull(false)}
  >
    <div class="log-bar">
      <${SearchBar}
        key=${`${lease}/${job}`}
        lease=${lease}
        job=${job}
        size=${log.size}
        onJump=${view.jump}
        onSearched=${setSearched}
      />
      <div class="log-switches">
        <${Button} kind="quiet" aria-pressed=${String(wrap)} onClick=${rewrap}>
          ${t("Wrap lines")}
        <//>
        <${CopyShown} shown=${view.inSight} />
        <${Save} path=${`${logPath(lease, job)}/file`} name=${`${lease}-${job.replaceAll("/", "-")}.log`}>
          ${t("Save the log")}
        <//>
        <${Button} kind="quiet" aria-pressed=${String(full)} onClick=${() => setFull(!full)}>
          ${t("Fill the window")}
        <//>
      </div>
    </div>
    ${problem && html`<${Trouble} problem=${problem} retry=${view.again} />`}
    <div class="log-frame">
      <div
        class="log-scroller ${wrap ? "is-wrapped" : ""}"
        ref=${view.scroller}
        tabindex="0"
        role="region"
        aria-label=${t("Lines of the log")}
        onScroll=${view.onScroll}
        onKeyDown=${view.onKey}
      >
        <span class="log-probe" ref=${view.probe} aria-hidden="true">${"0".repeat(100)}</span>
        <${Lines} view=${view} searched=${searched} />
      </div>
      ${
        !view.following &&
        html`<button type="button" class="button is-primary log-newest" onClick=${view.toEnd}>
          ${
            unseen > 0
              ? t("{n} new lines", {n: unseen.toLocaleString("en-US")})
              : t("To the newest line")
          } ↓
        </button>`
      }
    </div>
    ${view.loaded && html`<${Foot} lease=${lease} view=${view} live=${live} keptIn=${keptIn} />`}
  </section>`;
}

/**
 * Shows which part of the log is on the page, and where the whole log is.
 * @param {{lease: string, view: ReturnType<typeof useLog>, live: boolean, keptIn: string | null}} properties
 */
function Foot({lease, view, live, keptIn}) {
  const {log, busy} = view;
  return html`<div class="log-foot">
    <span>
      ${
        log.size === 0
          ? live
            ? t("The log is empty so far.")
            : t("The log is empty.")
          : t("{from} to {to} of {size}", {
              from: bytesWords(log.from),
              to: bytesWords(log.to),
              size: bytesWords(log.size),
            })
      }
      ${busy ? html` <span class="soft">${t("fetching…")}</span>` : ""}
    </span>
    ${
      live
        ? html`<span class="log-whole">
          ${t("The whole log comes with")} <${Copy} text=${`gpu-tenant collect ${lease}`} />
        </span>`
        : keptIn && html`<span>${t("What was kept is in")} <code>${keptIn}</code></span>`
    }
  </div>`;
}

/** @param {{view: ReturnType<typeof useLog>, searched: Searched | null}} properties */
function Lines({view, searched}) {
  const {log, layout, first, last, found} = view;
  const block = useRef(null);
  const spacer = useRef(null);
  useLayoutEffect(() => {
    spacer.current.style.height = `${layout.total * ROW}px`;
    spacer.current.style.width = layout.wide === null ? "" : `${layout.wide}ch`;
    block.current.style.transform = `translateY(${layout.rowOf(first) * ROW}px)`;
    view.settle();
  });
  const lines = [];
  for (let at = first; at < last; at++)
    lines.push(html`<${Line} text=${log.lines[at]} searched=${searched} found=${at === found} />`);
  return html`<div class="log-space" ref=${spacer}><div class="log-block" ref=${block}>${lines}</div></div>`;
}

/** @param {{text: string, searched: Searched | null, found: boolean}} properties */
function Line({text, searched, found}) {
  const [shown, left] = drawn(text);
  const marked = searched ? occurrences(plain(shown), searched) : [];
  return html`<div class="log-line ${found ? "is-found" : ""}">
    ${painted(shown, marked)}
    ${
      left > 0 &&
      html`<span class="log-more"> ${t("and {n} more characters", {n: left.toLocaleString("en-US")})}
      </span>`
    }
  </div>`;
}

/** @param {{shown: () => string[]}} properties */
function CopyShown({shown}) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(shown().join("\n"));
      setSaid(t("Copied"));
    } catch {
      setSaid(t("The browser does not let this page copy"));
    }
    setTimeout(() => setSaid(""), 2000);
  };
  return html`<${Button} kind="quiet" onClick=${copy}>${said || t("Copy what is in sight")}<//>`;
}

/**
 * The position of the reader: which part is loaded, which lines are visible, and whether the end is followed.
 * @param {string} lease
 * @param {string} job
 * @param {Hearing} heard
 * @param {boolean} wrap
 */
function useLog(lease, job, heard, wrap) {
  const [, draw] = useState(0);
  const scroller = useRef(null);
  const probe = useRef(null);
  const held = useRef(null);
  held.current ??= new Reading(lease, job, () => draw((n) => n + 1));
  const reading = held.current;
  reading.scroller = scroller;

  useEffect(() => {
    const stop = heard((piece) => reading.hear(piece));
    const watcher = new ResizeObserver(() => {
      reading.measure(probe.current);
      reading.wake();
    });
    watcher.observe(scroller.current);
    reading.toEnd();
    return () => {
      stop();
      watcher.disconnect();
      reading.close();
    };
  }, []);
  useLayoutEffect(() => reading.setWrap(wrap), [wrap]);
  return {...reading.seen(), scroller, probe, ...reading.can};
}

/** One reader of one log. It tells `changed` at most once in an animation frame. */
class Reading {
  log = new LogWindow();
  following = true;
  unseen = 0;
  /** @type {number | null} */
  found = null;
  busy = false;
  /** @type {(() => Promise<void>) | null} What the reader asked for while something else was fetched. */
  wanted = null;
  loaded = false;
  /** @type {Told | null} */
  problem = null;
  wrap = false;
  columns = 80;
  /** @type {number | null} */
  frame = null;
  /** @type {{line: number, above: number, within?: number} | null} Where to scroll once the lines are drawn. */
  goal = null;
  top = 0;
  size = 0; // of the log, as the stream last reported it
  behind = 0; // the last pieces of the stream came from a log that is shorter than what was fetched: this many in a row
  closed = false;
  /** @type {{current: any}} */
  scroller = {current: null};

  /**
   * @param {string} lease
   * @param {string} job
   * @param {() => void} changed
   */
  constructor(lease, job, changed) {
    this.path = logPath(lease, job);
    this.changed = changed;
    this.can = {
      toEnd: () => this.toEnd(),
      jump: (/** @type {number} */ at) => this.jump(at),
      again: () => this.toEnd(),
      settle: () => this.settle(),
      onScroll: () => this.scrolled(),
      onKey: (/** @type {KeyboardEvent} */ event) => this.key(event),
      inSight: () => this.inSight(),
    };
  }

  close() {
    this.closed = true;
    if (this.frame !== null) cancelAnimationFrame(this.frame);
  }

  wake() {
    if (this.closed) return;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      this.changed();
    });
  }

  /** @param {HTMLElement} probe */
  measure(probe) {
    const wide = probe.getBoundingClientRect().width / 100;
    const room = this.scroller.current.clientWidth - 24;
    if (wide > 0) this.columns = Math.max(20, Math.floor(room / wide));
  }

  /** @param {boolean} wrap */
  setWrap(wrap) {
    if (this.wrap === wrap) return;
    const at = this.layout().lineAt(Math.floor(this.top / ROW));
    this.wrap = wrap;
    if (!this.following) this.goal = {line: at, above: 0};
    this.wake();
  }

  /** @returns {Layout} */
  layout() {
    const {log} = this;
    if (!this.wrap) {
      const last = Math.max(0, log.lines.length - 1);
      return {
        total: log.lines.length,
        wide: log.widest + 2,
        rowOf: (line) => line,
        lineAt: (row) => Math.min(row, last),
      };
    }
    const rows = rowsOf(log, this.columns);
    return {
      total: rows[rows.length - 1],
      wide: null,
      rowOf: (line) => rows[line],
      lineAt: (row) => lineAt(rows, row),
    };
  }

  seen() {
    const {log, following, unseen, found, busy, problem, loaded} = this;
    const layout = this.layout();
    const high = this.scroller?.current?.clientHeight ?? 600;
    const top = this.following
      ? Math.max(0, layout.total * ROW - high)
      : this.goal
        ? this.goalTop(layout, high)
        : this.top;
    const first = Math.max(0, layout.lineAt(Math.floor(top / ROW)) - SPARE);
    const last = Math.min(
      log.lines.length,
      layout.lineAt(Math.ceil((top + high) / ROW)) + SPARE + 1,
    );
    return {log, layout, first, last, following, unseen, found, busy, problem, loaded};
  }

  /**
   * @param {Layout} layout
   * @param {number} high
   */
  goalTop(layout, high) {
    const {line, above, within = 0} = this.goal ?? {line: 0, above: 0};
    return Math.max(
      0,
      Math.min(layout.rowOf(line) * ROW - above * high + within, layout.total * ROW - high),
    );
  }

  // Called after the lines are drawn. Scrolls to the end, or to where the reader was.
  settle() {
    const box = this.scroller.current;
    if (this.following) box.scrollTop = box.scrollHeight;
    else if (this.goal) box.scrollTop = this.goalTop(this.layout(), box.clientHeight);
    this.goal = null;
    this.top = box.scrollTop;
  }

  inSight() {
    const layout = this.layout();
    const high = this.scroller.current.clientHeight;
    const [first, last] = [
      layout.lineAt(Math.ceil(this.top / ROW)),
      layout.lineAt(Math.floor((this.top + high) / ROW) - 1),
    ];
    return this.log.lines.slice(first, last + 1).map(plain);
  }

  scrolled() {
    const box = this.scroller.current;
    const back = box.scrollTop < this.top;
    this.top = box.scrollTop;
    const below = box.scrollHeight - box.scrollTop - box.clientHeight;
    // Until the goal is reached, scroll events still belong to the lines that were here before.
    if (this.goal === null || this.following)
      this.following = below < 2 * ROW && (this.log.atEnd || this.following);
    if (this.following) this.unseen = 0;
    if (back && this.top < NEAR && this.log.from > 0) this.older();
    else if (!back && below < NEAR && !this.log.atEnd) this.newer();
    this.wake();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "End") this.toEnd();
    else if (event.key === "Home") this.jump(0);
    else return;
    event.preventDefault();
  }

  /** @param {LogPiece} piece */
  hear(piece) {
    const {log} = this;
    // A piece of the stream may be older than what was fetched meanwhile. But if a log was started again, the pieces
    // stay shorter.
    this.behind = piece.size < log.to ? this.behind + 1 : 0;
    if (piece.size < this.size || this.behind > 1) {
      this.behind = 0;
      this.size = piece.size;
      return this.startAtEnd();
    }
    if (this.behind > 0) {
      this.size = piece.size;
      return this.wake();
    }
    const atEnd = log.atEnd;
    log.size = this.size = Math.max(log.size, piece.size);
    if (!this.following) this.unseen += piece.text.split("\n").length - 1;
    if (!this.loaded || this.busy) return this.wake(); // the running request fetches up to the end
    if (atEnd && (this.following || log.lines.length < MOST_LINES)) {
      if (!this.grow(piece)) this.catchUp();
    }
    this.wake();
  }

  /**
   * Adds a piece at the end. If the reader is at older lines, these stay, and the end is fetched again later.
   * @param {LogPiece} piece
   */
  grow(piece) {
    const joined = this.log.append(piece);
    if (this.following) this.log.dropOldest();
    return joined;
  }

  /**
   * @param {number} from
   * @param {number} limit
   * @returns {Promise<LogPiece>}
   */
  ask(from, limit) {
    return get(`${this.path}?from=${from}&limit=${limit}`);
  }

  /**
   * Makes one request at a time. An error is shown, and breaks nothing else.
   * @param {() => Promise<void>} work
   */
  async fetching(work) {
    if (this.busy) return;
    this.busy = true;
    /** @type {(() => Promise<void>) | null} */
    let next = work;
    for (; next && !this.closed; next = this.wanted) {
      this.wanted = null;
      try {
        await next();
        this.problem = null;
      } catch (problem) {
        this.problem = /** @type {Problem} */ (problem);
      }
    }
    this.busy = false;
    this.wake();
  }

  /**
   * Does what a person asked for, after the running request. Of several such wishes, only the last is done.
   * @param {() => Promise<void>} work
   */
  wish(work) {
    if (!this.busy) return this.fetching(work);
    this.wanted = work;
    this.wake();
  }

  toEnd() {
    this.following = true;
    this.unseen = 0;
    if (this.busy || !this.loaded || !this.log.atEnd) return this.startAtEnd();
    this.wake();
  }

  startAtEnd() {
    this.following = true;
    return this.wish(async () => {
      await this.tail();
      await this.rest();
    });
  }

  async tail() {
    let window = await this.ask(-FIRST_BYTES, FIRST_BYTES);
    if (window.from > 0 && window.from < HEAD_BYTES) window = await this.ask(0, window.to);
    this.log.start(window);
    this.log.size = Math.max(this.log.size, this.size); // the stream may have reported more meanwhile
    this.found = null;
    this.loaded = true;
  }

  catchUp() {
    return this.fetching(() => this.rest());
  }

  // Fetches what was written during other requests.
  async rest() {
    while (this.following && !this.log.atEnd) {
      const {to} = this.log;
      if (
        this.log.size - to > FAR ||
        !this.grow(await this.ask(to, WINDOW_BYTES)) ||
        this.log.to === to
      )
        return this.tail();
    }
  }

  older() {
    return this.fetching(async () => {
      const {from} = this.log;
      const begin = from < WINDOW_BYTES + HEAD_BYTES ? 0 : from - WINDOW_BYTES;
      const piece = await this.ask(begin, from - begin);
      if (this.log.from !== from) return;
      this.anchored(() => this.log.prepend(piece));
      this.log.dropNewest();
    });
  }

  /**
   * Calls `change`, which adds lines above and returns how many. The visible lines stay where they are.
   * @param {() => number} change
   */
  anchored(change) {
    const layout = this.layout();
    const line = layout.lineAt(Math.floor(this.top / ROW));
    const within = this.top - layout.rowOf(line) * ROW;
    const shift = change();
    if (this.found !== null) this.found += shift;
    this.goal = {line: Math.max(0, line + shift), above: 0, within};
  }

  newer() {
    return this.fetching(async () => {
      this.log.append(await this.ask(this.log.to, WINDOW_BYTES));
      this.anchored(() => -this.log.dropOldest());
    });
  }

  /**
   * Goes to the line at that byte. One window ends there and another begins, even if the log grows meanwhile. So the
   * number of lines above shows which line it is.
   * @param {number} at
   */
  jump(at) {
    this.following = false;
    return this.wish(async () => {
      const begin = at < WINDOW_BYTES + HEAD_BYTES ? 0 : at - WINDOW_BYTES;
      const [above, there] = await Promise.all([
        at === 0 ? null : this.ask(begin, at - begin),
        this.ask(at, WINDOW_BYTES),
      ]);
      this.log.start(above ?? there);
      const line = above === null ? 0 : this.log.lines.length - (this.log.open ? 1 : 0);
      if (above !== null && !this.log.append(there))
        throw new Problem({code: "LOG_ANEW", message: t("The log was begun anew")});
      this.log.size = Math.max(this.log.size, this.size);
      this.loaded = true;
      this.found = at === 0 ? null : Math.min(line, this.log.lines.length - 1);
      this.goal = {line: this.found ?? 0, above: 1 / 3};
      this.following = false; // even if the reader scrolled to the end during the request
    });
  }
}
