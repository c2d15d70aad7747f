// SPDX-License-Identifier: Apache-2.0
//
// Property: after any operations a store with a group of every retention rule shows the same as the
// reference model: lengths, names, tokens, KV bytes, states, missing positions and how far it can
// be restored; at once, and after being opened again. Method: a random walk over all operations
// from a printed seed, single steps and batches, in all layouts of KV, against the reference model,
// in memory and on the simulated machine; also with a store that forgets every branch as soon as it
// may. The KV of a position follows from its token, so that every branch fills a gap in shared
// content alike. (Models whose groups keep everything: tests/model.)
#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/engine/engine_test.h"
#include "tests/model/reference_model.h"
#include "tests/support/test_seed.h"

namespace cairn::testing {
namespace {

constexpr uint64_t kLengthMax = 60;
constexpr size_t kBranchesMax = 24;
constexpr uint64_t kManyTokens = 14;  // A larger append has them.
// About half of what the branches of a namespace would hold.
constexpr uint64_t kNamespaceBytes = 32 << 10;

constexpr std::byte kBlank{0xEE};  // Initial content of a KvPool.

class RandomWalk {
 public:
  RandomWalk(TestWorld* world, uint64_t seed, Options options)
      : world_(world),
        random_(seed),
        options_(std::move(options)),
        model_(model_spec_.groups.size()) {}

  void Run(int steps) {
    Open();
    auto id = store_.RegisterModel(model_spec_);
    ASSERT_OK(id);
    id_ = *id;
    // One of the two namespaces loses KV all the time.
    ASSERT_OK(store_.SetNamespace("ns", {.max_bytes = kNamespaceBytes, .evict = Evict::kKv}));
    for (int step = 0; step < steps && !::testing::Test::HasFatalFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      Step();
      if (step % 1000 == 999) CompareAll();
    }
    CompareAll();
    EXPECT_TRUE(options_.tree_memory_bytes != 0 || store_.Metrics().tree_loads > 0);
    Open();
    CompareAll();
    auto verified = store_.Verify(VerifyLevel::kAll);
    ASSERT_OK(verified);
    EXPECT_TRUE(verified->damages.empty()) << verified->damages.front().what;
  }
  // Not every seed does.
  void ExpectMetAll() const {
    EXPECT_GT(evicted_, 0U);
    EXPECT_GT(filled_, 0U);
    EXPECT_GT(gaps_, 0U);
    EXPECT_GT(joined_, 0U);
  }

 private:
  uint64_t Draw(uint64_t below) { return below == 0 ? 0 : random_() % below; }
  Durability DrawDurability() { return static_cast<Durability>(Draw(20) == 0 ? 2 : Draw(2)); }

  void Open() {
    if (store_.core() != nullptr) {
      joined_ += store_.Metrics().joined_nodes;
    }
    ASSERT_OK(store_.Close());
    auto opened = world_->Open(options_);
    ASSERT_OK(opened);
    store_ = std::move(*opened);
  }

  uint64_t Pick() {
    auto it = model_.branches().begin();
    std::advance(it, static_cast<ptrdiff_t>(Draw(model_.branches().size())));
    return it->first;
  }
  Branch Handle(uint64_t id) { return Branch(store_.core(), BranchId{id}); }
  std::string FreshName() { return Draw(3) == 0 ? "" : "n" + std::to_string(Draw(40)); }
  std::string Namespace() { return Draw(2) == 0 ? "" : "ns"; }

  void Step() {
    if (model_.branches().empty()) return Create();
    switch (Draw(16)) {
      case 0: return Create();
      case 1:
      case 2: return Fork();
      case 3:
      case 4: return Rewind();
      case 5: return model_.branches().size() > kBranchesMax / 2 ? Drop() : Fill();
      case 6: return Rename();
      case 7: return Fill();
      case 8: return Batch();
      case 9: return Compare(Pick());
      case 10: return Draw(40) == 0 ? Open() : Draw(6) == 0 ? Compact() : Compare(Pick());
      default: return Append();
    }
  }

