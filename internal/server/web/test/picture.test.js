import assert from "node:assert/strict";
import { readdir } from "node:fs/promises";
import { test } from "node:test";
import { headerOf } from "../page/assets/picture.js";
import { gif, png, sample, samples } from "./samples.js";

test("headers of images are read, however they are cut", async () => {
  const types = { png: "image/png", jpg: "image/jpeg", webp: "image/webp" };
  let seen = 0;
  for (const folder of ["images/", "decoders/"]) {
    for (const name of await readdir(new URL(folder, samples))) {
      const type = types[name.split(".").pop()];
      if (!type) continue;
      const data = await sample(folder + name);
      const header = headerOf(data);
      assert.equal(header.type, type, name);
      assert.equal(header.animated, false, name);
      assert.ok(header.width > 0 && header.height > 0, name);
      const size = /_(\d+)x(\d+)\./.exec(name);
      if (size && !name.startsWith("ycc_")) {
        assert.deepEqual([header.width, header.height], [Number(size[1]), Number(size[2])], name);
        seen++;
      }
      for (let length = 0; length < Math.min(data.length, 100); length++) {
        const cut = headerOf(data.subarray(0, length));
        if (cut !== null) assert.deepEqual(cut, header, `${name}, ${length} bytes`);
      }
    }
  }
  assert.ok(seen > 15, `${seen} sizes were compared`);
  const webp = Buffer.from("RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0\x3f\x1f\0\x27\x01\0", "latin1");
  assert.deepEqual(headerOf(webp), { type: "image/webp", width: 7744 + 256, height: 296, animated: true });
  assert.deepEqual(headerOf(png(30, 20, ["acTL", Buffer.alloc(8)])), { type: "image/png", width: 30, height: 20, animated: true });
  assert.deepEqual(headerOf(gif(1)), { type: "image/gif", width: 2, height: 1, animated: false });
  assert.deepEqual(headerOf(gif(2)), { type: "image/gif", width: 2, height: 1, animated: true });
  for (const [beginning, other] of [["\0\0\0\x18ftypheic", "HEIC"], ["\0\0\0\x18ftypavif", "AVIF"], ["II*\0", "TIFF"], ["%PDF-1.7", "PDF"], ['<?xml version="1.0"?>\n<svg xmlns', "SVG"]]) {
    assert.deepEqual(headerOf(Buffer.from(beginning, "latin1")), { other });
  }
  for (const text of ["", "Dear all,", "\xff\xd8\xff", "GIF89a", "RIFF"]) assert.equal(headerOf(Buffer.from(text, "latin1")), null, text);
});

test("damaged headers are read to an end", async () => {
  const files = [png(30, 20, ["acTL", Buffer.alloc(8)]), gif(3), await sample("decoders/rgb_progressive.jpg"), await sample("decoders/lossy_alpha_48x33.webp")];
  let state = 1;
  const random = (below) => ((state = Math.imul(state, 1664525) + 1013904223) >>> 8) % below; // its lowest bits repeat soon
  let known = 0;
  for (let i = 0; i < 4000; i++) {
    const data = Buffer.from(files[i % files.length]);
    for (let j = random(6); j >= 0; j--) data[random(data.length)] = random(256);
    const header = headerOf(data.subarray(0, random(data.length)));
    assert.ok(header === null || header.other || (header.width >= 0 && header.height >= 0 && typeof header.animated === "boolean"));
    if (header?.type) known++;
  }
  assert.ok(known > 1000, `${known} were still images`);
});
