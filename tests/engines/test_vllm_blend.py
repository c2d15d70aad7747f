# SPDX-License-Identifier: Apache-2.0
"""Property: BlendLLM loads KV of documents wherever a prompt has them and computes what a plan says, in stages that
nobody but that prompt shares; an exact request of the same ids is a run without Cairn. What is kept of a blended
request is found by blended ones alone. Tenants, restarts, kills and refusals hold as for exact requests.
Method: real engines in processes of their own, f32, in which vLLM's blocks on a processor have rows. Beside them
transformers, through CairnCache.blend, with the same ids: another engine that runs the same plan."""

import array
import concurrent.futures
import json
import pathlib
import signal
import subprocess
import sys
import types

import pytest
import torch
import transformers
from vllm.v1.kv_cache_interface import FullAttentionSpec

import cairn
import cairn.hf
import vllm_blend_process
from cairn._vllm_blend import PROMPTS_MAX, TOKENS_MAX, Plans, options_of
from cairn._vllm_settings import Settings
from hf_models import SHAPE as SHAPE_OF_MODELS
from hf_models import load
from vllm_driver import SHAPE, Engine, config_of

BLOCK = vllm_blend_process.BLOCK
NEW = 6
# fp32, summed in another order by another engine.
CLOSE = 2e-3


def run(model, extra, *jobs, **more):
    wanted = {"model": str(model), "extra": extra, "jobs": jobs, "more": more}
    done = subprocess.run([sys.executable, pathlib.Path(vllm_blend_process.__file__)], input=json.dumps(wanted),
                          capture_output=True, text=True, check=False)
    log = done.stderr + done.stdout
    print(log[-4000:])
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], log


def extra_of(path, **more):
    return {"path": str(path), "namespace": "tests", **more}


def with_windows():
    """Heads as vLLM takes them on a processor."""
    torch.manual_seed(3)
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **{**SHAPE_OF_MODELS, "hidden_size": 128}, head_dim=32, sliding_window=64,
        layer_types=["sliding_attention", "full_attention"] * 2)).eval()


class Prompts:
    """Of held-out text: five documents, and prompts of them in other orders."""

    def __init__(self, ids):
        self.documents = [ids[at:at + 200] for at in range(0, 5000, 1000)]
        self.question, self.end = ids[6000:6017], ids[6100:6109]
        self.blended = self.of(3, 1, 4)
        self.exact = self.of(2, 0)
        self.exact[0] = ids[7000]  # Nothing in front of its documents that others have, too.
        # Ids that a model with a small vocabulary has.
        self.small = [[(7 * at + number) * number % 90 + 5 for at in range(220)] for number in (11, 13, 17)]
        self.of_small = self.small[2] + self.small[0] + self.small[1] + [9, 8, 7]

    def of(self, *order):
        return self.question + sum((self.documents[number] for number in order), []) + self.end

    def others(self):
        return [self.of(*order) for order in ((0, 1, 2), (4, 3, 2), (2, 4, 0))]