  void Compact() { ASSERT_OK(store_.Compact()); }

  void Create() {
    if (model_.branches().size() >= kBranchesMax) return Drop();
    const std::string name = FreshName();
    const std::string ns = Namespace();
    auto made = store_.CreateBranch(id_, {.name = name, .ns = ns, .durability = DrawDurability()});
    if (model_.HasName(ns, name)) {
      ASSERT_FAILS(made, StatusCode::kAlreadyExists);
      return;
    }
    ASSERT_OK(made);
    model_.Create(static_cast<uint64_t>(made->id()), name, ns);
  }

  static bool HasRule(const LayerGroup& group) { return group.retention.kind != Retention::kAll; }

  // The content of an append; kept until it was given.
  struct Added {
    std::vector<TokenId> tokens;
    std::vector<uint64_t> kv_begins, kv_counts, kv_seeds;  // Seed 0: that of each token.
    std::unique_ptr<KvSet> kv;
    const KvView* view = nullptr;
    std::optional<SamplerState> sampler;
    Delta delta() const {
      Delta delta = MakeDelta(tokens, view);
      if (sampler.has_value()) delta.sampler = &*sampler;
      return delta;
    }
  };

  // KV for each group from its length on, with a random lag; with rules, also from beyond it, and
  // for a Fill (`count` 0) from before it.
  Added DrawAppend(const ModelBranch& branch, uint64_t count) {
    Added added;
    for (uint64_t i = 0; i < count; ++i) added.tokens.push_back(static_cast<TokenId>(random_()));
    static const std::vector<Layout> layouts = AllLayouts();
    Layout layout = layouts[Draw(layouts.size())];
    // Without a table a view of blocks must begin on a block, which a lagging group's may not.
    if (layout == Layout::kBlocksNoTable) layout = Layout::kNhd;
    const uint64_t end = branch.length() + count;
    added.kv = std::make_unique<KvSet>(model_spec_, layout, 0, end);
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (uint32_t group = 0; group < model_.groups(); ++group) {
      uint64_t begin = branch.kv_length(group);
      uint64_t kv_count = end - begin;
      uint64_t seed = 0;
      if (!HasRule(model_spec_.groups[group])) {
        kv_count = Draw(4) == 0 ? Draw(kv_count + 1) : kv_count;
        seed = random_();
        added.kv->pool(group).Write(seed, begin, begin + kv_count);
      } else {
        if (model_spec_.groups[group].retention.kind == Retention::kPerRequest) {
          kv_count = begin == 0 ? std::min<uint64_t>(end, 1) : 0;
        } else if (Draw(2) == 0) {
          if (count == 0) begin = Draw(begin + 1);
          begin += Draw(end - begin + 1);
          kv_count = Draw(3) == 0 ? Draw(end - begin + 1) : end - begin;
        } else if (Draw(2) == 0) {
          kv_count = 0;
        }
        const auto token_of = [&](uint64_t at) {
          return at < branch.length() ? branch.positions[at].token
                                      : added.tokens[at - branch.length()];
        };
        added.kv->pool(group).Write(token_of, begin, begin + kv_count);
      }
      ranges.emplace_back(begin, kv_count);
      added.kv_begins.push_back(begin);
      added.kv_counts.push_back(kv_count);
      added.kv_seeds.push_back(seed);
    }
    added.view = added.kv->View(ranges);
    if (count != 0 && Draw(4) == 0) {
      added.sampler.emplace();
      added.sampler->generator = GeneratorKind::kPhilox;
      added.sampler->philox_seed = random_();
    }
    return added;
  }

  // It may be gathered later, and be refused then.
  bool IsLarge(const Added& added) const {
    uint64_t count = added.tokens.size();
    for (const uint64_t kv_count : added.kv_counts) count = std::max(count, kv_count);
    return count >= kManyTokens / 3;
  }

