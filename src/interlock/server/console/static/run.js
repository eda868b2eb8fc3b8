// The page of a run as a person moves along its timeline. The server draws every part (`run_page.py`); here they are
// fetched and put in place. Where the page stands is one number, `at`; as long as none was chosen, it is the newest.
import { ask, notify, tellTimes } from "./base.js";
import { part as fetched } from "./live.js";

const MAX_ROWS = 1500;
const WINDOW = 200;
const SOON_MS = 70;

const page = document.getElementById("run");
const path = page.dataset.path;
const place = document.getElementById("place");
const where = document.getElementById("where");
const scroll = document.getElementById("events-scroll");
const panels = document.getElementById("panels");
let at = Number(page.dataset.at);
let newest = Number(place.max);
let isFollowing = page.dataset.pinned !== "yes";
let lens = "";
let asked = 0;
let timer = 0;
let growing = Promise.resolve();

const list = () => document.getElementById("events");
const first = () => Number(list().dataset.first);
const last = () => Number(list().dataset.last);

/** A part of the page; null when it is unavailable. */
async function part(url) {
  return (await fetched(url)).page;
}

function adopted(nodes) {
  return [...nodes].map((node) => document.adoptNode(node));
}

// Where the page stands

function go(seq) {
  isFollowing = false;
  moveTo(seq);
  history.replaceState(null, "", `${path}?at=${at}#event-${at}`);
}

function moveTo(seq) {
  at = Math.max(0, Math.min(seq, newest));
  showPlace();
  clearTimeout(timer);
  timer = setTimeout(showState, SOON_MS);
}

function showPlace() {
  place.max = newest;
  place.value = at;
  const words = `Event ${at} of ${newest}`;
  place.setAttribute("aria-valuetext", words);
  where.textContent = words;
  const mark = document.getElementById("newest");
  if (isFollowing) mark.setAttribute("aria-current", "true");
  else mark.removeAttribute("aria-current");
  for (const row of list().querySelectorAll(".event-link[aria-current]")) row.removeAttribute("aria-current");
  const row = document.getElementById(`event-${at}`);
  row?.querySelector(".event-link").setAttribute("aria-current", "true");
  return row;
}

async function showState() {
  const turn = ++asked;
  const [found] = await Promise.all([part(`${path}/parts/at?at=${at}`), showRow()]);
  if (turn !== asked) return;
  if (!found) {
    notify("The server did not answer. What is shown may be old.", "danger");
    return;
  }
  panels.replaceChildren(...adopted(found.body.children));
  tellTimes(panels);
  openLenses();
  const said = [...document.querySelectorAll("#details-title, #details-summary")].map((each) => each.textContent);
  document.getElementById("announced").textContent = said.join(": ");
}

async function showRow() {
  if (!document.getElementById(`event-${at}`)) {
    await growing;
    const wanted = at;
    const found = await part(`${path}/parts/timeline?after=${Math.max(-1, wanted - WINDOW / 2 - 1)}&limit=${WINDOW}`);
    const fresh = found?.getElementById("events");
    if (!fresh || wanted !== at) return;
    list().replaceWith(document.adoptNode(fresh));
    edges();
    showPlace();
  }
  document.getElementById(`event-${at}`)?.scrollIntoView({ block: "nearest" });
}

// Rows

function edges() {
  document.getElementById("earlier").hidden = first() <= 0;
  document.getElementById("later").hidden = last() >= newest;
}

async function earlier() {
  const end = first();
  const start = Math.max(0, end - WINDOW);
  const found = await part(`${path}/parts/timeline?after=${start - 1}&limit=${Math.max(1, end - start)}`);
  const fresh = found?.getElementById("events");
  if (!fresh || first() !== end) return;
  const height = scroll.scrollHeight - scroll.scrollTop;
  list().prepend(...adopted(fresh.children));
  list().dataset.first = start;
  while (list().children.length > MAX_ROWS) list().lastElementChild.remove();
  list().dataset.last = list().lastElementChild.dataset.seq;
  scroll.scrollTop = scroll.scrollHeight - height;
  edges();
  showPlace();
}

async function later() {
  const start = last();
  const found = await part(`${path}/parts/timeline?after=${start}&limit=${WINDOW}`);
  const fresh = found?.getElementById("events");
  if (!fresh || last() !== start || !fresh.children.length) return false;
  const end = fresh.dataset.last;
  list().append(...adopted(fresh.children));
  list().dataset.last = end;
  while (list().children.length > MAX_ROWS) list().firstElementChild.remove();
  list().dataset.first = list().firstElementChild.dataset.seq;
  edges();
  showPlace();
  return true;
}

/** The run went on. Rows are added where the newest ones are shown; a person who reads older ones is not disturbed. */
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

