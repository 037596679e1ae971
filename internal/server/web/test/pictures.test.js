// Images: chosen, pasted, dropped, sent, stored.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { headerOf } from "../page/assets/picture.js";
import { answerText, close, ended, launch, open, send } from "./browser.js";
import { Fake, fail } from "./fake.js";
import { gif, png, sample } from "./samples.js";

const shapes = await sample("images/shapes_200x120.png");
const photo = await sample("images/exif6_80x45.jpg"); // to be turned: people see 45 × 80
const drawn = await sample("decoders/lossless_48x33.webp");

let browser, fake, page;
before(async () => ([browser, fake] = await Promise.all([launch(), Fake.start()])));
after(() => Promise.all([browser?.close(), fake?.close()]));
beforeEach(async () => {
  fake.reset();
  page = await open(browser, fake.url);
  await page.waitForFunction(() => !document.querySelector("#model").disabled);
});
afterEach(() => close(page));

const file = (name, buffer) => ({ name, mimeType: "application/octet-stream", buffer }); // types are found in the bytes
const choose = (...files) => page.locator("#attach + input").setInputFiles(files);
const tiles = (count) => page.waitForFunction((count) => document.querySelectorAll("#attached .tile img").length === count, count);
const names = () => page.locator("#attached img").evaluateAll((list) => list.map(({ alt }) => alt));
const url = (type, data) => `data:${type};base64,${data.toString("base64")}`;
const part = (type, data) => ({ type: "image_url", image_url: { url: url(type, data) } });
const bytesOf = ({ image_url: { url } }) => Buffer.from(url.split(",")[1], "base64");

// give fires an event with files, as a browser does: paste, dragover or drop.
const give = (selector, kind, files, texts = []) =>
  page.locator(selector).evaluate(
    (target, { kind, files, texts }) => {
      const data = new DataTransfer();
      for (const { name, base64 } of files) data.items.add(new File([Uint8Array.from(atob(base64), (c) => c.charCodeAt(0))], name));
      for (const type of texts) data.setData(type, "text");
      const options = { bubbles: true, cancelable: true };
      const event = kind === "paste" ? new ClipboardEvent(kind, { ...options, clipboardData: data }) : new DragEvent(kind, { ...options, dataTransfer: data });
      return !target.dispatchEvent(event); // whether the page took it
    },
    { kind, files: files.map(({ name, buffer }) => ({ name, base64: buffer.toString("base64") })), texts },
  );

// keeps waits until the browser has stored count images.
const keeps = (count) =>
  page.waitForFunction(
    (count) =>
      new Promise((resolve) => {
        const opening = indexedDB.open("foretoken", 1);
        opening.onsuccess = () => {
          const counting = opening.result.transaction("pictures").objectStore("pictures").count();
          counting.onsuccess = () => {
            opening.result.close();
            resolve(counting.result === count);
          };
        };
      }),
    count,
  );

test("images are chosen, removed, sent as they are, and shown", async () => {
  await choose(file("shapes.png", shapes), file("wrong.webp", drawn), file("photo.jpg", photo));
  await tiles(3);
  assert.deepEqual(await names(), ["shapes.png", "wrong.webp", "photo.jpg"]);
  await page.click('[aria-label="Remove wrong.webp"]');
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Remove photo.jpg");
  await choose(file("again.png", shapes));
  await tiles(3);
  await page.focus('[aria-label="Remove again.png"]');
  await page.keyboard.press("Enter");
  await send(page, "What do you see?");
  await ended(page);
  assert.deepEqual(fake.requests[0].messages, [{ role: "user", content: [part("image/png", shapes), part("image/jpeg", photo), { type: "text", text: "What do you see?" }] }]);
  assert.ok(await page.isHidden("#attached"));
  const shown = page.locator(".user .picture img");
  await page.waitForFunction(() => [...document.querySelectorAll(".picture img")].every(({ complete, naturalWidth }) => complete && naturalWidth > 0));
  assert.deepEqual(await shown.evaluateAll((list) => list.map((i) => [i.alt, i.naturalWidth, i.naturalHeight, i.width > 0])), [["shapes.png", 200, 120, true], ["photo.jpg", 45, 80, true]]);
  assert.equal(await page.locator(".bubble").innerText(), "What do you see?");
  // Enlarged, and closed without stopping anything.
  await page.focus('[aria-label="Enlarge photo.jpg"]');
  await page.keyboard.press("Enter");
  assert.equal(await page.getByRole("dialog").locator("img").evaluate((i) => i.naturalHeight), 80);
  assert.equal(await page.locator("#viewer-name").innerText(), "photo.jpg · 45 × 80");
  await page.keyboard.press("Escape");
  assert.ok(await page.isHidden("#viewer"));
  // The next message has them before it.
  await send(page, "What else?");
  await page.waitForFunction(() => document.querySelectorAll(".user").length === 2);
  await ended(page);
  assert.deepEqual(fake.requests[1].messages[0], fake.requests[0].messages[0]);
});

