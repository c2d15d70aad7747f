// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/golden_story.h"

#include <cstdio>
#include <utility>

#include "base/core/check.h"
#include "tests/support/status.h"

namespace cairn::golden {

namespace {

using testing::ModelBranch;

template <typename T>
void Must(const T& result) {
  const Status status = testing::StatusOf(result);
  if (!status.ok()) std::fprintf(stderr, "golden store: %s\n", status.ToString().c_str());
  CAIRN_CHECK(status.ok());
}

// ---------------------------------------------------------------- models

Plane MakePlane(const std::string& name, PlaneRole role, uint32_t heads, uint32_t row_bytes,
                Dtype dtype) {
  Plane plane;
  plane.name = name;
  plane.role = role;
  plane.heads = heads;
  plane.row_bytes = row_bytes;
  plane.dtype = dtype;
  return plane;
}

LayerGroup MakeGroup(const std::string& name, uint32_t layers, std::vector<Plane> planes,
                     RetentionRule rule = {}) {
  LayerGroup group;
  group.name = name;
  group.layers = layers;
  group.planes = std::move(planes);
  group.retention = rule;
  return group;
}

std::vector<Plane> KeyAndValue(uint32_t heads, uint32_t row_bytes) {
  Plane key = MakePlane("k", PlaneRole::kKey, heads, row_bytes, Dtype::kBf16);
  key.rotary.state = RotaryState::kApplied;
  return {key, MakePlane("v", PlaneRole::kValue, heads, row_bytes, Dtype::kBf16)};
}

ModelSpec Named(const std::string& name) {
  ModelSpec spec;
  spec.identity = {.name = name,
                   .revision = "r1",
                   .weights_digest = "sha256:00",
                   .tokenizer_digest = "sha256:11",
                   .quantization = "none",
                   .cache_dtype = "bf16"};
  spec.extent_tokens = 64;
  return spec;
}

enum Model : size_t { kAttention, kAdapted, kHybrid, kInt8, kTokens };
enum HybridGroup : size_t { kFull, kWindowed, kChunks, kState, kEncoder, kGuesses };

std::vector<ModelSpec> Models() {
  ModelSpec attention = Named("attention");
  attention.groups = {MakeGroup("all", 2, KeyAndValue(2, 16))};
  attention.groups[0].inv_freq = {1.0F, 0.1F, 0.01F, 0.001F};
  attention.groups[0].mscale = 1.25F;
  ModelSpec adapted = attention;
  adapted.variant = {.name = "lora", .digest = "sha256:22", .scale = 0.5};
  adapted.shard = {.layer_begin = 2,
                   .layer_end = 4,
                   .kv_head_begin = 2,
                   .kv_head_end = 4,
                   .context_rank = 1,
                   .context_size = 2,
                   .replicated = true};
  ModelSpec hybrid = Named("hybrid");
  hybrid.groups = {
      MakeGroup("full", 1, KeyAndValue(1, 16)),
      MakeGroup("windowed", 1, KeyAndValue(1, 8), {Retention::kWindow, 16, 4, 0}),
      MakeGroup("chunks", 1, KeyAndValue(1, 8), {Retention::kChunkLocal, 0, 0, 32}),
      MakeGroup("state", 2, {MakePlane("s", PlaneRole::kState, 1, 48, Dtype::kOpaque)},
                {Retention::kCheckpoint, 0, 0, 0}),
      MakeGroup("encoder", 1, {MakePlane("e", PlaneRole::kOpaque, 1, 100, Dtype::kU8)},
                {Retention::kPerRequest, 0, 0, 0}),
      MakeGroup("guesses", 1, {MakePlane("l", PlaneRole::kLatent, 1, 8, Dtype::kBf16)})};
  hybrid.groups[kGuesses].optional = true;
  ModelSpec int8 = Named("int8");
  int8.groups = {MakeGroup("all", 2, KeyAndValue(2, 32))};
  for (Plane& plane : int8.groups[0].planes) plane.sealed_as = SealedAs::kInt8;
  int8.groups[0].planes.push_back(MakePlane("scale", PlaneRole::kScale, 2, 4, Dtype::kF32));
  int8.groups[0].planes.push_back(MakePlane("noise", PlaneRole::kOpaque, 1, 7, Dtype::kF8E4M3));
  ModelSpec tokens = Named("tokens");
  tokens.extent_tokens = 0;
  return {attention, adapted, hybrid, int8, tokens};
}

// ---------------------------------------------------------------- the teller

// The content of one append.
struct Piece {
  uint64_t tokens = 0;
  // By group; none at all: KV of all groups for the new tokens.
  std::vector<RowRange> rows{};
  uint64_t sampler = 0, metadata = 0;  // 0: none.
  std::vector<ContentSpan> spans{};
  bool waits = true;
};

// Does everything twice: in the store, if there is one, and in the book.
class Teller {
 public:
  Teller(std::shared_ptr<const io::World> world, std::string path)
      : world_(std::move(world)), path_(std::move(path)) {}

