"""The README's section on the server: its examples as printed, but for the port."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from serving import EXCHANGE_TIMEOUT_S, Server

README = (pathlib.Path(__file__).resolve().parent.parent.parent / "README.md").read_text()
PRINTED_PORT = ":8000"


def code_blocks():
    """[(language, text)] of the section."""
    section = re.search(r"^## Serve\n(.*?)^## ", README, re.DOTALL | re.MULTILINE).group(1)
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def commands(block):
    """The commands of a block of shell lines; a line that is indented goes on with the one before."""
    return [command for command in re.split(r"\n(?!\s)", block) if command]


SHELL = [command for language, text in code_blocks() if language == "sh" for command in commands(text)]
PYTHON = [text for language, text in code_blocks() if language == "python"]


@pytest.fixture(scope="module")
def run(minfer, tmp_path_factory):
    """Runs a command line beside the server that the section starts; gives what it printed."""
    folder = tmp_path_factory.mktemp("readme")
    os.symlink(os.path.abspath(minfer), folder / "minfer")
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    assert SHELL[0] == "minfer serve"
    with Server(minfer) as server:

        def call(command):
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=EXCHANGE_TIMEOUT_S)
            assert done.returncode == 0, done.stderr
            return done.stdout

        call.port = f":{server.port}"
        yield call


def check_answer(url, text):
    """That an answer is what its endpoint gives."""
    if url.endswith("/metrics"):
        assert "vllm:num_requests_running" in text
    elif text.startswith("data: "):
        assert text.endswith("data: [DONE]\n\n") and '"error"' not in text
    else:
        assert "error" not in json.loads(text)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("command", SHELL[1:], ids=lambda command: command.split("\n")[0][:60])
def test_shell_example(run, command):
    assert PRINTED_PORT in command
    text = run(["bash", "-c", command.replace(PRINTED_PORT, run.port)])
    if command.startswith("curl"):
        check_answer(re.search(r"http://\S+", command).group(0), text)
    else:
        assert command.startswith("minfer bench") and "16" in text


def test_python_example(run):
    (example,) = PYTHON
    assert PRINTED_PORT in example
    assert len(run([sys.executable, "-c", example.replace(PRINTED_PORT, run.port)])) > 50


def test_all_kinds_are_there():
    told = " ".join(SHELL)
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/models", "/metrics", "/profile/summary", "--base-url"):
        assert path in told
