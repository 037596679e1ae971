// The browser's storage for this page. If it is forbidden, for example by blocked
// cookies, values are kept until the page is closed.

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
    return window[name] ?? new Memory(); // throws where it is forbidden; null where it is turned off
  } catch {
    return new Memory();
  }
}

export const local = storage("localStorage");
export const session = storage("sessionStorage");

// remember keeps a choice, unless the storage is full: then it holds until the page is closed.
export function remember(key, value) {
  try {
    local.setItem(key, value);
  } catch {
    // Full.
  }
}

// randomId needs no secure context, as crypto.randomUUID does: the page may come over plain HTTP.
export const randomId = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(16).padStart(8, "0")).join("");
