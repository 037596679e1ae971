// Images for the tests.

import { readFile } from "node:fs/promises";
import { deflateSync } from "node:zlib";

export const samples = new URL("../../../picture/testdata/", import.meta.url);
// sample reads a file that the decoders of the server are tested with.
export const sample = (name) => readFile(new URL(name, samples));

// png is a black image with one bit for each pixel; extra chunks come before its pixels.
export function png(width, height, ...extra) {
  const chunk = (type, data) => {
    const out = Buffer.alloc(12 + data.length);
    out.writeUInt32BE(data.length);
    out.write(type, 4, "latin1");
    data.copy(out, 8);
    out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length);
    return out;
  };
  const head = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
  head.writeUInt32BE(width);
  head.writeUInt32BE(height, 4);
  const pixels = deflateSync(Buffer.alloc(height * (1 + Math.ceil(width / 8))));
  return Buffer.concat([Buffer.from("\x89PNG\r\n\x1a\n", "latin1"), chunk("IHDR", head), ...extra.map(([type, data]) => chunk(type, data)), chunk("IDAT", pixels), chunk("IEND", Buffer.alloc(0))]);
}

function crc32(data) {
  let crc = -1;
  for (const byte of data) {
    crc ^= byte;
    for (let i = 0; i < 8; i++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc >>> 0;
}

// gif is an animation of 2 × 1 pixels: red, then other colors.
export function gif(frames) {
  const frame = [0x21, 0xf9, 4, 0, 10, 0, 0, 0, 0x2c, 0, 0, 0, 0, 2, 0, 1, 0, 0, 2, 2, 0x04, 0x0a, 0];
  const head = [...Buffer.from("GIF89a"), 2, 0, 1, 0, 0x80, 0, 0, 255, 0, 0, 0, 0, 255];
  return Buffer.from([...head, ...Array(frames).fill(frame).flat(), 0x3b]);
}
