import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { readFile } from "node:fs/promises";
import { answerText, close, ended, figure, launch, open, says, send, whole } from "./browser.js";
import { Fake, statsOf } from "./fake.js";

let browser, fake, page;
before(async () => ([browser, fake] = await Promise.all([launch(), Fake.start()])));
after(() => Promise.all([browser?.close(), fake?.close()]));
beforeEach(async () => {
  fake.reset();
  page = await open(browser, fake.url);
  await page.waitForFunction(() => !document.querySelector("#model").disabled); // requests name it
});
afterEach(() => close(page));

// gate is a promise that a test resolves.
function gate() {
  let go;
  const opened = new Promise((resolve) => (go = resolve));
  return { opened, go };
}

test("a message is sent and its answer shown", async () => {
  await send(page, "Tell me a story.");
  await ended(page);
  assert.equal(await answerText(page), fake.text);
  assert.equal(await page.locator(".bubble").innerText(), "Tell me a story.");
  const [body] = fake.requests;
  assert.deepEqual(body.messages, [{ role: "user", content: "Tell me a story." }]);
  assert.equal(body.model, "tiny");
  assert.equal(body.stream, true);
  assert.deepEqual(body.foretoken, { stats: true, trace: true });
  assert.deepEqual(body.stream_options, { include_usage: true });
  assert.ok(Number.isInteger(body.seed));
  assert.equal(await page.inputValue("#prompt"), "");
});

test("the answer is shown while it comes", async () => {
  const { opened, go } = gate();
  fake.plans.push(async (body, stream) => {
    stream.write("First **half** ");
    await opened;
    stream.write("and second.");
    stream.end();
  });
  await send(page, "Go.");
  await page.waitForSelector(".answer strong");
  assert.equal(await page.getAttribute("#thread", "aria-busy"), "true");
  assert.match(await answerText(page), /^First half/);
  assert.ok(await page.isVisible("#stop"));
  go();
  await ended(page);
  assert.equal(await answerText(page), "First half and second.");
  assert.equal(await page.getAttribute("#thread", "aria-busy"), "false");
  assert.ok(await page.isVisible("#send"));
});

test("Escape and the button stop an answer, and what came is kept", async () => {
  for (const stop of [() => page.keyboard.press("Escape"), () => page.click("#stop")]) {
    const { opened, go } = gate();
    const left = gate();
    fake.plans.push(async (body, stream, res) => {
      res.on("close", left.go);
      stream.write("As far as this");
      await opened;
    });
    await send(page, "Go.");
    await says(page, "As far as this");
    await stop();
    await left.opened; // the server sees it
    await ended(page);
    go();
    assert.equal(await answerText(page), "As far as this");
    assert.equal(await page.locator(".answer").last().locator(".notice-slot").innerText(), "Stopped.");
  }
});

test("Enter that ends a composition sends nothing", async () => {
  await page.fill("#prompt", "にほん");
  await page.locator("#prompt").dispatchEvent("keydown", { key: "Enter", keyCode: 229 }); // as Safari reports it
  await page.fill("#prompt", "日本");
  await page.press("#prompt", "Enter");
  await ended(page);
  assert.deepEqual(fake.requests.map(({ messages }) => messages[0].content), ["日本"]);
});

test("an answer is made anew", async () => {
  await send(page, "Tell me a story.");
  await ended(page);
  fake.text = "Another one.";
  await page.click('[aria-label="Answer again"]');
  await page.waitForFunction(() => document.querySelector(".answer > .prose").innerText === "Another one.");
  assert.equal(await page.locator(".answer").count(), 1);
  assert.deepEqual(fake.requests[1].messages, fake.requests[0].messages);
  assert.notEqual(fake.requests[1].seed, fake.requests[0].seed);
});

test("a message is edited, and what followed it goes", async () => {
  await send(page, "One.");
  await ended(page);
  await send(page, "Two.");
  await ended(page);
  await page.locator(".user").first().hover();
  await page.locator('[aria-label="Edit and send again"]').first().click();
  await page.fill('[aria-label="Edit your message"]', "Changed.");
  await page.keyboard.press("Enter");
  await ended(page);
  assert.deepEqual(fake.requests[2].messages, [{ role: "user", content: "Changed." }]);
  assert.equal(await page.locator(".message").count(), 2);
});

