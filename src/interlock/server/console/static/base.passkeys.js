// Passkeys: what the server sends as JSON, as the browser's API wants it, and back.

/** @param {string} text */
function toBytes(text) {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (letter) => letter.charCodeAt(0));
}

/** @param {ArrayBuffer} buffer */
function toText(buffer) {
  const binary = String.fromCharCode(...new Uint8Array(buffer));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export const canUsePasskeys = () => "PublicKeyCredential" in window && isSecureContext;

/**
 * Make a passkey. Return it as JSON.
 * @param {any} options
 */
export async function createPasskey(options) {
  const made = await navigator.credentials.create({
    publicKey: {
      ...options,
      challenge: toBytes(options.challenge),
      user: { ...options.user, id: toBytes(options.user.id) },
      excludeCredentials: (options.excludeCredentials ?? []).map((/** @type {any} */ each) => ({
        ...each,
        id: toBytes(each.id),
      })),
    },
  });
  const credential = required(made);
  const response = /** @type {AuthenticatorAttestationResponse} */ (credential.response);
  return describe(credential, {
    clientDataJSON: toText(response.clientDataJSON),
    attestationObject: toText(response.attestationObject),
  });
}

/**
 * Let a passkey answer. Return the answer as JSON.
 * @param {any} options
 */
export async function usePasskey(options) {
  const found = await navigator.credentials.get({
    publicKey: { ...options, challenge: toBytes(options.challenge), allowCredentials: [] },
  });
  const credential = required(found);
  const response = /** @type {AuthenticatorAssertionResponse} */ (credential.response);
  return describe(credential, {
    clientDataJSON: toText(response.clientDataJSON),
    authenticatorData: toText(response.authenticatorData),
    signature: toText(response.signature),
    userHandle: response.userHandle && toText(response.userHandle),
  });
}

/** @param {Credential | null} found */
function required(found) {
  if (found instanceof PublicKeyCredential) return found;
  throw new Error("The browser gave no passkey.");
}

/**
 * @param {PublicKeyCredential} credential
 * @param {Record<string, string | null>} response
 */
function describe(credential, response) {
  return { id: credential.id, rawId: toText(credential.rawId), type: credential.type, response };
}
