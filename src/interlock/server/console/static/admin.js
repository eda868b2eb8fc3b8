// Accounts and keys: every change goes to the API, which decides and writes it down.
import { ask } from "./base.js";
import { dialogs, problem } from "./base.dialogs.js";

dialogs();

const MS_PER_DAY = 86_400_000;
const dialog = (id) => document.getElementById(id);
let target = null;

function trust(form) {
  const agents = form.elements.agents.value.split(",").map((name) => name.trim()).filter(Boolean);
  const roles = [...form.querySelectorAll('input[name="roles"]:checked')].map((box) => box.value);
  return { roles, agents: form.elements.all.checked ? null : agents };
}

function showAgents(form) {
  form.querySelector("[data-agents-field]").hidden = form.elements.all.checked;
}

function onSubmit(selector, work) {
  const form = document.querySelector(selector);
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
  await ask("POST", "/accounts", { name: form.elements.name.value, password: form.elements.password.value, ...trust(form) });
  location.reload();
});

onSubmit("[data-change]", async (form) => {
  const body = { ...trust(form), disabled: form.elements.disabled.checked };
  if (form.elements.password.value) body.password = form.elements.password.value;
  await ask("PATCH", `/accounts/${encodeURIComponent(target)}`, body);
  location.reload();
});

onSubmit("[data-new-key]", async (form) => {
  const body = { name: form.elements.name.value, ...trust(form) };
  const days = Number(form.elements.days.value);
  if (days) body.expires_at = new Date(Date.now() + days * MS_PER_DAY).toISOString();
  const made = await ask("POST", "/keys", body);
  dialog("new-key").close();
  document.querySelector("[data-secret]").textContent = made.secret;
  dialog("made-key").showModal();
});

onSubmit("[data-revoke-form]", async () => {
  await ask("DELETE", `/keys/${encodeURIComponent(target)}`);
  location.reload();
});

document.addEventListener("change", (event) => {
  if (event.target.name === "all") showAgents(event.target.form);
});

document.addEventListener("click", (event) => {
  const change = event.target.closest("[data-change-account]");
  const revoke = event.target.closest("[data-revoke]");
  if (change) openChange(change.dataset);
  if (revoke) {
    target = revoke.dataset.revoke;
    dialog("revoke").querySelector("[data-name]").textContent = revoke.dataset.name;
    dialog("revoke").showModal();
  }
  if (event.target.closest("[data-copy]")) navigator.clipboard?.writeText(document.querySelector("[data-secret]").textContent);
  if (event.target.closest("[data-done]")) location.reload();
});
// It is shown once, and one key too many must not throw it away.
dialog("made-key")?.addEventListener("cancel", (event) => event.preventDefault());

function openChange({ changeAccount, roles, agents, disabled, hasPassword }) {
  const box = dialog("change-account");
  const form = box.querySelector("form");
  target = changeAccount;
  box.querySelector("[data-name]").textContent = changeAccount;
  const held = roles.split(" ");
  for (const input of form.querySelectorAll('input[name="roles"]')) input.checked = held.includes(input.value);
  form.elements.all.checked = agents === "*";
  form.elements.agents.value = agents === "*" ? "" : agents;
  showAgents(form);
  form.elements.disabled.checked = disabled === "1";
  form.querySelector("[data-password]").hidden = hasPassword !== "1";
  box.showModal();
}