class Runs:
    """One process without Cairn; one that stores documents and blends; one that is killed between stages; others that
    find what these have left."""

    def __init__(self, model, folder, prompts):
        self.store, kept = folder / "store", folder / "kept"
        p, documents = prompts, [{"ids": ids, "tokens": 1} for ids in prompts.documents]
        ask = {"blend": [p.blended], "tokens": NEW}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            plain = pool.submit(run, model, None, {"ids": p.blended, "tokens": NEW}, {"ids": p.exact, "tokens": NEW})
            first = pool.submit(
                run, model, extra_of(self.store, durability="process"), *documents, ask,
                {"ids": p.blended, "tokens": NEW}, {**ask, "salt": "another tenant"},
                {"ids": p.documents[0], "salt": "tenant", "tokens": 1}, {"blend": [p.exact], "salt": "tenant"},
                *3 * [{"blend": p.others(), "tokens": 2}],
                {"state": True},
                *2 * [{"params": {"blend": {"id": "twice", "tokens": p.of(4, 1)}}, "ids": p.question[:1]}],
                *[{"ids": p.end, "salt": f"passing-{number}", "tokens": 1} for number in range(3)], {"state": True},
                {"params": {"blend": {"id": "x", "tokens": [-1]}}, "ids": p.end},
                {"params": {"blend": {"id": "x", "tokens": 5000 * [1]}}, "ids": p.end},
                {"params": {"blend": {"id": "x", "token": []}}, "ids": p.end},
                {"params": {"blend": {"id": "nobody's"}}, "ids": p.exact, "tokens": NEW})
            # Two kinds of layers, one of them with windows that are shorter than a document.
            windows = folder / "windows"
            with_windows().save_pretrained(windows)
            self.windows = pool.submit(run, windows, extra_of(folder / "window-store"),
                                       *[{"ids": one, "tokens": 1} for one in p.small],
                                       {"blend": [p.of_small], "tokens": 2}, skip_tokenizer_init=True, max_model_len=1024)
            self.plain, self.first, self.windows = plain.result(), first.result(), self.windows.result()
            with cairn.Store(self.store, read_only=True) as store:
                self.left = {info.name: info.branches for info in store.namespaces()}
                self.ids = {tuple(store.get_branch(info.id).tokens().tolist()): info.kv_lengths[0]
                            for info in store.list_branches(namespace="tests#blended")[0]}
            killed = pool.submit(run, model, extra_of(kept, keep_blended=True), *documents, ask, 
                                 {"blend": p.others()[:1], "kill_at": 2})
            self.killed = killed.result()
            answer = self.killed[1][len(documents)]["answers"][0]["ids"] if self.killed[1][len(documents):] else []
            self.turn = p.blended + answer + p.question
            again = pool.submit(run, model, extra_of(kept, keep_blended=True), {**ask, "blend": [self.turn]},
                                {"blend": p.others()[:1], "tokens": 2})
            other = pool.submit(run, model, extra_of(self.store), {"asynchronous": p.others()[0], "tokens": 2})
            self.again, self.asynchronous = again.result(), other.result()
        with cairn.Store(kept, read_only=True) as store:
            self.kept = [store.find_prefix(store.models()[0], self.turn, namespace="tests#blended",
                                           approximate=approximate).restorable for approximate in (False, True)]
        self.documents = len(documents)


@pytest.fixture(scope="module")
def prompts(own_llama):
    return Prompts(own_llama.encode(own_llama.heldout))


@pytest.fixture(scope="module")
def runs(exported, tmp_path_factory, prompts):
    return Runs(exported.huggingface, tmp_path_factory.mktemp("vllm-blend"), prompts)


@pytest.fixture(scope="module")
def by_transformers(exported, tmp_path_factory, prompts):
    """By a name, of transformers: the plan of a prompt over documents alone, and log probabilities behind it."""
    folder = tmp_path_factory.mktemp("hf")
    return {**blended_by_transformers(folder / "text", load(str(exported.huggingface)), prompts.documents,
                                      {"blended": prompts.blended, "killed": prompts.others()[0]}),
            **blended_by_transformers(folder / "windows", with_windows(), prompts.small, {"windows": prompts.of_small})}


def blended_by_transformers(path, model, documents, asked):
    with cairn.Store(path, create_if_missing=True) as store, torch.no_grad():
        store.set_namespace("documents", cairn.NamespacePolicy(index="chunks"))
        for number, ids in enumerate(documents):
            cache = cairn.hf.CairnCache.open(store, model, f"{number}", namespace="documents", save_every=0)
            model(input_ids=torch.tensor([ids]), past_key_values=cache)
            cache.save()
        of = {}
        for name, ids in asked.items():
            cache = cairn.hf.CairnCache.blend(store, model, name, ids, documents="documents",
                                              options={"align_tokens": BLOCK})
            logits = model(input_ids=torch.tensor([ids[-1:]]), past_key_values=cache).logits
            of[name] = cache.plan, torch.log_softmax(logits[0, -1], -1)
        return of


def check(answer, plan, theirs):
    their_plan, logprobs = theirs
    assert plan == {"ends": [step.end for step in their_plan.steps if not step.loads], "exact": their_plan.exact,
                    "load_tokens": their_plan.load_tokens, "compute_tokens": their_plan.compute_tokens}
    assert answer["cached"] == their_plan.steps[-1].begin
    assert answer["ids"][0] == int(logprobs.argmax())
    assert abs(answer["logprobs"][0] - float(logprobs.max())) < CLOSE


def test_documents_that_stand_elsewhere(runs, by_transformers, prompts):
    status, done, log = runs.first
    assert status == 0, log
    (answer,), (plan,) = done[runs.documents]["answers"], done[runs.documents]["plans"]
    check(answer, plan, by_transformers["blended"])
    assert len(plan["ends"]) == 4 and plan["load_tokens"] > 0.7 * len(prompts.blended)
    # It is no full prefill.
    assert abs(answer["logprobs"][0] - runs.plain[1][0]["logprobs"][0]) > 10 * CLOSE


