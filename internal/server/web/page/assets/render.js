// Shows parsed markdown as elements, with an element for each token.

import { copyButton, h } from "./dom.js";
import { parse } from "./markdown.js";
import { forcedDraft } from "./trace.js";

const maxDraft = 8;

// painter returns a function that makes the nodes of a piece of a source: one span for each
// token of known origin, with the draft tokens that were rejected before it. Style sheets decide what
// is visible.
export function painter(overlay) {
  return (text, at) =>
    overlay.cover(at, at + text.length).flatMap(({ from, to, tile, first }) => {
      const part = text.slice(from - at, to - at);
      if (tile?.[1] === undefined) return [document.createTextNode(part)];
      // Indentation and blank lines belong to tokens too, but colored they would be bricks.
      const lead = /^(?:[\t\n]| {2})\s*/.exec(part)?.[0].length ?? 0;
      if (lead === part.length) return [document.createTextNode(part)];
      const token = h("span", { class: `token ${tile[1] === forcedDraft ? "forced" : `d${Math.min(tile[1], maxDraft)}`}` }, part.slice(lead));
      const before = lead > 0 ? [document.createTextNode(part.slice(0, lead))] : [];
      const rejected = first && tile[2];
      if (!rejected) return [...before, token];
      const instead = rejected.join("").replace(/\n+/g, "↵");
      token.dataset.rejected = instead.trim();
      return [...before, h("s", { class: "ghost", "aria-hidden": "true" }, instead), token];
    });
}

const drawn = new WeakMap(); // element → sources of its blocks

// draw shows a source in an element. Blocks that are as they were stay, so that a text that
// grows costs its last block.
export function draw(element, source, paint) {
  const before = drawn.get(element) ?? [];
  const blocks = parse(source);
  const now = blocks.map((block) => `${block.start} ${source.slice(block.start, block.end)}`);
  const same = now.findIndex((text, i) => text !== before[i]);
  const keep = same < 0 ? now.length : same;
  while (element.children.length > keep) element.lastElementChild.remove();
  for (const block of blocks.slice(keep)) element.append(blockOf(block, paint));
  drawn.set(element, now);
}

function blockOf(block, paint) {
  switch (block.type) {
    case "heading":
      // Headings of an answer are below that of the page.
      return h(`h${Math.min(6, block.level + 2)}`, {}, inlines(block.inline, paint));
    case "rule":
      return h("hr");
    case "code":
      return codeOf(block, paint);
    case "quote":
      return h("blockquote", {}, block.blocks.map((inner) => blockOf(inner, paint)));
    case "list":
      return listOf(block, paint);
    case "table":
      return tableOf(block, paint);
    default:
      return h("p", {}, inlines(block.inline, paint));
  }
}

function codeOf(block, paint) {
  const code = h("code");
  block.lines.forEach((line, i) => {
    if (i > 0) code.append("\n");
    code.append(...paint(line.text, line.at));
  });
  const text = () => block.lines.map((line) => line.text).join("\n");
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", {}, block.lang || "text"), copyButton(text, "Copy code")),
    h("pre", { tabindex: "0" }, code),
  );
}

function listOf(block, paint) {
  const items = block.items.map((blocks) => {
    const tight = blocks.length > 0 && blocks[0].type === "paragraph" && blocks.slice(1).every((inner) => inner.type === "list");
    if (!tight) return h("li", {}, blocks.map((inner) => blockOf(inner, paint)));
    return h("li", {}, inlines(blocks[0].inline, paint), blocks.slice(1).map((inner) => blockOf(inner, paint)));
  });
  return block.ordered ? h("ol", { start: block.first }, items) : h("ul", {}, items);
}

function tableOf(block, paint) {
  const row = (tag, cells) => h("tr", {}, block.align.map((align, i) => h(tag, { class: align }, inlines(cells[i] ?? [], paint))));
  return h(
    "div",
    { class: "table", tabindex: "0", role: "group", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", block.head)), h("tbody", {}, block.rows.map((cells) => row("td", cells)))),
  );
}

function inlines(nodes, paint) {
  return nodes.flatMap((node) => {
    switch (node.type) {
      case "text":
        return paint(node.text, node.at);
      case "code":
        return [h("code", {}, paint(node.text, node.at))];
      case "break":
        return [h("br")];
      case "link":
        return [h("a", { href: node.href, title: node.href, target: "_blank", rel: "noopener noreferrer nofollow" }, inlines(node.inline, paint))];
      default:
        return [h(node.type, {}, inlines(node.inline, paint))];
    }
  });
}
