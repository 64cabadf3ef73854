// One clock for the whole page. Only the texts that count seconds are drawn every second, not whole rows.
import {useEffect, useState} from "../vendor/htm-preact.js";

/** @import {Moment} from "../known.d.ts" */

/** @type {Set<(now: number) => void>} */
const waiting = new Set();
/** @type {ReturnType<typeof setInterval> | undefined} */
let timer;
let ahead = 0;

// Returns the server's time now, in milliseconds. The browser's clock may differ.
export const now = () => Date.now() - ahead;

/**
 * Sets the page's clock by a time that the server has just sent.
 * @param {string} at
 */
export function setClock(at) {
  const said = Date.parse(at);
  if (!Number.isNaN(said)) ahead = Date.now() - said;
}

const beat = () => {
  for (const wake of waiting) wake(now());
};

/** @param {(now: number) => void} wake */
function begin(wake) {
  waiting.add(wake);
  timer ??= setInterval(beat, 1000);
}

/** @param {(now: number) => void} wake */
function end(wake) {
  waiting.delete(wake);
  if (waiting.size > 0) return;
  clearInterval(timer);
  timer = undefined;
}

// Returns the time now. Only components that use this are drawn again every second.
export function useNow() {
  const [moment, setMoment] = useState(now);
  useEffect(() => {
    begin(setMoment);
    return () => end(setMoment);
  }, []);
  return Math.max(moment, 0);
}

/**
 * Returns the seconds since `at`, which is a time in ISO 8601 or in milliseconds.
 * @param {Moment} at
 */
export function useSecondsSince(at) {
  const moment = useNow();
  const said = typeof at === "number" ? at : Date.parse(at);
  return Number.isNaN(said) ? 0 : Math.max(0, (moment - said) / 1000);
}
