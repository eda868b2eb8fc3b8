// The page as it is now. One stream reports that something happened; then the page is fetched again, and the parts that
// say so (`data-region`) are put in the place of the old ones. So there is one way in which anything is drawn, which is
// the server's, and after a connection that broke nothing can be missed: the first thing is to look again.
//
// Parts are parsed by the browser as a document of their own (XMLHttpRequest), in which nothing runs.
import { byId, find, findAll, meta, one } from "./base.dom.js";

const EVENTS = meta("live-events").split(" ").filter(Boolean);
const WAIT_MS = 250;
const RETRY_MS = [500, 1000, 2000, 4000, 8000, 15000];
const LATER_MS = 2000;
// A page that takes long to fetch is fetched less often.
const REST = 4;
const TYPED = 'input:not([type="hidden"], [type="search"], [type="range"]), textarea';

let position = meta("live-after");
/** @type {EventSource | undefined} */
let source;
let tries = 0;
let timer = 0;
let busy = false;
let took = 0;
let again = false;
/** @type {((regions: HTMLElement[]) => void)[]} */
const listeners = [];

/**
 * Call it with the parts that were replaced, each time that some were.
 * @param {(regions: HTMLElement[]) => void} listener
 */
export const onReplaced = (listener) => listeners.push(listener);

export function start() {
  if (!position) return;
  connect();
  addEventListener("pagehide", () => source?.close());
  addEventListener("pageshow", (event) => {
    if (event.persisted) connect();
  });
  // After a sleep a connection may be dead without saying so.
  addEventListener("online", lookAgain);
  document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && lookAgain());
}

function lookAgain() {
  if (source?.readyState !== EventSource.OPEN) connect();
  refreshSoon();
}

/** Look again soon; many requests at once are one. */
export function refreshSoon() {
  if (!timer) timer = setTimeout(refresh, Math.max(WAIT_MS, took * REST));
}

function connect() {
  source?.close();
  const opened = new EventSource(`/v1/events/stream?after=${encodeURIComponent(position)}`);
  source = opened;
  opened.onopen = () => {
    say("on", "live");
    if (tries) refreshSoon();
    tries = 0;
  };
  opened.onerror = () => {
    opened.close();
    say("again", "reconnecting");
    setTimeout(connect, RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]);
    // Without a stream the page is still looked at again, if rarely; and a person who is signed out finds out.
    if (tries > 2) refreshSoon();
  };
  for (const name of EVENTS) opened.addEventListener(name, heard);
}

/** @param {MessageEvent} event */
function heard(event) {
  if (event.lastEventId) position = event.lastEventId;
  if (document.querySelector("[data-region]")) refreshSoon();
}

/** @param {string} state @param {string} words */
function say(state, words) {
  const mark = find("#live");
  if (!mark) return;
  mark.dataset.state = state;
  one(".words", HTMLElement, mark).textContent = words;
}

async function refresh() {
  timer = 0;
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const begun = performance.now();
    const now = await current();
    if (now) replace(now);
    took = performance.now() - begun;
  } finally {
    busy = false;
    if (again) {
      again = false;
      refreshSoon();
    }
  }
}

/** The page as it is now, for the person that this page is for; null when it is unavailable. Its forms are good again. */
async function current() {
  // A page may show something that its address does not name: it says which address would.
  const { status, page, isSignedOut } = await part(find("[data-live-url]")?.dataset.liveUrl ?? location.href);
  if (isSignedOut) {
    lost("Your sign-in ended. What you wrote stays here: sign in again, come back, and send it.");
    return null;
  }
  if (!page) {
    if (status === 0 || status === 429 || status >= 500) setTimeout(refreshSoon, LATER_MS);
    return null;
  }
  if (meta("me", page) !== meta("me")) {
    lost(`Another person is signed in in this browser now. What you wrote was for ${meta("me")}; load the page again.`);
    return null;
  }
  document.getElementById("lost")?.remove();
  renewForms(meta("csrf-token", page));
  return page;
}

