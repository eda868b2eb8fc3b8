// Questions that are selected in the list: rejected with one reason, or looked through and then approved.
//
// A selection holds while the list shows its questions, also on the way from one question to the next. What it is about
// is what was listed: every answer says the hash of its own payload.
import { ask, notify } from "./base.js";
import { problem } from "./base.dialogs.js";
import { byId, closest, find, findAll, one, valueOf } from "./base.dom.js";
import { onReplaced, refreshSoon } from "./live.js";

const KEPT = "inbox-selected";
/** @typedef {{ action_id: string, outcome: string, message: string }} Outcome */

const picks = () => findAll("[data-pick]", HTMLInputElement);
/** @param {Element} pick */
const rowOf = (pick) => /** @type {HTMLElement} */ (pick.closest("[data-key]"));
const chosen = () => picks().filter((pick) => pick.checked);

/** @returns {string[]} */
function kept() {
  try {
    const found = JSON.parse(sessionStorage.getItem(KEPT) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch {
    return [];
  }
}

/** Check what was selected before, as far as it is listed with the same payload. */
function restore() {
  const before = new Set(kept());
  for (const pick of picks()) {
    const { key, hash } = rowOf(pick).dataset;
    if (pick.disabled) pick.checked = before.has(`${key} ${hash}`);
    pick.disabled = false;
  }
  show();
}

function show() {
  const rows = chosen().map(rowOf);
  sessionStorage.setItem(KEPT, JSON.stringify(rows.map(({ dataset }) => `${dataset.key} ${dataset.hash}`)));
  one("[data-selection]").hidden = rows.length === 0;
  one("[data-selected]").textContent = `${rows.length} selected`;
}

/** Select the question that is shown, or take it out. */
export function toggleShown() {
  const item = find(".queue .item[aria-current]");
  const pick = item && find("[data-pick]", HTMLInputElement, rowOf(item));
  if (!pick) return;
  pick.checked = !pick.checked;
  show();
}

/** Select all that are listed, or none if all are. */
export function toggleAll() {
  const isAll = picks().every((pick) => pick.checked);
  for (const pick of picks()) pick.checked = !isAll;
  show();
}

/** Go to the list that has to be looked through. */
export function reviewSelected() {
  const ids = chosen().map((pick) => ["id", rowOf(pick).dataset.key ?? ""]);
  if (!ids.length) return;
  const back = one("[data-inbox]").dataset.filterQuery ?? "";
  location.assign(`/console/inbox/review?${new URLSearchParams([...ids, ["back", back]])}`);
}

export function rejectSelected() {
  const rows = chosen().map(rowOf);
  if (!rows.length) return;
  const box = byId("reject-many", HTMLDialogElement);
  one("[data-selected-list]", HTMLElement, box).replaceChildren(...rows.map(listed));
  one("[data-reason-field]", HTMLElement, box).hidden = false;
  one("[type=submit]", HTMLElement, box).hidden = false;
  one("[data-problem]", HTMLElement, box).hidden = true;
  box.showModal();
  one("textarea", HTMLTextAreaElement, box).focus();
}

/** @param {HTMLElement} row */
function listed(row) {
  const item = document.createElement("li");
  Object.assign(item.dataset, { actionId: row.dataset.key, hash: row.dataset.hash });
  const title = document.createElement("bdi");
  title.textContent = row.dataset.title ?? "";
  item.append(title);
  return item;
}

/** @param {HTMLFormElement} form */
async function rejectAll(form) {
  const items = findAll("[data-selected-list] > li", HTMLElement, form);
  const button = one("[type=submit]", HTMLButtonElement, form);
  button.disabled = true;
  try {
    const approvals = items.map(({ dataset }) => ({ action_id: dataset.actionId, payload_hash: dataset.hash }));
    const body = { approved: false, reason: valueOf(form, "reason"), approvals };
    const { results } = await ask("POST", "/approvals/decisions", body);
    showRejected(form, items, results);
  } catch (error) {
    problem(form, error);
  } finally {
    button.disabled = false;
    refreshSoon();
  }
}

/**
 * Say what became of each. Without a question that was skipped there is nothing more to read.
 * @param {HTMLFormElement} form
 * @param {HTMLElement[]} items
 * @param {Outcome[]} results
 */
function showRejected(form, items, results) {
  const skipped = results.filter(({ outcome }) => outcome === "skipped");
  clear();
  notify(`${results.length - skipped.length} rejected${skipped.length ? `, ${skipped.length} skipped` : ""}.`);
  form.reset();
  if (!skipped.length) {
    byId("reject-many", HTMLDialogElement).close();
    return;
  }
  for (const item of items) {
    const found = results.find(({ action_id: id }) => id === item.dataset.actionId);
    const words = document.createElement("p");
    words.className = found?.outcome === "skipped" ? "problem" : "muted";
    words.textContent = found?.outcome === "skipped" ? `Skipped: ${found.message}` : "Rejected.";
    item.append(words);
  }
  one("[data-reason-field]", HTMLElement, form).hidden = true;
  one("[type=submit]", HTMLElement, form).hidden = true;
}

function clear() {
  for (const pick of picks()) pick.checked = false;
  show();
}

document.addEventListener("change", (event) => {
  if (closest(event, "[data-pick]")) show();
});
document.addEventListener("click", (event) => {
  if (closest(event, "[data-review]")) reviewSelected();
  if (closest(event, "[data-reject-many]")) rejectSelected();
  if (closest(event, "[data-clear]")) clear();
});
document.addEventListener("submit", (event) => {
  const form = closest(event, "[data-reject-many-form]", HTMLFormElement);
  if (!form) return;
  event.preventDefault();
  rejectAll(form);
});

onReplaced(restore);
restore();
