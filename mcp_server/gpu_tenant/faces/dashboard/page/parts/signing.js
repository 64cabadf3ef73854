// Lets a person sign exactly one list: with a passkey if one is set up, otherwise with the code of the dashboard's
// terminal.

import {asLocalhost, get, post} from "../net.js";
import {html, useState} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Button, Copy, Field, Trouble, useLoaded, Waiting} from "./widgets.js";
/** @import {SignatureRequest, ToSign} from "../types.d.ts" */
/** @import {Children} from "../vendor/htm-preact.js" */

/**
 * The dialog for signing. `onSigned` is called when it is signed. `children` explain what the signature is for, if the
 * list alone does not.
 * @param {{code: string, children?: Children, action: string, onSigned: () => Promise<void>,
 *   onClose: () => void}} properties
 */
export function Sign({code, children, action, onSigned, onClose}) {
  const [told, problem, again] = useLoaded(
    /** @returns {Promise<ToSign>} */
    () => get(`/api/signatures/${encodeURIComponent(code)}`),
    code,
  );
  if (problem) return html`<${Trouble} problem=${problem} retry=${again} />`;
  if (!told) return html`<${Waiting} />`;
  const list = children ?? html`<${List} asked=${told.asked} />`;
  if (told.by === "none")
    return html`<${Elsewhere} asked=${told.asked} list=${list} onClose=${onClose} />`;
  if (told.by === "passkey" && location.hostname !== "localhost")
    return html`<${AtLocalhost} list=${list} onClose=${onClose} />`;
  return html`<${Form}
    key=${told.shown}
    told=${told}
    list=${list}
    action=${action}
    again=${again}
    onSigned=${onSigned}
    onClose=${onClose}
  />`;
}

/** @param {{asked: SignatureRequest}} properties */
function List({asked}) {
  return html`<p><strong>${asked.would}</strong></p>
  <div class="losses" role="group" tabindex="0" aria-label=${t("What is signed for")}>
    <ol>${asked.words.map((line) => html`<li key=${line}>${line}</li>`)}</ol>
  </div>`;
}

/**
 * Says that one cannot sign here, because the dashboard was not started at a terminal, so its user may be a program.
 * @param {{asked: SignatureRequest, list: Children, onClose: () => void}} properties
 */
function Elsewhere({asked, list, onClose}) {
  return html`<div class="waiver">
    ${list}
    <p>
      ${t(
        "A person signs for this at a terminal, and this dashboard was not started at one. There, this command shows the list and asks:",
      )}
    </p>
    <p>
      <${Copy} text=${
        asked.kind === "waive"
          ? `gpu-tenant waive ${asked.subject}`
          : `gpu-tenant sign ${asked.code}`
      } />
    </p>
    <footer class="choice"><${Button} onClick=${onClose}>${t("Keep everything")}<//></footer>
  </div>`;
}

/** @param {{list: Children, onClose: () => void}} properties */
function AtLocalhost({list, onClose}) {
  return html`<div class="waiver">
    ${list}
    <p>
      ${t(
        "A passkey belongs to a name and not to a number. It signs on this same page under its name:",
      )}
    </p>
    <p><a class="button" href=${asLocalhost()}>${t("Open the page as localhost")}</a></p>
    <footer class="choice"><${Button} onClick=${onClose}>${t("Keep everything")}<//></footer>
  </div>`;
}

/**
 * @param {{told: ToSign, list: Children, action: string, again: () => void,
 *   onSigned: () => Promise<void>, onClose: () => void}} properties
 */