/** Get a new token for forms after signing in again; false when that cannot be. */
export async function renew() {
  return (await current()) !== null;
}

/** @param {string} token */
function renewForms(token) {
  one('meta[name="csrf-token"]', HTMLMetaElement).content = token;
  for (const field of findAll('input[name="csrf_token"]', HTMLInputElement)) field.value = token;
}

/**
 * This page can do nothing any more. Nothing that a person typed is thrown away.
 * @param {string} words
 */
export function lost(words) {
  const fields = [...findAll(TYPED, HTMLInputElement), ...findAll(TYPED, HTMLTextAreaElement)];
  const isTyping = fields.some((field) => field.value !== field.defaultValue);
  if (!isTyping && !document.querySelector("dialog[open]")) {
    location.reload();
    return;
  }
  if (document.getElementById("lost")) return;
  const note = document.createElement("p");
  const link = document.createElement("a");
  note.id = "lost";
  note.className = "note danger";
  note.setAttribute("role", "alert");
  Object.assign(link, {
    href: "/console/login",
    target: "_blank",
    rel: "noopener",
    textContent: "Sign in, in another tab",
  });
  note.append(`${words} `, link);
  // Over a dialog nothing else can be reached.
  (find("dialog[open]") ?? byId("notices")).append(note);
}

/**
 * Something of the server, parsed by the browser as a document in which nothing runs.
 * @param {string} url
 * @returns {Promise<{ status: number, page: Document | null, isSignedOut: boolean }>}
 */
export function part(url) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("GET", url);
    request.responseType = "document";
    request.onloadend = () => {
      const came = request.responseURL ? new URL(request.responseURL).pathname : "";
      const isThere = request.status === 200 && came === new URL(url, location.href).pathname;
      resolve({
        status: request.status,
        page: isThere ? request.responseXML : null,
        isSignedOut: came === "/console/login",
      });
    };
    request.send();
  });
}

/** @param {Document} now */
function replace(now) {
  const changed = [];
  for (const old of findAll("[data-region]")) {
    const fresh = find(`[data-region="${CSS.escape(old.dataset.region ?? "")}"]`, HTMLElement, now);
    if (!fresh || fresh.dataset.version === old.dataset.version) continue;
    const isKeyed = fresh.querySelector("[data-key]") !== null && old.querySelector("[data-key]") !== null;
    if (isKeyed) {
      old.dataset.version = fresh.dataset.version;
      replaceRows(old, fresh);
      changed.push(old);
    } else {
      // All of it: what a part shows, and what its attributes say that it is about, belong together.
      changed.push(document.adoptNode(fresh));
      old.replaceWith(fresh);
    }
  }
  if (changed.length) {
    for (const listener of listeners) listener(changed);
  }
}

/**
 * Rows keep their place, their focus and what was done to them, unless they are another one now.
 * @param {HTMLElement} old
 * @param {HTMLElement} fresh
 */
function replaceRows(old, fresh) {
  const known = new Map(findAll("[data-key]", HTMLElement, old).map((row) => [row.dataset.key, row]));
  const focused = [...known.values()].find((row) => row.contains(document.activeElement))?.dataset.key;
  const rows = findAll("[data-key]", HTMLElement, fresh).map((row) => {
    const same = known.get(row.dataset.key);
    if (same && same.dataset.version === row.dataset.version) return same;
    const made = document.adoptNode(row);
    made.classList.add("fresh");
    return made;
  });
  const holder = one("[data-key]", HTMLElement, old).parentElement ?? old;
  rows.forEach((row, at) => {
    if (holder.children[at] !== row) holder.insertBefore(row, holder.children[at] ?? null);
  });
  while (holder.children.length > rows.length) holder.lastElementChild?.remove();
  if (focused && !old.contains(document.activeElement)) {
    const row = find(`[data-key="${CSS.escape(focused)}"]`, HTMLElement, old);
    (row?.matches("a, button") ? row : row && find("a, button", HTMLElement, row))?.focus();
  }
}
