// SPDX-License-Identifier: Apache-2.0
//
// Chunks (docs/blend.md): fingerprints of a prompt; indexing documents, with prefixes alone and
// with chunks; and the search for all that a prompt of 32,768 ids repeats of a thousand or of ten
// thousand stored documents, in a store on the disk, below cairn-bench.tmp, that has everything in
// its caches. Prompts are put together from whole documents, from pieces of 100 to 1,024 ids, or of
// nothing that is stored.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/core/check.h"
#include "cairn/kv_buffer.h"
#include "cairn/store.h"
#include "engine/store/store_core.h"
#include "tools/bench/machine.h"
#include "tools/bench/micro/micro.h"

namespace cairn::bench::micro {
namespace {

constexpr uint64_t kDocumentIds = 1024;
constexpr uint64_t kDocuments = 1000, kManyDocuments = 10'000;
constexpr uint64_t kIndexedAtOnce = 64;
constexpr uint64_t kPromptIds = 32'768;
constexpr size_t kPrompts = 16;
constexpr int kCatchUpsMax = 100'000;
// Room in memory for all entries of a run, so that none waits for a flush.
constexpr uint64_t kReuseMemoryBytes = 64 << 20;
constexpr int64_t kIndexings = 8;

std::vector<TokenId> RandomIds(uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<TokenId> ids(count);
  for (TokenId& id : ids) id = static_cast<TokenId>(random() % 128'000);
  return ids;
}

// A store whose namespace "docs" has that policy, with documents of their number as seed.
class Documents {
 public:
  static Result<std::unique_ptr<Documents>> Create(Index index) {
    std::unique_ptr<Documents> made(new Documents());
    CAIRN_ASSIGN_OR_RETURN(auto scratch, ScratchDirectory::Create("cairn-bench.tmp", "chunks"));
    made->scratch_ = std::make_unique<ScratchDirectory>(std::move(scratch));
    Options options;
    options.create_if_missing = true;
    options.reuse_memory_bytes = kReuseMemoryBytes;
    CAIRN_ASSIGN_OR_RETURN(made->store_, Store::Open(made->scratch_->path() + "/store", options));
    CAIRN_ASSIGN_OR_RETURN(made->model_, made->store_.RegisterModel(made->spec_));
    CAIRN_RETURN_IF_ERROR(made->store_.SetNamespace("docs", {.index = index}));
    return made;
  }
  Status Add(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const BranchOptions options{.name = {}, .ns = "docs", .durability = Durability::kMemory};
      CAIRN_ASSIGN_OR_RETURN(Branch branch, store_.CreateBranch(model_, options));
      const std::vector<TokenId> ids = RandomIds(kDocumentIds, made_++);
      Delta delta;
      delta.tokens = ids;
      delta.kv = kv_.view();
      CAIRN_RETURN_IF_ERROR(branch.AppendSync(delta, {.durability = Durability::kMemory}).status());
    }
    return Status::Ok();
  }
  // All that was added is indexed.
  Status CatchUp() {
    PrefixQuery query;
    query.model = model_;
    query.ns = "docs";
    for (int i = 0; i < kCatchUpsMax; ++i) {
      CAIRN_ASSIGN_OR_RETURN(const PrefixHit hit, store_.FindPrefix(query));
      if (hit.complete) return Status::Ok();
    }
    return Status(StatusCode::kDeadlineExceeded, "documents are not indexed");
  }
  Result<engine::ChunkMatches> Find(std::span<const TokenId> ids) {
    PrefixQuery query;
    query.model = model_;
    query.ns = "docs";
    query.tokens = ids;
    return store_.core()->chunks().Find(query);
  }
  Result<BlendPlan> Plan(std::span<const TokenId> ids) {
    PrefixQuery query;
    query.model = model_;
    query.ns = "docs";
    query.tokens = ids;
    return store_.PlanBlend(query);
  }
  Store& store() { return store_; }
  uint64_t made() const { return made_; }
  // Of tables of indexes: what it takes of them, the tree and its hints.
  uint64_t IndexFileBytes() const {
    uint64_t bytes = 0;
    for (const auto& file :
         std::filesystem::directory_iterator(scratch_->path() + "/store/tables")) {
      if (file.path().extension() == ".index") bytes += file.file_size();
    }
    return bytes;
  }

 private:
  Documents() {
    // Keys that no id determines, as those behind a first layer: their positions are not checked.
    std::mt19937_64 random(1);
    for (std::byte& byte : kv_.bytes()) byte = static_cast<std::byte>(random() % 64);
  }
  static ModelSpec Spec() {
    ModelSpec spec = ModelSpec::FullAttention("chunks", 1, 1, 2, Dtype::kBf16);
    spec.groups[0].inv_freq = RotaryFrequencies(2, 10'000.0);
    return spec;
  }

  const ModelSpec spec_ = Spec();
  KvBuffer kv_{spec_, kDocumentIds};
  std::unique_ptr<ScratchDirectory> scratch_;
  Store store_;
  ModelId model_{};
  uint64_t made_ = 0;
};

void Winnow(::benchmark::State& state) {
  const std::vector<TokenId> ids = RandomIds(kPromptIds, 1);
  PrefixQuery query;
  query.tokens = ids;
  Meter meter(&state, kPromptIds, 0);
  for (auto _ : state) DoNotOptimize(engine::FingerprintsOf(query));
}

// Reading the ids back, hashing them, and putting what they give.
void IndexDocuments(::benchmark::State& state, Index index) {
  auto documents = Documents::Create(index);
  if (Failed(&state, documents.status())) return;
  if (Failed(&state, (*documents)->store().PauseBackground())) return;  // Which would do it.
  Meter meter(&state, kIndexedAtOnce * kDocumentIds, 0);
  for (auto _ : state) {
    meter.Pause();
    if (Failed(&state, (*documents)->Add(kIndexedAtOnce))) return;
    meter.Resume();
    if (Failed(&state, (*documents)->CatchUp())) return;
  }
  if (Failed(&state, (*documents)->store().ResumeBackground()) ||
      Failed(&state, (*documents)->store().Compact())) {
    return;
  }
  state.counters["index_bytes_per_token"] =
      static_cast<double>((*documents)->IndexFileBytes()) /
      static_cast<double>((*documents)->made() * kDocumentIds);
}

enum class Prompt : uint8_t { kWhole, kPieces, kUnknown };

std::vector<TokenId> PromptOf(Prompt kind, uint64_t documents, uint64_t seed) {
  if (kind == Prompt::kUnknown) return RandomIds(kPromptIds, documents + seed);
  std::mt19937_64 random(seed);
  std::vector<TokenId> prompt;
  while (prompt.size() < kPromptIds) {
    const std::vector<TokenId> whole = RandomIds(kDocumentIds, random() % documents);
    const uint64_t count =
        kind == Prompt::kWhole ? kDocumentIds : 100 + random() % (kDocumentIds - 100);
    const auto begin = static_cast<std::ptrdiff_t>(random() % (kDocumentIds - count + 1));
    prompt.insert(prompt.end(), whole.begin() + begin,
                  whole.begin() + begin + static_cast<std::ptrdiff_t>(count));
  }
  prompt.resize(kPromptIds);
  return prompt;
}

uint64_t CoveredBy(const engine::ChunkMatches& found) {
  uint64_t covered = 0, end = 0;
  for (const engine::ChunkMatch& match : found.matches) {
    covered += match.end - std::max(std::min(end, match.end), match.begin);
    end = std::max(end, match.end);
  }
  return covered;
}

void FindChunks(::benchmark::State& state, Prompt kind, uint64_t count) {
  auto documents = Documents::Create(Index::kChunks);
  if (Failed(&state, documents.status()) || Failed(&state, (*documents)->Add(count)) ||
      Failed(&state, (*documents)->CatchUp()) || Failed(&state, (*documents)->store().Compact())) {
    return;
  }
  std::vector<std::vector<TokenId>> prompts;
  double found_ids = 0, looked_up = 0;
  for (uint64_t i = 0; i < kPrompts; ++i) {
    prompts.push_back(PromptOf(kind, count, i));
    const auto found = (*documents)->Find(prompts.back());
    if (Failed(&state, found.status())) return;
    found_ids += static_cast<double>(CoveredBy(*found));
    looked_up += static_cast<double>(found->looked_up);
  }
  size_t next = 0;
  Meter meter(&state, 1, 0);
  for (auto _ : state) {
    auto found = (*documents)->Find(prompts[next++ % kPrompts]);
    if (Failed(&state, found.status())) return;
    DoNotOptimize(found->matches);
  }
  state.counters["found_share"] = found_ids / static_cast<double>(kPrompts * kPromptIds);
  state.counters["looked_up"] = looked_up / kPrompts;
}

// The search, what is similar beside what it finds, and which tokens are computed.
void PlanPrompts(::benchmark::State& state, Prompt kind, uint64_t count) {
  auto documents = Documents::Create(Index::kChunks);
  if (Failed(&state, documents.status()) || Failed(&state, (*documents)->Add(count)) ||
      Failed(&state, (*documents)->CatchUp()) || Failed(&state, (*documents)->store().Compact())) {
    return;
  }
  std::vector<std::vector<TokenId>> prompts;
  double loaded = 0;
  for (uint64_t i = 0; i < kPrompts; ++i) {
    prompts.push_back(PromptOf(kind, count, i));
    const auto plan = (*documents)->Plan(prompts.back());
    if (Failed(&state, plan.status())) return;
    loaded += static_cast<double>(plan->load_tokens);
  }
  size_t next = 0;
  Meter meter(&state, 1, 0);
  for (auto _ : state) {
    auto plan = (*documents)->Plan(prompts[next++ % kPrompts]);
    if (Failed(&state, plan.status())) return;
    DoNotOptimize(plan->steps);
  }
  state.counters["loaded_share"] = loaded / static_cast<double>(kPrompts * kPromptIds);
}

}  // namespace

void RegisterChunks() {
  const auto add = [](const std::string& name, const auto& run, auto... arguments) {
    return ::benchmark::RegisterBenchmark(("chunks/" + name).c_str(), run, arguments...)
        ->MeasureProcessCPUTime()
        ->UseRealTime();
  };
  add("winnow", Winnow);
  add("index/prefix", IndexDocuments, Index::kPrefix)->Iterations(kIndexings);
  add("index/chunks", IndexDocuments, Index::kChunks)->Iterations(kIndexings);
  for (const auto& [name, kind] :
       {std::pair("documents", Prompt::kWhole), std::pair("pieces", Prompt::kPieces),
        std::pair("unknown", Prompt::kUnknown)}) {
    for (const uint64_t count : {kDocuments, kManyDocuments}) {
      const std::string row = std::string(name) + "/" + std::to_string(count);
      add("find/" + row, FindChunks, kind, count);
      add("plan/" + row, PlanPrompts, kind, count);
    }
  }
}

}  // namespace cairn::bench::micro
