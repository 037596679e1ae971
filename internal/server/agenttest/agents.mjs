// Runs coding agents against the built program: two turns each, of which the second must find
// its beginning in the prefix cache. Prints a table; an error of the server or of an agent is
// an exit code of 1. Nothing but this machine is contacted: whatever asks for more is refused
// by a proxy and listed.
import { spawn } from "node:child_process";
import fs from "node:fs";
import http from "node:http";
import path from "node:path";

const program = path.resolve(process.env.FORETOKEN_BIN);
const modules = path.resolve(process.env.AGENTS, "node_modules");
const source = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const tiny = path.resolve(process.env.TINY);
const work = fs.mkdtempSync(path.join(process.env.TMPDIR ?? "/tmp", "foretoken-agents-"));
const only = process.argv.slice(2);
const turnLimit = 300_000; // ms, after which an agent hangs

// checkpoint writes the embedded model with a template that knows tools and a context that
// prompts of agents fit in. What it says does not matter, so every fourth token ends an answer;
// the first 256, which are the bytes, do not.
function checkpoint() {
  const dir = path.join(work, "model");
  fs.mkdirSync(dir);
  for (const name of fs.readdirSync(tiny)) {
    if (/\.(json|safetensors)$/.test(name)) fs.copyFileSync(path.join(tiny, name), path.join(dir, name));
  }
  const edit = (name, change) => {
    const file = path.join(dir, name);
    const object = JSON.parse(fs.readFileSync(file, "utf8"));
    change(object);
    fs.writeFileSync(file, JSON.stringify(object));
  };
  edit("config.json", (c) => { c.text_config.max_position_embeddings = 1 << 18; });
  edit("generation_config.json", (g) => {
    for (let id = 256; id < 8000; id += 4) g.eos_token_id.push(id);
  });
  fs.copyFileSync(path.join(source, "template.jinja"), path.join(dir, "chat_template.jinja"));
  return dir;
}

