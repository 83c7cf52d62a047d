"""Holds the OpenAPI document against its specification, and answers against the schemas in it.

usage: openapi.py FOLDER

FOLDER has openapi.json and answers.json: a list of {"schema": pointer into the document, "body": JSON}. Prints what is wrong.
"""

import json
import sys
from pathlib import Path

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

folder = Path(sys.argv[1])
document = json.loads((folder / "openapi.json").read_text())
problems = [f"openapi.json: {error.message}" for error in OpenAPIV31SpecValidator(document).iter_errors()]
resource = Resource.from_contents(document, default_specification=DRAFT202012)
registry = Registry().with_resource("urn:document", resource)
answers = json.loads((folder / "answers.json").read_text())
for answer in answers:
    validator = Draft202012Validator({"$ref": f"urn:document#{answer['schema']}"}, registry=registry)
    for error in validator.iter_errors(answer["body"]):
        problems.append(f"{answer['schema']}: {error.message}: {json.dumps(answer['body'])[:200]}")
for problem in problems:
    print(problem)
print(f"{len(answers)} answers")
sys.exit(1 if problems else 0)
