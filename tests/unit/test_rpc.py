"""A node that answers with another form than was asked for fails by name, whatever it says."""

from __future__ import annotations

from typing import Any

import pytest

from settlement.chain.errors import NodeUnreachable, RpcFailed
from settlement.chain.rpc import Rpc

ADDRESS, HASH = b"\x01" * 20, b"\x02" * 32
HEAD = {
    "number": "0x7",
    "hash": "0x" + "aa" * 32,
    "parentHash": "0x" + "bb" * 32,
    "timestamp": "0x64",
    "gasLimit": "0x1c9c380",
}
RECEIPT = {
    "blockNumber": "0x7",
    "blockHash": "0x" + "aa" * 32,
    "status": "0x0",
    "gasUsed": "0x5208",
    "logs": [
        {
            "address": "0x" + "01" * 20,
            "topics": ["0x" + "0c" * 32],
            "data": "0x05",
            "blockNumber": "0x7",
            "blockHash": "0x" + "aa" * 32,
            "transactionHash": "0x" + "02" * 32,
            "logIndex": "0x3",
        }
    ],
}


def node(reply: Any) -> Rpc:
    """One that gives this reply to everything; an exception it raises."""
    rpc = Rpc("http://127.0.0.1:1")

    def make_request(method: str, params: list[Any]) -> Any:
        if isinstance(reply, Exception):
            raise reply
        return reply

    rpc._provider.make_request = make_request  # type: ignore[method-assign, assignment]
    return rpc


ASKED = {
    "chain id": lambda rpc: rpc.chain_id,
    "header": lambda rpc: rpc.header(1),
    "gas price": lambda rpc: rpc.gas_price(),
    "balance": lambda rpc: rpc.balance(ADDRESS),
    "code": lambda rpc: rpc.code(ADDRESS),
    "count": lambda rpc: rpc.transaction_count(ADDRESS),
    "call": lambda rpc: rpc.call(ADDRESS, b""),
    "transaction": lambda rpc: rpc.transaction(HASH),
    "receipt": lambda rpc: rpc.receipt(HASH),
    "logs": lambda rpc: rpc.logs(1, 2, [ADDRESS]),
}
MALFORMED = [
    {"result": 7},
    {"result": "no number"},
    {"result": []},
    {"result": {}},
    {"result": {"number": 1}},
    {"result": [{"address": None}]},
    {"result": {"blockNumber": "0x1", "logs": 3}},
    {"result": {"to": 3, "input": "0x"}},
    {"error": "out of order"},
    {"error": {"code": -32000, "message": None}},
    {"error": ["a list"]},
    [],
    "<html>",
    None,
]


@pytest.mark.parametrize("what", sorted(ASKED))
@pytest.mark.parametrize("reply", MALFORMED, ids=repr)
def test_an_answer_of_another_form_is_a_refusal(what: str, reply: Any) -> None:
    if (what, reply) == ("logs", {"result": []}):
        assert ASKED[what](node(reply)) == []
        return
    with pytest.raises(RpcFailed):
        ASKED[what](node(reply))


def test_silence_is_another_thing_than_a_refusal() -> None:
    with pytest.raises(NodeUnreachable, match="connection refused"):
        node(ConnectionError("Connection refused by peer")).head()
    with pytest.raises(NodeUnreachable, match="no latest block"):
        node({"result": None}).head()


def test_a_long_answer_is_cut_in_the_message() -> None:
    with pytest.raises(RpcFailed) as refused:
        node({"result": "z" * 10_000}).balance(ADDRESS)
    assert len(str(refused.value)) < 400


def test_well_formed_answers_are_read() -> None:
    head = node({"result": HEAD}).head()
    assert (head.number, head.timestamp, head.base_fee) == (7, 100, None)
    assert node({"result": "0x0a"}).quantity("eth_anything") == 10
    assert node({"result": None}).transaction(HASH) is None
    created = node({"result": {"to": None, "input": "0x60"}}).transaction(HASH)
    assert created is not None
    assert (created.to, created.data) == (None, b"\x60")
    receipt = node({"result": RECEIPT}).receipt(HASH)
    assert receipt is not None
    assert (receipt.ok, receipt.gas_used, receipt.gas_price, receipt.contract) == (
        False,
        21_000,
        0,
        None,
    )
    (log,) = receipt.logs
    assert (log.address, log.topics, log.data, log.index) == (ADDRESS, (b"\x0c" * 32,), b"\x05", 3)


def test_where_nodes_put_revert_data() -> None:
    for data in ("0x1234", {"data": "0x1234"}, {"result": "0x1234"}):
        reply = {"error": {"code": 3, "message": "execution reverted", "data": data}}
        with pytest.raises(RpcFailed) as refused:
            node(reply).call(ADDRESS, b"")
        assert refused.value.data == "0x1234"
