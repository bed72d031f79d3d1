"""A `minfer serve` process for tests, and what they ask it beside the clients under test."""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

# Far more than it takes on a slow and busy machine: they end what hangs.
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120
EXCHANGE_TIMEOUT_S = 120
ABORTED = 'vllm:request_success_total{finished_reason="abort"}'


class Server:
    """Serves the demo model, on a port of 127.0.0.1 that is free unless told, until stop(). Usable with `with`. What it writes
    goes into a folder that does not stay."""

    def __init__(self, minfer, *options, port=0):
        self._log = tempfile.NamedTemporaryFile(prefix="minfer-serve-", suffix=".log")
        self._folder = tempfile.TemporaryDirectory(prefix="minfer-serve-")
        command = [os.path.abspath(minfer), "serve", "--port", str(port), "--log-format", "json", *options]
        # The machine's ceilings, which are kept for later runs, are not measured beside the clients.
        environment = {**os.environ, "MINFER_CEILINGS": "skip"}
        self._process = subprocess.Popen(command, stdout=self._log, stderr=subprocess.STDOUT, env=environment,
                                         cwd=self._folder.name)
        self.url = self._wait_for_url()
        self.base_url = self.url + "/v1"
        self.port = int(self.url.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def _wait_for_url(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self.log_lines():
                if line["event"] == "serving":
                    return line["url"]
            time.sleep(0.02)
        self._process.kill()
        raise RuntimeError(f"minfer serve does not serve: {self._raw_log()}")

    def _raw_log(self):
        return pathlib.Path(self._log.name).read_text(errors="replace")

    def log_lines(self):
        """The log's whole lines so far, each an object."""
        text = self._raw_log()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith("{")]

    def stop(self):
        """SIGTERM. The server must end by itself with status 0 and without an error in its log."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        assert status == 0, f"minfer serve: exit status {status}: {self._raw_log()[-3000:]}"
        assert not [line for line in self.log_lines() if line["level"] == "error"]

    def kill(self):
        """SIGKILL, unless it has ended."""
        self._process.kill()
        self._process.wait()

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=EXCHANGE_TIMEOUT_S) as answer:
            return answer.read().decode()

    def post(self, path, body):
        """The answer to a JSON body, as an object."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=EXCHANGE_TIMEOUT_S) as answer:
            return json.loads(answer.read())

    def tokens(self, text):
        """Ids of a text as it stands behind a space: the demo model's vocabulary puts one in front."""
        return self.post("/tokenize", {"model": "minfer-demo", "prompt": text, "add_special_tokens": False})["tokens"]

    def metrics(self):
        """{sample name: sum over its labels} of /metrics, and by label value: {'NAME{label="value"}': sum}."""
        values = {}
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                labels = [f'{sample.name}{{{label}="{value}"}}' for label, value in sample.labels.items()]
                for name in [sample.name, *labels]:
                    values[name] = values.get(name, 0.0) + sample.value
        return values

    def wait_for_metrics(self, condition, timeout_s=120):
        """metrics() once condition(metrics) holds. Raises TimeoutError if it does not come to hold."""
        deadline = time.monotonic() + timeout_s
        while not condition(metrics := self.metrics()):
            if time.monotonic() > deadline:
                counts = {name: value for name, value in metrics.items() if "_bucket" not in name and "engine=" not in name}
                raise TimeoutError(f"not within {timeout_s} s; the last metrics: {counts}")
            time.sleep(0.02)
        return metrics

    def wait_until_idle(self, aborted=0):
        """metrics() once no request holds a slot, a place in the queue or a KV block, so many choices have been aborted since the
        start, and the steps of all requests that have been answered are counted."""
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "minfer:engine_busy")
        return self.wait_for_metrics(
            lambda metrics: all(metrics[name] == 0 for name in names) and metrics[ABORTED] >= aborted)
