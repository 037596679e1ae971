// The panel that makes guessing ahead visible: speed with and without it, the rounds as they
// come, how often guesses hold by position, and what the server is doing.

import { h } from "./dom.js";
import { bytes, count, duration, percent, rate, whole } from "./figures.js";

const maxColumns = 240;

// stripOf writes rounds for keeping: two digits a round, guesses that held and that did not.
export const stripOf = (rounds) => rounds.map(({ held, refused }) => `${Math.min(9, held)}${Math.min(9, refused.length)}`).join("");

const figure = (name, text = "–") => h("dd", { "data-figure": name }, text);

export class Panel {
  // compare() is asked to make the shown answer again without guesses.
  constructor(element, { compare }) {
    this.costs = new Map(); // by model: time of a round in plain ones, from the last receipt
    this.speed = h("output", { "data-figure": "rate", "aria-live": "off" }, "–");
    this.gain = h("p", { class: "gain" });
    this.withBar = barRow("With guesses", "with");
    this.plainBar = barRow("Without", "plain");
    this.strip = h("div", { class: "rounds", "aria-hidden": "true" });
    this.positions = h("tbody");
    this.empty = h("p", { class: "note" }, "Ask something, and watch which words the model saw coming.");
    this.facts = h("dl", { class: "facts" });
    this.compareButton = h("button", { type: "button", onclick: compare }, "Prove it: answer again without guesses");
    this.compared = h("p", { class: "note", role: "status" });
    this.server = h("dl", { class: "facts" });
    const bars = h("div", { class: "bars" }, this.withBar.row, this.plainBar.row);
    this.speedSection = section("Speed", h("p", { class: "speed" }, this.speed, h("span", {}, " tokens per second")), this.gain, bars);
    this.acceptance = section("Guesses that held", positionTable(this.positions));
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
    this.#showPositions(rounds.held, rounds.tried);
    const cost = this.costs.get(model);
    const plain = cost && rounds.perRound > 0 ? (now * cost) / rounds.perRound : 0;
    this.#showSpeed(now, plain);
    this.#showFacts([
      ["Tokens", "tokens", whole(rounds.tokens)],
      ["Rounds", "rounds", whole(rounds.rounds)],
      ["Tokens per round", "per-round", rounds.perRound.toFixed(2)],
      ["Guesses held", "held", `${whole(rounds.accepted)} of ${whole(rounds.drafted)}`],
    ]);
  }

  // show shows an answer that has ended, from its receipt.
  show(message) {
    this.clear();
    const { mtp, timings } = message.receipt ?? {};
    const rounds = (message.strip?.match(/\d\d/g) ?? []).map((digits) => ({ held: Number(digits[0]), refused: Array(Number(digits[1])).fill("") }));
    this.empty.hidden = rounds.length > 0;
    this.strip.hidden = rounds.length === 0;
    this.addRounds(rounds.slice(-maxColumns));
    if (!timings) return;
    if (mtp?.speedup_estimate > 0) this.costs.set(message.model, mtp.tokens_per_round / mtp.speedup_estimate);
    this.#showPositions(mtp?.accepted_by_position ?? [], message.tried ?? []);
    this.#showFacts([...guessFacts(mtp), ...timeFacts(timings), ["Seed", "seed", String(message.seed ?? "–")]]);
    this.#showSpeed(timings.decode_tok_s, mtp?.speedup_estimate > 0 ? timings.decode_tok_s / mtp.speedup_estimate : 0);
    this.compareButton.hidden = !(mtp?.drafted > 0) || message.finish === "stopped" || message.problem !== undefined;
    this.showCompared(message.compared);
  }

  // showCompared tells what the same answer was like without guesses and with them. undefined:
  // it was not made again; a text is shown while it is being made.
  showCompared(result) {
    this.compareButton.disabled = typeof result === "string";
    if (result === undefined) this.compared.textContent = "";
    else if (typeof result === "string") this.compared.textContent = result;
    else if (result.problem) this.compared.textContent = result.problem;
    else if (result.same) {
      const speeds = `${rate(result.guessed)} tokens per second with guesses, ${rate(result.plain)} without`;
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
      this.server.replaceChildren(h("dt", {}, status === null ? "This server does not tell its state." : "Not known yet."));
      return;
    }
    const rows = [
      ["Answering", "running", count(entry.running ?? 0, "request")],
      ["Waiting", "waiting", count(entry.waiting ?? 0, "request")],
    ];
    if (entry.kv_budget_bytes > 0) rows.push(["Context memory", "kv", `${bytes(entry.kv_used_bytes ?? 0)} of ${bytes(entry.kv_budget_bytes)}`]);
    if (entry.cache_entries > 0) rows.push(["Prefix cache", "cache", `${whole(entry.cache_entries)}, ${bytes(entry.cache_bytes ?? 0)}`]);
    if (entry.tokens_per_second > 0) rows.push(["All answers", "server-rate", `${rate(entry.tokens_per_second)} tokens per second`]);
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
    this.gain.textContent = now > 0 && plain > 0 ? `${(now / plain).toFixed(2)} times as fast as without guesses, by estimate` : "";
  }

  #showPositions(held, tried) {
    const n = Math.max(held.length, tried.length);
    this.acceptance.hidden = n === 0;
    while (this.positions.rows.length > n) this.positions.lastElementChild.remove();
    for (let i = 0; i < n; i++) {
      const row = this.positions.rows[i] ?? this.positions.appendChild(positionRow(i + 1));
      const made = Math.max(tried[i] ?? 0, held[i] ?? 0);
      const share = made > 0 ? (held[i] ?? 0) / made : 0;
      row.querySelector(".fill").style.width = `${share * 100}%`;
      row.querySelector(".share").textContent = percent(share);
      row.lastElementChild.textContent = `${whole(held[i] ?? 0)} of ${whole(made)}`;
      row.dataset.held = held[i] ?? 0;
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

// positionTable has its columns named for those who do not see bars.
function positionTable(body) {
  const names = ["Guess", "Share", "Count"].map((name) => h("th", { scope: "col" }, name));
  return h(
    "table",
    { class: "positions" },
    h("caption", { class: "unseen" }, "How often guesses held, by position in the round"),
    h("thead", { class: "unseen" }, h("tr", {}, names)),
    body,
  );
}

function fill(list, rows) {
  list.replaceChildren(...rows.flatMap(([label, name, value]) => [h("dt", {}, label), figure(name, value)]));
}

function guessFacts(mtp) {
  if (!mtp) return [["Guesses", "held", "none: the model has no head, or guessing is off"]];
  const rows = [
    ["Tokens per round", "per-round", mtp.tokens_per_round.toFixed(2)],
    ["Rounds", "rounds", whole(mtp.rounds)],
    ["Guesses held", "held", `${whole(mtp.accepted)} of ${whole(mtp.drafted)}`],
    ["Guesses per round", "depth", mtp.mean_depth.toFixed(2)],
    ["Guessed by", "drafter", mtp.draft_vocab > 0 ? `${mtp.drafter}, among ${whole(mtp.draft_vocab)}` : mtp.drafter],
    ["Acceptance", "rule", mtp.rule],
  ];
  if (mtp.verify_ms > 0) rows.push(["Guessing, checking", "work", `${duration(mtp.draft_ms)}, ${duration(mtp.verify_ms)}`]);
  return rows;
}

function timeFacts(timings) {
  const rows = [
    ["Tokens", "tokens", whole(timings.generated_tokens)],
    ["Prompt", "prompt", `${count(timings.prompt_tokens, "token")}${timings.cached_tokens > 0 ? `, ${whole(timings.cached_tokens)} cached` : ""}`],
    ["Reading it", "prefill", duration(timings.prefill_ms)],
    ["Writing", "decode", duration(timings.decode_ms)],
  ];
  if (timings.queue_ms >= 1) rows.splice(2, 0, ["Queue", "queue", duration(timings.queue_ms)]);
  if (timings.batch > 1.005) rows.push(["Answers at once", "batch", timings.batch.toFixed(2)]);
  return rows;
}

// columnOf draws a round from below: guesses that held, the token that the model drew, and
// the guesses that it refused.
function columnOf({ held, refused }) {
  const cells = [];
  for (let i = 1; i <= held; i++) cells.push(h("i", { class: `cell g${Math.min(8, i)}` }));
  cells.push(h("i", { class: "cell g0" }));
  for (let i = 0; i < refused.length; i++) cells.push(h("i", { class: "cell refused" }));
  return h("div", { class: "round" }, cells);
}

function positionRow(n) {
  return h(
    "tr",
    { class: `g${Math.min(8, n)}` },
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
  const known = [["g0", "drawn by the model"], ["g1", "first guess"], ["g2", "second"], ["g3", "third"], ["g4", "fourth and on"], ["refused", "refused"]];
  return h("ul", { class: "legend" }, known.map(([cls, text]) => key(cls, text)));
}