test("a reload keeps the conversation, its colors and its numbers", async () => {
  await send(page, "Tell me a story.");
  await ended(page);
  const before = await page.locator("#thread").innerText();
  const tokens = await page.locator(".answer .token").evaluateAll((list) => list.map((t) => `${t.className} ${t.textContent}`));
  const facts = await page.locator("#panel-body .facts").first().innerText();
  await page.reload();
  await page.waitForSelector(".answer");
  assert.equal(await page.locator("#thread").innerText(), before);
  assert.deepEqual(await page.locator(".answer .token").evaluateAll((list) => list.map((t) => `${t.className} ${t.textContent}`)), tokens);
  assert.equal(await page.locator("#panel-body .facts").first().innerText(), facts);
  await send(page, "And then?");
  await ended(page);
  assert.equal(fake.requests[1].messages.length, 3);
  assert.equal(fake.requests[1].messages[1].content, fake.text);
});

test("a reload in the middle of an answer keeps what came", async () => {
  const { opened, go } = gate();
  fake.plans.push(async (body, stream) => {
    stream.write("As far as this");
    await opened;
  });
  await send(page, "Go.");
  await says(page, "As far as this");
  await page.reload();
  go();
  await page.waitForSelector(".answer .problem");
  assert.equal(await answerText(page), "As far as this");
  assert.match(await page.locator(".problem").innerText(), /was interrupted/);
});

test("the panel shows the stats", async () => {
  let stats;
  fake.plans.push((body, stream) => {
    stream.write(fake.text.repeat(3));
    stats = statsOf(stream.tokens);
    stream.end();
  });
  await send(page, "Go.");
  await ended(page);
  const { mtp, timings } = stats;
  assert.equal(await figure(page, "rate"), timings.decode_tok_s.toFixed(1));
  assert.equal(await figure(page, "rate-with"), timings.decode_tok_s.toFixed(1));
  assert.equal(await figure(page, "rate-plain"), (timings.decode_tok_s / mtp.speedup_estimate).toFixed(1));
  assert.equal(await figure(page, "per-round"), mtp.tokens_per_round.toFixed(2));
  assert.equal(await figure(page, "rounds"), String(mtp.rounds));
  assert.equal(await figure(page, "accepted"), `${mtp.accepted} of ${mtp.drafted}`);
  assert.equal(await figure(page, "tokens"), String(timings.generated_tokens));
  assert.equal(await figure(page, "prompt"), "14 tokens, 6 cached");
  assert.deepEqual(await page.locator(".positions tbody tr").evaluateAll((rows) => rows.map((row) => Number(row.dataset.accepted))), mtp.accepted_by_position);
  assert.equal(await page.locator(".rounds .round").count(), mtp.rounds);
  assert.equal(await page.locator(".rounds .cell.rejected").count(), mtp.drafted - mtp.accepted);
  assert.equal(await page.locator(".answer .token.d1").count(), mtp.accepted_by_position[0]);
  assert.equal(await figure(page, "running"), "1 request");
  assert.equal(await figure(page, "waiting"), "2 requests");
  assert.equal(await figure(page, "kv"), "3.0 MiB of 12.0 MiB");
  assert.equal(await figure(page, "device-0"), "gpu: layers 2-3, output, 7.0 MiB");
  assert.equal(await figure(page, "memory-0"), "8.0 MiB by the model, 9.0 MiB of 24.0 MiB free");
  assert.equal(await figure(page, "device-1"), "cpu: layers 0-1, 6.0 MiB");
  assert.equal(await page.locator("[data-figure=memory-1]").count(), 0);
});

test("while an answer comes, the panel counts along", async () => {
  const { opened, go } = gate();
  fake.plans.push(async (body, stream) => {
    stream.write("One two three four five six seven eight");
    await opened;
    stream.end();
  });
  await send(page, "Go.");
  await page.waitForFunction(() => document.querySelector('[data-figure="tokens"]')?.textContent === "8");
  assert.equal(await page.locator(".positions tbody tr").count(), 3);
  assert.ok((await page.locator(".rounds .cell.d1").count()) > 0);
  go();
  await ended(page);
});

