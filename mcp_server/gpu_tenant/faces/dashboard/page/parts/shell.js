// The frame around every view: the costs, who watches the leases, the navigation, and the state of the connection.

import {closeAction, useStore} from "../store.js";
import {html, useEffect, useRef, useState} from "../vendor/htm-preact.js";
import {setLang, t, useLang} from "../words.js";
import {Action} from "./actions.js";
import {Notifier} from "./alarms.js";
import {Errands} from "./errands.js";
import {Adoption} from "./orphans.js";
import {Rental} from "./rental.js";
import {isUnseen, rateOf} from "./standing.js";
import {Copy, Money, MoneyTicking, Shape, Step, Trouble, usdWords, When, Words} from "./widgets.js";

/** @import {OpenAction, Tone} from "../known.d.ts" */
/** @import {Children} from "../vendor/htm-preact.js" */

const MONTH_H = 720;
const VIEWS = [
  ["overview", "#/", "Leases"],
  ["offers", "#/offers", "Offers"],
  ["runbooks", "#/runbooks", "Runbooks"],
  ["history", "#/history", "History"],
  ["settings", "#/settings", "Settings"],
];

// -- the two switches -------------------------------------------------------

/** @type {Record<string, {next: string, words: () => string, path: string}>} */
const THEMES = {
  auto: {
    next: "light",
    words: () => t("Theme: as the system"),
    path: "M6 1.2a4.8 4.8 0 0 1 0 9.6Z",
  },
  light: {
    next: "dark",
    words: () => t("Theme: light"),
    path: "M6 3.2a2.8 2.8 0 1 1 0 5.6 2.8 2.8 0 0 1 0-5.6ZM6 0v2M6 10v2M0 6h2M10 6h2",
  },
  dark: {
    next: "auto",
    words: () => t("Theme: dark"),
    path: "M8.6 9.8A4.8 4.8 0 1 1 5 1.2a4 4 0 0 0 3.6 8.6Z",
  },
};

function ThemeSwitch() {
  const [theme, setTheme] = useState(() => document.documentElement.dataset.theme ?? "auto");
  const {next, words, path} = THEMES[theme];
  const turn = () => {
    const root = document.documentElement.dataset;
    if (next === "auto") delete root.theme;
    else root.theme = next;
    localStorage.setItem("gpu-tenant.theme", next);
    setTheme(next);
  };
  return html`<button
    type="button"
    class="button is-quiet"
    title=${words()}
    aria-label=${words()}
    onClick=${turn}
  >
    <svg class="shape" viewBox="0 0 12 12" aria-hidden="true">
      ${
        theme === "auto" &&
        html`<circle cx="6" cy="6" r="4.8" fill="none" stroke="currentColor" stroke-width="1.2" />`
      }
      <path d=${path} stroke="currentColor" stroke-width=${theme === "light" ? 1.2 : 0} />
    </svg>
  </button>`;
}

let turned = false;

function LanguageSwitch() {
  const lang = useLang();
  const button = useRef(null);
  useEffect(() => {
    // The page has been drawn again, so return the focus to the button that was pressed.
    if (turned) button.current.focus();
    turned = false;
  }, []);
  const turn = () => {
    turned = true;
    setLang(other.tag);
  };
  const other = lang === "en" ? {tag: "zh", words: "中文"} : {tag: "en", words: "English"};
  return html`<button
    ref=${button}
    type="button"
    class="button is-quiet"
    lang=${other.tag === "zh" ? "zh-Hans" : "en"}
    onClick=${turn}
  >
    ${other.words}
  </button>`;
}

// -- the money that runs ----------------------------------------------------

const LINKS = {
  opening: {kind: "wait", words: () => t("Connecting")},
  live: {kind: "good", words: () => t("Live")},
  asleep: {kind: "still", words: () => t("Asleep")},
  offline: {kind: "bad", words: () => t("Offline")},
  refused: {kind: "bad", words: () => t("No key")},
};

function Link() {
  const link = useStore((known) => known.link);
  const {kind, words} = LINKS[link];
  return html`<span class="link is-${kind}" role="status"><${Shape} kind=${kind} />${words()}</span>`;
}

