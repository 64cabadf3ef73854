// The part of a job's log that is on this page: its bytes [from, to), as lines. Lines can be added and dropped.
import {carriedOver, plain} from "./ansi.js";
/** @import {LogPiece} from "../known.d.ts" */

export const MOST_LINES = 60_000;
export const WINDOW_BYTES = 262_144;
const CHUNK_LINES = 1_000;
const UNKNOWN = -1; // the columns of a line are counted only when lines are wrapped
const LONGEST = 10_000; // at most this much of a line is drawn

/**
 * The lines in the order of the log. The text is not the log byte for byte, so byte positions are known only at the
 * borders of chunks. So only whole chunks are dropped, and each ends with a complete line. A new window replaces what
 * is known from its byte `from` on, because a line that was incomplete comes again.
 */
export class LogWindow {
  /** @type {string[]} */
  lines = [];
  /** @type {number[]} */
  columns = [];
  /** @type {{from: number, count: number}[]} */
  chunks = [];
  widest = 0;
  from = 0;
  to = 0;
  size = 0;
  open = false; // whether the last line is incomplete
  carried = "";

  constructor() {
    this.start({from: 0, to: 0, size: 0, text: ""});
  }

  /**
   * Removes everything, and begins with this window.
   * @param {LogPiece} window
   */
  start(window) {
    this.lines = [];
    this.columns = [];
    this.widest = 0;
    this.chunks = [];
    this.from = window.from;
    this.to = window.from;
    this.size = window.size;
    this.open = false;
    this.carried = "";
    this.append(window);
  }

  /** Whether the log's own end is on the page. */
  get atEnd() {
    return this.to >= this.size;
  }

  /**
   * Adds a piece at the end. It replaces what is known from its first byte on. Returns whether it could be joined.
   * @param {LogPiece} piece
   */
  append({from, to, size, text}) {
    this.size = Math.max(this.size, size);
    if (to <= this.to) return to === this.to || from >= this.from;
    if (from > this.to || (from < this.to && !this.#cut(from))) return false;
    this.to = to;
    const pieces = text.split("\n");
    const ends = pieces.pop() ?? "";
    if (ends !== "") pieces.push(ends);
    const joins = this.open && pieces.length > 0;
    if (joins) {
      const last = this.lines.length - 1;
      this.#put(last, this.lines[last] + pieces[0]);
    }
    const goesOn = this.open;
    for (let i = 0; i < pieces.length; i++) {
      if (i > 0 || !joins) this.#put(this.lines.length, this.carried + pieces[i]);
      if (i < pieces.length - 1 || ends === "") this.carried = carriedOver(pieces[i], this.carried);
    }
    const last = this.chunks.at(-1);
    const added = pieces.length - (joins ? 1 : 0);
    if (last && (goesOn || last.count < CHUNK_LINES)) last.count += added;
    else if (added > 0) this.chunks.push({from, count: added});
    this.open = ends !== "";
    return true;
  }

  /**
   * Adds a window at the beginning. Returns how many lines are new.
   * @param {LogPiece} piece
   */
  prepend({from, to, text}) {
    if (to !== this.from || from >= to) return 0;
    const older = new LogWindow();
    older.start({from, to, size: to, text});
    const held = this.lines.length;
    if (older.open && held > 0) {
      const last = older.lines.length - 1;
      older.#put(last, older.lines[last] + this.lines[0]);
      this.lines = older.lines.concat(this.lines.slice(1));
      this.columns = older.columns.concat(this.columns.slice(1));
      // A line was cut in two. Put both halves into one chunk, so that they are dropped together.
      const tail = older.chunks.pop();
      if (tail) this.chunks[0] = {from: tail.from, count: tail.count + this.chunks[0].count - 1};
    } else {
      this.lines = older.lines.concat(this.lines);
      this.columns = older.columns.concat(this.columns);
    }
    this.chunks = older.chunks.concat(this.chunks);
    this.widest = Math.max(this.widest, older.widest);
    this.from = from;
    return this.lines.length - held;
  }

  /** Drops the oldest lines if there are too many. Returns how many were dropped. */
  dropOldest() {
    let gone = 0;
    while (this.chunks.length > 1 && this.lines.length - gone > MOST_LINES) {
      gone += this.chunks.shift()?.count ?? 0;
      this.from = this.chunks[0].from;
    }
    if (gone > 0) {
      this.lines.splice(0, gone);
      this.columns.splice(0, gone);
    }
    return gone;
  }

  /** Drops the newest lines if there are too many, when the reader goes back. */
  dropNewest() {
    while (this.chunks.length > 1 && this.lines.length > MOST_LINES) {
      const last = this.chunks[this.chunks.length - 1];
      this.chunks.pop();
      this.lines.length -= last.count;
      this.columns.length -= last.count;
      this.to = last.from;
      this.open = false;
      this.carried = "";
    }
  }

  /**
   * Removes what begins at this byte: a chunk, or the last line if it is incomplete.
   * @param {number} from
   */
  #cut(from) {
    const begins = this.chunks.findIndex((chunk) => chunk.from === from);
    let gone = 1;
    if (begins >= 0) {
      gone = this.chunks.splice(begins).reduce((sum, {count}) => sum + count, 0);
    } else {
      const last = this.chunks.at(-1);
      if (!this.open || !last || from < last.from) return false;
      last.count -= 1;
    }
    this.lines.length -= gone;
    this.columns.length -= gone;
    this.to = from;
    this.open = false;
    return true;
  }

  /**
   * @param {number} index
   * @param {string} line
   */
  #put(index, line) {
    this.lines[index] = line;
    this.columns[index] = UNKNOWN;
    if (line.length > this.widest)
      this.widest = Math.max(this.widest, Math.min(columnsOf(line), LONGEST));
  }
}

/**
 * Returns how many columns a line takes. A Chinese character takes two.
 * @param {string} line
 */
function columnsOf(line) {
  const text = plain(line);
  let columns = text.length;
  if (!/^[\x00-\x7f]*$/.test(text)) {
    columns = 0;
    for (const character of text) columns += (character.codePointAt(0) ?? 0) >= 0x1100 ? 2 : 1;
  }
  return columns;
}

/**
 * Returns the part of a line that is drawn, and how many characters are left out.
 * @param {string} line
 * @returns {[string, number]}
 */
export function drawn(line) {
  return line.length <= LONGEST ? [line, 0] : [line.slice(0, LONGEST), line.length - LONGEST];
}

/**
 * Returns at which row each line begins, if a row has `wide` columns. The last number is the number of rows.
 * @param {{lines: string[], columns: number[]}} given
 * @param {number} wide
 */
export function rowsOf({lines, columns}, wide) {
  const rows = new Int32Array(lines.length + 1);
  for (let i = 0; i < lines.length; i++) {
    if (columns[i] === UNKNOWN) columns[i] = Math.min(columnsOf(lines[i]), LONGEST);
    rows[i + 1] = rows[i] + Math.max(1, Math.ceil(columns[i] / wide));
  }
  return rows;
}

/**
 * Returns the last line that begins at or before this row.
 * @param {Int32Array} rows
 * @param {number} row
 */
export function lineAt(rows, row) {
  let low = 0;
  let high = rows.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rows[middle] <= row) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}
