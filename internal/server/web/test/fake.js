// A small server with the part of the API that the page uses. Tests set its answers and
// failures.

import { createServer } from "node:http";
import { readFile } from "node:fs/promises";

const page = new URL("../page/", import.meta.url);
const mime = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

// The policy of web.go, so that the page runs under it here too; web_test.go compares them.
export const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

// tokensOf cuts a text into tokens and deals them out to rounds. plan is the number of accepted
// draft tokens of each round, repeated; the rest of depth are rejected.
export function tokensOf(text, plan = [2, 0, 3, 1], depth = 3) {
  const texts = text.match(/\s*[^\s]{1,7}|\s+/g) ?? [];
  const tokens = [{ id: 1, text: texts[0], draft: 0 }];
  let draft = 1;
  let round = 0;
  for (const text of texts.slice(1)) {
    const accepted = plan[round % plan.length];
    if (draft <= accepted) {
      tokens.push({ id: 1, text, draft: draft++ });
    } else {
      const rejected = [" wrong", " still", " more"].slice(0, depth - accepted);
      tokens.push(rejected.length > 0 ? { id: 1, text, draft: 0, rejected } : { id: 1, text, draft: 0 });
      draft = 1;
      round++;
    }
  }
  return tokens;
}

// statsOf counts the tokens, as the server would.
export function statsOf(tokens) {
  const sampled = tokens.filter(({ draft }) => draft === 0).length;
  const rounds = sampled + (tokens.at(-1)?.draft > 0 ? 1 : 0); // the last one may be cut short
  const accepted = tokens.length - sampled;
  const drafted = accepted + tokens.reduce((sum, { rejected = [] }) => sum + rejected.length, 0);
  const byPosition = [1, 2, 3].map((i) => tokens.filter(({ draft }) => draft === i).length);
  return {
    mtp: {
      rounds, drafted, accepted, accepted_by_position: byPosition, tokens_per_round: rounds > 0 ? tokens.length / rounds : 0, mean_depth: rounds > 0 ? drafted / rounds : 0,
      rule: "exact", drafter: "mtp", draft_vocab: 2128, draft_ms: 31, verify_ms: 88, beta: 1.4, delta: 0.16, speedup_estimate: 1.6,
    },
    timings: { queue_ms: 0.1, prefill_ms: 16, decode_ms: 2500, prompt_tokens: 14, cached_tokens: 6, generated_tokens: tokens.length, decode_tok_s: 40, batch: 1 },
  };
}

export class Fake {
  static async start() {
    const fake = new Fake();
    fake.server = createServer((req, res) => fake.#serve(req, res).catch((err) => res.destroy(err)));
    await new Promise((done) => fake.server.listen(0, "127.0.0.1", done));
    fake.url = `http://127.0.0.1:${fake.server.address().port}/`;
    return fake;
  }

  constructor() {
    this.reset();
  }

  reset() {
    this.requests = []; // bodies of chats
    this.keys = []; // keys of the requests
    this.plans = []; // functions (body, stream, res), one for each chat to come
    this.text = "Once upon a time there was a cat who wanted to see the sea.";
    this.key = "";
    this.status = { models: [{ id: "tiny", running: 1, waiting: 2, kv_used_bytes: 3 << 20, kv_budget_bytes: 12 << 20, cache_entries: 4, cache_bytes: 5 << 20, tokens_per_second: 81.5, devices: [{ name: "gpu", layers: 2, parts: ["layers 2-3", "output"], weight_bytes: 7 << 20, memory_bytes: 24 << 20, memory_free_bytes: 9 << 20, memory_used_bytes: 8 << 20 }, { name: "cpu", layers: 2, parts: ["layers 0-1"], weight_bytes: 6 << 20 }] }], uptime_s: 9 };
    this.loading = undefined;
  }

  async close() {
    this.server.closeAllConnections();
    await new Promise((done) => this.server.close(done));
  }

  async #serve(req, res) {
    const { pathname } = new URL(req.url, "http://fake");
    if (!pathname.startsWith("/v1/")) return this.#file(pathname, res);
    if (this.key && req.headers.authorization !== `Bearer ${this.key}`) {
      return fail(res, 401, { message: "The API key is missing or wrong.", type: "authentication_error", code: "invalid_api_key" });
    }
    if (this.loading !== undefined) return fail(res, 503, { message: "The model is being loaded.", type: "loading", progress: this.loading });
    if (pathname === "/v1/models") {
      const about = { loaded: true, context: 4096, family: "qwen3_5", parameters: 21_000_000, mtp: true };
      const sees = { id: "tiny", object: "model", input_modalities: ["text", "image"], foretoken: { ...about, vision: { max_pixels: 1 << 20 } } };
      return json(res, 200, { object: "list", data: [sees, { id: "small", object: "model", input_modalities: ["text"], foretoken: about }] });
    }
    if (pathname === "/v1/status") return this.status ? json(res, 200, this.status) : fail(res, 404, { message: "no such path", type: "not_found" });
    const body = JSON.parse(await bodyOf(req));
    this.requests.push(body);
    this.keys.push(req.headers.authorization);
    const plan = this.plans.shift() ?? ((body, stream) => stream.answer(this.text));
    await plan(body, new Stream(res, body), res);
  }

