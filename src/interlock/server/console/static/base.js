// What every page has: words for times, the theme, the menu, and the way to the API.
import { byId, closest, find, findAll, meta } from "./base.dom.js";
import { lost, onReplaced, renew, start } from "./live.js";

const SIGNED_OUT = "Your sign-in ended. Nothing was done. Sign in again in another tab, come back, and send it again.";
const NO_ANSWER =
  "The server did not answer, so it is not known whether this was done. Sending it again does nothing twice.";
// The server's clock counts: a browser's may be wrong.
const AHEAD_MS = Date.parse(meta("now")) - Date.now() || 0;
// The page's own way here takes time, too.
const MAX_DRIFT_MS = 5000;
/** @type {[string, number][]} */
const STEPS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

/**
 * Seconds in two words at most: 3 h 12 min.
 * @param {number} seconds
 */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const at = STEPS.findIndex(([, size]) => whole >= size);
  if (at < 0) return "0 s";
  const [unit, size] = STEPS[at];
  const words = `${Math.floor(whole / size)} ${unit}`;
  const next = STEPS[at + 1];
  if (at > 1 || !next) return words;
  const rest = Math.floor((whole % size) / next[1]);
  return rest ? `${words} ${rest} ${next[0]}` : words;
}

/** Milliseconds since 1970, at the server. */
export const serverNow = () => Date.now() + (Math.abs(AHEAD_MS) > MAX_DRIFT_MS ? AHEAD_MS : 0);

/** @param {ParentNode} root */
export function tellTimes(root = document) {
  for (const time of findAll("time[data-local]", HTMLTimeElement, root)) showLocal(time);
  const now = serverNow() / 1000;
  for (const time of findAll("time[data-ago], time[data-left]", HTMLTimeElement, root)) {
    const at = Date.parse(time.dateTime) / 1000;
    const words = "ago" in time.dataset ? ago(now - at) : at > now ? `in ${span(at - now)}` : "over";
    if (time.textContent !== words) time.textContent = words;
    if (!time.dataset.utc) {
      time.dataset.utc = time.title;
      time.title = `${local(time)} (${time.dataset.utc})`;
    }
  }
}

/**
 * The server writes UTC, which stays as the title.
 * @param {HTMLTimeElement} time
 */
function showLocal(time) {
  const words = local(time);
  if (time.textContent !== words) time.textContent = words;
}

/** @param {HTMLTimeElement} time */
function local(time) {
  const at = new Date(time.dateTime);
  return Number.isNaN(at.valueOf())
    ? time.title
    : at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** @param {number} seconds */
function ago(seconds) {
  return seconds < 5 ? "just now" : `${span(seconds)} ago`;
}

/** @typedef {{ answer: string, by: string, reason: string, at: string | null }} Decided The answer that counts. */

/** What the API answered that is not a success: its words, and what they are about. */
export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {number} status
   * @param {{ fields?: { field: string, problem: string }[], decided?: Decided }} details
   */
  constructor(message, status, details) {
    super(message);
    this.status = status;
    this.fields = details.fields ?? [];
    this.decided = details.decided;
  }
}

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Ask the API, at a path below its version. Return what it answers, or throw an `ApiError`.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {Record<string, string>} headers
 * @returns {Promise<any>}
 */
export async function ask(method, path, body, headers = {}) {
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let [response, answer] = await sent(method, path, text, headers);
  // Signed in again, in another tab, as the same person: this page's token is that of the sign-in before.
  if (answer?.error?.code === "csrf" && (await renew())) [response, answer] = await sent(method, path, text, headers);
  if (response.ok) return answer;
  if (response.status === 401) lost("What you wrote stays here.");
  const words = response.status === 401 ? SIGNED_OUT : answer?.error?.message;
  throw new ApiError(
    words ?? `The server answered ${response.status}. Nothing is known to be done.`,
    response.status,
    answer?.error?.details ?? {},
  );
}

/**
 * @param {string} method
 * @param {string} path
 * @param {string | undefined} body
 * @param {Record<string, string>} headers
 * @returns {Promise<[Response, any]>}
 */
async function sent(method, path, body, headers) {
  const response = await fetch(`/v1${path}`, {
    method,
    credentials: "same-origin",
    redirect: "error",
    headers: {
      Accept: "application/json",
      "Content-Type": "application/json",
      "X-CSRF-Token": meta("csrf-token"),
      ...headers,
    },
    body,
  }).catch(() => {
    throw new Error(NO_ANSWER);
  });
  return [response, response.status === 204 ? null : await response.json().catch(() => null)];
}

/**
 * Say something at the edge of the page, also to those who only listen.
 * @param {string} words
 */
export function notify(words, tone = "success") {
  const note = document.createElement("p");
  note.className = `note ${tone}`;
  note.textContent = words;
  const notices = byId("notices");
  // A page that is replaced twice says the same twice: it is shown once.
  for (const shown of [...notices.children]) if (shown.textContent === words) shown.remove();
  notices.append(note);
  setTimeout(() => note.remove(), 8000);
}

function theme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // It holds for this page only.
  }
}

document.addEventListener("click", (event) => {
  if (closest(event, "[data-theme-toggle]")) theme();
  const inside = closest(event, "details[data-menu]");
  for (const menu of findAll("details[data-menu][open]", HTMLDetailsElement)) {
    if (menu !== inside) menu.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  const menu = find("details[data-menu][open]", HTMLDetailsElement);
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary")?.focus();
});

/** On a phone the menu is wider than the screen. Not by scrollIntoView, after which Tab would begin there. */
function showHere() {
  const side = find(".side");
  const here = side && find("[aria-current]", HTMLElement, side);
  if (here) side.scrollLeft = here.offsetLeft + here.offsetWidth - side.clientWidth;
}

showHere();
tellTimes();
setInterval(tellTimes, 1000);
onReplaced((regions) => regions.forEach((region) => tellTimes(region)));
start();
