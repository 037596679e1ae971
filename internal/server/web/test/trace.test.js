import assert from "node:assert/strict";
import { test } from "node:test";
import { chat, events } from "../page/assets/api.js";
import { roundsOf, stripOf } from "../page/assets/panel.js";
import { forcedDraft, Overlay, Pace, Rounds, Tracer } from "../page/assets/trace.js";
import { statsOf, tokensOf } from "./fake.js";

const token = (text, draft = 0, rejected = undefined) => ({ text, draft, rejected });

// lay adds tokens and pieces of text, each piece after the tokens before it.
function lay(...steps) {
  const tracer = new Tracer();
  const tiles = [];
  for (const step of steps) {
    if (typeof step === "string") tracer.lay(tiles, step);
    else tracer.token(step);
  }
  return tiles;
}

test("tiles follow the tokens", () => {
  assert.deepEqual(lay(token("a "), token("bc", 1), token("d", 2), "a bcd"), [[2, 0], [2, 1], [1, 2]]);
  assert.deepEqual(lay(token("abc"), "a", "b", token("d", 1), "cd"), [[1, 0], [1, 0], [1, 0], [1, 1]]);
});

test("rejected draft tokens are reported once, where their token begins", () => {
  assert.deepEqual(lay(token("abc", 0, ["x", "y"]), "a", "bc"), [[1, 0, ["x", "y"]], [2, 0]]);
});

test("forced tokens have tiles of their own, and count apart", () => {
  const forced = (text, draft) => ({ text, draft, forced: true });
  assert.deepEqual(lay(token("a"), forced("bc", 1), token("d", 2), "abcd"), [[1, 0], [2, forcedDraft], [1, 2]]);
  const rounds = new Rounds();
  for (const t of [forced("a", 1), forced("b", 2), token("c", 3), token("d", 0, ["x"]), token("e", 1), forced("f", 2), token("g")]) rounds.add(t);
  assert.deepEqual([rounds.rounds, rounds.tokens, rounds.forced, rounds.accepted, rounds.drafted], [2, 7, 3, 2, 3]);
  assert.deepEqual([rounds.acceptedAt, rounds.draftedAt], [[1, 0, 1, 0], [1, 0, 1, 1]]);
  const made = rounds.take();
  const strip = stripOf(made);
  assert.equal(strip, "11b10a");
  assert.deepEqual(roundsOf(strip), made.map((r) => ({ accepted: r.accepted, rejected: r.rejected.map(() => ""), forced: r.forced })));
  assert.deepEqual(roundsOf("2130").map((r) => [r.accepted, r.rejected.length, r.forced]), [[2, 1, 0], [3, 0, 0]]);
});

test("markup between texts is skipped", () => {
  assert.deepEqual(lay(token("<think>"), token("hm"), token("</think>", 1), token("\n\nyes", 2), "hm", "yes"), [[2, 0], [3, 2]]);
});

test("a character over several tokens belongs to the last of them", () => {
  assert.deepEqual(lay(token(" \ufffd\ufffd"), token("\ufffd\ufffd!", 1), " ", "😀!"), [[1, 0], [3, 1]]);
  assert.deepEqual(lay(token("\ufffd"), token("\ufffd", 1), token("a", 2), "éa"), [[1, 1], [1, 2]]);
});

test("text that no token has is of unknown origin", () => {
  assert.deepEqual(lay("lost", token("found", 1), "found"), [[4], [5, 1]]);
});

test("tiles always cover the text", () => {
  let seed = 7;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let i = 0; i < 300; i++) {
    const tracer = new Tracer();
    const tiles = [];
    let length = 0;
    for (let k = 0; k < 40; k++) {
      const text = "ab c\n<>é😀".slice(random(5), 5 + random(5));
      if (random(3) > 0) tracer.token(token(text, random(4)));
      const piece = random(2) > 0 ? text : "zq";
      if (piece === "") continue;
      tracer.lay(tiles, piece);
      length += piece.length;
    }
    assert.equal(tiles.reduce((sum, [n]) => sum + n, 0), length);
  }
});

test("an overlay cuts any range at the tiles", () => {
  const overlay = new Overlay([[2, 0], [3, 1], [1, 2]]);
  const cover = (from, to) => overlay.cover(from, to).map((part) => [part.from, part.to, part.tile?.[1], part.first]);
  assert.deepEqual(cover(0, 6), [[0, 2, 0, true], [2, 5, 1, true], [5, 6, 2, true]]);
  assert.deepEqual(cover(1, 3), [[1, 2, 0, false], [2, 3, 1, true]]);
  assert.deepEqual(cover(3, 4), [[3, 4, 1, false]]);
  assert.deepEqual(cover(5, 9).map((part) => part.slice(0, 3)), [[5, 6, 2], [6, 9, undefined]]);
  assert.deepEqual(new Overlay([]).cover(0, 3).length, 1);
});

test("rounds are counted as in the stats", () => {
  for (const plan of [[0], [3], [2, 0, 3, 1]]) {
    const tokens = tokensOf("one two three four five six seven eight nine ten eleven twelve.", plan);
    const rounds = new Rounds();
    tokens.forEach((t) => rounds.add(t));
    rounds.end();
    const { mtp } = statsOf(tokens);
    assert.equal(rounds.rounds, mtp.rounds);
    assert.equal(rounds.accepted, mtp.accepted);
    assert.equal(rounds.drafted, mtp.drafted);
    assert.equal(rounds.perRound, mtp.tokens_per_round);
    assert.deepEqual([0, 1, 2].map((i) => rounds.acceptedAt[i] ?? 0), mtp.accepted_by_position);
    assert.equal(rounds.take().length, mtp.rounds);
    assert.equal(rounds.take().length, 0);
  }
});

test("a round that was cut short still counts", () => {
  const rounds = new Rounds();
  [token("a", 1), token("b", 2), token("c", 1)].forEach((t) => rounds.add(t));
  rounds.end();
  assert.deepEqual(rounds.take().map(({ accepted, sampled }) => [accepted, sampled]), [[2, false], [1, false]]);
});

test("pace is over the last seconds", () => {
  const pace = new Pace(1000);
  assert.equal(pace.rate, 0);
  for (let ms = 0; ms <= 5000; ms += 100) pace.add(ms, ms < 3000 ? ms / 100 : 30 + (ms - 3000) / 50);
  assert.equal(Math.round(pace.rate), 20);
});

async function collect(...parts) {
  const encoder = new TextEncoder();
  const stream = new ReadableStream({
    start(controller) {
      for (const part of parts) controller.enqueue(typeof part === "string" ? encoder.encode(part) : part);
      controller.close();
    },
  });
  const found = [];
  for await (const data of events(stream)) found.push(data);
  return found;
}

test("a request that no server would take is not sent", async () => {
  const asked = chat({ messages: [{ role: "user", content: "x".repeat(64 << 20) }] }, {}).next();
  await assert.rejects(asked, ({ kind, message }) => kind === "large" && /It has 64 MiB/.test(message));
});

test("events are read however the bytes are cut", async () => {
  const text = 'data: {"a":"é😀"}\n\n: comment\n\ndata: two\r\ndata: lines\r\n\r\nevent: x\ndata:[DONE]\n\n';
  const want = ['{"a":"é😀"}', "two\nlines", "[DONE]"];
  assert.deepEqual(await collect(text), want);
  const bytes = new TextEncoder().encode(text);
  assert.deepEqual(await collect(...Array.from(bytes, (b) => Uint8Array.of(b))), want);
  for (let i = 1; i < bytes.length; i++) assert.deepEqual(await collect(bytes.slice(0, i), bytes.slice(i)), want);
});
