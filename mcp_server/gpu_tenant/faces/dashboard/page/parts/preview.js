// What a kept file begins with: text, a picture, or the tensors of a checkpoint.

import {get} from "../net.js";
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Button, Bytes, Dialog, Trouble, useLoaded, Waiting} from "./widgets.js";

/** @import {Preview as Shown} from "../types.d.ts" */

/** @param {{lease: string, name: string, onClose: () => void}} properties */
export function Preview({lease, name, onClose}) {
  const [shown, problem, again] = useLoaded(
    /** @returns {Promise<Shown>} */
    () => get(`/api/leases/${encodeURIComponent(lease)}/preview?name=${encodeURIComponent(name)}`),
    `${lease} ${name}`,
  );
  return html`<${Dialog} title=${name} onClose=${onClose}>
    <div class="preview">
      ${problem && html`<${Trouble} problem=${problem} retry=${again} />`}
      ${!shown && !problem && html`<${Waiting} />`}
      ${shown && html`<${Begin} shown=${shown} />`}
    </div>
    <footer class="choice"><${Button} onClick=${onClose}>${t("Close")}<//></footer>
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
