"""Several servers and who distributes requests to them: scripts/test_env.sh python -m pytest tests/replicas."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIPPED = 77
sys.path.insert(0, str(ROOT / "tests/clients"))  # serving.py


def pytest_addoption(parser):
    parser.addoption("--minfer", default=str(ROOT / "build/release/minfer"), help="the command (default: %(default)s)")


def pytest_sessionfinish(session):
    """Where everything is skipped, CTest is to say so."""
    results = session.config.pluginmanager.get_plugin("terminalreporter").stats
    if results.get("skipped") and not any(results.get(each) for each in ("passed", "failed", "error")):
        session.exitstatus = SKIPPED


@pytest.fixture(scope="session")
def minfer(request):
    return request.config.getoption("--minfer")
