"""Spans as a collector gets them: sent over OTLP/HTTP by the real exporter, and decoded by a receiver on loopback."""

import gzip
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import cast

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from interlock import Answer, MemoryLog, Rule, RulePolicy, Runner, tool
from interlock.telemetry.otel import OtelTelemetry
from tests.patience import HANG_SECONDS
from tests.runs.support import agent_of, calls

SECRET = "correct horse battery staple"
ASK = RulePolicy([Rule(id="ask", verdict="ask", tools="pay", reason=SECRET)], default="allow")


@tool(risk="write")
def pay(order: str, note: str) -> str:
    """Pay for an order."""
    return f"{order}: {note}"


@tool
def fail(note: str) -> str:
    """Do nothing."""
    raise RuntimeError(note)


class Collector(ThreadingHTTPServer):
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        #: Path, content type and encoding of every request.
        self.kinds: set[tuple[str, ...]] = set()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/traces"

    def spans(self) -> list[Span]:
        """Return the spans in the order in which they began."""
        received = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        scopes = [scope for each in received for resource in each.resource_spans for scope in resource.scope_spans]
        return sorted((span for scope in scopes for span in scope.spans), key=lambda span: span.start_time_unix_nano)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        collector = cast(Collector, self.server)
        collector.kinds.add((self.path, self.headers["Content-Type"], self.headers["Content-Encoding"]))
        collector.bodies.append(gzip.decompress(self.rfile.read(int(self.headers["Content-Length"]))))
        answer = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def collecting() -> Generator[Collector]:
    with Collector() as collector:
        thread = Thread(target=collector.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            collector.shutdown()
            thread.join()


@contextmanager
def exporting(collector: Collector) -> Generator[OtelTelemetry]:
    """Yield the telemetry of a process. At its end everything was sent."""
    with requests.Session() as session:
        session.trust_env = False
        exporter = OTLPSpanExporter(
            collector.endpoint, headers={}, timeout=HANG_SECONDS, compression=Compression.Gzip, session=session
        )
        provider = TracerProvider(resource=Resource({"service.name": "interlock"}), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        try:
            yield OtelTelemetry(tracer_provider=provider)
        finally:
            provider.shutdown()


async def run_with_a_question(collector: Collector) -> str:
    """Run until a person is asked in one process, and to the end in another one. Return the id of the run."""
    log, arguments = MemoryLog(), {"note": SECRET}
    turn = calls(("c1", "fail", arguments), ("c2", "pay", {"order": SECRET, **arguments}), text=SECRET)
    agent = agent_of(turn, f"It is {SECRET}.", tools=[pay, fail], policy=ASK, name="shop", model="m-1")
    with exporting(collector) as telemetry:
        async with Runner(agent, log=log, telemetry=telemetry) as runner:
            paused = await runner.run(f"Pay with {SECRET}.")
    with exporting(collector) as telemetry:
        async with Runner(agent, log=log, telemetry=telemetry) as runner:
            answers = {paused.questions[0].action_id: Answer(approved=True, by="olga", reason=SECRET)}
            await (await runner.open(paused.run_id, answers=answers)).result()
    return paused.run_id


def tree(spans: list[Span]) -> list[str]:
    """Return the names of the spans, indented below their parents."""
    depths = {b"": -1}
    for span in spans:
        depths[span.span_id] = depths[span.parent_span_id] + 1
    return ["  " * depths[span.span_id] + span.name for span in spans]


def text_attributes(span: Span) -> dict[str, str]:
    return {each.key: each.value.string_value for each in span.attributes}


async def test_a_collector_gets_a_run_with_a_question() -> None:
    with collecting() as collector:
        run_id = await run_with_a_question(collector)

    assert collector.kinds == {("/v1/traces", "application/x-protobuf", "gzip")}
    spans = collector.spans()
    assert tree(spans) == [
        "invoke_agent shop",
        "  chat m-1",
        "  execute_tool fail",
        "invoke_agent shop",
        "  execute_tool pay",
        "  chat m-1",
    ]
    waited, _, failed, resumed, *_ = spans
    assert [text_attributes(each)["interlock.run.state"] for each in (waited, resumed)] == [
        "paused_approval",
        "completed",
    ]
    assert {text_attributes(each)["interlock.run.id"] for each in spans} == {run_id}
    assert [event.name for event in waited.events] == ["interlock.run.waiting"]
    assert [(link.trace_id, link.span_id) for link in resumed.links] == [(waited.trace_id, waited.span_id)]
    assert failed.status.code == failed.status.STATUS_CODE_ERROR


async def test_no_text_of_a_run_reaches_a_collector() -> None:
    """Tasks, messages, arguments, results, errors and reasons are not in the bytes."""
    with collecting() as collector:
        await run_with_a_question(collector)

    assert len(collector.spans()) == 6
    assert SECRET.encode() not in b"".join(collector.bodies)