  void AddToModel(uint64_t id, const Added& added) {
    model_.Append(id, added.tokens);
    for (size_t group = 0; group < model_.groups(); ++group) {
      model_.AddKv(id, group, added.kv_begins[group], added.kv_counts[group],
                   added.kv_seeds[group]);
    }
    ModelBranch& branch = model_.branches().at(id);
    if (added.sampler.has_value()) branch.samplers[branch.length()] = added.sampler->philox_seed;
  }

  void Append() {
    const uint64_t id = Pick();
    const ModelBranch& branch = model_.branches().at(id);
    if (branch.length() >= kLengthMax) return Rewind();
    const uint64_t count = Draw(3) == 0 ? 1 + Draw(12) : Draw(12) == 0 ? kManyTokens + Draw(20) : 1;
    const Added added = DrawAppend(branch, count);
    AppendOptions options;
    options.durability = DrawDurability();
    if (Draw(2) == 0) options.expected_length = branch.length();
    if (Draw(2) == 0) {
      auto length = Handle(id).AppendSync(added.delta(), options);
      ASSERT_OK(length);
      ASSERT_EQ(branch.length() + added.tokens.size(), *length);
    } else {
      auto ticket = Handle(id).Append(added.delta(), options);
      if (!ticket.ok() && ticket.status().code() == StatusCode::kBusy) return;
      ASSERT_OK(ticket);
      if (!ticket->released() || IsLarge(added) || Draw(4) == 0) {
        const Status waited = ticket->Wait();
        if (waited.code() == StatusCode::kBusy) return;  // For want of room; nothing was applied.
        ASSERT_OK(waited);
      }
    }
    AddToModel(id, added);
  }

  void Fill() {
    const uint64_t id = Pick();
    const ModelBranch& branch = model_.branches().at(id);
    Added added = DrawAppend(branch, 0);
    std::vector<GroupView> groups;
    for (size_t group = 0; group < model_.groups(); ++group) {
      if (added.kv_counts[group] != 0) groups.push_back(added.view->groups[group]);
    }
    const Status status = Handle(id).Fill({.groups = groups});
    if (groups.empty()) {
      ASSERT_FAILS(status, StatusCode::kInvalidArgument);
      return;
    }
    ASSERT_OK(status);
    AddToModel(id, added);
  }

  // The engine may keep less KV than the model where a cut falls on or below the place at which a
  // branch left its parent while the parent's KV lagged: then the KV of those few positions lies
  // on a node that is left behind. Never more, and never other bytes; and where no nodes were
  // joined, and none trimmed, the model knows how much.
  void AdoptKvLengths(uint64_t id) {
    auto info = Handle(id).Info();
    ASSERT_OK(info);
    ModelBranch& branch = model_.branches().at(id);
    for (size_t group = 0; group < model_.groups(); ++group) {
      ASSERT_LE(info->kv_lengths[group], branch.kv_length(group));
      if (!untrimmed_ && joined_ + store_.Metrics().joined_nodes == 0) {
        ASSERT_EQ(branch.kv_floors[group], info->kv_lengths[group]);
      }
      branch.CutKv(group, info->kv_lengths[group]);
    }
  }

  void Fork() {
    if (model_.branches().size() >= kBranchesMax) return Drop();
    const uint64_t id = Pick();
    const uint64_t length = model_.branches().at(id).length();
    const uint64_t position = Draw(length + 2);
    const std::string name = FreshName();
    const std::string ns = Namespace();
    auto made =
        Handle(id).ForkAt(position, {.name = name, .ns = ns, .durability = DrawDurability()});
    if (model_.HasName(ns, name)) {
      ASSERT_FAILS(made, StatusCode::kAlreadyExists);
      return;
    }
    if (position > length) {
      ASSERT_FAILS(made, StatusCode::kInvalidArgument);
      return;
    }
    ASSERT_OK(made);
    const auto fork = static_cast<uint64_t>(made->id());
    model_.Fork(id, position, fork, name, ns);
    AdoptKvLengths(fork);
  }