function Meter() {
  const overview = useStore((known) => known.overview);
  const refused = useStore((known) => known.link === "refused");
  const since = useStore((known) => (known.link === "offline" ? known.since : null));
  if (refused) return null;
  if (!overview) return html`<div class="meter is-unsaid" aria-hidden="true"><p><b>–</b></p></div>`;
  const {burning_usd_h: burning, spent_usd: spent, leaking_usd_month: leaking, watched} = overview;
  return html`<section class="meter" aria-label=${t("What bills")}>
    <dl>
      <div class=${Number(burning) > 0 ? "burning" : ""}>
        <dt>
          ${since ? html`${t("Burning, as of")} <${When} at=${since} />` : t("Burning now")}
        </dt>
        <dd><${Money} usd=${burning} per="h" /></dd>
      </div>
      <div>
        <dt>${t("Spent on all leases")}</dt>
        <dd><${MoneyTicking} usd=${spent} rate=${rateOf(overview.leases)} at=${overview.at} /></dd>
      </div>
      ${
        Number(leaking ?? NaN) !== 0 &&
        html`<div class="leaking">
          <dt>${t("Leaking in all")}</dt>
          <dd>
            <${Money} usd=${Number(leaking) / MONTH_H} per="h" />
            ${" "}
            <span class="soft small">
              ${t("{usd} a month, if left so", {usd: usdWords(leaking)})}
            </span>
          </dd>
        </div>`
      }
    </dl>
    ${
      watched &&
      !isUnwatched(watched) &&
      html`<p class="watch small soft">${t("Watched by:")} <${Words} text=${watched} /></p>`
    }
  </section>`;
}

/** @param {string} watched */
const isUnwatched = (watched) => watched.startsWith("nobody");

// Says what is not in the sums, and whether nobody watches the leases.
function Remarks() {
  const overview = useStore((known) => known.overview);
  if (!overview) return null;
  const {not_counted: lacking, watched} = overview;
  if (lacking.length === 0 && !isUnwatched(watched)) return null;
  return html`<aside class="remarks small" aria-label=${t("Remarks")}>
    ${isUnwatched(watched) && html`<${Remark} lead=${t("Watched by:")} words=${watched} />`}
    ${
      lacking.length > 0 &&
      html`<${Remark} lead=${t("Not in these sums:")} words=${lacking.join("; ")} />`
    }
  </aside>`;
}

/** @param {{lead: string, words: string}} properties */
function Remark({lead, words}) {
  return html`<p><${Shape} kind="warn" /><span><strong>${lead}</strong> <${Step} text=${words} /></span></p>`;
}

// -- when something is wrong with the whole ---------------------------------

function Notice() {
  const link = useStore((known) => known.link);
  const since = useStore((known) => (known.link === "offline" ? known.since : null));
  const problem = useStore((known) => known.problem);
  const trouble = useStore((known) => known.overview?.trouble ?? null);
  const at = useStore(({overview}) =>
    overview?.trouble && !isUnseen(overview) ? overview.at : null,
  );
  if (link === "offline" && problem) {
    return html`<${Noticed} kind="bad" lead=${t("{words}.", {words: problem.message})} remedy=${problem.remedy}>
      ${since && html`${t("All of this is as of")} <${When} at=${since} />; `}
      ${t("trying again.")}
      ${since && ` ${t("What is marked ≈ goes on by this page's own reckoning.")}`}
    <//>`;
  }
  if (!trouble) return null;
  return html`<${Noticed}
    kind="warn"
    lead=${t("The last look at the providers failed.")}
    remedy=${trouble.remedy}
  >
    <${Words} text=${t("{words}.", {words: trouble.message})} />
    ${at && html` ${t("All of this is as of")} <${When} at=${at} />.`}
  <//>`;
}

/**
 * @param {{kind: Tone, lead: string, remedy?: string | undefined, children: Children}} properties
 */
function Noticed({kind, lead, remedy, children}) {
  return html`<div class="notice is-${kind}" role="alert">
    <p><${Shape} kind=${kind} /><strong>${lead}</strong> ${children}</p>
    ${remedy && html`<p class="small"><${Step} text=${remedy} /></p>`}
  </div>`;
}

