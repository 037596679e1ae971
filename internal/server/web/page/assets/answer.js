// Makes an answer: sends a conversation, takes in the chunks, counts. It knows the server and a
// message, and shows nothing itself.

import { Problem, chat } from "./api.js";
import { Pace, Rounds, Tracer } from "./trace.js";

// blank is an answer before its first token. sent is what is asked with, the messages aside.
export function blank(sent) {
  return { role: "assistant", content: "", reasoning: "", tools: [], model: sent.model, seed: sent.seed, sent, tiles: { content: [], reasoning: [] } };
}

// Answer is the making of one message.
export class Answer {
  constructor(message, now = () => performance.now()) {
    this.message = message;
    this.rounds = new Rounds();
    this.pace = new Pace();
    this.now = now;
    this.tracer = new Tracer();
    this.controller = new AbortController();
  }

  stop() {
    this.controller.abort();
  }

  // run fills the message until the answer has ended, however it ends: message.finish or
  // message.problem tells. changed() is called for each chunk, waiting(problem) while the model
  // is being loaded.
  async run(messages, { key, changed, waiting }) {
    const { message } = this;
    const { signal } = this.controller;
    for (;;) {
      try {
        for await (const chunk of chat({ ...message.sent, messages }, { key, signal })) {
          this.#take(chunk);
          changed();
        }
        message.finish ??= "stop";
        break;
      } catch (err) {
        if (signal.aborted) message.finish = "stopped";
        else if (err instanceof Problem && err.kind === "loading") {
          waiting(err);
          if (await pause(1000, signal)) continue;
          message.finish = "stopped";
        } else if (err instanceof Problem) {
          message.problem = { kind: err.kind, message: err.message, retryAfter: err.retryAfter, picture: err.picture };
        } else {
          throw err;
        }
        break;
      }
    }
    this.rounds.end();
    message.drafted = this.rounds.draftedAt;
  }

  #take(chunk) {
    const { message } = this;
    this.begun = true;
    const { tokens = [], mtp, timings } = chunk.foretoken ?? {};
    for (const token of tokens) {
      this.tracer.token(token);
      this.rounds.add(token);
    }
    if (tokens.length > 0) this.pace.add(this.now(), this.rounds.tokens);
    if (timings) message.stats = { mtp, timings };
    if (chunk.usage) message.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const { reasoning_content: reasoning, content, tool_calls: calls } = choice.delta ?? {};
    if (reasoning) {
      this.thinkingSince ??= this.now();
      message.thought = this.now() - this.thinkingSince;
      this.#append("reasoning", reasoning);
    }
    if (content) this.#append("content", content);
    for (const call of calls ?? []) this.#call(call);
    if (choice.finish_reason) message.finish = choice.finish_reason;
  }

  #append(name, text) {
    this.message[name] += text;
    this.tracer.lay(this.message.tiles[name], text);
  }

  #call({ index = 0, id, function: part = {} }) {
    const { tools } = this.message;
    if (index > 255) return;
    while (tools.length <= index) tools.push({ id: "", name: "", arguments: "" });
    if (id) tools[index].id = id;
    if (part.name) tools[index].name = part.name;
    tools[index].arguments += part.arguments ?? "";
  }
}

// pause waits; false: it was given up.
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(() => done(true), ms);
    const done = (value) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", abort);
      resolve(value);
    };
    const abort = () => done(false);
    if (signal.aborted) done(false);
    else signal.addEventListener("abort", abort);
  });
}
