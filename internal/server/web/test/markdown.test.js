import assert from "node:assert/strict";
import { test } from "node:test";
import { parse, safe } from "../page/assets/markdown.js";

// leaves visits every leaf of text of a tree.
function leaves(node, visit) {
  if (Array.isArray(node)) return node.forEach((inner) => leaves(inner, visit));
  if (node === null || typeof node !== "object") return undefined;
  if (typeof node.text === "string" && typeof node.at === "number") visit(node);
  return Object.values(node).forEach((inner) => leaves(inner, visit));
}

// html writes a tree as it would be shown, for tests to read.
function html(blocks) {
  const inline = (nodes) =>
    nodes
      .map((node) => {
        if (node.type === "text") return node.text;
        if (node.type === "break") return "<br>";
        if (node.type === "code") return `<code>${node.text}</code>`;
        if (node.type === "link") return `<a ${node.href}>${inline(node.inline)}</a>`;
        return `<${node.type}>${inline(node.inline)}</${node.type}>`;
      })
      .join("");
  const one = (block) => {
    if (block.type === "heading") return `<h${block.level}>${inline(block.inline)}</h>`;
    if (block.type === "paragraph") return `<p>${inline(block.inline)}</p>`;
    if (block.type === "rule") return "<hr>";
    if (block.type === "code") return `<pre ${block.lang}>${block.lines.map((line) => line.text).join("\n")}</pre>`;
    if (block.type === "quote") return `<q>${html(block.blocks)}</q>`;
    if (block.type === "list") return `<${block.ordered ? `ol ${block.first}` : "ul"}>${block.items.map((item) => `<li>${html(item)}</li>`).join("")}</>`;
    const row = (cells) => cells.map((cell) => `<td>${inline(cell)}</td>`).join("");
    return `<table ${block.align}>${row(block.head)}${block.rows.map((cells) => `<tr>${row(cells)}`).join("")}</table>`;
  };
  return blocks.map(one).join("");
}

const shown = [
  ["a\nb", "<p>a\nb</p>"],
  ["a\n\nb", "<p>a</p><p>b</p>"],
  ["# One\n## Two ##\n#no", "<h1>One</h><h2>Two</h><p>#no</p>"],
  ["*a* **b** ***c*** ~~d~~ _e_", "<p><em>a</em> <strong>b</strong> <em><strong>c</strong></em> <del>d</del> <em>e</em></p>"],
  ["a*b*c snake_case_name 2 * 3 * 4", "<p>a<em>b</em>c snake_case_name 2 * 3 * 4</p>"],
  ["**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"],
  ["*a **b*", "<p>*a *<em>b</em></p>"],
  ["`a*b*` and ``x`y``", "<p><code>a*b*</code> and <code>x`y</code></p>"],
  ["`open", "<p>`open</p>"],
  ["\\*no\\* \\a", "<p>*no* \\a</p>"],
  ["a\\\nb", "<p>a<br>b</p>"],
  ["```go\nfunc *f* {\n\n}\n```\nafter", "<pre go>func *f* {\n\n}</pre><p>after</p>"],
  ["~~~\n```\n~~~", "<pre >```</pre>"],
  ["```\nnot closed", "<pre >not closed</pre>"],
  ["- a\n- b\n\n- c", "<ul><li><p>a</p></li><li><p>b</p></li><li><p>c</p></li></>"],
  ["3. a\n4. b", "<ol 3><li><p>a</p></li><li><p>b</p></li></>"],
  ["1. a\n  - b\n    more\n2. c", "<ol 1><li><p>a</p><ul><li><p>b\nmore</p></li></></li><li><p>c</p></li></>"],
  ["- a\n  ```\n  x\n  ```\n\n  p", "<ul><li><p>a</p><pre >x</pre><p>p</p></li></>"],
  ["- a\n\nb", "<ul><li><p>a</p></li></><p>b</p>"],
  ["> a\n> > b", "<q><p>a</p><q><p>b</p></q></q>"],
  ["---\n***", "<hr><hr>"],
  ["| a | b |\n|---|:-:|\n| *x* | y \\| z |\n| 1 |", "<table left,center><td>a</td><td>b</td><tr><td><em>x</em></td><td>y | z</td><tr><td>1</td></table>"],
  ["a | b\nno", "<p>a | b\nno</p>"],
  ["[t *e*](https://a.b/c_(d)) x", "<p><a https://a.b/c_(d)>t <em>e</em></a> x</p>"],
  ['[t](https://a.b "title")', "<p><a https://a.b>t</a></p>"],
  ["[https://a.b](https://c.d)", "<p><a https://c.d>https://a.b</a></p>"],
  ["![alt](https://a.b/i.png)", "<p>!<a https://a.b/i.png>alt</a></p>"],
  ["see https://a.b/c?d=e. <https://x.y>", "<p>see <a https://a.b/c?d=e>https://a.b/c?d=e</a>. <a https://x.y>https://x.y</a></p>"],
  ["[x] [y](z", "<p>[x] [y](z</p>"],
];

