// Shows the files of the newest seal, each with what was proved by reading its copy again.
import {openAction} from "../store.js";
import {html, useMemo, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Preview} from "./preview.js";
import {isLive} from "./standing.js";
import {Button, Bytes, Copy, Empty, Field, Pill, Shape, When} from "./widgets.js";

/** @import {Judged, JudgedFiles, TimedRow, Tone} from "../known.d.ts" */
/** @import {File, Files, Path, Proved} from "../types.d.ts" */

const PAGE = 200; // this many rows are drawn at first, and more on request

/** @type {Record<string, {rank: number, kind: Tone, words: () => string}>} */
const STANDINGS = {
  problem: {rank: 0, kind: "bad", words: () => t("broken")},
  unproved: {rank: 1, kind: "bad", words: () => t("not proved")},
  landed: {rank: 1, kind: "accent", words: () => t("collected, to be proved")},
  warned: {rank: 2, kind: "warn", words: () => t("proved, with a warning")},
  hashed: {rank: 3, kind: "accent", words: () => t("proved by hash")},
  proved: {rank: 4, kind: "good", words: () => t("proved to load")},
};

/**
 * Returns the standing of a file by its evidence. A file that was not read again is never called proved.
 * @param {{evidence: Proved | null}} given
 * @param {string} unread
 */
function standingOf({evidence}, unread) {
  if (evidence === null) return unread;
  if (evidence.outcome === "broken" || evidence.problem) return "problem";
  if (evidence.warnings.length > 0) return "warned";
  return evidence.outcome === "loads" ? "proved" : "hashed";
}

/**
 * Returns the files, each with its standing. Right after a collect, no file was read again yet, which is no fault.
 * @param {Files} files
 */
function judged(files) {
  const fresh = files.collected_at && files.shown.every(({evidence}) => evidence === null);
  const shown = files.shown.map((file) => ({
    ...file,
    standing: standingOf(file, fresh ? "landed" : "unproved"),
  }));
  return {...files, shown};
}

/** @type {[string, () => string, (one: Judged, other: Judged) => number][]} */
const COLUMNS = [
  [
    "standing",
    () => t("Evidence"),
    (one, other) =>
      STANDINGS[one.standing].rank - STANDINGS[other.standing].rank || byName(one, other),
  ],
  ["name", () => t("File"), (one, other) => byName(one, other)],
  ["size", () => t("Size"), (one, other) => other.size_bytes - one.size_bytes],
];
/**
 * @param {File} one
 * @param {File} other
 */
const byName = (one, other) => one.name.localeCompare(other.name, "en", {numeric: true});

/**
 * @param {{row: TimedRow, files: Files | null, keptIn: string | null}} properties
 */
export function Artifacts({row, files: sealed, keptIn}) {
  const {lease} = row.card;
  const ended = !isLive(row);
  const files = useMemo(() => sealed && judged(sealed), [sealed]);
  if (files === null) {
    if (ended) return html`<${Empty} title=${t("Nothing was ever sealed on it")} />`;
    return html`<${Empty} title=${t("Nothing is sealed yet")}>
      <p>
        ${t(
          "When the job has ended, collect seals what lies on the box and fetches every declared artifact.",
        )}
      </p>
      <p><${Copy} text=${`gpu-tenant collect ${lease}`} /></p>
    <//>`;
  }
  return html`<div class="files">
    <${Sealed} files=${files} keptIn=${keptIn} />
    <${Loose} row=${row} files=${files} />
    <${Listing} lease=${lease} files=${files} keptIn=${keptIn} />
  </div>`;
}

// -- the whole --------------------------------------------------------------

/**
 * Writes a time of the box's own clock, which may be wrong.
 * @param {number} seconds
 */
function boxTime(seconds) {
  const moment = new Date(seconds * 1000);
  return Number.isNaN(moment.getTime()) ? null : moment.toISOString();
}

