// Shows the beginning of a kept file: text, a picture, or the tensors of a checkpoint.

import {get, leasePath} from "../net.js";
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Save} from "./save.js";
import {Button, Bytes, Dialog, Trouble, useLoaded, Waiting} from "./widgets.js";

/** @import {Preview as Shown} from "../types.d.ts" */

// Larger files must be copied by hand, because a browser first holds such a download in memory or in a temporary file.
const MOST_SAVED_BYTES = 1 << 30;

/** @param {{lease: string, name: string, keptIn: string | null, onClose: () => void}} properties */
export function Preview({lease, name, keptIn, onClose}) {
  const [path, query] = [leasePath(lease), `name=${encodeURIComponent(name)}`];
  const [shown, problem, again] = useLoaded(
    /** @returns {Promise<Shown>} */
    () => get(`${path}/preview?${query}`),
    `${lease} ${name}`,
  );
  return html`<${Dialog} title=${name} onClose=${onClose}>
    <div class="preview">
      ${problem && html`<${Trouble} problem=${problem} retry=${again} />`}
      ${!shown && !problem && html`<${Waiting} />`}
      ${shown && html`<${Begin} shown=${shown} />`}
    </div>
    ${keptIn && html`<p class="soft">${t("kept in")} <code>${keptIn}</code></p>`}
    <footer class="choice">
      <${Button} onClick=${onClose}>${t("Close")}<//>
      ${
        shown &&
        shown.size_bytes <= MOST_SAVED_BYTES &&
        html`<${Save} kind="plain" path=${`${path}/file?${query}`} name=${name.split("/").at(-1) ?? name}>
          ${t("Save a copy")}
        <//>`
      }
    </footer>
  <//>`;
}

/** @param {{shown: Shown}} properties */
function Begin({shown}) {
  const cut =
    !shown.whole &&
    html`<p class="soft">${t("This is the beginning. In all:")} <${Bytes} n=${shown.size_bytes} /></p>`;
  switch (shown.kind) {
    case "image":
      return html`<img src=${shown.image} alt=${shown.name} />`;
    case "tensors":
      return html`<div class="scroll" tabindex="0" role="group" aria-label=${shown.name}>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">${t("Tensor")}</th>
                <th scope="col">${t("Type")}</th>
                <th scope="col">${t("Shape")}</th>
              </tr>
            </thead>
            <tbody>
              ${shown.tensors.map(
                ({name, dtype, shape}) => html`<tr key=${name}>
                  <th scope="row" class="mono">${name}</th>
                  <td class="mono">${dtype}</td>
                  <td class="mono">${shape.join(" × ")}</td>
                </tr>`,
              )}
            </tbody>
          </table>
        </div>
        ${cut}`;
    case "text":
      return html`<pre tabindex="0">${shown.text}</pre>
        ${cut}`;
    default:
      return html`<p>${t("No text, no picture and no checkpoint whose tensors are listed here.")}</p>
        <p class="soft"><${Bytes} n=${shown.size_bytes} /></p>`;
  }
}
