// The list of conversations: open, rename, export, delete.

import { h, iconButton } from "./dom.js";

// showHistory fills a list. actions: open(id), rename(id, title), remove(id), save(id).
export function showHistory(list, conversations, current, actions) {
  list.replaceChildren(...conversations.map((entry) => entryOf(entry, entry.id === current, actions)));
}

function entryOf({ id, title }, current, actions) {
  const open = h("button", { type: "button", class: "open", "aria-current": current ? "true" : null, title, onclick: () => actions.open(id) }, title);
  const item = h("li", { class: current ? "current" : "" });
  const show = () =>
    item.replaceChildren(
      open,
      h(
        "div",
        { class: "entry-tools" },
        iconButton("edit", `Rename ${title}`, rename),
        iconButton("save", `Export ${title}`, () => actions.save(id)),
        iconButton("trash", `Delete ${title}`, ask),
      ),
    );
  const back = () => {
    show();
    open.focus();
  };
  const ask = () => {
    const yes = h("button", { type: "button", class: "danger", onclick: () => actions.remove(id) }, "Delete");
    item.replaceChildren(
      h("span", { class: "ask" }, "Delete permanently?"),
      h("div", { class: "row" }, yes, h("button", { type: "button", class: "quiet", onclick: back }, "Keep")),
    );
    yes.focus();
  };
  const rename = () => {
    const field = h("input", { "aria-label": "Name of the conversation", value: title, maxlength: "120" });
    const submit = (event) => {
      event.preventDefault();
      const name = field.value.trim();
      if (name !== "" && name !== title) actions.rename(id, name);
      else back();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      back();
    });
    item.replaceChildren(h("form", { onsubmit: submit }, field));
    field.select();
  };
  show();
  return item;
}

// download saves a conversation as a file, with the bytes of its images: data(picture)
// is their address.
export async function download(conversation, data) {
  const whole = async (picture) => ({ ...picture, url: await data(picture) });
  const messages = await Promise.all(conversation.messages.map(async (message) => (message.pictures ? { ...message, pictures: await Promise.all(message.pictures.map(whole)) } : message)));

  const name = conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "conversation";
  const link = h("a", { href: URL.createObjectURL(new Blob([JSON.stringify({ ...conversation, messages }, null, 2)], { type: "application/json" })), download: `${name}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