  bool has_store() const { return world_ != nullptr; }
  Store& store() { return store_; }
  Book& book() { return book_; }
  ModelBranch& at(const std::string& name) { return book_.branches.at(name); }
  Branch Of(const std::string& name) { return Branch(store_.core(), ids_.at(name)); }

  void Open(Options options) {
    if (!has_store()) return;
    options.world = world_;
    auto opened = Store::Open(path_, options);
    Must(opened);
    store_ = std::move(*opened);
  }
  void Close() {
    if (!has_store()) return;
    for (Borrowed& one : waiting_) Must(one.ticket.Wait());
    waiting_.clear();
    Must(store_.Close());
  }
  void Compact() {
    if (has_store()) Must(store_.Compact());
  }

  void Register(std::vector<ModelSpec> specs) {
    book_.models = std::move(specs);
    if (!has_store()) return;
    for (const ModelSpec& spec : book_.models) {
      const auto id = store_.RegisterModel(spec);
      Must(id);
      models_.push_back(*id);
    }
  }

  void SetPolicy(const std::string& ns, const NamespacePolicy& policy) {
    book_.policies[ns] = policy;
    if (has_store()) Must(store_.SetNamespace(ns, policy));
  }

  void Create(const std::string& name, Model model, const std::string& ns = "", Keep keep = {}) {
    ModelBranch branch;
    branch.name = name;
    branch.ns = ns;
    branch.kv_lengths.resize(book_.models[model].groups.size());
    branch.keep = KeepIn(ns, keep);
    branch.model = model;
    CAIRN_CHECK(book_.branches.emplace(name, std::move(branch)).second);
    if (!has_store()) return;
    const auto made = store_.CreateBranch(models_[model], {.name = name, .ns = ns, .keep = keep});
    Must(made);
    ids_[name] = made->id();
  }

  void Append(const std::string& name, const Piece& piece) {
    const uint64_t begin = at(name).length();
    std::vector<TokenId> ids = Record(name, piece);
    if (!has_store()) return;
    const SamplerState sampler = SamplerOf(piece.sampler);
    const AppMetadata metadata = MetadataOf(piece.metadata);
    auto rows = Written(name, RangesOf(name, piece, begin));
    Delta delta;
    delta.tokens = ids;
    if (!rows->view()->groups.empty()) delta.kv = rows->view();
    if (piece.sampler != 0) delta.sampler = &sampler;
    if (piece.metadata != 0) delta.metadata = &metadata;
    delta.spans = piece.spans;
    AppendOptions options;
    options.durability = Durability::kPower;
    options.ends_turn = true;
    if (piece.waits) return Must(Of(name).AppendSync(delta, options));
    const auto ticket = Of(name).Append(delta, options);
    Must(ticket);
    waiting_.push_back({*ticket, std::move(ids), std::move(rows)});
  }

  void Fill(const std::string& name, const std::vector<RowRange>& ranges) {
    RecordRows(name, ranges);
    if (has_store()) Must(Of(name).Fill(*Written(name, ranges)->view()));
  }

