// The inbox: keys, folds, and answers. An answer always says which payload it is an answer to.
//
// No one approves by accident: keys that were pressed for the question before do not reach this one, and a key that is
// held down, or the second half of a double click, is not another press.
import { ApiError, ask, messageOf, notify, serverNow, tellTimes } from "./base.js";
import { dialogs, problem } from "./base.dialogs.js";
import { byId, closest, find, findAll, one, valueOf } from "./base.dom.js";
import { onReplaced, refreshSoon } from "./live.js";

const MS_PER_MINUTE = 60_000;
const SETTLE_MS = 500;
let batch = false;
/** @type {string | null} */
let edited = null;

dialogs();
const said = sessionStorage.getItem("inbox-said");
if (said) {
  sessionStorage.removeItem("inbox-said");
  notify(said);
}

setTimeout(() => {
  document.body.dataset.settled = "yes";
}, SETTLE_MS);

const question = () => find("[data-question]");
/** @param {string} id */
const dialog = (id) => find(`#${id}`, HTMLDialogElement);
const items = () => findAll(".queue .item", HTMLAnchorElement);

// On a narrow screen the list stands alone, and the question that is marked on it is not visible.
const isSeen = () => question()?.checkVisibility() ?? false;

/** @param {number} step */
function move(step) {
  const all = items();
  const at = all.findIndex((item) => item.hasAttribute("aria-current"));
  const next = all[at < 0 ? 0 : isSeen() ? at + step : at];
  if (next) location.assign(next.href);
}

function unfold() {
  for (const fold of document.querySelectorAll("[data-fold]")) fold.remove();
  for (const rest of findAll("[data-rest]")) rest.hidden = false;
  document.querySelector("[data-why-disabled]")?.remove();
  enable();
}

/** Buttons do nothing before this script is there, so they come disabled. Some also need all of it to be shown. */
function enable() {
  for (const button of findAll("[data-needs-script]", HTMLButtonElement)) {
    button.disabled = "needsAll" in button.dataset && !isAllShown();
  }
}

function isAllShown() {
  return document.querySelector("[data-rest][hidden]") === null;
}

/** @type {Record<string, () => void>} */
const DO = {
  approve() {
    openApprove(false, null);
  },
  batch() {
    openApprove(true, null);
  },
  reject() {
    dialog("reject")?.showModal();
  },
  edit() {
    dialog("edit")?.showModal();
  },
};

/** @param {boolean} many @param {string | null} text */
function openApprove(many, text) {
  const box = dialog("approve");
  if (!box || (!isAllShown() && text === null)) return;
  batch = many;
  edited = text;
  one("[data-batch-note]", HTMLElement, box).hidden = !many;
  // Many at once are an approval of these calls, and of nothing after them.
  const scope = find("[data-scope]", HTMLElement, box);
  if (scope) scope.hidden = many;
  showScope(many ? "once" : valueOf(one("form", HTMLFormElement, box), "scope") || "once");
  one("[data-edited]", HTMLElement, box).hidden = text === null;
  one("[data-edited-text]", HTMLElement, box).textContent = text ?? "";
  one("[data-problem]", HTMLElement, box).hidden = true;
  box.showModal();
  one('button[type="submit"]', HTMLElement, box).focus();
}

document.addEventListener("click", (event) => {
  if (event.detail > 1 && closest(event, "#approve [type=submit]")) event.preventDefault();
  if (closest(event, "[data-unfold]")) unfold();
  const button = closest(event, "[data-do]", HTMLButtonElement);
  if (button && !button.disabled && isSeen()) DO[button.dataset.do ?? ""]?.();
});

document.addEventListener("change", (event) => {
  const scope = closest(event, '[name="scope"]', HTMLSelectElement);
  if (scope) showScope(scope.value);
});

/** @param {string} chosen */
function showScope(chosen) {
  for (const field of findAll("[data-for-scope]")) field.hidden = field.dataset.forScope !== chosen;
}

/** @type {Record<string, () => unknown>} */
const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  a: () => document.body.dataset.settled && find('[data-do="approve"]:not(:disabled)')?.click(),
  d: () => find('[data-do="reject"]')?.click(),
  r: () => find('[data-do="reject"]')?.click(),
  e: () => find('[data-do="edit"]')?.click(),
  v: () => isSeen() && unfold(),
  o: () => question() && location.assign(one("[data-question]").dataset.run ?? ""),
  "/": () => find("[data-filter]")?.focus(),
  "?": () => byId("keys", HTMLDialogElement).showModal(),
};

