// The service worker of push: shows what the server sent, as text, and opens its page. It touches no request.
const INBOX = "/console/inbox";
const worker = /** @type {any} */ (self);

worker.addEventListener("install", () => worker.skipWaiting());
worker.addEventListener("push", (/** @type {any} */ event) => event.waitUntil(showMessage(event)));
worker.addEventListener("notificationclick", (/** @type {any} */ event) => event.waitUntil(openPage(event)));

/** @param {any} event */
async function showMessage(event) {
  let message = { title: "A question waits for an answer", body: "", tag: "unknown", url: "", silent: false };
  try {
    message = { ...message, ...event.data.json() };
  } catch {
    // Whatever it was, something has to be shown.
  }
  await worker.registration.showNotification(message.title, {
    body: message.body,
    tag: message.tag,
    silent: message.silent,
    icon: "/console/static/base.icon.svg",
    data: { url: message.url },
  });
}

/** @param {any} event */
async function openPage(event) {
  event.notification.close();
  const url = pageOf(event.notification.data?.url);
  const pages = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const shown = pages.find((/** @type {any} */ page) => page.url === url);
  return shown ? shown.focus() : worker.clients.openWindow(url);
}

/**
 * A page of this console: never one of another place, whatever the message says.
 * @param {unknown} text
 */
function pageOf(text) {
  try {
    const url = new URL(String(text));
    if (url.origin === worker.location.origin && url.pathname.startsWith("/console/")) return url.href;
  } catch {
    // Not an address.
  }
  return new URL(INBOX, worker.location.origin).href;
}