  void Rewind() {
    const uint64_t id = Pick();
    const uint64_t length = model_.branches().at(id).length();
    const uint64_t cut =
        Draw(3) == 0 ? Draw(length + 2) : length - std::min<uint64_t>(length, Draw(4));
    const Status status = Handle(id).Rewind(cut, DrawDurability());
    if (cut > length) {
      ASSERT_FAILS(status, StatusCode::kInvalidArgument);
      return;
    }
    ASSERT_OK(status);
    model_.Rewind(id, cut);
    MarkUntrimmed();
    AdoptKvLengths(id);
  }

  void Drop() {
    const uint64_t id = Pick();
    ASSERT_OK(Handle(id).Drop(DrawDurability()));
    model_.Drop(id);
    MarkUntrimmed();
  }
  void MarkUntrimmed() {
    const auto reached = model_.Reach(std::vector<ModelSpec>(1, model_spec_));
    untrimmed_ |= reached.tokens != reached.tokens_on_nodes;
  }

  void Rename() {
    const uint64_t id = Pick();
    ModelBranch& branch = model_.branches().at(id);
    const std::string name = FreshName();
    const Status status = Handle(id).Rename(name, DrawDurability());
    if (name != branch.name && model_.HasName(branch.ns, name)) {
      ASSERT_FAILS(status, StatusCode::kAlreadyExists);
      return;
    }
    ASSERT_OK(status);
    branch.name = name;
  }

  // Appends to several branches and a rewind, perhaps spoilt by a last op that cannot work.
  void Batch() {
    WriteBatch batch;
    std::map<uint64_t, Added> appends;
    for (uint64_t i = 0; i < 1 + Draw(3); ++i) {
      const uint64_t id = Pick();
      const ModelBranch& branch = model_.branches().at(id);
      if (appends.contains(id) || branch.length() >= kLengthMax) continue;
      const Added& added = appends.emplace(id, DrawAppend(branch, 1 + Draw(3))).first->second;
      batch.Append(Handle(id), added.delta(), branch.length());
    }
    const uint64_t cut_id = Pick();
    const bool cuts = !appends.contains(cut_id);
    const uint64_t cut = Draw(model_.branches().at(cut_id).length() + 1);
    if (cuts) batch.Rewind(Handle(cut_id), cut);
    const bool spoilt = Draw(4) == 0;
    if (spoilt) batch.Drop(Handle(999'999'999));
    if (batch.ops().empty()) return;
    AppendOptions options;
    options.durability = DrawDurability();
    auto result = store_.Write(batch, options);
    while (!result.ok() && result.status().code() == StatusCode::kBusy) {  // Write never waits.
      world_->world().scheduler->Sleep(1'000'000);
      result = store_.Write(batch, options);
    }
    if (spoilt) {
      ASSERT_FAILS(result, StatusCode::kNotFound);
      return;
    }
    ASSERT_OK(result);
    for (const auto& [id, added] : appends) AddToModel(id, added);
    if (cuts) {
      model_.Rewind(cut_id, cut);
      MarkUntrimmed();
      AdoptKvLengths(cut_id);
    }
  }

  void Compare(uint64_t id) {
    const ModelBranch& want = model_.branches().at(id);
    Branch branch = Handle(id);
    auto info = branch.Info();
    ASSERT_OK(info);
    ASSERT_EQ(want.length(), info->length);
    ASSERT_EQ(want.name, info->name);
    ASSERT_EQ(want.ns, info->ns);
    for (size_t group = 0; group < model_.groups(); ++group) {
      ASSERT_EQ(want.kv_length(group), info->kv_lengths[group]);
    }
    const uint64_t begin = Draw(2) == 0 ? 0 : Draw(want.length() + 1);
    const uint64_t end = Draw(2) == 0 ? want.length() : begin + Draw(want.length() - begin + 1);
    bool missing = false;
    ASSERT_NO_FATAL_FAILURE(CompareContent(branch, want, begin, end, &missing));
    if (missing && Draw(2) == 0) {
      ASSERT_NO_FATAL_FAILURE(FillAnew(id));
    }
    const uint64_t position = Draw(want.length() + 1);
    const auto sampler = branch.SamplerAt(position);
    const auto state = want.samplers.upper_bound(position);
    if (state == want.samplers.begin()) {
      ASSERT_FAILS(sampler, StatusCode::kNotFound);
    } else {
      ASSERT_OK(sampler);
      ASSERT_EQ(std::prev(state)->first, sampler->position);
      ASSERT_EQ(std::prev(state)->second, sampler->sampler->philox_seed);
    }
  }

