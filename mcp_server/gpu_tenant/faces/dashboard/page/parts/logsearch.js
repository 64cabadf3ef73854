// Searches a whole log, of which the page has only a part: the server searches, and the page shows the hits.

import {get, logPath} from "../net.js";
import {state} from "../store.js";
import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {plain} from "./ansi.js";
import {Button, bytesWords, Trouble} from "./widgets.js";

/** @import {Hit, Hits as HitsHere} from "../types.d.ts" */
/** @import {Looked, Searched, Told} from "../known.d.ts" */

const MOST = 2_000;
const LISTED = 300;
const SHOWN = 240; // at most this many characters of a hit are shown
/** @type {Looked} */
const NOTHING = {hits: [], scanned: 0, size: 0, state: "idle", problem: null};

/**
 * Returns where the searched words occur in a text: [[from, to), ...].
 * @param {string} text
 * @param {{words: string, exact: boolean}} given
 */
export function occurrences(text, {words, exact}) {
  const [within, wanted] = exact ? [text, words] : [text.toLowerCase(), words.toLowerCase()];
  const found = [];
  for (
    let at = within.indexOf(wanted);
    at !== -1;
    at = within.indexOf(wanted, at + wanted.length)
  ) {
    found.push([at, at + wanted.length]);
  }
  return found;
}

/**
 * Shows the search field, the progress of the search, and the hits. `onJump(at)` shows the line at that byte. After the
 * last hit, the search continues with the part that was not searched yet, because a log of `size` bytes may grow.
 * @param {{lease: string, job: string, size: number, onJump: (at: number) => void,
 *   onSearched: (searched: Searched | null) => void}} properties
 */
