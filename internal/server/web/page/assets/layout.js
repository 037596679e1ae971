// Drawers, dialogs, theme and the colors of tokens: the appearance of the page.

import { byId } from "./dom.js";
import { local, remember } from "./storage.js";

const wide = { history: matchMedia("(min-width: 60rem)"), panel: matchMedia("(min-width: 80rem)") };

// Drawers are the two sides of the page. On a wide page they are beside the conversation, on
// a narrow one they cover it, one at a time.
export class Drawers {
  constructor(changed) {
    this.changed = changed;
    this.shown = { history: true, panel: true }; // on a wide page
    this.over = null; // on a narrow one
    for (const query of Object.values(wide)) query.addEventListener("change", () => this.#apply());
    byId("scrim").addEventListener("click", () => this.close());
    for (const name of ["history", "panel"]) {
      byId(`${name}-toggle`).addEventListener("click", () => this.toggle(name));
      byId(`${name}-close`).addEventListener("click", () => this.toggle(name));
    }
    this.#apply();
  }

  isOpen(name) {
    return wide[name].matches ? this.shown[name] : this.over === name;
  }

  toggle(name) {
    const open = this.isOpen(name);
    if (wide[name].matches) this.shown[name] = !open;
    else this.over = open ? null : name;
    this.#apply();
    if (open) byId(`${name}-toggle`).focus();
    else if (!wide[name].matches) byId(`${name}-close`).focus();
  }

  show(name) {
    if (!this.isOpen(name)) this.toggle(name);
  }

  // close closes an overlay; false: there was none.
  close() {
    const name = this.over;
    if (!name || wide[name].matches) return false;
    this.toggle(name);
    return true;
  }

  #apply() {
    for (const name of ["history", "panel"]) {
      const open = this.isOpen(name);
      const drawer = byId(name);
      drawer.classList.toggle("open", open);
      drawer.inert = !open;
      byId(`${name}-toggle`).setAttribute("aria-expanded", String(open));
    }
    const over = this.over !== null && !wide[this.over].matches;
    byId("scrim").hidden = !over;
    byId("main").inert = over;
    this.changed();
  }
}

const themes = ["system", "light", "dark"];

// themeButton lets a button go through the themes; theme.js has applied the kept one.
export function themeButton(button) {
  const show = (theme) => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.setAttribute("aria-label", `Theme: ${theme}`);
    button.title = `Theme: ${theme}`;
  };
  let theme = document.documentElement.dataset.theme ?? "system";
  show(theme);
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    remember("foretoken.theme", theme);
    show(theme);
  });
}

// colorChoice stores which tokens are marked: none (off), draft tokens (on), or rejected ones too.
export function colorChoice(form) {
  const apply = (value) => (document.body.dataset.colors = value);
  const kept = local.getItem("foretoken.colors") ?? "on";
  for (const radio of form.querySelectorAll("input")) {
    radio.checked = radio.value === kept;
    radio.addEventListener("change", () => {
      apply(radio.value);
      remember("foretoken.colors", radio.value);
    });
  }
  apply(kept);
}

const ordinals = ["", "First", "Second", "Third", "Fourth", "Fifth", "Sixth", "Seventh", "Eighth"];

// tokenTip describes the origin of the token under the pointer.
export function tokenTip(area, tip) {
  area.addEventListener("pointerover", (event) => {
    const token = event.target.closest?.(".token");
    tip.hidden = !token || document.body.dataset.colors === "off";
    if (tip.hidden) return;
    const draft = Number(/\bd(\d)/.exec(token.className)?.[1]);
    const origin = draft > 0 ? `${ordinals[draft]} draft token of its round, accepted` : "Sampled by the model";
    const parts = [token.classList.contains("forced") ? "Forced: the grammar allows no other token" : origin];
    if (token.dataset.rejected) parts.push(`instead of the draft “${token.dataset.rejected}”`);
    tip.textContent = parts.join(", ");
    const { left, bottom } = token.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${bottom + 6}px`;
  });
  const hide = () => (tip.hidden = true);
  area.addEventListener("pointerleave", hide);
  area.addEventListener("scroll", hide, { passive: true });
}
