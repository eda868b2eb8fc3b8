// A new run, from the list of runs; and days of a filter, which are those of the reader's time zone.
import { ask } from "./base.js";
import { find } from "./base.dom.js";
import { dialogs, problem } from "./base.dialogs.js";

dialogs();

const zone = find("[data-zone]", HTMLInputElement);
if (zone) {
  const setZone = () => {
    zone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
  };
  // Days that came with an address are those of its zone, until another one is chosen.
  if (!zone.value) setZone();
  zone.form?.addEventListener("change", setZone);
}

const form = find("form[data-new-run]", HTMLFormElement);
// One key for one form, however often it is sent: a second press of the button is the same run.
let key = crypto.randomUUID?.() ?? String(Date.now() + Math.random());
form?.addEventListener("input", () => {
  key = crypto.randomUUID?.() ?? String(Date.now() + Math.random());
});
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  try {
    const run = await ask(
      "POST",
      "/runs",
      { agent: fields.get("agent"), task: fields.get("task") },
      { "Idempotency-Key": key },
    );
    location.assign(`/console/runs/${encodeURIComponent(run.run_id)}`);
  } catch (error) {
    problem(form, error);
  }
});
