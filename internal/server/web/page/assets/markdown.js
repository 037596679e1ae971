// Markdown as models write it, parsed into a tree of plain objects. It does not know the page.
//
// Every leaf of text has its position in the source: for each {text, at},
// source.slice(at, at + text.length) === text. So tokens can be colored inside of
// formatted text. The source is untrusted: HTML in it is text,
// and links go to http, https and mail only.
//
// Time is linear in the source, and nesting is bounded, for any source.

const maxBlockDepth = 12;
const maxInlineDepth = 24;
const maxColumns = 64;

// parse returns the blocks of a source, each with the range [start, end) of the source that it
// was made from:
//   {type: "heading", level, inline}, {type: "paragraph", inline}, {type: "rule"},
//   {type: "code", lang, lines: [{text, at}]}, {type: "quote", blocks},
//   {type: "list", ordered, first, items: [blocks]},
//   {type: "table", align, head: [inline], rows: [[inline]]}
// An inline is a list of {type: "text", text, at}, {type: "break"}, {type: "code", text, at},
// {type: "em" | "strong" | "del", inline} and {type: "link", href, inline}.
export function parse(source) {
  const lines = [];
  let at = 0;
  for (const text of source.split("\n")) {
    lines.push({ text, at });
    at += text.length + 1;
  }
  return blocks(lines, 0);
}

