// A browser for the tests, and the words in which they speak of the page.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

// The packages are outside of the tree, where run puts them.
const require = createRequire(new URL("../../../../bin/web/", import.meta.url));
const { chromium } = require("playwright-core");

const patience = 300_000; // only a fault waits that long, however busy the machine is
export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, timeout: patience, args: ["--no-sandbox", "--host-resolver-rules=MAP foretoken.test 127.0.0.1"] });

// The page of the test before, by browser. A new browser context costs more than most tests.
const idle = new WeakMap();

// open opens a page without stored data: the one of the previous test, wiped, or with options, or
// while that is in use, one in a new browser context. Errors that the page itself does not
// show are added to page.faults. A test that changes a page for good sets
// page.spent.
export async function open(browser, url, options) {
  let page = options ? undefined : idle.get(browser);
  if (page) idle.delete(browser);
  else page = await create(browser, options);
  page.faults = [];
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector("#theme").getAttribute("aria-label"));
  return page;
}

async function create(browser, options) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.spent = Boolean(options);
  page.setDefaultTimeout(patience);
  page.on("pageerror", (err) => page.faults.push(err.stack));
  page.on("console", (message) => {
    // A browser reports each failed request by itself; tests of errors make them on purpose.
    if (message.type() === "error" && !/Failed to load resource|net::ERR/.test(message.text())) page.faults.push(message.text());
  });
  return page;
}

// close ends a page that must have had no faults.
export async function close(page) {
  const { faults } = page;
  page.faults = [];
  const browser = page.context().browser();
  if (page.spent || idle.has(browser)) await page.context().close();
  else {
    await wipe(page);
    idle.set(browser, page);
  }
  assert.deepEqual(faults, []);
}

// wipe clears a page's storage and its server. An empty page of the same origin does it:
// the previous page may store something when it is left.
async function wipe(page) {
  await page.unrouteAll({ behavior: "ignoreErrors" });
  const empty = new URL("/empty-page", page.url()).href;
  await page.route(empty, (route) => route.fulfill({ contentType: "text/html", body: "" }));
  await page.goto(empty);
  await page.evaluate(() => {
    localStorage.clear();
    sessionStorage.clear();
    return new Promise((done) => (indexedDB.deleteDatabase("foretoken").onsuccess = done));
  });
  await page.unrouteAll();
  await page.goto("about:blank");
}

export async function send(page, text) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
}

// ended waits until the page is no longer answering.
export const ended = (page) => page.waitForSelector("body:not(.busy) #thread .answer:last-child .foot > *", { state: "attached" });

// whole waits until the page has a whole response. The browser sometimes never reports the end of one that
// it has: a few seconds are then enough.
export const whole = (page, response) => Promise.race([response.finished(), page.waitForTimeout(5000)]);

export const answerText = (page) => page.locator(".answer").last().locator("> .prose").innerText();

// says waits until the last answer is exactly this text: data that is sent together may arrive, and be
// shown, in parts.
export const says = (page, text) => page.waitForFunction((text) => [...document.querySelectorAll(".answer > .prose")].at(-1)?.innerText.trim() === text, text);

export const figure = (page, name) => page.locator(`[data-figure="${name}"]`).innerText();
