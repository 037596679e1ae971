// Shows one message of a conversation, with its actions.

import { Attachments, gallery } from "./attach.js";
import { copyButton, h, icon, iconButton, sends } from "./dom.js";
import { count, duration, percent, rate } from "./figures.js";
import { draw, painter } from "./render.js";
import { Overlay } from "./trace.js";

// userView shows a user's message, with its images. actions.edit(text, pictures) replaces
// it; pictures is the interface of Attachments and gallery.
export function userView(message, actions, pictures) {
  const view = h("article", { class: "message user", "aria-label": "You wrote" });
  const show = () => {
    view.replaceChildren();
    if (message.pictures) view.append(gallery(message.pictures, pictures));
    if (message.content !== "") view.append(h("div", { class: "bubble" }, message.content));
    view.append(h("div", { class: "actions" }, iconButton("edit", "Edit and send again", edit), message.content !== "" && copyButton(() => message.content, "Copy message")));
  };
  const edit = () => {
    const area = h("textarea", { "aria-label": "Edit your message", rows: Math.min(12, message.content.split("\n").length + 1) });
    area.value = message.content;
    const parts = { button: iconButton("picture", "Add images"), list: h("ul", { class: "tiles", "aria-label": "Images of this message" }), note: h("p", { class: "why", role: "alert" }) };
    const send = async () => {
      if (!(await attached.ready()) || (area.value.trim() === "" && attached.pictures.length === 0)) return;
      actions.edit(area.value, attached.pictures);
    };
    const cancel = () => {
      attached.discard();
      show();
    };
    area.addEventListener("keydown", (event) => {
      if (sends(event)) {
        event.preventDefault();
        send();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
        view.querySelector(".actions button").focus();
      }
    });
    const editor = h(
      "div",
      { class: "editor" },
      parts.list,
      parts.note,
      area,
      h(
        "div",
        { class: "actions shown" },
        parts.button,
        h("button", { type: "button", class: "primary", onclick: send }, "Send"),
        h("button", { type: "button", class: "quiet", onclick: cancel }, "Cancel"),
      ),
    );
    const attached = new Attachments(parts, { ...pictures, pictures: message.pictures });
    attached.listen(editor);
    view.replaceChildren(editor);
    area.focus();
  };
  show();
  return view;
}

// toolView shows the result of a tool.
export function toolView(message) {
  return h(
    "article",
    { class: "message tool", "aria-label": "Result of a tool" },
    h("p", { class: "caption" }, "Result of ", h("code", {}, message.name || "a tool")),
    h("pre", { tabindex: "0" }, message.content),
  );
}