function Form({told, list, action, again, onSigned, onClose}) {
  const {asked, shown, by, options} = told;
  const [typed, setTyped] = useState("");
  const [code, setCode] = useState("");
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const complete = typed === asked.subject && (by === "passkey" || code.trim() !== "");
  /** @param {Event} event */
  const sign = async (event) => {
    event.preventDefault();
    if (!complete) return;
    setBusy(true);
    try {
      const how =
        by === "passkey" ? {credential: await answered(options ?? "")} : {code: code.trim()};
      await post(`/api/signatures/${encodeURIComponent(asked.code)}`, {shown, typed, ...how});
      await onSigned();
    } catch (problem) {
      // This code cannot be used again. Ask again: the terminal then shows another code, for the list as it is then.
      setRefusal(problem);
      setCode("");
      setBusy(false);
      again();
    }
  };
  const label = asked.kind.startsWith("waive")
    ? t("To sign, type the id of the lease: {lease}", {lease: asked.subject})
    : t("To sign, type: {subject}", {subject: asked.subject});
  return html`<form class="waiver" onSubmit=${sign}>
    ${list}
    <p class="soft">
      ${t(
        "You sign for exactly this list. If it has changed by then, the signature does not count.",
      )}
    </p>
    <${Field} label=${label}>
      <input
        type="text"
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        value=${typed}
        onInput=${(event) => setTyped(event.target.value)}
      />
    <//>
    ${
      by === "passkey"
        ? html`<p class="soft">${t("Your browser then asks for the passkey.")}</p>`
        : html`<${Field}
          label=${t("Code from the dashboard's terminal")}
          hint=${t("It stands there for exactly this list, and is good for once.")}
        >
          <input
            type="text"
            autocomplete="off"
            autocapitalize="off"
            spellcheck=${false}
            value=${code}
            onInput=${(event) => setCode(event.target.value)}
          />
        <//>`
    }
    ${refusal && html`<${Trouble} problem=${refusal} />`}
    <footer class="choice">
      <${Button} onClick=${onClose}>${t("Keep everything")}<//>
      <${Button} type="submit" kind="danger" disabled=${!complete} busy=${busy}>${action}<//>
    </footer>
  </form>`;
}

/**
 * Returns the answer of the browser's key to the server's challenge, as JSON.
 * @param {string} options
 */
async function answered(options) {
  const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(JSON.parse(options));
  return JSON.stringify(await navigator.credentials.get({publicKey}));
}

/** @param {string} options */
async function made(options) {
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(JSON.parse(options));
  return JSON.stringify(await navigator.credentials.create({publicKey}));
}

// -- what waits, and the passkeys --------------------------------------------

export function Signatures() {
  const [known, problem, again] = useLoaded(() => get("/api/signatures"), "signatures");
  const [chosen, setChosen] = useState(null);
  const [refusal, setRefusal] = useState(null);
  const close = () => {
    setChosen(null);
    again();
  };
  /** @param {() => Promise<void>} act */
  const tried = (act) => async () => {
    setRefusal(null);
    try {
      await act();
    } catch (met) {
      setRefusal(met);
    }
  };
  /**
   * @param {string} path
   * @param {() => Promise<void>} finish
   */
  const wanted = (path, finish) =>
    tried(async () => {
      const {asked} = await post(path);
      if (asked) setChosen({code: asked, finish});
      else close();
    });
  const setUp = tried(async () => {
    const {options} = await post("/api/passkeys/options");
    const {asked} = await post("/api/passkeys", {credential: await made(options)});
    setChosen({code: asked, finish: () => post(`/api/passkeys/${asked}`)});
  });
  const signed = async () => {
    await chosen.finish?.();
    close();
  };
  return html`<section aria-labelledby="signing-title">
    <h2 id="signing-title">${t("Signatures")}</h2>
    <p class="soft">
      ${t(
        "What only a person may decide is signed for here, or with `gpu-tenant sign` at a terminal. No agent signs.",
      )}
    </p>
    ${problem && html`<${Trouble} problem=${problem} retry=${again} />`}
    ${
      chosen &&
      html`<${Sign} code=${chosen.code} action=${t("Sign")} onSigned=${signed} onClose=${close} />`
    }
    ${
      known &&
      !chosen &&
      html`${known.open.length === 0 && html`<p>${t("Nothing waits for a signature.")}</p>`}
      <ul class="keys">
        ${known.open.map(
          (/** @type {SignatureRequest} */ asked) => html`<li class="key" key=${asked.code}>
            <div class="whose">
              <strong>${asked.subject}</strong>
              <span class="soft">${asked.would}</span>
            </div>
            <div class="acts">
              <${Button}
                kind="quiet"
                aria-label=${t("Look at {code} and sign", {code: asked.code})}
                onClick=${() => setChosen({code: asked.code})}
              >
                ${t("Look and sign")}
              <//>
            </div>
          </li>`,
        )}
      </ul>
      <h3>${t("Passkeys")}</h3>
      ${
        known.passkeys.length === 0
          ? html`<p class="soft">
            ${t(
              "With a passkey nothing is signed without you: a program that runs as you can play a terminal, and cannot touch your key.",
            )}
          </p>`
          : html`<ul>${known.passkeys.map((/** @type {string} */ words) => html`<li key=${words}>${words}</li>`)}</ul>`
      }
      <p>
        ${
          location.hostname === "localhost"
            ? html`<${Button} onClick=${setUp}>${t("Set up a passkey")}<//>`
            : html`<a class="button" href=${asLocalhost()}>${t("Open the page as localhost")}</a>
            ${" "}
            ${t("to set up a passkey: it belongs to a name.")}`
        }
        ${" "}
        ${
          known.passkeys.length > 0 &&
          html`<${Button}
            kind="quiet"
            onClick=${wanted("/api/passkeys/lost", () => post("/api/passkeys/lost"))}
          >
            ${t("I have lost my passkey")}
          <//>`
        }
        ${" "}
        ${
          known.ends &&
          html`<${Button}
            kind="quiet"
            onClick=${wanted("/api/passkeys/keep", () => post("/api/passkeys/keep"))}
          >
            ${t("Keep the passkeys")}
          <//>`
        }
      </p>`
    }
    ${refusal && html`<${Trouble} problem=${refusal} />`}
  </section>`;
}