  // Ids and KV of [begin, end). `missing`: some KV that is needed is not there; then what can be
  // restored instead is compared.
  void CompareContent(const Branch& branch, const ModelBranch& want, uint64_t begin, uint64_t end,
                      bool* missing) {
    // Positions apart, so that each can be looked at.
    const Layout layout = Layout::kTokenMajor;
    const uint64_t length = want.CommonLength(model_spec_, end);
    ASSERT_OK_ASSIGN(const uint64_t restorable, branch.RestorableLength(end));
    ASSERT_LE(restorable, length);
    std::vector<TokenId> ids(end - begin);
    KvSet got(model_spec_, layout, begin, end - begin);
    RestoreRequest request;
    request.begin = begin;
    request.end = end;
    request.tokens = ids;
    request.into = got.View(begin, end - begin);
    auto restored = branch.Restore(request);
    if (restored.status().code() == StatusCode::kEvicted) {
      *missing = true;
      ASSERT_OK_ASSIGN(const auto holes, branch.EvictedKv(begin, end));
      ASSERT_FALSE(holes.empty());
      for (const KvHole& hole : holes) {
        ++(want.positions[hole.begin].kv[hole.group].has_value() ? evicted_ : gaps_);
      }
      ASSERT_OK_ASSIGN(const uint64_t instead, branch.RestorableLength(end));
      const bool matters = std::any_of(holes.begin(), holes.end(), [&](const KvHole& hole) {
        return hole.begin < length && !model_spec_.groups[hole.group].optional;
      });
      if (matters) {
        ASSERT_LT(instead, length);
      }
      request.into = nullptr;
      restored = branch.Restore(request);
      if (matters && begin == 0) {
        ASSERT_NO_FATAL_FAILURE(CompareContent(branch, want, 0, instead, missing));
      }
    } else if (begin == 0) {
      ASSERT_EQ(length, restorable);
    }
    ASSERT_OK(restored);
    for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(want.positions[begin + i].token, ids[i]);
    if (request.into == nullptr) return;
    KvSet image(model_spec_, layout, begin, end - begin);
    for (uint32_t group = 0; group < model_.groups(); ++group) {
      const LayerGroup& spec = model_spec_.groups[group];
      const uint64_t kv_end = std::min(length, want.kv_length(group));
      if (!spec.optional) {
        ASSERT_EQ(length, restored->kv_ends[group]);
      }
      for (uint64_t at = begin; at < kv_end; ++at) {
        if (HasRule(spec) && !NeedsRow(spec, length, at) && IsBlank(spec, got.pool(group), at))
          continue;
        // Not given for this branch, but filled in for one that it shares the position with.
        const uint64_t seed = want.positions[at].kv[group].value_or(0);
        image.pool(group).Write(seed == 0 ? want.positions[at].token : seed, at, at + 1);
      }
    }
    ASSERT_TRUE(got == image) << "[" << begin << ", " << end << ") at " << length;
  }

  // REQUIRES: the pool's positions lie one after another.
  static bool IsBlank(const LayerGroup& group, const KvPool& pool, uint64_t position) {
    const auto bytes = static_cast<ptrdiff_t>(group.token_bytes());
    const auto at = pool.memory().begin() + static_cast<ptrdiff_t>(position - pool.first()) * bytes;
    return std::all_of(at, at + bytes, [](std::byte byte) { return byte == kBlank; });
  }

