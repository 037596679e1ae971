// The origin of tokens: which were drafted and accepted, which the model sampled, which draft
// tokens it rejected. It knows the server's trace, but not the page.
//
// A trace token is {text, draft, forced, rejected}. draft 0 was sampled by the model and ends its
// round; draft i is the i-th draft token of its round, accepted. forced ones are drafts that the
// grammar left no choice about. rejected are the texts of the round's rejected draft tokens, on
// its last token.

// Tiles cover a text without gaps: [length] of unknown origin, [length, draft] or
// [length, draft, rejected], where draft is forcedDraft for a forced token. They are kept with a
// message, so they are small.
export const forcedDraft = -1;

// Tracer lays tiles over the texts of an answer. The server's parser removes markup from the
// tokens (thinking tags, tool calls) and may hold text back, so each piece of text is searched
// in the tokens that have not been used yet.
export class Tracer {
  #waiting = []; // tokens whose text has not all been seen
  #used = 0; // characters used of the first of them

  // token adds a token, before the text that it is part of.
  token(token) {
    this.#waiting.push({ text: token.text ?? "", draft: token.forced ? forcedDraft : (token.draft ?? 0), rejected: token.rejected ?? [] });
    if (this.#waiting.length > 512) this.#drop(); // text that never comes must not pile up
  }

  // lay appends the tiles of a piece of text. A character belongs to the token that ends it.
  lay(tiles, piece) {
    const pending = this.#waiting.map((token) => token.text).join("").slice(this.#used);
    let ends = null;
    for (let start = 0; start < pending.length && !ends; start++) ends = match(pending, start, piece);
    if (!ends) {
      tiles.push([piece.length]);
      return;
    }
    let done = 0; // characters of pending
    let from = 0; // characters of the piece
    while (from < ends.length) {
      const token = this.#waiting[0];
      const end = done + token.text.length - this.#used; // of the token, in pending
      const last = ends.at(-1) + 1;
      let to = from;
      while (to < ends.length && ends[to] < end) to++;
      if (to > from) {
        tiles.push(token.rejected.length > 0 ? [to - from, token.draft, token.rejected] : [to - from, token.draft]);
        token.rejected = [];
      }
      from = to;
      if (last < end) this.#used += last - done;
      else this.#drop();
      done = end;
    }
  }

  #drop() {
    this.#waiting.shift();
    this.#used = 0;
  }
}

const broken = "\ufffd"; // stands for each byte of a character that is spread over tokens

// match compares a piece with the texts of tokens from start on. It returns where in them each
// of its characters ends, or null.
function match(texts, start, piece) {
  const ends = [];
  let i = start;
  for (const char of piece) {
    if (texts.startsWith(char, i)) {
      i += char.length;
    } else {
      for (let bytes = utf8Length(char); bytes > 0; bytes--) if (texts[i++] !== broken) return null;
    }
    for (let k = 0; k < char.length; k++) ends.push(i - 1);
  }
  return ends;
}

function utf8Length(char) {
  const code = char.codePointAt(0);
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

// Overlay finds the tiles under a range of a text.
export class Overlay {
  constructor(tiles) {
    this.tiles = tiles;
    this.starts = [];
    let at = 0;
    for (const [length] of tiles) {
      this.starts.push(at);
      at += length;
    }
    this.length = at;
  }

  // cover returns the parts of [from, to) as {from, to, tile, first}; tile is undefined if
  // there is none, first reports that a tile begins there.
  cover(from, to) {
    const parts = [];
    let i = this.#find(from);
    while (from < to) {
      const end = i < this.tiles.length ? Math.min(to, this.starts[i] + this.tiles[i][0]) : to;
      if (end > from) parts.push({ from, to: end, tile: this.tiles[i], first: this.starts[i] === from });
      from = end;
      i++;
    }
    return parts;
  }

  // #find returns the last tile that begins at pos or before.
  #find(pos) {
    let [lo, hi] = [0, this.starts.length];
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.starts[mid] <= pos) lo = mid + 1;
      else hi = mid;
    }
    return Math.max(0, lo - 1);
  }
}

// Rounds counts rounds and draft tokens while an answer is generated.
export class Rounds {
  constructor() {
    this.rounds = 0;
    this.tokens = 0;
    this.acceptedAt = []; // accepted draft tokens, by position
    this.draftedAt = []; // draft tokens, by position
    this.forced = 0; // tokens that were forced
    this.fresh = []; // rounds not taken yet: {accepted, forced, rejected, sampled, texts}
    this.#begin();
  }

  // open is the round that is coming in: the position of its last draft token, the positions of
  // accepted ones, how many were forced, and its texts.
  #begin() {
    this.open = { last: 0, positions: [], forced: 0, texts: [] };
  }

  add(token) {
    const draft = token.draft ?? 0;
    const rejected = token.rejected ?? [];
    if (draft > 0 && draft <= this.open.last) this.end();
    this.tokens++;
    this.open.texts.push(token.text ?? "");
    if (draft > 0) this.open.last = draft;
    if (token.forced) this.open.forced++;
    else if (draft > 0) this.open.positions.push(draft - 1);
    if (draft === 0 || rejected.length > 0) this.#close(draft === 0, rejected);
  }

  // end closes a round that was cut short by the end of the answer.
  end() {
    if (this.open.texts.length > 0) this.#close(false, []);
  }

  // take returns the rounds since it was last called.
  take() {
    return this.fresh.splice(0);
  }

  #close(sampled, rejected) {
    const { last, positions, forced, texts } = this.open;
    this.rounds++;
    this.forced += forced;
    for (const i of positions) this.#count(i, 1);
    for (let i = last; i < last + rejected.length; i++) this.#count(i, 0);
    this.fresh.push({ accepted: positions.length, forced, rejected, sampled, texts });
    this.#begin();
  }

  // #count counts a draft token at a position; those before it may have been forced.
  #count(i, accepted) {
    while (this.draftedAt.length <= i) {
      this.draftedAt.push(0);
      this.acceptedAt.push(0);
    }
    this.draftedAt[i]++;
    this.acceptedAt[i] += accepted;
  }

  get accepted() {
    return this.acceptedAt.reduce((sum, n) => sum + n, 0);
  }

  get drafted() {
    return this.draftedAt.reduce((sum, n) => sum + n, 0);
  }

  // perRound is the mean number of tokens of a round.
  get perRound() {
    return this.rounds > 0 ? this.tokens / this.rounds : 0;
  }
}

// Pace is the speed of tokens over the last seconds.
export class Pace {
  #marks = []; // [ms, tokens so far]

  constructor(window = 2500) {
    this.window = window;
  }

  add(now, tokens) {
    this.#marks.push([now, tokens]);
    while (this.#marks.length > 2 && this.#marks[0][0] < now - this.window) this.#marks.shift();
  }

  // rate is in tokens per second; 0: not known yet.
  get rate() {
    if (this.#marks.length < 2) return 0;
    const [from, before] = this.#marks[0];
    const [to, after] = this.#marks.at(-1);
    return to > from ? ((after - before) * 1000) / (to - from) : 0;
  }
}
