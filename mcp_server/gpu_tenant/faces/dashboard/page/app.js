// The page: chooses the view for the address, and draws it into the document.

import {Bounded} from "./parts/boundary.js";
import {History} from "./parts/history.js";
import {LeasePage} from "./parts/lease.js";
import {Offers} from "./parts/offers.js";
import {Overview} from "./parts/overview.js";
import {Runbooks} from "./parts/runbooks.js";
import {Settings} from "./parts/settings.js";
import {NoKey, NotHere, Shell} from "./parts/shell.js";
import {begin, useStore} from "./store.js";
import {html, render, useEffect} from "./vendor/htm-preact.js";
import {t, useLang} from "./words.js";

// The overview sets the page's title itself, because it contains how many leases need a person.
/** @type {Record<string, {view: Function, title?: (id: string | null) => string | null}>} */
const VIEWS = {
  overview: {view: Overview},
  lease: {view: LeasePage, title: (id) => id},
  offers: {view: Offers, title: () => t("Offers")},
  runbooks: {view: Runbooks, title: () => t("Runbooks")},
  history: {view: History, title: () => t("History")},
  settings: {view: Settings, title: () => t("Settings")},
};

function App() {
  const lang = useLang();
  const {name, id, rest, query} = useStore((known) => known.route);
  const refused = useStore((known) => known.link === "refused");
  const {view, title} = VIEWS[name] ?? {view: NotHere, title: () => t("Nothing here")};
  useEffect(() => {
    if (title) document.title = `${title(id)} · gpu-tenant`;
  }, [name, id, lang]);
  return html`<${Shell} key=${lang} at=${name}>
    ${
      refused
        ? html`<${NoKey} />`
        : html`<${Bounded} key=${`${name}/${id}`}><${view} id=${id} rest=${rest} query=${query} /><//>`
    }
  <//>`;
}

begin();
render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("app")));