  // Gives all KV that the branch has had; what was not evicted is left alone.
  void FillAnew(uint64_t id) {
    const ModelBranch& want = model_.branches().at(id);
    KvSet kv(model_spec_, Layout::kNhd, 0, want.length());
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (uint32_t group = 0; group < model_.groups(); ++group) {
      const uint64_t end = want.kv_length(group);
      kv.pool(group).Write(
          [&](uint64_t at) {
            const uint64_t seed = want.positions[at].kv[group].value_or(0);
            return seed == 0 ? want.positions[at].token : seed;
          },
          0, end);
      ranges.emplace_back(0, end);
    }
    std::vector<GroupView> groups;
    for (const GroupView& view : kv.View(ranges)->groups) {
      if (view.count != 0) groups.push_back(view);
    }
    const Status status = Handle(id).Fill({.groups = groups});
    // Gaps that are filled may be more than the namespace can hold; what came before survives.
    if (status.code() == StatusCode::kNoSpace) return;
    ASSERT_OK(status);
    for (uint32_t group = 0; group < model_.groups(); ++group) {
      if (!HasRule(model_spec_.groups[group])) continue;
      model_.AddKv(id, group, 0, want.kv_length(group), 0);
    }
    ++filled_;
  }

  void CompareAll() {
    for (const auto& [id, branch] : model_.branches()) {
      ASSERT_NO_FATAL_FAILURE(Compare(id));
    }
    size_t listed = 0;
    for (const char* ns : {"", "ns"}) {
      auto page = store_.ListBranches(ns, "", 1000);
      ASSERT_OK(page);
      for (const BranchInfo& info : page->branches) {
        ++listed;
        ASSERT_EQ(info.name, model_.branches().at(static_cast<uint64_t>(info.id)).name);
      }
    }
    ASSERT_EQ(model_.branches().size(), listed);
    ASSERT_EQ(listed, store_.Metrics().branches);
  }

  TestWorld* const world_;
  std::mt19937_64 random_;
  const Options options_;
  const ModelSpec model_spec_ = EveryRuleModel();
  ModelId id_{};
  // Why restores failed: the model has the KV, so it was evicted; or the model has not.
  uint64_t evicted_ = 0, gaps_ = 0;
  uint64_t joined_ = 0, filled_ = 0;
  Store store_;
  ReferenceModel model_;
  bool untrimmed_ =
      false;  // Something was left beyond all that reach a node; so it may be trimmed.
};

constexpr uint64_t kDefaultSeed = 20'261'121;

uint64_t Seed() {
  const uint64_t seed = GivenSeed().value_or(kDefaultSeed);
  std::printf("CAIRN_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

class RandomOperationsTest
    : public ::testing::TestWithParam<std::tuple<std::string, uint32_t, uint64_t>> {};

INSTANTIATE_TEST_SUITE_P(Worlds, RandomOperationsTest,
                         ::testing::Combine(::testing::Values("memory", "simulated"),
                                            ::testing::Values(1u, 8u),
                                            ::testing::Values(1u, 40u, 32768u)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "Coalescing" +
                                  std::to_string(std::get<1>(test.param)) + "Replaying" +
                                  std::to_string(std::get<2>(test.param));
                         });

TEST_P(RandomOperationsTest, AHybridModelIsRestoredAtOnePosition) {
  const auto& [name, coalesced, replayed] = GetParam();
  const uint64_t seed = Seed();
  const auto world = TestWorld::Make(name, seed);
  Options options = world->options();
  options.delta_batch_tokens = coalesced;
  options.replay_records_max = replayed;
  if (replayed < 32768) options.tree_memory_bytes = 0;
  RandomWalk walk(world.get(), seed + coalesced, options);
  walk.Run(name == "memory" ? 6'000 : 3'000);
  if (seed == kDefaultSeed) walk.ExpectMetAll();
}

}  // namespace
}  // namespace cairn::testing