const fence = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]{0,40})[^`]*$/;
const heading = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const rule = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const quote = /^ {0,3}> ?/;
const bullet = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const delimiter = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const blank = (line) => line.text.trim() === "";
const cut = (line, n) => ({ text: line.text.slice(n), at: line.at + n });
const indentOf = (line) => line.text.length - line.text.trimStart().length;

// blocks parses lines, each of which knows its place in the source.
function blocks(lines, depth) {
  const found = [];
  let i = 0;
  while (i < lines.length) {
    if (blank(lines[i])) {
      i++;
      continue;
    }
    const [block, next] = blockAt(lines, i, depth);
    const last = lines[next - 1];
    block.start = lines[i].at;
    block.end = last.at + last.text.length;
    found.push(block);
    i = next;
  }
  return found;
}

// blockAt parses the block that begins with line i, and returns it with the index of the line after it.
function blockAt(lines, i, depth) {
  const { text } = lines[i];
  if (fence.test(text)) return codeAt(lines, i);
  if (heading.test(text)) return [headingOf(lines[i]), i + 1];
  if (rule.test(text)) return [{ type: "rule" }, i + 1];
  if (depth < maxBlockDepth) {
    if (quote.test(text)) return quoteAt(lines, i, depth);
    if (bullet.test(text)) return listAt(lines, i, depth);
  }
  if (isTable(lines, i)) return tableAt(lines, i);
  return paragraphAt(lines, i);
}

function codeAt(lines, i) {
  const [, mark, lang] = fence.exec(lines[i].text);
  const indent = indentOf(lines[i]);
  const end = new RegExp(`^ {0,3}${mark[0]}{${mark.length},}[ \\t]*$`);
  const body = [];
  for (i++; i < lines.length && !end.test(lines[i].text); i++) {
    body.push(cut(lines[i], Math.min(indent, indentOf(lines[i]))));
  }
  return [{ type: "code", lang, lines: body }, Math.min(i + 1, lines.length)];
}

function headingOf(line) {
  const level = heading.exec(line.text)[1].length;
  const body = cut(line, line.text.indexOf("#") + level);
  const closing = body.text.trimEnd().replace(/(^|[ \t])#+$/, "$1");
  const inner = cut({ text: closing.trimEnd(), at: body.at }, closing.length - closing.trimStart().length);
  return { type: "heading", level, inline: inlines([inner]) };
}

function quoteAt(lines, i, depth) {
  const inner = [];
  for (; i < lines.length && quote.test(lines[i].text); i++) {
    inner.push(cut(lines[i], quote.exec(lines[i].text)[0].length));
  }
  return [{ type: "quote", blocks: blocks(inner, depth + 1) }, i];
}

const isOrdered = (mark) => mark.length > 1;

// listAt is lenient where models are: what is indented by two belongs to an item, whatever the
// width of its mark.
function listAt(lines, i, depth) {
  const [, lead, mark] = bullet.exec(lines[i].text);
  const list = { type: "list", ordered: isOrdered(mark), first: parseInt(mark, 10), items: [] };
  const indent = lead.length;
  while (i < lines.length) {
    const m = bullet.exec(lines[i].text);
    if (!m || m[1].length > indent + 1 || m[1].length < indent || isOrdered(m[2]) !== list.ordered || rule.test(lines[i].text)) break;
    const spaces = m[3].length > 4 ? 1 : m[3].length;
    const width = m[1].length + m[2].length + spaces;
    const item = [cut(lines[i], width)];
    for (i++; i < lines.length; i++) {
      const line = lines[i];
      if (blank(line)) {
        item.push(cut(line, line.text.length));
      } else if (indentOf(line) >= indent + 2) {
        item.push(cut(line, Math.min(indentOf(line), width)));
      } else if (!blank(lines[i - 1]) && !startsBlock(lines, i)) {
        item.push(cut(line, indentOf(line)));
      } else {
        break;
      }
    }
    list.items.push(blocks(item, depth + 1));
  }
  while (i > 0 && blank(lines[i - 1])) i--;
  return [list, i];
}

// startsBlock tells whether a line ends the paragraph above it.
function startsBlock(lines, i) {
  const { text } = lines[i];
  return fence.test(text) || heading.test(text) || rule.test(text) || quote.test(text) || bullet.test(text) || isTable(lines, i);
}

function paragraphAt(lines, i) {
  const body = [cut(lines[i], indentOf(lines[i]))];
  for (i++; i < lines.length && !blank(lines[i]) && !startsBlock(lines, i); i++) {
    body.push(cut(lines[i], indentOf(lines[i])));
  }
  return [{ type: "paragraph", inline: inlines(body) }, i];
}

function isTable(lines, i) {
  return i + 1 < lines.length && lines[i].text.includes("|") && lines[i + 1].text.includes("|") && delimiter.test(lines[i + 1].text);
}

function tableAt(lines, i) {
  const align = cells(lines[i + 1]).map(({ text }) => {
    const t = text.trim();
    if (t.endsWith(":")) return t.startsWith(":") ? "center" : "right";
    return "left";
  });
  const row = (line) => cells(line).slice(0, align.length).map((cell) => inlines([cell]));
  const table = { type: "table", align, head: row(lines[i]), rows: [] };
  for (i += 2; i < lines.length && !blank(lines[i]) && lines[i].text.includes("|"); i++) {
    table.rows.push(row(lines[i]));
  }
  return [table, i];
}

// cells splits a line of a table at bars that no backslash precedes.
function cells(line) {
  const found = [];
  const { text } = line;
  let from = indentOf(line);
  if (text[from] === "|") from++;
  const add = (to) => {
    const raw = text.slice(from, to);
    const lead = raw.length - raw.trimStart().length;
    found.push({ text: raw.trim(), at: line.at + from + lead });
    from = to + 1;
  };
  for (let i = from; i < text.length && found.length < maxColumns; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === "|") add(i);
  }
  if (text.slice(from).trim() !== "" && found.length < maxColumns) add(text.length);
  return found;
}

// inlines parses the text of lines that belong together.
function inlines(lines) {
  return new Inline(lines).parse();
}

const special = /[\\`*_~[\]<]|https?:\/\//g;
const target = /\([ \n]{0,9}<?([^\s()<>]{0,2000}(?:\([^\s()<>]{0,500}\)[^\s()<>]{0,500})*)>?(?:[ \n]{1,9}(?:"[^"\n]{0,300}"|'[^'\n]{0,300}'))?[ \n]{0,9}\)/y;
const autolink = /<(https?:\/\/[^\s<>]{1,2000})>/y;
const address = /https?:\/\/[^\s<>"`|[\]]{1,2000}/y;
const punctuation = /[!-/:-@[-`{-~]/;
const wordy = /[\p{L}\p{N}]/u;

// safe tells the addresses that a link may lead to.
export const safe = (href) => /^(?:https?:\/\/|mailto:)[^\s\u0000-\u001f]+$/i.test(href);

// Inline parses one text. Emphasis is found with a stack of delimiters, as CommonMark
// describes it, without its rule of three.
class Inline {
  constructor(lines) {
    this.lines = lines;
    this.from = []; // where each line begins in the text
    let n = 0;
    for (const line of lines) {
      this.from.push(n);
      n += line.text.length + 1;
    }
    this.text = lines.map((line) => line.text).join("\n");
    this.out = [];
    this.delimiters = []; // {char, from, n, index in out, opens}
    this.brackets = []; // {index in out, delimiters below}
    this.line = 0;
  }

  parse() {
    const { text } = this;
    let pos = 0;
    special.lastIndex = 0;
    for (let m = special.exec(text); m; m = special.exec(text)) {
      this.leaf(pos, m.index);
      pos = this.at(m.index, m[0]);
      special.lastIndex = pos;
    }
    this.leaf(pos, text.length);
    return this.out;
  }

  // at reads what begins at pos with one of the special marks, and returns where it ends.
  at(pos, mark) {
    switch (mark) {
      case "\\":
        return this.escape(pos);
      case "`":
        return this.code(pos);
      case "[":
        this.brackets.push({ index: this.out.length, delimiters: this.delimiters.length });
        return this.leaf(pos, pos + 1);
      case "]":
        return this.bracket(pos);
      case "<":
        return this.autolink(pos);
      case "*":
      case "_":
      case "~":
        return this.emphasis(pos, mark);
      default:
        return this.address(pos);
    }
  }

  // leaf adds the text [from, to) and returns to. A leaf lies in one line, since the next one
  // may be elsewhere in the source.
  leaf(from, to) {
    for (const leaf of this.leaves(from, to)) this.out.push(leaf);
    return to;
  }

  leaves(from, to, type = "text") {
    const found = [];
    while (from < to) {
      this.seek(from);
      const end = Math.min(to, this.from[this.line] + this.lines[this.line].text.length + 1);
      found.push({ type, text: this.text.slice(from, end), at: this.lines[this.line].at + from - this.from[this.line] });
      from = end;
    }
    return found;
  }

  // seek makes line the line of a position; positions mostly grow.
  seek(pos) {
    if (this.from[this.line] > pos) this.line = 0;
    while (this.line + 1 < this.from.length && this.from[this.line + 1] <= pos) this.line++;
  }

  escape(pos) {
    const next = this.text[pos + 1];
    if (next === "\n") {
      this.out.push({ type: "break" });
      return pos + 2;
    }
    if (next !== undefined && punctuation.test(next)) return this.leaf(pos + 1, pos + 2);
    return this.leaf(pos, pos + 1);
  }

  code(pos) {
    let n = 1;
    while (this.text[pos + n] === "`") n++;
    const end = this.ticks(n, pos + n);
    if (end < 0) return this.leaf(pos, pos + n);
    let [from, to] = [pos + n, end];
    if (to - from > 2 && this.text[from] === " " && this.text[to - 1] === " ") [from, to] = [from + 1, to - 1];
    for (const leaf of this.leaves(from, to, "code")) this.out.push(leaf);
    return end + n;
  }

  // ticks finds the next run of exactly n backticks. All runs are listed once, and each list
  // is read once, so that many unclosed ones cost no more than closed ones.
  ticks(n, pos) {
    if (!this.runs) {
      this.runs = new Map();
      for (const m of this.text.matchAll(/`+/g)) {
        const runs = this.runs.get(m[0].length) ?? { at: [], next: 0 };
        runs.at.push(m.index);
        this.runs.set(m[0].length, runs);
      }
    }
    const runs = this.runs.get(n);
    if (!runs) return -1;
    while (runs.next < runs.at.length && runs.at[runs.next] < pos) runs.next++;
    return runs.at[runs.next] ?? -1;
  }

  autolink(pos) {
    autolink.lastIndex = pos;
    const m = autolink.exec(this.text);
    if (!m) return this.leaf(pos, pos + 1);
    this.out.push({ type: "link", href: m[1], inline: this.leaves(pos + 1, pos + m[0].length - 1) });
    return pos + m[0].length;
  }

  address(pos) {
    if (wordy.test(this.text[pos - 1] ?? "")) return this.leaf(pos, pos + 4);
    address.lastIndex = pos;
    const found = address.exec(this.text)?.[0].replace(/[.,;:!?*_~'\]]{1,50}$/, "") ?? "";
    const href = found.endsWith(")") && !found.includes("(") ? found.slice(0, -1) : found;
    if (href.length < 9 || !safe(href)) return this.leaf(pos, pos + 4);
    this.out.push({ type: "link", href, inline: this.leaves(pos, pos + href.length) });
    return pos + href.length;
  }

  // bracket ends a link, if one was begun and an address follows. An image is a link too:
  // loading it would tell its server that it is displayed.
  bracket(pos) {
    const open = this.brackets.pop();
    target.lastIndex = pos + 1;
    const m = open && target.exec(this.text);
    if (!m || !safe(m[1])) return this.leaf(pos, pos + 1);
    const inner = this.out.splice(open.index).slice(1); // without the bracket itself
    this.delimiters.length = open.delimiters;
    this.brackets.length = 0; // no link inside of a link
    const inline = inner.flatMap((node) => (node.type === "link" ? node.inline : [node]));
    this.out.push({ type: "link", href: m[1], inline: inline.length > 0 ? inline : this.leaves(pos + 2, pos + 2 + m[1].length) });
    return pos + 1 + m[0].length;
  }

  emphasis(pos, char) {
    let n = 1;
    while (this.text[pos + n] === char) n++;
    const before = this.text[pos - 1] ?? " ";
    const after = this.text[pos + n] ?? " ";
    const end = pos + n;
    let opens = !/\s/.test(after) && (!punctuation.test(after) || /\s/.test(before) || punctuation.test(before));
    let closes = !/\s/.test(before) && (!punctuation.test(before) || /\s/.test(after) || punctuation.test(after));
    if (char === "_") [opens, closes] = [opens && !wordy.test(before), closes && !wordy.test(after)];
    if (char === "~" && n !== 2) [opens, closes] = [false, false];
    if (closes) [pos, n] = this.close(char, pos, n);
    if (opens && n > 0) this.delimiters.push({ char, from: pos, n, index: this.out.length });
    this.leaf(pos, end);
    return end;
  }

  // close matches a run with those before it, and returns what is left of it.
  close(char, pos, n) {
    const floor = this.brackets.at(-1)?.delimiters ?? 0;
    while (n > 0) {
      let k = this.delimiters.length - 1;
      while (k >= floor && this.delimiters[k].char !== char) k--;
      if (k < floor) break;
      const open = this.delimiters[k];
      const use = n >= 2 && open.n >= 2 ? 2 : 1;
      const inner = this.out.slice(open.index + 1);
      const depth = 1 + inner.reduce((most, node) => Math.max(most, node.depth ?? 0), 0);
      if (depth > maxInlineDepth) {
        this.delimiters.length = floor; // or each mark that follows would look at all of it again
        break;
      }
      this.out.length = open.index;
      this.delimiters.length = k;
      open.n -= use;
      if (open.n > 0) {
        this.delimiters.push(open);
        this.leaf(open.from, open.from + open.n);
      }
      this.out.push({ type: char === "~" ? "del" : use === 2 ? "strong" : "em", inline: inner, depth });
      pos += use;
      n -= use;
    }
    return [pos, n];
  }
}
