// How the page communicates with its server: the token, the requests, and the stream.

import {setClock} from "./parts/ticking.js";
import {createParser} from "./vendor/eventsource-parser.js";
import {t} from "./words.js";

/** @import {Answers, Link, Query, Told} from "./known.d.ts" */

const KEPT = "gpu-tenant.token";
const CLOCK = "gpu-tenant-now";
const SILENT_MS = 40_000; // the server says something every 15 s
const SLOWEST_MS = 15_000;
const OFFLINE_AFTER = 2;

// An answer that reports a failure, with the next step.
export class Problem extends Error {
  /** @param {{code: string, message: string, remedy?: string}} properties */
  constructor({code, message, remedy = ""}) {
    super(message);
    this.code = code;
    this.remedy = remedy;
  }
}

const away = () =>
  new Problem({
    code: "UNREACHABLE",
    message: t("The dashboard's server does not answer"),
    remedy: t("See whether `gpu-tenant dashboard` still runs in its terminal, or run it again"),
  });

const refused = () =>
  new Problem({
    code: "NO_TOKEN",
    message: t("This page has no key to the dashboard, or an old one"),
    remedy: t("Open the link that the terminal shows, or run `gpu-tenant dashboard` again"),
  });

// -- the token --------------------------------------------------------------

let settled = Promise.resolve();

// If the address has a token, removes it from there, and returns true. The new token replaces the kept one only if
// the server accepts it, because a link on another site may have a wrong one. Requests wait until this is decided.
export function takeToken() {
  const found = /^#token=([\w.~-]+)$/.exec(location.hash);
  if (!found) return false;
  history.replaceState(null, "", `${location.pathname}#/`);
  settled = keepWhereTaken(found[1]);
  return true;
}

/** @param {string} token */
async function keepWhereTaken(token) {
  const kept = localStorage.getItem(KEPT);
  if (token !== kept && (kept === null || (await isTaken(token))))
    localStorage.setItem(KEPT, token);
}

/** @param {string} token */
async function isTaken(token) {
  try {
    /** @type {RequestInit} */
    const how = {
      cache: "no-store",
      credentials: "omit",
      headers: {Authorization: `Bearer ${token}`},
    };
    return (await fetch("/api/errands", how)).ok;
  } catch {
    return false;
  }
}

/**
 * Calls `tell` when another tab was opened with a newer link.
 * @param {() => void} tell
 */
export function onToken(tell) {
  addEventListener("storage", (event) => event.key === KEPT && event.newValue && tell());
}

// The link to this page under the name `localhost`, which passkeys need. It contains the token, as the terminal's link.
export function asLocalhost() {
  return `http://localhost:${location.port}/#token=${localStorage.getItem(KEPT) ?? ""}`;
}

function headers(more = {}) {
  return {Authorization: `Bearer ${localStorage.getItem(KEPT) ?? ""}`, ...more};
}

// -- questions --------------------------------------------------------------

/**
 * @param {string} path
 * @param {RequestInit} [how]
 */
async function ask(path, how = {}) {
  await settled;
  let answer;
  try {
    answer = await fetch(path, {
      cache: "no-store",
      credentials: "omit",
      ...how,
      headers: headers(how.headers),
    });
  } catch (problem) {
    if (problem instanceof Error && problem.name === "AbortError") throw problem;
    throw away();
  }
  // First set the clock: times in the answer are by the server's clock, and the browser's may differ.
  setClock(answer.headers.get(CLOCK) ?? "");
  if (answer.ok) return answer;
  throw answer.status === 401 ? refused() : new Problem(await told(answer));
}

/** @param {Response} answer */
async function told(answer) {
  const unsaid = {
    code: `HTTP_${answer.status}`,
    message: t("The server answered {status}", {status: answer.status}),
  };
  try {
    return {...unsaid, ...(await answer.json())};
  } catch {
    return unsaid;
  }
}

/**
 * @template {string} Path
 * @param {Path} path
 * @param {RequestInit} [how]
 * @returns {Promise<Path extends keyof Answers ? Answers[Path] : any>}
 */
export async function get(path, how) {
  return (await ask(path, how)).json();
}

/** @param {string} lease */
export const leasePath = (lease) => `/api/leases/${encodeURIComponent(lease)}`;