document.addEventListener("keydown", (event) => {
  const isHeldButton = event.repeat && closest(event, "button");
  if (isHeldButton && (event.key === "Enter" || event.key === " ")) event.preventDefault();
  const isTyping = closest(event, "input, textarea, select, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (document.querySelector("dialog[open]")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

/**
 * Arguments go out as they were written: numbers and order are the person's.
 * @param {string} hash
 * @param {HTMLFormElement} form
 */
function approval(hash, form) {
  const scope = (!batch && valueOf(form, "scope")) || "once";
  /** @type {Record<string, string>} */
  const body = { payload_hash: hash, scope, reason: valueOf(form, "reason") };
  if (scope === "rule") body.rule = valueOf(form, "rule");
  if (scope === "window")
    body.until = new Date(serverNow() + Number(valueOf(form, "minutes")) * MS_PER_MINUTE).toISOString();
  const text = JSON.stringify(body);
  return edited === null ? text : joined(text, "arguments", edited);
}

/** @param {string} object @param {string} name @param {string} json */
function joined(object, name, json) {
  return `${object.slice(0, -1)},${JSON.stringify(name)}:${json}}`;
}

function asked() {
  const others = batch ? findAll("[data-same] > li") : [];
  return [one("[data-question]"), ...others].map(({ dataset }) => ({
    id: dataset.actionId ?? "",
    hash: dataset.hash ?? "",
  }));
}

/**
 * Send it, and continue with the next question.
 * @param {HTMLFormElement} form
 * @param {() => Promise<void>} work
 * @param {string} words
 */
async function send(form, work, words) {
  const buttons = [...form.querySelectorAll("button")];
  const gone = asked().map(({ id }) => id);
  for (const button of buttons) button.disabled = true;
  try {
    await work();
    goOn(words, gone);
  } catch (error) {
    problem(form, error);
    if (!(error instanceof ApiError) || error.status !== 409) return;
    // It was answered meanwhile, or is another one now: the page is about to say so, and the form to go.
    notify(error.message, "danger");
    refreshSoon();
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

/** @param {string} words @param {string[]} gone */
function goOn(words, gone) {
  const all = items();
  const at = all.findIndex((item) => item.hasAttribute("aria-current"));
  const isLeft = (/** @type {HTMLAnchorElement} */ item) =>
    !gone.some((id) => new URL(item.href).pathname.endsWith(`/${id}`));
  const next = all.slice(at + 1).find(isLeft) ?? all.slice(0, Math.max(at, 0)).find(isLeft);
  sessionStorage.setItem("inbox-said", words);
  location.assign(next ? next.href : "/console/inbox");
}

document.addEventListener("submit", (event) => {
  const form = closest(event, "form", HTMLFormElement);
  const kind = ["approve", "reject", "edit", "valueForm"].find((name) => form && name in form.dataset);
  if (!form || !kind) return;
  event.preventDefault();
  SUBMIT[kind](form);
});

/**
 * One by one. What went wrong says how many were approved before.
 * @param {{ id: string, hash: string }[]} all
 * @param {HTMLFormElement} form
 */
async function approveAll(all, form) {
  let done = 0;
  try {
    for (const { id, hash } of all) {
      await ask("POST", `/approvals/${encodeURIComponent(id)}/approve`, approval(hash, form));
      done += 1;
    }
  } catch (error) {
    if (all.length > 1 && error instanceof Error)
      error.message = `${done} of ${all.length} were approved; then: ${error.message}`;
    throw error;
  }
}

/** @type {Record<string, (form: HTMLFormElement) => unknown>} */
const SUBMIT = {
  approve(form) {
    const all = asked();
    return send(form, () => approveAll(all, form), all.length > 1 ? `${all.length} approved.` : "Approved.");
  },
  reject(form) {
    batch = false;
    const [{ id, hash }] = asked();
    const body = { payload_hash: hash, reason: valueOf(form, "reason") };
    return send(form, () => ask("POST", `/approvals/${encodeURIComponent(id)}/reject`, body), "Rejected.");
  },
  edit(form) {
    const text = valueOf(form, "arguments").trim();
    try {
      const value = JSON.parse(text);
      if (value === null || typeof value !== "object" || Array.isArray(value))
        throw new Error("It has to be an object: { ... }");
    } catch (error) {
      problem(form, `This is not JSON: ${messageOf(error)}`);
      return;
    }
    one("[data-problem]", HTMLElement, form).hidden = true;
    dialog("edit")?.close();
    openApprove(false, text);
  },
  valueForm(form) {
    batch = false;
    const [{ id, hash }] = asked();
    const text = valueOf(form, "value");
    const isJson = valueOf(form, "as") === "json";
    if (isJson) {
      try {
        JSON.parse(text);
      } catch (error) {
        problem(form, `This is not JSON: ${messageOf(error)}`);
        return;
      }
    }
    const body = joined(JSON.stringify({ payload_hash: hash }), "value", isJson ? text : JSON.stringify(text));
    return send(form, () => ask("POST", `/approvals/${encodeURIComponent(id)}/answer`, body), "Given.");
  },
};

onReplaced((regions) => {
  tellTimes();
  enable();
  const changed = regions.find((region) => region.matches("[data-question]"));
  if (!changed) return;
  // A form that a person had open is gone with the question: say so, and have the focus where the answer is.
  notify("This question is not open any more: it was answered, or is void.", "warning");
  const title = one("h2", HTMLElement, changed);
  title.tabIndex = -1;
  if (document.activeElement === document.body) title.focus();
});

enable();
