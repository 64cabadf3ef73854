// Translates the server's English sentences into Chinese. `chinese/__init__.py` does the same for a terminal.
// A key is an English sentence with numbered holes. A hole `{#1}` takes only a figure. The text in a hole is
// translated, too, if it is a sentence. Text in backticks or double quotes, and every line after the first, stays
// as it is.

const HOLE = /(\{#?\d+\}|`[^`]*`|"[^"]*")/;
const ANYTHING = "([\\s\\S]*?)";
const FIGURE = "(-?[\\d.,]+(?: (?:USD|s|min|h|B|KB|MB|GB|TB))?)";
const KEPT_ONE = "(\uE000\\d+\uE001)";
// A clause with a note in brackets at its end.
const NOTED = /^([^()]+) \(([^()]+)\)$/;
// A word that does not touch a hole. A word that touches one may be longer in a filled sentence.
const LONE = /(?<![A-Za-z\uE000])[A-Za-z]+(?![A-Za-z\uE000])/g;
const QUOTED = /`[^`]*`|"(?:[^"\\]|\\.)*"/g;
const KEPT = /\uE000(\d+)\uE001/g;
const EDGES = /^(\s*[;:,]?\s*)([\s\S]*?)([;:,]?\s*)$/;
// A blank between two Chinese characters, where Chinese text has none.
const BLANK = /(?<=[\u3001-\u9FFF\uFF00-\uFFEF]) +(?=[\u3001-\u9FFF\uFF00-\uFFEF])/g;
/** @type {Record<string, string>} */
const SIGNS = {";": "；", ":": "：", ",": "，"};
const REMEMBERED = 2000;

/**
 * Splits a sentence at its holes, and counts the characters of its fixed text.
 * @param {string} english
 * @param {string} chinese
 */
function template(english, chinese) {
  const parts = english.split(HOLE);
  const literals = parts.filter((_, n) => n % 2 === 0);
  const holes = parts.filter((_, n) => n % 2 === 1);
  return {
    chinese,
    holes,
    literals,
    longest: literals.reduce((a, b) => (b.length > a.length ? b : a)),
    words: literals.join("\uE000").match(LONE) ?? [],
    weight: literals.join("").length,
    joins: literals.some((literal) => literal.includes("; ")),
    pattern: /** @type {RegExp | null} */ (null),
  };
}

/**
 * Splits the text at the separator, but not within brackets.
 * @param {string} text
 * @param {string} separator
 */
function split(text, separator) {
  const parts = [];
  let depth = 0;
  let from = 0;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "(") depth++;
    else if (text[at] === ")") depth--;
    else if (depth <= 0 && text.startsWith(separator, at)) {
      parts.push(text.slice(from, at));
      from = at + separator.length;
      at = from - 1;
    }
  }
  return [...parts, text.slice(from)];
}

/**
 * Whether several clauses are only in the first or the last hole, and only where the sentence allows this.
 * @param {string[]} literals
 * @param {string[]} values
 */
function mayHold(literals, values) {
  const last = values.length - 1;
  return values.every(
    (value, n) =>
      (n === 0 && !literals[0] && /^[;:,]/.test(literals[1])) ||
      (n === last && !literals[last + 1]) ||
      split(value, "; ").length === 1,
  );
}

/**
 * Returns the function that translates with these sentences. A sentence without a translation stays in English.
 * @param {Record<string, string>} sentences
 */
export function makeTranslator(sentences) {
  const templates = Object.entries(sentences)
    .map(([english, chinese]) => template(english, chinese))
    .sort((a, b) => b.weight - a.weight)
    .map((known, rank) => ({...known, rank}));
  /** @type {Map<string, number>} */
  const counted = new Map();
  for (const {words} of templates)
    for (const word of words) counted.set(word, (counted.get(word) ?? 0) + 1);
  // All sentences by their rarest word. Sentences with more fixed text come first.
  /** @type {Map<string, typeof templates>} */
  const byWord = new Map();
  for (const known of templates) {
    const rarest = known.words.reduce(
      (least, word) =>
        least === "" || Number(counted.get(word)) < Number(counted.get(least)) ? word : least,
      "",
    );
    const same = byWord.get(rarest);
    if (same) same.push(known);
    else byWord.set(rarest, [known]);
  }
  /** @type {Map<string, string>} */
  const remembered = new Map();

  /**
   * Translates the text as one sentence. Null if no sentence matches it.
   * @param {string} text
   * @param {boolean} joins
   * @returns {string | null}
   */
  function whole(text, joins) {
    const words = new Set(["", ...(text.match(/[A-Za-z]+/g) ?? [])]);
    const candidates = [...words].flatMap((word) => byWord.get(word) ?? []);
    for (const known of candidates.sort((a, b) => a.rank - b.rank)) {
      if (known.joins !== joins || !text.includes(known.longest)) continue;
      known.pattern ??= new RegExp(
        known.literals
          .map((literal) => literal.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
          .reduce((all, words, n) => {
            const [first, second] = known.holes[n - 1];
            const kind =
              first === "`" || first === '"' ? KEPT_ONE : second === "#" ? FIGURE : ANYTHING;
            return all + kind + words;
          })
          .replace(/^[\s\S]*$/, (all) => `^${all}$`),
      );
      const found = known.pattern.exec(text);
      if (!found || !mayHold(known.literals, found.slice(1))) continue;
      return known.holes.reduce(
        (said, hole, n) => said.replaceAll(hole, () => part(found[n + 1])),
        known.chinese,
      );
    }
    return null;
  }

  /**
   * Translates the text of a hole: perhaps a sentence, with the punctuation that joins it to the rest.
   * @param {string} text
   */
  function part(text) {
    const [, before, core, after] = /** @type {RegExpExecArray} */ (EDGES.exec(text));
    if (!core) return text;
    let said = sentence(core);
    if (said === core && core.startsWith("(") && core.endsWith(")")) {
      const inner = part(core.slice(1, -1));
      if (inner !== core.slice(1, -1)) said = `（${inner}）`;
    }
    if (said === core) return text;
    const sign = (/** @type {string} */ edge) =>
      [...edge.trim()].map((one) => SIGNS[one] ?? one).join("");
    return sign(before) + said + sign(after);
  }

  /**
   * Translates the clauses. If several clauses together are one known sentence, they are translated together.
   * @param {string} text
   * @returns {string}
   */
  function sentence(text) {
    const clauses = split(text, "; ");
    const told = [];
    for (let at = 0; at < clauses.length; ) {
      let count = clauses.length - at;
      let said = null;
      for (; said === null; count--) {
        const run = clauses.slice(at, at + count).join("; ");
        said = count > 1 ? whole(run, true) : clause(run);
        if (said !== null) break;
      }
      told.push(said);
      at += count;
    }
    return told.length === clauses.length && told.every((said, n) => said === clauses[n])
      ? text
      : told.join("；");
  }

  /** @param {string} text */
  function clause(text) {
    const known = whole(text, false);
    if (known !== null) return known;
    const noted = NOTED.exec(text);
    if (noted) {
      const [head, note] = [part(noted[1]), part(noted[2])];
      if (head !== noted[1] || note !== noted[2]) return `${head}（${note}）`;
    }
    for (const separator of [": ", ", "]) {
      const parts = split(text, separator);
      if (parts.length === 1) continue;
      const said = parts.map(part);
      if (said.some((words, n) => words !== parts[n])) return said.join(SIGNS[separator.trim()]);
    }
    return text;
  }

  return (/** @type {string} */ text) => {
    const known = remembered.get(text);
    if (known !== undefined) return known;
    /** @type {string[]} */
    const kept = [];
    const end = text.indexOf("\n");
    const first = end < 0 ? text : text.slice(0, end);
    const bare = first.replace(QUOTED, (words) => `\uE000${kept.push(words) - 1}\uE001`);
    const told = part(bare).replace(KEPT, (_, n) => kept[Number(n)]);
    const said = told.replace(BLANK, "") + (end < 0 ? "" : text.slice(end));
    if (remembered.size >= REMEMBERED) remembered.clear();
    remembered.set(text, said);
    return said;
  };
}
