"""python-lsp-jsonrpc, the library below pylsp."""

import sys

from pylsp_jsonrpc.endpoint import Endpoint
from pylsp_jsonrpc.streams import JsonRpcStreamReader, JsonRpcStreamWriter

reader = JsonRpcStreamReader(sys.stdin.buffer)
writer = JsonRpcStreamWriter(sys.stdout.buffer)
methods = {
    "version": lambda _params: {"version": "0.1.0"},
    "count": lambda params: min(params["text"].count(params["word"]), params["limit"]),
    "tally": lambda params: len(params["records"]),
}
endpoint = Endpoint(methods, writer.write)
reader.listen(endpoint.consume)
endpoint.shutdown()
