// The owner's settings: where keys are kept, notifications, language and theme. Also the findings of `doctor`.

import {get, post} from "../net.js";
import {html, useState} from "../vendor/htm-preact.js";
import {setLang, t, useLang} from "../words.js";
import {NotifySwitch} from "./alarms.js";
import {kindWords} from "./runbooks.js";
import {Signatures} from "./signing.js";
import {
  Button,
  Copy,
  Dialog,
  Field,
  Pill,
  Shape,
  Trouble,
  useLoaded,
  Waiting,
  Words,
} from "./widgets.js";
/** @import {Platform} from "../types.d.ts" */

export function Settings() {
  return html`<section class="page settings" aria-labelledby="settings-title">
    <h1 id="settings-title">${t("Settings")}</h1>
    <${Signatures} />
    <${Credentials} />
    <${Checkup} />
    <section aria-labelledby="notify-title">
      <h2 id="notify-title">${t("Notifications")}</h2>
      <${NotifySwitch} />
      <p class="soft">
        ${t("Mail, chat and desktop channels that work without this page:")}
        ${" "}
        <${Copy} text="gpu-tenant alarms --test" />
      </p>
    </section>
    <${Looks} />
  </section>`;
}

// -- keys -------------------------------------------------------------------

function Credentials() {
  const [platforms, problem, again] = useLoaded(() => get("/api/platforms"), "platforms");
  const [chosen, setChosen] = useState(null);
  const closed = () => {
    setChosen(null);
    again();
  };
  const needing = (platforms ?? []).filter(({credential}) => credential.needed);
  return html`<section aria-labelledby="keys-title">
    <h2 id="keys-title">${t("Keys of your accounts")}</h2>
    <p class="soft">
      ${t(
        "This page shows where a key is found, and never the key. What is written down is a reference to it.",
      )}
    </p>
    ${problem && html`<${Trouble} problem=${problem} retry=${again} />`}
    ${!platforms && !problem && html`<${Waiting} lines=${4} />`}
    ${
      needing.length > 0 &&
      html`<ul class="keys">
        ${needing.map(
          (platform) =>
            html`<${Key} key=${platform.id} platform=${platform} onChange=${() => setChosen(platform)} />`,
        )}
      </ul>`
    }
    ${chosen && html`<${Reference} platform=${chosen} onClose=${closed} />`}
  </section>`;
}

/** @param {{platform: Platform, onChange: () => void}} properties */
function Key({platform, onChange}) {
  const {id, title, kind, credential} = platform;
  const [tested, setTested] = useState(null);
  const [busy, setBusy] = useState(false);
  const test = async () => {
    setBusy(true);
    setTested(
      await post("/api/credentials/test", {provider: id}).catch((problem) => ({
        ok: false,
        words: problem.message,
      })),
    );
    setBusy(false);
  };
  return html`<li class="key">
    <div class="whose"><strong>${title}</strong><span class="soft">${kindWords(kind)}</span></div>
    <div class="found">
      ${
        credential.found
          ? html`<${Pill} kind="good">${t("found")}<//> <code>${credential.reference}</code>`
          : html`<${Pill} kind="soft">${t("not found")}<//>
          ${" "}
          <span class="soft">
            ${t("looked for in {places}", {places: credential.usual_env.join(", ")})}
          </span>`
      }
      <span role="status">
        ${
          tested &&
          html`<span class=${tested.ok ? "is-good" : "is-bad"}>
            <${Shape} kind=${tested.ok ? "good" : "bad"} />
            <${Words} text=${tested.words} />
          </span>`
        }
      </span>
    </div>
    <div class="acts">
      ${
        credential.found &&
        html`<${Button}
          kind="quiet"
          busy=${busy}
          aria-label=${t("Test the key of {title}", {title})}
          onClick=${test}
        >
          ${t("Test")}
        <//>`
      }
      <${Button}
        kind="quiet"
        aria-label=${t("Say where the key of {title} is", {title})}
        onClick=${onChange}
      >
        ${t("Say where")}
      <//>
    </div>
  </li>`;
}

/** @type {Record<string, {words: () => string, label: () => string, hint: () => string}>} */
const FORMS = {
  env: {
    words: () => t("An environment variable"),
    label: () => t("Its name"),
    hint: () => t("It must be set where gpu-tenant is started, also for the watchdog."),
  },
  file: {
    words: () => t("A file that only you read"),
    label: () => t("Its path"),
    hint: () => t("The file holds the key and nothing else; `chmod 600` it."),
  },
  keyring: {
    words: () => t("This computer's keyring"),
    label: () => t("SERVICE/USER"),
    hint: () => t("As you stored it there; it may ask to be unlocked."),
  },
};

/** @param {{platform: Platform, onClose: () => void}} properties */
function Reference({platform, onClose}) {
  const [form, setForm] = useState("env");
  const [place, setPlace] = useState(platform.credential.usual_env[0] ?? "");
  const [problem, setProblem] = useState(null);
  const [kept, setKept] = useState(null);
  const [busy, setBusy] = useState(false);
  /** @param {string} next */
  const choose = (next) => {
    setForm(next);
    setPlace(next === "env" ? (platform.credential.usual_env[0] ?? "") : "");
  };
  /** @param {Event} event */
  const keep = async (event) => {
    event.preventDefault();
    setBusy(true);
    setProblem(null);
    await post("/api/credentials", {
      provider: platform.id,
      reference: `${form}:${place.trim()}`,
    }).then(setKept, (refusal) => {
      setProblem(refusal);
      setPlace("");
    });
    setBusy(false);
  };
  const title = t("Where the key of {title} is", {title: platform.title});
  if (kept)
    return html`<${Dialog} title=${title} onClose=${onClose}>
      <div class=${`outcome ${kept.test.ok ? "is-good" : "is-bad"}`}>
        <p>
          <${Shape} kind=${kept.test.ok ? "good" : "bad"} />
          <strong><${Words} text=${kept.test.words} /></strong>
        </p>
        <p>${t("Written down:")} <code>${kept.written}</code></p>
      </div>
      <footer class="choice"><${Button} onClick=${onClose}>${t("Close")}<//></footer>
    <//>`;
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="plan" onSubmit=${keep}>
      <p>
        ${t(
          "Do not paste the key here: only say where it is. What looks like a key is refused and not kept.",
        )}
      </p>
      <fieldset>
        <legend>${t("It is kept in")}</legend>
        ${Object.entries(FORMS).map(
          ([id, {words}]) => html`<label key=${id} class="option">
            <input type="radio" name="form" checked=${form === id} onChange=${() => choose(id)} />
            ${" "}
            ${words()}
          </label>`,
        )}
      </fieldset>
      <${Field} label=${FORMS[form].label()} hint=${html`<${Words} text=${FORMS[form].hint()} />`}>
        <input
          type="text"
          required
          autocomplete="off"
          autocapitalize="off"
          spellcheck=${false}
          value=${place}
          onInput=${(event) => setPlace(event.target.value)}
        />
      <//>
      <p class="soft">${t("Written as")} <code>${`${platform.id} = "${form}:${place}"`}</code></p>
      ${problem && html`<${Trouble} problem=${problem} />`}
      <footer class="choice">
        <${Button} onClick=${onClose}>${t("Leave it as it is")}<//>
        <${Button} type="submit" kind="primary" busy=${busy}>${t("Write it down and test it")}<//>
      </footer>
    </form>
  <//>`;
}

