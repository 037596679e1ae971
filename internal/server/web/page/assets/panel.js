// The panel that shows speculative decoding: speed with and without it, the rounds as they come,
// acceptance by position, and the state of the server.

import { h } from "./dom.js";
import { bytes, count, duration, percent, rate, whole } from "./figures.js";

const maxColumns = 240;

// stripOf writes rounds for storage: two digits a round, accepted and rejected draft tokens, and
// the number of forced ones as a letter if there are any.
export const stripOf = (rounds) => rounds.map(({ accepted, rejected, forced }) => `${Math.min(9, accepted)}${Math.min(9, rejected.length)}${forced > 0 ? letter(forced) : ""}`).join("");

const firstLetter = "a".charCodeAt(0);
const letter = (n) => String.fromCharCode(firstLetter + Math.min(26, n) - 1);

// roundsOf is the inverse of stripOf.
export const roundsOf = (strip) =>
  Array.from(strip.matchAll(/(\d)(\d)([a-z]?)/g), ([, accepted, rejected, forced]) => ({
    accepted: Number(accepted),
    rejected: Array(Number(rejected)).fill(""),
    forced: forced ? forced.charCodeAt(0) - firstLetter + 1 : 0,
  }));

const figure = (name, text = "–") => h("dd", { "data-figure": name }, text);

export class Panel {
  // compare() regenerates the shown answer without drafting.
  constructor(element, { compare }) {
    this.costs = new Map(); // by model: time of a round, as a multiple of one without drafts, from the last stats
    this.speed = h("output", { "data-figure": "rate", "aria-live": "off" }, "–");
    this.gain = h("p", { class: "gain" });
    this.withBar = barRow("With drafting", "with");
    this.plainBar = barRow("Without", "plain");
    this.strip = h("div", { class: "rounds", "aria-hidden": "true" });
    this.positions = h("tbody");
    this.empty = h("p", { class: "note" }, "Ask something, and see which tokens were drafted and accepted.");
    this.facts = h("dl", { class: "facts" });
    this.compareButton = h("button", { type: "button", onclick: compare }, "Prove it: answer again without drafting");
    this.compared = h("p", { class: "note", role: "status" });
    this.server = h("dl", { class: "facts" });
    const bars = h("div", { class: "bars" }, this.withBar.row, this.plainBar.row);
    this.speedSection = section("Speed", h("p", { class: "speed" }, this.speed, h("span", {}, " tokens per second")), this.gain, bars);
    this.acceptance = section("Acceptance", positionTable(this.positions));
    this.answerSection = section("This answer", this.facts, this.compareButton, this.compared);
    element.append(
      this.speedSection,
      section("Rounds", this.empty, this.strip, legend()),
      this.acceptance,
      this.answerSection,
      section("Server", this.server),
    );
    this.clear();
    this.showServer(undefined);
  }

  clear() {
    this.strip.replaceChildren();
    this.strip.hidden = true;
    this.empty.hidden = false;
    this.acceptance.hidden = true;
    this.speedSection.hidden = true;
    this.answerSection.hidden = true;
    this.facts.replaceChildren();
    this.compareButton.hidden = true;
    this.compared.textContent = "";
  }

  // begin empties the panel for an answer that is about to come.
  begin() {
    this.clear();
    this.empty.hidden = true;
    this.strip.hidden = false;
    this.#showSpeed(0, 0);
  }

