// A browser for the tests, and the words in which they speak of the page.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

// The packages lie outside of the tree, where run puts them.
const require = createRequire(new URL("../../../../bin/web/", import.meta.url));
const { chromium } = require("playwright-core");

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--host-resolver-rules=MAP foretoken.test 127.0.0.1"] });

// open opens a page in a browser context of its own. Whatever goes wrong in the page without
// anybody noticing ends up in page.faults.
export async function open(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000); // only a fault waits that long, however busy the machine is
  page.faults = [];
  page.on("pageerror", (err) => page.faults.push(err.stack));
  page.on("console", (message) => {
    // A browser reports each failed request by itself; tests of errors make them on purpose.
    if (message.type() === "error" && !/Failed to load resource|net::ERR/.test(message.text())) page.faults.push(message.text());
  });
  await page.goto(url);
  await page.waitForFunction(() => document.querySelector("#theme").getAttribute("aria-label"));
  return page;
}

// close ends a page that must have had no faults.
export async function close(page) {
  await page.context().close();
  assert.deepEqual(page.faults, []);
}

export async function send(page, text) {
  await page.fill("#prompt", text);
  await page.press("#prompt", "Enter");
}

// ended waits until the page is no longer answering.
export const ended = (page) => page.waitForSelector("body:not(.busy) #thread .answer:last-child .foot > *", { state: "attached" });

export const answerText = (page) => page.locator(".answer").last().locator("> .prose").innerText();

// says waits until the last answer says this and no more: what is sent together may come, and be
// shown, in parts.
export const says = (page, text) => page.waitForFunction((text) => [...document.querySelectorAll(".answer > .prose")].at(-1)?.innerText.trim() === text, text);

export const figure = (page, name) => page.locator(`[data-figure="${name}"]`).innerText();