test("images are pasted, unless a text is meant", async () => {
  assert.ok(await give("#prompt", "paste", [file("image.png", shapes)], ["text/html"]));
  assert.ok(await give("body", "paste", [file("image.png", photo)]));
  await tiles(2);
  assert.ok(!(await give("#prompt", "paste", [file("image.png", shapes)], ["text/html", "text/plain"])));
  assert.ok(!(await give("#prompt", "paste", [], ["text/plain"])));
  await send(page, "Two.");
  await ended(page);
  assert.deepEqual(fake.requests[0].messages[0].content.slice(0, 2), [part("image/png", shapes), part("image/jpeg", photo)]);
});

test("images are dropped anywhere on the page", async () => {
  assert.ok(await give("#panel", "dragover", [file("shapes.png", shapes)]));
  assert.equal(await page.locator("#drop").innerText(), "Drop images here");
  await give("body", "dragleave", []);
  assert.ok(await page.isHidden("#drop"));
  assert.ok(!(await give("#panel", "dragover", [], ["text/plain"])));
  assert.ok(await page.isHidden("#drop"));
  await give("#history", "dragover", [file("shapes.png", shapes)]);
  assert.ok(await give("#history", "drop", [file("shapes.png", shapes), file("photo.jpg", photo)]));
  assert.ok(await page.isHidden("#drop"));
  await tiles(2);
  await page.click("#send");
  await ended(page);
  assert.deepEqual(fake.requests[0].messages[0].content, [part("image/png", shapes), part("image/jpeg", photo)]);
  assert.deepEqual(await page.locator("#conversations .open").allInnerTexts(), ["shapes.png"]);
});

test("images are kept with the conversation, and go with it", async () => {
  await choose(file("shapes.png", shapes));
  await tiles(1);
  await send(page, "What do you see?");
  await ended(page);
  await keeps(1);
  await page.reload();
  await page.waitForFunction(() => document.querySelector(".picture img")?.naturalWidth === 200 && !document.querySelector("#model").disabled);
  // It has the same place before it is there.
  const place = () => page.locator(".picture img").boundingBox();
  const box = await place();
  await page.route("**/never.png", () => {});
  await page.locator(".picture img").evaluate((image) => {
    const twin = image.cloneNode();
    twin.src = "never.png";
    image.replaceWith(twin);
  });
  assert.deepEqual(await place(), box);
  await page.click('[aria-label="Answer again"]');
  await page.waitForFunction(() => !document.body.classList.contains("busy"));
  assert.deepEqual(fake.requests[1].messages, fake.requests[0].messages);
  await page.hover("#conversations li");
  const [exported] = await Promise.all([page.waitForEvent("download"), page.click('[aria-label^="Export"]')]);
  const { messages } = JSON.parse(await readFile(await exported.path(), "utf8"));
  assert.equal(messages[0].pictures[0].url, url("image/png", shapes));
  assert.ok(!(await page.evaluate(() => JSON.stringify(localStorage))).includes("base64"));
  await page.click('[aria-label^="Delete"]');
  await page.getByRole("button", { name: "Delete", exact: true }).click();
  await keeps(0);
});