/**
 * @param {string} lease
 * @param {string} job
 */
export const logPath = (lease, job) => `${leasePath(lease)}/jobs/${encodeURIComponent(job)}/log`;

/** @param {string} path */
export async function getFile(path) {
  return (await ask(path)).blob();
}

/**
 * @param {string} path
 * @param {object} [body]
 */
export async function post(path, body = {}) {
  const how = {
    method: "POST",
    body: JSON.stringify(body),
    headers: {"Content-Type": "application/json"},
  };
  return (await ask(path, how)).json();
}

// -- the stream -------------------------------------------------------------

let hidden = "closed";
const sleepers = new Set();

/**
 * Sets whether streams stay open while the tab is hidden. For notifications they must.
 * @param {"open" | "closed"} what
 */
export function whileHidden(what) {
  hidden = what;
  for (const look of sleepers) look();
}

document.addEventListener("visibilitychange", () => {
  for (const look of sleepers) look();
});

/**
 * Reads /api/stream until `close()`. It calls `on[event](value)` at each event, and `connected()` at each
 * connection that the server has answered. At each change of the link it calls `state(link, problem)`:
 * "opening", "live", "offline" (it goes on trying), "asleep" (the tab is hidden), "refused" (401).
 * @param {Query} query
 * @param {{on: Record<string, (value: any) => void>,
 *   state: (link: Link, problem: Told | null) => void, connected: () => void}} given
 */
export function stream(query, {on, state, connected}) {
  /** @type {Link | ""} */
  let link = "";
  let failures = 0;
  /** @type {AbortController | null} */
  let reading = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let again;
  let cursor = query.cursor;

  /**
   * @param {Link} next
   * @param {Told | null} [problem]
   */
  const become = (next, problem = null) => {
    if (next === link) return;
    link = next;
    state(link, problem);
  };
  /** @param {{event?: string, data: string}} properties */
  const heard = ({event = "message", data: text}) => {
    const value = JSON.parse(text);
    if (event === "log") cursor = value.to;
    failures = 0;
    become("live");
    on[event]?.(value);
  };
  /** @param {Problem} problem */
  const failed = (problem) => {
    if (problem.code === "NO_TOKEN") return become("refused", problem);
    failures += 1;
    if (failures >= OFFLINE_AFTER) become("offline", problem);
    const wait = Math.min(SLOWEST_MS, 500 * 2 ** (failures - 1));
    again = setTimeout(open, wait * (0.8 + Math.random() * 0.4));
  };
  const open = async () => {
    const mine = new AbortController();
    reading = mine;
    try {
      await read(address({...query, cursor}), mine, {heard, connected});
      if (reading === mine) failed(away());
    } catch (problem) {
      if (reading === mine) failed(problem instanceof Problem ? problem : away());
    }
  };
  const close = () => {
    clearTimeout(again);
    const mine = reading;
    reading = null;
    mine?.abort();
  };
  const look = () => {
    const asleep = document.hidden && hidden === "closed";
    if (asleep && link !== "asleep" && link !== "refused") {
      close();
      become("asleep");
    } else if (!asleep && link === "asleep") {
      become("opening");
      open();
    }
  };

  become("opening");
  open();
  sleepers.add(look);
  look();
  return {
    close() {
      sleepers.delete(look);
      close();
    },
  };
}

/** @param {Query} query */
function address(query) {
  const asked = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
  return asked.length === 0
    ? "/api/stream"
    : `/api/stream?${new URLSearchParams(Object.fromEntries(asked))}`;
}

/**
 * Passes each event to `heard` until the server ends the stream. A long silence counts as an end.
 * @param {string} path
 * @param {AbortController} abort
 * @param {{heard: (event: any) => void, connected: () => void}} given
 */
async function read(path, abort, {heard, connected}) {
  let silence = setTimeout(() => abort.abort(), SILENT_MS);
  try {
    const answer = await ask(path, {signal: abort.signal});
    connected();
    const parser = createParser({onEvent: heard});
    const words = /** @type {ReadableStream<BufferSource>} */ (answer.body)
      .pipeThrough(new TextDecoderStream())
      .getReader();
    for (let piece = await words.read(); !piece.done; piece = await words.read()) {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENT_MS);
      parser.feed(piece.value);
    }
  } finally {
    clearTimeout(silence);
  }
}