// AnswerView shows an answer while it grows and after it has ended.
//
// actions: again() regenerates it; result(call, text) answers a tool call; fresh() begins another
// conversation; unlock(key) sets the key and asks again; inspect() shows its numbers; mend() edits
// the message whose image was refused.
export class AnswerView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.thought = h("div", { class: "prose" });
    this.summary = h("summary");
    this.thinking = h("details", { class: "thinking", hidden: true }, this.summary, this.thought);
    this.text = h("div", { class: "prose" });
    this.tools = h("div", { class: "tools" });
    this.notice = h("div", { class: "notice-slot" });
    this.foot = h("div", { class: "foot" });
    this.element = h("article", { class: "message answer", "aria-label": "Answer" }, this.thinking, this.text, this.tools, this.notice, this.foot);
  }

  // update shows the current message. busy: more will come. last: it is the
  // conversation's last message, which can be regenerated. calling: results of tools would come next.
  update({ busy, last, calling = last }) {
    const { message } = this;
    this.element.classList.toggle("busy", busy);
    if (message.reasoning) {
      this.thinking.hidden = false;
      const over = message.content !== "" || !busy;
      this.summary.textContent = over ? `Thought${message.thought >= 1000 ? ` for ${duration(message.thought)}` : ""}` : "Thinking…";
      this.thinking.classList.toggle("live", !over);
      draw(this.thought, message.reasoning, painter(new Overlay(message.tiles?.reasoning ?? [])));
    }
    draw(this.text, message.content, painter(new Overlay(message.tiles?.content ?? [])));
    this.#showTools(busy, calling);
    if (busy) return;
    this.#showNotice(last);
    this.#showFoot(last);
  }

  // wait shows that the model is not there yet. progress: 0 to 1, or undefined.
  wait(text, progress) {
    const bar = h("progress", { max: "1", "aria-label": "Loading" });
    if (progress !== undefined) bar.value = progress;
    const figure = progress === undefined ? "" : ` ${percent(progress)}`;
    this.notice.replaceChildren(h("div", { class: "notice" }, h("p", {}, `${text}${figure}`), bar));
  }

  begin() {
    this.notice.replaceChildren();
  }

  #showTools(busy, calling) {
    const calls = this.message.tools ?? [];
    if (busy && calls.length === this.tools.children.length) {
      calls.forEach((call, i) => (this.tools.children[i].querySelector("pre").textContent = call.arguments));
      return;
    }
    this.tools.replaceChildren(...calls.map((call) => this.#toolOf(call, busy, calling)));
  }

  #toolOf(call, busy, calling) {
    const card = h(
      "section",
      { class: "call", "aria-label": `Call of ${call.name}` },
      h("p", { class: "caption" }, "Calls ", h("code", {}, call.name)),
      h("pre", { tabindex: "0" }, busy ? call.arguments : pretty(call.arguments)),
    );
    if (busy || !calling || call.answered) return card;
    const area = h("textarea", { "aria-label": `Result of ${call.name}`, placeholder: "What did the tool return?", rows: "2" });
    const send = () => this.actions.result(call, area.value);
    card.append(area, h("button", { type: "button", class: "primary", onclick: send }, "Send result"));
    return card;
  }

  #showNotice(last) {
    const { problem, finish } = this.message;
    if (problem) this.notice.replaceChildren(this.#problemOf(problem, last));
    else if (finish === "stopped") this.#note("Stopped.");
    else if (finish === "length") this.#note("The answer reached the maximum length. Raise “Max. answer” in the settings, or ask the model to continue.");
    else if (finish === "content_filter") this.#note("Withheld by the server.");
    else this.notice.replaceChildren();
  }

  #note(text) {
    this.notice.replaceChildren(h("p", { class: "note" }, text));
  }

  #problemOf(problem, last) {
    const box = h("div", { class: "notice problem", role: "alert" }, h("p", {}, h("strong", {}, titles[problem.kind] ?? titles.server)));
    const remedy = remedies[problem.kind];
    const wait = problem.retryAfter > 0 && `Try again in ${count(problem.retryAfter, "second")}.`;
    box.append(h("p", {}, [problem.message, remedy, wait].filter(Boolean).join(" ")));
    if (!last) return box;
    const retry = (label) => h("button", { type: "button", class: "primary", onclick: () => this.actions.again() }, icon("again"), label);
    if (problem.kind === "key") box.append(this.#keyForm());
    else if (problem.kind === "full" || problem.kind === "large") {
      const fresh = h("button", { type: "button", class: "primary", onclick: () => this.actions.fresh() }, "New conversation");
      box.append(h("div", { class: "row" }, fresh, retry("Try again")));
    } else if (problem.kind === "picture") {
      const mend = h("button", { type: "button", class: "primary", onclick: () => this.actions.mend() }, icon("edit"), "Edit message");
      box.append(h("div", { class: "row" }, mend, retry("Try again")));
    } else box.append(h("div", { class: "row" }, retry(problem.kind === "cut" ? "Ask again" : "Try again")));
    return box;
  }

  #keyForm() {
    const field = h("input", { type: "password", autocomplete: "off", "aria-label": "API key", placeholder: "API key", required: true });
    const submit = (event) => {
      event.preventDefault();
      this.actions.unlock(field.value.trim());
    };
    return h("form", { class: "row", onsubmit: submit }, field, h("button", { class: "primary" }, "Use key"));
  }

  #showFoot(last) {
    const { message } = this;
    this.foot.replaceChildren(
      h(
        "div",
        { class: last ? "actions shown" : "actions" },
        message.content !== "" && copyButton(() => message.content, "Copy answer"),
        last && !message.problem && iconButton("again", "Answer again", () => this.actions.again()),
      ),
    );
    const line = statsLine(message);
    if (line === "") return;
    const inspect = () => this.actions.inspect();
    this.foot.append(h("button", { type: "button", class: "stats", title: "Show the stats of this answer", onclick: inspect }, line));
  }
}

const titles = {
  gone: "The server is unreachable",
  key: "This server requires an API key",
  busy: "The server is busy",
  loading: "The model is still loading",
  full: "The conversation is too long for the model",
  large: "The conversation is too large for the server",
  cut: "The answer was interrupted",
  picture: "An image cannot be used",
  refused: "The server refused the request",
  server: "Server error",
};

const remedies = {
  gone: "Start the server, or check the network. Your message is kept.",
  key: "The key is kept until you close this tab.",
  full: "Start a new conversation, or edit an earlier message.",
  large: "Start a new conversation, or remove images from earlier messages.",
  cut: "The partial answer is kept.",
  picture: "Remove it, or use another one.",
};

// statsLine is the summary of an answer: tokens, speed, tokens per round.
function statsLine({ stats }) {
  const { timings, mtp } = stats ?? {};
  if (!timings) return "";
  const parts = [count(timings.generated_tokens, "token")];
  if (timings.decode_tok_s) parts.push(`${rate(timings.decode_tok_s)} per second`);
  if (mtp?.drafted > 0) parts.push(`${mtp.tokens_per_round.toFixed(2)} per round`);
  return parts.join(" · ");
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
