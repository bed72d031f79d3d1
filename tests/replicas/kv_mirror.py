"""A subscriber to KV events as a router has one: a mirror of a server's prefix cache, from what it publishes alone."""

import time

import msgspec
import zmq

PATIENCE_S = 120
END_OF_REPLAY = (-1).to_bytes(8, "big", signed=True)


def batch_type(array_like):
    """vLLM's classes (vllm/distributed/kv_events.py): events as maps since 0.24, as arrays before."""

    class Event(msgspec.Struct, array_like=array_like, tag=True, omit_defaults=True):
        pass

    class BlockStored(Event):
        block_hashes: list[int]
        parent_block_hash: int | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None

    class BlockRemoved(Event):
        block_hashes: list[int]
        medium: str | None

    class AllBlocksCleared(Event):
        pass

    class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
        ts: float
        events: list[BlockStored | BlockRemoved | AllBlocksCleared]
        data_parallel_rank: int | None = None

    return Batch


class KvMirror:
    """The blocks that a server's events say it holds. Raises AssertionError for an event that does not fit."""

    def __init__(self, endpoint, replay_endpoint, topic="", array_like=False):
        self._decoder = msgspec.msgpack.Decoder(batch_type(array_like))
        self._context = zmq.Context()
        self._live = self._socket(zmq.SUB, endpoint)
        self._live.setsockopt_string(zmq.SUBSCRIBE, topic)
        self._replay = self._socket(zmq.DEALER, replay_endpoint)
        self._topic = topic.encode()
        self._next = 0  # number of the batch to be applied next
        self.block_size = None
        self.prefixes = {}  # by hash: the tokens of the block and of all before it
        self.parents = {}
        self.counts = {"BlockStored": 0, "BlockRemoved": 0, "AllBlocksCleared": 0, "replayed": 0}
        self.beginnings = set()  # first tokens of all prefixes there have been

    def _socket(self, kind, endpoint):
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.connect(endpoint)
        return socket

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._context.destroy(linger=0)

    def catch_up(self, num_batches):
        """Applies everything up to the batch before `num_batches`."""
        deadline = time.monotonic() + PATIENCE_S
        while self._next < num_batches:
            assert time.monotonic() < deadline, f"batch {self._next} of {num_batches} does not come"
            if not self._live.poll(200):
                self._ask_again()  # lost before the subscription arrived
                continue
            topic, number, payload = self._live.recv_multipart()
            assert topic == self._topic and len(number) == 8
            number = int.from_bytes(number, "big")
            if number > self._next:
                self._ask_again()
            if number == self._next:
                self._apply(payload)

    def _ask_again(self):
        self._replay.send_multipart([b"", self._next.to_bytes(8, "big")])
        while True:
            assert self._replay.poll(PATIENCE_S * 1000), "the replay does not end"
            _, number, payload = self._replay.recv_multipart()
            if number == END_OF_REPLAY:
                return
            if int.from_bytes(number, "big") == self._next:
                self._apply(payload)
                self.counts["replayed"] += 1

    def _apply(self, payload):
        batch = self._decoder.decode(payload)
        assert abs(batch.ts - time.time()) < 3600 and batch.events
        for event in batch.events:
            name = type(event).__name__
            getattr(self, "_on_" + name)(event)
            self.counts[name] += 1
        self._next += 1

    def _on_BlockStored(self, event):
        assert event.medium == "GPU" and event.lora_id is None and event.lora_name is None
        size = self.block_size = event.block_size
        assert len(event.token_ids) == len(event.block_hashes) * size > 0
        parent = event.parent_block_hash
        if parent is None:
            self.beginnings.add(event.token_ids[0])
        for i, block in enumerate(event.block_hashes):
            assert block not in self.prefixes, "stored twice"
            assert parent is None or parent in self.prefixes, "the parent is not there"
            self.prefixes[block] = self.prefixes.get(parent, ()) + tuple(event.token_ids[i * size:(i + 1) * size])
            self.parents[block] = parent
            parent = block

    def _on_BlockRemoved(self, event):
        for block in event.block_hashes:
            assert block in self.prefixes, "removed, but not stored"
            del self.prefixes[block], self.parents[block]

    def _on_AllBlocksCleared(self, _):
        self.prefixes.clear()
        self.parents.clear()

    def check(self):
        """No block without those before it, no prefix under two hashes."""
        assert all(parent is None or parent in self.prefixes for parent in self.parents.values())
        assert len(set(self.prefixes.values())) == len(self.prefixes)

    def hit(self, prompt):
        """Tokens of the prompt that the server should find: whole blocks, and never the last token."""
        held = set(self.prefixes.values())
        hit = 0
        while self.block_size and hit + self.block_size < len(prompt) and tuple(prompt[:hit + self.block_size]) in held:
            hit += self.block_size
        return hit