test("a message is edited with its images", async () => {
  await choose(file("shapes.png", shapes), file("photo.jpg", photo));
  await tiles(2);
  await send(page, "What?");
  await ended(page);
  await keeps(2);
  const edit = async () => {
    await page.locator(".user").hover();
    await page.click('[aria-label="Edit and send again"]');
    await page.waitForFunction(() => document.querySelectorAll(".editor .tile img").length === 2);
  };
  await edit();
  await page.click('.editor [aria-label="Remove shapes.png"]');
  await page.focus(".editor textarea");
  await page.keyboard.press("Escape");
  assert.equal(await page.locator(".picture").count(), 2);
  await edit();
  await page.click('.editor [aria-label="Remove photo.jpg"]');
  assert.ok(await give(".editor textarea", "paste", [file("drawn.webp", drawn)]));
  await page.waitForFunction(() => document.querySelectorAll(".editor .tile img").length === 2);
  assert.ok(await page.isHidden("#attached"));
  await page.fill(".editor textarea", "And now?");
  await page.getByRole("button", { name: "Send", exact: true }).first().click();
  await page.waitForFunction(() => document.querySelector(".bubble")?.textContent === "And now?");
  await ended(page);
  assert.deepEqual(fake.requests[1].messages, [{ role: "user", content: [part("image/png", shapes), part("image/webp", drawn), { type: "text", text: "And now?" }] }]);
  await keeps(2);
  // Leftovers of a conversation are removed when the page is opened.
  await page.evaluate(() => localStorage.clear());
  await page.reload();
  await keeps(0);
});

test("what is no image for a model is told, and nothing is lost", async () => {
  await page.fill("#prompt", "What do you see?");
  const told = async (name, data, words) => {
    await choose(file(name, Buffer.from(data)));
    await page.waitForFunction(() => !document.querySelector("#unusable").hidden && document.querySelector("#attached").hidden);
    assert.equal(await page.locator("#unusable").innerText(), words);
  };
  await told("IMG_1.heic", "\0\0\0\x18ftypheic\0\0\0\0", "IMG_1.heic is HEIC, which is not supported. Save it as JPEG or PNG.");
  await told("notes.txt", "Dear all,", "notes.txt is not an image. Use PNG, JPEG, WebP or GIF.");
  await told("cut.png", shapes.subarray(0, 60), "cut.png is damaged, or too large for this browser.");
  const huge = Buffer.from(shapes);
  huge.writeUInt32BE(60_000, 16);
  huge.writeUInt32BE(60_000, 20);
  await told("huge.png", huge, "huge.png is too large: 60000 × 60000 pixels.");
  // Good ones among them are added, and a message whose image was refused meanwhile waits.
  await page.evaluate(() => {
    const decode = createImageBitmap;
    const gate = new Promise((go) => (window.go = go));
    window.createImageBitmap = (blob) => gate.then(() => decode(blob));
  });
  await choose(file("notes.txt", Buffer.from("no")), file("shapes.png", shapes), file("a.pdf", Buffer.from("%PDF-1.7")));
  await page.press("#prompt", "Enter");
  await page.evaluate(() => window.go());
  await tiles(1);
  await page.getByText("notes.txt is not an image. Use PNG, JPEG, WebP or GIF. a.pdf is PDF, which is not supported. Save it as JPEG or PNG.").waitFor();
  assert.equal(await page.inputValue("#prompt"), "What do you see?");
  assert.equal(fake.requests.length, 0);
  await page.press("#prompt", "Enter");
  await ended(page);
  assert.equal(fake.requests[0].messages[0].content.length, 2);
  assert.ok(await page.isHidden("#unusable"));
});

test("large images are sent smaller, and animations as their first frame", async () => {
  const heavy = Buffer.concat([photo, Buffer.alloc(3 << 20)]);
  await choose(file("large.png", png(5000, 3500)), file("moves.gif", gif(2)), file("still.gif", gif(1)), file("heavy.jpg", heavy));
  await send(page, "What?"); // waits until they are read
  await ended(page);
  const [large, moves, still, light] = fake.requests[0].messages[0].content;
  const header = headerOf(bytesOf(large));
  assert.equal(header.type, "image/png");
  assert.ok(header.width * header.height <= 1 << 22 && header.width * header.height > 4e6, `${header.width} × ${header.height}`);
  assert.ok(Math.abs(header.width / header.height - 5000 / 3500) < 0.001);
  assert.deepEqual(headerOf(bytesOf(moves)), { type: "image/png", width: 2, height: 1, animated: false });
  assert.deepEqual(still, part("image/gif", gif(1)));
  assert.deepEqual(headerOf(bytesOf(light)), { type: "image/jpeg", width: 45, height: 80, animated: false }); // turned
});

