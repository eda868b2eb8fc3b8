// Schedules and webhooks: paused and resumed by the API, which decides and records it.
import { ask } from "./base.js";
import { byId, closest, findAll, one, valueOf } from "./base.dom.js";
import { dialogs, problem } from "./base.dialogs.js";

dialogs();

/** @type {Record<string, string>} */
const WORDS = {
  "schedule pause": "It starts no run until it is resumed. What is due meanwhile is not made up for.",
  "schedule resume": "It starts runs again, from now on.",
  "webhook pause": "Deliveries are refused with 409 until it is resumed.",
  "webhook resume": "Deliveries start runs again.",
};
let path = "";

document.addEventListener("click", (event) => {
  const button = closest(event, "[data-trigger]");
  if (!button) return;
  const { trigger = "", kind = "", name = "" } = button.dataset;
  path = `/${kind}s/${encodeURIComponent(name)}/${trigger}`;
  const dialog = byId("change-trigger", HTMLDialogElement);
  const verb = trigger === "pause" ? "Pause" : "Resume";
  for (const place of findAll("[data-verb]", HTMLElement, dialog)) place.textContent = verb;
  one("[data-name]", HTMLElement, dialog).textContent = name;
  one("[data-words]", HTMLElement, dialog).textContent = WORDS[`${kind} ${trigger}`];
  dialog.showModal();
});

const form = one("[data-change-trigger]", HTMLFormElement);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await ask("POST", path, { reason: valueOf(form, "reason") });
    location.reload();
  } catch (error) {
    problem(form, error);
  }
});
