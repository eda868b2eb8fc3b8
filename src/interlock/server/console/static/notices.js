// Push in this browser, on or off, and the channels that a person wants. What is chosen goes to the API.
import { ask, messageOf, notify } from "./base.js";
import { find, findAll, closest, meta, one } from "./base.dom.js";

const WORKER = "/console/static/notices.worker.js";
const ID_CHARS = 24;
const part = one("[data-own-notices]");
const push = find("[data-push]");

/** @param {Uint8Array} bytes */
const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} text */
const bytesOf = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

/**
 * The id that the server has for a subscription of this person.
 * @param {PushSubscription} subscription
 */
async function idOf(subscription) {
  const text = `${meta("me").replace(/^user:/, "")}\n${subscription.endpoint}`;
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
  return hex(new Uint8Array(digest)).slice(0, ID_CHARS);
}

/** The address of the worker, as the page's policy wants it: nothing else can become one. */
function workerUrl() {
  const types = /** @type {any} */ (window).trustedTypes;
  const policy = types?.createPolicy("interlock-worker", { createScriptURL: () => WORKER });
  return policy ? policy.createScriptURL("") : WORKER;
}

/** @returns {Promise<ServiceWorkerRegistration>} */
async function register() {
  const registration = await navigator.serviceWorker.register(workerUrl());
  const starting = registration.installing ?? registration.waiting;
  if (!registration.active && starting)
    await new Promise((resolve) =>
      starting.addEventListener("statechange", () => starting.state === "activated" && resolve(null)),
    );
  return registration;
}

/** @returns {Promise<PushSubscription | null>} The subscription of this browser that the server knows as this person's. */
async function findOwn() {
  const registration = await navigator.serviceWorker.getRegistration(WORKER);
  const subscription = (await registration?.pushManager.getSubscription()) ?? null;
  if (!subscription) return null;
  const row = find(`[data-browser="${await idOf(subscription)}"]`, HTMLTableRowElement, part);
  if (!row || !hasKey(subscription)) return null;
  one("[data-this]", HTMLElement, row).hidden = false;
  return subscription;
}

/** @param {PushSubscription} subscription */
function hasKey(subscription) {
  const key = subscription.options.applicationServerKey;
  return key !== null && hex(new Uint8Array(key)) === hex(bytesOf(part.dataset.key ?? ""));
}

async function switchOn() {
  if ((await Notification.requestPermission()) !== "granted")
    throw new Error("The browser does not allow notifications of this page. Allow them in its settings.");
  const { pushManager } = await register();
  const before = await pushManager.getSubscription();
  if (before && !hasKey(before)) await before.unsubscribe();
  const applicationServerKey = bytesOf(part.dataset.key ?? "");
  const subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  const { endpoint, keys } = subscription.toJSON();
  try {
    await ask("POST", "/me/notices/browsers", { channel: part.dataset.channel, endpoint, keys });
  } catch (error) {
    await subscription.unsubscribe();
    throw error;
  }
  location.reload();
}

/** @param {PushSubscription} subscription */
async function switchOff(subscription) {
  await ask("DELETE", `/me/notices/browsers/${await idOf(subscription)}`);
  await subscription.unsubscribe();
  location.reload();
}

/** @param {PushSubscription} subscription */
async function test(subscription) {
  const { problem } = await ask("POST", `/me/notices/browsers/${await idOf(subscription)}/test`);
  if (problem) throw new Error(problem);
  notify("The push service took the test.");
}

/** Why push cannot be used here; empty: it can. */
function obstacle() {
  if (!isSecureContext) return "Push needs https.";
  if (!("serviceWorker" in navigator) || !("PushManager" in window) || !("Notification" in window))
    return "This browser cannot get push. On an iPhone or iPad, add this page to the home screen first.";
  return Notification.permission === "denied" ? "Notifications of this page are blocked in this browser." : "";
}

/** @param {HTMLElement} root */
async function showPush(root) {
  const words = obstacle();
  const subscription = words ? null : await findOwn();
  const say = one("[data-push-state]", HTMLElement, root);
  say.textContent = words || (subscription ? "On. Questions that you may answer reach you here." : "Off.");
  const problem = one("[data-push-problem]", HTMLElement, root);
  /** @type {[string, boolean, () => Promise<void>][]} */
  const buttons = [
    ["[data-push-on]", !words && !subscription, switchOn],
    ["[data-push-off]", subscription !== null, async () => subscription && switchOff(subscription)],
    ["[data-push-test]", subscription !== null, async () => subscription && test(subscription)],
  ].map((row) => /** @type {any} */ (row));
  for (const [selector, isShown, work] of buttons) {
    const button = one(selector, HTMLButtonElement, root);
    button.hidden = !isShown;
    button.addEventListener("click", async () => {
      button.disabled = problem.hidden = true;
      await work().catch((error) => {
        problem.textContent = messageOf(error);
        problem.hidden = false;
      });
      button.disabled = false;
    });
  }
}

document.addEventListener("click", async (event) => {
  const id = closest(event, "[data-remove]", HTMLButtonElement)?.dataset.remove;
  if (!id) return;
  try {
    await ask("DELETE", `/me/notices/browsers/${encodeURIComponent(id)}`);
    location.reload();
  } catch (error) {
    notify(messageOf(error), "danger");
  }
});

for (const box of findAll("input[data-mute]", HTMLInputElement, part))
  box.addEventListener("change", async () => {
    const name = box.dataset.mute ?? "";
    try {
      await ask("PUT", `/me/notices/channels/${encodeURIComponent(name)}`, { is_muted: !box.checked });
      notify(box.checked ? `Notices by ${name} are on.` : `Notices by ${name} are off.`);
    } catch (error) {
      box.checked = !box.checked;
      notify(messageOf(error), "danger");
    }
  });

if (push) await showPush(push);
part.dataset.ready = "";
