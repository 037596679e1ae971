// Reads image files: the format of a file, whether a model can use it, and a
// smaller copy if that is enough. It knows bytes and canvases, but not the page.

// types are the formats that servers read. With this list a phone gives JPEG instead of HEIC.
export const types = "image/png,image/jpeg,image/webp,image/gif";

const maxBytes = 64 << 20; // of a file, and pixels of an image: the limits of the server
const maxPixels = 1 << 27;
const keptBytes = 3 << 20; // up to these a file is sent unchanged
const keptPixels = 1 << 24;
const copyPixels = 1 << 22; // of a copy; by default a model gets a million pixels

// Unusable is a file that no model can use; its message says why, and what to do.
export class Unusable extends Error {}

// Beginnings of files of other image formats.
const others = [
  [/^....ftyp(?:hei|hev|mif1|msf1)/s, "HEIC"],
  [/^....ftypavi[fs]/s, "AVIF"],
  [/^....ftyp/s, "MP4"],
  [/^(?:II\*\0|MM\0\*)/, "TIFF"],
  [/^BM.{4}\0\0\0\0/s, "BMP"],
  [/^\s*(?:<\?xml[^]*)?<svg/, "SVG"],
  [/^%PDF/, "PDF"],
];

// headerOf reads the beginning of a file: {type, width, height, animated} of an image that
// servers read, {other} with the name of another format, and null of anything else. Sizes are
// those of the pixels in the file, before EXIF rotation.
export function headerOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = String.fromCharCode(...bytes.subarray(0, 256));
  try {
    if (text.startsWith("\x89PNG\r\n\x1a\n")) return { type: "image/png", width: view.getUint32(16), height: view.getUint32(20), animated: movesPNG(view) };
    if (text.startsWith("\xff\xd8\xff")) return { type: "image/jpeg", ...sizeOfJPEG(view), animated: false };
    if (/^GIF8[79]a/.test(text)) return { type: "image/gif", width: view.getUint16(6, true), height: view.getUint16(8, true), animated: movesGIF(view) };
    if (/^RIFF....WEBPVP8[ LX]/s.test(text)) return { type: "image/webp", ...sizeOfWebP(view, text[15]) };
  } catch (err) {
    if (err instanceof RangeError) return null; // the file ends before its size
    throw err;
  }
  const other = others.find(([beginning]) => beginning.test(text));
  return other ? { other: other[1] } : null;
}

// movesPNG looks for the mark of an animation before the first pixels.
function movesPNG(view) {
  for (let at = 8; at + 8 <= view.byteLength; at += 12 + view.getUint32(at)) {
    const kind = view.getUint32(at + 4);
    if (kind === 0x6163544c) return true; // acTL
    if (kind === 0x49444154) return false; // IDAT
  }
  return false;
}

function sizeOfJPEG(view) {
  for (let at = 2; ; at += 2 + view.getUint16(at + 2)) {
    while (view.getUint8(at) !== 0xff || view.getUint8(at + 1) === 0xff) at++; // fill bytes
    const marker = view.getUint8(at + 1);
    const frame = marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc;
    if (frame) return { width: view.getUint16(at + 7), height: view.getUint16(at + 5) };
  }
}

// movesGIF looks for a second frame.
function movesGIF(view) {
  const table = (flags) => (flags & 0x80 ? 3 << ((flags & 7) + 1) : 0); // bytes of colors
  let frames = 0;
  for (let at = 13 + table(view.getUint8(10)); at < view.byteLength; ) {
    const kind = view.getUint8(at);
    if (kind === 0x2c) {
      if (++frames > 1) return true;
      if (at + 9 >= view.byteLength) return false;
      at += 11 + table(view.getUint8(at + 9));
    } else if (kind === 0x21) at += 2;
    else return false;
    while (at < view.byteLength && view.getUint8(at) > 0) at += 1 + view.getUint8(at);
    at++;
  }
  return false;
}

function sizeOfWebP(view, kind) {
  if (kind === " ") return { width: view.getUint16(26, true) & 0x3fff, height: view.getUint16(28, true) & 0x3fff, animated: false };
  if (kind === "L") {
    const bits = view.getUint32(21, true);
    return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff), animated: false };
  }
  const three = (at) => 1 + view.getUint16(at, true) + (view.getUint8(at + 2) << 16);
  return { width: three(24), height: three(27), animated: (view.getUint8(20) & 2) !== 0 };
}

// read makes an image of a file: {name, type, width, height, blob}. Files of ordinary size are
// not changed. Larger ones become a smaller copy, and animations the first frame; pixels
// is the number that the model can use. Throws Unusable.
export async function read(file, pixels = 0) {
  const name = file.name || "Image";
  const { bytes, header } = await open(file, name);
  const blob = new Blob([bytes], { type: header.type }); // of the current file
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob); // rotated by EXIF
  } catch {
    throw new Unusable(`${name} is damaged, or too large for this browser.`);
  }
  try {
    const { width, height } = bitmap;
    if (!header.animated && file.size <= keptBytes && width * height <= Math.max(pixels, keptPixels)) return { name, type: header.type, width, height, blob };
    return { name, ...(await copyOf(bitmap, header.type, Math.max(pixels, copyPixels))) };
  } finally {
    bitmap.close();
  }
}

// open reads a file, and refuses files that no decoder should get.
async function open(file, name) {
  if (file.size > maxBytes) throw new Unusable(`${name} is too large: a file may have ${maxBytes >> 20} MiB.`);
  let bytes;
  try {
    bytes = new Uint8Array(await file.arrayBuffer());
  } catch {
    throw new Unusable(`${name} cannot be read.`); // a folder, or a file that is gone
  }
  const header = headerOf(bytes);
  if (header === null) throw new Unusable(`${name} is not an image. Use PNG, JPEG, WebP or GIF.`);
  if (header.other) throw new Unusable(`${name} is ${header.other}, which is not supported. Save it as JPEG or PNG.`);
  if (header.width * header.height > maxPixels) throw new Unusable(`${name} is too large: ${header.width} × ${header.height} pixels.`);
  return { bytes, header };
}

// copyOf redraws an image with at most pixels pixels. An image that is not a JPEG becomes one only
// if a lossless file would be large.
async function copyOf(bitmap, type, pixels) {
  const scale = Math.min(1, Math.sqrt(pixels / (bitmap.width * bitmap.height)));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.floor(side * scale)));
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  const encode = (as) => new Promise((resolve) => canvas.toBlob(resolve, as, 0.92));
  let blob = type === "image/jpeg" ? null : await encode("image/png");
  if (!blob || blob.size > keptBytes) {
    context.globalCompositeOperation = "destination-over"; // JPEG has no transparency
    context.fillStyle = "#fff";
    context.fillRect(0, 0, width, height);
    blob = await encode("image/jpeg");
  }
  if (!blob) throw new Unusable("This browser has no memory left for images.");
  return { type: blob.type, width, height, blob };
}

// dataURL is a picture's bytes as an address. Rejects with Unusable.
export function dataURL(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Unusable("The browser has no memory left for the images of this conversation."));
    reader.readAsDataURL(blob);
  });
}
