"""The server's limits: sizes, times and numbers of connections; the API key; unusual requests."""

import asyncio
import base64
import json
import resource
import socket
import threading
from urllib.parse import urlsplit

import pytest
from fastapi import Response
from fastapi.testclient import TestClient

import lexicept
from lexicept.errors import InputError
from lexicept.server import connections, routes
from lexicept.server.access import read_key
from lexicept.server.app import PAGE, create_app, from_environment
from lexicept.server.connections import Connection
from lexicept.server.reader import Reader
from support.served import serving

BASE = "http://127.0.0.1"
KEY = "0123456789:abcdef"
REQUEST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture(scope="module")
def address(served_words):
    with serving(served_words) as address:
        yield address


def connect(address: str) -> socket.socket:
    url = urlsplit(address)
    return socket.create_connection((url.hostname, url.port), timeout=60)


def rest(connection: socket.socket) -> bytes:
    """Return all bytes until the server closes the connection."""
    received = b""
    try:
        while chunk := connection.recv(2**16):
            received += chunk
    except ConnectionError:
        pass
    return received


def answer(address: str, request: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return the status, the headers and the body of the response to a raw request."""
    with connect(address) as connection:
        connection.sendall(request)
        head, _, body = rest(connection).partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    fields = dict(header.split(b": ", 1) for header in headers)
    return int(line.split()[1]), fields, body


@pytest.mark.parametrize(
    "request_head",
    [
        b"GET /search?query=" + b"a" * 2_000_000,
        REQUEST + b"X-Long: " + b"a" * 2_000_000,
        REQUEST + b"X-Short: a\r\n" * 200_000,
    ],
    ids=["address", "header", "headers"],
)
def test_a_request_has_a_largest_size(address, request_head):
    with connect(address) as connection:
        connection.sendall(request_head)
        connection.shutdown(socket.SHUT_WR)
        assert rest(connection) == connections.TOO_LARGE


def test_requests_that_no_client_library_sends(address):
    rest_of_head = b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for line, statuses in (
        (b"GET /../../../etc/passwd HTTP/1.1", [404]),
        (b"GET //etc/passwd HTTP/1.1", [404]),
        (b"GET /search?query=\0 HTTP/1.1", [200, 400]),
        (b"GET /search?query=\xff\xfe HTTP/1.1", [200, 400]),
        (b"nonsense", [400]),
    ):
        assert answer(address, line + rest_of_head)[0] in statuses


def test_the_longest_query_is_not_too_large(address):
    query = b"%F0%9F%90%B1" * 4000
    request = b"GET /search?query=" + query + b" HTTP/1.1\r\nHost: localhost\r\n"
    status, _, body = answer(address, request + b"Connection: close\r\n\r\n")
    assert status == 200
    results = json.loads(body)
    assert (results["query"], results["results"]) == ("🐱" * 4000, [])


@pytest.mark.parametrize("begun", [b"", REQUEST, REQUEST + b"Content-Length: 9\r\n\r\n1234"])
def test_a_slow_client_is_dropped(address, begun, monkeypatch):
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.05)
    with connect(address) as connection:
        try:
            connection.sendall(begun)
        except ConnectionError:
            return
        received = rest(connection)  # ends when the server hangs up
    assert received == b"" or received.startswith(b"HTTP/1.1 200 ")


def test_a_client_that_takes_no_answer_is_dropped(address, monkeypatch):
    size = 30_000_000  # more than the system buffers
    monkeypatch.setattr(routes, "as_json", lambda _: Response(b"a" * size))
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.05)
    lost = threading.Event()
    connection_lost = Connection.connection_lost

    def note(self, error):
        lost.set()
        connection_lost(self, error)

    monkeypatch.setattr(Connection, "connection_lost", note)
    with connect(address) as connection:
        connection.sendall(b"GET /document?document_id=d1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert lost.wait(60)
        assert 0 < len(rest(connection)) < size


def test_the_server_may_take_its_time(address, monkeypatch):
    async def run(_, work):
        await asyncio.sleep(0.3)
        return work()

    monkeypatch.setattr(Reader, "run", run)
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.05)
    request = b"GET /query?query=bade HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert answer(address, request)[0] == 200


def test_a_new_connection_replaces_the_one_that_waits_longest(address, monkeypatch):
    monkeypatch.setattr(connections, "most_connections", lambda: 3)
    opened = [connect(address) for _ in range(5)]
    try:
        assert rest(opened[0]) == rest(opened[1]) == b""
        for connection in opened[2:]:
            connection.sendall(REQUEST + b"Connection: close\r\n\r\n")
            assert rest(connection).startswith(b"HTTP/1.1 200 ")
    finally:
        for connection in opened:
            connection.close()


@pytest.mark.parametrize(
    ("files", "most"), [(resource.RLIM_INFINITY, 1000), (2**20, 1000), (256, 160), (64, 16)]
)
def test_connections_leave_descriptors_to_the_index(monkeypatch, files, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert connections.most_connections() == most


def test_one_host(address):
    end = b"Connection: close\r\n\r\n"
    assert answer(address, REQUEST + end)[0] == 200
    assert answer(address, b"GET /health HTTP/1.1\r\n" + end)[0] == 400
    assert answer(address, REQUEST + b"Host: localhost\r\n" + end)[0] == 400
    assert answer(address, REQUEST + b"Host: example.com\r\n" + end)[0] == 400


def test_head_is_get_without_the_body(address):
    rest_of_head = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for target in (b"/health", b"/search?query=bade", b"/", b"/document?document_id=none"):
        status, headers, body = answer(address, b"GET " + target + rest_of_head)
        assert body
        assert answer(address, b"HEAD " + target + rest_of_head) == (status, headers, b"")


@pytest.mark.parametrize("target", ["/", "/search?query=a", "/health", "/document?document_id=d1"])
def test_the_methods_that_are_allowed_are_named(served_words, target):
    client = TestClient(create_app(served_words), base_url=BASE)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        refused = client.request(method, target)
        assert refused.status_code == 405
        assert refused.headers["allow"] == "GET, HEAD"


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_text(f"{KEY}\n")
    return file


@pytest.fixture(scope="module")
def locked(served_words, key_file):
    return TestClient(create_app(served_words, api_key_file=key_file), base_url=BASE)


ADDRESSES = (
    *(f"/{file.name}" for file in PAGE.iterdir()),
    "/",
    "/docs",
    "/swagger-ui.css",
    "/search?query=bade",
    "/health",
    "/metrics",
    "/openapi.json",
    "/document?document_id=d1",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_address_requires_the_key(locked, address):
    refused = locked.get(address)
    assert refused.status_code == 401
    assert "requires its API key" in refused.json()["detail"]
    assert refused.headers["www-authenticate"].startswith("Basic ")  # so that a browser asks
    assert "content-security-policy" in refused.headers
    for given in (f"Bearer {KEY}", f"bearer {KEY}", basic("", KEY), basic("me", KEY)):
        assert locked.get(address, headers={"authorization": given}).status_code == 200


WRONG = [
    "",
    KEY,
    "Bearer",
    "Bearer ",
    f"Bearer {KEY[:-1]}",
    f"Bearer {KEY}x",
    f"Bearer  {KEY}",
    f"Token {KEY}",
    basic(KEY, ""),
    basic("", KEY[:-1]),
    f"Basic {KEY}",
    "Basic ====",
]


@pytest.mark.parametrize("given", WRONG)
def test_wrong_keys(locked, given):
    assert locked.get("/health", headers={"authorization": given}).status_code == 401


def test_refusals_are_counted_and_described(locked):
    two = [("authorization", f"Bearer {KEY}"), ("authorization", "Bearer other")]
    assert locked.get("/health", headers=two).status_code == 401
    headers = {"authorization": f"Bearer {KEY}"}
    counts = locked.get("/metrics", headers=headers).text
    assert 'lexicept_requests_total{path="unknown",status="401"}' in counts
    document = locked.get("/openapi.json", headers=headers).json()
    assert "401" in document["paths"]["/search"]["get"]["responses"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (KEY, KEY),
        (KEY + "\n", KEY),
        (KEY + "\r\n", KEY),
        ("x" * 1024 + "\n", "x" * 1024),
        ("", None),
        ("\n", None),
        ("x" * 15, None),
        ("x" * 1025, None),
        ("two words of a key", None),
        (f"{KEY}\n{KEY}\n", None),
        ("schlüssel-schlüssel", None),
    ],
)
def test_a_key_file_holds_one_line(tmp_path, text, key):
    file = tmp_path / "key"
    file.write_bytes(text.encode())
    if key is None:
        with pytest.raises(InputError, match=f"{file}: an API key is one line of 16 to 1,024"):
            read_key(file)
    else:
        assert read_key(file) == key


def test_key_files_that_are_none(tmp_path, served_words):
    for name in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="no file with an API key"):
            lexicept.serve(served_words, port=0, api_key_file=name)


def test_workers_read_the_key_from_its_file(key_file, served_words, monkeypatch):
    apps = []
    monkeypatch.setattr("uvicorn.run", lambda *_, **settings: apps.append(from_environment()))
    lexicept.serve(served_words, port=0, api_key_file=key_file)
    client = TestClient(apps[0], base_url=BASE)
    assert client.get("/health").status_code == 401
    assert client.get("/health", headers={"authorization": f"Bearer {KEY}"}).status_code == 200


def test_a_port_that_is_taken(served_words):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = f"can't serve at 127.0.0.1:{port}: another program listens there; choose another"
        with pytest.raises(InputError, match=message):
            lexicept.serve(served_words, port=port)
