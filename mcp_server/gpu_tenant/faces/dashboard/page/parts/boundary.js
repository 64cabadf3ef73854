// Contains a part of a view. If this part fails, the error is shown in its place, and the rest of the page works on.
import {Component, html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Trouble} from "./widgets.js";
/** @import {Children} from "../vendor/htm-preact.js" */

export class Bounded extends Component {
  /** @param {Error} trouble */
  static getDerivedStateFromError(trouble) {
    return {trouble};
  }

  /** @param {Error} trouble */
  componentDidCatch(trouble) {
    console.error(trouble);
  }

  /**
   * @param {{children: Children}} given
   * @param {{trouble: Error | undefined}} given
   */
  render({children}, {trouble}) {
    if (!trouble) return children;
    const problem = {
      message: t("This part of the page cannot be shown: {why}", {why: trouble.message}),
      remedy: t(
        "The rest of the page goes on. What it would show is in the report too: `gpu-tenant report`",
      ),
    };
    return html`<${Trouble} problem=${problem} retry=${() => this.setState({trouble: null})} />`;
  }
}
