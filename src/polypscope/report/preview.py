"""The live picture in a browser: MJPEG and numbers from a small server that only this machine can reach.

Drawing and encoding happen in the viewer's own thread and only while somebody looks, so that the preview never delays
the analysis.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from polypscope.pipeline.engine import Told
from polypscope.pipeline.findings import Working
from polypscope.pipeline.overlay import draw, size_text
from polypscope.records import Frame
from polypscope.records.errors import OutputError
from polypscope.report.page import _asset

__all__ = ["Preview"]

_HOST = "127.0.0.1"
_FPS = 12.5
_SIDE = 960


class Preview:
    """Serves the newest result. Use as a context manager; `url` is where to look."""

    def __init__(self, working: Working, title: str, port: int = 0) -> None:
        self._working = working
        self._title = title
        self._newest: tuple[Frame, Told] | None = None
        self._stats: dict[str, Any] = {}
        self._polyps: dict[int, str] = {}
        self._changed = threading.Condition()
        self._over = False
        try:
            self._server = ThreadingHTTPServer((_HOST, port), _handler(self))
        except OSError as error:
            raise OutputError(
                f"--port {port}: expected a free port on {_HOST}, found: {(error.strerror or str(error)).lower()}; "
                "choose another one, or 0 for any."
            ) from None
        self._server.daemon_threads = True
        self.url = f"http://{_HOST}:{self._server.server_address[1]}/"

    def __enter__(self) -> Preview:
        threading.Thread(target=self._server.serve_forever, name="preview", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def show(self, frame: Frame, told: Told, stats: Callable[[], dict[str, Any]] | None = None) -> None:
        """Give the newest result; costs nothing while nobody looks."""
        with self._changed:
            self._newest = (frame, told)
            for polyp, size in told.sizes.items():
                self._polyps[polyp] = size_text(size)
            if stats is not None:
                self._stats = stats()
            self._changed.notify_all()

    def numbers(self) -> dict[str, Any]:
        """What the page shows beside the picture."""
        with self._changed:
            shown = [] if self._newest is None else [polyp.id for polyp in self._newest[1].shown]
            polyps = [{"id": n, "size": size, "shown": n in shown} for n, size in sorted(self._polyps.items())]
            return {"title": self._title, "stats": self._stats, "polyps": polyps, "over": self._over}

    def page(self) -> bytes:
        """The page itself."""
        return _asset("live.html").encode()

    def jpegs(self):  # type: ignore[no-untyped-def]
        """Pictures for one viewer, each newer than the last."""
        last: tuple[Frame, Told] | None = None
        while True:
            started = time.monotonic()
            with self._changed:
                while not self._over and self._newest is last:
                    self._changed.wait(timeout=2)
                if self._over or self._newest is None:
                    return
                last = self._newest
                frame, told = last
            yield _jpeg(draw(frame.rgb, told, self._working))
            time.sleep(max(0.0, 1 / _FPS - (time.monotonic() - started)))


def _jpeg(rgb: NDArray[np.uint8]) -> bytes:
    scale = min(1.0, _SIDE / max(rgb.shape[:2]))
    if scale < 1:
        rgb = np.asarray(cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA))
    _, data = cv2.imencode(".jpg", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, 80])
    return bytes(data)


def _handler(preview: Preview) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A page of another site must not read the picture through a name that points here.
            host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
            if host not in (_HOST, "localhost"):
                self.send_error(403)
            elif self.path == "/":
                self._send(preview.page(), "text/html; charset=utf-8")
            elif self.path == "/numbers":
                self._send(json.dumps(preview.numbers()).encode(), "application/json")
            elif self.path == "/stream":
                self._stream()
            else:
                self.send_error(404)

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def _stream(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            try:
                for jpeg in preview.jpegs():
                    head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}\r\n\r\n"
                    self.wfile.write(head.encode() + jpeg + b"\r\n")
            except (BrokenPipeError, ConnectionResetError):
                return  # the viewer left

        def log_message(self, *_: object) -> None:
            """Requests are nobody's business."""

    return Handler
