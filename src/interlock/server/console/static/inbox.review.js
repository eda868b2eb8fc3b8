// The list of selected calls: all of them are approved with one press, once each was on the screen to its end.
import { ask, notify } from "./base.js";
import { problem } from "./base.dialogs.js";
import { closest, find, findAll, one, valueOf } from "./base.dom.js";

const SETTLE_MS = 500;
/** @typedef {{ action_id: string, outcome: string, message: string }} Outcome */
/** @type {Set<Element>} */
const seen = new Set();
let isSettled = false;
let isSent = false;

const items = () => findAll("[data-review-item]");
/** @param {HTMLElement} item */
const isIncluded = (item) => find("[data-include]", HTMLInputElement, item)?.checked ?? false;

function show() {
  const form = find("[data-review-form]", HTMLFormElement);
  if (!form || isSent) return;
  const all = items();
  const looked = all.filter((item) => seen.has(item)).length;
  const count = all.filter(isIncluded).length;
  one("[data-progress]").textContent = `${looked} of ${all.length} looked through`;
  one("[data-approve-words]").textContent = count === 1 ? "Approve 1 call" : `Approve ${count} calls`;
  one("[type=submit]", HTMLButtonElement, form).disabled = !isSettled || looked < all.length || !count;
}

const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const item = /** @type {HTMLElement | null} */ (entry.target.closest("[data-review-item]"));
      if (!entry.isIntersecting || !item) continue;
      seen.add(item);
      item.dataset.seen = "yes";
    }
    show();
  },
  // What is under the bar at the foot of the page was not seen.
  { rootMargin: `0px 0px -${find(".review-foot")?.offsetHeight ?? 0}px 0px` },
);
for (const end of findAll("[data-end]")) observer.observe(end);

for (const box of findAll("[data-include]", HTMLInputElement)) box.disabled = false;
document.addEventListener("change", (event) => {
  if (closest(event, "[data-include]")) show();
});

setTimeout(() => {
  isSettled = true;
  document.body.dataset.settled = "yes";
  show();
}, SETTLE_MS);

/** @param {number} step */
function move(step) {
  const all = items();
  const at = all.findIndex((item) => item.contains(document.activeElement));
  const to = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  to?.focus({ preventScroll: true });
  to?.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.repeat && closest(event, "button") && (event.key === "Enter" || event.key === " ")) event.preventDefault();
  if (closest(event, "input:not([type=checkbox]), textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  const step = { j: 1, k: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  move(step);
});
document.addEventListener("click", (event) => {
  if (event.detail > 1 && closest(event, "[type=submit]")) event.preventDefault();
});

document.addEventListener("submit", async (event) => {
  const form = closest(event, "[data-review-form]", HTMLFormElement);
  if (!form) return;
  event.preventDefault();
  const button = one("[type=submit]", HTMLButtonElement, form);
  if (button.disabled) return;
  button.disabled = true;
  const approvals = items()
    .filter(isIncluded)
    .map(({ dataset }) => ({ action_id: dataset.actionId, payload_hash: dataset.hash }));
  try {
    const body = { approved: true, reason: valueOf(form, "reason"), approvals };
    const { results } = await ask("POST", "/approvals/decisions", body);
    isSent = true;
    showOutcomes(form, results);
  } catch (error) {
    problem(form, error);
    button.disabled = false;
  }
});

/**
 * Say what became of each, at its place.
 * @param {HTMLFormElement} form
 * @param {Outcome[]} results
 */
function showOutcomes(form, results) {
  const skipped = results.filter(({ outcome }) => outcome === "skipped").length;
  const words = `${results.length - skipped} approved${skipped ? `, ${skipped} skipped` : ""}.`;
  for (const item of items()) {
    const found = results.find(({ action_id: id }) => id === item.dataset.actionId);
    const place = one("[data-outcome]", HTMLElement, item);
    const isSkipped = found?.outcome === "skipped";
    place.classList.toggle("problem", isSkipped);
    place.textContent = !found ? "Left out." : isSkipped ? `Skipped: ${found.message}` : "Approved. ";
    if (found && !isSkipped) place.append(resultLink(found.action_id));
    place.hidden = false;
    one("[data-include]", HTMLInputElement, item).disabled = true;
  }
  one("[data-progress]").textContent = words;
  one("[type=submit]", HTMLElement, form).hidden = true;
  one(".field", HTMLElement, form).hidden = true;
  sessionStorage.removeItem("inbox-selected");
  notify(words, skipped ? "warning" : "success");
  find("[data-back]")?.focus();
}

/** @param {string} id */
function resultLink(id) {
  const link = document.createElement("a");
  link.href = `/console/inbox/${encodeURIComponent(id)}`;
  link.textContent = "Show its result";
  return link;
}

show();
