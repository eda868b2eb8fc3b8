// Dialogs: opened by [data-open="id"], closed by [data-close] or Escape; and what went wrong in a form.
export function dialogs() {
  document.addEventListener("click", (event) => {
    const opener = event.target.closest("[data-open]");
    if (opener) document.getElementById(opener.dataset.open)?.showModal();
    if (event.target.closest("[data-close]")) event.target.closest("dialog")?.close();
  });
}

/** The words of an error under the form that it is about. */
export function problem(form, error) {
  const place = form.querySelector("[data-problem]");
  const fields = (error.fields ?? []).map(({ field, problem: words }) => `${field}: ${words}`);
  place.textContent = fields.length ? fields.join("\n") : error.message;
  place.hidden = false;
}
