// Accessibility of the page: by keyboard, with a screen reader, on a phone, in both themes.

import assert from "node:assert/strict";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { answerText, close, ended, launch, open, says, send } from "./browser.js";
import { Fake, fail } from "./fake.js";
import { sample } from "./samples.js";

const rich = "# Title\n\nSome *words* and `code` and [a link](https://example.org).\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> said\n\n```go\nfunc main() { fmt.Println(\"" + "long ".repeat(40) + "\") }\n```\n\n" + "unbroken".repeat(40);

let browser, fake, page;
before(async () => ([browser, fake] = await Promise.all([launch(), Fake.start()])));
after(() => Promise.all([browser?.close(), fake?.close()]));
beforeEach(() => {
  fake.reset();
  fake.text = rich;
});
afterEach(() => close(page));

// audit runs in the page and lists faults of visible elements.
function audit() {
  const faults = [];
  const name = (element) => `${element.tagName.toLowerCase()}${element.id ? `#${element.id}` : ""}.${element.className} “${element.textContent.trim().slice(0, 20)}”`;
  const seen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: false }) && !element.closest(".unseen, [inert]");
  const ids = [...document.querySelectorAll("[id]")].map(({ id }) => id);
  if (new Set(ids).size !== ids.length) faults.push("an id is used twice");
  for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls", "for"]) {
    for (const element of document.querySelectorAll(`[${attribute}]`)) {
      if (!document.getElementById(element.getAttribute(attribute))) faults.push(`${name(element)}: ${attribute} leads nowhere`);
    }
  }
  if (!document.documentElement.lang) faults.push("the page has no language");
  if (document.querySelectorAll("main").length !== 1 || document.querySelectorAll("h1").length !== 1) faults.push("not one main part and one first heading");
  let level = 0;
  for (const heading of [...document.querySelectorAll("main :is(h1, h2, h3, h4, h5, h6)")]) {
    const next = Number(heading.tagName[1]);
    if (level > 0 && next > level + 2) faults.push(`${name(heading)}: a heading of level ${next} after ${level}`);
    level = next;
  }
  for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) faults.push(`${name(image)}: no alt`);
  for (const control of document.querySelectorAll("button, input, select, textarea, a[href], summary, [tabindex='0']")) {
    const label = control.getAttribute("aria-label") || control.labels?.[0]?.textContent || (control.matches("input, select, textarea") ? "" : control.textContent);
    if (!label?.trim() && !control.closest("[hidden]")) faults.push(`${name(control)}: no name`);
    const { width, height } = control.getBoundingClientRect();
    if (seen(control) && control.matches("button, input, select, textarea") && (width < 24 || height < 24)) faults.push(`${name(control)}: ${width} by ${height} is too small to hit`);
  }
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const luminance = () => {
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paint = (color, alpha = 1) => {
    canvas.globalAlpha = alpha;
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let least = Infinity;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (node.data.trim() === "" || !seen(element) || element.matches("option")) continue;
    const chain = [];
    for (let e = element; e; e = e.parentElement) chain.unshift(getComputedStyle(e));
    if (chain.some((style) => style.opacity === "0")) continue;
    paint(getComputedStyle(document.documentElement).colorScheme === "dark" ? "#000" : "#fff");
    for (const style of chain) paint(style.backgroundColor);
    const below = luminance();
    const style = chain.at(-1);
    paint(style.color, chain.reduce((alpha, { opacity }) => alpha * Number(opacity), 1));
    const above = luminance();
    const ratio = (Math.max(below, above) + 0.05) / (Math.min(below, above) + 0.05);
    const size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    least = Math.min(least, ratio);
    if (ratio < needed) faults.push(`${name(element)}: contrast ${ratio.toFixed(2)}`);
  }
  return { faults: [...new Set(faults)], least };
}

async function sound(what) {
  const { faults, least } = await page.evaluate(audit);
  assert.deepEqual(faults, [], what);
  assert.ok(least < 22, `${what}: no text was looked at`);
}

// settle waits for animations, so that measured elements do not move.
const settle = () => page.waitForFunction(() => document.getAnimations().every((a) => a.effect.getTiming().iterations === Infinity || a.playState === "finished"));