test("rejected draft tokens are shown on demand, and are no part of the text", async () => {
  await send(page, "Go.");
  await ended(page);
  assert.equal(await page.locator(".ghost >> visible=true").count(), 0);
  await page.check("#colors [value=rejected]");
  assert.ok((await page.locator(".ghost >> visible=true").count()) > 0);
  await page.locator(".token[data-rejected]").first().hover();
  assert.match(await page.locator("#tip").innerText(), /Sampled by the model, instead of the draft/);
  await page.check("#colors [value=off]");
  assert.equal(await answerText(page), fake.text);
  const color = await page.locator(".token.d1").first().evaluate((token) => getComputedStyle(token).backgroundColor);
  assert.equal(color, "rgba(0, 0, 0, 0)");
});

test("the same answer without drafting is compared", async () => {
  await send(page, "Go.");
  await ended(page);
  await page.getByRole("button", { name: /Prove it/ }).click();
  await page.getByText("The same text, token for token").waitFor();
  assert.equal(fake.requests[1].mtp_depth, 0);
  const { mtp_depth: _, ...again } = fake.requests[1];
  assert.deepEqual(again, fake.requests[0]);
  assert.deepEqual(fake.requests[2], fake.requests[0]);
  fake.text = "Once upon another time.";
  await page.getByRole("button", { name: /Prove it/ }).click();
  await page.getByText("The texts differ from character 12 on").waitFor();
});

test("what is written while an answer is compared is kept", async () => {
  await send(page, "Go.");
  await ended(page);
  const [begun, { opened, go }] = [gate(), gate()];
  fake.plans.push(async (body, stream) => {
    begun.go();
    await opened;
    stream.answer(fake.text);
  });
  await page.getByRole("button", { name: /Prove it/ }).click();
  await begun.opened;
  await page.click("#new");
  await page.click('#conversations .open:text("Go.")');
  await send(page, "And then?");
  await ended(page);
  const last = page.waitForResponse("**/v1/chat/completions"); // the third of the comparison
  go();
  await whole(page, await last);
  await page.evaluate(() => new Promise((done) => setTimeout(done)));
  await page.reload();
  assert.deepEqual(await page.locator(".bubble").allInnerTexts(), ["Go.", "And then?"]);
});

test("thinking is folded, and sent back with the next message", async () => {
  fake.plans.push((body, stream) => {
    stream.delta({}, [{ id: 1, text: "<think>", draft: 0 }]);
    stream.write("Let me see.", "reasoning_content");
    stream.delta({}, [{ id: 1, text: "</think>", draft: 1 }]);
    stream.write("It is so.");
    stream.end();
  });
  await send(page, "Why?");
  await ended(page);
  assert.equal(await answerText(page), "It is so.");
  assert.ok(!(await page.locator(".thinking .prose").isVisible()));
  await page.locator(".thinking summary").click();
  assert.equal(await page.locator(".thinking .prose").innerText(), "Let me see.");
  await send(page, "Go on.");
  await ended(page);
  assert.equal(fake.requests[1].messages[1].reasoning_content, "Let me see.");
});

test("tool calls are shown, and answered by hand", async () => {
  fake.plans.push((body, stream) => {
    stream.delta({ tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "weather", arguments: "" } }] });
    stream.delta({ tool_calls: [{ index: 0, function: { arguments: '{"city":' } }] });
    stream.delta({ tool_calls: [{ index: 0, function: { arguments: '"Bern"}' } }] });
    stream.delta({ tool_calls: [{ index: 1, id: "call_2", type: "function", function: { name: "time", arguments: "{}" } }] });
    stream.end("tool_calls");
  });
  await page.click("#settings-toggle");
  await page.fill("#set-tools", '[{"type":"function","function":{"name":"weather"}}]');
  await page.click("#settings-close");
  await send(page, "Weather in Bern?");
  await page.getByLabel("Result of weather").fill("sunny");
  assert.deepEqual(JSON.parse(await page.locator(".call pre").first().innerText()), { city: "Bern" });
  await page.getByRole("button", { name: "Send result" }).first().click();
  assert.equal(await page.getByLabel("Result of weather").count(), 0);
  assert.equal(fake.requests.length, 1);
  await page.getByLabel("Result of time").fill("noon");
  await page.getByRole("button", { name: "Send result" }).click();
  await ended(page);
  assert.equal(await page.getByRole("button", { name: "Send result" }).count(), 0);
  assert.equal(fake.requests[0].tools[0].function.name, "weather");
  assert.deepEqual(fake.requests[1].messages.slice(1), [
    {
      role: "assistant",
      content: "",
      tool_calls: [
        { id: "call_1", type: "function", function: { name: "weather", arguments: '{"city":"Bern"}' } },
        { id: "call_2", type: "function", function: { name: "time", arguments: "{}" } },
      ],
    },
    { role: "tool", content: "sunny", tool_call_id: "call_1" },
    { role: "tool", content: "noon", tool_call_id: "call_2" },
  ]);
});

