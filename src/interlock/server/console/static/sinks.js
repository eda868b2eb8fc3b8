// Dead letters of audit sinks: sent again by the API, which records it.
import { ask, messageOf, notify } from "./base.js";
import { closest, one } from "./base.dom.js";

document.addEventListener("click", async (event) => {
  const button = closest(event, "[data-retry], [data-retry-all]", HTMLButtonElement);
  if (!button) return;
  const { retry, retryAll, sink = retryAll ?? "" } = button.dataset;
  const path = `/audit/forwarders/${encodeURIComponent(sink)}/dead-letters`;
  const place = one("[data-problem]", HTMLElement, button.closest(".card") ?? document);
  button.disabled = true;
  place.hidden = true;
  try {
    const { sent, left, problem } = await ask("POST", retry ? `${path}/${retry}/retry` : `${path}/retry`);
    if (!problem) {
      location.reload();
      return;
    }
    place.textContent = `${problem} ${sent} sent, ${left} left.`;
    place.hidden = false;
    notify(`${sent} sent, ${left} left.`, "danger");
  } catch (error) {
    place.textContent = messageOf(error);
    place.hidden = false;
  }
  button.disabled = false;
});
