// The inbox: keys, folds, and answers. An answer always says which payload it is an answer to.
//
// No one approves by accident: keys that were pressed for the question before do not reach this one, and a key that is
// held down, or the second half of a double click, is not another press.
import { ask, notify, serverNow, tellTimes } from "./base.js";
import { dialogs, problem } from "./base.dialogs.js";
import { refreshSoon } from "./live.js";

const MS_PER_MINUTE = 60_000;
const SETTLE_MS = 500;
let batch = false;
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

const question = () => document.querySelector("[data-question]");
const dialog = (id) => document.getElementById(id);
const items = () => [...document.querySelectorAll(".queue .item")];

// On a narrow screen the list stands alone, and the question that is marked on it is not visible.
const isSeen = () => question()?.checkVisibility() ?? false;

function move(step) {
  const all = items();
  const at = all.findIndex((item) => item.hasAttribute("aria-current"));
  const next = all[at < 0 ? 0 : isSeen() ? at + step : at];
  if (next) location.assign(next.href);
}

function unfold() {
  for (const fold of document.querySelectorAll("[data-fold]")) fold.remove();
  for (const rest of document.querySelectorAll("[data-rest]")) rest.hidden = false;
  document.querySelector("[data-why-disabled]")?.remove();
  enable();
}

/** Buttons do nothing before this script is there, so they come disabled. Some also need all of it to be shown. */
function enable() {
  for (const button of document.querySelectorAll("[data-needs-script]")) {
    button.disabled = "needsAll" in button.dataset && !isAllShown();
  }
}

function isAllShown() {
  return document.querySelector("[data-rest][hidden]") === null;
}

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

function openApprove(many, text) {
  const box = dialog("approve");
  if (!box || (!isAllShown() && text === null)) return;
  batch = many;
  edited = text;
  box.querySelector("[data-batch-note]").hidden = !many;
  // Many at once are an approval of these calls, and of nothing after them.
  const scope = box.querySelector("[data-scope]");
  if (scope) scope.hidden = many;
  showScope(many ? "once" : (box.querySelector("form").elements.scope?.value ?? "once"));
  box.querySelector("[data-edited]").hidden = text === null;
  box.querySelector("[data-edited-text]").textContent = text ?? "";
  box.querySelector("[data-problem]").hidden = true;
  box.showModal();
  box.querySelector('button[type="submit"]').focus();
}

document.addEventListener("click", (event) => {
  if (event.detail > 1 && event.target.closest("#approve [type=submit]")) event.preventDefault();
  if (event.target.closest("[data-unfold]")) unfold();
  const button = event.target.closest("[data-do]");
  if (button && !button.disabled && isSeen()) DO[button.dataset.do]();
});

document.addEventListener("change", (event) => {
  if (event.target.name === "scope") showScope(event.target.value);
});

