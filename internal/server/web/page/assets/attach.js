// The images of a message: chosen, pasted or dropped before it is sent, shown after that.

import { byId, h, iconButton } from "./dom.js";
import { Unusable, read, types } from "./picture.js";

// Attachments are the images of a message that is being written.
//
// button asks for files, list shows the images, note shows errors. vision() says
// why the model takes no images (refusal, else "") and how many pixels it can use. url(picture)
// is the address of an image for an img element.
export class Attachments {
  #taken = 0; // files that are still being read
  #refused = 0;
  #reading = Promise.resolve();
  #added = new Set(); // ids of images that no message has yet

  constructor({ button, list, note }, { album, vision, url, pictures = [] }) {
    Object.assign(this, { button, list, note, album, vision, url });
    this.pictures = [...pictures];
    this.tell("");
    this.#arrange();
    for (const picture of pictures) this.#fill(this.#tile(picture.name), picture);
    const input = h("input", { type: "file", accept: types, multiple: true, hidden: true });
    button.after(input);
    button.addEventListener("click", () => (this.vision().refusal ? this.tell(this.vision().refusal) : input.click()));
    input.addEventListener("change", () => {
      this.add(input.files);
      input.value = ""; // so that the same file can be chosen again
    });
    this.refresh();
  }

  // refresh shows whether the model takes images.
  refresh() {
    const { refusal } = this.vision();
    const name = refusal ? `Add images: ${refusal}` : "Add images";
    for (const attribute of ["aria-label", "title"]) this.button.setAttribute(attribute, name);
    this.button.setAttribute("aria-disabled", String(refusal !== "")); // but it can be asked why
  }

  // listen accepts files that are pasted into an element or dropped on it.
  listen(area) {
    const take = (event, files) => {
      if (files.length === 0 || event.target.closest?.("dialog")) return;
      event.preventDefault();
      event.stopPropagation();
      this.add(files);
    };
    area.addEventListener("paste", (event) => take(event, pasted(event.clipboardData)));
    area.addEventListener("drop", (event) => take(event, [...event.dataTransfer.files]));
  }

  // add reads files, one after another, and shows errors.
  add(files) {
    const { refusal } = this.vision();
    this.tell(refusal);
    this.#writeOn();
    if (refusal) return;
    for (const file of files) {
      const tile = this.#tile(file.name || "Image");
      this.#taken++;
      this.#reading = this.#reading.then(() => this.#read(file, tile));
    }
  }

  async #read(file, tile) {
    try {
      const picture = this.album.add(await read(file, this.vision().pixels));
      this.#added.add(picture.id);
      if (!tile.isConnected) return this.album.discard(picture); // taken back already
      this.pictures.push(picture);
      byId("said").textContent = `${picture.name} added.`;
      await this.#fill(tile, picture);
    } catch (err) {
      tile.remove();
      this.#refused++;
      const why = err instanceof Unusable ? err.message : `${file.name} cannot be used: ${err.message}`;
      this.tell([this.note.textContent, why].filter(Boolean).join(" "));
    } finally {
      this.#taken--;
      this.#arrange();
    }
  }

  // ready waits until all files are read; false: they cannot be sent, and the reason was shown.
  async ready() {
    const before = this.#refused;
    while (this.#taken > 0) await this.#reading;
    const { refusal } = this.vision();
    if (refusal && this.pictures.length > 0) this.tell(`${refusal} Choose another model, or remove them.`);
    return this.#refused === before && (refusal === "" || this.pictures.length === 0);
  }

  // take returns the images for a message and removes them.
  take() {
    const { pictures } = this;
    this.#added.clear();
    this.#empty();
    return pictures;
  }

  // discard drops the added images.
  discard() {
    for (const picture of this.pictures) if (this.#added.has(picture.id)) this.album.discard(picture);
    this.#empty();
  }

  #empty() {
    this.pictures = [];
    this.list.replaceChildren();
    this.#arrange();
    this.tell("");
  }

  tell(text) {
    this.note.textContent = text;
    this.note.hidden = text === "";
  }

  // #tile is the placeholder of an image that is being read.
  #tile(name) {
    const tile = h("li", { class: "tile reading" });
    tile.append(iconButton("close", `Remove ${name}`, () => this.#remove(tile)));
    this.list.append(tile);
    this.#arrange();
    return tile;
  }

  async #fill(tile, picture) {
    tile.picture = picture;
    const url = await this.url(picture);
    tile.classList.remove("reading");
    tile.prepend(h("img", { src: url, alt: picture.name, title: picture.name, draggable: "false" }));
  }

  #remove(tile) {
    const next = tile.nextElementSibling ?? tile.previousElementSibling;
    const { picture } = tile;
    tile.remove();
    if (picture) {
      this.pictures = this.pictures.filter((other) => other !== picture);
      if (this.#added.has(picture.id)) this.album.discard(picture);
    }
    this.tell("");
    this.#arrange();
    if (next) next.querySelector("button").focus();
    else this.#writeOn();
    byId("said").textContent = "Image removed.";
  }

  // #writeOn lets the person go on with the text.
  #writeOn() {
    this.list.parentElement.querySelector("textarea").focus();
  }

  #arrange() {
    this.list.hidden = this.list.children.length === 0;
  }
}

// pasted lists the files of a clipboard. Programs for texts and tables add an image of the copied
// text: then the text is meant.
function pasted({ files, types }) {
  const text = types.includes("text/plain") && (types.includes("text/html") || types.includes("text/rtf"));
  return text ? [] : [...files];
}

// dropZone makes the whole page a drop target: sign shows while files are over it, with
// the text of say(). A file dropped elsewhere would replace the page.
export function dropZone(sign, say) {
  const files = (event) => event.dataTransfer?.types.includes("Files");
  const show = (event) => {
    if (!files(event)) return;
    event.preventDefault();
    sign.textContent = say();
    sign.hidden = false;
  };
  document.addEventListener("dragenter", show);
  document.addEventListener("dragover", show);
  document.addEventListener("dragleave", (event) => (sign.hidden ||= event.relatedTarget === null));
  document.addEventListener("dragend", () => (sign.hidden = true));
  document.addEventListener("drop", (event) => {
    if (files(event)) event.preventDefault();
    sign.hidden = true;
  }, true); // before the handlers of single elements
}

// gallery shows the images of a message. problem(picture) is the error of one, or nothing.
export function gallery(pictures, { url, problem }) {
  return h("ul", { class: "pictures", "aria-label": "Images" }, pictures.map((picture) => pictureOf(picture, url, problem(picture))));
}

function pictureOf(picture, url, problem) {
  const { name, width, height } = picture;
  const image = h("img", { alt: name, width, height, draggable: "false" });
  const item = h("li", { class: problem ? "wrong" : null }, h("button", { type: "button", class: "picture", "aria-label": `Enlarge ${name}`, title: name, onclick: () => enlarge(picture, image.src) }, image));
  if (problem) item.append(h("p", { class: "why" }, problem));
  url(picture).then((address) => {
    if (address) image.src = address;
    else item.replaceChildren(h("p", { class: "note" }, `${name} is no longer in this browser. It is not sent.`));
  });
  return item;
}

// enlarge shows an image as large as the page.
function enlarge({ name, width, height }, address) {
  const viewer = byId("viewer");
  byId("viewer-name").textContent = `${name} · ${width} × ${height}`;
  viewer.querySelector("img")?.remove();
  viewer.append(h("img", { src: address, alt: name, width, height }));
  viewer.showModal();
}
