"""An upstream that acts on every POST it gets, and says how often it has."""

import http.server
import itertools
import json

effects = itertools.count(1)


class Charges(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.dumps({"effect": next(effects)}).encode() + b"\n"
        self.send_response(201)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.ThreadingHTTPServer(("", 8080), Charges).serve_forever()
