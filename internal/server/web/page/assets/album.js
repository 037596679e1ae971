// Keeps the pictures of conversations in the browser: in IndexedDB, for they are too large for the
// storage of texts. Where that is forbidden or full they are there until the page is closed.
//
// A picture of a message is {id, name, type, width, height}; its bytes lie here under the ids of
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

// picturesOf lists the pictures of a conversation's messages.
export const picturesOf = ({ messages }) => messages.flatMap(({ pictures = [] }) => pictures);

// Album holds the pictures that are in use, and fetches the others.
export class Album {
  #open = new Map(); // by id: {blob, url, stored}

  // add takes in a picture that was read, and returns it as a message has it.
  add({ blob, ...picture }) {
    const id = randomId();
    this.#open.set(id, { blob, stored: false });
    return { id, ...picture };
  }

  // discard forgets a picture that no message has.
  discard({ id }) {
    this.#close(id);
  }

  // url is an address for an img element, or null if the picture is no longer there.
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

  // keep writes the pictures of a conversation that are not written yet, and takes those away
  // that are no longer in it; false: not all could be written. The conversation itself has to be
  // written before, or sweep may take its pictures for left over ones.
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

  // remove takes away all pictures of a conversation.
  async remove(conversation) {
    try {
      await transact("readwrite", (pictures) => pictures.delete(all(conversation)));
    } catch {
      // Forbidden: there are none.
    }
  }

  // release frees the memory of pictures that can be fetched again.
  release() {
    for (const [id, { stored }] of this.#open) if (stored) this.#close(id);
  }

  #close(id) {
    const url = this.#open.get(id)?.url;
    if (url) URL.revokeObjectURL(url);
    this.#open.delete(id);
  }

  // sweep takes away what conversations left that are no more; exists(id) tells of one.
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