  async #file(pathname, res) {
    const name = pathname === "/" ? "index.html" : pathname.slice(1);
    try {
      const data = await readFile(new URL(name, page));
      res.writeHead(200, { "Content-Type": mime[name.split(".").pop()], "Content-Security-Policy": policy }).end(data);
    } catch {
      res.writeHead(404).end();
    }
  }
}

// fail answers with an error.
export const fail = (res, status, error, headers = {}) => json(res, status, { error: { param: null, code: null, ...error } }, headers);

function json(res, status, value, headers = {}) {
  res.writeHead(status, { "Content-Type": "application/json", ...headers }).end(JSON.stringify(value));
}

async function bodyOf(req) {
  let text = "";
  for await (const part of req) text += part;
  return text;
}

// Stream writes the chunks of an answer.
export class Stream {
  constructor(res, body) {
    this.res = res;
    this.body = body;
    this.tokens = [];
  }

  chunk(fields, foretoken) {
    if (!this.res.headersSent) this.res.writeHead(200, { "Content-Type": "text/event-stream" });
    const chunk = { id: "chatcmpl-1", object: "chat.completion.chunk", model: this.body.model, ...fields };
    if (foretoken) chunk.foretoken = foretoken;
    this.res.write(`data: ${JSON.stringify(chunk)}\n\n`);
  }

  delta(delta, tokens = []) {
    this.tokens.push(...tokens);
    this.chunk({ choices: [{ index: 0, delta, finish_reason: null }] }, tokens.length > 0 ? { tokens } : undefined);
  }

  // write sends a text, a round a chunk, as content or as reasoning.
  write(text, field = "content", plan = undefined) {
    let round = [];
    for (const token of tokensOf(text, plan)) {
      round.push(token);
      if (token.draft > 0) continue;
      this.delta({ [field]: round.map((t) => t.text).join("") }, round);
      round = [];
    }
    if (round.length > 0) this.delta({ [field]: round.map((t) => t.text).join("") }, round);
  }

  end(reason = "stop") {
    const stats = statsOf(this.tokens);
    const { accepted, drafted } = stats.mtp;
    this.chunk({ choices: [{ index: 0, delta: {}, finish_reason: reason }] });
    const usage = {
      prompt_tokens: 14, completion_tokens: this.tokens.length, total_tokens: 14 + this.tokens.length,
      completion_tokens_details: { accepted_prediction_tokens: accepted, rejected_prediction_tokens: drafted - accepted },
    };
    this.chunk({ choices: [], usage }, stats);
    this.res.end("data: [DONE]\n\n");
  }

  answer(text, reason) {
    this.write(text);
    this.end(reason);
  }
}
