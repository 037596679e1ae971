// Takes the screenshot of the page for the README: node screenshot.js FILE. The program answers with
// the embedded model, so that the text is always the same; rates are those of the machine.

import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { ended, launch, open, send } from "./browser.js";

const [file] = process.argv.slice(2);
const maxBytes = 150_000;
const server = spawn(process.env.FORETOKEN_BIN, ["serve", "--port", "0"], { stdio: ["ignore", "ignore", "pipe"] });
const browser = await launch();
try {
  const url = await new Promise((resolve, reject) => {
    let log = "";
    server.stderr.on("data", (part) => {
      log += part;
      const found = /url=(http:\S+)/.exec(log);
      if (found) resolve(`${found[1]}/`);
    });
    server.once("exit", () => reject(new Error(`foretoken serve ended: ${log}`)));
  });
  const page = await open(browser, url, { viewport: { width: 1440, height: 640 }, colorScheme: "light" });
  await page.waitForFunction(() => !document.querySelector("#model").disabled);
  await page.route("**/v1/chat/completions", (route) => route.continue({ postData: { ...route.request().postDataJSON(), seed: 3, max_completion_tokens: 120, mtp_depth: 3 } }));
  await send(page, "Tell me a story about a cat who wants to see the sea.");
  await ended(page);
  await page.locator("#prompt").blur();
  await page.click("#history-close");
  await page.screenshot({ path: file, animations: "disabled" });
  const { size } = statSync(file);
  if (size > maxBytes) throw new Error(`${file} has ${size} bytes, at most ${maxBytes}`);
  console.log(`${file}: ${size} bytes`);
} finally {
  await browser.close();
  server.kill();
}
