// The page: a conversation, the list of them, and the panel, put together.

import { Album, picturesOf } from "./album.js";
import { Answer, blank, pause } from "./answer.js";
import { Problem, loading, models, status, visionOf } from "./api.js";
import { Attachments, dropZone } from "./attach.js";
import { Conversations, toRequest } from "./conversations.js";
import { byId, h, sends } from "./dom.js";
import { parameters, percent } from "./figures.js";
import { download, showHistory } from "./history.js";
import { Drawers, colorChoice, themeButton, tokenTip } from "./layout.js";
import { AnswerView, toolView, userView } from "./message.js";
import { Panel, stripOf } from "./panel.js";
import { Unusable } from "./picture.js";
import { Settings } from "./settings.js";
import { local, remember } from "./storage.js";

const statusEvery = 2000;
const saveEvery = 1000;

// The model often runs on the machine that shows the page, and drawing takes time from
// it: so the page is drawn no more often than is visible.
const showEvery = 80;

class App {
  constructor() {
    this.conversations = new Conversations();
    this.album = new Album();
    this.models = []; // of the server
    this.settings = new Settings(byId("settings-form"));
    this.panel = new Panel(byId("panel-body"), { compare: () => this.compare() });
    this.drawers = new Drawers(() => this.watch());
    this.thread = byId("thread");
    this.prompt = byId("prompt");
    this.running = null; // {conversation, answer, view, strip}
    this.shown = null; // the answer in the panel
    this.attached = new Attachments({ button: byId("attach"), list: byId("attached"), note: byId("unusable") }, this.#pictures());
    themeButton(byId("theme"));
    colorChoice(byId("colors"));
    tokenTip(this.thread, byId("tip"));
    this.#listen();
    const last = this.conversations.list[0];
    this.show((last && this.conversations.open(last.id)) ?? this.conversations.create());
    this.connect();
    this.album.sweep((id) => {
      this.conversations.reload(); // after listing the images: another tab may just have added one
      return this.conversations.list.some((entry) => entry.id === id);
    });
  }

  #listen() {
    this.attached.listen(document);
    dropZone(byId("drop"), () => this.#vision().refusal || "Drop images here");
    byId("viewer").addEventListener("click", () => byId("viewer").close());
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.running ? this.stop() : this.send();
    });
    this.prompt.addEventListener("input", () => this.#fit());
    this.prompt.addEventListener("keydown", (event) => {
      if (!sends(event)) return;
      event.preventDefault();
      if (!this.running) this.send();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]") && !this.drawers.close() && this.running) this.stop();
    });
    byId("new").addEventListener("click", () => this.fresh());
    byId("settings-toggle").addEventListener("click", () => byId("settings").showModal());
    byId("settings-close").addEventListener("click", () => byId("settings").close());
    byId("settings").addEventListener("close", () => this.modelsProblem && this.connect());
    byId("model").addEventListener("change", () => {
      remember("foretoken.model", byId("model").value);
      this.attached.refresh();
    });
    addEventListener("storage", () => {
      this.conversations.reload();
      this.#showHistory();
    });
    addEventListener("pagehide", () => this.running && this.#save(this.running.conversation));
    document.addEventListener("visibilitychange", () => this.watch());
  }

  // connect asks the server for its models, repeatedly while it is not ready.
  async connect() {
    this.connecting?.abort();
    const { signal } = (this.connecting = new AbortController());
    for (;;) {
      try {
        this.#showModels(await models({ key: this.settings.key, signal }));
        this.modelsProblem = null;
        this.#showState("");
        this.watch();
        return;
      } catch (err) {
        if (signal.aborted) return;
        if (!(err instanceof Problem)) throw err;
        this.modelsProblem = err;
        this.#showState(stateOf(err));
        if (err.kind === "key" || !(await pause(statusEvery, signal))) return;
      }
    }
  }

