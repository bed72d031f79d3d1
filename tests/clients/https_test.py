"""`minfer bench` and `minfer profile explain` over https: a server of its own certificate in front of `minfer serve`."""

import asyncio
import os
import shutil
import ssl
import subprocess
import threading

import pytest


async def pass_on(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture(scope="module")
def secure(server, tmp_path_factory):
    """(URL, the file with its certificate) of a server that ends TLS."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    loop = asyncio.new_event_loop()

    async def serve(reader, writer):
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(pass_on(reader, upstream_writer), pass_on(upstream_reader, writer), return_exceptions=True)

    listener = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}", certificate
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def run(minfer, *arguments, **environment):
    return subprocess.run([minfer, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


def test_a_load_over_https(minfer, secure):
    url, certificate = secure
    load = ["bench", "--base-url", url, "--num-prompts", "6", "--input-len", "8", "--output-len", "4"]
    done = run(minfer, *load, SSL_CERT_FILE=certificate)
    assert done.returncode == 0, done.stderr
    explained = run(minfer, "profile", "explain", "-o", "json", "--url", url, SSL_CERT_FILE=certificate)
    assert explained.returncode == 0, explained.stderr


def test_an_unknown_certificate_is_refused(minfer, secure):
    refused = run(minfer, "profile", "explain", "--url", secure[0])
    assert refused.returncode != 0
    assert "certificate" in refused.stderr
