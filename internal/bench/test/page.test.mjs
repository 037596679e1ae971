// The pages of foretoken bench in a real browser: PAGES is a folder with them, which run makes.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";

// The packages lie outside of the tree, where run puts them.
const require = createRequire(new URL("../../../bin/web/", import.meta.url));
const { chromium } = require("playwright-core");

// What the drawings of each page are called, in their order; a chart for each rule and batch
// comes first in decode.html.
const drawings = {
  "decode.html": ["Tokens per second by depth", "Speedup by temperature", "Speedup by batch size", "Acceptance by class and position", "Cost of a round", "Speedup by the cost model", "Tokens over time"],
  "serve.html": ["Tokens per second, all answers together", "Time to first token (TTFT)", "Time per output token (TPOT)"],
};

let browser;
before(async () => (browser = await chromium.launch({ executablePath: process.env.CHROMIUM, timeout: 300_000, args: ["--no-sandbox"] })));
after(() => browser.close());

const files = readdirSync(process.env.PAGES).filter((name) => name.endsWith(".html"));
assert.deepEqual(files.sort(), Object.keys(drawings));

for (const file of files) {
  for (const [width, colorScheme] of [[1280, "light"], [360, "dark"]]) {
    test(`${file}, ${width} wide, ${colorScheme}`, async () => {
      const page = await browser.newPage({ viewport: { width, height: 800 }, colorScheme });
      const faults = [];
      const requests = [];
      page.on("pageerror", (err) => faults.push(err.stack));
      page.on("console", (message) => faults.push(message.text()));
      page.on("request", (request) => requests.push(request.url()));
      const url = pathToFileURL(join(process.env.PAGES, file)).href;
      page.setDefaultTimeout(300_000); // only a fault waits that long
      await page.goto(url);
      assert.deepEqual(faults, []);
      assert.deepEqual(requests.filter((r) => r !== url && r !== "data:,"), []);

      const titles = await page.$$eval("svg.plot", (all) => all.map((svg) => svg.getAttribute("aria-label")));
      for (const title of drawings[file]) assert.ok(titles.some((t) => t.startsWith(title)), `no drawing ${title} among ${titles}`);
      // Every drawing is seen: it has a size, and something is drawn in it.
      for (const svg of await page.$$("svg.plot")) {
        const box = await svg.boundingBox();
        assert.ok(box.width > 200 && box.height > 40, JSON.stringify(box));
        assert.ok((await svg.$$("rect, circle")).length > 0);
      }
      assert.ok((await page.$$("table tr")).length > 2);
      // Tables scroll by themselves, the page does not sideways.
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(wide, 0);
      if (process.env.SHOTS) await page.screenshot({ path: join(process.env.SHOTS, `${file}-${width}.png`), fullPage: true });
      await page.close();
    });
  }
}
