// Turns the colours of a log line into spans with classes. Text from a box is never used as markup.
import {createAnsiSequenceParser} from "../vendor/ansi-sequence-parser.js";
import {h} from "../vendor/htm-preact.js";

const SGR = /\x1b\[[\d;:]*m/g;
const RESET = /^\x1b\[(?:0*(?:;0+)*)?m$/;
const CARRIED = 12; // at most this many sequences are in effect at a line's start

const NAMES = [
  "black",
  "red",
  "green",
  "yellow",
  "blue",
  "magenta",
  "cyan",
  "white",
  "brightBlack",
  "brightRed",
  "brightGreen",
  "brightYellow",
  "brightBlue",
  "brightMagenta",
  "brightCyan",
  "brightWhite",
];
// The sixteen colours of xterm. They serve to find the nearest one to any colour.
const PALETTE = [
  [0, 0, 0],
  [205, 0, 0],
  [0, 205, 0],
  [205, 205, 0],
  [0, 0, 238],
  [205, 0, 205],
  [0, 205, 205],
  [229, 229, 229],
  [127, 127, 127],
  [255, 0, 0],
  [0, 255, 0],
  [255, 255, 0],
  [92, 92, 255],
  [255, 0, 255],
  [0, 255, 255],
  [255, 255, 255],
];
/** @type {Record<string, string>} */
const SHOWN = {
  bold: "a-bold",
  dim: "a-dim",
  italic: "a-italic",
  underline: "a-underline",
  strikethrough: "a-strike",
  reverse: "a-reverse",
  hidden: "a-dim",
};

/**
 * Returns the line without its colours.
 * @param {string} line
 */
export function plain(line) {
  return line.includes("\x1b") ? line.replace(SGR, "").replaceAll("\x1b", "") : line;
}

/**
 * Returns the sequences that are still in effect after this line, given those before it.
 * @param {string} line
 * @param {string} before
 */
export function carriedOver(line, before) {
  const last = line.lastIndexOf("\x1b[");
  if (last === -1) return before;
  if (line.startsWith("\x1b[0m", last) || line.startsWith("\x1b[m", last)) return "";
  /** @type {string[]} */
  let open = before === "" ? [] : (before.match(SGR) ?? []);
  for (const sequence of line.match(SGR) ?? []) {
    if (RESET.test(sequence)) open = [];
    else open.push(sequence);
  }
  return open.slice(-CARRIED).join("");
}

/**
 * Returns the line as text and spans. The ranges in `marked` ([from, to) of the plain text) are in a <mark>.
 * @param {string} line
 * @param {number[][]} [marked]
 */
export function painted(line, marked = []) {
  const tokens = line.includes("\x1b")
    ? createAnsiSequenceParser().parse(
        line.replace(SGR, (sequence) => sequence.replace(/:+/g, ";")),
      )
    : [{value: line, foreground: null, background: null, decorations: null}];
  const pieces = [];
  let at = 0;
  for (const token of tokens) {
    const text = token.value.replaceAll("\x1b", "");
    for (const piece of cut(text, at, marked)) {
      const classes = classesOf(token);
      const inner = piece.marked ? h("mark", null, piece.text) : piece.text;
      pieces.push(classes ? h("span", {class: classes}, inner) : inner);
    }
    at += text.length;
  }
  return pieces;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {number[][]} marked
 */
function cut(text, at, marked) {
  const pieces = [];
  let done = 0;
  for (const [from, to] of marked) {
    const begins = Math.max(from - at, done);
    const ends = Math.min(to - at, text.length);
    if (ends <= begins) continue;
    if (begins > done) pieces.push({text: text.slice(done, begins), marked: false});
    pieces.push({text: text.slice(begins, ends), marked: true});
    done = ends;
  }
  if (done < text.length) pieces.push({text: text.slice(done), marked: false});
  return pieces;
}

/** @param {{foreground: any, background: any, decorations: any}} properties */
function classesOf({foreground, background, decorations}) {
  if (foreground === null && background === null && !decorations?.size) return "";
  const classes = [...(decorations ?? [])].map((name) => SHOWN[name]).filter(Boolean);
  if (foreground) classes.push(`a-fg-${nameOf(foreground)}`);
  if (background) classes.push(`a-bg-${nameOf(background)}`);
  return classes.join(" ");
}

/** @param {any} colour */
function nameOf(colour) {
  if (colour.type === "named") return colour.name;
  if (colour.type === "table" && colour.index < 16) return NAMES[colour.index];
  return NAMES[nearest(colour.type === "rgb" ? colour.rgb : tableColour(colour.index))];
}

/** @param {number} index */
function tableColour(index) {
  if (index >= 232) return Array(3).fill(8 + 10 * (index - 232));
  const steps = [Math.floor((index - 16) / 36), Math.floor((index - 16) / 6) % 6, (index - 16) % 6];
  return steps.map((step) => (step === 0 ? 0 : 55 + 40 * step));
}

/** @param {number[]} rgb */
function nearest(rgb) {
  let best = 0;
  let least = Infinity;
  PALETTE.forEach((known, index) => {
    const far = known.reduce((sum, part, i) => sum + (part - rgb[i]) ** 2, 0);
    if (far < least) [best, least] = [index, far];
  });
  return best;
}