  // live shows the state of an answer that is growing.
  live(model, rounds, now) {
    this.addRounds(rounds.take());
    this.#showPositions(rounds.acceptedAt, rounds.draftedAt);
    const cost = this.costs.get(model);
    const plain = cost && rounds.perRound > 0 ? (now * cost) / rounds.perRound : 0;
    this.#showSpeed(now, plain);
    this.#showFacts([
      ["Tokens", "tokens", whole(rounds.tokens)],
      ["Rounds", "rounds", whole(rounds.rounds)],
      ["Tokens per round", "per-round", rounds.perRound.toFixed(2)],
      ["Accepted", "accepted", `${whole(rounds.accepted)} of ${whole(rounds.drafted)}`],
      ...forcedFacts(rounds.forced),
    ]);
  }

  // show shows an answer that has ended, from its stats.
  show(message) {
    this.clear();
    const { mtp, timings } = message.stats ?? {};
    const rounds = roundsOf(message.strip ?? "");
    this.empty.hidden = rounds.length > 0;
    this.strip.hidden = rounds.length === 0;
    this.addRounds(rounds.slice(-maxColumns));
    if (!timings) return;
    if (mtp?.speedup_estimate > 0) this.costs.set(message.model, mtp.tokens_per_round / mtp.speedup_estimate);
    this.#showPositions(mtp?.accepted_by_position ?? [], message.drafted ?? []);
    this.#showFacts([...draftFacts(mtp), ...timeFacts(timings), ["Seed", "seed", String(message.seed ?? "–")]]);
    this.#showSpeed(timings.decode_tok_s, mtp?.speedup_estimate > 0 ? timings.decode_tok_s / mtp.speedup_estimate : 0);
    this.compareButton.hidden = !(mtp?.drafted > 0) || message.finish === "stopped" || message.problem !== undefined;
    this.showCompared(message.compared);
  }

  // showCompared shows the same answer without drafting and with it. undefined:
  // it was not regenerated; a text is shown while it is.
  showCompared(result) {
    this.compareButton.disabled = typeof result === "string";
    if (result === undefined) this.compared.textContent = "";
    else if (typeof result === "string") this.compared.textContent = result;
    else if (result.problem) this.compared.textContent = result.problem;
    else if (result.same) {
      const speeds = `${rate(result.speculative)} tokens per second with drafting, ${rate(result.plain)} without`;
      this.compared.textContent = `The same text, token for token: ${speeds}, measured one after the other.`;
    } else this.compared.textContent = `The texts differ from character ${result.differ + 1} on. With “exact” acceptance they must not: please report this.`;
  }

  addRounds(rounds) {
    this.strip.append(...rounds.slice(-maxColumns).map(columnOf));
    while (this.strip.children.length > maxColumns) this.strip.firstElementChild.remove();
    this.strip.scrollLeft = this.strip.scrollWidth;
  }

  // showServer shows the server's status; null: it does not tell, undefined: not known.
  showServer(status, model) {
    const entry = status?.models?.find(({ id }) => id === model) ?? status?.models?.[0];
    if (!entry) {
      this.server.replaceChildren(h("dt", {}, status === null ? "This server does not report its state." : "Not known yet."));
      return;
    }
    const rows = [
      ["Running", "running", count(entry.running ?? 0, "request")],
      ["Waiting", "waiting", count(entry.waiting ?? 0, "request")],
    ];
    if (entry.kv_budget_bytes > 0) rows.push(["KV cache", "kv", `${bytes(entry.kv_used_bytes ?? 0)} of ${bytes(entry.kv_budget_bytes)}`]);
    if (entry.cache_entries > 0) rows.push(["Prefix cache", "cache", `${whole(entry.cache_entries)}, ${bytes(entry.cache_bytes ?? 0)}`]);
    if (entry.tokens_per_second > 0) rows.push(["All answers", "server-rate", `${rate(entry.tokens_per_second)} tokens per second`]);
    rows.push(...deviceFacts(entry.devices ?? []));
    fill(this.server, rows);
    if (entry.kv_budget_bytes > 0) {
      const share = Math.min(1, (entry.kv_used_bytes ?? 0) / entry.kv_budget_bytes);
      const used = h("div", { class: "fill" });
      used.style.width = `${share * 100}%`;
      this.server.querySelector("[data-figure=kv]").after(h("dd", { class: "wide", "aria-hidden": "true" }, h("div", { class: "track" }, used)));
    }
  }

  #showSpeed(now, plain) {
    this.speedSection.hidden = false;
    this.speed.textContent = now > 0 ? rate(now) : "–";
    const most = Math.max(now, plain, 1e-9);
    this.withBar.set(now, most);
    this.plainBar.set(plain, most);
    this.gain.textContent = now > 0 && plain > 0 ? `${(now / plain).toFixed(2)} × the speed without drafting (estimate)` : "";
  }

  #showPositions(accepted, drafted) {
    const n = Math.max(accepted.length, drafted.length);
    this.acceptance.hidden = n === 0;
    while (this.positions.rows.length > n) this.positions.lastElementChild.remove();
    for (let i = 0; i < n; i++) {
      const row = this.positions.rows[i] ?? this.positions.appendChild(positionRow(i + 1));
      const made = Math.max(drafted[i] ?? 0, accepted[i] ?? 0);
      const share = made > 0 ? (accepted[i] ?? 0) / made : 0;
      row.querySelector(".fill").style.width = `${share * 100}%`;
      row.querySelector(".share").textContent = percent(share);
      row.lastElementChild.textContent = `${whole(accepted[i] ?? 0)} of ${whole(made)}`;
      row.dataset.accepted = accepted[i] ?? 0;
    }
  }

  #showFacts(rows) {
    this.answerSection.hidden = false;
    fill(this.facts, rows);
  }
}

function section(title, ...content) {
  return h("section", { "aria-label": title }, h("h3", {}, title), content);
}

// positionTable names its columns for screen readers.
function positionTable(body) {
  const names = ["Position", "Acceptance", "Count"].map((name) => h("th", { scope: "col" }, name));
  return h(
    "table",
    { class: "positions" },
    h("caption", { class: "unseen" }, "Acceptance by position in the draft"),
    h("thead", { class: "unseen" }, h("tr", {}, names)),
    body,
  );
}

