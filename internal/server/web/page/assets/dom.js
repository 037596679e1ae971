// Creates elements. Text stays text: nothing on this page parses HTML.

// h makes an element. Properties that begin with "on" are listeners, "class" and names with a
// dash are attributes, true and false switch attributes, everything else is an attribute too.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// sends reports whether a key sends the text. While characters are composed, Enter only accepts
// them: Safari ends that before it reports the key, whose code is then 229.
export const sends = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229;

export const byId = (id) => document.getElementById(id);

const svg = "http://www.w3.org/2000/svg";

// Strokes on a grid of 24.
const icons = {
  again: "M19 12a7 7 0 1 1-2.3-5.2M19 4v4h-4",
  edit: "M5 19l1-4L16 5l3 3L9 18z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12",
  save: "M12 4v11M7 11l5 5 5-5M5 20h14",
  close: "M6 6l12 12M18 6L6 18",
  picture: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15.5 9h.01",
};

// icon is a decorative drawing beside a text.
export function icon(name) {
  const drawing = document.createElementNS(svg, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true", focusable: "false" })) {
    drawing.setAttribute(key, value);
  }
  const path = document.createElementNS(svg, "path");
  path.setAttribute("d", icons[name]);
  drawing.append(path);
  return drawing;
}

// iconButton is a button that shows only an icon, with an accessible name.
export function iconButton(name, label, onclick, extra = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...extra }, icon(name));
}

// copyButton copies what text() returns.
export function copyButton(text, label = "Copy") {
  const button = h("button", { type: "button", class: "quiet", "aria-label": label }, icon("copy"), h("span", {}, "Copy"));
  button.addEventListener("click", async () => {
    const word = button.lastElementChild;
    word.textContent = (await copy(text())) ? "Copied" : "Not allowed";
    setTimeout(() => (word.textContent = "Copy"), 1500);
  });
  return button;
}

// copy puts a text on the clipboard. The clipboard's own interface is for secure contexts only,
// and the page may come over plain HTTP.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    const focused = document.activeElement;
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return done;
  }
}
