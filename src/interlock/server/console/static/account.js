// One's own account: every change goes to the API, which decides and records it.
import { ask, messageOf, notify } from "./base.js";
import { closest, find, valueOf } from "./base.dom.js";
import { dialogs, problem } from "./base.dialogs.js";
import { createPasskey } from "./base.passkeys.js";

dialogs();

const password = find("[data-password]", HTMLFormElement);
password?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await ask("POST", "/me/password", { current: valueOf(password, "current"), new: valueOf(password, "new") });
    location.assign("/console/login");
  } catch (error) {
    problem(password, error);
  }
});

const passkey = find("[data-new-passkey]", HTMLFormElement);
passkey?.addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const options = await ask("POST", "/me/passkeys/options", { password: valueOf(passkey, "password") });
    await ask("POST", "/me/passkeys", { name: valueOf(passkey, "name"), credential: await createPasskey(options) });
    location.reload();
  } catch (error) {
    problem(passkey, error);
  }
});

/** @param {Event} event */
function pathOf(event) {
  if (closest(event, "[data-end-others]")) return "/me/sessions";
  const session = closest(event, "[data-end-session]")?.dataset.endSession;
  const removed = closest(event, "[data-remove-passkey]")?.dataset.removePasskey;
  return session ? `/me/sessions/${session}` : removed ? `/me/passkeys/${encodeURIComponent(removed)}` : "";
}

document.addEventListener("click", async (event) => {
  const path = pathOf(event);
  if (!path) return;
  try {
    await ask("DELETE", path);
    location.reload();
  } catch (error) {
    notify(messageOf(error), "danger");
  }
});