// -- what a person is about to do -------------------------------------------

/** @param {OpenAction} action */
const subjectOf = ({box, row}) => box?.box ?? row?.card.lease ?? null;

// The open dialog. It is here, so that it stays if the row from which it was opened disappears. When it is closed, the
// focus may have to go to the new place of this lease.
function Acting() {
  const action = useStore((known) => known.action);
  const last = useRef(null);
  useEffect(() => {
    if (action) last.current = subjectOf(action);
    if (action || !last.current || document.activeElement !== document.body) return;
    const to =
      /** @type {HTMLElement | null} */ (
        document.querySelector(`main a[href="#/lease/${CSS.escape(last.current)}"]`)
      ) ?? document.getElementById("main");
    to?.focus();
  }, [action]);
  if (!action) return null;
  if (action.offer) return html`<${Rental} ...${action.offer} onClose=${closeAction} />`;
  return action.box
    ? html`<${Adoption} box=${action.box} then=${action.then} onClose=${closeAction} />`
    : html`<${Action} row=${action.row} verb=${action.verb} begins=${action.begins} onClose=${closeAction} />`;
}

// -- the frame --------------------------------------------------------------

function Brand() {
  return html`<a class="brand" href="#/">
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <rect class="box" x="1.5" y="1.5" width="29" height="29" rx="7" />
      <circle cx="12" cy="16" r="5.2" />
      <path d="M17.5 16H27M23 16v5M27 16v4" />
    </svg>
    gpu-tenant
  </a>`;
}

/** @param {{at: string}} properties */
function Ways({at}) {
  return html`<nav aria-label=${t("Views")}>
    <ul>
      ${VIEWS.map(
        ([name, href, words]) => html`<li key=${name}>
          <a href=${href} aria-current=${at === name ? "page" : undefined}>${t(words)}</a>
        </li>`,
      )}
    </ul>
  </nav>`;
}

// Says in which time zone the times are. Only times without a date in sentences of the server are in UTC.
function Zone() {
  const {timeZone: zone} = Intl.DateTimeFormat().resolvedOptions();
  return html`<footer class="zone small soft">
    ${t("Times are those of this computer ({zone}), but where UTC stands beside them.", {zone})}
  </footer>`;
}

/** @param {{at: string, children: Children}} properties */
export function Shell({at, children}) {
  const main = useRef(null);
  const shown = useRef(at);
  /** @param {Event} event */
  const skip = (event) => {
    event.preventDefault();
    main.current.focus();
  };
  useEffect(() => {
    if (shown.current === at) return;
    shown.current = at;
    scrollTo(0, 0);
    main.current.focus({preventScroll: true});
  }, [at]);
  return html`<a class="skip" href="#main" onClick=${skip}>${t("Skip to the content")}</a>
  <header class="top">
    <div class="bar">
      <${Brand} />
      <${Ways} at=${at === "lease" ? "overview" : at} />
      <div class="switches"><${Link} /><${LanguageSwitch} /><${ThemeSwitch} /></div>
    </div>
    <${Meter} />
  </header>
  <${Notice} />
  <${Remarks} />
  <main id="main" tabindex="-1" ref=${main}>${children}</main>
  <${Zone} />
  <${Errands} />
  <${Acting} />
  <${Notifier} />`;
}

// The page without a valid token.
export function NoKey() {
  const problem = useStore((known) => known.problem);
  return html`<section class="page is-narrow">
    <h1>${t("No key to this dashboard")}</h1>
    <${Trouble} problem=${problem ?? {message: t("This page has no key to the dashboard, or an old one")}} />
    <p><${Copy} text="gpu-tenant dashboard" /></p>
    <p>${t("Your boxes and leases go on as they are, and so do their bills: this page only shows them.")}</p>
    <p class="soft">
      ${t(
        "The key is in the link, is made anew at each start, and stays on this computer. Running it again does no harm: pages that are open go on.",
      )}
    </p>
  </section>`;
}

export function NotHere() {
  return html`<section class="page">
    <h1>${t("Nothing here")}</h1>
    <p>${t("There is no such view.")} <a href="#/">${t("To the leases")}</a></p>
  </section>`;
}
