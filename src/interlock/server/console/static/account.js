// One's own account: every change goes to the API, which decides and records it.
import { ask, messageOf, notify } from "./base.js";
import { closest, find, valueOf } from "./base.dom.js";
import { problem } from "./base.dialogs.js";

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

document.addEventListener("click", async (event) => {
  const session = closest(event, "[data-end-session]", HTMLButtonElement);
  const others = closest(event, "[data-end-others]", HTMLButtonElement);
  if (!session && !others) return;
  try {
    await ask("DELETE", session ? `/me/sessions/${session.dataset.endSession}` : "/me/sessions");
    location.reload();
  } catch (error) {
    notify(messageOf(error), "danger");
  }
});
