"""python-lsp-jsonrpc, the library below pylsp."""

import sys

from pylsp_jsonrpc.endpoint import Endpoint
from pylsp_jsonrpc.streams import JsonRpcStreamReader, JsonRpcStreamWriter

reader = JsonRpcStreamReader(sys.stdin.buffer)
writer = JsonRpcStreamWriter(sys.stdout.buffer)
methods = {
    "version": lambda _params: {"version": "0.1.0"},
    "add": lambda params: params["a"] + params["b"],
}
endpoint = Endpoint(methods, writer.write)
reader.listen(endpoint.consume)
endpoint.shutdown()
