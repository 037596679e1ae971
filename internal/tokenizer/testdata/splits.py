"""Writes splits.json: texts with the pieces that the expressions of GLM's and DeepSeek-V3's
tokenizer.json cut them into, by an engine that is not ours.

Run it here: pip install regex && python3 splits.py
"""

import json

import regex

PATTERNS = {
    "glm": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek": [
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ],
}
TEXTS = [
    "", "Hello, world!", "I'll say it's HE'S 'ſ we'Ve", "1", "12", "1234567 8", "3.14159, 1,000,000", "a1b22c333d4444", "x  1", "  12", "\t7\n",
    "日本語の文章、カタカナ。", "东京 tower 2024年", "한국어 텍스트", "漢字かなカナ漢", "中文abc中文", "　全角　スペース", "e\u0301te\u0301 \u0301x", "नमस्ते दुनिया",
    "\n\n  \n x", " \r\n\r\n", "a\n\n\nb", "trailing   ", "   leading", "a   b", "tab\there", "a\u00a0b\u2003c",
    "def f(x):\n    return x+1  # ok\n", "<tool_call>f\n<arg_key>k</arg_key>", "{\"a\": [1, -2.5e10]}", "$x_y = @z;", "...wait—what?!\n", "(a)[b]{c}", "#hash ##two /path/to.file",
    "😀 ok 👍🏽!", "٣٤٥٦ Ⅷ ½", "a\u200db\u200bc", "\x00\x01ab\x7f", "\ue000\ue001x \ue002", "“quoted” ‘x’ …", "don't 'quoted' ''", "C++ & C# → Go", "~!@#$%^&*()_+`-=\\|", "ー・ゝ゛x", "Ω≈ç√∫ µm",
]


def split(pieces, expression):
    out = []
    for piece in pieces:
        done = 0
        for match in regex.finditer(expression, piece):
            out += [piece[done:match.start()], match.group()]
            done = match.end()
        out.append(piece[done:])
    return [piece for piece in out if piece]


def main():
    cases = []
    for text in TEXTS:
        pieces = {}
        for name, expressions in PATTERNS.items():
            pieces[name] = [text]
            for expression in expressions:
                pieces[name] = split(pieces[name], expression)
        cases.append({"text": text, "pieces": pieces})
    with open("splits.json", "w", encoding="utf-8") as file:
        file.write("{\n" + f' "patterns": {json.dumps(PATTERNS, ensure_ascii=False)},\n "cases": [\n')
        file.write(",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