  void Fork(const std::string& name, uint64_t position, const std::string& fork,
            const std::string& ns = "", Keep keep = {}) {
    RecordFork(name, position, fork, ns, keep);
    if (!has_store()) return;
    const auto made = Of(name).ForkAt(position, {.name = fork, .ns = ns, .keep = keep});
    Must(made);
    ids_[fork] = made->id();
  }
  void RecordFork(const std::string& name, uint64_t position, const std::string& fork,
                  const std::string& ns = "", Keep keep = {}) {
    ModelBranch copy = at(name);
    copy.name = fork;
    copy.ns = ns;
    copy.keep = KeepIn(ns, keep);
    copy.Cut(position);
    CAIRN_CHECK(book_.branches.emplace(fork, std::move(copy)).second);
  }

  void Rewind(const std::string& name, uint64_t length) {
    at(name).Cut(length);
    if (has_store()) Must(Of(name).Rewind(length));
  }
  void Drop(const std::string& name) {
    book_.branches.erase(name);
    if (has_store()) Must(Of(name).Drop());
  }

  // One record that makes, forks, appends, renames and drops.
  void Batch(const std::string& from, const std::string& made, const std::string& fork,
             const std::string& renamed, const std::string& name, const std::string& dropped) {
    constexpr uint64_t kForkAt = 30, kTokens = 5;
    const std::vector<BranchOptions> options = {{.name = made}, {.name = fork}};
    WriteBatch batch;
    if (has_store()) {
      const int one = batch.Create(models_[kTokens_], options[0]);
      batch.Fork(Of(from), kForkAt, options[1]);
      batch.Rename(Of(renamed), name);
      batch.Drop(Of(dropped));
      made_ = one;
    }
    ModelBranch branch;
    branch.name = made;
    branch.model = kTokens_;
    book_.branches.emplace(made, branch);
    RecordFork(from, kForkAt, fork);
    ModelBranch moved = std::move(book_.branches.extract(renamed).mapped());
    moved.name = name;
    book_.branches.emplace(name, std::move(moved));
    book_.branches.erase(dropped);
    const std::vector<TokenId> ids = Record(made, {.tokens = kTokens});
    if (!has_store()) return;
    batch.Append(made_, {.tokens = ids});
    auto written = store_.Write(batch, {.durability = Durability::kPower});
    Must(written);
    Must(written->ticket.Wait());
    ids_[made] = written->created[0].id();
    ids_[fork] = written->created[1].id();
    ids_[name] = ids_[renamed];
  }

 private:
  static constexpr Model kTokens_ = Model::kTokens;
  struct Borrowed {
    Ticket ticket;
    std::vector<TokenId> ids;
    std::unique_ptr<Rows> rows;
  };

  Keep KeepIn(const std::string& ns, Keep keep) {
    if (keep.ttl_ns == 0)
      keep.ttl_ns = book_.policies.contains(ns) ? book_.policies.at(ns).ttl_ns : 0;
    return keep;
  }

  std::vector<RowRange> RangesOf(const std::string& name, const Piece& piece, uint64_t begin) {
    if (!piece.rows.empty()) return piece.rows;
    return std::vector<RowRange>(book_.models[at(name).model].groups.size(), {begin, piece.tokens});
  }

  void RecordRows(const std::string& name, const std::vector<RowRange>& ranges) {
    ModelBranch& branch = at(name);
    for (size_t group = 0; group < ranges.size(); ++group) {
      const RowRange& range = ranges[group];
      if (range.count == 0) continue;
      for (uint64_t p = range.begin; p < range.end(); ++p)
        branch.positions[p].kv[group] = p + seed_;
      branch.kv_lengths[group] = std::max(branch.kv_lengths[group], range.end());
    }
  }

