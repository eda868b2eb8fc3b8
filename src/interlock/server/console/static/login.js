// Signing in with a passkey, where the browser has passkeys.
import { messageOf } from "./base.js";
import { find, one } from "./base.dom.js";
import { canUsePasskeys, usePasskey } from "./base.passkeys.js";

/**
 * @param {string} path
 * @param {unknown} body
 */
async function send(path, body) {
  const headers = { Accept: "application/json", "Content-Type": "application/json" };
  const response = await fetch(path, {
    method: "POST",
    credentials: "same-origin",
    headers,
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer?.error?.message ?? `The server answered ${response.status}.`);
  return answer;
}

const place = find("[data-passkey-sign-in]");
if (place && canUsePasskeys()) {
  place.hidden = false;
  one("button", HTMLButtonElement, place).addEventListener("click", async () => {
    const problem = one("[data-problem]");
    problem.hidden = true;
    try {
      const credential = await usePasskey(await send("/v1/session/passkey/options", {}));
      await send("/v1/session/passkey", { credential });
      location.assign(place.dataset.nextPath ?? "/console/");
    } catch (error) {
      problem.textContent = messageOf(error);
      problem.hidden = false;
    }
  });
}
