// A button that fetches a file with the page's token, and hands it to the browser to save.

import {getFile} from "../net.js";
import {html, useState} from "../vendor/htm-preact.js";
import {Button, Trouble} from "./widgets.js";

/** @import {Children} from "../vendor/htm-preact.js" */

const REVOKED_AFTER_MS = 60_000; // a browser may ask where to save before it reads the file

/**
 * @param {{path: string, name: string, children?: Children, [more: string]: unknown}} properties
 */
export function Save({path, name, children, ...rest}) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const save = async () => {
    setBusy(true);
    setProblem(null);
    try {
      const address = URL.createObjectURL(await getFile(path));
      const link = document.createElement("a");
      [link.href, link.download] = [address, name];
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), REVOKED_AFTER_MS);
    } catch (trouble) {
      setProblem(trouble);
    }
    setBusy(false);
  };
  return html`<${Button} kind="quiet" ...${rest} busy=${busy} onClick=${save}>${children}<//>
    ${problem && html`<${Trouble} problem=${problem} />`}`;
}
