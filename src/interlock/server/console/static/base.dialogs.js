// Dialogs: opened by [data-open="id"], closed by [data-close] or Escape; and what went wrong in a form.
import { ApiError, messageOf } from "./base.js";
import { byId, closest, one } from "./base.dom.js";

export function dialogs() {
  document.addEventListener("click", (event) => {
    const opener = closest(event, "[data-open]");
    if (opener) byId(opener.dataset.open ?? "", HTMLDialogElement).showModal();
    if (closest(event, "[data-close]")) closest(event, "dialog", HTMLDialogElement)?.close();
  });
}

/**
 * Show the message of an error under the form that it is about.
 * @param {HTMLFormElement} form
 * @param {unknown} error
 */
export function problem(form, error) {
  const place = one("[data-problem]", HTMLElement, form);
  const fields = error instanceof ApiError ? error.fields : [];
  place.textContent = fields.map(({ field, problem: words }) => `${field}: ${words}`).join("\n") || messageOf(error);
  place.hidden = false;
}
