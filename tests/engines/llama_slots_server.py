# SPDX-License-Identifier: Apache-2.0
"""A llama-server in this process, out of the wheel xllamacpp, and its calls on slots.

As a program it takes options of llama-server, and runs until it is killed:

  llama_slots_server.py -m GGUF --slot-save-path DIR --port PORT
"""

import argparse
import json
import signal
import urllib.error
import urllib.request

import xllamacpp


def post(url, path, **body):
    """(status, answer)"""
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


class Server:
    def __init__(self, model, folder, slots=2, cache_type=None, context=2048, unified=None, port=0):
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(model)
        parameters.slot_save_path = f"{folder}/"
        parameters.n_ctx, parameters.n_parallel, parameters.port = context, slots, port
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
        parameters.warmup, parameters.verbosity, parameters.cache_ram_mib = False, 0, 0
        if cache_type is not None:
            parameters.cache_type_k = parameters.cache_type_v = cache_type
        if unified is not None:
            parameters.kv_unified = unified
        self._server = xllamacpp.Server(parameters)
        self.url = self._server.listening_address

    def complete(self, ids, tokens=8, slot=0):
        """(ids that were drawn, tokens of the prompt that were computed)"""
        status, said = post(self.url, "/completion", prompt=ids, n_predict=tokens, temperature=0, cache_prompt=True,
                            id_slot=slot, return_tokens=True, ignore_eos=True)
        assert status == 200, said
        return said["tokens"], said["timings"]["prompt_n"]

    def slot(self, action, name=None, slot=0, url=None, **more):
        body = {"filename": name, **more} if name is not None else more
        return post(url or self.url, f"/slots/{slot}?action={action}", **body)

    def close(self):
        del self._server


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-m", dest="model")
    parser.add_argument("--slot-save-path")
    parser.add_argument("--port", type=int)
    arguments = parser.parse_args()
    server = Server(arguments.model, arguments.slot_save_path.rstrip("/"), port=arguments.port)
    signal.pause()
    server.close()


if __name__ == "__main__":
    main()
