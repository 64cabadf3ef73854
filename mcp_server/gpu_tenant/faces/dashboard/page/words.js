// The page's own sentences in English or Chinese. The key of a sentence is its English text.
import actions from "./chinese/actions.js";
import frame from "./chinese/frame.js";
import history from "./chinese/history.js";
import lease from "./chinese/lease.js";
import offers from "./chinese/offers.js";
import overview from "./chinese/overview.js";
import platforms from "./chinese/platforms.js";
import signatures from "./chinese/signatures.js";
import {useEffect, useState} from "./vendor/htm-preact.js";

const KEPT = "gpu-tenant.language";
/** @type {Record<string, string>} */
const CHINESE = {
  ...actions,
  ...frame,
  ...history,
  ...lease,
  ...offers,
  ...overview,
  ...platforms,
  ...signatures,
};
const heard = new Set();

let lang = chosen();
document.documentElement.lang = tag();

function chosen() {
  const kept = localStorage.getItem(KEPT);
  if (kept === "en" || kept === "zh") return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

function tag() {
  return lang === "zh" ? "zh-Hans" : "en";
}

// The locale for dates and numbers.
export const locale = () => (lang === "zh" ? "zh-CN" : "en-GB");

/**
 * Returns the sentence in the language of the page, with `{name}` replaced by its value in `values`.
 * @param {string} key
 * @param {Record<string, unknown>} [values]
 */
export function t(key, values = {}) {
  const sentence = (lang === "zh" && CHINESE[key]) || key;
  return sentence.replace(
    /\{(\w+)\}/g,
    (/** @type {string} */ whole, /** @type {string} */ name) =>
      name in values ? String(values[name]) : whole,
  );
}

/** @type {((text: string) => string) | null} */
let server = null;

// Fetches the Chinese of the server's sentences. This is done only if the page is in Chinese.
async function learn() {
  const [{makeTranslator}, answer] = await Promise.all([
    import(/** @type {string} */ ("/page/server/translate.js")),
    fetch("/page/server/sentences.json"),
  ]);
  if (answer.ok) server = makeTranslator(await answer.json());
}

/**
 * Returns a sentence of the server in the language of the page. Without a translation it stays in English.
 * @param {string} text
 */
export const said = (text) => (lang === "zh" && server ? server(text) : text);

/** @param {string} next */
export async function setLang(next) {
  if (next === "zh" && !server) await learn().catch(() => {});
  lang = next;
  localStorage.setItem(KEPT, next);
  document.documentElement.lang = tag();
  for (const tell of heard) tell(next);
}

// Returns the language. The component that uses it is drawn again when the language changes.
export function useLang() {
  const [value, setValue] = useState(lang);
  useEffect(() => {
    heard.add(setValue);
    return () => heard.delete(setValue);
  }, []);
  return value;
}

// If the server's sentences cannot be fetched, the page is shown with these sentences in English.
if (lang === "zh") await learn().catch(() => {});
