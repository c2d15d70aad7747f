# SPDX-License-Identifier: Apache-2.0
"""Property: each block of code in docs/engines.md runs as it stands: one behind the other, and in other processes."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

import cairn
import cairn.lmcache
import vllm_server
from conftest import OwnLlama

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "api" / "python" / "tests"))
import doc_blocks

PAGE = "docs/engines.md"
# Blocks of code by the heading above them, as often as the language is named; each is read by a test here but for
# the two of `vllm serve`, which test_vllm.py and test_vllm_control.py start.
SHOWN = {"transformers in ten lines": ["python", "python"], "Documents that stand elsewhere": ["python"],
         "Documents that stand elsewhere, in vLLM": ["python"],
         "vLLM in ten lines": ["sh", "python", "sh"],
         "What a request may say": ["sh"], "LMCache in ten lines": ["sh"],
         "vLLM's own CPU offloading in ten lines": ["python"], "SGLang in ten lines": ["sh"],
         "llama.cpp in ten lines": ["python"], "Slots of llama-server": ["sh"]}
STORED_SECONDS = 5  # LMCache's server stores behind its answers, and says nowhere when.
ENDED_SECONDS = 60  # Until its process is gone, behind a SIGKILL.


def blocks_of(section):
    return [block for block in doc_blocks.of(PAGE) if block.section.startswith(section)]


def run(code, folder, said=""):
    done = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", code], cwd=folder, env=os.environ,
                          input=said, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def prepare(folder, model):
    """Where a user has the model, and the sources."""
    folder.mkdir(exist_ok=True)
    (folder / "model").symlink_to(model)
    (folder / "tools").symlink_to(ROOT / "tools")
    return folder


@pytest.fixture
def folder(exported, tmp_path):
    return prepare(tmp_path, exported.huggingface)


@pytest.fixture(scope="module")
def begun(exported, tmp_path_factory):
    """(folder, what was said) of the first block for transformers."""
    folder = prepare(tmp_path_factory.mktemp("begun"), exported.huggingface)
    return folder, run(blocks_of("transformers")[0].text, folder)


def copy_of_chats(source, folder):
    with cairn.Store(source / "chats.store") as store:
        store.checkpoint(folder / "chats.store")


def test_the_quick_start_for_transformers(begun, folder):
    source, said = begun
    first, _ = blocks_of("transformers")
    assert len([line for line in first.text.splitlines() if line]) <= 10
    assert "And it came to pass" in said and said.split()[-1] == "46", said
    copy_of_chats(source, folder)
    assert run(first.text, folder) == said


@pytest.mark.parametrize("engine", ["transformers", "vLLM"])
def test_documents_that_stand_elsewhere(folder, monkeypatch, engine):
    for name in ("VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_CI_ENV"):
        monkeypatch.setenv(name, "1")
    block = dict(zip(("transformers", "vLLM"), blocks_of("Documents that stand elsewhere")))[engine]
    loaded, tokens = map(int, re.search(r"^(\d+) of (\d+) tokens loaded:", run(block.text, folder), re.M).groups())
    assert 0.7 * tokens < loaded < tokens


MESSAGES = [" And Moses said\n", " And the people\n", "/edit And Aaron said\n", " unto the king\n"]


def ids_of(path, name="chat"):
    with cairn.Store(path) as store:
        return store.find_branch(name).tokens().tolist()


def test_the_chat_loop_for_transformers(begun, folder):
    """In one process, and in several: with the same draws, and each token that was said in the branch."""
    source, _ = begun
    _, loop = blocks_of("transformers")
    copy_of_chats(source, folder)
    run(loop.text, folder, MESSAGES[0])  # The generator's first state is not ours.
    before = ids_of(folder / "chats.store")
    twin = prepare(folder / "twin", (folder / "model").resolve())
    copy_of_chats(folder, twin)
    said = run(loop.text, folder, "".join(MESSAGES[1:]))
    with cairn.Store(folder / "chats.store") as store:
        names = sorted(info.name for info in store.list_branches()[0])
        assert len(names) == 2 and re.fullmatch(r"chat@\d+", names[1])
        # All but the last token has KV, so that a turn computes what is new.
        assert store.find_branch("chat").restorable_length() == store.find_branch("chat").length - 1
    whole, replaced = ids_of(folder / "chats.store"), ids_of(folder / "chats.store", names[1])
    assert whole[:len(before)] == replaced[:len(before)] == before and whole != replaced
    again = [run(loop.text, twin, "".join(turns)) for turns in (MESSAGES[1:3], MESSAGES[3:])]
    assert "".join(again) == said
    assert ids_of(twin / "chats.store") == whole


def test_every_block_has_a_test():
    shown = {}
    for block in doc_blocks.of(PAGE):
        shown.setdefault(block.section, []).append(block.language)
    assert shown == SHOWN


def test_the_quick_start_for_vllm(folder):
    """As a CPU needs it. VLLM_CPU_CI_ENV spares a minute of compiling, and nothing else."""
    settings, quick_start, _ = blocks_of("vLLM in")
    command = f"{settings.text}exec {sys.executable} -c \"$CODE\""
    cached = []
    for _ in range(2):
        done = subprocess.run(["bash", "-c", command], cwd=folder, text=True, capture_output=True, check=False,
                              env=os.environ | {"CODE": quick_start.text, "VLLM_CPU_CI_ENV": "1"})
        assert done.returncode == 0, done.stderr[-4000:]
        cached.append(int(done.stdout.split()[-1]))
    assert cached[0] == 0 and cached[1] > 800, cached


def objects_in(path):
    end = time.monotonic() + ENDED_SECONDS
    while True:
        try:
            with cairn.Store(path) as store:
                return len(cairn.Objects(store).list(namespace=cairn.lmcache.NAMESPACE, limit=100)[0])
        except cairn.Locked:
            assert time.monotonic() < end
            time.sleep(0.2)


def test_the_quick_start_for_lmcache(folder):
    (block,) = blocks_of("LMCache")
    rpc, http = vllm_server.free_port(), vllm_server.free_port()
    command = block.text.rstrip().replace("lmcache server", f"lmcache server --port {rpc} --http-port {http}")
    with vllm_server.Server(folder, "served", shown=command.replace("5555", str(rpc))) as server:
        said = server.complete({"prompt": OwnLlama.heldout.read_text()[:3000], "tokens": 4})
        time.sleep(STORED_SECONDS)
    assert objects_in(folder / "kv.store") == len(said["prompt"]) // 256 == 3  # A chunk has 256 tokens.


def test_the_quick_start_for_vllms_offloading(folder, monkeypatch):
    """With the copy that a processor has not, and less memory. The script just ends, and all is stored."""
    (block,) = blocks_of("vLLM's own CPU offloading")
    assert len([line for line in block.text.splitlines() if line]) <= 10
    for name, value in {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_CI_ENV": "1",
                        "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{pathlib.Path(__file__).parent}"}.items():
        monkeypatch.setenv(name, value)
    text = block.text.replace('"TieringOffloadingSpec"', '"CpuTieringSpec", "spec_module_path": "vllm_cpu_spec"')
    said = run(text.replace("4 << 30", "64 << 20"), folder)
    assert said.split()[-1] == "0", said
    with cairn.Store(folder / "chunks.store") as store:
        (chunks,) = cairn.Objects(store).usage()
    assert chunks.branches >= 7  # 984 tokens, in blocks of 128 by default.


def test_the_quick_start_for_sglang(folder, monkeypatch):
    """The extra config that the command has, by SGLang's own factory."""
    import sglang_classes
    import sglang_process
    (block,) = blocks_of("SGLang")
    config = json.loads(re.search(r"extra-config '(.*?)'", block.text, re.S)[1])
    assert len(block.text.splitlines()) <= 10
    monkeypatch.chdir(folder)
    pool, numbers = sglang_classes.HostPool(), range(4)
    for stored in (0, 4):
        backend = sglang_classes.backend_of(config["path"], pool, model="model", weights_digest=None, **{
            name: value for name, value in config.items() if name != "path"})
        assert backend.batch_exists(sglang_process.keys_of(numbers)) == stored
        assert sglang_process.put(backend, pool, numbers) == sglang_process.got(backend, pool, numbers) == [True] * 4
        backend.close()