for (const [source, want] of shown) {
  test(`markdown ${JSON.stringify(source)}`, () => assert.equal(html(parse(source)), want));
}

const hostile = [
  "<script>alert(1)</script>",
  "<img src=x onerror=alert(1)>",
  "[x](javascript:alert(1))",
  "[x](JaVaScRiPt:alert(1))",
  "[x](java\nscript:alert(1))",
  "[x](data:text/html;base64,PHNjcmlwdD4=)",
  "[x](vbscript:x)",
  "[x](//evil.example)",
  "[x](/v1/models)",
  "[x](\u0001javascript:alert(1))",
  "<javascript:alert(1)>",
  "![x](javascript:alert(1))",
];

test("hostile sources have no links and lose no text", () => {
  for (const source of hostile) {
    const tree = parse(source);
    assert.ok(!JSON.stringify(tree).includes('"href"'), source);
    let text = "";
    leaves(tree, (leaf) => (text += leaf.text));
    assert.equal(text, source);
  }
});

test("only web and mail addresses are safe", () => {
  for (const href of ["https://a.b", "http://a.b", "HTTPS://A.B", "mailto:a@b.c"]) assert.ok(safe(href), href);
  for (const href of ["javascript:x", " https://a.b", "ftp://a", "//a.b", "a", "", "https://a b", "https:/a", "file:///etc/passwd"]) assert.ok(!safe(href), href);
});

const deep = [
  ">".repeat(50_000),
  "> ".repeat(20_000) + "x",
  "- ".repeat(20_000) + "x",
  Array.from({ length: 2000 }, (_, i) => " ".repeat(2 * i) + "- x").join("\n"),
  "*a ".repeat(30_000),
  "*".repeat(50_000) + "a" + "*".repeat(50_000),
  "**a".repeat(10_000) + "a**".repeat(10_000),
  "_a ".repeat(10_000) + " a_".repeat(10_000),
  "[".repeat(50_000) + "]".repeat(50_000),
  "[a](".repeat(20_000),
  "[a](<b>".repeat(20_000),
  '[a](b "'.repeat(15_000),
  "`a ``b ".repeat(15_000),
  "`".repeat(300).split("").map((_, i) => "`".repeat(i + 1)).join(" "),
  "|".repeat(50_000) + "\n" + "|-".repeat(25_000),
  "# ".repeat(50_000),
  "#".repeat(100_000),
  "http://".repeat(15_000),
  "ahttp://".repeat(15_000),
  "\\".repeat(100_000),
  "\n".repeat(100_000),
  "a\n".repeat(150_000),
  "~~~~~~a~~ ".repeat(10_000),
  "1. ".repeat(20_000),
  "<https://".repeat(12_000),
];

test("large and deep sources are parsed in bounded depth, without losing their place", () => {
  for (const source of deep) {
    const tree = parse(source);
    let depth = 0;
    const walk = (node, level) => {
      depth = Math.max(depth, level);
      if (node !== null && typeof node === "object") for (const inner of Object.values(node)) walk(inner, level + 1);
    };
    walk(tree, 0);
    assert.ok(depth < 150, `${source.slice(0, 20)}: ${depth} levels`);
    leaves(tree, ({ text, at }) => assert.equal(source.slice(at, at + text.length), text, source.slice(0, 20)));
  }
});

test("leaves stand where they say, in order, for every prefix of a text", () => {
  const source = shown.map(([text]) => text).join("\n\n") + "\n" + hostile.join("\n");
  for (let n = 0; n <= source.length; n++) {
    const prefix = source.slice(0, n);
    let last = 0;
    leaves(parse(prefix), ({ text, at }) => {
      assert.equal(prefix.slice(at, at + text.length), text);
      assert.ok(at >= last, `${n}: leaf at ${at} after ${last}`);
      last = at + text.length;
    });
  }
});

test("random sources keep their words", () => {
  const parts = ["*", "**", "_", "`", "```\n", "[", "](", ")", "https://a.b ", "- ", "1. ", "> ", "# ", "|", "\n", "\n\n", "  ", "\\", "~~", "word ", "é😀 ", "|-|\n", "<", ">", "!"];
  let seed = 12345;
  const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
  for (let i = 0; i < 3000; i++) {
    const source = Array.from({ length: random(40) }, () => parts[random(parts.length)]).join("");
    let words = 0;
    leaves(parse(source), ({ text, at }) => {
      assert.equal(source.slice(at, at + text.length), text, JSON.stringify(source));
      words += text.split("😀").length - 1;
    });
    const fenced = /^ {0,3}(?:```|~~~)/m.test(source); // words on the line of a fence name its language
    if (!fenced && !/\|/.test(source)) assert.ok(words >= source.split("😀").length - 1, JSON.stringify(source));
  }
});
