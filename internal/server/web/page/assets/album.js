// Keeps the images of conversations in the browser: in IndexedDB, because they are too large for
// localStorage. If that is forbidden or full they are kept until the page is closed.
//
// An image of a message is {id, name, type, width, height}; its bytes are stored here under the ids of
// its conversation and of itself.

import { dataURL } from "./picture.js";
import { randomId } from "./storage.js";

const database = "foretoken";
const store = "pictures";

// openDatabase opens it, and makes it the first time.
function openDatabase() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(database, 1); // throws where it is forbidden
    opening.onupgradeneeded = () => opening.result.createObjectStore(store);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}

// transact runs one request on the store and returns its result once it is written.
async function transact(mode, request) {
  const db = await openDatabase();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = db.transaction(store, mode);
      const made = request(transaction.objectStore(store));
      transaction.oncomplete = () => resolve(made.result);
      transaction.onabort = () => reject(transaction.error);
    });
  } finally {
    db.close();
  }
}

const all = (conversation) => IDBKeyRange.bound([conversation], [conversation, []]);

// picturesOf lists the images of a conversation's messages.
export const picturesOf = ({ messages }) => messages.flatMap(({ pictures = [] }) => pictures);

// Album holds the images in use, and fetches the others.
export class Album {
  #open = new Map(); // by id: {blob, url, stored}

  // add adds an image that was read, and returns its entry for a message.
  add({ blob, ...picture }) {
    const id = randomId();
    this.#open.set(id, { blob, stored: false });
    return { id, ...picture };
  }

  // discard drops an image that no message has.
  discard({ id }) {
    this.#close(id);
  }

  // url is an address for an img element, or null if the image no longer exists.
  async url(conversation, picture) {
    const entry = await this.#entry(conversation, picture);
    return entry && (entry.url ??= URL.createObjectURL(entry.blob));
  }

  // data is the address that a request carries, or null.
  async data(conversation, picture) {
    const entry = await this.#entry(conversation, picture);
    return entry && dataURL(entry.blob);
  }

  async #entry(conversation, { id, type }) {
    if (this.#open.has(id)) return this.#open.get(id);
    let bytes;
    try {
      bytes = await transact("readonly", (pictures) => pictures.get([conversation, id]));
    } catch {
      bytes = undefined; // forbidden: nothing was kept
    }
    if (!bytes) return null;
    if (!this.#open.has(id)) this.#open.set(id, { blob: new Blob([bytes], { type }), stored: true });
    return this.#open.get(id);
  }

  // keep writes the unwritten images of a conversation, and removes those
  // that are no longer in it; false: not all could be written. The conversation itself has to be
  // written before, or sweep may remove its images.
  async keep(conversation) {
    const wanted = new Set(picturesOf(conversation).map(({ id }) => id));
    try {
      const kept = await transact("readonly", (pictures) => pictures.getAllKeys(all(conversation.id)));
      for (const key of kept.filter(([, id]) => !wanted.has(id))) await transact("readwrite", (pictures) => pictures.delete(key));
      for (const [id, entry] of this.#open) {
        if (entry.stored || !wanted.has(id)) continue;
        const bytes = await entry.blob.arrayBuffer();
        await transact("readwrite", (pictures) => pictures.put(bytes, [conversation.id, id]));
        entry.stored = true;
      }
      return true;
    } catch {
      return ![...this.#open].some(([id, { stored }]) => wanted.has(id) && !stored);
    }
  }

  // remove removes all images of a conversation.
  async remove(conversation) {
    try {
      await transact("readwrite", (pictures) => pictures.delete(all(conversation)));
    } catch {
      // Forbidden: there are none.
    }
  }

  // release frees the memory of images that can be fetched again.
  release() {
    for (const [id, { stored }] of this.#open) if (stored) this.#close(id);
  }

  #close(id) {
    const url = this.#open.get(id)?.url;
    if (url) URL.revokeObjectURL(url);
    this.#open.delete(id);
  }

  // sweep removes the images of deleted conversations; exists(id) reports whether one exists.
  async sweep(exists) {
    try {
      const keys = await transact("readonly", (pictures) => pictures.getAllKeys());
      const gone = new Set(keys.map(([conversation]) => conversation).filter((id) => !exists(id)));
      for (const id of gone) await this.remove(id);
    } catch {
      // Forbidden: there are none.
    }
  }
}
