// Stores conversations and settings in the browser only. The key for the server is
// kept for the session of the tab.
//
// A conversation is {id, title, renamed, updated, messages}. A message is one of
//   {role: "user", content, pictures: [{id, name, type, width, height}]}
//   {role: "tool", content, tool_call_id, name}
//   {role: "assistant", content, reasoning, tools: [{id, name, arguments}], model, seed, sent,
//    system, tiles: {content, reasoning}, drafted, strip, thought, finish, stats, usage, problem, compared}
// where tiles are those of trace.js, drafted counts draft tokens by position, thought is ms of
// thinking, sent is the request's options. The bytes of images are in album.js.

import { local, randomId, remember, session } from "./storage.js";

const indexKey = "foretoken.conversations";
const bodyKey = (id) => `foretoken.conversation.${id}`;
const settingsKey = "foretoken.settings";
const secretKey = "foretoken.key";

function read(storage, key, fallback) {
  try {
    return JSON.parse(storage.getItem(key)) ?? fallback;
  } catch {
    return fallback;
  }
}

// Conversations is the list, newest first, with the messages of each loaded on demand.
export class Conversations {
  constructor(storage = local) {
    this.storage = storage;
    this.reload();
  }

  // reload reads the list again, since other tabs write it too.
  reload() {
    const list = read(this.storage, indexKey, []);
    this.list = (Array.isArray(list) ? list : []).filter((entry) => typeof entry?.id === "string");
  }

  create() {
    return { id: randomId(), title: "New conversation", renamed: false, updated: Date.now(), messages: [] };
  }

  open(id) {
    const found = read(this.storage, bodyKey(id), null);
    return found && Array.isArray(found.messages) ? found : null;
  }

  // save writes a conversation. When the browser's storage is full, colors of older
  // conversations go first; false: even that was not enough.
  save(conversation) {
    this.reload();
    if (!conversation.renamed) conversation.title = titleOf(conversation);
    conversation.updated = Date.now();
    const { id, title, updated } = conversation;
    const list = [{ id, title, updated }, ...this.list.filter((entry) => entry.id !== id)];
    const others = this.list.filter((entry) => entry.id !== id);
    for (;;) {
      try {
        this.storage.setItem(bodyKey(id), JSON.stringify(conversation));
        this.storage.setItem(indexKey, JSON.stringify(list));
        this.list = list;
        return true;
      } catch {
        const oldest = others.pop();
        if (!oldest) return false;
        this.#fade(oldest.id);
      }
    }
  }

  rename(id, title) {
    const conversation = this.open(id);
    if (!conversation) return;
    conversation.title = title;
    conversation.renamed = true;
    this.save(conversation);
  }

  remove(id) {
    this.reload();
    this.storage.removeItem(bodyKey(id));
    this.list = this.list.filter((entry) => entry.id !== id);
    this.storage.setItem(indexKey, JSON.stringify(this.list));
  }

  // #fade removes the colors from a conversation.
  #fade(id) {
    const conversation = this.open(id);
    if (!conversation) return;
    for (const message of conversation.messages) delete message.tiles;
    this.storage.removeItem(bodyKey(id)); // the smaller one then fits for sure
    this.storage.setItem(bodyKey(id), JSON.stringify(conversation));
  }
}

function titleOf(conversation) {
  const first = conversation.messages.find((message) => message.role === "user");
  const line = first?.content.trim().split("\n", 1)[0] || first?.pictures?.[0]?.name || "New conversation";
  return line.length > 60 ? `${line.slice(0, 59)}…` : line;
}

export const loadSettings = () => read(local, settingsKey, {});

export const saveSettings = (settings) => remember(settingsKey, JSON.stringify(settings));

export const loadKey = () => session.getItem(secretKey) ?? "";

export function saveKey(key) {
  if (key) session.setItem(secretKey, key);
  else session.removeItem(secretKey);
}

// toRequest makes the messages of a request from those of a conversation. data(picture) is the
// address of an image's bytes, or null if they no longer exist: then it is left out. sent
// lists the others, in their order.
export async function toRequest(messages, system, data) {
  const out = system ? [{ role: "system", content: system }] : [];
  const sent = [];
  for (const { role, content, pictures = [], reasoning, tools, tool_call_id } of messages) {
    if (role === "tool") out.push({ role, content, tool_call_id });
    else if (role === "user") {
      const parts = [];
      for (const picture of pictures) {
        const url = await data(picture);
        if (url === null) continue;
        parts.push({ type: "image_url", image_url: { url } });
        sent.push(picture);
      }
      if (parts.length > 0 && content !== "") parts.push({ type: "text", text: content });
      out.push({ role, content: parts.length > 0 ? parts : content });
    } else if (content !== "" || tools?.length > 0) {
      const message = { role, content };
      if (reasoning) message.reasoning_content = reasoning;
      if (tools?.length > 0) {
        message.tool_calls = tools.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
      }
      out.push(message);
    }
  }
  return { messages: out, sent };
}