test("what a model writes never becomes markup", async () => {
  fake.text = '<img src=x onerror="window.hit=1"> <script>window.hit=1</script> [x](javascript:window.hit=1) <b>b</b>\n\n```html\n<iframe src=x></iframe>\n```';
  await send(page, "Go.");
  await ended(page);
  assert.equal(await page.locator(".answer :is(img, script, iframe, b, a)").count(), 0);
  assert.equal(await page.evaluate(() => window.hit), undefined);
  assert.match(await answerText(page), /<img src=x onerror="window\.hit=1">/);
});

test("settings go into the request, and stay", async () => {
  const wanted = { temperature: 0.7, top_p: 0.9, top_k: 40, min_p: 0.05, seed: 42, max_completion_tokens: 99, max_thinking_tokens: 7 };
  await page.click("#settings-toggle");
  for (const [name, value] of Object.entries(wanted)) await page.fill(`#set-${name}`, String(value));
  assert.equal(await page.getAttribute("#set-max_thinking_tokens", "min"), "1"); // servers refuse 0
  await page.fill("#set-system", "Be brief.");
  await page.selectOption("#set-enable_thinking", "false");
  await page.selectOption("#set-mtp_depth", "0");
  await page.keyboard.press("Escape");
  await page.reload();
  await page.waitForFunction(() => !document.querySelector("#model").disabled);
  await page.selectOption("#model", "small");
  await send(page, "Hi.");
  await ended(page);
  const [body] = fake.requests;
  for (const [name, value] of Object.entries(wanted)) assert.equal(body[name], value, name);
  assert.equal(body.enable_thinking, false);
  assert.equal(body.mtp_depth, 0);
  assert.equal(body.model, "small");
  assert.deepEqual(body.messages[0], { role: "system", content: "Be brief." });
});

test("conversations are named, opened, renamed, exported and deleted", async () => {
  await send(page, "The first\nof two");
  await ended(page);
  await page.click("#new");
  await send(page, "The second");
  await ended(page);
  const names = () => page.locator("#conversations .open").allInnerTexts();
  assert.deepEqual(await names(), ["The second", "The first"]);
  await page.click('#conversations .open:text("The first")');
  assert.match(await page.locator(".bubble").innerText(), /^The first/);
  await page.hover('#conversations li:has-text("The first")');
  await page.click('[aria-label="Rename The first"]');
  await page.fill('[aria-label="Name of the conversation"]', "Renamed");
  await page.keyboard.press("Enter");
  assert.ok((await names()).includes("Renamed"));
  await page.hover('#conversations li:has-text("Renamed")');
  const [file] = await Promise.all([page.waitForEvent("download"), page.click('[aria-label="Export Renamed"]')]);
  assert.equal(file.suggestedFilename(), "Renamed.json");
  const exported = JSON.parse(await readFile(await file.path(), "utf8"));
  assert.equal(exported.messages[1].content, fake.text);
  await page.click('[aria-label="Delete Renamed"]');
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  assert.deepEqual(await names(), ["The second"]);
  await page.reload();
  assert.deepEqual(await names(), ["The second"]);
});

test("a conversation that is deleted while it is answered stays so", async () => {
  const { opened, go } = gate();
  fake.plans.push(async (body, stream) => {
    stream.write("As far as this");
    await opened;
  });
  await send(page, "Go.");
  await says(page, "As far as this");
  await page.hover("#conversations li");
  await page.click('[aria-label="Delete Go."]');
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await page.waitForSelector("body:not(.busy)");
  go();
  assert.equal(await page.locator("#conversations .open").count(), 0);
  await page.reload();
  assert.equal(await page.locator("#conversations .open").count(), 0);
});

