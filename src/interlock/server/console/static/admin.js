// Accounts and keys: every change goes to the API, which decides and writes it down.
import { ask } from "./base.js";
import { byId, closest, find, findAll, one, valueOf } from "./base.dom.js";
import { dialogs, problem } from "./base.dialogs.js";

dialogs();

const MS_PER_DAY = 86_400_000;
let target = "";

/** @param {string} id */
const dialog = (id) => byId(id, HTMLDialogElement);
/** @param {HTMLFormElement} form @param {string} name */
const input = (form, name) => one(`input[name="${name}"]`, HTMLInputElement, form);

/** @param {HTMLFormElement} form */
function trust(form) {
  const agents = valueOf(form, "agents")
    .split(",")
    .map((name) => name.trim())
    .filter(Boolean);
  const roles = findAll('input[name="roles"]:checked', HTMLInputElement, form).map((role) => role.value);
  return { roles, agents: input(form, "all").checked ? null : agents };
}

/** @param {HTMLFormElement} form */
function showAgents(form) {
  one("[data-agents-field]", HTMLElement, form).hidden = input(form, "all").checked;
}

/**
 * @param {string} selector
 * @param {(form: HTMLFormElement) => Promise<void>} work
 */
function onSubmit(selector, work) {
  const form = find(selector, HTMLFormElement);
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await work(form);
    } catch (error) {
      problem(form, error);
    }
  });
}

onSubmit("[data-new-account]", async (form) => {
  await ask("POST", "/accounts", { name: valueOf(form, "name"), password: valueOf(form, "password"), ...trust(form) });
  location.reload();
});

onSubmit("[data-change]", async (form) => {
  const password = valueOf(form, "password");
  const body = { ...trust(form), disabled: input(form, "disabled").checked, ...(password && { password }) };
  await ask("PATCH", `/accounts/${encodeURIComponent(target)}`, body);
  location.reload();
});

onSubmit("[data-new-key]", async (form) => {
  const days = Number(valueOf(form, "days"));
  const expires = days && { expires_at: new Date(Date.now() + days * MS_PER_DAY).toISOString() };
  const body = { name: valueOf(form, "name"), ...trust(form), ...(expires || {}) };
  const made = await ask("POST", "/keys", body);
  dialog("new-key").close();
  one("[data-secret]").textContent = made.secret;
  dialog("made-key").showModal();
});

onSubmit("[data-revoke-form]", async () => {
  await ask("DELETE", `/keys/${encodeURIComponent(target)}`);
  location.reload();
});

document.addEventListener("change", (event) => {
  const form = closest(event, 'input[name="all"]', HTMLInputElement)?.form;
  if (form) showAgents(form);
});

document.addEventListener("click", (event) => {
  const change = closest(event, "[data-change-account]");
  const revoke = closest(event, "[data-revoke]");
  if (change) openChange(change.dataset);
  if (revoke) {
    target = revoke.dataset.revoke ?? "";
    one("#revoke [data-name]").textContent = revoke.dataset.name ?? "";
    dialog("revoke").showModal();
  }
  if (closest(event, "[data-copy]")) navigator.clipboard?.writeText(one("[data-secret]").textContent);
  if (closest(event, "[data-done]")) location.reload();
});
// It is shown once, and one key too many must not throw it away.
find("#made-key")?.addEventListener("cancel", (event) => event.preventDefault());

/** @param {DOMStringMap} account */
function openChange({ changeAccount = "", roles = "", agents = "", disabled, hasPassword }) {
  const form = one("[data-change]", HTMLFormElement);
  target = changeAccount;
  one("[data-name]", HTMLElement, form).textContent = changeAccount;
  const held = roles.split(" ");
  for (const role of findAll('input[name="roles"]', HTMLInputElement, form)) role.checked = held.includes(role.value);
  input(form, "all").checked = agents === "*";
  input(form, "agents").value = agents === "*" ? "" : agents;
  showAgents(form);
  input(form, "disabled").checked = disabled === "1";
  one("[data-password]", HTMLElement, form).hidden = hasPassword !== "1";
  dialog("change-account").showModal();
}
