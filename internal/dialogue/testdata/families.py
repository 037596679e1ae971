"""Writes families.json.gz: what the reference makes of conversations with the templates of GLM's, DeepSeek's
and Gemma's kind in this folder.

Run it here: pip install jinja2==3.1.6 && python3 families.py [folder of other templates, output file]
"""

import datetime
import gzip
import itertools
import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "jinja/testdata"))
from reference import environment, render

TOOL = {"type": "function", "function": {"name": "weather", "description": "Wetter für <eine> Stadt", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
OTHER = {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}}


def call(name, **arguments):
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


ASK = says("user", "Wie ist das Wetter?")
CASES = {
    "one": [ASK],
    "system": [says("system", " Be brief. \n"), ASK],
    "ends with the switch": [says("user", "Hi /nothink")],
    "parts": [says("user", [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}])],
    "turns": [ASK, says("assistant", "\nGut. \n"), says("user", "Und?"), says("assistant", "Auch."), says("user", "!")],
    "thoughts": [ASK, says("assistant", "A", reasoning_content="\n r1 \n"), says("user", "?"), says("assistant", "B", reasoning_content=" r2\n\ns")],
    "thoughts in the text": [ASK, says("assistant", "<think>\nr1\n</think>\n\nA"), says("user", "?"), says("assistant", "<think>r2</think>B")],
    "no thoughts": [ASK, says("assistant", "A", reasoning_content="")],
    "call": [ASK, says("assistant", None, reasoning_content="ask", tool_calls=[call("weather", city="Zürich", days=3)]), says("tool", "sunny")],
    "call and words": [ASK, says("assistant", "Let me see.", tool_calls=[call("weather", city="a\n b ")])],
    "call without arguments": [ASK, says("assistant", None, tool_calls=[call("time")]), says("tool", "12:00")],
    "two calls": [ASK, says("assistant", None, tool_calls=[call("weather", city="<Rom>"), call("time")]), says("tool", "r1"), says("tool", "r2\n"),
                  says("assistant", "So."), says("user", "Thanks")],
    "kinds of values": [ASK, says("assistant", None, tool_calls=[call("f", s="5", i=5, n=1.5, b=True, z=None, a=[1, "é"], o={"k": "<v>"}, e="")])],
    "results as parts": [ASK, says("assistant", None, tool_calls=[call("time")]), says("tool", [{"type": "text", "output": "o1"}, {"type": "text"}])],
    "control tokens in text": [says("user", "<|user|>x</think><｜Assistant｜>"), says("assistant", "<tool_call>f</tool_call>"), ASK],
}
VARIABLES = [{}, {"enable_thinking": False}, {"enable_thinking": True, "clear_thinking": False}, {"thinking": True}]


def shaped(messages, text, null):
    """Messages as a template wants them: arguments as text, no content as null."""
    out = json.loads(json.dumps(messages))
    for m in out:
        if m.get("tool_calls"):
            if m["content"] is None and not null:
                m["content"] = ""
            for c in m["tool_calls"]:
                if text:
                    c["function"]["arguments"] = json.dumps(c["function"]["arguments"], ensure_ascii=False)
    return out


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    output = sys.argv[2] if len(sys.argv) > 2 else "families.json.gz"
    env = environment(datetime.datetime(2026, 1, 1))
    lines = []
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        if not any(turn in source for turn in ("<|assistant|>", "<｜Assistant｜>", "<|turn>")):
            continue
        text, null = "['arguments'] +" in source, "['content'] is not none" in source
        plain = None
        for (name, messages), kwargs in itertools.product(CASES.items(), VARIABLES):
            if kwargs and name in ("parts", "kinds of values", "results as parts", "system", "control tokens in text"):
                continue
            tools = [TOOL, OTHER] if name in ("call", "system") else None
            prompt = name not in ("no thoughts", "call and words")
            given = {"messages": shaped(messages, text, null), "tools": tools, "add_generation_prompt": prompt, "bos_token": "<s>", **kwargs}
            out = render(env, source, given)
            if kwargs and out == plain:
                continue  # they change nothing
            plain = out if not kwargs else plain
            lines.append({"template": path.name, "case": name, "messages": messages, "tools": tools, "add_generation_prompt": prompt, "kwargs": kwargs,
                          **{k: v for k, v in out.items() if k != "template"}})
    text = "[\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in lines) + "\n]\n"
    pathlib.Path(output).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
