"""Parses the YAML files of a folder, and the JSON in them."""
import json
import pathlib
import sys

import yaml


def embedded(document):
    """Yields the JSON texts of a document, each with its place."""
    for name, text in (document.get("data") or {}).items():
        if name.endswith(".json"):
            yield name, text
    config = (document.get("spec") or {}).get("config")
    if isinstance(config, str):
        yield "spec.config", config


count = 0
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.yaml")):
    for document in yaml.safe_load_all(path.read_text()):
        for place, text in embedded(document):
            try:
                json.loads(text)
            except ValueError as error:
                sys.exit(f"{path}: {place}: {error}")
        count += 1
print(f"{count} documents of YAML parse")
