// The browser's memory of this page. Where it is forbidden, as by a person who blocks all
// cookies, things are remembered until the page is closed.

class Memory {
  #entries = new Map();

  getItem(key) {
    return this.#entries.get(key) ?? null;
  }

  setItem(key, value) {
    this.#entries.set(key, String(value));
  }

  removeItem(key) {
    this.#entries.delete(key);
  }
}

function storage(name) {
  try {
    return window[name]; // throws where it is forbidden
  } catch {
    return new Memory();
  }
}

export const local = storage("localStorage");
export const session = storage("sessionStorage");
