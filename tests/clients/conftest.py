"""Other people's clients against `minfer serve` with the demo model: scripts/test_env.sh python -m pytest tests/clients."""

import pathlib

import openai
import pytest

from serving import EXCHANGE_TIMEOUT_S, Server

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


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