def test_the_quick_start_for_llama_cpp(exported, folder):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is compiled: tools/test-engines --compiled")
    (folder / "model.gguf").symlink_to(exported.gguf)
    (block,) = blocks_of("llama.cpp in")
    assert len([line for line in block.text.splitlines() if line]) <= 10
    counted = block.text + "print(llm._ctx, llm.n_tokens, len(llm.tokenize(prompt.encode())))\n"
    evaluated = "inner = llama_cpp.Llama.eval\nllama_cpp.Llama.eval = lambda llm, tokens: (print(len(tokens)), " \
        "inner(llm, tokens))[1]\n"
    first, again = (run(counted.replace("\n\n", "\n" + evaluated, 1), folder).splitlines() for _ in range(2))
    assert int(first[0]) > 300 and again[0] == "1" and first[-2] == again[-2], (first, again)


# Commands of the page are those of the package, and the server is the one of the wheel xllamacpp.
LLAMA_COMMANDS = """set -u
cairn() { exec python -m cairn "$@"; }
llama-server() { exec python "$TESTS/llama_slots_server.py" "$@"; }
wait_for() { for _ in $(seq 600); do curl -s "$1" >/dev/null && return; sleep 0.1; done; exit 1; }
trap 'kill $(jobs -p)' EXIT
"""


def test_slots_of_llama_server(exported, folder, own_llama):
    (folder / "model.gguf").symlink_to(exported.gguf)
    serve, call = re.findall(r"```bash\n(mkdir -p slots\n.*?|slots\(\) .*?)```", (ROOT / PAGE).read_text(), re.S)
    ids = ",".join(map(str, own_llama.encode(own_llama.heldout)[:400]))
    script = f"""{LLAMA_COMMANDS}{serve}
wait_for http://127.0.0.1:8080/health; wait_for http://127.0.0.1:8081/slots
curl -s http://127.0.0.1:8080/completion -d '{{"prompt": [{ids}], "n_predict": 4, "temperature": 0, "id_slot": 0}}' >log
{call}
kill $(jobs -p); wait
"""
    for port in ("8080", "8081"):
        free = str(vllm_server.free_port())
        script = script.replace(f":{port}", f":{free}").replace(f"--port {port}", f"--port {free}")
    environment = os.environ | {"TESTS": str(pathlib.Path(__file__).parent), "XDG_CACHE_HOME": str(folder),
                                "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}

    def bash(script):
        return subprocess.run(["bash", "-c", script], cwd=folder, text=True, capture_output=True, check=False,
                              env=environment)

    done = bash(script)
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [said.get("n_saved") or said["n_restored"] for said in answers] == [403, 403, 300], done
    assert answers[0]["cairn"]["tokens"] == 403
    # The commands for files: of a slot that the branch has, at an earlier token.
    (commands,) = blocks_of("Slots of llama-server")
    get = "cairn() { python -m cairn \"$@\"; }\ncairn llama get chats.store chat slots/chat --model model.gguf\n"
    done = bash(get + commands.text)
    assert done.stdout.splitlines() == ["403 tokens", "403 tokens, 0 new", "300 tokens"], done
    with cairn.Store(folder / "chats.store") as store:
        assert store.find_branch("chat").length == 403
