// Agents: switched off and on by the API, which decides and records it.
import { ask } from "./base.js";
import { byId, closest, one, valueOf } from "./base.dom.js";
import { dialogs, problem } from "./base.dialogs.js";

dialogs();

let agent = "";

/** @param {string} change */
const path = (change) => (agent ? `/agents/${encodeURIComponent(agent)}/switch-${change}` : `/agents/switch-${change}`);

document.addEventListener("click", (event) => {
  const button = closest(event, "[data-switch]");
  if (!button) return;
  agent = button.dataset.agent ?? "";
  const dialog = byId(`switch-${button.dataset.switch}`, HTMLDialogElement);
  one("[data-name]", HTMLElement, dialog).textContent = agent || "every agent";
  dialog.showModal();
});

/**
 * @param {string} change
 * @param {(form: HTMLFormElement) => Record<string, unknown>} body
 */
function onSubmit(change, body) {
  const form = one(`[data-switch-${change}]`, HTMLFormElement);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = one('button[type="submit"]', HTMLButtonElement, form);
    button.disabled = true;
    try {
      await ask("POST", path(change), { reason: valueOf(form, "reason"), ...body(form) });
      location.reload();
    } catch (error) {
      problem(form, error);
      button.disabled = false;
    }
  });
}

onSubmit("off", (form) => ({ cancel_runs: valueOf(form, "runs") === "cancel" }));
onSubmit("on", () => ({}));