test("a model that does not accept images says so, and nothing is sent", async () => {
  await choose(file("shapes.png", shapes));
  await tiles(1);
  await page.selectOption("#model", "small");
  assert.equal(await page.getAttribute("#attach", "aria-disabled"), "true");
  assert.equal(await page.getAttribute("#attach", "title"), "Add images: small does not accept images.");
  await page.press("#attach", "Enter");
  assert.equal(await page.locator("#unusable").innerText(), "small does not accept images.");
  assert.ok(await give("#prompt", "paste", [file("image.png", shapes)]));
  await give("body", "dragover", [file("shapes.png", shapes)]);
  assert.equal(await page.locator("#drop").innerText(), "small does not accept images.");
  assert.ok(await give("body", "drop", [file("shapes.png", shapes)]));
  await send(page, "What?");
  assert.equal(await page.locator("#unusable").innerText(), "small does not accept images. Choose another model, or remove them.");
  assert.equal(await page.inputValue("#prompt"), "What?");
  await page.selectOption("#model", "tiny");
  assert.equal(await page.getAttribute("#attach", "aria-disabled"), "false");
  await page.press("#prompt", "Enter");
  await ended(page);
  assert.equal(fake.requests.length, 1);
  assert.equal(fake.requests[0].messages[0].content.length, 2);
  // It cannot continue a conversation with images either.
  await page.selectOption("#model", "small");
  await send(page, "And then?");
  await page.getByText("small does not accept images. This conversation has some: choose another model, or begin a new one.").waitFor();
  assert.equal(await page.inputValue("#prompt"), "And then?");
  await page.click("#new");
  await page.press("#prompt", "Enter");
  await ended(page);
  assert.deepEqual(fake.requests[1].messages, [{ role: "user", content: "And then?" }]);
  assert.ok(await page.isHidden("#unusable"));
});

test("what the server says of an image stands at that image", async () => {
  await choose(file("shapes.png", shapes), file("photo.jpg", photo));
  await tiles(2);
  fake.plans.push((body, stream, res) => fail(res, 400, { message: "messages[0].content[1].image_url.url: image or video 2: broken image: unexpected EOF", type: "invalid_request_error", param: "messages[0].content[1].image_url.url" }));
  await send(page, "What?");
  await page.waitForSelector(".answer .problem[role=alert]");
  assert.match(await page.locator(".answer .problem").innerText(), /^An image cannot be used\s+Broken image: unexpected EOF\. Remove it/);
  const wrong = page.locator(".user li.wrong");
  assert.equal(await wrong.count(), 1);
  assert.equal(await wrong.locator("img").getAttribute("alt"), "photo.jpg");
  assert.equal(await wrong.innerText(), "Broken image: unexpected EOF.");
  await page.getByRole("button", { name: "Edit message" }).click();
  await page.click('.editor [aria-label="Remove photo.jpg"]');
  await page.focus(".editor textarea");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".problem", { state: "detached" });
  await ended(page);
  assert.deepEqual(fake.requests[1].messages, [{ role: "user", content: [part("image/png", shapes), { type: "text", text: "What?" }] }]);
  assert.equal(await page.locator(".wrong").count(), 0);
});

test("an image that cannot be read any more ends the answer, not the page", async () => {
  await choose(file("shapes.png", shapes));
  await tiles(1);
  await page.evaluate(() => (FileReader.prototype.readAsDataURL = function () {
    setTimeout(() => this.onerror());
  }));
  await send(page, "What?");
  await page.waitForSelector(".answer .problem[role=alert]");
  assert.match(await page.locator(".problem").innerText(), /no memory left/);
  assert.ok(await page.isVisible("#send"));
});

test("without room for images the text is kept, and it is said what is missing", async () => {
  page.spent = true;
  await page.addInitScript(() => {
    IDBObjectStore.prototype.put = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
  });
  await page.reload();
  await choose(file("shapes.png", shapes));
  await tiles(1);
  await send(page, "What?");
  await ended(page);
  await page.getByText("The browser's storage is full").waitFor();
  await page.click('[aria-label="Answer again"]');
  await page.waitForFunction(() => !document.body.classList.contains("busy"));
  assert.deepEqual(fake.requests[1].messages, fake.requests[0].messages);
  await page.reload();
  await page.getByText("shapes.png is no longer in this browser. It is not sent.").waitFor();
  assert.equal(await answerText(page), fake.text);
  await page.click('[aria-label="Answer again"]');
  await page.waitForFunction(() => !document.body.classList.contains("busy"));
  assert.deepEqual(fake.requests[2].messages, [{ role: "user", content: "What?" }]);
});