function showScope(chosen) {
  for (const field of document.querySelectorAll("[data-for-scope]")) field.hidden = field.dataset.forScope !== chosen;
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  a: () => document.body.dataset.settled && document.querySelector('[data-do="approve"]:not(:disabled)')?.click(),
  d: () => document.querySelector('[data-do="reject"]')?.click(),
  r: () => document.querySelector('[data-do="reject"]')?.click(),
  e: () => document.querySelector('[data-do="edit"]')?.click(),
  v: () => isSeen() && unfold(),
  o: () => question() && location.assign(question().dataset.run),
  "/": () => document.querySelector("[data-filter]").focus(),
  "?": () => dialog("keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  const isHeldButton = event.repeat && event.target.closest?.("button");
  if (isHeldButton && (event.key === "Enter" || event.key === " ")) event.preventDefault();
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (document.querySelector("dialog[open]")) return;
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

/** Arguments go out as they were written: numbers and order are the person's. */
function approval(hash, form) {
  const scope = batch ? "once" : (form.elements.scope?.value ?? "once");
  const body = { payload_hash: hash, scope, reason: form.elements.reason.value };
  if (scope === "rule") body.rule = form.elements.rule.value;
  if (scope === "window") body.until = new Date(serverNow() + Number(form.elements.minutes.value) * MS_PER_MINUTE).toISOString();
  const text = JSON.stringify(body);
  return edited === null ? text : joined(text, "arguments", edited);
}

function joined(object, name, json) {
  return `${object.slice(0, -1)},${JSON.stringify(name)}:${json}}`;
}

function asked() {
  const one = question();
  const others = batch ? [...document.querySelectorAll("[data-same] > li")] : [];
  return [one, ...others].map((each) => ({ id: each.dataset.actionId, hash: each.dataset.hash }));
}

/** Send it, and continue with the next question. */
async function send(form, work, words) {
  const buttons = [...form.querySelectorAll("button")];
  const gone = asked().map(({ id }) => id);
  for (const button of buttons) button.disabled = true;
  try {
    await work();
    goOn(words, gone);
  } catch (error) {
    problem(form, error);
    if (error.status !== 409) return;
    // It was answered meanwhile, or is another one now: the page is about to say so, and the form to go.
    notify(error.message, "danger");
    refreshSoon();
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

function goOn(words, gone) {
  const all = items();
  const at = all.findIndex((item) => item.hasAttribute("aria-current"));
  const isLeft = (item) => !gone.some((id) => new URL(item.href).pathname.endsWith(`/${id}`));
  const next = all.slice(at + 1).find(isLeft) ?? all.slice(0, Math.max(at, 0)).find(isLeft);
  sessionStorage.setItem("inbox-said", words);
  location.assign(next ? next.href : "/console/inbox");
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const kind = ["approve", "reject", "edit", "valueForm"].find((name) => name in form.dataset);
  if (!kind) return;
  event.preventDefault();
  SUBMIT[kind](form);
});

/** One by one. What went wrong says how many were approved before. */
async function approveAll(all, form) {
  let done = 0;
  try {
    for (const { id, hash } of all) {
      await ask("POST", `/approvals/${encodeURIComponent(id)}/approve`, approval(hash, form));
      done += 1;
    }
  } catch (error) {
    if (all.length > 1) error.message = `${done} of ${all.length} were approved; then: ${error.message}`;
    throw error;
  }
}

const SUBMIT = {
  approve(form) {
    const all = asked();
    return send(form, () => approveAll(all, form), all.length > 1 ? `${all.length} approved.` : "Approved.");
  },
  reject(form) {
    const { actionId, hash } = question().dataset;
    const body = { payload_hash: hash, reason: form.elements.reason.value };
    batch = false;
    return send(form, () => ask("POST", `/approvals/${encodeURIComponent(actionId)}/reject`, body), "Rejected.");
  },
  edit(form) {
    const text = form.elements.arguments.value.trim();
    try {
      const value = JSON.parse(text);
      if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("It has to be an object: { ... }");
    } catch (error) {
      problem(form, { message: `This is not JSON: ${error.message}` });
      return;
    }
    form.querySelector("[data-problem]").hidden = true;
    dialog("edit").close();
    openApprove(false, text);
  },
  valueForm(form) {
    const { actionId, hash } = question().dataset;
    const text = form.elements.value.value;
    const isJson = form.elements.as.value === "json";
    if (isJson) {
      try {
        JSON.parse(text);
      } catch (error) {
        problem(form, { message: `This is not JSON: ${error.message}` });
        return;
      }
    }
    const body = joined(JSON.stringify({ payload_hash: hash }), "value", isJson ? text : JSON.stringify(text));
    batch = false;
    return send(form, () => ask("POST", `/approvals/${encodeURIComponent(actionId)}/answer`, body), "Given.");
  },
};

document.addEventListener("interlock:replaced", ({ detail }) => {
  tellTimes();
  enable();
  const changed = detail.find((region) => region.matches("[data-question]"));
  if (!changed) return;
  // A form that a person had open is gone with the question: say so, and have the focus where the answer is.
  notify("This question is not open any more: it was answered, or is void.", "warning");
  const title = changed.querySelector("h2");
  title.tabIndex = -1;
  if (document.activeElement === document.body) title.focus();
});

enable();