def same(ours, theirs):
    assert ours["ids"] == theirs["ids"]
    assert max(abs(a - b) for a, b in zip(ours["logprobs"], theirs["logprobs"], strict=True)) < CLOSE


def test_an_exact_request_behind_a_blended_one_is_a_run_without_cairn(runs):
    exact = runs.first[1][runs.documents + 1]
    same(exact, runs.plain[1][0])
    assert exact["cached"] == 0


def test_a_salt_is_a_border(runs):
    """Another tenant's documents are not found; its own are."""
    _, done, _ = runs.first
    assert done[runs.documents + 2]["plans"] == [{"ends": []}]
    same(done[runs.documents + 2]["answers"][0], runs.plain[1][0])
    (plan,) = done[runs.documents + 4]["plans"]
    assert plan["ends"] and plan["load_tokens"] < 200


def test_round_after_round_finds_the_same_and_adds_one_namespace(runs):
    _, done, _ = runs.first
    rounds = done[runs.documents + 5:runs.documents + 8]
    assert all(plan["load_tokens"] > 400 for plan in rounds[0]["plans"])
    assert [one["plans"] for one in rounds[1:]] == [rounds[0]["plans"]] * 2
    for one in rounds[1:]:
        assert [answer["ids"] for answer in one["answers"]] == [answer["ids"] for answer in rounds[0]["answers"]]
    assert sorted(name.split("#", 1)[-1] for name in runs.left if name.endswith("#blended"))[0] == "blended"
    assert len([name for name in runs.left if name.endswith("#blended")]) == 2  # The tenant's, and the others'.


def test_a_blended_branch_has_ids_alone(runs, prompts):
    (answer,) = runs.first[1][runs.documents]["answers"]
    assert runs.ids[tuple(prompts.blended + answer["ids"])] == 0
    assert set(runs.ids.values()) == {0}


def test_windows_are_blended_as_transformers_does(runs, by_transformers):
    status, done, log = runs.windows
    assert status == 0, log
    check(done[-1]["answers"][0], done[-1]["plans"][0], by_transformers["windows"])


def test_nothing_stays_of_prompts_that_are_over(runs):
    """Of one that was planned twice and never asked for, one plan and one lease do; of salts that kept nothing, none."""
    _, done, _ = runs.first
    over, planned = done[runs.documents + 8], done[runs.documents + 14]
    assert (over["prompts"], over["leases"], over["requests"]) == (0, 0, 0)
    assert (planned["prompts"], planned["leases"], planned["requests"]) == (1, 1, 0)
    assert planned["namespaces"] == over["namespaces"]


def test_an_id_that_is_used_again_gets_another_salt():
    plans = Plans(types.SimpleNamespace(), types.SimpleNamespace(groups=[types.SimpleNamespace(block=BLOCK)]), {})
    first = plans.begin("key", [1, 2])
    assert plans.nonce("key") == first and plans.begin("key", [1, 2]) != first
    assert plans.nonce("another") != plans.nonce("another")
    for number in range(PROMPTS_MAX + 5):
        plans.begin(number, [1] * 4)
    assert len(plans._prompts) == PROMPTS_MAX and plans._tokens == 4 * PROMPTS_MAX
    plans.begin("large", array.array("I", bytes(4 * (TOKENS_MAX - 8))))
    assert len(plans._prompts) == 3
    plans.clear()
    assert not plans._prompts and plans._tokens == 0


def test_a_prompt_that_nobody_planned_is_over_with_its_request():
    """Its client went before it was planned."""
    plans = Plans(types.SimpleNamespace(), types.SimpleNamespace(groups=[types.SimpleNamespace(block=BLOCK)]), {})
    plans.begin("key", [1, 2, 3])
    asks = types.SimpleNamespace(blend=types.SimpleNamespace(tokens=[1, 2, 3]))
    plans.ended(types.SimpleNamespace(prompt="key", control=asks, request=types.SimpleNamespace(num_prompt_tokens=1)))
    assert not plans._prompts


def test_what_is_refused_is_named_and_a_stage_of_no_plan_is_computed(runs):
    *_, negative, many, unknown, nobodys = runs.first[1]
    assert "blend.tokens: -1 is no token id" in negative["said"]["cairn"]["refused"]
    assert "blend.tokens: is no list of 1 to 4096 token ids" in many["said"]["cairn"]["refused"]
    assert "is not an id, or an id and tokens" in unknown["said"]["cairn"]["refused"]
    same(nobodys, runs.plain[1][1])