  std::vector<TokenId> Record(const std::string& name, const Piece& piece) {
    ModelBranch& branch = at(name);
    const uint64_t begin = branch.length();
    ++seed_;
    std::vector<TokenId> ids;
    for (uint64_t i = 0; i < piece.tokens; ++i) {
      // Some need more than 16 bits.
      const uint64_t drawn = Draw(seed_, begin + i);
      ids.push_back(static_cast<TokenId>(drawn % 16 == 0 ? drawn % 150'000 : drawn % 3000));
      branch.positions.push_back({.token = ids.back(), .kv = {}});
    }
    RecordRows(name, RangesOf(name, piece, begin));
    if (piece.sampler != 0) branch.samplers[branch.length()] = piece.sampler;
    if (piece.metadata != 0) branch.metadata[branch.length()] = piece.metadata;
    branch.spans.insert(branch.spans.end(), piece.spans.begin(), piece.spans.end());
    return ids;
  }

  std::unique_ptr<Rows> Written(const std::string& name, const std::vector<RowRange>& ranges) {
    const ModelBranch& branch = at(name);
    auto rows = std::make_unique<Rows>(book_.models[branch.model], ranges);
    for (size_t group = 0; group < ranges.size(); ++group) {
      for (uint64_t p = ranges[group].begin; p < ranges[group].end(); ++p) {
        rows->Write(group, p, *branch.positions[p].kv[group]);
      }
    }
    return rows;
  }

  const std::shared_ptr<const io::World> world_;
  const std::string path_;
  Store store_;
  Book book_;
  std::vector<ModelId> models_;
  std::map<std::string, BranchId> ids_;
  std::vector<Borrowed> waiting_;
  uint64_t seed_ = 0;  // Another one for each append.
  int made_ = 0;
};

ContentSpan Span(uint64_t begin, uint64_t end, bool atomic) {
  return {.begin = begin,
          .end = end,
          .hash = {Draw(1, begin, end), Draw(2, begin, end)},
          .atomic = atomic};
}

// ---------------------------------------------------------------- format 1

constexpr uint64_t kYearNs = 365ull * 24 * 3600 * 1'000'000'000;

// Everything that ends up in tables of the index and of snapshots.
void TellSealed(Teller& tell) {
  tell.Create("chat", kAttention);
  for (uint64_t i = 0; i < 8; ++i) {
    Piece piece{.tokens = 40, .sampler = i, .metadata = i % 3};
    if (i == 1) piece.spans = {Span(50, 70, true)};
    if (i == 2) piece.spans = {Span(90, 117, false)};
    tell.Append("chat", piece);
  }
  tell.Fork("chat", 100, "what-if");  // Cuts a span.
  tell.Append("what-if", {.tokens = 64, .sampler = 9});
  tell.Rewind("chat", 250);  // In place.
  tell.Append("chat", {.tokens = 30, .metadata = 4});
  tell.Fork("chat", 180, "reader", "tenant-b",
            {.pinned = true, .priority = 3, .ttl_ns = 300 * kYearNs});
  tell.Rewind("what-if", 80);  // Onto another node.
  tell.Append("what-if", {.tokens = 21});

  tell.Create("adapted", kAdapted, "tenant-b");
  tell.Append("adapted", {.tokens = 70, .sampler = 10});

  // Sinks, windows, states and gaps.
  tell.Create("hybrid", kHybrid);
  tell.Append("hybrid",
              {.tokens = 40, .rows = {{0, 40}, {0, 40}, {0, 40}, {39, 1}, {0, 1}, {0, 40}}});
  tell.Append("hybrid", {.tokens = 60,
                         .rows = {{40, 60}, {84, 16}, {96, 4}, {99, 1}, {0, 0}, {40, 10}},
                         .sampler = 11});
  tell.Fork("hybrid", 40, "hybrid-fork");
  tell.Append("hybrid-fork",
              {.tokens = 8, .rows = {{40, 8}, {40, 8}, {40, 8}, {47, 1}, {0, 0}, {0, 0}}});

  tell.Create("int8", kInt8);
  tell.Append("int8", {.tokens = 150});
  tell.Create("tokens", kTokens);
  tell.Append("tokens", {.tokens = 5000});
  tell.Create("lags", kAttention);
  tell.Append("lags", {.tokens = 50, .rows = {{0, 35}}});

  // A chain of nodes that becomes one when it is sealed; and what nobody needs any more.
  tell.Create("chain-0", kAttention);
  tell.Append("chain-0", {.tokens = 20});
  tell.Fork("chain-0", 15, "chain-1");
  tell.Append("chain-1", {.tokens = 20});
  tell.Drop("chain-0");
  tell.Create("doomed", kAttention);
  tell.Append("doomed", {.tokens = 100});
  tell.Create("named before", kAttention, "", {.priority = 7});
  tell.Append("named before", {.tokens = 3});
  tell.Batch("chat", "made", "forked", "named before", "named after", "doomed");
}

// The least recently used KV is evicted, and some of it comes back.
void TellEvicted(Teller& tell) {
  constexpr uint64_t kEach = 64;
  for (const char* name : {"oldest", "second", "third"}) {
    tell.Create(name, kAttention, "tenant-a");
    tell.Append(name, {.tokens = kEach});
  }
  for (testing::ModelPosition& position : tell.at("oldest").positions) position.kv[0].reset();
  tell.SetPolicy("tenant-a", {.max_bytes = 1 << 20, .evict = Evict::kKv, .ttl_ns = 400 * kYearNs});
  tell.Fill("oldest", {{0, 24}});
}

// Content that only the log has: records, parts of one, and a table that only the log names.
void TellTail(Teller& tell) {
  tell.Append("chat",
              {.tokens = 10, .sampler = 12, .metadata = 5, .spans = {Span(282, 285, true)}});
  tell.Append("chat", {.tokens = 50, .waits = false});
  tell.Append("hybrid",
              {.tokens = 4, .rows = {{100, 4}, {100, 4}, {100, 4}, {103, 1}, {0, 0}, {0, 0}}});
  tell.Create("late", kInt8);
  tell.Append("late", {.tokens = 20});
  tell.Append("late", {.tokens = 120, .metadata = 6});
  tell.Create("", kTokens);
  tell.Append("", {.tokens = 12});
  tell.Fork("reader", 75, "reader-fork", "tenant-b");
  tell.Rewind("tokens", 4321);
}

}  // namespace

SamplerState SamplerOf(uint64_t number) {
  SamplerState state;
  state.generator = static_cast<GeneratorKind>(1 + number % 3);
  state.temperature = 0.25 * static_cast<double>(number);
  state.top_p = 0.9;
  state.min_p = 0.05;
  state.repetition_penalty = 1.1;
  state.top_k = static_cast<uint32_t>(40 + number);
  if (state.generator == GeneratorKind::kPhilox) {
    state.philox_seed = Draw(3, number);
    state.philox_offset = number;
  } else {
    state.blob.resize(state.generator == GeneratorKind::kMt19937 ? 2504 : 33);
    for (size_t i = 0; i < state.blob.size(); ++i) {
      state.blob[i] = static_cast<std::byte>(Draw(4, number, i));
    }
  }
  if (state.generator == GeneratorKind::kNamed) {
    state.blob_name = "xoshiro";
    state.blob_version = 2;
  }
  if (number % 2 == 1) state.last_logits = {1.5F, -0.0F, static_cast<float>(number)};
  return state;
}

AppMetadata MetadataOf(uint64_t number) {
  AppMetadata metadata;
  metadata.content_type = "application/msgpack";
  for (uint64_t i = 0; i < 10 * number; ++i) {
    metadata.bytes.push_back(static_cast<std::byte>(Draw(5, number, i)));
  }
  return metadata;
}

Options GoldenOptions() {
  Options options;
  options.segment_bytes = 256 << 10;
  options.spare_segments_min = 1;
  options.spare_segments_max = 2;
  options.hot_tail_bytes = 1 << 20;
  options.executor_threads = 2;
  return options;
}

Book TellFormat1(const std::shared_ptr<const io::World>& world, const std::string& path) {
  Teller tell(world, path);
  Options options = GoldenOptions();
  options.create_if_missing = true;
  options.replay_records_max = 8;  // So that there are several tables of the index.
  tell.Open(options);
  tell.Register(Models());
  tell.SetPolicy("tenant-a", {.max_bytes = 20'000, .evict = Evict::kKv, .ttl_ns = 0});
  tell.SetPolicy("tenant-b", {.evict = {}, .persist = Persist::kTurnEnd, .ttl_ns = 400 * kYearNs});
  TellSealed(tell);
  TellEvicted(tell);
  tell.Compact();
  tell.Close();

  options = GoldenOptions();
  tell.Open(options);
  tell.Create("ingested", kAttention);
  tell.Append("ingested", {.tokens = 300, .sampler = 13, .spans = {Span(7, 9, false)}});
  tell.Rewind("ingested", 260);
  tell.Compact();
  tell.Close();

  options.submit_copy_max_bytes = 4 << 10;
  tell.Open(options);
  TellTail(tell);
  tell.Close();
  return std::move(tell.book());
}

}  // namespace cairn::golden