for (const scheme of ["light", "dark"]) {
  for (const width of [1440, 1000, 360]) {
    test(`names, roles, sizes and contrast are sound: ${scheme}, ${width} wide`, async () => {
      page = await open(browser, fake.url, { colorScheme: scheme, viewport: { width, height: 740 } });
      await page.locator("#attach + input").setInputFiles([{ name: "wide.png", mimeType: "image/png", buffer: await sample("images/shapes_200x120.png") }, { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("no") }]);
      await page.waitForSelector("#unusable:not([hidden])");
      await settle();
      await sound("welcome, with images");
      await page.evaluate(() => document.querySelector("#colors [value=rejected]").click());
      fake.plans.push((body, stream) => {
        stream.write("Hm.", "reasoning_content");
        stream.write(rich);
        stream.delta({ tool_calls: [{ index: 0, id: "c", function: { name: "weather", arguments: "{}" } }] });
        stream.end("length");
      });
      await send(page, "A message\nof two lines " + "and-an-unbroken-word".repeat(20));
      await ended(page);
      await page.locator(".thinking summary").click();
      await settle();
      await sound("answer");
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth || document.querySelector("#scroller").scrollWidth > document.querySelector("#scroller").clientWidth), false, "scrolls sideways");
      for (const [name, wide] of [["panel", 1280], ["history", 960]]) {
        if (width >= wide) continue;
        await page.click(`#${name}-toggle`);
        await settle();
        await sound(name);
        assert.equal(await page.locator(`#${name}`).evaluate((drawer) => drawer.scrollWidth > drawer.clientWidth), false, `${name} scrolls sideways`);
        await page.keyboard.press("Escape");
        assert.equal(await page.evaluate(() => document.activeElement.id), `${name}-toggle`);
      }
      await page.click("#settings-toggle");
      await settle();
      await sound("settings");
      assert.equal(await page.locator("#settings").evaluate((dialog) => dialog.scrollWidth > dialog.clientWidth), false, "settings scroll sideways");
      await page.keyboard.press("Escape");
      fake.plans.push((body, stream, res) => fail(res, 401, { message: "No key." }));
      await send(page, "Go.");
      await page.waitForSelector(".problem");
      await settle();
      await sound("problem");
    });
  }
}

test("the theme follows the system until it is chosen, and the choice stays", async () => {
  page = await open(browser, fake.url, { colorScheme: "dark" });
  const dark = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await dark(), "rgb(21, 23, 27)");
  await page.click("#theme");
  assert.equal(await page.getAttribute("#theme", "aria-label"), "Theme: light");
  assert.equal(await dark(), "rgb(253, 252, 250)");
  await page.reload();
  assert.equal(await dark(), "rgb(253, 252, 250)");
  await page.click("#theme");
  await page.emulateMedia({ colorScheme: "light" });
  assert.equal(await dark(), "rgb(21, 23, 27)");
  await page.click("#theme");
  assert.equal(await dark(), "rgb(253, 252, 250)");
});

test("everything is done by keyboard", async () => {
  fake.text = "An answer.";
  page = await open(browser, fake.url);
  assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
  await page.keyboard.type("One");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("two");
  await page.keyboard.press("Enter");
  await ended(page);
  assert.equal(fake.requests[0].messages[0].content, "One\ntwo");
  // Through the page once, in reading order, with a visible focus mark.
  const order = [];
  await page.focus(".skip");
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const element = document.activeElement;
      if (element === document.body) return null;
      const marks = [element, element.nextElementSibling, element.parentElement].filter(Boolean).map((e) => getComputedStyle(e));
      return { name: element.id || element.getAttribute("aria-label") || element.textContent.trim(), marked: marks.some((s) => s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1) };
    });
    if (at === null) break;
    assert.ok(at.marked, `${at.name} has the focus and does not show it`);
    order.push(at.name);
  }
  const places = ["new", "One", "model", "theme", "settings-toggle", "Edit and send again", "Copy answer", "Answer again", "attach", "prompt", "send", "panel-close"].map((name) => order.indexOf(name));
  assert.deepEqual(places, [...places].sort((a, b) => a - b), order.join(", "));
  assert.ok(!places.includes(-1), order.join(", "));
  // Answer again, open the settings and leave them.
  await page.focus('[aria-label="Answer again"]');
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => !document.body.classList.contains("busy"));
  assert.equal(fake.requests.length, 2);
  await page.focus("#settings-toggle");
  await page.keyboard.press("Space");
  assert.ok(await page.locator("#settings").evaluate((dialog) => dialog.open));
  await page.keyboard.press("Escape");
  assert.equal(await page.evaluate(() => document.activeElement.id), "settings-toggle");
});

test("a screen reader hears of the answer once, when it has ended", async () => {
  let go;
  const opened = new Promise((resolve) => (go = resolve));
  fake.plans.push(async (body, stream) => {
    stream.write("Half ");
    await opened;
    stream.answer("an answer.");
  });
  page = await open(browser, fake.url);
  await send(page, "Go.");
  await says(page, "Half");
  const log = page.getByRole("log", { name: "Conversation" });
  assert.equal(await log.getAttribute("aria-live"), "polite");
  assert.equal(await log.getAttribute("aria-busy"), "true");
  assert.equal(await page.locator("#said").textContent(), "Answering.");
  go();
  await ended(page);
  assert.equal(await log.getAttribute("aria-busy"), "false");
  assert.equal(await page.locator("#said").textContent(), "The answer is complete.");
  assert.equal(await answerText(page), "Half an answer.");
  assert.equal(await page.getByRole("article", { name: "Answer" }).count(), 1);
});

test("nothing moves for those who asked for that", async () => {
  page = await open(browser, fake.url, { reducedMotion: "reduce", viewport: { width: 360, height: 740 } });
  await send(page, "Go.");
  await ended(page);
  await page.click("#panel-toggle");
  assert.deepEqual(await page.evaluate(() => document.getAnimations().length), 0);
});