/** @param {{files: JudgedFiles, keptIn: string | null}} properties */
function Sealed({files, keptIn}) {
  const counts = useMemo(() => tally(files.shown), [files]);
  const said = Object.keys(STANDINGS).filter((name) => counts[name] > 0);
  return html`<section aria-labelledby="files-title">
    <h2 id="files-title">
      ${filesWords(files.total)}
      ${" "}
      <span class="soft">· <${Bytes} n=${files.bytes} /></span>
    </h2>
    <p class="standings">
      ${said.map(
        (name) => html`<${Pill} key=${name} kind=${STANDINGS[name].kind}>
          ${counts[name].toLocaleString("en-US")} ${STANDINGS[name].words()}
        <//> `,
      )}
    </p>
    <p class="soft">
      ${t("Sealed on the box")} <${When} at=${boxTime(files.sealed_at)} />
      ${
        files.collected_at &&
        html` · ${t("collected, each with its hash")} <${When} at=${files.collected_at} />`
      }
      ${files.stored_at && html` · ${t("copied to the store")} <${When} at=${files.stored_at} />`}
      ${
        files.verified_at &&
        html` · ${t("re-read and verified")} <${When} at=${files.verified_at} />`
      }
      ${keptIn && html` · ${t("kept in")} <code>${keptIn}</code>`}
      ${" · "}
      <span title=${files.digest}>${t("digest")} <code>${files.digest.slice(0, 12)}</code></span>
    </p>
  </section>`;
}

/** @param {Judged[]} shown */
function tally(shown) {
  /** @type {Record<string, number>} */
  const counts = {};
  for (const {standing} of shown) {
    counts[standing] = (counts[standing] ?? 0) + 1;
  }
  return counts;
}

/** @param {number} n */
const grouped = (n) => n.toLocaleString("en-US");
/** @param {number} n */
const filesWords = (n) => (n === 1 ? t("1 file") : t("{n} files", {n: grouped(n)}));
/** @param {number} n */
const unclaimedWords = (n) =>
  n === 1 ? t("1 file is unclaimed") : t("{n} files are unclaimed", {n: grouped(n)});
/** @param {number} n */
const discardedWords = (n) =>
  n === 1
    ? t("1 file is discarded, by the job's own word or as a well-known cache:")
    : t("{n} files are discarded, by the job's own word or as a well-known cache:", {
        n: grouped(n),
      });

/**
 * Returns a path on the box as a pattern names it: relative to the work directory, if it is in there.
 * @param {string} lease
 * @param {string} at
 */
function fromWork(lease, at) {
  const [, ...inside] = at.split(`/gpu-tenant/${lease}/work/`);
  return inside.length > 0 ? inside.join(`/gpu-tenant/${lease}/work/`) : at;
}

/**
 * Shows which files prevent a teardown, and which are discarded.
 * @param {{row: TimedRow, files: Files}} properties
 */
function Loose({row, files}) {
  const {lease} = row.card;
  const ended = !isLive(row);
  const {unclaimed, discarded, problems, unmatched = []} = files;
  return html`${
    problems.length > 0 &&
    html`<section class="loose is-bad" aria-labelledby="problems-title">
      <h3 id="problems-title">
        <${Shape} kind="bad" />
        ${t("{n} could not be sealed", {n: problems.length})}
      </h3>
      <ul>
        ${problems.map(
          ({at, why, detail}) => html`<li key=${at}>
            <code>${fromWork(lease, at)}</code> <strong>${why}</strong>
            ${" "}
            <span class="soft">${detail}</span>
          </li>`,
        )}
      </ul>
    </section>`
  }
  ${
    unmatched.length > 0 &&
    html`<section class="loose is-warn" aria-labelledby="unmatched-title">
      <h3 id="unmatched-title"><${Shape} kind="warn" />${t("Declared, and matching nothing")}</h3>
      <ul>${unmatched.map((pattern) => html`<li key=${pattern}><code>${pattern}</code></li>`)}</ul>
    </section>`
  }
  ${
    unclaimed.count > 0 &&
    html`<section class="loose is-warn" aria-labelledby="unclaimed-title">
      <h3 id="unclaimed-title">
        <${Shape} kind="warn" />
        ${unclaimedWords(unclaimed.count)}
        ${" "}
        <span class="soft">· <${Bytes} n=${unclaimed.bytes} /></span>
      </h3>
      ${
        !ended &&
        html`<p>
          ${
            unclaimed.count === 1
              ? t(
                  "It was written since the launch and nobody has claimed or discarded it, so the box is not torn down. Keep it, or give it up by name:",
                )
              : t(
                  "They were written since the launch and nobody has claimed or discarded them, so the box is not torn down. Keep them, or give them up by name:",
                )
          }
        </p>
        <p>
          <${Copy} text=${`gpu-tenant collect ${lease} --artifact PATTERN --discard PATTERN`} />
        </p>`
      }
      <${Fates} row=${row} files=${unclaimed.largest} />
    </section>`
  }
  ${
    discarded.count > 0 &&
    html`<p class="soft">${discardedWords(discarded.count)} <${Bytes} n=${discarded.bytes} /></p>`
  }`;
}

/**
 * Returns the pattern that matches only this file, with special characters escaped.
 * @param {string} path
 */
const literal = (path) => path.replace(/[[\]*?\\]/g, "\\$&");

/**
 * Lets a person choose what happens to each unclaimed file. A collect, whose plan is shown first, then does it.
 * @param {{row: TimedRow, files: Path[]}} properties
 */
function Fates({row, files}) {
  const [chosen, setChosen] = useState(/** @type {Record<string, string>} */ ({}));
  const {lease} = row.card;
  const open = row.verbs.includes("collect");
  /** @param {string} fate */
  const of = (fate) =>
    files
      .map(({at}) => fromWork(lease, at))
      .filter((name) => chosen[name] === fate)
      .map(literal);
  const [kept, lost] = [of("keep"), of("lose")];
  const count = kept.length + lost.length;
  const begin = () =>
    openAction({
      verb: "collect",
      row,
      begins: {
        ...(kept.length > 0 && {artifacts: kept}),
        ...(lost.length > 0 && {discard: lost}),
      },
    });
  return html`<table class="table">
      <caption class="unseen">${t("The largest of them")}</caption>
      <thead>
        <tr>
          <th scope="col">${t("File")}</th>
          <th scope="col" class="number">${t("Size")}</th>
          ${open && html`<th scope="col">${t("What becomes of it")}</th>`}
        </tr>
      </thead>
      <tbody>
        ${files.map(({at, size}) => {
          const name = fromWork(lease, at);
          return html`<tr key=${at}>
            <td class="name">${name}</td>
            <td class="number"><${Bytes} n=${size} /></td>
            ${
              open &&
              html`<td>
                <select
                  aria-label=${t("What becomes of {file}", {file: name})}
                  onChange=${(event) => setChosen({...chosen, [name]: event.target.value})}
                >
                  <option value="">${t("undecided")}</option>
                  <option value="keep">${t("keep it")}</option>
                  <option value="lose">${t("give it up")}</option>
                </select>
              </td>`
            }
          </tr>`;
        })}
      </tbody>
    </table>
    ${
      open &&
      html`<p>
        <${Button} kind="primary" disabled=${count === 0} onClick=${begin}>
          ${t("Collect with these choices")}…
        <//>
      </p>`
    }`;
}

// -- the list ---------------------------------------------------------------

/** @param {{lease: string, files: JudgedFiles, keptIn: string | null}} properties */
function Listing({lease, files, keptIn}) {
  const [words, setWords] = useState("");
  const [only, setOnly] = useState("");
  const [sorted, setSorted] = useState({by: "standing", backwards: false});
  const [most, setMost] = useState(PAGE);
  const [looked, setLooked] = useState(/** @type {string | null} */ (null));
  const all = files.shown;
  const chosen = useMemo(() => {
    const wanted = words.toLowerCase();
    const found = all.filter(
      (file) => (only === "" || file.standing === only) && file.name.toLowerCase().includes(wanted),
    );
    found.sort(COLUMNS.find(([name]) => name === sorted.by)?.[2]);
    return sorted.backwards ? found.reverse() : found;
  }, [all, words, only, sorted]);
  /** @param {string} by */
  const sort = (by) => setSorted({by, backwards: sorted.by === by && !sorted.backwards});
  const present = Object.keys(STANDINGS).filter((name) =>
    all.some(({standing}) => standing === name),
  );
  return html`<section class="listing" aria-labelledby="listing-title">
    <h3 id="listing-title" class="unseen">${t("Each file and its evidence")}</h3>
    <div class="listing-bar">
      <${Field} label=${t("Name has")}>
        <input
          type="search"
          value=${words}
          onInput=${(event) => {
            setWords(event.target.value);
            setMost(PAGE);
          }}
        />
      <//>
      ${
        present.length > 1 &&
        html`<${Field} label=${t("Evidence")}>
          <select value=${only} onChange=${(event) => {
            setOnly(event.target.value);
            setMost(PAGE);
          }}>
            <option value="">${t("any")}</option>
            ${present.map(
              (name) => html`<option key=${name} value=${name}>${STANDINGS[name].words()}</option>`,
            )}
          </select>
        <//>`
      }
      <p class="soft" role="status">
        ${t("{n} of {all} shown", {
          n: chosen.length.toLocaleString("en-US"),
          all: files.total.toLocaleString("en-US"),
        })}
      </p>
    </div>
    <div class="scroll">
      <table class="table">
        <thead>
          <tr>
            ${COLUMNS.map(
              ([name, title]) => html`<th
                key=${name}
                scope="col"
                class=${name === "size" ? "number" : ""}
                aria-sort=${sorted.by !== name ? undefined : sorted.backwards ? "descending" : "ascending"}
              >
                <button type="button" onClick=${() => sort(name)}>
                  ${title()}
                  <span aria-hidden="true">
                    ${sorted.by !== name ? "" : sorted.backwards ? " ▾" : " ▴"}
                  </span>
                </button>
              </th>`,
            )}
          </tr>
        </thead>
        <tbody>
          ${chosen.slice(0, most).map(
            (file) => html`<${FileRow}
              key=${file.name}
              file=${file}
              onLook=${files.collected_at && file.kind === "file" ? () => setLooked(file.name) : null}
            />`,
          )}
        </tbody>
      </table>
    </div>
    ${
      looked &&
      html`<${Preview} lease=${lease} name=${looked} keptIn=${keptIn} onClose=${() => setLooked(null)} />`
    }
    ${
      chosen.length > most &&
      html`<p>
        <${Button} onClick=${() => setMost(most + 5 * PAGE)}>
          ${t("Show {n} more", {n: Math.min(5 * PAGE, chosen.length - most)})}
        <//>
      </p>`
    }
    ${
      files.total > files.shown.length &&
      html`<p class="soft">
        ${t("The list has the first {n}; the report has all.", {
          n: files.shown.length.toLocaleString("en-US"),
        })}
      </p>`
    }
  </section>`;
}

/** @param {{file: Judged, onLook: (() => void) | null}} properties */
function FileRow({file, onLook}) {
  const {kind, words} = STANDINGS[file.standing];
  const {evidence} = file;
  const details =
    evidence &&
    [...evidence.proved, ...evidence.not_proved, ...evidence.warnings, evidence.problem].some(
      Boolean,
    );
  return html`<tr class="is-${kind}">
    <td>
      ${
        details
          ? html`<details>
            <summary>
              <${Pill} kind=${kind}>${words()}<//> <span class="soft">${evidence.format}</span>
            </summary>
            <${Evidence} evidence=${evidence} sha256=${file.sha256} />
          </details>`
          : html`<${Pill} kind=${kind}>${words()}<//> <span class="soft">${evidence?.format ?? ""}</span>`
      }
    </td>
    <td class="name">
      ${
        onLook
          ? html`<button type="button" class="link" onClick=${onLook}>${file.name}</button>`
          : file.name
      }
      ${file.role === "log" && html` <span class="soft small">${t("log")}</span>`}
      ${file.kind === "link" && html` <span class="soft small">${t("link")}</span>`}
    </td>
    <td class="number"><${Bytes} n=${file.size_bytes} /></td>
  </tr>`;
}

/** @param {{evidence: Proved, sha256: string | null}} properties */
function Evidence({evidence, sha256}) {
  /**
   * @param {Tone} kind
   * @param {string[]} list
   */
  const lines = (kind, list) =>
    list.map((words) => html`<li key=${words}><${Shape} kind=${kind} />${words}</li>`);
  return html`<ul class="evidence">
    ${evidence.problem && lines("bad", [evidence.problem])}
    ${lines("warn", evidence.warnings)}
    ${lines("good", evidence.proved)}
    ${lines(
      "soft",
      evidence.not_proved.map((words) => t("not proved: {words}", {words})),
    )}
    <li class="soft">
      ${t("re-read from {where}", {
        where: evidence.where === "here" ? t("this computer") : evidence.where,
      })}
      ${evidence.at && html`, <${When} at=${evidence.at} />`}
    </li>
    ${sha256 && html`<li class="soft">sha256 <code>${sha256}</code></li>`}
  </ul>`;
}
