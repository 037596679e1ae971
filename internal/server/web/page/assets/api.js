// The client of the server: the OpenAI API with foretoken's extensions. It knows requests
// and their errors, but not the page.

// Problem is a failed request. Kinds:
//   gone     no answer
//   key      the server requires a key, or another one
//   busy     too many requests; retryAfter is in seconds
//   loading  the model is being loaded; progress is 0 to 1, or undefined
//   full     the conversation does not fit into the model's context
//   large    nor, with its images, into a request
//   cut      the stream ended before the answer did
//   picture  an image cannot be used; picture is its number among those of the request, from 0
//   refused  the request was wrong
//   server   the server failed
export class Problem extends Error {
  constructor(kind, message, extra = {}) {
    super(message);
    this.kind = kind;
    Object.assign(this, extra);
  }
}

// maxBody is the default limit of a server. A server that refuses more closes the connection
// before all of it has arrived, which looks like a network error to a browser.
const maxBody = 64 << 20;

const fullCodes = new Set(["context_length_exceeded", "too_large", "context_full"]);

// problemOf reads an error response of any shape.
function problemOf(status, error, header, messages = []) {
  const message = typeof error?.message === "string" ? error.message : `The server answered with status ${status}.`;
  const extra = { status };
  if (status === 401 || status === 403) return new Problem("key", message, extra);
  if (status === 429) {
    const seconds = Number(header?.get("Retry-After"));
    return new Problem("busy", message, { ...extra, retryAfter: seconds > 0 ? Math.min(seconds, 600) : 0 });
  }
  if (status === 503 && error?.type === "loading") {
    return new Problem("loading", message, { ...extra, progress: typeof error.progress === "number" ? error.progress : undefined });
  }
  if (status === 413) return new Problem("large", message, extra);
  if (fullCodes.has(error?.code) || fullCodes.has(error?.type)) return new Problem("full", message, extra);
  const picture = pictureOf(error, messages);
  if (picture !== undefined) return new Problem("picture", plain(message), { ...extra, picture });
  return new Problem(status >= 500 ? "server" : "refused", message, extra);
}

async function request(path, { key, messages, ...init }) {
  const headers = { Accept: "application/json", ...init.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...init, headers, cache: "no-store" });
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem("gone", "The server does not answer.");
  }
  if (response.ok) return response;
  let error;
  try {
    error = (await response.json()).error;
  } catch {
    error = undefined; // a proxy's page, perhaps: the status has to do
  }
  throw problemOf(response.status, error, response.headers, messages);
}

// json reads the whole of a response.
async function json(path, init) {
  const response = await request(path, init);
  try {
    return await response.json();
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem("server", "The server's answer is not JSON. Is this a foretoken server?");
  }
}

// pictureOf is the number of the image that an error is about, among those of the request's
// messages; undefined: it is about something else.
function pictureOf(error, messages) {
  const at = /\bmessages\[(\d+)\]\.content\[(\d+)\]/.exec(`${error?.param} ${error?.message}`);
  if (!at) return undefined;
  const [message, part] = [Number(at[1]), Number(at[2])];
  const places = messages.flatMap(({ content }, i) => (Array.isArray(content) ? content.flatMap(({ type }, j) => (type === "image_url" ? [[i, j]] : [])) : []));
  const found = places.findIndex(([i, j]) => i === message && j === part);
  return found < 0 ? undefined : found;
}

// plain is an error about an image, without the position that it begins with.
const plain = (message) => message.replace(/^(?:messages\[\S+: )?(?:image or video \d+: )?/, "").replace(/^\p{Ll}/u, (c) => c.toUpperCase()).replace(/[^.!?]$/, "$&.");

// visionOf describes a model's use of images: {pixels} it can use of one, 0 if that is not known,
// or null if it takes none. If the server does not tell, all models are assumed to take images.
export function visionOf({ input_modalities: kinds, foretoken: about }) {
  if (Array.isArray(kinds) && !kinds.includes("image")) return null;
  return { pixels: about?.vision?.max_pixels ?? 0 };
}

// models lists the server's models: [{id, foretoken: {…}}].
export async function models(options) {
  const { data } = await json("v1/models", options);
  return Array.isArray(data) ? data.filter((model) => typeof model?.id === "string") : [];
}

// status is the server's status, or null if it does not tell.
export async function status(options) {
  try {
    return await json("v1/status", options);
  } catch (err) {
    if (err.status === 404) return null;
    throw err;
  }
}

// loading is the progress of loading a model: 0 to 1, undefined if that is not known, and
// null if it is not being loaded or the server does not answer.
export async function loading(model) {
  let answer;
  try {
    answer = await (await fetch("readyz", { cache: "no-store" })).json(); // 503 while it is
  } catch {
    return null;
  }
  const entry = answer?.models?.find?.(({ id }) => id === model);
  if (entry?.state !== "loading") return null;
  return entry.total_bytes > 0 ? Math.min(1, (entry.done_bytes ?? 0) / entry.total_bytes) : undefined;
}

// chat sends a conversation and yields the chunks of the answer as they come.
export async function* chat(body, options) {
  const text = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, foretoken: { stats: true, trace: true } });
  if (text.length > maxBody) throw new Problem("large", `It has ${text.length >> 20} MiB with its images; the maximum is ${maxBody >> 20} MiB.`);
  const response = await request("v1/chat/completions", {
    ...options,
    messages: body.messages,
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: text,
  });
  let done = false;
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      done = true;
      break;
    }
    const chunk = parsed(data);
    if (chunk.error) throw problemOf(chunk.error.status ?? 500, chunk.error, null, body.messages);
    yield chunk;
  }
  if (!done) throw new Problem("cut", "The connection ended before the answer did.");
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new Problem("server", "The server sent a chunk that is not JSON.");
  }
}

// events yields the data of each server-sent event of a stream of bytes.
export async function* events(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await read(reader);
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const parts = rest.split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) {
        const data = dataOf(part);
        if (data !== "") yield data;
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {}); // the reader that stopped has reported why already
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (err) {
    if (err.name === "AbortError") throw err;
    throw new Problem("cut", "The connection ended before the answer did.");
  }
}

function dataOf(event) {
  return event
    .split(/\r?\n/)
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).replace(/^ /, ""))
    .join("\n");
}
