"""A whole federation in this process, for tests and first tries: real messages, real apps, no network."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

NodeConfig = Mapping[str, Any]
RUN = 1


@dataclass
class Node:
    """A SuperNode of this process: its id, when it was activated, its config and the context of its app."""

    id: int
    since: int
    context: Context


class InProcessGrid(Grid):
    """A Grid whose nodes run `app` in this process, each when its answer is pulled.

    `clients` is a number (nodes with the node configs `partition-id = 0 .. N - 1`) or one node config a client. Every
    message is written as bytes and read again on its way, so that what arrives is what a network would bring. `sent`
    and `received` count these bytes. `restart(client)` gives a client's node a new id, and an empty context.
    """

    def __init__(
        self, app: ClientApp, clients: int | Iterable[NodeConfig], run_config: Mapping[str, Any] | None = None
    ) -> None:
        # Flower's messages take their sender from here; this process is the ServerApp.
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = RUN, RUN, SUPERLINK_NODE_ID
        configs = clients
        if isinstance(configs, int):
            configs = [{"partition-id": i, "num-partitions": clients} for i in range(configs)]
        self.app, self.sent, self.received = app, 0, 0
        self._run_config = dict(run_config or {})
        self._ids, self._message_ids = itertools.count(100), itertools.count(1)
        self._nodes = [self._node(config) for config in configs]
        self._held: dict[str, Message] = {}
        self._run: Run | None = None

    def restart(self, client: int) -> None:
        """The SuperNode at this place of the list is another now, as after a crash."""
        self._nodes[client] = self._node(self._nodes[client].context.node_config)

    def _node(self, config: NodeConfig) -> Node:
        id = next(self._ids)
        context = Context(RUN, id, dict(config), RecordDict(), dict(self._run_config))
        return Node(id, id, context)

    def set_run(self, run: Run) -> None:
        """Keeps the run's description."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run's description, if one was set."""
        if self._run is None:
            raise RuntimeError("this grid was given no run")
        return self._run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Flower's older way of making a message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """The ids of all nodes."""
        return [node.id for node in self._nodes]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """All nodes, with the time of their activation (here a number that counts up)."""
        return [NodeInfo(node_id=node.id, last_activated_at=f"{node.since:09d}") for node in self._nodes]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Takes messages, to be delivered when their answers are pulled."""
        ids = []
        for message in messages:
            id = f"message-{next(self._message_ids)}"
            message.metadata.__dict__["_message_id"] = id
            copy, size = _over_the_wire(message)
            copy.metadata.__dict__["_message_id"] = id
            self.sent += size
            self._held[id] = copy
            ids.append(id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Lets the app answer those of the messages that are not answered yet."""
        replies = []
        for id in message_ids:
            if id in self._held:
                reply, size = _over_the_wire(self._answer(self._held.pop(id)))
                self.received += size
                replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Delivers messages and returns the answers."""
        return self.pull_messages(self.push_messages(messages))

    def _answer(self, message: Message) -> Message:
        node = next((node for node in self._nodes if node.id == message.metadata.dst_node_id), None)
        if node is None:
            return Message(Error(ErrorCode.NODE_UNAVAILABLE, "the node is gone"), reply_to=message)
        try:
            return self.app(message, node.context)
        except Exception as error:  # as a SuperNode does: whatever the app raises becomes an error reply
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, repr(error)), reply_to=message)


def _over_the_wire(message: Message) -> tuple[Message, int]:
    """The message written as bytes and read again, and how many bytes these were."""
    objects = {id: part.deflate() for id, part in get_all_nested_objects(message).items()}
    read = inflate_object_from_contents(message.object_id, dict(objects))
    assert isinstance(read, Message)
    return read, sum(map(len, objects.values()))
