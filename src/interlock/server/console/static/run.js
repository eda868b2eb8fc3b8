// The page of a run as a person moves along its timeline. The server draws every part (`pages/run.py`); here they are
// fetched and put in place. Where the page stands is one number, `at`; as long as none was chosen, it is the newest.
import { notify, tellTimes } from "./base.js";
import { byId, closest, find, findAll, one } from "./base.dom.js";
import { onReplaced, part as fetched } from "./live.js";

const MAX_ROWS = 1500;
const WINDOW = 200;
const SOON_MS = 70;
/** @type {Record<string, Record<string, number>>} */
const STEPS = {
  page: { j: 1, k: -1 },
  timeline: { ArrowDown: 1, ArrowUp: -1 },
  tab: { ArrowRight: 1, ArrowLeft: -1 },
};

const page = byId("run");
const path = page.dataset.path ?? "";
const place = byId("place", HTMLInputElement);
const scroll = byId("events-scroll");
const panels = byId("panels");
let at = Number(page.dataset.at);
let newest = Number(place.max);
let isFollowing = page.dataset.pinned !== "yes";
let lens = "";
let asked = 0;
let timer = 0;
/** @type {Promise<unknown>} */
let growing = Promise.resolve();

const list = () => byId("events");
const row = () => find(`#event-${at}`);
const first = () => Number(list().dataset.first);
const last = () => Number(list().dataset.last);

/**
 * A part of the page; null when it is unavailable.
 * @param {string} url
 */
async function part(url) {
  return (await fetched(url)).page;
}

/** @param {HTMLCollection} nodes */
function adopted(nodes) {
  return [...nodes].map((node) => document.adoptNode(node));
}

// Where the page stands

/** @param {number} seq */
function go(seq) {
  isFollowing = false;
  moveTo(seq);
  history.replaceState(null, "", `${path}?at=${at}#event-${at}`);
}

/** @param {number} seq */
function moveTo(seq) {
  at = Math.max(0, Math.min(seq, newest));
  showPlace();
  clearTimeout(timer);
  timer = setTimeout(showState, SOON_MS);
}

function showPlace() {
  place.max = String(newest);
  place.value = String(at);
  const words = `Event ${at} of ${newest}`;
  place.setAttribute("aria-valuetext", words);
  byId("where").textContent = words;
  const mark = byId("newest");
  if (isFollowing) mark.setAttribute("aria-current", "true");
  else mark.removeAttribute("aria-current");
  for (const link of findAll(".event-link[aria-current]", HTMLElement, list())) link.removeAttribute("aria-current");
  find(`#event-${at} .event-link`)?.setAttribute("aria-current", "true");
}

async function showState() {
  const turn = ++asked;
  const [fresh] = await Promise.all([part(`${path}/parts/at?at=${at}`), showRow()]);
  if (turn !== asked) return;
  if (!fresh) {
    notify("The server did not answer. What is shown may be old.", "danger");
    return;
  }
  panels.replaceChildren(...adopted(fresh.body.children));
  tellTimes(panels);
  openLenses();
  const said = findAll("#details-title, #details-summary").map((each) => each.textContent);
  byId("announced").textContent = said.join(": ");
}

async function showRow() {
  if (!row()) {
    await growing;
    const wanted = at;
    const fresh = await events(Math.max(-1, wanted - WINDOW / 2 - 1), WINDOW);
    if (!fresh || wanted !== at) return;
    list().replaceWith(document.adoptNode(fresh));
    edges();
    showPlace();
  }
  row()?.scrollIntoView({ block: "nearest" });
}

// Rows

/**
 * The rows after an event; null when they are unavailable.
 * @param {number} after
 * @param {number} limit
 */
async function events(after, limit) {
  return (await part(`${path}/parts/timeline?after=${after}&limit=${limit}`))?.getElementById("events");
}

function edges() {
  byId("earlier").hidden = first() <= 0;
  byId("later").hidden = last() >= newest;
}

async function earlier() {
  const end = first();
  const start = Math.max(0, end - WINDOW);
  const fresh = await events(start - 1, Math.max(1, end - start));
  if (!fresh || first() !== end) return;
  const height = scroll.scrollHeight - scroll.scrollTop;
  list().prepend(...adopted(fresh.children));
  list().dataset.first = String(start);
  while (list().children.length > MAX_ROWS) list().lastElementChild?.remove();
  list().dataset.last = one("#events > :last-child").dataset.seq;
  scroll.scrollTop = scroll.scrollHeight - height;
  edges();
  showPlace();
}

async function later() {
  const start = last();
  const fresh = await events(start, WINDOW);
  if (!fresh || last() !== start || !fresh.children.length) return false;
  const end = fresh.dataset.last;
  list().append(...adopted(fresh.children));
  list().dataset.last = end;
  while (list().children.length > MAX_ROWS) list().firstElementChild?.remove();
  list().dataset.first = one("#events > :first-child").dataset.seq;
  edges();
  showPlace();
  return true;
}