  #showModels(list) {
    this.models = list;
    const picker = byId("model");
    const wanted = [picker.value, local.getItem("foretoken.model")].find((id) => list.some((model) => model.id === id)); // another tab may have chosen another
    const name = ({ id, foretoken: about }) => (about?.parameters > 0 ? `${id} · ${parameters(about.parameters)}` : id);
    picker.replaceChildren(...list.map((model) => h("option", { value: model.id }, name(model))));
    if (wanted) picker.value = wanted;
    picker.disabled = list.length === 0;
    this.attached.refresh();
  }

  // #vision describes the chosen model's use of images, for Attachments.
  #vision() {
    const model = this.models.find(({ id }) => id === byId("model").value);
    const vision = model ? visionOf(model) : { pixels: 0 }; // not known yet: the server will tell
    return vision ? { refusal: "", ...vision } : { refusal: `${model.id} does not accept images.`, pixels: 0 };
  }

  // #pictures shows the images of a conversation, and adds others. wrong is the
  // last answer's problem.
  #pictures(conversation, wrong) {
    return {
      album: this.album,
      vision: () => this.#vision(),
      url: (picture) => this.album.url(conversation?.id, picture),
      problem: ({ id }) => (wrong?.picture === id ? wrong.message : ""),
    };
  }

  #showState(text) {
    byId("state").textContent = text;
    byId("state").hidden = text === "";
  }

  // watch polls the server's status while the panel is visible.
  async watch() {
    if (this.watching || !this.drawers?.isOpen("panel") || document.hidden || this.modelsProblem !== null) return;
    this.watching = true;
    while (this.drawers.isOpen("panel") && !document.hidden) {
      let state;
      try {
        state = await status({ key: this.settings.key });
        this.#showState("");
      } catch (err) {
        if (!(err instanceof Problem)) throw err;
        this.#showState(stateOf(err));
      }
      this.panel.showServer(state, byId("model").value);
      if (state === null) return; // it has no status
      await pause(statusEvery, new AbortController().signal);
    }
    this.watching = false;
  }

  // show shows a conversation; one that is being answered stays the same object.
  show(conversation) {
    if (this.running?.conversation.id === conversation.id) conversation = this.running.conversation;
    else conversation.messages.forEach(mend);
    if (this.conversation?.id !== conversation.id) this.album.release();
    this.conversation = conversation;
    this.#showThread();
    this.#showHistory();
    this.#inspect(conversation.messages.findLast((message) => message.role === "assistant"));
    this.prompt.focus({ preventScroll: true });
  }

  fresh() {
    this.show(this.conversations.create());
    this.drawers.close();
    this.prompt.focus();
  }

  #showHistory() {
    document.title = this.conversation.messages.length > 0 ? `${this.conversation.title} · foretoken` : "foretoken";
    byId("no-history").hidden = this.conversations.list.length > 0;
    showHistory(byId("conversations"), this.conversations.list, this.conversation.id, {
      open: (id) => {
        const found = this.conversations.open(id);
        if (found) this.show(found);
        this.drawers.close();
      },
      rename: (id, title) => {
        for (const open of [this.running?.conversation, this.conversation]) if (open?.id === id) Object.assign(open, { title, renamed: true });
        this.conversations.rename(id, title);
        this.#showHistory();
      },
      remove: (id) => {
        if (this.running?.conversation.id === id) this.stop();
        for (const open of [this.running?.conversation, this.conversation]) if (open?.id === id) open.removed = true; // an answer that ends would bring it back
        this.conversations.remove(id);
        this.album.remove(id);
        if (this.conversation.id === id) this.show(this.conversations.create());
        else this.#showHistory();
        byId("new").focus();
      },
      save: (id) => download(this.conversation.id === id ? this.conversation : this.conversations.open(id), (picture) => this.album.data(id, picture)),
    });
  }

  #showThread() {
    const { messages } = this.conversation;
    byId("welcome").hidden = messages.length > 0;
    this.thread.replaceChildren(...messages.map((message, i) => this.#viewOf(message, i)));
    this.thread.parentElement.scrollTop = this.thread.parentElement.scrollHeight;
  }

  #viewOf(message, i) {
    if (message.role === "tool") return toolView(message);
    if (message.role === "user") {
      const pictures = this.#pictures(this.conversation, this.conversation.messages.at(-1).problem);
      return userView(message, { edit: (text, pictures) => this.edit(i, text, pictures) }, pictures);
    }
    const { running } = this;
    if (running?.answer.message === message) return running.view.element;
    const view = this.#answerView(message);
    const after = this.conversation.messages.slice(i + 1);
    view.update({ busy: false, last: after.length === 0, calling: after.every(({ role }) => role === "tool") });
    return view.element;
  }

  #answerView(message) {
    return new AnswerView(message, {
      again: () => this.again(),
      fresh: () => this.fresh(),
      inspect: () => {
        this.#inspect(message);
        this.drawers.show("panel");
      },
      unlock: (key) => {
        this.settings.unlock(key);
        this.connect();
        this.again();
      },
      result: (call, text) => this.#toolResult(message, call, text),
      mend: () => this.thread.querySelector(".user:has(.wrong) .actions button")?.click(), // unless it is edited already
    });
  }

  #inspect(message) {
    this.shown = message ?? null;
    const live = this.running && this.running.answer.message === message;
    if (!message) this.panel.clear();
    else if (live) this.panel.begin();
    else this.panel.show(message);
  }

  // send sends the written text, with its images, once these are read.
  async send() {
    const { attached } = this;
    if (!(await attached.ready()) || this.running) return;
    const content = this.prompt.value;
    if (content.trim() === "" && attached.pictures.length === 0) return;
    const { refusal } = this.#vision();
    if (refusal && picturesOf(this.conversation).length > 0) {
      attached.tell(`${refusal} This conversation has some: choose another model, or begin a new one.`);
      return;
    }
    attached.tell("");
    this.prompt.value = "";
    this.#fit();
    this.conversation.messages.push(written(content, attached.take()));
    this.answer();
  }

  edit(i, content, pictures) {
    if (this.running) return;
    this.conversation.messages.splice(i, Infinity, written(content, pictures));
    this.answer();
  }

  // again regenerates the last answer.
  again() {
    if (this.running) return;
    const { messages } = this.conversation;
    if (messages.at(-1)?.role === "assistant") messages.pop();
    if (messages.length > 0) this.answer();
  }

  #toolResult(message, call, content) {
    if (this.running) return;
    call.answered = true;
    this.conversation.messages.push({ role: "tool", content, tool_call_id: call.id, name: call.name });
    if (message.tools.every(({ answered }) => answered)) this.answer();
    else this.#showThread();
  }

  stop() {
    this.running?.answer.stop();
  }

  // answer requests the conversation's next message and shows it while it comes.
  async answer() {
    const { conversation } = this;
    const before = [...conversation.messages];
    const message = blank({ model: byId("model").value || undefined, ...this.settings.body() });
    message.system = this.settings.system;
    const answer = new Answer(message);
    const view = this.#answerView(message);
    this.running = { conversation, answer, view, strip: "" };
    conversation.messages.push(message);
    this.#setBusy(true);
    this.#save(conversation);
    this.album.keep(conversation).then((kept) => (byId("unkept").hidden = kept));
    this.#showThread();
    this.#showHistory();
    this.#inspect(message);
    view.update({ busy: true, last: true });
    this.#showLoading();
    let saved = performance.now();
    try {
      const { messages, sent } = await this.#request(conversation, before, message.system);
      await answer.run(messages, {
        key: this.settings.key,
        waiting: (problem) => view.wait("The model is loading.", problem.progress),
        changed: () => {
          this.#soon();
          if (performance.now() - saved < saveEvery) return;
          saved = performance.now();
          this.#save(conversation);
        },
      });
      const { problem } = message;
      if (problem?.picture !== undefined) problem.picture = sent[problem.picture].id;
    } catch (err) {
      if (!(err instanceof Unusable)) throw err;
      message.problem = { kind: "picture", message: err.message };
    }
    this.#end();
  }

  // #request makes the messages of a request from those of a conversation.
  #request(conversation, messages, system) {
    return toRequest(messages, system, (picture) => this.album.data(conversation.id, picture));
  }

  // #showLoading reports progress while the model is being loaded.
  async #showLoading() {
    const { running } = this;
    const { answer, view } = running;
    while (await pause(1000, answer.controller.signal)) {
      const progress = await loading(answer.message.model);
      if (this.running !== running || answer.begun) return;
      if (progress !== null) view.wait("The model is loading.", progress);
    }
  }

  // #soon shows the running answer, once for all that came in the meantime.
  #soon() {
    const { running } = this;
    if (running.due) return;
    running.due = true;
    setTimeout(() => {
      running.due = false;
      if (this.running === running) this.#showRunning(true);
    }, showEvery);
  }

  #showRunning(busy) {
    const { answer, view } = this.running;
    const scroller = this.thread.parentElement;
    const following = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
    if (busy) view.begin();
    const rounds = answer.rounds.fresh;
    this.running.strip += stripOf(rounds);
    view.update({ busy, last: true });
    if (this.shown === answer.message) this.panel.live(answer.message.model, answer.rounds, answer.pace.rate);
    else answer.rounds.take();
    if (following) scroller.scrollTop = scroller.scrollHeight;
  }

  #end() {
    const { conversation, answer } = this.running;
    this.#showRunning(false);
    answer.message.strip = this.running.strip.slice(-1000);
    this.running = null;
    this.#save(conversation);
    this.#setBusy(false);
    this.#showHistory();
    if (this.shown === answer.message) this.panel.show(answer.message);
    const { problem, finish } = answer.message;
    byId("said").textContent = problem ? "" : finish === "stopped" ? "Stopped." : "The answer is complete.";
    if (problem?.kind === "picture" && this.conversation === conversation) this.#showThread();
    const model = this.models.find(({ id }) => id === answer.message.model);
    if (problem?.kind === "gone" || model?.foretoken?.loaded === false) this.connect(); // now it can describe the model
    if (problem?.kind === "key") this.thread.querySelector(".problem input")?.focus();
  }

  #setBusy(busy) {
    this.thread.setAttribute("aria-busy", String(busy));
    document.body.classList.toggle("busy", busy);
    byId("send").hidden = busy;
    byId("stop").hidden = !busy;
    if (busy) byId("said").textContent = "Answering.";
  }

  #save(conversation) {
    if (!conversation.removed) byId("unsaved").hidden = this.conversations.save(conversation);
  }

  // compare generates the shown answer twice more, without drafting and with it, and says whether
  // all are the same. Neither is drawn while it comes, so their speeds can be compared.
  async compare() {
    const { shown: message, conversation } = this;
    if (!message || this.running) return;
    const { messages: before } = await this.#request(conversation, conversation.messages.slice(0, conversation.messages.indexOf(message)), message.system);
    const made = [];
    for (const [sent, note] of [[{ ...message.sent, mtp_depth: 0 }, "Running again without drafting…"], [message.sent, "Running again with drafting…"]]) {
      this.panel.showCompared(note);
      const answer = new Answer(blank(sent));
      await answer.run(before, { key: this.settings.key, changed: () => {}, waiting: () => {} });
      if (answer.message.problem) return this.panel.showCompared({ problem: answer.message.problem.message });
      made.push(answer.message);
    }
    const [plain, speculative] = made.map(({ stats }) => stats?.timings?.decode_tok_s ?? 0);
    const differ = Math.min(...made.map((other) => firstDifference(whole(message), whole(other))));
    message.compared = { same: differ === Infinity, differ, plain, speculative };
    if (this.conversation === conversation) this.#save(conversation); // it may have been continued or deleted meanwhile
    if (this.shown === message) this.panel.show(message);
    return undefined;
  }

  // #fit makes the field as high as its text.
  #fit() {
    this.prompt.style.height = "auto";
    this.prompt.style.height = `${Math.min(this.prompt.scrollHeight + 2, innerHeight * 0.4)}px`;
  }
}

// written is a message of a person.
const written = (content, pictures) => (pictures.length > 0 ? { role: "user", content, pictures } : { role: "user", content });

// mend marks an answer that was being made when the page was closed.
function mend(message) {
  if (message.role !== "assistant" || message.finish || message.problem) return;
  message.problem = { kind: "cut", message: "The page was closed before the answer ended." };
}

function stateOf({ kind, message, progress }) {
  if (kind === "loading") return progress === undefined ? "Model is loading" : `Model is loading, ${percent(progress)}`;
  return { gone: "Server does not answer; trying again", key: "API key needed: see settings" }[kind] ?? message;
}

// whole is all that a model wrote in a message.
const whole = (m) => m.reasoning + m.content + JSON.stringify(m.tools.map((call) => [call.name, call.arguments]));

// firstDifference is Infinity if there is none.
function firstDifference(one, two) {
  if (one === two) return Infinity;
  let i = 0;
  while (i < one.length && one[i] === two[i]) i++;
  return i;
}

for (const chip of document.querySelectorAll("#welcome [data-prompt]")) {
  chip.addEventListener("click", () => {
    app.prompt.value = chip.dataset.prompt;
    app.send();
  });
}

const app = new App();
