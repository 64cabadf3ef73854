// Shows the terms of a lease, its hourly cost over time, and its most important dates.
import {openAction} from "../store.js";
import {html} from "../vendor/htm-preact.js";
import {t} from "../words.js";
import {Button, Copy, Money, When, Words} from "./widgets.js";

/** @import {TimedRow} from "../known.d.ts" */
/** @import {Dates, Policy} from "../types.d.ts" */

/** @type {["created_at" | "active_at" | "ready_at" | "parked_at" | "deadline_at" | "ended_at", () => string][]} */
const DATES = [
  ["created_at", () => t("Written down")],
  ["active_at", () => t("Ours since")],
  ["ready_at", () => t("Let us in")],
  ["parked_at", () => t("Parked since")],
  ["deadline_at", () => t("Deadline")],
  ["ended_at", () => t("Ended at")],
];

/**
 * Shows how a person logs in to the box, and reaches its ports.
 * @param {{lease: string, login: "none" | "ours" | "plain"}} properties
 */
function Login({lease, login}) {
  if (login === "none") return null;
  return html`<section aria-labelledby="login-title">
    <h2 id="login-title">${t("Log in")}</h2>
    <p><${Copy} text=${login === "plain" ? `ssh ${lease}` : `gpu-tenant ssh ${lease}`} /></p>
    <p class="soft">${t("TensorBoard or Jupyter of the box, at this computer's own address:")}</p>
    <p><${Copy} text=${`gpu-tenant ssh ${lease} --forward 6006 --forward 8888`} /></p>
    <p>
      <a href="http://127.0.0.1:6006/" target="_blank" rel="noreferrer">TensorBoard</a>
      ${" · "}
      <a href="http://127.0.0.1:8888/" target="_blank" rel="noreferrer">Jupyter</a>
      ${
        login === "plain"
          ? html` · <a href=${`vscode://vscode-remote/ssh-remote+${encodeURIComponent(lease)}/`}>VS Code</a>`
          : html` · <span class="soft">${t("VS Code, once plain ssh knows the leases:")}</span>
            ${" "}
            <${Copy} text="gpu-tenant ssh --setup" />`
      }
    </p>
  </section>`;
}

/** @param {{row: TimedRow, lease: Dates, policy: Policy, login: "none" | "ours" | "plain"}} properties */
export function Terms({row, lease, policy, login}) {
  const dates = DATES.filter(([name]) => lease[name]);
  return html`<div class="terms">
    <section aria-labelledby="terms-title">
      <h2 id="terms-title">${t("What holds")}</h2>
      ${
        policy.terms.length > 0
          ? html`<ul class="rules">
            ${policy.terms.map((rule) => html`<li key=${rule}><${Words} text=${rule} /></li>`)}
          </ul>`
          : html`<p class="soft">${t("Nothing: this lease has ended.")}</p>`
      }
      <p>
        <strong>${t("If this computer dies:")}</strong>
        ${" "}
        <${Words} text=${policy.if_this_computer_dies} />
      </p>
      ${
        row.verbs.includes("terms") &&
        html`<p>
          <${Button} onClick=${() => openAction({verb: "terms", row})}>
            ${t("Change the terms")}…
          <//>
        </p>`
      }
      <p class="soft">
        <a
          href=${`/runbooks/${encodeURIComponent(row.card.provider)}`}
          target="_blank"
          rel="noopener"
        >
          ${t("The runbook of {title}", {title: row.title})}
        </a>
      </p>
    </section>
    <${Login} lease=${row.card.lease} login=${login} />
    <section aria-labelledby="dates-title">
      <h2 id="dates-title">${t("Dates")}</h2>
      <dl class="facts">
        ${dates.map(
          ([name, words]) =>
            html`<div key=${name}><dt>${words()}</dt><dd><${When} at=${lease[name]} /></dd></div>`,
        )}
      </dl>
    </section>
    ${
      lease.rates.length > 0 &&
      html`<section aria-labelledby="rates-title">
        <h2 id="rates-title">${t("What it has cost by the hour")}</h2>
        <table class="table">
          <thead>
            <tr>
              <th scope="col">${t("From")}</th>
              <th scope="col" class="number">${t("Rate")}</th>
            </tr>
          </thead>
          <tbody>
            ${lease.rates.map(
              ({at, usd_h: rate}) => html`<tr key=${at}>
                <td><${When} at=${at} /></td>
                <td class="number"><${Money} usd=${rate} per="h" /></td>
              </tr>`,
            )}
          </tbody>
        </table>
      </section>`
    }
  </div>`;
}