/**
 * The run went on. Rows are added where the newest ones are shown; a person who reads older ones is not disturbed.
 * @param {number} to
 */
async function grow(to) {
  if (to <= newest) return;
  const wasAtEnd = last() >= newest;
  const isAtBottom = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
  newest = to;
  if (wasAtEnd) while (last() < newest && newest - last() <= MAX_ROWS && (await later()));
  if (isFollowing) {
    moveTo(newest);
    if (isAtBottom) scroll.scrollTop = scroll.scrollHeight;
  } else {
    showPlace();
  }
  edges();
}

// Calls

/** @param {HTMLAnchorElement} link */
async function openCall(link) {
  const turn = ++asked;
  const name = new URL(link.href).pathname.slice(`${path}/calls/`.length);
  const fresh = (await part(`${path}/parts/calls/${name}`))?.getElementById("details");
  if (turn !== asked) return;
  if (!fresh) {
    notify("The server did not answer. What is shown may be old.", "danger");
    return;
  }
  isFollowing = false;
  showPlace();
  byId("details").replaceWith(document.adoptNode(fresh));
  tellTimes(panels);
  history.pushState(null, "", link.href);
  openLenses();
  const title = byId("details-title");
  title.tabIndex = -1;
  title.focus();
}

function openLenses() {
  const details = find("#details");
  const tabs = details && find('[role="tablist"]', HTMLElement, details);
  if (!tabs) return;
  tabs.hidden = false;
  details.classList.add("has-tabs");
  for (const panel of details.querySelectorAll(".lens")) {
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", panel.id.replace("lens-", "tab-"));
  }
  chooseLens(lens || (details.dataset.lens ?? ""), false);
}

/** @param {string} name @param {boolean} isFocused */
function chooseLens(name, isFocused) {
  for (const tab of findAll('#details [role="tab"]')) {
    const isChosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls") ?? "").hidden = !isChosen;
    if (isChosen && isFocused) tab.focus();
  }
}

/** @param {HTMLElement} tab @param {number} by */
function stepLens(tab, by) {
  const tabs = findAll('#details [role="tab"]');
  const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
  lens = next.id.slice("tab-".length);
  chooseLens(lens, true);
}

// What people do

/** @param {HTMLElement} button */
async function copy(button) {
  const text = byId(button.dataset.copy ?? "");
  try {
    await navigator.clipboard.writeText(text.textContent);
    notify("Copied.");
  } catch {
    getSelection()?.selectAllChildren(text);
    notify("Selected. Copy it with the keyboard.", "warning");
  }
}

/** @param {MouseEvent} event */
function clicked(event) {
  const target = closest(event, "a, button");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.button > 0) return;
  const step = target.dataset.step;
  if (target.matches('[role="tab"]')) {
    lens = target.id.slice("tab-".length);
    chooseLens(lens, false);
  } else if (target.matches(".event-link")) {
    event.preventDefault();
    go(Number(closest(event, ".event")?.dataset.seq));
  } else if ("at" in target.dataset) {
    event.preventDefault();
    go(Number(target.dataset.at));
  } else if (target instanceof HTMLAnchorElement && "call" in target.dataset) {
    event.preventDefault();
    openCall(target);
  } else if (step) {
    event.preventDefault();
    go(at + Number(step));
  } else if (target.id === "newest") {
    event.preventDefault();
    isFollowing = true;
    history.replaceState(null, "", `${path}?view=events`);
    moveTo(newest);
  } else if (target.closest("#earlier")) {
    event.preventDefault();
    growing = growing.then(earlier);
  } else if (target.closest("#later")) {
    event.preventDefault();
    growing = growing.then(later);
  } else if ("copy" in target.dataset) {
    copy(target);
  }
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const tab = closest(event, '[role="tab"]');
  const step = STEPS.tab[event.key];
  if (tab && step) {
    event.preventDefault();
    stepLens(tab, step);
    return;
  }
  if (closest(event, "input, textarea, select, [contenteditable]")) return;
  const isInTimeline = closest(event, "#events-scroll") !== null;
  const by = STEPS.page[event.key] ?? (isInTimeline ? STEPS.timeline[event.key] : 0);
  if (!by) return;
  event.preventDefault();
  go(at + by);
  if (isInTimeline) find(`#event-${at} .event-link`)?.focus({ preventScroll: true });
}

page.addEventListener("click", clicked);
document.addEventListener("keydown", pressed);
place.addEventListener("input", () => go(Number(place.value)));
byId("scrubber").addEventListener("submit", (event) => event.preventDefault());
addEventListener("popstate", () => location.reload());
onReplaced(() => {
  const version = one('[data-region="run-head"]').dataset.version ?? "";
  growing = growing.then(() => grow(Number(version.split(".")[0])));
});

openLenses();
tellTimes(page);
const named = /^#event-(\d+)$/.exec(location.hash);
if (named && isFollowing) go(Number(named[1]));
else if (isFollowing) scroll.scrollTop = scroll.scrollHeight;
else row()?.scrollIntoView({ block: "nearest" });
