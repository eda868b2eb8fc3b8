// A new run, from the list of runs.
import { ask } from "./base.js";
import { dialogs, problem } from "./base.dialogs.js";

dialogs();

const form = document.querySelector("form[data-new-run]");
// One wish, however often it is sent: a second press of the button is the same run.
let wish = crypto.randomUUID?.() ?? String(Date.now() + Math.random());
form?.addEventListener("input", () => {
  wish = crypto.randomUUID?.() ?? String(Date.now() + Math.random());
});
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = new FormData(form);
  try {
    const run = await ask("POST", "/runs", { agent: fields.get("agent"), task: fields.get("task") }, { "Idempotency-Key": wish });
    location.assign(`/console/runs/${encodeURIComponent(run.run_id)}`);
  } catch (error) {
    problem(form, error);
  }
});