function fill(list, rows) {
  list.replaceChildren(...rows.flatMap(([label, name, value]) => [h("dt", {}, label), figure(name, value)]));
}

const forcedFacts = (n) => (n > 0 ? [["Forced by the grammar", "forced", whole(n)]] : []);

function draftFacts(mtp) {
  if (!mtp) return [["Draft tokens", "accepted", "none: the model has no MTP head, or drafting is off"]];
  const rows = [
    ["Tokens per round", "per-round", mtp.tokens_per_round.toFixed(2)],
    ["Rounds", "rounds", whole(mtp.rounds)],
    ["Accepted", "accepted", `${whole(mtp.accepted)} of ${whole(mtp.drafted)}`],
    ...forcedFacts(mtp.forced),
    ["Draft tokens per round", "depth", mtp.mean_depth.toFixed(2)],
    ["Drafter", "drafter", mtp.draft_vocab > 0 ? `${mtp.drafter}, vocabulary ${whole(mtp.draft_vocab)}` : mtp.drafter || "none"],
    ["Acceptance rule", "rule", mtp.rule],
  ];
  if (mtp.verify_ms > 0) rows.push(["Draft, verify", "work", `${duration(mtp.draft_ms)}, ${duration(mtp.verify_ms)}`]);
  return rows;
}

// deviceFacts describes the devices of a model, its placement if there are two, and their
// memory in use.
function deviceFacts(devices) {
  return devices.flatMap(({ name, parts, weight_bytes: weights, memory_bytes: memory, memory_free_bytes: free, memory_used_bytes: used }, i) => {
    const rows = [["Device", `device-${i}`, `${name}: ${devices.length > 1 ? `${parts.join(", ")}, ` : ""}${bytes(weights)}`]];
    if (memory > 0) rows.push(["Device memory", `memory-${i}`, `${bytes(used)} by the model, ${bytes(free)} of ${bytes(memory)} free`]);
    return rows;
  });
}

function timeFacts(timings) {
  const rows = [
    ["Tokens", "tokens", whole(timings.generated_tokens)],
    ["Prompt", "prompt", `${count(timings.prompt_tokens, "token")}${timings.cached_tokens > 0 ? `, ${whole(timings.cached_tokens)} cached` : ""}`],
    ["Prefill", "prefill", duration(timings.prefill_ms)],
    ["Decode", "decode", duration(timings.decode_ms)],
  ];
  if (timings.queue_ms >= 1) rows.splice(2, 0, ["Queue", "queue", duration(timings.queue_ms)]);
  if (timings.batch > 1.005) rows.push(["Batch size", "batch", timings.batch.toFixed(2)]);
  return rows;
}

// columnOf draws a round from below: forced tokens, accepted draft tokens, the token that the model
// sampled, and rejected draft tokens.
function columnOf({ accepted, rejected, forced }) {
  const cells = [];
  for (let i = 0; i < (forced ?? 0); i++) cells.push(h("i", { class: "cell forced" }));
  for (let i = 1; i <= accepted; i++) cells.push(h("i", { class: `cell d${Math.min(8, i)}` }));
  cells.push(h("i", { class: "cell d0" }));
  for (let i = 0; i < rejected.length; i++) cells.push(h("i", { class: "cell rejected" }));
  return h("div", { class: "round" }, cells);
}

function positionRow(n) {
  return h(
    "tr",
    { class: `d${Math.min(8, n)}` },
    h("th", { scope: "row" }, `${n}`),
    h("td", { class: "bar-cell" }, h("div", { class: "track" }, h("div", { class: "fill" })), h("span", { class: "share" })),
    h("td", { class: "amount" }),
  );
}

function barRow(label, name) {
  const fillBar = h("div", { class: "fill" });
  const value = h("span", { class: "amount", "data-figure": `rate-${name}` });
  const row = h("div", { class: `bar-row ${name}` }, h("span", { class: "bar-label" }, label), h("div", { class: "track" }, fillBar), value);
  const set = (n, most) => {
    fillBar.style.width = `${(100 * n) / most}%`;
    value.textContent = n > 0 ? rate(n) : "–";
    row.hidden = !(n > 0);
  };
  return { row, set };
}

function legend() {
  const key = (cls, text) => h("li", {}, h("i", { class: `cell ${cls}`, "aria-hidden": "true" }), text);
  const known = [["d0", "sampled by the model"], ["d1", "first draft token"], ["d2", "second"], ["d3", "third"], ["d4", "fourth and on"], ["forced", "forced by the grammar"], ["rejected", "rejected"]];
  return h("ul", { class: "legend" }, known.map(([cls, text]) => key(cls, text)));
}
