// The inbox: keys, folds, and answers. An answer always says which payload it is an answer to.
//
// No one approves by accident: keys that were pressed for the question before do not reach this one, and a key that is
// held down, or the second half of a double click, is not another press.
import { ApiError, ask, messageOf, notify, serverNow, span, tellTimes } from "./base.js";
import { dialogs, problem } from "./base.dialogs.js";
import { byId, closest, find, findAll, one, valueOf } from "./base.dom.js";
import { rejectSelected, reviewSelected, toggleAll, toggleShown } from "./inbox.select.js";
import { assignToMe, focusComment, openFilters } from "./inbox.work.js";
import { onReplaced, refreshSoon } from "./live.js";

const MS_PER_MINUTE = 60_000;
const SETTLE_MS = 500;
let batch = false;
/** @type {string | null} */
let edited = null;
// The question that was answered here, and the one after it.
let answered = "";
let next = "";

dialogs();

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
  const after = Math.max(
    all.findIndex((item) => item.href === next),
    0,
  );
  const to = all[at < 0 ? after : isSeen() ? at + step : at];
  if (to) location.assign(to.href);
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
  one("[data-repeat]", HTMLElement, box).hidden = text !== null;
  one("[data-repeat-call]", HTMLElement, box).replaceChildren(...findAll("[data-call-part]").map(copied));
  one("[data-edited]", HTMLElement, box).hidden = text === null;
  one("[data-edited-text]", HTMLElement, box).textContent = text ?? "";
  one("[data-problem]", HTMLElement, box).hidden = true;
  box.showModal();
  one('button[type="submit"]', HTMLElement, box).focus();
}

/**
 * The same once more, without the names by which scripts and labels find it.
 * @param {HTMLElement} part
 */
function copied(part) {
  const copy = /** @type {HTMLElement} */ (part.cloneNode(true));
  for (const each of [copy, ...findAll("*", HTMLElement, copy)]) {
    for (const name of each.getAttributeNames()) {
      if (["id", "tabindex", "role"].includes(name) || /^(data|aria)-/.test(name)) each.removeAttribute(name);
    }
  }
  return copy;
}

document.addEventListener("click", (event) => {
  if (event.detail > 1 && closest(event, "#approve [type=submit]")) event.preventDefault();
  if (closest(event, "[data-unfold]")) unfold();
  const button = closest(event, "[data-do]", HTMLButtonElement);
  if (button && !button.disabled && isSeen() && !isAnswered()) DO[button.dataset.do ?? ""]?.();
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
  n: () => find("[data-next]")?.click(),
  o: () => question() && location.assign(one("[data-question]").dataset.run ?? ""),
  x: toggleShown,
  X: toggleAll,
  A: reviewSelected,
  D: rejectSelected,
  c: () => isSeen() && focusComment(),
  m: () => isSeen() && assignToMe(),
  f: openFilters,
  s: () => byId("views", HTMLDialogElement).showModal(),
  "/": () => find("[data-filter]")?.focus(),
  "?": () => byId("keys", HTMLDialogElement).showModal(),
};

document.addEventListener("keydown", (event) => {
  const isHeldButton = event.repeat && closest(event, "button, a");
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
 * Send it. The page then shows the answer, and what becomes of the call.
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
    stay(words, gone);
  } catch (error) {
    problem(form, error);
    if (!(error instanceof ApiError) || error.status !== 409) return;
    // It was answered meanwhile, or is another one now: the page is about to say so, and the form to go.
    showConflict(error);
    refreshSoon();
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

/** @param {string} words @param {string[]} gone */
function stay(words, gone) {
  const all = items();
  const at = all.findIndex((item) => item.hasAttribute("aria-current"));
  const isLeft = (/** @type {HTMLAnchorElement} */ item) =>
    !gone.some((id) => new URL(item.href).pathname.endsWith(`/${id}`));
  next = (all.slice(at + 1).find(isLeft) ?? all.slice(0, Math.max(at, 0)).find(isLeft))?.href ?? "";
  answered = gone[0];
  find("dialog[open]", HTMLDialogElement)?.close();
  one("[data-conflict]").replaceChildren();
  // The address names the question, so that its result is there after a reload, too.
  history.replaceState(null, "", one("[data-live-url]").dataset.liveUrl);
  notify(words);
  refreshSoon();
}

const isAnswered = () => question()?.dataset.actionId === answered;

/**
 * Say which answer counts, for as long as the page is there.
 * @param {ApiError} error
 */
function showConflict(error) {
  const note = document.createElement("p");
  note.className = "note danger";
  const { decided } = error;
  const ago = decided?.at ? ` ${span((serverNow() - Date.parse(decided.at)) / 1000)} ago` : "";
  const reason = decided?.reason ? `: ${decided.reason}` : "";
  note.textContent =
    decided?.by && !batch
      ? `Your answer was not recorded: ${decided.by} ${decided.answer} this${ago}${reason}`
      : `Your answer was not recorded. ${error.message}`;
  one("[data-conflict]").replaceChildren(note);
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
  const link = find("[data-next]", HTMLAnchorElement);
  if (link && items().some((item) => item.href === next)) link.href = next;
  if (isAnswered()) {
    const isShown = regions.some((region) => region.matches('[data-question], [data-region="outcome"]'));
    // The result came in the place of what had the focus. The page does not scroll to it.
    if (isShown && document.activeElement === document.body) link?.focus({ preventScroll: true });
    return;
  }
  const changed = regions.find((region) => region.matches("[data-question]"));
  if (!changed) return;
  // A form that a person had open is gone with the question: say so, and have the focus where the answer is.
  notify("This question is not open any more: it was answered, or is void.", "warning");
  const title = one("h2", HTMLElement, changed);
  title.tabIndex = -1;
  if (document.activeElement === document.body) title.focus();
});

enable();
