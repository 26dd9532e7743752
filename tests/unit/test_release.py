"""A release's tag, version and changes agree; the workflow and the images name existing things."""

import json
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from tools.release import ReleaseError, check, try_wheel

ROOT = Path(__file__).parents[2]


def repository(folder: Path, changes: str) -> Path:
    (folder / "pyproject.toml").write_text('[project]\nname = "lexicept"\nversion = "1.2.3"\n')
    (folder / "CHANGELOG.md").write_text(changes)
    return folder


def test_versions_agree(tmp_path):
    root = repository(tmp_path, "# Changes\n\n## [1.2.3] - 2026-11-23\n")
    assert check("v1.2.3", root) == "1.2.3"
    for tag in ("1.2.3", "v1.2.4", "v1.2.3rc1"):
        with pytest.raises(ReleaseError, match=r"version in pyproject.toml 1\.2\.3"):
            check(tag, root)


@pytest.mark.parametrize(
    "changes", ["", "## [Unreleased]: 1.2.3\n", "## [1.2.30] - 2026-11-23\n", "## [1.2.3]\n"]
)
def test_changes_are_dated(changes, tmp_path):
    with pytest.raises(ReleaseError, match=r"CHANGELOG\.md has no heading"):
        check("v1.2.3", repository(tmp_path, changes))


def test_one_wheel_and_one_sdist(tmp_path):
    with pytest.raises(ReleaseError, match="0 wheels and 0 sdists"):
        try_wheel(tmp_path)


def test_the_workflow_publishes_tags_alone():
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/')"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert (jobs["publish"]["needs"], jobs["try"]["needs"]) == ("try", "build")


def test_images_install_extras_that_there_are():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    groups = re.findall(r"\.whl\)?\[(.*?)\]", dockerfile)
    assert groups == ["train"]
    assert set(groups) <= extras["optional-dependencies"].keys()
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert compose["lexicept"]["build"]["target"] == "${TARGET:-search}"
    for target in ("search", "torch"):
        assert f" AS {target}\n" in dockerfile
    assert all(
        port.startswith("127.0.0.1:") for value in compose.values() for port in value["ports"]
    )


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (401, True), (503, False)])
def test_the_health_check_needs_no_key(status, healthy):
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    lines = (ROOT / "Dockerfile").read_text().splitlines()
    after = lines.index(next(line for line in lines if line.startswith("HEALTHCHECK"))) + 1
    _, *arguments = json.loads(lines[after].strip().removeprefix("CMD "))
    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.handle_request).start()
        command = [text.replace("8000", str(server.server_port)) for text in arguments]
        code = subprocess.run([sys.executable, *command], timeout=30, check=False).returncode
    assert (code == 0) is healthy
