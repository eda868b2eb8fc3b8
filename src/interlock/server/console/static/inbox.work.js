// Assignments, comments and saved views of the inbox.
import { ask, messageOf, notify } from "./base.js";
import { problem } from "./base.dialogs.js";
import { byId, closest, find, one, valueOf } from "./base.dom.js";
import { refreshSoon } from "./live.js";

const questionPath = () => `/approvals/${encodeURIComponent(one("[data-work]").dataset.actionId ?? "")}`;

/** @param {string} account */
async function assign(account) {
  try {
    await ask("PUT", `${questionPath()}/assignee`, { account });
    notify(account ? `Assigned to ${account}.` : "Assigned to no one.");
  } catch (error) {
    notify(messageOf(error), "danger");
  }
  refreshSoon();
}

/** Assign the question to the person who is signed in, or take that back. */
export function assignToMe() {
  const mine = find("[data-assign-me]") ?? find(`[data-assign=""]`);
  mine?.click();
}

export function focusComment() {
  find("#comment")?.focus();
}

export function openFilters() {
  const more = one("[data-filters]", HTMLDetailsElement);
  more.open = true;
  one("input, select", HTMLElement, more).focus();
}

/**
 * @param {HTMLFormElement} form
 * @param {() => Promise<unknown>} work
 * @param {string} words
 */
async function send(form, work, words) {
  const button = one("[type=submit]", HTMLButtonElement, form);
  button.disabled = true;
  try {
    await work();
    form.reset();
    one("[data-problem]", HTMLElement, form).hidden = true;
    notify(words);
  } catch (error) {
    problem(form, error);
  } finally {
    button.disabled = false;
    refreshSoon();
  }
}

document.addEventListener("click", (event) => {
  const assigning = closest(event, "[data-assign]", HTMLButtonElement);
  if (assigning && !assigning.disabled) assign(assigning.dataset.assign ?? "");
  const deleting = closest(event, "[data-delete-view]", HTMLButtonElement);
  if (deleting) deleteView(deleting.dataset.deleteView ?? "");
});
document.addEventListener("change", (event) => {
  const chosen = closest(event, "[data-assign-to]", HTMLSelectElement);
  if (chosen?.value) assign(chosen.value);
});

/** @param {string} name */
async function deleteView(name) {
  try {
    await ask("DELETE", `/me/inbox-views/${encodeURIComponent(name)}`);
  } catch (error) {
    notify(messageOf(error), "danger");
  }
  refreshSoon();
}

document.addEventListener("submit", (event) => {
  const form = closest(event, "[data-comment], [data-save-view]", HTMLFormElement);
  if (!form) return;
  event.preventDefault();
  if ("comment" in form.dataset) {
    const text = valueOf(form, "text");
    send(form, () => ask("POST", `${questionPath()}/comments`, { text }), "Comment added.");
    return;
  }
  const name = valueOf(form, "name").trim();
  const query = one("[data-inbox]").dataset.filterQuery ?? "";
  send(form, () => ask("PUT", `/me/inbox-views/${encodeURIComponent(name)}`, { query }), "View saved.").then(() => {
    if (one("[data-problem]", HTMLElement, form).hidden) byId("views", HTMLDialogElement).close();
  });
});
