"""The files of a new service: a package with one capability and its test.

See: docs/services.md#a-package.
"""

from __future__ import annotations

import importlib.util
import keyword
import sys
from pathlib import Path
from string import Template
from typing import Final

from hearthnet.core.errors import HearthNetError
from hearthnet.service.hosting.service import Service

_FILES: Final = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "A service for HearthNet"
requires-python = ">=3.11"
dependencies = ["hearthnet"]

[project.optional-dependencies]
test = ["hearthnet[testing]"]

[project.entry-points."hearthnet.services"]
$name = "$module:service"

[tool.hatch.build.targets.wheel]
packages = ["$module"]
""",
    "README.md": """\
# $name

A service for HearthNet. Install it beside HearthNet, with its tools for tests, and run its test:

    pip install -e '.[test]'
    pytest

Try it on a running node (`hearthnet up`):

    python -m $module
    hearthnet call $name.greet name=Ada

A node that is started after the installation runs the service itself. Before others use it, freeze its
contract with `hearthnet contract freeze $module`, and name its folder in pyproject.toml:

    [project.entry-points."hearthnet.contracts"]
    $name = "$module.contracts"

Other homes may call it, once it has another `trust` than `self` and you have signed the contract:
`hearthnet contract sign --key FILE $module/contracts`.
""",
    "$module/__init__.py": '''\
"""The service $name."""

import hearthnet

service = hearthnet.Service("$name")


@service.capability("$name.greet@1.0")
async def greet(name: str) -> str:
    """Greet a person by name.

    Args:
        name: The person's name.
    """
    return f"Hello {name}"
''',
    "$module/__main__.py": """\
import hearthnet

from $module import service

hearthnet.run(service)
""",
    "tests/test_$module.py": """\
import asyncio

import pytest

from hearthnet import HearthNetError
from hearthnet.testing import Node, node_fixture
from $module import greet, service

node = node_fixture(service)


def test_function_greets() -> None:
    assert asyncio.run(greet("Ada")) == "Hello Ada"


def test_capability_greets(node: Node) -> None:
    assert node.call("$name.greet", name="Ada") == "Hello Ada"


def test_missing_name_is_refused(node: Node) -> None:
    with pytest.raises(HearthNetError) as caught:
        node.call("$name.greet")
    assert caught.value.code == "bad_request"
""",
}


def write_service(name: str, folder: Path) -> Path:
    """Write the package of a service `name` to a new folder in `folder`, and return that.

    Raises:
        HearthNetError: `bad_request` for a name that a service or a module cannot have, or has already, and
            for a folder that exists.
    """
    Service(name)
    module = name.replace("-", "_")
    if keyword.iskeyword(module):
        raise HearthNetError("bad_request", f"{module} is a word of Python's own; take another name")
    if module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        raise HearthNetError("bad_request", f"there is a module {module} already; take another name")
    place = folder / name
    try:
        place.mkdir(parents=True)
    except FileExistsError as error:
        raise HearthNetError("bad_request", f"{place} exists; take another name or --dir") from error
    except OSError as error:
        raise HearthNetError(
            "bad_request", f"{place} cannot be made: {error.strerror}; take another --dir"
        ) from error
    for path, text in _FILES.items():
        file = place / Template(path).substitute(module=module)
        file.parent.mkdir(exist_ok=True)
        file.write_text(Template(text).substitute(name=name, module=module))
    return place