export function SearchBar({lease, job, size, onJump, onSearched}) {
  const linked = useRef(new URLSearchParams(state().route.query)).current;
  const [words, setWords] = useState(() => linked.get("q") ?? "");
  const [exact, setExact] = useState(() => linked.get("case") === "yes");
  const [found, setFound] = useState(NOTHING);
  const [chosen, setChosen] = useState(-1);
  const asked = useRef(
    /** @type {{key: string, abort: AbortController | null}} */ ({key: "", abort: null}),
  );
  useEffect(() => () => asked.current.abort?.abort(), []);

  // A link to a search, or to a line of it.
  useEffect(() => {
    const at = linked.has("at") ? Number(linked.get("at")) : null;
    if (words === "") return;
    begin(exact, at ?? undefined).then((hits) => {
      const found = hits?.findIndex((hit) => hit.at === at) ?? -1;
      if (hits && found >= 0) go(found, hits);
    });
  }, []);

  /**
   * Puts the search, and the hit at that byte, into the address. Each search replaces the one before.
   * @param {Record<string, string>} what
   */
  const keepInAddress = (what) => {
    const place = /\.\d+$/.test(job)
      ? location.hash.split("?")[0]
      : `#/lease/${encodeURIComponent(lease)}/log/${encodeURIComponent(job)}`;
    const query = new URLSearchParams(what).toString();
    history.replaceState(null, "", query ? `${place}?${query}` : place);
  };
  /** @param {boolean} exactly */
  const searchFor = (exactly) => ({q: words, ...(exactly ? {case: "yes"} : {})});

  const clear = () => {
    keepInAddress({});
    asked.current.abort?.abort();
    asked.current = {key: "", abort: null};
    setWords("");
    setFound(NOTHING);
    setChosen(-1);
    onSearched(null);
  };
  /**
   * @param {boolean} exactly
   * @param {number} [at] the hit that a link leads to
   */
  const begin = (exactly, at) => {
    setChosen(-1);
    keepInAddress({...searchFor(exactly), ...(at === undefined ? {} : {at: String(at)})});
    onSearched({words, exact: exactly});
    return look(exactly, [], 0);
  };
  /**
   * Searches from that byte on. Returns all hits, or null if another search has begun meanwhile.
   * @param {boolean} exactly
   * @param {Hit[]} before
   * @param {number} start
   */
  const look = async (exactly, before, start) => {
    asked.current.abort?.abort();
    const abort = new AbortController();
    asked.current = {key: keyOf(words, exactly), abort};
    const log = logPath(lease, job);
    const base = `${log}/search?q=${encodeURIComponent(words)}`;
    const most = before.length + MOST;
    let hits = before;
    let from = start;
    setFound({...NOTHING, hits, scanned: from, state: "looking"});
    try {
      for (;;) {
        /** @type {HitsHere} */
        const answer = await get(`${base}&from=${from}&case=${exactly ? "yes" : "no"}`, {
          signal: abort.signal,
        });
        if (abort.signal.aborted) return null;
        const last = hits.at(-1)?.at ?? -1;
        hits = hits.concat(answer.hits.filter(({at}) => at > last)); // a line that has grown is found again
        const stuck = answer.scanned_to <= from;
        from = answer.scanned_to;
        const over = stuck || from >= answer.size || hits.length >= most;
        setFound({
          hits,
          scanned: from,
          size: answer.size,
          state: over ? "over" : "looking",
          problem: null,
        });
        if (over) return hits;
      }
    } catch (problem) {
      if (abort.signal.aborted) return null;
      const told = /** @type {Told} */ (problem);
      setFound({...NOTHING, hits, scanned: from, state: "over", problem: told});
      return hits;
    }
  };
  const unsearched = found.state === "over" ? Math.max(size, found.size) - found.scanned : 0;
  /**
   * @param {number} at
   * @param {Hit[]} [hits]
   */
  const go = (at, hits = found.hits) => {
    setChosen(at);
    keepInAddress({...searchFor(exact), at: String(hits[at].at)});
    onJump(hits[at].at);
  };
  const further = async () => {
    const hits = await look(exact, found.hits, found.scanned);
    if (hits && hits.length > 0) go(found.hits.length < hits.length ? found.hits.length : 0, hits);
  };
  /** @param {number} by */
  const step = (by) => {
    const {hits, state: stage} = found;
    const next = chosen < 0 && by < 0 ? hits.length - 1 : chosen + by;
    if (next >= hits.length && unsearched > 0) further();
    else if (next >= hits.length && stage === "looking")
      return; // more may come
    else if (hits.length > 0) go((next + hits.length) % hits.length);
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (words === "") clear();
    else if (asked.current.key === keyOf(words, exact)) step(1);
    else begin(exact);
  };
  /** @param {KeyboardEvent} event */
  const key = (event) => {
    if (event.key === "Enter" && event.shiftKey) {
      event.preventDefault();
      step(-1);
    } else if (event.key === "Escape" && words !== "") {
      event.stopPropagation();
      clear();
    }
  };
  const recase = () => {
    setExact(!exact);
    if (words !== "" && found.state !== "idle") begin(!exact);
  };

  return html`<form class="log-search" role="search" onSubmit=${submit}>
    <input
      type="search"
      value=${words}
      placeholder=${t("Search the whole log")}
      aria-label=${t("Search the whole log")}
      title=${t("Enter: search, then the next hit. Shift+Enter: the one before.")}
      onInput=${(event) => setWords(event.target.value)}
      onKeyDown=${key}
    />
    <${Button}
      kind="quiet"
      aria-pressed=${String(exact)}
      aria-label=${t("Tell capital from small letters")}
      onClick=${recase}
    >
      Aa
    <//>
    ${
      found.hits.length > 0 &&
      html`<${Button} kind="quiet" aria-label=${t("The hit before")} onClick=${() => step(-1)}>↑<//>
      <${Button} kind="quiet" aria-label=${t("The next hit")} onClick=${() => step(1)}>↓<//>`
    }
    <${Said} found=${found} chosen=${chosen} unsearched=${unsearched} />
    ${found.problem && html`<${Trouble} problem=${found.problem} />`}
    ${found.hits.length > 0 && html`<${Hits} found=${found} chosen=${chosen} onGo=${go} />`}
  </form>`;
}

/**
 * @param {string} words
 * @param {boolean} exact
 */
const keyOf = (words, exact) => `${exact ? "yes" : "no"} ${words}`;

/** @param {{found: Looked, chosen: number, unsearched: number}} properties */
function Said({found, chosen, unsearched}) {
  const {hits, scanned, size, state} = found;
  if (state === "idle") return null;
  const n = `${hits.length.toLocaleString("en-US")}${unsearched > 0 ? "+" : ""}`;
  const count =
    chosen >= 0
      ? t("{at} of {n}", {at: chosen + 1, n})
      : hits.length === 1
        ? t("1 hit")
        : t("{n} hits", {n});
  return html`<span class="log-said" role="status">
    ${hits.length > 0 ? count : state === "over" ? t("Nothing found") : t("Searching…")}
  </span>
  ${
    unsearched > 0 &&
    html`<span class="log-scan">
      ${t("{n} not searched yet: past the last hit it goes on", {n: bytesWords(unsearched)})}
    </span>`
  }
  ${
    state === "looking" &&
    size > 0 &&
    html`<span class="log-scan">
      <progress max=${size || 1} value=${scanned} aria-label=${t("Search")}></progress>
      ${t("scanned {done} of {all}", {done: bytesWords(scanned), all: bytesWords(size)})}
    </span>`
  }`;
}

/** @param {{found: Looked, chosen: number, onGo: (at: number) => void}} properties */
function Hits({found, chosen, onGo}) {
  const list = useRef(null);
  useEffect(() => {
    list.current?.children[chosen]?.scrollIntoView({block: "nearest"});
  }, [chosen]);
  const more = found.hits.length - LISTED;
  return html`<ol class="log-hits" aria-label=${t("What was found")} ref=${list}>
    ${found.hits.slice(0, LISTED).map(
      ({at, line}, index) => html`<li key=${at}>
        <button
          type="button"
          aria-current=${index === chosen ? "true" : undefined}
          onClick=${() => onGo(index)}
        >
          ${plain(line).trim().slice(0, SHOWN) || " "}
        </button>
      </li>`,
    )}
    ${
      more > 0 &&
      html`<li class="soft" key="more">
        ${t("and {n} more: ↑ and ↓ go through them all", {n: more.toLocaleString("en-US")})}
      </li>`
    }
  </ol>`;
}