async function openCall(link) {
  const turn = ++asked;
  const name = new URL(link.href).pathname.slice(`${path}/calls/`.length);
  const found = await part(`${path}/parts/calls/${name}`);
  const fresh = found?.getElementById("details");
  if (turn !== asked) return;
  if (!fresh) {
    notify("The server did not answer. What is shown may be old.", "danger");
    return;
  }
  isFollowing = false;
  showPlace();
  document.getElementById("details").replaceWith(document.adoptNode(fresh));
  tellTimes(panels);
  history.pushState(null, "", link.href);
  openLenses();
  const title = document.getElementById("details-title");
  title.tabIndex = -1;
  title.focus();
}

function openLenses() {
  const details = document.getElementById("details");
  const tabs = details?.querySelector('[role="tablist"]');
  if (!tabs) return;
  tabs.hidden = false;
  details.classList.add("has-tabs");
  for (const panel of details.querySelectorAll(".lens")) {
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", panel.id.replace("lens-", "tab-"));
  }
  chooseLens(lens || details.dataset.lens, false);
}

function chooseLens(name, isFocused) {
  for (const tab of document.querySelectorAll('#details [role="tab"]')) {
    const isChosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !isChosen;
    if (isChosen && isFocused) tab.focus();
  }
}

function stepLens(tab, by) {
  const tabs = [...tab.parentElement.children];
  const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length];
  lens = next.id.slice("tab-".length);
  chooseLens(lens, true);
}

// What people do

async function copy(button) {
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied.");
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    notify("Selected. Copy it with the keyboard.", "warning");
  }
}

async function cancel(dialog) {
  const problem = document.getElementById("cancel-problem");
  problem.textContent = "";
  try {
    await ask("POST", `/runs/${encodeURIComponent(page.dataset.run)}/cancel`, {
      reason: document.getElementById("cancel-reason").value,
    });
    dialog.close();
    notify("The run is cancelled.");
  } catch (error) {
    problem.textContent = error.message;
  }
}

function clicked(event) {
  const target = event.target.closest("a, button");
  if (!target || event.ctrlKey || event.metaKey || event.shiftKey || event.button > 0) return;
  const step = target.dataset.step;
  if (target.matches('[role="tab"]')) {
    lens = target.id.slice("tab-".length);
    chooseLens(lens, false);
  } else if (target.matches(".event-link")) {
    event.preventDefault();
    go(Number(target.closest(".event").dataset.seq));
  } else if ("at" in target.dataset) {
    event.preventDefault();
    go(Number(target.dataset.at));
  } else if ("call" in target.dataset) {
    event.preventDefault();
    openCall(target);
  } else if (step) {
    event.preventDefault();
    go(at + Number(step));
  } else if (target.id === "newest") {
    event.preventDefault();
    isFollowing = true;
    history.replaceState(null, "", path);
    moveTo(newest);
  } else if (target.closest("#earlier")) {
    event.preventDefault();
    growing = growing.then(earlier);
  } else if (target.closest("#later")) {
    event.preventDefault();
    growing = growing.then(later);
  } else if ("copy" in target.dataset) {
    copy(target);
  } else if ("cancel" in target.dataset) {
    document.getElementById("cancel").showModal();
  } else if ("close" in target.dataset) {
    target.closest("dialog").close();
  } else if ("confirm" in target.dataset) {
    event.preventDefault();
    cancel(target.closest("dialog"));
  }
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const target = event.target;
  if (target.matches('[role="tab"]')) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by) {
      event.preventDefault();
      stepLens(target, by);
      return;
    }
  }
  if (target.closest("input, textarea, select, [contenteditable]")) return;
  const isInTimeline = target.closest("#events-scroll") !== null;
  const by = { j: 1, k: -1, ...(isInTimeline ? { ArrowDown: 1, ArrowUp: -1 } : {}) }[event.key];
  if (!by) return;
  event.preventDefault();
  go(at + by);
  if (isInTimeline) document.getElementById(`event-${at}`)?.querySelector(".event-link").focus({ preventScroll: true });
}

page.addEventListener("click", clicked);
document.addEventListener("keydown", pressed);
place.addEventListener("input", () => go(Number(place.value)));
document.getElementById("scrubber").addEventListener("submit", (event) => event.preventDefault());
addEventListener("popstate", () => location.reload());
document.addEventListener("interlock:replaced", () => {
  const version = document.querySelector('[data-region="run-head"]').dataset.version;
  growing = growing.then(() => grow(Number(version.split(".")[0])));
});

openLenses();
tellTimes(page);
const named = /^#event-(\d+)$/.exec(location.hash);
if (named && isFollowing) go(Number(named[1]));
else if (isFollowing) scroll.scrollTop = scroll.scrollHeight;
else document.getElementById(`event-${at}`)?.scrollIntoView({ block: "nearest" });
