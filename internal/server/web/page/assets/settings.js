// The settings of requests, as a form. Empty fields use the defaults of the server.

import { h } from "./dom.js";
import { loadKey, loadSettings, saveKey, saveSettings } from "./conversations.js";

const depths = [["", "Auto (fastest)"], ["0", "Off"], ...[1, 2, 3, 4, 5, 6, 7, 8].map((n) => [String(n), `${n} per round`])];

// Fields by name; the name is that of the request. type: number, choice, text, code or secret.
const groups = [
  [
    "Conversation",
    { name: "system", label: "System prompt", type: "text", hint: "Sent before the conversation." },
    { name: "enable_thinking", label: "Thinking", type: "choice", choices: [["", "Model default"], ["true", "On"], ["false", "Off"]] },
    { name: "max_thinking_tokens", label: "Max. thinking", type: "number", min: 1, max: 1e6, step: 1, hint: "Tokens." },
    { name: "max_completion_tokens", label: "Max. answer", type: "number", min: 1, max: 1e6, step: 1, hint: "Tokens." },
  ],
  [
    "Sampling",
    { name: "temperature", label: "Temperature", type: "number", min: 0, max: 2, step: "any", hint: "0: always the most likely token." },
    { name: "top_p", label: "Top p", type: "number", min: 0, max: 1, step: "any" },
    { name: "top_k", label: "Top k", type: "number", min: 0, max: 1e6, step: 1 },
    { name: "min_p", label: "Min p", type: "number", min: 0, max: 1, step: "any" },
    { name: "seed", label: "Seed", type: "number", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, hint: "The same seed gives the same answer." },
  ],
  ["Speculative decoding", { name: "mtp_depth", label: "Draft tokens", type: "choice", choices: depths, hint: "Changes the speed, not the text." }],
  [
    "Connection",
    { name: "key", label: "API key", type: "secret", hint: "Kept until this tab is closed." },
    { name: "tools", label: "Tools", type: "code", hint: "A JSON list of OpenAI tool definitions. You answer the calls." },
  ],
];

// Settings fills a form and stores its values at each change.
export class Settings {
  constructor(form) {
    this.values = loadSettings();
    this.key = loadKey();
    for (const [title, ...fields] of groups) {
      form.append(h("fieldset", {}, h("legend", {}, title), fields.map((field) => this.#fieldOf(field))));
    }
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  // unlock sets the key.
  unlock(key) {
    this.key = key;
    saveKey(key);
    const input = document.getElementById("set-key");
    if (input) input.value = key;
  }

  // body is the part of a request from the settings. It always has a seed, so that every
  // answer can be reproduced.
  body() {
    const body = {};
    for (const { name, type } of groups.flatMap(([, ...fields]) => fields)) {
      const value = this.values[name];
      if (value === undefined || value === "" || name === "system" || name === "key") continue;
      if (type === "number" || name === "mtp_depth") body[name] = Number(value);
      else if (name === "enable_thinking") body[name] = value === "true";
      else if (name === "tools") body[name] = JSON.parse(value);
    }
    body.seed ??= crypto.getRandomValues(new Uint32Array(1))[0];
    return body;
  }

  get system() {
    return (this.values.system ?? "").trim();
  }

  #fieldOf(field) {
    const id = `set-${field.name}`;
    const hint = field.hint ? h("small", { id: `${id}-hint` }, field.hint) : null;
    const input = controlOf(field, { id, name: field.name, "aria-describedby": hint ? `${id}-hint` : null });
    input.value = field.type === "secret" ? this.key : (this.values[field.name] ?? "");
    input.addEventListener("change", () => this.#change(field, input));
    return h("div", { class: fieldClass[field.type] ?? "field" }, h("label", { for: id }, field.label), input, hint);
  }

  #change(field, input) {
    if (field.type === "code") input.setCustomValidity(wrongTools(input.value));
    if (!input.reportValidity()) return;
    if (field.type === "secret") {
      this.unlock(input.value.trim());
      return;
    }
    this.values[field.name] = input.value;
    saveSettings(this.values);
  }
}

const fieldClass = { text: "field wide", code: "field wide mono" };

function controlOf(field, attributes) {
  switch (field.type) {
    case "choice":
      return h("select", attributes, field.choices.map(([value, label]) => h("option", { value }, label)));
    case "text":
    case "code":
      return h("textarea", { ...attributes, rows: "3", spellcheck: field.type === "text" ? null : "false" });
    case "secret":
      return h("input", { ...attributes, type: "password", autocomplete: "off" });
    default: {
      const { min, max, step } = field;
      return h("input", { ...attributes, type: "number", inputmode: "decimal", min, max, step, placeholder: "default" });
    }
  }
}

function wrongTools(text) {
  if (text.trim() === "") return "";
  try {
    return Array.isArray(JSON.parse(text)) ? "" : "This must be a JSON list.";
  } catch (err) {
    return `This is not JSON: ${err.message}`;
  }
}