// serve starts the program and returns its address and the lines of its log.
async function serve(dir) {
  const child = spawn(program, ["serve", "--model", dir, "--served-model-name", "tiny", "--port", "0", "--kv-memory", "3GiB",
    "--log-format", "json", "--log-level", "debug"], { stdio: ["ignore", "ignore", "pipe"] });
  const log = [];
  let rest = "";
  const ready = new Promise((resolve, reject) => {
    let url = "";
    child.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${JSON.stringify(log.slice(-3))}`)));
    child.stderr.on("data", (data) => {
      rest += data;
      const lines = rest.split("\n");
      rest = lines.pop();
      for (const line of lines) {
        let entry = { msg: line };
        try { entry = JSON.parse(line); } catch { /* a line of another kind */ }
        log.push(entry);
        url = entry.url ?? url;
        if (entry.msg === "ready") resolve(url);
      }
    });
  });
  return { url: await ready, log, stop: () => child.kill("SIGTERM") };
}

// refuse is a proxy that lets nothing through and remembers who was asked for.
async function refuse() {
  const hosts = new Set();
  const server = http.createServer((q, a) => {
    hosts.add(new URL(q.url, "http://unknown").host);
    a.writeHead(403).end();
  });
  server.on("connect", (q, socket) => {
    hosts.add(q.url);
    socket.on("error", () => {}); // who is refused may leave at once
    socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, hosts, stop: () => server.close() };
}

// write puts a file into the agent's home.
function write(home, name, content) {
  const file = path.join(home, name);
  fs.mkdirSync(path.dirname(file), { recursive: true });
  fs.writeFileSync(file, typeof content === "string" ? content : JSON.stringify(content));
}

const bin = (name) => path.join(modules, ".bin", name);

// agents say how each is set up (prepare, env) and how it is asked: first, then again.
const agents = {
  "qwen-code": {
    package: "@qwen-code/qwen-code",
    prepare: (home) => write(home, ".qwen/settings.json", {
      telemetry: { enabled: false }, privacy: { usageStatisticsEnabled: false },
      general: { disableAutoUpdate: true, enableAutoUpdate: false }, security: { auth: { selectedType: "openai" } },
    }),
    env: (url) => ({ OPENAI_API_KEY: "none", OPENAI_BASE_URL: `${url}/v1`, OPENAI_MODEL: "tiny", QWEN_TELEMETRY_ENABLED: "0" }),
    first: (text) => [bin("qwen"), "-p", text],
    again: (text) => [bin("qwen"), "--continue", "-p", text],
  },
  "claude-code": {
    package: "@anthropic-ai/claude-code",
    prepare: () => {},
    env: (url, home) => ({
      ANTHROPIC_BASE_URL: url, ANTHROPIC_AUTH_TOKEN: "none", ANTHROPIC_MODEL: "tiny", ANTHROPIC_SMALL_FAST_MODEL: "tiny",
      ANTHROPIC_DEFAULT_HAIKU_MODEL: "tiny", CLAUDE_CONFIG_DIR: path.join(home, ".claude"), DISABLE_AUTOUPDATER: "1", DISABLE_TELEMETRY: "1",
      DISABLE_ERROR_REPORTING: "1", DISABLE_BUG_COMMAND: "1", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    }),
    first: (text) => [bin("claude"), "-p", text],
    again: (text) => [bin("claude"), "-p", "--continue", text],
  },
  codex: {
    package: "@openai/codex",
    prepare: (home, url) => write(home, ".codex/config.toml", `
model = "tiny"
model_provider = "foretoken"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.foretoken]
name = "foretoken"
base_url = "${url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
`),
    env: (url, home) => ({ CODEX_HOME: path.join(home, ".codex") }),
    first: (text) => [bin("codex"), "exec", "--skip-git-repo-check", "--sandbox", "read-only", text],
    again: (text) => [bin("codex"), "exec", "--skip-git-repo-check", "--sandbox", "read-only", "resume", "--last", text],
  },
  opencode: {
    package: "opencode-ai",
    prepare: (home, url) => write(home, "work/opencode.json", {
      autoupdate: false, share: "disabled", model: "foretoken/tiny", small_model: "foretoken/tiny",
      provider: { foretoken: {
        npm: "@ai-sdk/openai-compatible", name: "foretoken", options: { baseURL: `${url}/v1`, apiKey: "none" },
        models: { tiny: { name: "tiny", limit: { context: 200000, output: 256 } } },
      } },
    }),
    env: () => ({ OPENCODE_DISABLE_AUTOUPDATE: "1", OPENCODE_DISABLE_MODELS_FETCH: "1", OPENCODE_DISABLE_DEFAULT_PLUGINS: "1", OPENCODE_DISABLE_LSP_DOWNLOAD: "1" }),
    first: (text) => [bin("opencode"), "run", text],
    again: (text) => [bin("opencode"), "run", "--continue", text],
  },
  pi: {
    package: "@earendil-works/pi-coding-agent",
    prepare: (home, url) => write(home, ".pi/agent/models.json", {
      providers: { foretoken: {
        baseUrl: `${url}/v1`, api: "openai-completions", apiKey: "none",
        models: [{ id: "tiny", name: "tiny", contextWindow: 200000, maxTokens: 256 }],
      } },
    }),
    env: (url, home) => ({ PI_CODING_AGENT_DIR: path.join(home, ".pi/agent"), PI_OFFLINE: "1", PI_SKIP_VERSION_CHECK: "1", PI_TELEMETRY: "0" }),
    first: (text) => [bin("pi"), "--provider", "foretoken", "--model", "tiny", "-p", text],
    again: (text) => [bin("pi"), "--provider", "foretoken", "--model", "tiny", "--continue", "-p", text],
  },
};

// ask runs an agent once and returns its exit code and the end of what it said.
function ask(command, env, cwd) {
  return new Promise((resolve) => {
    const child = spawn(command[0], command.slice(1), { env, cwd, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    const timer = setTimeout(() => child.kill("SIGKILL"), turnLimit);
    const hear = (data) => { said = (said + data).slice(-2000); };
    child.stdout.on("data", hear);
    child.stderr.on("data", hear);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      resolve({ code: code ?? signal, said });
    });
  });
}

// turns are the requests in a part of the log that asked for an answer.
const turns = (log) => log.filter((l) => l.msg === "request" && l.method === "POST");

// run has two turns with an agent and returns its row.
async function run(name, server, proxy) {
  const agent = agents[name];
  const home = path.join(work, name);
  const cwd = path.join(home, "work");
  fs.mkdirSync(cwd, { recursive: true });
  write(home, "work/README.md", "A folder with nothing in it.\n");
  agent.prepare(home, server.url);
  const env = {
    PATH: `${path.join(modules, "node/bin")}:${process.env.PATH}`, HOME: home, TMPDIR: home, TERM: "dumb", NO_COLOR: "1", DO_NOT_TRACK: "1",
    XDG_CONFIG_HOME: path.join(home, ".config"), XDG_DATA_HOME: path.join(home, ".local/share"), XDG_CACHE_HOME: path.join(home, ".cache"),
    XDG_STATE_HOME: path.join(home, ".local/state"),
    HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url, http_proxy: proxy.url, https_proxy: proxy.url, NO_PROXY: "127.0.0.1,localhost", no_proxy: "127.0.0.1,localhost",
    ...agent.env(server.url, home),
  };
  const begin = server.log.length;
  const one = await ask(agent.first("Say hello."), env, cwd);
  const middle = server.log.length;
  const two = await ask(agent.again("Say it again."), env, cwd);
  const all = turns(server.log.slice(begin));
  const second = turns(server.log.slice(middle));
  const count = {};
  for (const l of all) count[l.status] = (count[l.status] ?? 0) + 1;
  const cached = Math.max(0, ...second.map((l) => l.cached_tokens ?? 0));
  const prompt = Math.max(0, ...second.map((l) => l.prompt_tokens ?? 0));
  const version = JSON.parse(fs.readFileSync(path.join(modules, agent.package, "package.json"), "utf8")).version;
  const problems = [];
  for (const l of all) if (l.status !== 200) problems.push(`${l.path}: ${l.status} ${l.error}`);
  for (const [i, turn] of [one, two].entries()) {
    if (turn.code !== 0) problems.push(`turn ${i + 1} ended with ${turn.code}: ${turn.said.trim().split("\n").slice(-6).join(" / ")}`);
  }
  if (all.length === 0) problems.push("no request came");
  if (cached === 0) problems.push("the second turn found nothing in the prefix cache");
  const ignored = new Set(server.log.slice(begin).filter((l) => l.msg === "ignored fields").flatMap((l) => l.fields.split(", ")));
  return { name, version, requests: all.length, status: Object.entries(count).map(([s, n]) => `${n}×${s}`).join(" "), prompt, cached, ignored, problems };
}

const server = await serve(checkpoint());
const proxy = await refuse();
const rows = [];
for (const name of Object.keys(agents)) {
  if (only.length > 0 && !only.includes(name)) continue;
  process.stderr.write(`${name} …\n`);
  const row = await run(name, server, proxy);
  rows.push(row);
  process.stderr.write(`  ${row.status || "no requests"}, ${row.cached} of ${row.prompt} tokens cached\n`);
}
server.stop();
proxy.stop();
console.log("| agent | version | requests | status | prompt of turn 2 | of that cached | ignored |\n|---|---|---|---|---|---|---|");
for (const r of rows) console.log(`| ${r.name} | ${r.version} | ${r.requests} | ${r.status} | ${r.prompt} | ${r.cached} | ${[...r.ignored].join(", ") || "–"} |`);
if (proxy.hosts.size > 0) console.log(`refused: ${[...proxy.hosts].join(", ")}`);
const problems = rows.flatMap((r) => r.problems.map((p) => `${r.name}: ${p}`));
for (const p of problems) console.error(p);
if (process.env.KEEP) console.error(`kept: ${work}`);
else fs.rmSync(work, { recursive: true, force: true });
process.exit(problems.length > 0 ? 1 : 0);
