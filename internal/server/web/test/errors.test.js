import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { answerText, close, ended, launch, open, send } from "./browser.js";
import { Fake, fail } from "./fake.js";

let browser, fake, page;
before(async () => ([browser, fake] = await Promise.all([launch(), Fake.start()])));
after(() => Promise.all([browser?.close(), fake?.close()]));
beforeEach(() => fake.reset());
afterEach(() => close(page));

const problem = () => page.locator(".answer .problem").innerText();
const alert = () => page.waitForSelector(".answer .problem[role=alert]");

// retried presses a button of the message and expects the whole answer.
async function retried(name) {
  await page.locator(".problem").getByRole("button", { name }).click();
  await page.waitForSelector(".problem", { state: "detached" });
  await ended(page);
  assert.equal(await answerText(page), fake.text);
  assert.equal(await page.locator(".message").count(), 2);
}

test("a server that is gone is told, and tried again", async () => {
  page = await open(browser, fake.url);
  await page.route("**/v1/chat/completions", (route) => route.abort("connectionrefused"), { times: 1 });
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /The server is unreachable[^]*Your message is kept/);
  await retried("Try again");
});

test("a server that is not there when the page opens is waited for", async () => {
  const other = await Fake.start();
  page = await open(browser, other.url);
  await page.route("**/v1/**", (route) => route.abort());
  await page.reload();
  await page.getByText("Server does not answer; trying again").waitFor();
  await page.unroute("**/v1/**");
  await page.waitForFunction(() => !document.querySelector("#model").disabled && document.querySelector("#state").hidden);
  await other.close();
});

test("a key is asked for, used, and forgotten with the tab", async () => {
  fake.key = "sesame";
  page = await open(browser, fake.url);
  await page.getByText("API key needed").waitFor();
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /requires an API key/);
  await page.locator(".problem input").fill("sesame");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".problem", { state: "detached" });
  await ended(page);
  assert.equal(await answerText(page), fake.text);
  assert.deepEqual(fake.keys, ["Bearer sesame"]);
  await page.waitForFunction(() => document.querySelector("#model").value === "tiny");
  assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("sesame"));
  await page.reload();
  await page.waitForFunction(() => document.querySelector("#model").value === "tiny");
});

test("a busy server says when to come again", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream, res) => fail(res, 429, { message: "Too many requests are waiting.", type: "rate_limit_error" }, { "Retry-After": "7" }));
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /The server is busy[^]*Too many requests are waiting\. Try again in 7 seconds\./);
  await retried("Try again");
});

test("a model that is being loaded is waited for, with progress", async () => {
  fake.loading = 0.42;
  page = await open(browser, fake.url);
  await page.getByText("Model is loading, 42 %").waitFor();
  await send(page, "Go.");
  await page.getByText("The model is loading. 42 %").waitFor();
  assert.equal(await page.locator(".answer progress").evaluate((bar) => bar.value), 0.42);
  fake.loading = undefined;
  await ended(page);
  assert.equal(await answerText(page), fake.text);
  assert.equal(await page.locator(".answer progress").count(), 0);
});

test("waiting for a model can be stopped", async () => {
  fake.loading = 0.1;
  page = await open(browser, fake.url);
  await send(page, "Go.");
  await page.getByText("The model is loading. 10 %").waitFor();
  await page.keyboard.press("Escape");
  await ended(page);
  assert.equal(await page.locator(".answer .notice-slot").innerText(), "Stopped.");
});

test("a conversation that is too long is told, with a way out", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream, res) => fail(res, 400, { message: "The prompt has 5000 tokens, the context 4096.", type: "invalid_request_error", code: "context_length_exceeded" }));
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /too long for the model[^]*5000 tokens/);
  await page.locator(".problem").getByRole("button", { name: "New conversation" }).click();
  assert.ok(await page.isVisible("#welcome"));
});

test("a request that is too large for the server is told, with a way out", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream, res) => fail(res, 413, { message: "the request is larger than 100 bytes", type: "invalid_request_error", code: "too_large" }));
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /too large for the server[^]*larger than 100 bytes/);
  assert.ok(await page.locator(".problem").getByRole("button", { name: "New conversation" }).isVisible());
});

test("an answer that breaks off keeps what came", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream, res) => {
    stream.write("As far as this");
    res.end();
  });
  await send(page, "Go.");
  await alert();
  assert.equal(await answerText(page), "As far as this");
  assert.match(await problem(), /The answer was interrupted/);
  await retried("Ask again");
});

test("an error in the middle of a stream is shown", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream, res) => {
    stream.write("As far as this");
    res.end(`data: ${JSON.stringify({ error: { message: "out of memory", type: "server_error" } })}\n\ndata: [DONE]\n\n`);
  });
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /Server error[^]*out of memory/);
  await retried("Try again");
});

test("a refused request says what the server said", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream, res) => fail(res, 400, { message: "temperature: must not be negative", type: "invalid_request_error" }));
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /refused the request[^]*temperature: must not be negative/);
  await retried("Try again");
});

test("a proxy's page instead of an answer is an error too", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream, res) => res.writeHead(502, { "Content-Type": "text/html" }).end("<h1>Bad gateway</h1>"));
  await send(page, "Go.");
  await alert();
  assert.match(await problem(), /status 502/);
  await retried("Try again");
});

test("an answer that ends at its longest length says so", async () => {
  page = await open(browser, fake.url);
  fake.plans.push((body, stream) => stream.answer("Too long", "length"));
  await send(page, "Go.");
  await ended(page);
  assert.match(await page.locator(".answer .note").innerText(), /maximum length/);
});

test("a server without a status is no error", async () => {
  fake.status = null;
  page = await open(browser, fake.url);
  await page.getByText("does not report its state").waitFor();
  assert.ok(await page.isHidden("#state"));
});

test("a browser whose storage is full goes on, and says so", async () => {
  page = await open(browser, fake.url);
  await page.evaluate(() => {
    Storage.prototype.setItem = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
  });
  await send(page, "Go.");
  await ended(page);
  assert.equal(await answerText(page), fake.text);
  assert.ok(await page.isVisible("#unsaved"));
});
