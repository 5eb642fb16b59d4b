"""Clients of MCP can start the server as the page and the entry for the registry say."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomli

from docs.transcripts import ROOT

from .shown import blocks

PAGE = "docs/how-to/use-from-an-assistant.md"
PROJECT = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENTRY = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))


def test_the_page_has_the_configuration_of_each_client() -> None:
    """Claude Code and Cursor read `mcpServers`, VS Code reads `servers` with the type."""
    configured = [
        json.loads(block.text) for block in blocks() if PAGE in str(block) and block.language == "json"
    ]
    assert [list(one) for one in configured] == [["mcpServers"], ["servers"]]
    for servers in (configured[0]["mcpServers"], configured[1]["servers"]):
        (server,) = servers.values()
        assert server.pop("type", "stdio") == "stdio"
        source, start = server["args"][1], server["args"][2:]
        assert (server["command"], server["args"][0], start) == ("uvx", "--from", ["validator", "mcp"])
        name, _, address = source.partition(" @ ")
        assert (name, address) == (f"{PROJECT['name']}[mcp]", f"git+{PROJECT['urls']['Homepage']}")
    assert "mcp" in PROJECT["optional-dependencies"]


def schema() -> Any:
    """Return the schema that the registry publishes, of the version that the entry names."""
    spec = importlib.util.find_spec("skillsaw")
    assert spec is not None and spec.submodule_search_locations
    directory = Path(spec.submodule_search_locations[0]) / "schemas" / "mcp_registry"
    found = [json.loads(path.read_bytes()) for path in directory.glob("*/server.schema.json")]
    (one,) = (each for each in found if each["$id"] == ENTRY["$schema"])
    assert one["$id"] == max(each["$id"] for each in found), "there is a newer schema"
    return one


def test_the_entry_of_the_registry_is_valid() -> None:
    check = jsonschema.Draft7Validator(schema())
    assert list(check.iter_errors(ENTRY)) == []
    for broken in ({"name": "matrix"}, {"description": "x" * 101}, {"packages": [{"identifier": "x"}]}):
        assert list(check.iter_errors({**ENTRY, **broken}))


def test_the_entry_of_the_registry_is_about_this_package() -> None:
    (package,) = ENTRY["packages"]
    assert ENTRY["version"] == package["version"] == PROJECT["version"]
    assert package["identifier"] == PROJECT["name"]
    assert ENTRY["repository"]["url"] == PROJECT["urls"]["Homepage"]
    # The registry looks for this line in the description of the package.
    assert f"mcp-name: {ENTRY['name']} " in (ROOT / "README.md").read_text(encoding="utf-8")
    # A client runs `uvx --with tensorflow-gpu-matrix[mcp] tensorflow-gpu-matrix==VERSION mcp`.
    assert PROJECT["scripts"][package["identifier"]] == PROJECT["scripts"]["validator"]
    assert [one["value"] for one in package["runtimeArguments"]] == [f"{PROJECT['name']}[mcp]"]
    assert [one["value"] for one in package["packageArguments"]] == ["mcp"]
    page = ENTRY["websiteUrl"].removeprefix(PROJECT["urls"]["Documentation"]).removesuffix(".html")
    assert (ROOT / "docs" / f"{page}.md").exists()


@pytest.mark.parametrize("client", ["Claude Code", "Cursor", "VS Code"])
def test_the_page_names_each_client_and_its_file(client: str) -> None:
    section = (ROOT / PAGE).read_text(encoding="utf-8").partition(f"\n## {client}\n")[2].partition("\n## ")[0]
    files = {"Claude Code": "`.mcp.json`", "Cursor": "`.cursor/mcp.json`", "VS Code": "`.vscode/mcp.json`"}
    assert files[client] in section
