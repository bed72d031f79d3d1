"""Other people's clients against `minfer serve` with the demo model: scripts/test_env.sh python -m pytest tests/clients."""

import pathlib

import openai
import pytest

from serving import EXCHANGE_TIMEOUT_S, Server

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent


def pytest_addoption(parser):
    parser.addoption("--minfer", default=str(ROOT / "build/release/minfer"), help="the command (default: %(default)s)")


@pytest.fixture(scope="session")
def minfer(request):
    return request.config.getoption("--minfer")


@pytest.fixture(scope="session")
def server(minfer):
    """One server for all tests that need no options of their own."""
    with Server(minfer) as running:
        yield running


@pytest.fixture(scope="session")
def client(server):
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as made:
        yield made


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id


@pytest.fixture(scope="session")
def tool_options():
    """Of a server whose template shows the model tools and their calls."""
    return ["--chat-template", str(FOLDER / "tools.jinja")]


@pytest.fixture(scope="session")
def tool_server(minfer, tool_options):
    with Server(minfer, *tool_options, "--tool-call-parser", "hermes") as running:
        yield running


@pytest.fixture(scope="session")
def tool_client(tool_server):
    with openai.OpenAI(base_url=tool_server.base_url, api_key="none", max_retries=0, timeout=EXCHANGE_TIMEOUT_S) as made:
        yield made