// -- doctor -----------------------------------------------------------------

const LEVELS = {
  blocker: {kind: "bad", words: () => t("blocks")},
  warning: {kind: "warn", words: () => t("look at this")},
  ok: {kind: "good", words: () => t("fine")},
};

function Checkup() {
  const [round, setRound] = useState(0);
  return html`<section aria-labelledby="checkup-title">
    <h2 id="checkup-title">${t("Checkup")}</h2>
    <p class="soft">
      ${t(
        "Whether this computer is fit to be a tenant: state, ledger, tools, keys. Every account that has a key is asked once.",
      )}
    </p>
    ${round > 0 && html`<${Findings} key=${round} />`}
    <p>
      <${Button} onClick=${() => setRound(round + 1)}>
        ${round > 0 ? t("Check again") : t("Check now")}
      <//>
    </p>
  </section>`;
}

function Findings() {
  const [checkup, problem, again] = useLoaded(() => get("/api/checkup"), "checkup");
  if (problem) return html`<${Trouble} problem=${problem} retry=${again} />`;
  if (!checkup) return html`<${Waiting} lines=${5} />`;
  const order = Object.keys(LEVELS);
  const findings = checkup.findings.toSorted(
    (one, other) => order.indexOf(one.level) - order.indexOf(other.level),
  );
  return html`<div role="status">
    <p>
      <${Pill} kind=${checkup.healthy ? "good" : "bad"}>
        ${checkup.healthy ? t("Nothing blocks") : t("Something blocks")}
      <//>
    </p>
  </div>
  <dl class="points findings">
    ${findings.map(
      ({subject, level, words}, at) => html`<div key=${at}>
        <dt>
          <${Shape} kind=${LEVELS[level].kind} />
          <span class="unseen">${LEVELS[level].words()}: </span>
          ${subject}
        </dt>
        <dd><${Words} text=${words} /></dd>
      </div>`,
    )}
  </dl>`;
}

// -- how the page looks -----------------------------------------------------

const THEMES = {auto: () => t("As the system"), light: () => t("Light"), dark: () => t("Dark")};

function Looks() {
  const lang = useLang();
  const [theme, setTheme] = useState(() => document.documentElement.dataset.theme ?? "auto");
  /** @param {any} next */
  const turn = (next) => {
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    localStorage.setItem("gpu-tenant.theme", next);
    setTheme(next);
  };
  return html`<section aria-labelledby="looks-title">
    <h2 id="looks-title">${t("Language and theme")}</h2>
    <div class="fields">
      <${Field} label=${t("Language")}>
        <select value=${lang} onChange=${(event) => setLang(event.target.value)}>
          <option value="en" lang="en">English</option>
          <option value="zh" lang="zh-Hans">中文</option>
        </select>
      <//>
      <${Field} label=${t("Theme")}>
        <select value=${theme} onChange=${(event) => turn(event.target.value)}>
          ${Object.entries(THEMES).map(
            ([id, words]) => html`<option key=${id} value=${id}>${words()}</option>`,
          )}
        </select>
      <//>
    </div>
  </section>`;
}