test("over plain HTTP from another machine, conversations and copying work too", async () => {
  await close(page);
  const url = new URL(fake.url);
  url.hostname = "foretoken.test";
  page = await open(browser, url.href);
  assert.equal(await page.evaluate(() => isSecureContext), false);
  fake.text = "```\ncode\n```";
  await send(page, "Go.");
  await ended(page);
  // It is shown for a moment, which a busy machine may miss between two checks.
  const copied = page.evaluate(
    () =>
      new Promise((resolve) => {
        const look = () => document.body.textContent.includes("Copied") && resolve();
        new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
      }),
  );
  await page.click('[aria-label="Copy code"]');
  await copied;
  await page.focus("#prompt");
  await page.keyboard.press("Control+V");
  assert.equal(await page.inputValue("#prompt"), "code");
  assert.equal(await page.title(), "Go. · foretoken");
});

for (const off of [false, true]) {
  test(`a browser that ${off ? "has no" : "forbids"} storage still chats`, async () => {
    page.spent = true;
    await page.addInitScript((off) => {
      for (const name of ["localStorage", "sessionStorage"]) {
        Object.defineProperty(window, name, {
          get() {
            if (off) return null;
            throw new DOMException("forbidden", "SecurityError");
          },
        });
      }
    }, off);
    await page.reload();
    await send(page, "Go.");
    await ended(page);
    assert.equal(await answerText(page), fake.text);
    assert.deepEqual(await page.locator("#conversations .open").allInnerTexts(), ["Go."]);
  });
}

test("with a full storage, choices hold until the page is closed", async () => {
  await page.evaluate(() => {
    Storage.prototype.setItem = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
  });
  await page.click("#theme");
  assert.equal(await page.getAttribute("#theme", "aria-label"), "Theme: light");
  await page.selectOption("#model", "small");
  assert.equal(await page.getAttribute("#attach", "aria-disabled"), "true");
});

test("a model that another tab chooses is not chosen here", async () => {
  await page.selectOption("#model", "tiny");
  await page.evaluate(() => localStorage.setItem("foretoken.model", "small"));
  await page.route("**/v1/chat/completions", (route) => route.abort("connectionrefused"), { times: 1 });
  const asked = page.waitForResponse("**/v1/models"); // when a server was gone, its models are listed again
  await send(page, "Go.");
  await whole(page, await asked);
  await page.evaluate(() => new Promise((done) => setTimeout(done)));
  await send(page, "And again.");
  await ended(page);
  assert.equal(fake.requests.at(-1).model, "tiny");
});

test("the colors of older conversations make space for new ones", async () => {
  const long = (fake.text = Array(20).fill(fake.text).join(" "));
  await send(page, "The first");
  await ended(page);
  await page.click("#new");
  await page.evaluate(() => {
    const { setItem } = Storage.prototype;
    const room = 500 + Object.values(localStorage).reduce((sum, text) => sum + text.length, 0);
    Storage.prototype.setItem = function (key, value) {
      const others = Object.entries(localStorage).reduce((sum, [name, text]) => sum + (name === key ? 0 : text.length), 0);
      if (others + value.length > room) throw new DOMException("full", "QuotaExceededError");
      setItem.call(this, key, value);
    };
  });
  fake.text = "A bit.";
  await send(page, "The second");
  await ended(page);
  assert.ok(await page.isHidden("#unsaved"));
  await page.reload();
  assert.deepEqual(await page.locator("#conversations .open").allInnerTexts(), ["The second", "The first"]);
  await page.click('#conversations .open:text("The first")');
  assert.equal(await page.locator(".answer .token").count(), 0);
  assert.equal(await answerText(page), long);
});

test("an answer goes on while another conversation is looked at", async () => {
  await send(page, "The first");
  await ended(page);
  await page.click("#new");
  const { opened, go } = gate();
  fake.plans.push(async (body, stream) => {
    stream.write("Begun ");
    await opened;
    stream.write("and ended.");
    stream.end();
  });
  await send(page, "The second");
  await says(page, "Begun");
  await page.click('#conversations .open:text("The first")');
  assert.equal(await answerText(page), fake.text);
  await page.hover('#conversations li:has-text("The second")');
  await page.click('[aria-label="Rename The second"]');
  await page.fill('[aria-label="Name of the conversation"]', "Renamed");
  await page.keyboard.press("Enter");
  go();
  await page.waitForSelector("body:not(.busy)");
  await page.click('#conversations .open:text("Renamed")');
  assert.equal(await answerText(page), "Begun and ended.");
});
