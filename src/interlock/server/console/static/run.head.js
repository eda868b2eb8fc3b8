// What every view of a run has: cancelling it, and addresses of events, which the view of events shows.
import { ask, messageOf, notify } from "./base.js";
import { byId, closest } from "./base.dom.js";

const page = byId("run");

async function cancel() {
  const problem = byId("cancel-problem");
  problem.textContent = "";
  try {
    await ask("POST", `/runs/${encodeURIComponent(page.dataset.run ?? "")}/cancel`, {
      reason: byId("cancel-reason", HTMLInputElement).value,
    });
    byId("cancel", HTMLDialogElement).close();
    notify("The run is cancelled.");
  } catch (error) {
    problem.textContent = messageOf(error);
  }
}

/** @param {MouseEvent} event */
function clicked(event) {
  const target = closest(event, "button");
  if (!target) return;
  if ("cancel" in target.dataset) {
    byId("cancel", HTMLDialogElement).showModal();
  } else if ("close" in target.dataset) {
    target.closest("dialog")?.close();
  } else if ("confirm" in target.dataset) {
    event.preventDefault();
    cancel();
  }
}

const named = /^#event-(\d+)$/.exec(location.hash);
if (named && page.dataset.at === undefined) {
  location.replace(`${page.dataset.path}?at=${named[1]}#event-${named[1]}`);
}
page.addEventListener("click", clicked);
