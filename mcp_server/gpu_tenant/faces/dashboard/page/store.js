// The state of the page: the last answers of the server, which are kept while it does not answer, and the address.

import {get, onToken, stream, takeToken} from "./net.js";
import {now, setClock} from "./parts/ticking.js";
import {useEffect, useRef, useState} from "./vendor/htm-preact.js";

/** @import {Follower, Known, Link, LogPiece, OpenAction, Query, TimedRow, Told} from "./known.d.ts" */
/** @import {ChangedRows, Errand, JobMoment, LeaseRow, Overview, Sight} from "./types.d.ts" */

/** @type {Known} */
let known = {
  link: "opening",
  problem: null,
  since: null,
  route: route(),
  overview: null,
  errands: {},
  blind: {},
  action: null,
};
/** @type {Set<() => void>} */
const readers = new Set();

export const state = () => known;

/** @param {Partial<Known>} changes */
function set(changes) {
  known = {...known, ...changes};
  for (const look of readers) look();
}

/**
 * Returns a part of the state. The component that uses it is drawn again when this part has changed.
 * @template T
 * @param {(known: Known) => T} select
 * @returns {T}
 */
export function useStore(select) {
  const [, draw] = useState(0);
  const latest = useRef();
  latest.current = {select, value: select(known)};
  useEffect(() => {
    const look = () => {
      if (!Object.is(latest.current.select(known), latest.current.value)) draw((n) => n + 1);
    };
    readers.add(look);
    look();
    return () => readers.delete(look);
  }, []);
  return latest.current.value;
}

// -- where the reader is ----------------------------------------------------

// "#/lease/ID/log" is {name: "lease", id: "ID", rest: ["log"]}; "#/" is the overview. The text after "?" is the query.
export function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", id = null, ...rest] = path.split("/").filter(Boolean).map(decoded);
  return {name: name || "overview", id, rest, query};
}

/**
 * Decodes a part of the address. In a link that was cut, it may end within an escaped character.
 * @param {string} part
 */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function onHash() {
  if (takeToken()) reopen();
  set({route: route(), action: null});
}

// -- what a person is about to do -------------------------------------------

/**
 * Opens the dialog for {verb, row} or {verb: "adopt", box, then}. It stays open if its row moves or disappears.
 * @param {OpenAction} action
 */
export function openAction(action) {
  set({action});
}

export function closeAction() {
  set({action: null});
}

// -- the stream -------------------------------------------------------------

/** @type {{close: () => void} | null} */
let open = null;
/** @type {Query} */
let asked = {};
/** @type {Follower | null} */
let follower = null;

/**
 * @param {LeaseRow[]} rows
 * @param {string} at
 */
const timed = (rows, at) => rows.map((row) => ({...row, at}));

/**
 * Keeps the times since which boxes do not answer, but only of boxes that still do not answer.
 * @param {TimedRow[]} leases
 */
function stillBlind(leases) {
  const seen = new Map(leases.map((row) => [row.card.lease, row.blind]));
  return Object.fromEntries(Object.entries(known.blind).filter(([lease]) => seen.get(lease)));
}

/** @param {Overview} overview */
function takeOverview(overview) {
  setClock(overview.now);
  const leases = timed(overview.leases, overview.at);
  set({overview: {...overview, leases}, blind: stillBlind(leases), since: now()});
}

/** @param {ChangedRows} changed */
function takeRows({rows, ...sums}) {
  if (!known.overview) return;
  setClock(sums.now);
  const changed = new Map(timed(rows, sums.at).map((row) => [row.card.lease, row]));
  const leases = known.overview.leases.map((row) => changed.get(row.card.lease) ?? row);
  set({
    overview: {...known.overview, ...sums, leases},
    blind: stillBlind(leases),
    since: now(),
  });
}

/** @param {Errand[]} errands */
const byId = (errands) => Object.fromEntries(errands.map((errand) => [errand.id, errand]));
/** @type {Record<number, Errand>} */
let heard = {};

/**
 * Returns the newer of two states of an errand. The stream and the answer to a POST may arrive in any order: the
 * stream may report the end of a quick errand before the answer reports its beginning. An errand that ended stays so.
 * @param {Errand | undefined} before
 * @param {Errand} now
 */
const later = (before, now) =>
  before && before.began_at === now.began_at && before.state !== "running" ? before : now;

/**
 * Adds an errand from the answer to a POST, or from the stream, to those that the page shows.
 * @param {Errand} errand
 */
export function noteErrand(errand) {
  const stands = later(known.errands[errand.id], errand);
  heard[errand.id] = stands;
  set({errands: {...known.errands, [errand.id]: stands}});
}

// Replaces the errands by those of the server. While no stream was open, some may have ended, and a new server counts
// its own. Errands that the stream reports meanwhile are newer, so they are kept.
async function takeErrands() {
  /** @type {Record<number, Errand>} */
  const meanwhile = {};
  heard = meanwhile;
  try {
    const {errands} = await get("/api/errands");
    if (heard !== meanwhile) return;
    const listed = byId(errands);
    const told = Object.values(meanwhile).map((errand) => later(listed[errand.id], errand));
    set({errands: {...listed, ...byId(told)}});
  } catch {
    // The stream reports the problem.
  }
}

const on = {
  overview: takeOverview,
  rows: takeRows,
  errand: noteErrand,
  ping: () => {
    known.since = now();
  },
  /** @param {Sight} seen */
  blind(seen) {
    set({blind: {...known.blind, [seen.lease]: seen}});
    follower?.blind?.(seen);
  },
  /** @param {Sight} seen */
  seeing(seen) {
    const {[seen.lease]: _gone, ...blind} = known.blind;
    set({blind});
    follower?.seeing?.(seen);
  },
  /** @param {JobMoment} watched */
  job: (watched) => follower?.job?.(watched),
  /** @param {LogPiece} piece */
  log: (piece) => follower?.log?.(piece),
};

/**
 * @param {Link} link
 * @param {Told | null} problem
 */
function onLink(link, problem) {
  document.documentElement.dataset.link = link;
  set({link, problem});
}

function reopen() {
  open?.close();
  open = stream(asked, {on, state: onLink, connected: takeErrands});
}

/**
 * Lets the tab's stream also follow this lease and job, as long as the component that calls this is shown.
 * @param {{lease: string, job?: string | null, cursor?: number | null}} given
 * @param {Follower} tell
 */
export function useFollow({lease, job = null, cursor = null}, tell) {
  const latest = useRef();
  latest.current = tell;
  useEffect(() => {
    /** @type {Record<string, (value: any) => void>} */
    const mine = {};
    for (const event of ["job", "log", "blind", "seeing"])
      mine[event] = (value) => latest.current[event]?.(value);
    follower = mine;
    asked = {lease, job, cursor};
    reopen();
    return () => {
      if (follower !== mine) return;
      follower = null;
      asked = {};
      reopen();
    };
  }, [lease, job]);
}

// Begins to listen to changes of the address, to newer links, and to the server.
export function begin() {
  takeToken();
  set({route: route()});
  addEventListener("hashchange", onHash);
  onToken(reopen);
  reopen();
}
