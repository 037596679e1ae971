// The page with the program itself, as people have them.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { fileURLToPath } from "node:url";
import { answerText, close, ended, figure, launch, open, send } from "./browser.js";
import { png } from "./samples.js";

assert.ok(process.env.FORETOKEN_BIN, "FORETOKEN_BIN must name the built program; test/run sets it");

// serve starts the program and returns it with its address.
async function serve(...flags) {
  const { FORETOKEN_API_KEY: _, ...env } = process.env;
  const child = spawn(process.env.FORETOKEN_BIN, ["serve", "--port", "0", ...flags], { stdio: ["ignore", "ignore", "pipe"], env });
  let log = "";
  const url = await new Promise((resolve, reject) => {
    child.stderr.on("data", (part) => {
      log += part;
      const found = /url=(http:\S+)/.exec(log);
      if (found) resolve(found[1]);
    });
    child.once("exit", () => reject(new Error(`foretoken serve ended: ${log}`)));
  });
  return { child, url: `${url}/` };
}

async function end({ child }) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}

let browser, server, page;
before(async () => ([browser, server] = await Promise.all([launch(), serve()])));
after(() => Promise.all([browser?.close(), server && end(server)]));
beforeEach(async () => {
  page = await open(browser, server.url);
  await page.waitForFunction(() => !document.querySelector("#model").disabled);
});
afterEach(() => close(page));

// kept is the last message as the browser keeps it.
const kept = (from = page) =>
  from.evaluate(() => {
    const [{ id }] = JSON.parse(localStorage.getItem("foretoken.conversations"));
    return JSON.parse(localStorage.getItem(`foretoken.conversation.${id}`)).messages.at(-1);
  });

async function set(values) {
  await page.click("#settings-toggle");
  for (const [name, value] of Object.entries(values)) {
    const field = page.locator(`#set-${name}`);
    if ((await field.evaluate((element) => element.tagName)) === "SELECT") await field.selectOption(value);
    else {
      await field.fill(value);
      await field.blur();
    }
  }
  await page.keyboard.press("Escape");
}

// alter adds fields to the requests of a page.
const alter = (page, fields) => page.route("**/v1/chat/completions", (route) => route.continue({ postData: { ...route.request().postDataJSON(), ...fields } }));

test("an answer streams, and the panel shows its stats", async () => {
  await set({ seed: "3", max_completion_tokens: "120", mtp_depth: "3" });
  await send(page, "Tell me a story about a cat.");
  await ended(page);
  const message = await kept();
  assert.equal(message.problem, undefined);
  const { mtp, timings } = message.stats;
  assert.ok(mtp.drafted > 0 && mtp.accepted > 0, "nothing was drafted");
  assert.equal(await figure(page, "rate"), timings.decode_tok_s >= 100 ? Math.round(timings.decode_tok_s).toLocaleString("en") : timings.decode_tok_s.toFixed(1));
  assert.equal(await figure(page, "per-round"), mtp.tokens_per_round.toFixed(2));
  assert.equal(await figure(page, "rounds"), String(mtp.rounds));
  assert.equal(await figure(page, "accepted"), `${mtp.accepted} of ${mtp.drafted}`);
  assert.equal(await figure(page, "tokens"), String(timings.generated_tokens));
  assert.equal(await figure(page, "drafter"), `auto, vocabulary ${mtp.draft_vocab.toLocaleString("en")}`);
  assert.deepEqual(await page.locator(".positions tbody tr").evaluateAll((rows) => rows.map((row) => Number(row.dataset.accepted))), mtp.accepted_by_position);
  const details = message.usage.completion_tokens_details;
  assert.deepEqual([details.accepted_prediction_tokens, details.rejected_prediction_tokens], [mtp.accepted, mtp.drafted - mtp.accepted]);
  // The trace agrees: every token is colored, and its rounds are those of the stats.
  assert.equal(message.tiles.content.reduce((sum, [length]) => sum + length, 0), message.content.length);
  assert.ok(message.tiles.content.every(([, draft]) => draft !== undefined), "a token's origin is not known");
  assert.equal(message.strip.length / 2, mtp.rounds);
  const accepted = [...message.strip].filter((_, i) => i % 2 === 0).reduce((sum, digit) => sum + Number(digit), 0);
  assert.ok(accepted <= mtp.accepted && mtp.accepted - accepted <= 3, `${accepted} tokens came from drafts, ${mtp.accepted} draft tokens were accepted`); // the last round may be cut
  assert.ok((await page.locator(".answer .token.d1").count()) > 0);
});

