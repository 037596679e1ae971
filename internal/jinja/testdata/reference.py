"""Renders the templates of cases.json again with the reference and rewrites it.

Add a case as {"template": "..."} and run, in this folder:
    pip install jinja2==3.1.6 && python3 reference.py
"""

import datetime
import json
import platform

import jinja2
from jinja2 import ext, nodes, sandbox


class Generation(ext.Extension):
    """The block that marks what an assistant said."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("show"), [], [], body).set_lineno(line)

    def show(self, caller):
        return caller()


def environment(now):
    def raise_exception(message):
        raise jinja2.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = now.strftime
    return env


def render(env, template, variables):
    try:
        return {"template": template, "output": env.from_string(template).render(**variables)}
    except RecursionError:
        return {"template": template, "error": "RecursionError"}
    except Exception as error:  # every error of a template is a result
        return {"template": template, "error": f"{type(error).__name__}: {error}"}


def main():
    with open("cases.json", encoding="utf-8") as file:
        data = json.load(file)
    now = datetime.datetime.fromisoformat(data["now"].rstrip("Z"))
    variables = json.dumps(data["vars"], ensure_ascii=False)
    reference = (
        f"Jinja2 {jinja2.__version__} on Python {platform.python_version()}, ImmutableSandboxedEnvironment, trim_blocks, "
        "lstrip_blocks, loopcontrols, and the additions of Hugging Face transformers"
    )
    env = environment(now)
    cases = [render(env, case["template"], json.loads(variables)) for case in data["cases"]]
    with open("cases.json", "w", encoding="utf-8") as file:
        file.write("{\n" + f' "reference": {json.dumps(reference)},\n "now": {json.dumps(data["now"])},\n')
        file.write(f' "vars": {variables},\n "cases": [\n')
        file.write(",\n".join("  " + json.dumps(case, ensure_ascii=False) for case in cases) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