def test_a_conversation_goes_on_in_another_process_after_a_kill_between_stages(runs, prompts, by_transformers):
    status, done, log = runs.killed
    assert status == -signal.SIGKILL and len(done) == runs.documents + 1, log
    same(done[-1]["answers"][0], runs.first[1][runs.documents]["answers"][0])
    status, (again, killed), log = runs.again
    assert status == 0, log
    check(killed["answers"][0], killed["plans"][0], by_transformers["killed"])
    (plan,) = again["plans"]
    # All of the turn before, but its last token, which has no KV.
    assert plan["load_tokens"] >= len(prompts.blended) + NEW - 1 - BLOCK and plan["exact"] < len(prompts.blended)
    assert again["answers"][0]["cached"] >= len(prompts.blended) + NEW - 3  # Two before the seam are computed.
    exact, kept = runs.kept
    assert exact <= plan["exact"] < len(prompts.blended) + NEW - 1 <= kept


def test_stages_for_an_asynchronous_engine(runs):
    status, (done,), log = runs.asynchronous
    assert status == 0, log
    before = runs.first[1][runs.documents + 5]
    assert done["plans"] == before["plans"][:1]
    same(done["answers"][0], before["answers"][0])


@pytest.mark.parametrize("extra, said", [
    ({"recompute_ratio": "much"}, 'option "recompute_ratio" takes a number, not "much"'),
    ({"blend_special": " # # "}, 'no option is called "blend_special"'),
    ({"resume": 1}, "'resume' is none of .*, nor an option of blending"),
    ({"align_tokens": 16}, "'align_tokens' is of one prompt"),
    ({"keep_blended": 1}, "'keep_blended' is neither true nor false"),
    ({"blend_defaults": "theirs"}, "'blend_defaults' is none of cairn, lmcache, ucm"),
    ({"blend_special_str": 5}, "'blend_special_str' is no text"),
])
def test_settings_that_are_none(extra, said):
    with pytest.raises(ValueError, match=said):
        Settings.of({"path": "store", **extra}, True)


def test_options_have_the_names_that_they_have_elsewhere():
    settings = Settings.of({"path": "store", "blend_recompute_ratio": 0.15, "LMCACHE_BLEND_MIN_TOKENS": "256"})
    assert settings.blend == {"blend_recompute_ratio": 0.15, "LMCACHE_BLEND_MIN_TOKENS": "256"}
    assert not settings.enable_blending


@pytest.mark.parametrize("backend, caching, said", [
    ("CPU_ATTN", True, "CPU_ATTN packs the blocks of cache group 0, 'vllm .*set dtype to 'float32' or 'float16'"),
    ("FLASH_ATTN", False, "blending needs vLLM's prefix caching"),
    ("FLASH_ATTN", True, "how plane 'k' of cache group 0 is rotated is not known"),
])
def test_engines_that_cannot_blend_are_refused_by_name(exported, monkeypatch, tmp_path, backend, caching, said):
    config, cache = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE), backend=backend)
    config.kv_transfer_config.kv_connector_extra_config["enable_blending"] = True
    config.cache_config.enable_prefix_caching = caching
    with pytest.raises(ValueError, match=said):
        Engine(config, cache, "NHD")


def test_ranges_and_separators_are_settled_when_the_engine_starts(exported, tmp_path, monkeypatch):
    config, _ = config_of(exported, monkeypatch, tmp_path / "store", FullAttentionSpec(**SHAPE))
    with cairn.Store(tmp_path / "store", create_if_missing=True) as store:
        spec = cairn.ModelSpec.of("m", layers=2, kv_heads=2, head_dim=8, dtype="float32", inv_freq=[1, .1, .01, .001])
        shared = types.SimpleNamespace(store=store, model_of=lambda weights: store.register_model(spec))
        with pytest.raises(ValueError, match="min_tokens: 31; at least 32"):
            options_of(Settings.of({"path": "store", "min_tokens": 31}), config, shared)
        options = options_of(Settings.of({"path": "store", "blend_special_str": " # # "}), config, shared)
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported.huggingface)
    texts = ["a" + "".join(tokenizer.decode(ids)) for ids in options["separators"]]
    assert 1 <= len(texts) <= 3 and all(text.count("#") == 2 for text in texts)
    assert options["separators"][0] == tokenizer.encode(" # # ", add_special_tokens=False)