test("the same seed without drafting gives the same text", async () => {
  await set({ seed: "5", max_completion_tokens: "80", temperature: "1", mtp_depth: "4" });
  await send(page, "Tell me a story about a dog.");
  await ended(page);
  await page.getByRole("button", { name: /Prove it/ }).click();
  await page.getByText("The same text, token for token").waitFor();
});

test("a conversation goes on after a reload", async () => {
  await set({ seed: "4", max_completion_tokens: "24" });
  await send(page, "Tell me about the sea.");
  await ended(page);
  const text = await answerText(page);
  await page.reload();
  await page.waitForSelector(".answer");
  assert.equal(await answerText(page), text);
  await send(page, "And then?");
  await ended(page);
  const { stats, problem } = await kept();
  assert.equal(problem, undefined);
  assert.ok(stats.timings.cached_tokens > 0, "the prefix was not cached");
});

test("the model sees an image", async () => {
  await set({ temperature: "0", max_completion_tokens: "24", mtp_depth: "2" });
  const example = fileURLToPath(new URL("../../../../examples/pictures/house-and-heart.png", import.meta.url));
  await page.locator("#attach + input").setInputFiles([example]);
  await page.waitForSelector("#attached img");
  await send(page, "What do you see?");
  await ended(page);
  assert.equal(await answerText(page), "There is a pink house and a black heart.");
  const { stats } = await kept();
  assert.ok(stats.mtp.accepted > 0, "no draft token was accepted");
  await page.getByRole("button", { name: /Prove it/ }).click();
  await page.getByText("The same text, token for token").waitFor();
  // It is there after a reload, and cached in the next turn.
  await page.reload();
  await page.waitForFunction(() => document.querySelector(".picture img")?.naturalWidth === 320 && !document.querySelector("#model").disabled);
  await send(page, "What else?");
  await ended(page);
  const next = await kept();
  assert.equal(next.problem, undefined);
  assert.ok(next.stats.timings.cached_tokens > stats.timings.prompt_tokens, `${next.stats.timings.cached_tokens} tokens were cached`);
});

// The portable kernels take minutes for these tokens, and no end token ends them: a stop
// always has something to stop.
test("stopping frees the server", async () => {
  const slow = await serve("--isa", "generic", "--threads", "1");
  const other = await open(browser, slow.url);
  await alter(other, { max_completion_tokens: 4000, ignore_eos: true });
  await other.waitForFunction(() => !document.querySelector("#model").disabled);
  await send(other, "Tell me a very long story.");
  await other.waitForSelector(".answer p");
  await other.keyboard.press("Escape");
  await ended(other);
  assert.equal((await kept(other)).finish, "stopped");
  await other.waitForFunction(async () => (await (await fetch("v1/status")).json()).models[0].running === 0);
  await close(other);
  await end(slow);
});

test("what the server refuses is told in its words", async () => {
  await send(page, "word ".repeat(6000));
  await page.waitForSelector(".problem");
  assert.match(await page.locator(".problem").innerText(), /too long for the model/);
  // An error about an image is shown at that image.
  await page.click("#new");
  const pictures = [["square.png", png(64, 64)], ["line.png", png(2100, 10)]].map(([name, buffer]) => ({ name, mimeType: "image/png", buffer }));
  await page.locator("#attach + input").setInputFiles(pictures);
  await page.waitForFunction(() => document.querySelectorAll("#attached img").length === 2);
  await send(page, "What do you see?");
  await page.waitForSelector(".wrong .why");
  assert.equal(await page.locator(".wrong img").getAttribute("alt"), "line.png");
  assert.match(await page.locator(".wrong .why").innerText(), /^Image of an unusable shape: 2100×10 pixels, .*\.$/);
});

test("a server with a key, which then goes away", async () => {
  const locked = await serve("--api-key", "a-key-for-this-test", "--no-vision");
  const other = await open(browser, locked.url);
  await alter(other, { seed: 1, max_completion_tokens: 16 });
  await other.getByText("API key needed").waitFor();
  await send(other, "Hello.");
  await other.locator(".problem input").fill("a-key-for-this-test");
  await other.keyboard.press("Enter");
  await other.waitForSelector(".answer .stats");
  await other.waitForSelector('#attach[title="Add images: tiny does not accept images."]');
  await end(locked);
  await send(other, "Still there?");
  await other.getByText("The server is unreachable").waitFor();
  assert.equal(await other.locator(".bubble").last().innerText(), "Still there?");
  await close(other);
});
